// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package abuse checks that nobody in the cluster can take the webhook down:
// not a pod with network access, and not an editor of one namespace. The webhook is
// the program that is shipped, under the memory limit of the chart, in front of a
// real kube-apiserver. While it is abused, pods are created.
//
// The race detector takes memory and time of its own, so the tests are built
// without it.
package abuse
