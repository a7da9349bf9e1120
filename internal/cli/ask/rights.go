// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package ask

import (
	"context"
	"sync"

	"github.com/lanyard-dev/lanyard/internal/cli/command"
)

// Right is a right of the user.
type Right struct {
	Verb string `json:"verb"`
	// Resource is written as in kubectl auth can-i: pods, or deployments.apps.
	Resource string `json:"resource"`
	// Namespace is empty for all namespaces, and for resources without one.
	Namespace string `json:"namespace,omitempty"`
}

// String returns the words that follow "you may not", such as "create pods in the namespace
// shop".
func (r Right) String() string {
	text := r.Verb + " " + r.Resource
	if r.Namespace != "" {
		text += " in the namespace " + r.Namespace
	}
	return text
}

// known is the response about a right. The API server is asked once.
type known struct {
	mu             sync.Mutex
	known, allowed bool
}

// May reports whether the user has a right. The API server is asked once for each right.
func (a *Asker) May(ctx context.Context, r Right) (bool, error) {
	a.mu.Lock()
	k := a.rights[r]
	if k == nil {
		k = new(known)
		a.rights[r] = k
	}
	a.mu.Unlock()
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.known {
		return k.allowed, nil
	}
	defer a.slot()()
	allowed, err := command.May(ctx, a.client, r.Verb, r.Resource, r.Namespace)
	k.known, k.allowed = err == nil, allowed
	return allowed, err
}
