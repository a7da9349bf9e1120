// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mutate

import (
	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/pkg/mutate/reason"
)

// addEphemeral injects the identities into new ephemeral containers of a running pod:
// the containers that old, the previous pod, does not have. The volumes and annotations
// of a running pod cannot change, so its token volume must already have all tokens and
// files. Its error is a *reason.Error: the request must be denied.
func addEphemeral(pod, old *Pod, selection *annotations.Pod, injection *encodedInjection) (result, error) {
	m := newMutation(pod, selection, injection)
	for _, p := range []*Pod{pod, old} {
		if err := p.readLists(injection.volumeNames); err != nil {
			return result{}, err
		}
	}
	running := map[string]bool{}
	for i := range old.containers {
		if c := &old.containers[i]; c.kind == ephemeralContainers {
			running[string(c.name)] = true
		}
	}
	found := m.findVolume()
	m.placeCopies(true)
	for i := range pod.containers {
		c := &pod.containers[i]
		if c.kind != ephemeralContainers || running[string(c.name)] {
			continue
		}
		if !found && selection.Selects(string(c.name)) {
			m.add(c.name, Finding{
				Reason: reason.VolumeMissing, Field: "spec.volumes[" + VolumeName + "]", Want: "the tokens of its ServiceAccount",
				Detail: "the pod's token volume does not match the current identity of its ServiceAccount: recreate the pod",
				Fix:    "Recreate the pod.",
			})
			continue
		}
		if err := m.plan(c); err != nil {
			return result{}, err
		}
	}
	if err := m.checkPatch(); err != nil {
		return result{}, err
	}
	return m.result(), nil
}
