// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package injector

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/lanyard-dev/lanyard/internal/peer"
	"github.com/lanyard-dev/lanyard/internal/rawjson"
	"github.com/lanyard-dev/lanyard/internal/texts"
	"github.com/lanyard-dev/lanyard/internal/webhook/admission"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

// ServiceAccount contains the parts of a ServiceAccount that decisions need.
type ServiceAccount struct {
	name, resourceVersion string
	// annotations are those under Lanyard's prefix, unless they are larger than valid ones
	// can be. annotationBytes is their total size.
	annotations     map[string]string
	annotationBytes int
	// peerAnnotations are the annotations of the peers, truncated to peer.MaxBytes.
	peerAnnotations map[string]string
	// asks reports whether one of them asks for an identity.
	asks bool
	// label is the value of the identity label.
	label string
	// hasLabel reports whether the identity label exists, and hasLabels whether
	// metadata.labels exists.
	hasLabel, hasLabels bool
	// hasAnnotations reports whether metadata.annotations exists.
	hasAnnotations bool
}

// read reads the next value of s.
func (a *ServiceAccount) read(s *rawjson.Scanner, settings *annotations.Settings) error {
	*a = ServiceAccount{annotations: map[string]string{}, peerAnnotations: map[string]string{}}
	limit, peers := settings.MaxServiceAccountBytes(), peer.Of(settings)
	metadata := func(key []byte) (err error) {
		switch string(key) {
		case "name":
			err = s.ReadCut(&a.name, texts.MaxName)
		case "resourceVersion":
			err = s.ReadCut(&a.resourceVersion, texts.MaxShown)
		case "labels":
			a.hasLabels = s.Kind() == rawjson.Object
			err = s.Object(func(key []byte) error {
				if string(key) != annotations.IdentityLabel {
					return nil
				}
				a.hasLabel = true
				return s.ReadCut(&a.label, texts.MaxShown)
			})
		case "annotations":
			a.hasAnnotations = s.Kind() == rawjson.Object
			err = s.Object(func(key []byte) error {
				return a.readAnnotation(s, texts.Cut(key, texts.MaxKey), settings, peers, limit)
			})
		}
		if err != nil {
			return fmt.Errorf("serviceaccount: metadata: %s: %w", texts.Cut(key, texts.MaxShown), err)
		}
		return nil
	}
	return s.Object(func(key []byte) error {
		if string(key) != "metadata" {
			return nil
		}
		return s.Object(metadata)
	})
}

// readServiceAccount reads the JSON of a ServiceAccount.
func readServiceAccount(s *annotations.Settings, text []byte) (*ServiceAccount, error) {
	object, scanner := new(ServiceAccount), rawjson.NewScanner(text)
	if err := object.read(scanner, s); err != nil {
		return nil, err
	}
	if err := scanner.End(); err != nil {
		return nil, fmt.Errorf("serviceaccount: %w", err)
	}
	return object, nil
}

// readAnnotation keeps the annotation if it is Lanyard's or a peer's.
func (a *ServiceAccount) readAnnotation(s *rawjson.Scanner, key string, settings *annotations.Settings, peers []*peer.Peer, limit int) error {
	switch {
	case strings.HasPrefix(key, annotations.Prefix):
		a.asks = a.asks || settings.IsIdentity(key)
		value, err := s.StringUpTo(limit)
		if a.annotationBytes += len(key) + len(value); a.annotationBytes <= limit {
			a.annotations[key] = string(value)
		}
		return err
	case slices.ContainsFunc(peers, func(p *peer.Peer) bool { return p.Reads(key) }):
		value, err := s.StringUpTo(peer.MaxBytes)
		a.peerAnnotations[key] = strings.ToValidUTF8(string(value[:min(len(value), peer.MaxBytes)]), "?")
		return err
	}
	return nil
}

// isWhole reports whether all annotations under Lanyard's prefix are known.
func (a *ServiceAccount) isWhole(settings *annotations.Settings) bool {
	return a.annotationBytes <= settings.MaxServiceAccountBytes()
}

// withPeers returns the annotations of Lanyard and of the peers.
func (a *ServiceAccount) withPeers() map[string]string {
	values := maps.Clone(a.annotations)
	maps.Copy(values, a.peerAnnotations)
	return values
}

// expectServiceAccount checks that a request is about a ServiceAccount.
func expectServiceAccount(r *admission.Attributes) error {
	if r.Group != "" || r.Version != "v1" || r.Resource != "serviceaccounts" || r.SubResource != "" {
		return r.Unexpected("CREATE or UPDATE of v1 serviceaccounts")
	}
	return nil
}
