#!/usr/bin/env bash
# Copyright The Lanyard Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Builds what a whole cluster needs beyond the control plane of the tests, the
# same way and to the same place: see controlplane.sh.
set -euo pipefail

exec "$(dirname "${BASH_SOURCE[0]}")/controlplane.sh" \
  kube-controller-manager kube-scheduler kube-proxy kubelet kubectl
