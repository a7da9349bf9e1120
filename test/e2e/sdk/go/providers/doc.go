// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package providers tests the ready-made providers in examples/providers: it sets the
// variables that Lanyard gives to pods, as the golden cases of the injector have them,
// and asks the real reader of each SDK what it found.
//
// databricks-sdk-go is not tested: the Go module proxy does not have it.
package providers
