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

	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

// object returns the parts of the metadata to keep: the names, the annotations under Lanyard's
// prefix, unless they are larger than Options.MaxBytes, and the value of the label. Strings
// are copied, so that they do not keep the decoded response in memory.
func (c *Cache) object(meta *metav1.PartialObjectMetadata) annotations.Object {
	object := annotations.Object{
		Namespace: strings.Clone(meta.Namespace), Name: strings.Clone(meta.Name), Label: strings.Clone(meta.Labels[c.opts.Label]),
	}
	for key, value := range meta.Annotations {
		if !strings.HasPrefix(key, annotations.Prefix) {
			continue
		}
		if object.Annotations == nil {
			object.Annotations = map[string]string{}
		}
		object.Annotations[strings.Clone(key)] = strings.Clone(value)
	}
	if size := object.Bytes(); c.opts.MaxBytes > 0 && size > c.opts.MaxBytes {
		object.Annotations, object.TooLarge = nil, size
	}
	return object
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
	object := c.object(meta)
	c.incoming.Load().set(object)
	return &item{nameOf(&object)}, nil
}

// nameOf returns the name of an object, which is its key in a store.
func nameOf(object *annotations.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: object.Namespace, Name: object.Name}
}

// metadataOf returns an object that the reflector passes to a store.
func metadataOf(obj any) (*metav1.PartialObjectMetadata, error) {
	meta, ok := obj.(*metav1.PartialObjectMetadata)
	if !ok {
		return nil, fmt.Errorf("metadata cache: got %T, want *v1.PartialObjectMetadata", obj)
	}
	return meta, nil
}
