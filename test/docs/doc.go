// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package docs tests the documentation: links, generated pages, examples and
// language. It has no code of its own besides the tests.
package docs
