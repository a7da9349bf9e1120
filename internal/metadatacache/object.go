// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package metadatacache

import (
	"fmt"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

const (
	labelName  = "identity"
	labelValue = "enabled"
)

// item is an object on its way from the API server into the store. It is a
// runtime.Object since a list's elements have to be.
type item struct {
	id types.NamespacedName
	Object
}

// GetObjectKind implements runtime.Object.
func (it *item) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject implements runtime.Object. An item is never changed, so a
// shallow copy does.
func (it *item) DeepCopyObject() runtime.Object {
	out := *it
	return &out
}

// clone copies an item into memory of its own. What came in a long list lies
// between what was needed to decode the list, a little in each page of memory,
// and would keep all of those pages.
func (it *item) clone() *item {
	out := *it
	out.id = types.NamespacedName{Namespace: strings.Clone(it.id.Namespace), Name: strings.Clone(it.id.Name)}
	if it.Annotations != nil {
		out.Annotations = make(map[string]string, len(it.Annotations))
		for key, value := range it.Annotations {
			out.Annotations[key] = strings.Clone(value)
		}
	}
	return &out
}

// extractor takes what is kept from an object's metadata. All strings that it
// returns are copies: none keeps a decoded object, or the response it came in,
// in memory.
type extractor struct {
	prefix string
	label  string
	keep   func(key string) bool
	limit  int

	mu   sync.Mutex
	keys map[string]string
}

// maxKeys bounds the keys that are shared between objects. There are far fewer
// that Lanyard knows; the bound is for those that users may make up.
const maxKeys = 64

func newExtractor(prefix string, keep func(key string) bool, limit int) *extractor {
	return &extractor{prefix: prefix, label: prefix + labelName, keep: keep, limit: limit, keys: map[string]string{}}
}

// from turns what the reflector may hand over into an item. Items stay as they
// are, as a cache.TransformFunc has to be idempotent.
func (e *extractor) from(obj any) (*item, error) {
	switch obj := obj.(type) {
	case *item:
		return obj, nil
	case *metav1.PartialObjectMetadata:
		return e.item(obj), nil
	default:
		return nil, fmt.Errorf("lookup of %T: want *v1.PartialObjectMetadata", obj)
	}
}

func (e *extractor) item(meta *metav1.PartialObjectMetadata) *item {
	return &item{
		id: types.NamespacedName{
			Namespace: strings.Clone(meta.Namespace),
			Name:      strings.Clone(meta.Name),
		},
		Object: e.object(meta),
	}
}

func (e *extractor) object(meta *metav1.PartialObjectMetadata) Object {
	obj := Object{Labeled: meta.Labels[e.label] == labelValue}
	if size := e.size(meta); e.limit > 0 && size > e.limit {
		obj.Annotations, obj.TooLarge = map[string]string{}, size
		return obj
	}
	for key, value := range meta.Annotations {
		if !e.keeps(key) {
			continue
		}
		if obj.Annotations == nil {
			obj.Annotations = map[string]string{}
		}
		obj.Annotations[e.key(key)] = strings.Clone(value)
	}
	return obj
}

func (e *extractor) keeps(key string) bool {
	return strings.HasPrefix(key, e.prefix) && (e.keep == nil || e.keep(key))
}

// size counts the bytes of what would be kept.
func (e *extractor) size(meta *metav1.PartialObjectMetadata) int {
	size := 0
	for key, value := range meta.Annotations {
		if e.keeps(key) {
			size += len(key) + len(value)
		}
	}
	return size
}

// key returns the one copy of a key that all objects share.
func (e *extractor) key(key string) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	if shared, ok := e.keys[key]; ok {
		return shared
	}
	key = strings.Clone(key)
	if len(e.keys) < maxKeys {
		e.keys[key] = key
	}
	return key
}
