#!/usr/bin/env bash
# Copyright The Lanyard Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Builds cert-manager's controllers and cainjector into bin/cert-manager, from the
# Go module in test/support/certmanager, and copies its CustomResourceDefinitions to
# bin/cert-manager-crds. Needs Go, coreutils and the Go module proxy. The first run
# takes some minutes; later runs take seconds if nothing has changed.
#
# Run it against a cluster with:
#   bin/cert-manager --kubeconfig K --crds bin/cert-manager-crds
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
bin=$root/bin

# Build the same way everywhere: ignore the user's flags and workspace.
export CGO_ENABLED=0 GOFLAGS="-mod=readonly -trimpath" GOWORK=off

cd "$root/test/support/certmanager"
mkdir -p "$bin"
new=$(mktemp -d "$bin/.cert-manager.XXXXXX")
trap 'rm -rf "$new"' EXIT

start=$SECONDS
# Link straight to the final path: go build skips a binary that is up to date.
go build -buildvcs=false -ldflags "-s -w" -o "$bin/cert-manager" .
module=$(go list -m -f '{{.Dir}}' github.com/cert-manager/cert-manager)
# Files in the module cache are read-only; these copies must be removable.
mkdir "$new/crds"
install -m 0644 "$module"/deploy/crds/*.yaml "$new/crds/"

rm -rf "$bin/cert-manager-crds"
mv "$new/crds" "$bin/cert-manager-crds"
echo "cert-manager $(go list -m -f '{{.Version}}' github.com/cert-manager/cert-manager) with its CustomResourceDefinitions built in $((SECONDS - start)) s"
