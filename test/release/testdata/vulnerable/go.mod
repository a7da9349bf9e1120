// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// A program with a known vulnerability, to see that "make vuln" finds it. It is
// built by nothing.
module example.com/vulnerable

go 1.26.0

require golang.org/x/text v0.3.7
