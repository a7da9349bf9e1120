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

// Object contains the metadata that the cache keeps of one API object.
type Object struct {
	// Annotations are the annotations under Options.Prefix, with full keys, or nil if there
	// are none. They are shared: callers must not change them.
	Annotations map[string]string
	// TooLarge is the size of these annotations, keys and values together, if it exceeds the
	// limit. Annotations is then nil. Otherwise, TooLarge is 0.
	TooLarge int
	// Label is the value of the label Options.Label, or empty if not set.
	Label string
}

// HasAnnotations reports whether the object has annotations under the prefix, even if they
// were too large to keep.
func (o Object) HasAnnotations() bool { return len(o.Annotations) > 0 || o.TooLarge != 0 }

// value dereferences a pointer from a store; nil stands for the zero Object.
func (o *Object) value() Object {
	if o == nil {
		return Object{}
	}
	return *o
}

// ObjectOf returns the parts of an object's metadata to keep: the annotations under prefix,
// unless they are larger than maxBytes, and the value of label. A maxBytes of zero means no
// limit. Strings are copied, so that they do not keep the decoded response in memory.
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
	return ObjectOf(meta, r.opts.Prefix, r.opts.Label, int(r.maxBytes.Load()))
}

// item is the name of an object in a list. Lists are decoded completely before they are
// stored. Until then, the objects are in Cache.incoming, whose size is limited. item is a
// runtime.Object because list elements must be.
type item struct{ id types.NamespacedName }

// GetObjectKind implements runtime.Object.
func (it *item) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject implements runtime.Object. An item is never changed.
func (it *item) DeepCopyObject() runtime.Object { return it }

// item keeps an object of a list until the list is complete. It returns an item unchanged,
// because a cache.TransformFunc must be idempotent.
func (c *Cache) item(obj any) (*item, error) {
	if it, ok := obj.(*item); ok {
		return it, nil
	}
	meta, err := metadataOf(obj)
	if err != nil {
		return nil, err
	}
	id, object := c.kept(meta)
	c.incoming.Load().set(id, object)
	return &item{id}, nil
}

// metadataOf returns an object that the reflector passes to a store.
func metadataOf(obj any) (*metav1.PartialObjectMetadata, error) {
	meta, ok := obj.(*metav1.PartialObjectMetadata)
	if !ok {
		return nil, fmt.Errorf("metadata cache: got %T, want *v1.PartialObjectMetadata", obj)
	}
	return meta, nil
}

// kept returns the name of an object and the parts to keep, or nil if there are none.
func (c *Cache) kept(meta *metav1.PartialObjectMetadata) (types.NamespacedName, *Object) {
	id := types.NamespacedName{Namespace: strings.Clone(meta.Namespace), Name: strings.Clone(meta.Name)}
	object := c.Object(meta)
	if !object.HasAnnotations() && object.Label == "" {
		return id, nil
	}
	return id, &object
}
