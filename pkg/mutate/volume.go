// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mutate

import (
	"bytes"
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/lanyard-dev/lanyard/internal/provider"
	"github.com/lanyard-dev/lanyard/internal/rawjson"
	"github.com/lanyard-dev/lanyard/pkg/mutate/internal/pod"
	"github.com/lanyard-dev/lanyard/pkg/mutate/reason"
)

// Names of the projected volume. The second name is for a pod that uses the first
// name for something else.
const (
	VolumeName         = "bound-sa-token"
	FallbackVolumeName = "lanyard-bound-sa-token"
)

// chooseVolume sets the token volume, and reports whether the pod has that volume
// already.
func (m *mutation) chooseVolume() (exists bool, err error) {
	for i := range m.volumes {
		m.tokenVolume = &m.volumes[i]
		volume := m.pod.Volume(m.tokenVolume.name)
		if volume == nil || m.projectsAll(volume) {
			return volume != nil, nil
		}
	}
	return false, &reason.Error{
		Reason: reason.VolumeNameTaken,
		Err: field.Duplicate(field.NewPath("spec", "volumes").Key(FallbackVolumeName),
			fmt.Sprintf("%s and %s are both used for something else; rename one of the two", VolumeName, FallbackVolumeName)),
	}
}

// findVolume sets the token volume of a running pod, and reports whether the pod has the
// tokens and files of its ServiceAccount. Its containers may have other variables: their own,
// or those from before the ServiceAccount changed.
func (m *mutation) findVolume() bool {
	for _, a := range m.annotations {
		if m.pod.Annotations[a.key] != a.value {
			return false
		}
	}
	for i := range m.volumes {
		m.tokenVolume = &m.volumes[i]
		if m.projectsAll(m.pod.Volume(m.tokenVolume.name)) {
			return true
		}
	}
	return false
}

// projectsAll reports whether a volume has every token and file of the injection, which has at
// least one token. The lifetime of the tokens may differ.
func (m *mutation) projectsAll(volume *pod.Volume) bool {
	for _, p := range m.providers {
		if !volume.HasToken(p.Token.Audience, p.Token.Path) || p.File.Path != "" && !volume.HasFile(p.fieldPath, p.File.Path) {
			return false
		}
	}
	return true
}

// placedCopy is a copy of a provider's token in one pod. It is in a separate volume with the
// name that another webhook uses, which then finds the volume if it is called as well.
type placedCopy struct {
	*encodedProvider
	exists    bool   // the pod has a volume of the name
	taken     bool   // the pod cannot have a volume of the name with the copy
	cleanPath string // the mount path, normalized
}

// placeCopies finds the volumes of the copies. If the pod uses the name for another volume,
// it does not get the copy: with a different name, the other webhook would later mount the
// pod's volume at the same path, and the API server would deny the pod. The volumes of a
// running pod cannot change.
func (m *mutation) placeCopies(running bool) {
	for i := range m.providers {
		p := &m.providers[i]
		if p.Copy.Path == "" {
			continue
		}
		volume := m.pod.Volume(p.Copy.Volume)
		exists := volume != nil
		taken := (exists || running) && !volume.HasToken(p.Token.Audience, p.Copy.Path)
		m.copies = append(m.copies, placedCopy{p, exists, taken, normalizePath(p.Copy.MountPath, m.pod.Windows)})
	}
}

// missingVolumes returns the volumes that the pod gets. exists reports whether it
// has the token volume.
func (m *mutation) missingVolumes(exists bool) [][]byte {
	var missing [][]byte
	if !exists {
		missing = append(missing, m.tokenVolume.volume)
	}
	for _, c := range m.copies {
		if !c.exists {
			missing = append(missing, c.copied.volume)
		}
	}
	return missing
}

// The encoders of this package write the members in the order of the API, with every
// default that the API server would fill in, so the text of a pod is the same when the
// webhook is called for it again.

// encodedVolume is a projected volume.
type encodedVolume struct {
	name   string
	volume []byte   // JSON
	mounts [][]byte // the JSON of its only mount, as a list without free capacity
}

func newEncodedVolume(name, mountPath string, sources [][]byte) encodedVolume {
	return encodedVolume{
		name: name,
		// 420 is 0644, the API's default: every user of the container may read.
		volume: fmt.Appendf(nil, `{"name":%s,"projected":{"sources":[%s],"defaultMode":420}}`, quoted(name), bytes.Join(sources, []byte(","))),
		mounts: [][]byte{fmt.Appendf(nil, `{"name":%s,"readOnly":true,"mountPath":%s}`, quoted(name), quoted(mountPath))},
	}
}

// sources returns the sources of the token volume.
func (i *encodedInjection) sources() [][]byte {
	var sources [][]byte
	for _, p := range i.providers {
		sources = append(sources, tokenSourceOf(&p.Token, p.Token.Path))
		if p.File.Path != "" {
			sources = append(sources, fmt.Appendf(nil, `{"downwardAPI":{"items":[{"path":%s,"fieldRef":{"apiVersion":"v1","fieldPath":%s}}]}}`,
				quoted(p.File.Path), quoted(p.fieldPath)))
		}
	}
	return sources
}

// tokenSourceOf returns a source of a projected volume, with the token at path.
func tokenSourceOf(token *provider.Token, path string) []byte {
	return fmt.Appendf(nil, `{"serviceAccountToken":{"audience":%s,"expirationSeconds":%d,"path":%s}}`,
		quoted(token.Audience), token.ExpirationSeconds, quoted(path))
}

// quoted returns a JSON string.
func quoted(text string) []byte { return rawjson.AppendString(nil, text) }
