#!/usr/bin/env bash
# Copyright The Lanyard Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Installs the missing Debian packages of a machine that reaches no container registry:
# a container engine, what makes the node image of kind, npm for the Node.js SDKs and the
# site, and the browser that tests the site. It changes nothing if all are installed.
set -euo pipefail

missing=()
# need COMMAND PACKAGE
need() {
  command -v "$1" >/dev/null || missing+=("$2")
}

PATH=$PATH:/usr/sbin:/sbin
need dockerd docker.io
need containerd containerd
need runc runc
need iptables iptables
need ip iproute2
need nsenter util-linux
need debootstrap debootstrap
need jq jq
need systemctl systemd
need npm npm
need chromium chromium

if [ ${#missing[@]} -eq 0 ] && command -v docker >/dev/null; then exit 0; fi
if [ "$EUID" -ne 0 ] || ! command -v apt-get >/dev/null; then
  echo "packages.sh: missing packages: ${missing[*]-docker-cli} (Debian names); run as root on Debian to install them" >&2
  exit 1
fi
apt-get update -qq
# Since Debian 13, the client is a package of its own.
if ! command -v docker >/dev/null && apt-cache show docker-cli >/dev/null 2>&1; then missing+=(docker-cli); fi
echo "installing ${missing[*]}"
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
