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

// Finding says that something about one container, or about the whole pod, deserves attention.
type Finding struct {
	Reason reason.Reason
	// Container is the name of the container. It is empty if the finding is about the whole pod.
	Container string
	// Field is the field of the container or the pod that the finding is about, such as
	// env[AWS_PROFILE] or metadata.annotations[lanyard.dev/containers]; it is empty if the finding
	// is not about a field.
	Field string
	// Got is the actual value of the field, and Want the allowed or missing one. Both may be empty.
	// Got never contains the value of a variable, except the name of a profile.
	Got, Want string
	// Detail is a sentence for people. It contains names of variables, not their values.
	Detail string
	// Fix is the next step for the user. It is empty if there is nothing to do.
	Fix string
}

// String returns the finding as an admission warning shows it.
func (f Finding) String() string {
	if f.Reason == reason.NoContainer {
		return fmt.Sprintf("%s: %s", f.Reason, f.Detail)
	}
	return fmt.Sprintf("%s: container %q: %s", f.Reason, f.Container, f.Detail)
}

// add adds a finding about a container.
func (m *mutation) add(container []byte, f Finding) {
	f.Container = texts.Cut(container, texts.MaxShown)
	m.findings = append(m.findings, f)
}

// nothingLeft is the finding about a pod that the guard denies.
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

// variableFields returns the fields of variables of a container.
func variableFields(names ...string) string { return "env[" + strings.Join(names, "], env[") + "]" }
