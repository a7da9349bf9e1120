// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package troubleshooting tests what docs/troubleshooting.md says about other
// software. It causes the errors of the table of cloud errors at the emulated
// clouds. It has no code besides the tests.
package troubleshooting
