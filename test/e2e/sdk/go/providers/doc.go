// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package providers tests the ready-made providers in examples/providers: it sets the
// variables that Lanyard gives to pods, as the golden cases of the injector have them,
// and checks the values that the real reader of each SDK finds.
//
// databricks-sdk-go is not tested: the Go module proxy does not have it.
package providers
