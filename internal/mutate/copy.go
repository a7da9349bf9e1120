// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mutate

import (
	"fmt"
	"slices"

	"github.com/lanyard-dev/lanyard/internal/jsonscan"
	"github.com/lanyard-dev/lanyard/internal/provider"
	"github.com/lanyard-dev/lanyard/internal/reason"
	"github.com/lanyard-dev/lanyard/internal/texts"
)

// tokenCopy is a copy of a provider's token at a path of its own. It is in a volume
// of its own, with the name that another webhook uses: if that webhook is called for
// the pod as well, it finds its volume.
type tokenCopy struct {
	*provider.Copy
	provider string
	token    *provider.Token
}

// newTokenCopy returns the copy of a provider's token, nil for none.
func newTokenCopy(p *provider.Provider) *tokenCopy {
	if p.Copy.Path == "" {
		return nil
	}
	return &tokenCopy{Copy: &p.Copy, provider: p.Name, token: &p.Token}
}

// projects reports whether the volume has the copy.
func (c *tokenCopy) projects(v volume) bool {
	return slices.Contains(v.tokens, tokenSource{audience: c.token.Audience, path: c.Path})
}

// encodeVolume returns the volume of the copy.
func (c *tokenCopy) encodeVolume() []byte {
	text := append([]byte(nil), `{"name":`...)
	text = jsonscan.AppendString(text, c.Volume)
	text = append(text, `,"projected":{"sources":[`...)
	text = appendToken(text, c.token, c.Path)
	return append(text, `],"defaultMode":420}}`...)
}

// placedCopy is a copy in one pod.
type placedCopy struct {
	*tokenCopy
	exists    bool   // the pod has a volume of the name
	taken     bool   // the pod cannot have a volume of the name with the copy
	cleanPath string // the mount path, normalized
	free      bool   // the container that is being decided about lacks the mount
}

// placeCopies finds the volumes of the copies. If the pod uses the name for something
// else, it does not get the copy. With another name, the other webhook, called later,
// would mount the pod's volume at the same path, and the API server would deny the pod.
// The volumes of a running pod cannot change.
func (m *mutation) placeCopies(running bool) {
	for _, p := range m.providers {
		if p.copied == nil {
			continue
		}
		v, exists := m.pod.volumesByName[p.copied.Volume]
		m.copies = append(m.copies, placedCopy{
			tokenCopy: p.copied, exists: exists,
			taken:     (exists || running) && !p.copied.projects(v),
			cleanPath: normalizePath(p.copied.MountPath, m.pod.Windows),
		})
	}
}

// copyIsFree reports whether the container can have the copy, and has nothing where it
// is mounted. If it has something else there, or below, that stays, and the container
// does not get the copy.
func (m *mutation) copyIsFree(c *container, copied *placedCopy) bool {
	if copied.taken {
		m.addFinding(reason.VolumeNameTaken, c, fmt.Sprintf("the pod cannot have a volume %s with the %s token, so it does not get the copy", copied.Volume, copied.provider))
		return false
	}
	for i := range c.mounts {
		here := &c.mounts[i]
		if !isAtOrBelow(normalizePath(string(here.path), m.pod.Windows), copied.cleanPath) {
			continue
		}
		if string(here.path) != copied.MountPath || string(here.volume) != copied.Volume || here.partial || here.device {
			m.addFinding(reason.MountPathTaken, c, fmt.Sprintf("volume %q is mounted at %s, where the copy of the %s token would be, so it does not get the copy", texts.Cut(here.volume, maxShown), texts.Cut(here.path, maxShown), copied.provider))
		}
		return false
	}
	return true
}
