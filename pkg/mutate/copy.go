// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mutate

import (
	"fmt"
	"slices"

	"github.com/lanyard-dev/lanyard/internal/jsonscan"
	"github.com/lanyard-dev/lanyard/pkg/provider"
	"github.com/lanyard-dev/lanyard/pkg/reason"
)

// tokenCopy is a copy of a provider's token at a path of its own. It is in a volume
// of its own, with the name that another webhook uses: if that webhook is called for
// the pod as well, it finds its volume.
type tokenCopy struct {
	*provider.Copy
	provider string
	token    *provider.Token
	names    volumeNames
}

// newTokenCopy returns the copy of a provider's token, nil for none.
func newTokenCopy(p *provider.Provider) *tokenCopy {
	if p.Copy.Path == "" {
		return nil
	}
	return &tokenCopy{Copy: &p.Copy, provider: p.Name, token: &p.Token, names: volumeNames{p.Copy.Volume, "lanyard-" + p.Copy.Volume}}
}

// projects reports whether the volume has the copy.
func (c *tokenCopy) projects(v volume) bool {
	return slices.Contains(v.tokens, tokenSource{audience: c.token.Audience, path: c.Path})
}

// encodeVolume returns the volume of the copy.
func (c *tokenCopy) encodeVolume(name string) []byte {
	text := append([]byte(nil), `{"name":`...)
	text = jsonscan.AppendString(text, name)
	text = append(text, `,"projected":{"sources":[`...)
	text = appendToken(text, c.token, c.Path)
	return append(text, `],"defaultMode":420}}`...)
}

// placedCopy is a copy with the volume that it has in one pod.
type placedCopy struct {
	*tokenCopy
	name      string // of the volume
	exists    bool   // the pod has the volume
	cleanPath string // the mount path, normalized
	free      bool   // the container that is being decided about lacks the mount
}

// chooseCopies chooses the volumes of the copies, as chooseVolume does.
func (m *mutation) chooseCopies() error {
	for _, p := range m.providers {
		if p.copied == nil {
			continue
		}
		name, exists, err := m.chooseVolume(p.copied.names, p.copied.projects)
		if err != nil {
			return err
		}
		m.place(p.copied, name, exists)
	}
	return nil
}

// findCopies finds the volumes of the copies in a running pod, whose volumes cannot
// change.
func (m *mutation) findCopies() {
	for _, p := range m.providers {
		if p.copied == nil {
			continue
		}
		if name, found := m.findVolume(p.copied.names, p.copied.projects); found {
			m.place(p.copied, name, true)
		}
	}
}

func (m *mutation) place(c *tokenCopy, name string, exists bool) {
	m.copies = append(m.copies, placedCopy{tokenCopy: c, name: name, exists: exists, cleanPath: normalizePath(c.MountPath, m.pod.Windows)})
}

// copyIsFree reports whether the container has nothing where the copy is mounted. If
// it has something else there, or below, that stays, and the container does not get
// the copy.
func (m *mutation) copyIsFree(c *container, copied *placedCopy) bool {
	for i := range c.mounts {
		here := &c.mounts[i]
		if !isAtOrBelow(normalizePath(string(here.path), m.pod.Windows), copied.cleanPath) {
			continue
		}
		if string(here.path) != copied.MountPath || string(here.volume) != copied.name || here.partial || here.device {
			m.addFinding(reason.MountPathTaken, c, fmt.Sprintf("volume %q is mounted at %s, where the copy of the %s token would be, so it does not get the copy", shown(here.volume), shown(here.path), copied.provider))
		}
		return false
	}
	return true
}
