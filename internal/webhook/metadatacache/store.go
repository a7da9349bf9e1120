// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package metadatacache

import (
	"iter"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

// share is the fraction of the limit that a namespace may always use.
const share = 16

// store contains the objects of a Cache, up to a number of bytes. If they do not fit,
// namespaces that use more than their share lose objects, so that one namespace cannot evict
// the others.
//
// An informer of client-go with a transform does not suffice: it must keep an entry for each
// object, so that names alone could fill the memory, and it would fill the space in list
// order, so that the first namespace could take all of it.
//
// The zero value is empty and without a limit.
type store struct {
	limit int64 // of bytes, or 0 if there is none

	mu sync.RWMutex
	// objects contains nil for an object with only a name, as most have neither annotations
	// under the prefix nor the label.
	objects map[types.NamespacedName]*annotations.Object
	bytes   int64
	// namespaces contains the bytes of each namespace. large are the namespaces that use more
	// than their share.
	namespaces map[string]int64
	large      map[string]bool
}

// Memory of an object besides its text. A test compares the sum with the heap.
const (
	entryBytes      = 112 // in the map of the store, and the allocations of the name
	objectBytes     = 80  // an Object
	annotatedBytes  = 416 // its map of annotations
	annotationBytes = 32
)

// size returns the bytes that the object takes in the store.
func size(id types.NamespacedName, object *annotations.Object) int64 {
	n := entryBytes + len(id.Namespace) + len(id.Name)
	if object == nil {
		return int64(n)
	}
	n += objectBytes + len(object.Label)
	if len(object.Annotations) > 0 {
		n += annotatedBytes
	}
	for key, value := range object.Annotations {
		n += annotationBytes + len(key) + len(value)
	}
	return int64(n)
}

func (s *store) get(id types.NamespacedName) (object annotations.Object, ok bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	kept, ok := s.objects[id]
	return valueOf(id, kept), ok
}

// valueOf returns an object of the store.
func valueOf(id types.NamespacedName, kept *annotations.Object) annotations.Object {
	if kept == nil {
		return annotations.Object{Namespace: id.Namespace, Name: id.Name}
	}
	return *kept
}

func (s *store) delete(id types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forget(id)
}

func (s *store) forget(id types.NamespacedName) {
	if object, ok := s.objects[id]; ok {
		delete(s.objects, id)
		s.count(id.Namespace, -size(id, object))
	}
}

// count adds n bytes to the namespace.
func (s *store) count(namespace string, n int64) {
	s.bytes += n
	n += s.namespaces[namespace]
	if s.namespaces[namespace] = n; n == 0 {
		delete(s.namespaces, namespace)
	}
	if s.limit > 0 && n > s.limit/share {
		s.large[namespace] = true
	} else {
		delete(s.large, namespace)
	}
}

// set replaces an object. If the new state does not fit, set removes the object.
func (s *store) set(object annotations.Object) {
	id := nameOf(&object)
	var kept *annotations.Object
	if len(object.Annotations) > 0 || object.TooLarge > 0 || object.Label != "" {
		whole := object
		kept = &whole
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forget(id)
	n := size(id, kept)
	if s.limit > 0 && !s.makeSpace(id.Namespace, n) {
		return
	}
	if s.objects == nil {
		s.objects, s.namespaces, s.large = map[types.NamespacedName]*annotations.Object{}, map[string]int64{}, map[string]bool{}
	}
	s.objects[id] = kept
	s.count(id.Namespace, n)
}

// makeSpace makes space for n more bytes of the namespace, and reports whether it could. It
// evicts objects of the namespace with the most bytes, if that uses more than its share and
// more than this namespace.
func (s *store) makeSpace(namespace string, n int64) bool {
	wanted := s.namespaces[namespace] + n
	for s.bytes+n > s.limit {
		largest, most := "", wanted
		for name := range s.large {
			if s.namespaces[name] > most {
				largest, most = name, s.namespaces[name]
			}
		}
		if most == wanted {
			return false
		}
		// The search is slow, so it makes space for many objects.
		enough := max(wanted, most-s.limit/share)
		for id := range s.objects {
			if id.Namespace != largest {
				continue
			}
			if s.forget(id); s.namespaces[largest] <= enough {
				break
			}
		}
	}
	return true
}

// replace replaces all objects with the items of incoming, which must not be used afterwards.
func (s *store) replace(incoming *store, items []*item) {
	fresh := incoming
	if !incoming.isExactly(items) {
		fresh = &store{limit: s.limit}
		for _, it := range items {
			if object, ok := incoming.get(it.id); ok {
				fresh.set(object)
			}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.objects, s.bytes, s.namespaces, s.large = fresh.objects, fresh.bytes, fresh.namespaces, fresh.large
}

// isExactly reports whether the store contains exactly the objects of the items, whose names
// are distinct.
func (s *store) isExactly(items []*item) bool {
	missing := func(it *item) bool { _, ok := s.get(it.id); return !ok }
	return len(items) == len(s.objects) && !slices.ContainsFunc(items, missing)
}

// used returns the bytes that all objects take.
func (s *store) used() int64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.bytes
}

// all returns all objects. The store is locked while the caller iterates.
func (s *store) all() iter.Seq[annotations.Object] {
	return func(yield func(annotations.Object) bool) {
		s.mu.RLock()
		defer s.mu.RUnlock()
		for id, kept := range s.objects {
			if !yield(valueOf(id, kept)) {
				return
			}
		}
	}
}
