#!/usr/bin/env bash
# Copyright The Lanyard Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Installs the missing Debian packages that "make e2e" needs for its own cluster:
# the node's programs, and npm for the Node.js SDKs. It changes nothing if all are
# installed.
set -euo pipefail

missing=()
# need COMMAND PACKAGE
need() {
  command -v "$1" >/dev/null || missing+=("$2")
}

PATH=$PATH:/usr/sbin:/sbin
need containerd containerd
need runc runc
need iptables-restore iptables
need ip iproute2
need /usr/lib/cni/ptp containernetworking-plugins
need npm npm

if [ ${#missing[@]} -eq 0 ]; then exit 0; fi
if [ "$EUID" -ne 0 ] || ! command -v apt-get >/dev/null; then
  echo "packages.sh: missing packages: ${missing[*]} (Debian names); run as root on Debian to install them" >&2
  exit 1
fi
echo "installing ${missing[*]}"
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
