// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mutate

import (
	"fmt"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/lanyard-dev/lanyard/internal/jsonscan"
	"github.com/lanyard-dev/lanyard/internal/provider"
	"github.com/lanyard-dev/lanyard/internal/reason"
)

// Names of the projected volume. The second name is for a pod that uses the first
// name for something else.
const (
	VolumeName         = "bound-sa-token"
	FallbackVolumeName = "lanyard-bound-sa-token"
)

// chooseVolume returns the name of the token volume, and reports whether the pod
// has that volume already.
func (m *mutation) chooseVolume() (name string, exists bool, err error) {
	for _, name := range []string{VolumeName, FallbackVolumeName} {
		v, exists := m.pod.volumesByName[name]
		if !exists || m.projectsAll(v) {
			return name, exists, nil
		}
	}
	return "", false, &reason.Error{
		Reason: reason.VolumeNameTaken,
		Err: field.Duplicate(field.NewPath("spec", "volumes").Key(FallbackVolumeName),
			fmt.Sprintf("%s and %s are both used for something else; rename one of the two", VolumeName, FallbackVolumeName)),
	}
}

// runningVolume returns the name of the token volume of a running pod, and reports
// whether the pod was injected with the current identity of its ServiceAccount.
func (m *mutation) runningVolume() (name string, found bool) {
	for _, a := range m.annotations {
		if m.pod.Annotations[a.key] != a.value {
			return "", false
		}
	}
	for _, name := range []string{VolumeName, FallbackVolumeName} {
		if v, exists := m.pod.volumesByName[name]; exists && m.projectsAll(v) {
			return name, m.hasPrincipals(name)
		}
	}
	return "", false
}

// hasPrincipals reports whether the containers with the token volume have the current
// names of the identities. A name that no container has is in a credential file, or a
// container chooses a profile. A name that only some have is overridden in the others.
func (m *mutation) hasPrincipals(volume string) bool {
	for i := range m.providers {
		for _, v := range m.providers[i].Variables {
			set, same := false, false
			for j := range m.pod.containers {
				c := &m.pod.containers[j]
				if got := c.variable(v.Name); v.Principal && got != nil && c.mountsVolume(volume) {
					set, same = true, same || string(got.value) == v.Value
				}
			}
			if set && !same {
				return false
			}
		}
	}
	return true
}

func (c *container) mountsVolume(name string) bool {
	return slices.ContainsFunc(c.mounts, func(m mount) bool { return string(m.volume) == name })
}

// projectsAll reports whether the volume has every token and file of the
// injection. The lifetime of the tokens may differ.
func (m *mutation) projectsAll(v volume) bool {
	for _, p := range m.providers {
		if !slices.Contains(v.tokens, tokenSource{audience: p.Token.Audience, path: p.Token.Path}) {
			return false
		}
		if p.File.Path != "" && !slices.Contains(v.files, fileSource{fieldPath: p.fieldPath, path: p.File.Path}) {
			return false
		}
	}
	return true
}

// missingVolumes returns the volumes that the pod gets. exists reports whether it
// has the token volume.
func (m *mutation) missingVolumes(exists bool) [][]byte {
	usual := !exists && m.volumeName == VolumeName
	for _, c := range m.copies {
		usual = usual && !c.exists
	}
	if usual {
		return m.volumes
	}
	var missing [][]byte
	if !exists {
		missing = append(missing, m.encodeVolume(m.volumeName))
	}
	for _, c := range m.copies {
		if !c.exists {
			missing = append(missing, c.encodeVolume())
		}
	}
	return missing
}

// The encoders of this package write the members in the order of the API, with
// every default that the API server would fill in. So a pod has the same text when
// the webhook is called for it again.

// encodeVolume returns the token volume.
func (i *Injection) encodeVolume(name string) []byte {
	text := append([]byte(nil), `{"name":`...)
	text = jsonscan.AppendString(text, name)
	text = append(text, `,"projected":{"sources":[`...)
	for n, p := range i.providers {
		if n > 0 {
			text = append(text, ',')
		}
		text = appendToken(text, &p.Token, p.Token.Path)
		if p.File.Path != "" {
			text = append(text, `,{"downwardAPI":{"items":[{"path":`...)
			text = jsonscan.AppendString(text, p.File.Path)
			text = append(text, `,"fieldRef":{"apiVersion":"v1","fieldPath":`...)
			text = jsonscan.AppendString(text, p.fieldPath)
			text = append(text, `}}]}}`...)
		}
	}
	// 420 is 0644, the API's default: every user of the container may read.
	return append(text, `],"defaultMode":420}}`...)
}

// appendToken appends a source of a projected volume.
func appendToken(text []byte, token *provider.Token, path string) []byte {
	text = append(text, `{"serviceAccountToken":{"audience":`...)
	text = jsonscan.AppendString(text, token.Audience)
	text = append(text, `,"expirationSeconds":`...)
	text = strconv.AppendInt(text, token.ExpirationSeconds, 10)
	text = append(text, `,"path":`...)
	text = jsonscan.AppendString(text, path)
	return append(text, `}}`...)
}
