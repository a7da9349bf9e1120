#!/usr/bin/env bash
# Copyright The Lanyard Authors.
# SPDX-License-Identifier: Apache-2.0
#
# The kubelet sets these kernel parameters, and they belong to the whole machine. Let
# it write to copies.
set -euo pipefail

mkdir -p /run/shield
for parameter in vm/overcommit_memory vm/panic_on_oom kernel/panic kernel/panic_on_oops \
  kernel/keys/root_maxkeys kernel/keys/root_maxbytes; do
  copy=/run/shield/${parameter//\//-}
  cat "/proc/sys/$parameter" >"$copy"
  mount --bind "$copy" "/proc/sys/$parameter"
done
