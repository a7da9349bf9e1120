// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mutate

import (
	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/pkg/mutate/internal/pod"
	"github.com/lanyard-dev/lanyard/pkg/mutate/reason"
)

// addEphemeral injects the identities into the ephemeral containers that old, the previous
// pod, does not have. The volumes and annotations of a running pod cannot change, so its
// token volume must already contain all tokens and files. The error is a *reason.Error, for
// which the request must be denied.
func addEphemeral(p, old *Pod, selection *annotations.Pod, injection *encodedInjection) (Decision, error) {
	m := newMutation(p, selection, injection)
	for _, p := range []*Pod{p, old} {
		if err := p.readLists(); err != nil {
			return Decision{}, err
		}
	}
	running := map[string]bool{}
	for i := range old.read.Containers {
		if c := &old.read.Containers[i]; c.Kind == pod.EphemeralContainers {
			running[string(c.Name)] = true
		}
	}
	found := m.findVolume()
	m.placeCopies(true)
	for i := range m.pod.Containers {
		c := &m.pod.Containers[i]
		if c.Kind != pod.EphemeralContainers || running[string(c.Name)] {
			continue
		}
		if !found && selection.Selects(string(c.Name)) {
			m.add(c.Name, Finding{
				Reason: reason.VolumeMissing, Field: "spec.volumes[" + VolumeName + "]", Want: "the tokens of its ServiceAccount",
				Detail: "the pod's token volume does not match the current identity of its ServiceAccount: recreate the pod",
				Fix:    "Recreate the pod.",
			})
			continue
		}
		if err := m.plan(c); err != nil {
			return Decision{}, err
		}
	}
	if err := m.checkPatch(); err != nil {
		return Decision{}, err
	}
	return m.decision(), nil
}
