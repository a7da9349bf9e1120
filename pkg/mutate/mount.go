// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mutate

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/lanyard-dev/lanyard/internal/texts"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/pkg/mutate/internal/pod"
	"github.com/lanyard-dev/lanyard/pkg/mutate/reason"
)

// place is the position of a mount relative to a directory at which Lanyard mounts a volume.
type place int

const (
	elsewhere place = iota // it does not matter
	inside                 // at the directory, or below it
	above                  // above it, and read-only
)

// placeOf returns the position of a mount relative to a clean directory. Nothing can be
// mounted below a read-only volume, unless the volume happens to contain the directory.
func placeOf(p *pod.Pod, m *pod.Mount, dir string) place {
	path := normalizePath(string(m.Path), p.Windows)
	switch {
	case annotations.IsInside(path, dir):
		return inside
	case annotations.IsInside(dir, path) && (m.ReadOnly || p.IsReadOnly(m.Volume)):
		return above
	}
	return elsewhere
}

// mountPoint describes what is mounted at a container's token mount path.
type mountPoint int

const (
	free   mountPoint = iota // nothing
	tokens                   // the token volume
	taken                    // something else, there or below, or read-only above
)

// mountAt returns what is mounted at a container's token mount path. A mount below the path
// counts, because it would need a directory in Lanyard's read-only volume.
//
// It returns an error for a device at the token mount path, and for a mount there,
// or below it, in another spelling, such as /run for /var/run. A path that begins with the
// token mount path but leads elsewhere through dots is such a spelling too. So the guard and
// other programs only need to compare strings.
func (m *mutation) mountAt(c *pod.Container) (at mountPoint, by *pod.Mount, err error) {
	var over *pod.Mount
	for i := range c.Mounts {
		here := &c.Mounts[i]
		got := string(here.Path)
		literal := annotations.IsAtOrBelow(got, m.mountPath)
		where := placeOf(m.pod, here, m.cleanPath)
		switch {
		case !literal && where == elsewhere:
		case !literal && where == above:
			over = here
		case !literal || !isPlain(got, m.pod.Windows) || here.Device:
			return at, by, m.invalidMountPath(c, here)
		case got == m.mountPath && string(here.Volume) == m.tokenVolume.name && !here.Partial:
			at = max(at, tokens)
		default:
			at, by = taken, here
		}
	}
	if at == free && over != nil {
		return taken, over, nil
	}
	return at, by, nil
}

// occupied returns the finding about a mount that blocks a clean directory at which Lanyard
// would mount a volume.
func (m *mutation) occupied(by *pod.Mount, dir, what, so string) Finding {
	volume, path := texts.Cut(by.Volume, texts.MaxShown), texts.Cut(by.Path, texts.MaxShown)
	f := Finding{
		Reason: reason.MountPathTaken, Field: "volumeMounts[" + path + "]", Got: volume,
		Detail: fmt.Sprintf("volume %q is mounted at %s, where %s would be, so the container %s", volume, path, what, so),
		Fix:    "Mount volume " + volume + " elsewhere.",
	}
	if placeOf(m.pod, by, dir) == above {
		f.Detail = fmt.Sprintf("the read-only volume %q is mounted at %s, above the path of %s, so the container %s", volume, path, what, so)
	}
	return f
}

// lacksMount implements the rule of the guard. It reports whether nothing is mounted at the
// token mount path of a selected container, or of any container because the pod's annotations
// exclude too many. It returns false if the pod leaves a provider to a peer. The error is a
// *reason.Error.
func lacksMount(p *Pod, selection *annotations.Pod, mountPath string) (bool, error) {
	if selection.LeftToPeer != "" {
		return false, nil
	}
	if err := p.readLists(); err != nil {
		return false, err
	}
	return leavesNothing(&p.read, selection, mountPath) || slices.ContainsFunc(p.read.Containers, func(c pod.Container) bool {
		return c.Kind != pod.EphemeralContainers && selection.Selects(string(c.Name)) && !hasMount(&p.read, &c, mountPath)
	}), nil
}

// leavesNothing reports whether the pod's annotations exclude so many containers that none
// has a mount at the token mount path. Exclusions because of peers do not count.
func leavesNothing(p *pod.Pod, selection *annotations.Pod, mountPath string) bool {
	if len(selection.Containers)+len(selection.SkipContainers) == 0 || selection.LeftToPeer != "" {
		return false
	}
	found := false
	for i := range p.Containers {
		if c := &p.Containers[i]; c.Kind != pod.EphemeralContainers {
			found = true
			if selection.Selects(string(c.Name)) || hasMount(p, c, mountPath) {
				return false
			}
		}
	}
	return found
}

// hasMount implements the guard's question about a container: whether something is mounted at
// the token mount path or below it, or blocks it.
func hasMount(p *pod.Pod, c *pod.Container, mountPath string) bool {
	return slices.ContainsFunc(c.Mounts, func(m pod.Mount) bool {
		return !m.Device && (annotations.IsAtOrBelow(string(m.Path), mountPath) || placeOf(p, &m, normalizePath(mountPath, p.Windows)) == above)
	})
}

// isPlain reports whether a path has no other spelling, apart from its case on
// Windows. Such paths can be compared as strings.
func isPlain(p string, windows bool) bool {
	return p == path.Clean(p) && !(windows && strings.Contains(p, `\`))
}

// maxPathLength is the length of the longest path that a kernel mounts (PATH_MAX).
const maxPathLength = 4096

// normalizePath returns the canonical spelling of a path. On Windows a path may have a
// drive and backslashes, and its case does not matter. A path that no kernel mounts stays
// as it is.
func normalizePath(p string, windows bool) string {
	if len(p) > maxPathLength {
		return p
	}
	if windows {
		p = strings.ToLower(strings.ReplaceAll(p, `\`, "/"))
		if len(p) > 1 && p[1] == ':' {
			p = p[2:]
		}
	}
	if !strings.HasPrefix(p, "/") {
		p = "/" + p
	}
	return path.Clean(p)
}

func (m *mutation) invalidMountPath(c *pod.Container, got *pod.Mount) error {
	list, name, detail := "volumeMounts", "mountPath", fmt.Sprintf("is at the token mount path, but spelled differently; write it as %s or below, without dots, drive, backslashes and extra slashes", m.mountPath)
	if got.Device {
		list, name, detail = "volumeDevices", "devicePath", fmt.Sprintf("is at the token mount path %s; a device must not be there", m.mountPath)
	}
	return &reason.Error{
		Reason: reason.InvalidMountPath,
		Err:    field.Invalid(field.NewPath("spec", string(c.Kind)).Index(c.Index).Child(list).Index(got.Index).Child(name), texts.Cut(got.Path, texts.MaxShown), detail),
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
		if string(here.Path) != copied.Copy.MountPath || string(here.Volume) != copied.Copy.Volume || here.Partial {
			m.add(c.Name, m.occupied(here, copied.cleanPath, fmt.Sprintf("the copy of the %s token", copied.Name), "does not get the copy"))
		}
		return false
	}
	return true
}

// missingMounts returns the mounts that the container lacks. at is the state of its token
// mount path.
func (m *mutation) missingMounts(c *pod.Container, at mountPoint) [][]byte {
	var missing [][]byte
	if at == free {
		missing = m.tokenVolume.mounts
	}
	for i := range m.copies {
		if copied := &m.copies[i]; m.copyIsFree(c, copied) {
			missing = append(missing, copied.copied.mounts...)
		}
	}
	return missing
}
