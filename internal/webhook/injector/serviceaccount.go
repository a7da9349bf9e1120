// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package injector

import (
	"fmt"
	"strings"

	"github.com/lanyard-dev/lanyard/internal/annotations"
	"github.com/lanyard-dev/lanyard/internal/jsonscan"
	"github.com/lanyard-dev/lanyard/internal/peer"
	"github.com/lanyard-dev/lanyard/internal/texts"
	"github.com/lanyard-dev/lanyard/internal/webhook/admission"
)

// ServiceAccount holds the parts of a ServiceAccount that decisions need.
type ServiceAccount struct {
	name string
	// annotations are those under Lanyard's prefix, as long as they are not longer
	// than valid ones can be; annotationBytes is the size of all of them.
	annotations     map[string]string
	annotationBytes int
	// peerAnnotations are the annotations of the peers, cut to peer.MaxBytes.
	peerAnnotations map[string]string
	// asks reports whether one of them asks for an identity.
	asks bool
	// label is the value of the identity label.
	label string
	// hasLabel reports whether it has the identity label, hasLabels whether it has an
	// object of labels to add one to.
	hasLabel, hasLabels bool
	// hasAnnotations reports whether it has an object of annotations to add to.
	hasAnnotations bool
}

// serviceAccountBytes is more than a decision about a ServiceAccount takes: its
// annotations are only read up to a limit.
const serviceAccountBytes = 64 << 10

// readServiceAccount reads the ServiceAccount that is the next value of s.
func readServiceAccount(s *jsonscan.Scanner, keys *annotations.Keys, peers []*peer.Peer, into *ServiceAccount) error {
	*into = ServiceAccount{annotations: map[string]string{}, peerAnnotations: map[string]string{}}
	limit := keys.MaxServiceAccountBytes()
	metadata := func(key []byte) (err error) {
		switch string(key) {
		case "name":
			err = s.ReadCut(&into.name, texts.MaxName)
		case "labels":
			into.hasLabels = s.Kind() == jsonscan.Object
			err = s.Object(func(key []byte) error {
				if string(key) != keys.IdentityLabel {
					return nil
				}
				into.hasLabel = true
				return s.ReadCut(&into.label, texts.MaxShown)
			})
		case "annotations":
			into.hasAnnotations = s.Kind() == jsonscan.Object
			err = s.Object(func(key []byte) error {
				return into.readAnnotation(s, texts.Cut(key, texts.MaxKey), keys, peers, limit)
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

func (a *ServiceAccount) readAnnotation(s *jsonscan.Scanner, key string, keys *annotations.Keys, peers []*peer.Peer, limit int) error {
	if !strings.HasPrefix(key, keys.Prefix) {
		return a.readPeer(s, key, peers)
	}
	a.asks = a.asks || keys.IsIdentity(key)
	value, err := s.StringUpTo(limit)
	if a.annotationBytes += len(key) + len(value); a.annotationBytes <= limit {
		a.annotations[key] = string(value)
	}
	return err
}

// readPeer keeps the annotation if it is a peer's.
func (a *ServiceAccount) readPeer(s *jsonscan.Scanner, key string, peers []*peer.Peer) error {
	for _, p := range peers {
		if p.Reads(key) {
			value, err := s.StringUpTo(peer.MaxBytes)
			a.peerAnnotations[key] = strings.ToValidUTF8(string(value[:min(len(value), peer.MaxBytes)]), "?")
			return err
		}
	}
	return nil
}

// expectServiceAccount checks that a request is about a ServiceAccount.
func expectServiceAccount(r *admission.Attributes) error {
	if r.Group != "" || r.Version != "v1" || r.Resource != "serviceaccounts" || r.SubResource != "" {
		return r.Unexpected("CREATE or UPDATE of v1 serviceaccounts")
	}
	return nil
}
