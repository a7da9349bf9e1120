// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mutate

import (
	"fmt"
	"strings"

	"github.com/lanyard-dev/lanyard/internal/texts"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/pkg/mutate/reason"
)

// Finding is a problem with one container or with the whole pod.
type Finding struct {
	Reason reason.Reason `json:"reason"`
	// Container is the name of the container. It is empty if the finding is about the whole pod.
	Container string `json:"container,omitempty"`
	// Field is the field of the container or pod, such as env[AWS_PROFILE] or
	// metadata.annotations[lanyard.dev/containers], or empty.
	Field string `json:"field,omitempty"`
	// Got is the actual value of the field, and Want the allowed or missing one. Both may be
	// empty. Got never contains the value of a variable other than a profile name.
	Got  string `json:"got,omitempty"`
	Want string `json:"want,omitempty"`
	// Detail describes the finding. It contains names of variables, but not their values.
	Detail string `json:"detail"`
	// Fix is the next step for the user, or empty if there is nothing to do.
	Fix string `json:"fix,omitempty"`
}

// String formats the finding as an admission warning.
func (f Finding) String() string {
	if f.Reason == reason.NoContainer || f.Reason == reason.NotVerified { // about the whole pod
		return fmt.Sprintf("%s: %s", f.Reason, f.Detail)
	}
	return fmt.Sprintf("%s: container %q: %s", f.Reason, f.Container, f.Detail)
}

// add adds a finding about a container.
func (m *mutation) add(container []byte, f Finding) {
	f.Container = texts.Cut(container, texts.MaxShown)
	m.findings = append(m.findings, f)
}

// nothingLeft adds the finding about a pod whose annotations exclude all containers, which
// the guard denies.
var nothingLeft = Finding{
	Reason: reason.NoContainer, Field: containersField + ", " + skipContainersField,
	Detail: "the pod's annotations leave out all of its containers, so none has a token: unless another webhook adds a container that they name, the guard denies the pod. " +
		"To create it without credentials, annotate it with " + annotations.Inject + `: "` + annotations.OptOut + `"`,
	Fix: "Correct " + annotations.Containers + " or " + annotations.SkipContainers + ". If the pod needs no credentials, annotate it with " +
		annotations.Inject + `: "` + annotations.OptOut + `" instead.`,
}

// Fields of the annotations that select containers.
const (
	containersField     = "metadata.annotations[" + annotations.Containers + "]"
	skipContainersField = "metadata.annotations[" + annotations.SkipContainers + "]"
)

// variableFields returns the fields of a container's variables.
func variableFields(names ...string) string { return "env[" + strings.Join(names, "], env[") + "]" }
