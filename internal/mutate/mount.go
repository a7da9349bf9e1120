// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mutate

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/lanyard-dev/lanyard/internal/reason"
	"github.com/lanyard-dev/lanyard/internal/texts"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

// mountPoint is the state of a container's token mount path.
type mountPoint int

const (
	free   mountPoint = iota // nothing
	tokens                   // the token volume
	taken                    // something else, there or below
)

// mountAt returns the state of a container's token mount path. A mount below the path
// counts: it would need a directory in a volume that is read-only.
//
// It returns an error for a device at the token mount path, and for a mount there,
// or below it, in another spelling. A path that begins with the token mount path but
// leads elsewhere through dots is such a spelling too. So the guard and other programs only
// need to compare strings.
func (m *mutation) mountAt(c *container) (at mountPoint, by *mount, err error) {
	for i := range c.mounts {
		here := &c.mounts[i]
		got := string(here.path)
		literal := annotations.IsAtOrBelow(got, m.mountPath)
		switch {
		case !literal && !annotations.IsAtOrBelow(normalizePath(got, m.pod.Windows), m.cleanPath):
			// It is elsewhere.
		case !literal || !isPlain(got, m.pod.Windows) || here.device:
			return at, by, m.invalidMountPath(c, here)
		case got == m.mountPath && string(here.volume) == m.tokenVolume.name && !here.partial:
			at = max(at, tokens)
		default:
			at, by = taken, here
		}
	}
	return at, by, nil
}

// LacksMount is the guard's rule: it reports whether a container that is not left out has
// nothing mounted at the token mount path or below it, unless the pod leaves a provider
// to a peer. Its error is a *reason.Error.
func (p *Pod) LacksMount(selection *annotations.Pod, mountPath string) (bool, error) {
	if selection.LeftToPeer != "" {
		return false, nil
	}
	if err := p.readLists(nil); err != nil {
		return false, err
	}
	return slices.ContainsFunc(p.containers, func(c container) bool {
		return c.kind != ephemeralContainers && selection.Selects(string(c.name)) && !slices.ContainsFunc(c.mounts, func(m mount) bool {
			return !m.device && annotations.IsAtOrBelow(string(m.path), mountPath)
		})
	}), nil
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

func (m *mutation) invalidMountPath(c *container, got *mount) error {
	list, name, detail := "volumeMounts", "mountPath", fmt.Sprintf("is at the token mount path, but spelled differently; write it as %s or below, without dots, drive, backslashes and extra slashes", m.mountPath)
	if got.device {
		list, name, detail = "volumeDevices", "devicePath", fmt.Sprintf("is at the token mount path %s; a device must not be there", m.mountPath)
	}
	return &reason.Error{
		Reason: reason.InvalidMountPath,
		Err:    field.Invalid(field.NewPath("spec", string(c.kind)).Index(c.index).Child(list).Index(got.index).Child(name), texts.Cut(got.path, texts.MaxShown), detail),
	}
}

// missingMounts returns the mounts that the container lacks. at is the state of its token
// mount path.
func (m *mutation) missingMounts(c *container, at mountPoint) [][]byte {
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
