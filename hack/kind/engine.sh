#!/usr/bin/env bash
# Copyright The Lanyard Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Prints the container engine that kind is to use, docker or podman, or explains on
# standard error why there is none. $KIND_EXPERIMENTAL_PROVIDER selects one;
# otherwise it is the first one that responds.
set -euo pipefail

fail() {
  echo "$*" >&2
  exit 1
}

# problem ENGINE prints why the engine cannot be used, or nothing if it can.
problem() {
  local output
  if ! command -v "$1" >/dev/null; then
    echo "$1 is not installed"
  elif ! output=$("$1" info 2>&1); then
    # The last line is the reason; the lines before it are about the client.
    echo "\"$1 info\" fails: $(tail -n 1 <<<"$output")"
  fi
}

advice='
Docker: install it from https://docs.docker.com/get-started/get-docker/, and start it:
  Linux            sudo systemctl start docker
  macOS, Windows   open Docker Desktop
  "permission denied" on Linux: sudo usermod -aG docker "$USER", then log in again
Podman: install it from https://podman.io/docs/installation, and select it:
  KIND_EXPERIMENTAL_PROVIDER=podman make quickstart

Without a container engine, see the same on a real API server: make demo'

case ${KIND_EXPERIMENTAL_PROVIDER-} in
  "") candidates=(docker podman) ;;
  docker | podman) candidates=("$KIND_EXPERIMENTAL_PROVIDER") ;;
  *) fail "got KIND_EXPERIMENTAL_PROVIDER=$KIND_EXPERIMENTAL_PROVIDER, want docker or podman" ;;
esac

problems=
for engine in "${candidates[@]}"; do
  reason=$(problem "$engine")
  if [ -z "$reason" ]; then
    echo "$engine"
    exit
  fi
  problems+="  $reason"$'\n'
done
fail "kind needs a running Docker or Podman:"$'\n'"$problems$advice"
