// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package metadatacache

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Object has the metadata that the cache keeps of one API object.
type Object struct {
	// Annotations are the annotations under Options.Prefix, by their full keys;
	// nil if the object has no such annotation. They are shared: callers must not change them.
	Annotations map[string]string
	// TooLarge is the size of these annotations, keys and values, if it is above
	// Options.MaxBytes. Annotations is then nil. Otherwise it is 0.
	TooLarge int
	// Label is the value of the label Options.Label; empty if not set.
	Label string
}

// HasAnnotations reports whether the object has annotations under the prefix,
// kept or too large to be kept.
func (o Object) HasAnnotations() bool { return len(o.Annotations) > 0 || o.TooLarge != 0 }

// value returns the object that a pointer in a store stands for.
func (o *Object) value() Object {
	if o == nil {
		return Object{}
	}
	return *o
}

// ObjectOf returns the kept parts of an object's metadata: the annotations under
// prefix, unless they have more than maxBytes, and the value of label. maxBytes of
// zero means no limit. Strings are copied: none keeps the response that it was
// decoded from in memory.
func ObjectOf(meta *metav1.PartialObjectMetadata, prefix, label string, maxBytes int) Object {
	object := Object{Label: strings.Clone(meta.Labels[label])}
	size := 0
	for key, value := range meta.Annotations {
		if !strings.HasPrefix(key, prefix) {
			continue
		}
		size += len(key) + len(value)
		if object.Annotations == nil {
			object.Annotations = map[string]string{}
		}
		object.Annotations[strings.Clone(key)] = strings.Clone(value)
	}
	if maxBytes > 0 && size > maxBytes {
		object.Annotations, object.TooLarge = nil, size
	}
	return object
}

// Object returns the kept parts of the metadata.
func (r *Reader) Object(meta *metav1.PartialObjectMetadata) Object {
	return ObjectOf(meta, r.opts.Prefix, r.opts.Label, r.opts.MaxBytes)
}

// item is an object on its way from the API server into the cache. It is a
// runtime.Object because the elements of a list must be.
type item struct {
	id     types.NamespacedName
	object *Object
	shed   bool // the annotations of too many items would be in memory
}

// GetObjectKind implements runtime.Object.
func (it *item) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject implements runtime.Object. An item is never changed, so a
// shallow copy is enough.
func (it *item) DeepCopyObject() runtime.Object {
	out := *it
	return &out
}

// item returns the metadata as an item. A list is decoded completely before it is
// stored, so item drops the objects above the store's limit.
func (c *Cache) item(meta *metav1.PartialObjectMetadata) *item {
	it := &item{id: types.NamespacedName{Namespace: strings.Clone(meta.Namespace), Name: strings.Clone(meta.Name)}}
	if object := c.Object(meta); object.HasAnnotations() || object.Label != "" {
		it.object = &object
	}
	pending := c.pending.Add(size(it.id, it.object))
	if limit := c.store.limit; limit > 0 && pending > limit {
		it.object, it.shed = nil, true
	}
	return it
}

// itemOf converts an object that the reflector passes to a store. It returns an item as
// it is: a cache.TransformFunc must be idempotent.
func (c *Cache) itemOf(obj any) (*item, error) {
	switch obj := obj.(type) {
	case *item:
		return obj, nil
	case *metav1.PartialObjectMetadata:
		return c.item(obj), nil
	default:
		return nil, fmt.Errorf("metadata cache: got %T, want *v1.PartialObjectMetadata", obj)
	}
}
