// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package provider contains the built-in providers, and renders the identities of a
// ServiceAccount: the tokens, files and variables that they add to a pod.
//
// Each provider is one annotations.Provider in a file of its own. The parser of the
// annotations, the flags, the injection, the metrics and the tests all read it. To add a
// provider, write its file and add it to [Builtin].
//
// The package is pure: the same identity results in the same injection.
package provider

import "github.com/lanyard-dev/lanyard/pkg/annotations"

// unlessEmpty returns variables that SDKs treat as unset if they are empty.
func unlessEmpty(names ...string) []annotations.Shadow {
	var shadows []annotations.Shadow
	for _, name := range names {
		shadows = append(shadows, annotations.Shadow{Name: name, Unless: []string{""}})
	}
	return shadows
}

// Builtin returns the built-in providers, sorted by name.
func Builtin() []*annotations.Provider {
	return []*annotations.Provider{aws(), azure(), gcp(), plain()}
}
