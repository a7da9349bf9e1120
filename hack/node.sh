#!/usr/bin/env bash
# Copyright The Lanyard Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Builds the programs that a whole cluster needs in addition to the tests' control
# plane, with controlplane.sh and into the same directory.
set -euo pipefail

exec "$(dirname "${BASH_SOURCE[0]}")/controlplane.sh" \
  kube-controller-manager kube-scheduler kube-proxy kubelet kubectl
