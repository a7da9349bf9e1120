#!/usr/bin/env bash
# Copyright The Lanyard Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Compares the CPU of Lanyard with three other webhooks, each built from a checkout:
#
#   hack/bench-peers.sh eks=DIR azure=DIR pfnet=DIR [FLAG OF bin/bench...]
#
#   eks     github.com/aws/amazon-eks-pod-identity-webhook
#   azure   github.com/Azure/azure-workload-identity
#   pfnet   github.com/pfnet-research/gcp-workload-identity-federation-webhook
#
# Needs Go, git and a Go module proxy. The programs and their versions go to
# bin/bench-peers; no file of a checkout changes.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
bin=$root/bin/bench-peers
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export CGO_ENABLED=0 GOFLAGS=-trimpath GOWORK=off

# build NAME DIR PACKAGE
build() {
  local version overlay=()
  version=$(git -C "$2" describe --tags --always)
  if [ -x "$bin/$1" ] && [ "$(cat "$bin/$1.version" 2>/dev/null)" = "$version" ]; then
    echo "$1 $version: up to date"
    return
  fi
  if [ "$1" = pfnet ]; then
    # Its port is fixed, and azure's is the same. Go reads this copy of its main.go.
    sed 's/webhook\.Options{/webhook.Options{Port: 9444,/' "$2/main.go" >"$work/main.go"
    printf '{"Replace": {"%s/main.go": "%s/main.go"}}' "$(cd "$2" && pwd)" "$work" >"$work/overlay.json"
    overlay=(-overlay "$work/overlay.json")
  fi
  echo "$1 $version: building"
  go build -C "$2" "${overlay[@]}" -buildvcs=false -ldflags '-s -w' -o "$bin/$1" "$3"
  echo "$version" >"$bin/$1.version"
}

mkdir -p "$bin"
while [ $# -gt 0 ]; do
  case $1 in
    eks=* | pfnet=*) build "${1%%=*}" "${1#*=}" . ;;
    azure=*) build azure "${1#*=}" ./cmd/webhook ;;
    *) break ;;
  esac
  shift
done
cd "$root"
make --no-print-directory bench BENCHFLAGS="-only=peers $*"
