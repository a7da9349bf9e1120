// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mutate

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/lanyard-dev/lanyard/internal/rawjson"
	"github.com/lanyard-dev/lanyard/internal/texts"
	"github.com/lanyard-dev/lanyard/pkg/mutate/reason"
)

// annotation is an annotation or label that Lanyard writes on a pod.
type annotation struct {
	key, value string
	secret     bool   // a credential file: messages never have the value
	path       string // JSON Pointer, in a pod that has annotations or labels
	text       []byte // the value as JSON
	member     []byte // key and value as a member of a JSON object
}

func newAnnotation(key, value string, secret bool) annotation {
	text := quoted(value)
	return annotation{key, value, secret, "/metadata/annotations/" + rawjson.EscapePointer(key), text, fmt.Appendf(nil, `%s:%s`, quoted(key), text)}
}

// missingAnnotations returns the annotations that the pod lacks. Existing ones must have the
// values that Lanyard would write, because a pod that was copied with the marks of another
// identity would look injected.
func (m *mutation) missingAnnotations() ([]annotation, error) {
	if got := m.pod.IdentityLabel; got != "" && got != m.label.value {
		return nil, foreign(m.label, "labels", got)
	}
	if len(m.pod.Annotations) == 0 {
		return m.annotations, nil
	}
	var missing []annotation
	for _, a := range m.annotations {
		got, exists := m.pod.Annotations[a.key]
		if exists && got != a.value {
			return nil, foreign(a, "annotations", got)
		}
		if !exists {
			missing = append(missing, a)
		}
	}
	return missing, nil
}

// foreign returns the error for an annotation or a label with another value.
func foreign(a annotation, member, got string) error {
	const advice = "remove the injection that was copied from another pod"
	path := field.NewPath("metadata", member).Key(a.key)
	err := field.Invalid(path, texts.Cut(got, texts.MaxShown), fmt.Sprintf("is written only by Lanyard, and must be %q for this pod's ServiceAccount; %s", a.value, advice))
	if a.secret {
		err = field.Forbidden(path, "is written only by Lanyard, and does not match this pod's ServiceAccount; "+advice)
	}
	return &reason.Error{Reason: reason.ForeignInjection, Err: err}
}

// addMarks adds annotations and the label to the pod. A second pass adds only those that
// are missing.
func (m *mutation) addMarks(add []annotation) {
	switch {
	case !m.pod.HasMetadata:
		m.changes.patch.Add("/metadata", fmt.Appendf(nil, `{"annotations":%s,"labels":{%s}}`, m.allAnnotations, m.label.member))
		return
	case m.pod.HasAnnotations:
		for _, a := range add {
			m.changes.patch.Add(a.path, a.text)
		}
	default: // a pod without annotations lacks all of them
		m.changes.patch.Add("/metadata/annotations", m.allAnnotations)
	}
	switch {
	case m.pod.IdentityLabel != "":
	case m.pod.HasLabels:
		m.changes.patch.Add(m.label.path, m.label.text)
	default:
		m.changes.patch.Add("/metadata/labels", fmt.Appendf(nil, "{%s}", m.label.member))
	}
}
