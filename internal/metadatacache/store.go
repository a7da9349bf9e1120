// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package metadatacache

import (
	"hash/maphash"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// Counts are the numbers of objects in the store.
type Counts struct {
	// Annotated objects have at least one kept annotation.
	Annotated int
	// Unannotated objects have none.
	Unannotated int
	// Unguarded objects have an annotation that asks for an identity, but not
	// the label that the guard selects by. They are among the annotated ones.
	Unguarded int
}

// store holds objects by name.
//
// Objects without annotations or label, nearly all of a cluster's, are a set of
// hashes. That set can err: a name whose hash is that of another is taken for a
// known object without annotations. The hash is 64 bits long and keyed with a
// seed of this process alone that never leaves it, so nobody can choose a name
// to that end, and by chance it happens to a name with 20,000 others in the set
// once in 10^15. Removing one of two names with the same hash makes a miss of
// the other, which is then read live.
type store struct {
	seed     maphash.Seed
	identity func(key string) bool

	mu sync.RWMutex
	contents
}

// contents are what Replace swaps. A name is in at most one of the two.
type contents struct {
	named  map[types.NamespacedName]Object // annotated or labelled
	hashes map[uint64]struct{}             // neither
	tally  Counts                          // but for the hashes
}

func newStore(identity func(key string) bool) *store {
	return &store{seed: maphash.MakeSeed(), identity: identity, contents: newContents()}
}

func newContents() contents {
	return contents{named: map[types.NamespacedName]Object{}, hashes: map[uint64]struct{}{}}
}

// get never allocates.
func (s *store) get(id types.NamespacedName) (Object, bool) {
	hash := s.hash(id)
	s.mu.RLock()
	defer s.mu.RUnlock()
	if obj, ok := s.named[id]; ok {
		return obj, true
	}
	_, ok := s.hashes[hash]
	return Object{}, ok
}

func (s *store) counts() Counts {
	s.mu.RLock()
	defer s.mu.RUnlock()
	counts := s.tally
	counts.Unannotated += len(s.hashes)
	return counts
}

func (s *store) put(it *item) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.remove(&s.contents, it.id)
	s.insert(&s.contents, it)
}

func (s *store) delete(id types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.remove(&s.contents, id)
}

func (s *store) replace(items []*item) {
	next := newContents()
	for _, it := range items {
		s.remove(&next, it.id) // a list may name an object twice; its last state counts
		s.insert(&next, it.clone())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.contents = next
}

func (s *store) insert(c *contents, it *item) {
	if it.Annotations == nil && !it.Labeled {
		c.hashes[s.hash(it.id)] = struct{}{}
		return
	}
	c.named[it.id] = it.Object
	s.count(c, it.Object, 1)
}

// remove leaves the hashes alone where it finds the name itself: the hash is
// not this object's then.
func (s *store) remove(c *contents, id types.NamespacedName) {
	obj, ok := c.named[id]
	if !ok {
		delete(c.hashes, s.hash(id))
		return
	}
	delete(c.named, id)
	s.count(c, obj, -1)
}

func (s *store) count(c *contents, obj Object, n int) {
	if obj.Annotations == nil {
		c.tally.Unannotated += n
		return
	}
	c.tally.Annotated += n
	if !obj.Labeled && s.wantsIdentity(obj) {
		c.tally.Unguarded += n
	}
}

func (s *store) wantsIdentity(obj Object) bool {
	if s.identity == nil {
		return true
	}
	for key := range obj.Annotations {
		if s.identity(key) {
			return true
		}
	}
	return false
}

// hash tells names apart by the slash, which is in no name of an object.
func (s *store) hash(id types.NamespacedName) uint64 {
	var h maphash.Hash
	h.SetSeed(s.seed)
	h.WriteString(id.Namespace)
	h.WriteByte('/')
	h.WriteString(id.Name)
	return h.Sum64()
}
