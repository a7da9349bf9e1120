// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package metadatacache

import (
	"iter"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// store holds the objects of a Cache, as long as they fit into a number of bytes.
// The zero value is empty and without a limit.
type store struct {
	limit int64 // of bytes; 0 for none

	mu sync.RWMutex
	// objects holds nil for an object with nothing to keep: most objects of a
	// cluster have neither annotations under the prefix nor the label.
	objects map[types.NamespacedName]*Object
	bytes   int64
}

// Sizes of an object's parts in memory, apart from their text. A test
// compares the sum with the heap.
const (
	entryBytes      = 112 // in the map of the store, and the allocations of the name
	annotatedBytes  = 464 // an Object and its map of annotations
	annotationBytes = 32
)

// size returns how many bytes the object takes in the store.
func size(id types.NamespacedName, object *Object) int64 {
	n := entryBytes + len(id.Namespace) + len(id.Name)
	if object == nil {
		return int64(n)
	}
	n += annotatedBytes + len(object.Label)
	for key, value := range object.Annotations {
		n += annotationBytes + len(key) + len(value)
	}
	return int64(n)
}

func (s *store) get(id types.NamespacedName) (*Object, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	object, ok := s.objects[id]
	return object, ok
}

func (s *store) delete(id types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forget(id)
}

func (s *store) forget(id types.NamespacedName) {
	if object, ok := s.objects[id]; ok {
		s.bytes -= size(id, object)
		delete(s.objects, id)
	}
}

// set keeps an object in place of its previous state. If the object does not fit,
// set keeps neither.
func (s *store) set(it *item) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forget(it.id)
	s.add(it)
}

func (s *store) add(it *item) {
	n := size(it.id, it.object)
	if it.shed || s.limit > 0 && s.bytes+n > s.limit {
		return
	}
	if s.objects == nil {
		s.objects = map[types.NamespacedName]*Object{}
	}
	s.objects[it.id] = it.object
	s.bytes += n
}

// replace keeps these objects in place of all previous objects, as many as there is
// space for.
func (s *store) replace(items []*item) {
	fresh := store{limit: s.limit, objects: make(map[types.NamespacedName]*Object, len(items))}
	for _, it := range items {
		fresh.forget(it.id)
		fresh.add(it)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.objects, s.bytes = fresh.objects, fresh.bytes
}

// used returns how many bytes the objects take.
func (s *store) used() int64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.bytes
}

// all returns all objects. The store is locked while the caller iterates.
func (s *store) all() iter.Seq2[types.NamespacedName, Object] {
	return func(yield func(types.NamespacedName, Object) bool) {
		s.mu.RLock()
		defer s.mu.RUnlock()
		for id, object := range s.objects {
			if !yield(id, object.value()) {
				return
			}
		}
	}
}
