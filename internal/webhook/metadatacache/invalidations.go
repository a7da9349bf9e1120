// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package metadatacache

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
)

const (
	// maxInvalid limits the number of invalid objects. If there are more, all objects are
	// invalid.
	maxInvalid = 4096
	// storedAfter is the time after which an admitted write has either been stored or never
	// will be: twice kube-apiserver's default --request-timeout.
	storedAfter = 2 * time.Minute
)

// invalidation is a write that was admitted and that the watch has not delivered yet.
type invalidation struct {
	at time.Time // when it was admitted
	// replaced is the resource version before the write. The API server stores the write only
	// if the object still has this version, and otherwise repeats the admission. So the first
	// later version contains the write or shows that it failed.
	replaced string
	// settled is a resource version that includes the write if it was stored, or empty while
	// unknown.
	settled string
}

// invalidations is the set of objects that must be read from the API server. The zero value
// is empty.
type invalidations struct {
	mu      sync.RWMutex
	objects map[types.NamespacedName]invalidation
	// all is the last write that exceeded maxInvalid. Until it ends, all objects are invalid.
	all *invalidation
}

// add invalidates an object until all of its writes have been delivered.
func (i *invalidations) add(id types.NamespacedName, replaced string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.objects == nil {
		i.objects = map[types.NamespacedName]invalidation{}
	}
	earlier, again := i.objects[id]
	switch {
	case !again && len(i.objects) >= maxInvalid:
		i.all = &invalidation{at: time.Now()}
		return
	case again && !isLater(replaced, earlier.replaced):
		replaced = earlier.replaced
	}
	i.objects[id] = invalidation{at: time.Now(), replaced: replaced}
}

func (i *invalidations) contains(id types.NamespacedName) bool {
	i.mu.RLock()
	defer i.mu.RUnlock()
	_, invalid := i.objects[id]
	return invalid || i.all != nil
}

// deliver ends the invalidation of the object if this version is later than the versions that
// its writes replace.
func (i *invalidations) deliver(id types.NamespacedName, version string) {
	if !i.contains(id) { // as nearly always
		return
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if write, invalid := i.objects[id]; invalid && isLater(version, write.replaced) {
		delete(i.objects, id)
	}
}

// hasUntil reports whether there are writes that were admitted at or before this time.
func (i *invalidations) hasUntil(at time.Time) bool {
	i.mu.RLock()
	defer i.mu.RUnlock()
	for _, write := range i.objects {
		if !write.at.After(at) {
			return true
		}
	}
	return i.all != nil && !i.all.at.After(at)
}

// settle ends the invalidations of writes that have been stored or never will be. The version
// listed includes all writes until this time, and the cache has received everything up to the
// version received.
func (i *invalidations) settle(until time.Time, listed, received string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for id, write := range i.objects {
		if write.settle(until, listed, received) {
			delete(i.objects, id)
		} else {
			i.objects[id] = write
		}
	}
	if i.all != nil && i.all.settle(until, listed, received) {
		i.all = nil
	}
}

// settle reports whether the invalidation ends.
func (w *invalidation) settle(until time.Time, listed, received string) bool {
	if w.settled == "" && !w.at.After(until) {
		w.settled = listed
	}
	return w.settled != "" && (w.settled == received || isLater(received, w.settled))
}

// isLater reports whether resource version a is known to be later than b. A version that
// is not a number is never later or earlier.
func isLater(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order > 0
}
