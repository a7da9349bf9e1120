// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package annotations

import "strings"

// Object contains the parts of a ServiceAccount or Namespace that a decision depends on. Use
// ServiceAccountObject or NamespaceObject to create it from metadata.
type Object struct {
	// Namespace and Name are the names of the object. A Namespace has no Namespace.
	Namespace, Name string
	// Annotations are the annotations of the object. Keys without Prefix are ignored.
	Annotations map[string]string
	// TooLarge is the size in bytes of annotations that were not kept because they are larger
	// than those of any valid object. Annotations is then nil. Otherwise, TooLarge is 0.
	TooLarge int
	// Label is the value of the label IdentityLabel of a ServiceAccount, or of the label
	// Inject of a Namespace, or empty if not set.
	Label string
}

// Metadata is the metadata of an object, such as a metav1.Object.
type Metadata interface {
	GetNamespace() string
	GetName() string
	GetAnnotations() map[string]string
	GetLabels() map[string]string
}

// ServiceAccountObject returns the parts of a ServiceAccount that decisions depend on. The
// result shares the annotation map.
func ServiceAccountObject(m Metadata) *Object {
	return &Object{Namespace: m.GetNamespace(), Name: m.GetName(), Annotations: m.GetAnnotations(), Label: m.GetLabels()[IdentityLabel]}
}

// NamespaceObject is like ServiceAccountObject for a Namespace.
func NamespaceObject(m Metadata) *Object {
	return &Object{Name: m.GetName(), Annotations: m.GetAnnotations(), Label: m.GetLabels()[Inject]}
}

// Bytes returns the size of the annotations with Prefix, keys and values together.
func (o *Object) Bytes() int {
	size := o.TooLarge
	for key, value := range o.Annotations {
		if strings.HasPrefix(key, Prefix) {
			size += len(key) + len(value)
		}
	}
	return size
}
