// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mutate

import (
	"fmt"

	"github.com/lanyard-dev/lanyard/pkg/mutate/internal/pod"
	"github.com/lanyard-dev/lanyard/pkg/mutate/reason"
)

// placedCopy is a copy of a provider's token in one pod. It is in a separate volume with the
// name that another webhook uses, which then finds the volume if it is called as well.
type placedCopy struct {
	*encodedProvider
	exists    bool   // the pod has a volume of the name
	taken     bool   // the pod cannot have a volume of this name with the copy
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

// copyIsFree reports whether the copy can be mounted into the container. If something else is
// mounted at the path or below, or a read-only volume above, the container does not get the
// copy.
func (m *mutation) copyIsFree(c *pod.Container, copied *placedCopy) bool {
	if copied.taken {
		m.add(c.Name, Finding{
			Reason: reason.VolumeNameTaken, Field: "spec.volumes[" + copied.Copy.Volume + "]",
			Detail: fmt.Sprintf("the pod cannot have a volume %s with the %s token, so the container does not get the copy", copied.Copy.Volume, copied.Name),
			Fix:    "Rename this volume of the pod, or recreate the pod if it runs already.",
		})
		return false
	}
	for i := range c.Mounts {
		here := &c.Mounts[i]
		if placeOf(m.pod, here, copied.cleanPath) == elsewhere {
			continue
		}
		if string(here.Path) != copied.Copy.MountPath || string(here.Volume) != copied.Copy.Volume || here.Partial || here.Device {
			m.add(c.Name, m.occupied(here, copied.cleanPath, fmt.Sprintf("the copy of the %s token", copied.Name), "does not get the copy"))
		}
		return false
	}
	return true
}
