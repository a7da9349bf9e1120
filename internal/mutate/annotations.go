// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mutate

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/lanyard-dev/lanyard/internal/jsonpatch"
	"github.com/lanyard-dev/lanyard/internal/reason"
	"github.com/lanyard-dev/lanyard/internal/texts"
)

// annotation is an annotation that Lanyard writes on a pod.
type annotation struct {
	key, value string
	secret     bool   // a credential file: messages never have the value
	path       string // JSON Pointer, in a pod that has annotations
	text       []byte // the value as JSON
	member     []byte // key and value as a member of a JSON object
}

func newAnnotation(key, value string, secret bool) annotation {
	text := quoted(value)
	return annotation{key, value, secret, "/metadata/annotations/" + jsonpatch.Escape(key), text, fmt.Appendf(nil, `%s:%s`, quoted(key), text)}
}

// missingAnnotations returns the annotations that the pod lacks. Those that it
// has must be as Lanyard would write them: a pod that was copied with the marks of
// another identity would look injected but would not be.
func (m *mutation) missingAnnotations() ([]annotation, error) {
	if len(m.pod.Annotations) == 0 {
		return m.annotations, nil
	}
	var missing []annotation
	for _, a := range m.annotations {
		got, exists := m.pod.Annotations[a.key]
		if exists && got != a.value {
			return nil, &reason.Error{Reason: reason.ForeignInjection, Err: foreignAnnotation(a, got)}
		}
		if !exists {
			missing = append(missing, a)
		}
	}
	return missing, nil
}

func foreignAnnotation(a annotation, got string) error {
	const advice = "remove the injection that was copied from another pod"
	path := field.NewPath("metadata", "annotations").Key(a.key)
	if a.secret {
		return field.Forbidden(path, "is written only by Lanyard, and does not match this pod's ServiceAccount; "+advice)
	}
	return field.Invalid(path, texts.Cut(got, texts.MaxShown), fmt.Sprintf("is written only by Lanyard, and must be %q for this pod's ServiceAccount; %s", a.value, advice))
}

// addAnnotations adds annotations to the pod.
func (m *mutation) addAnnotations(add []annotation) {
	switch {
	case m.pod.hasAnnotations:
		for _, a := range add {
			m.pod.patch.Add(a.path, a.text)
		}
	case m.pod.hasMetadata: // a pod without annotations lacks all of them
		m.pod.patch.Add("/metadata/annotations", m.allAnnotations)
	default:
		m.pod.patch.Add("/metadata", fmt.Appendf(nil, `{"annotations":%s}`, m.allAnnotations))
	}
}
