// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package annotations

import "strings"

// Object is the part of a ServiceAccount or of a Namespace that decisions about pods
// depend on. ServiceAccountObject and NamespaceObject make it from the object's metadata.
type Object struct {
	// Namespace and Name are the names of the object. A Namespace has no Namespace.
	Namespace, Name string
	// Annotations are the annotations of the object. Those without Prefix do not matter.
	Annotations map[string]string
	// TooLarge is the size in bytes, keys and values together, of annotations that were not
	// kept because no valid object has so many. Annotations is then nil. It is 0 otherwise.
	TooLarge int
	// Label is the value of the label IdentityLabel of a ServiceAccount, or of the label
	// Inject of a Namespace; empty if not set.
	Label string
}

// Metadata is the metadata of an object, such as a metav1.Object.
type Metadata interface {
	GetNamespace() string
	GetName() string
	GetAnnotations() map[string]string
	GetLabels() map[string]string
}

// ServiceAccountObject returns the parts of a ServiceAccount that decisions depend on. It
// shares the annotations with the ServiceAccount.
func ServiceAccountObject(m Metadata) *Object {
	return &Object{Namespace: m.GetNamespace(), Name: m.GetName(), Annotations: m.GetAnnotations(), Label: m.GetLabels()[IdentityLabel]}
}

// NamespaceObject is ServiceAccountObject for a Namespace.
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
