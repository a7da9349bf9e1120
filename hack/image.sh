#!/usr/bin/env bash
# Copyright The Lanyard Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Builds the container image of the Dockerfile, and pushes it if the argument is
# --push. "make help" describes the variables IMAGE, TARGET, PLATFORMS and ENGINE.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

target=${TARGET-}
image=${IMAGE:-${target:-lanyard-webhook}:0.1.0}
platforms=${PLATFORMS-}
push=${1-}

fail() {
  echo "make image: $*" >&2
  exit 1
}

# several reports whether there is more than one platform.
several() {
  [[ $platforms == *,* ]]
}

# found prints the engine.
found() {
  local name
  if [ -n "${ENGINE-}" ]; then
    command -v "$ENGINE" || fail "got ENGINE=$ENGINE, which is not installed"
    return
  fi
  for name in docker podman buildah; do
    if command -v "$name"; then return; fi
  done
  fail "needs docker, podman or buildah; none is installed"
}

# with_docker DOCKER. The Dockerfile needs BuildKit. Docker's client has it since
# version 23 in the plugin buildx, and before that built in.
with_docker() {
  local version build=("$1" buildx build --load)
  if ! "$1" buildx version >/dev/null 2>&1; then
    version=$("$1" version --format '{{.Client.Version}}' 2>/dev/null) || true
    if [ "${version%%.*}" -ge 23 ] 2>/dev/null; then
      fail "the Dockerfile needs BuildKit, and $1 $version lacks its plugin buildx." \
        "Install docker-buildx-plugin (docker.com's packages) or docker-buildx (Debian 13, Ubuntu)," \
        "or select another engine: make image ENGINE=podman"
    fi
    several && fail "several platforms need docker's plugin buildx, and $1 $version lacks it"
    export DOCKER_BUILDKIT=1
    build=("$1" build)
  fi
  if several; then
    [ -n "$push" ] || fail "docker does not keep an image of several platforms: push it with make image-push, or build one platform"
    "$1" buildx build --push --platform "$platforms" ${target:+--target "$target"} --tag "$image" .
    return
  fi
  "${build[@]}" ${platforms:+--platform "$platforms"} ${target:+--target "$target"} --tag "$image" .
  if [ -n "$push" ]; then "$1" push "$image"; fi
}

# with_podman PODMAN, or buildah, which has the same commands.
with_podman() {
  if ! several; then
    "$1" build ${platforms:+--platform "$platforms"} ${target:+--target "$target"} --tag "$image" .
    if [ -n "$push" ]; then "$1" push "$image"; fi
    return
  fi
  # A second build would add its images to those of the first.
  "$1" manifest rm "$image" 2>/dev/null || true
  "$1" build --platform "$platforms" ${target:+--target "$target"} --manifest "$image" .
  if [ -n "$push" ]; then "$1" manifest push --all "$image" "docker://$image"; fi
}

case $target in
  "" | lanyard | lanyard-webhook) ;;
  *) fail "got TARGET=$target, want lanyard-webhook or lanyard" ;;
esac
case $push in
  "") ;;
  --push)
    [[ $image == */* ]] || fail "got IMAGE=$image, want one with a registry: make image-push IMAGE=REGISTRY/PATH/$image" ;;
  *) fail "got $push, want --push or no argument" ;;
esac
engine=$(found)
case ${engine##*/} in
  *docker*) with_docker "$engine" ;;
  *podman* | *buildah*) with_podman "$engine" ;;
  *) fail "got ENGINE=$engine, want docker, podman or buildah" ;;
esac
echo "$image${platforms:+ for $platforms}: built${push:+ and pushed}"
