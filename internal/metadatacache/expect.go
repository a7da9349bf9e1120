// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package metadatacache

import (
	"container/list"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

const (
	// expectFor is well over the time that a watch event takes, also where the
	// API server is busy.
	expectFor = 10 * time.Second
	// maxExpected bounds the memory. Past it the oldest expectation goes, and
	// that object is answered from the store again.
	maxExpected = 4096
)

// expectations are the objects that are just being written. The zero value is
// ready to use.
type expectations struct {
	// size is len(byName). It spares has the lock while nothing is expected.
	size atomic.Int64

	mu     sync.Mutex
	byName map[types.NamespacedName]*list.Element
	byAge  list.List // of expectation, the oldest in front
}

type expectation struct {
	id    types.NamespacedName
	until time.Time
}

func (e *expectations) add(id types.NamespacedName) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := time.Now()
	e.expire(now)
	if e.byName == nil {
		e.byName = map[types.NamespacedName]*list.Element{}
	}
	entry := expectation{id: id, until: now.Add(expectFor)}
	if elem, ok := e.byName[id]; ok {
		elem.Value = entry
		e.byAge.MoveToBack(elem)
	} else {
		e.byName[id] = e.byAge.PushBack(entry)
	}
	if len(e.byName) > maxExpected {
		e.drop(e.byAge.Front())
	}
	e.size.Store(int64(len(e.byName)))
}

func (e *expectations) has(id types.NamespacedName) bool {
	if e.size.Load() == 0 {
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.expire(time.Now())
	_, ok := e.byName[id]
	return ok
}

func (e *expectations) expire(now time.Time) {
	for elem := e.byAge.Front(); elem != nil; elem = e.byAge.Front() {
		if elem.Value.(expectation).until.After(now) {
			break
		}
		e.drop(elem)
	}
	e.size.Store(int64(len(e.byName)))
}

func (e *expectations) drop(elem *list.Element) {
	delete(e.byName, elem.Value.(expectation).id)
	e.byAge.Remove(elem)
}
