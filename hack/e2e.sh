#!/usr/bin/env bash
# Copyright The Lanyard Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Runs the suites of test/e2e on a whole cluster:
#
#   hack/e2e.sh [--build] [SUITE...]
#
# The arguments are the suites' names, all where there are none; $GINKGO_FLAGS
# goes to each of them (-ginkgo.focus=...), and leaves out two of the four ways to
# install where it is not set. --build builds everything, and runs
# nothing. $E2E_CLUSTER says which cluster:
#
#   own       one built from source, the default: as root, on Debian, without a
#             container engine; packages that are missing are installed
#   kind      one of kind's, on docker, of the node image $KIND_IMAGE or kind's own
#   existing  the one of $KUBECONFIG, the default where that is set; its nodes need
#             the images of bin/images, and a kubelet with the settings in
#             test/e2e/kind.yaml
#
# Whatever ends this script, all that it started ends with it.
set -euo pipefail
# Each command in the background is a process group, which ends as a whole.
set -m
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# slow mostly waits: on a cluster of its own it does so beside the other suites.
slow=rotation
slow_log=bin/$slow.log
kind_name=lanyard-e2e-$$ # nobody else's: it is deleted in the end
images=(lanyard-webhook lanyard-kill lanyard-clouds lanyard-sdk-go lanyard-sdk-node lanyard-sdk-python lanyard-forwarder)

# As the Makefile has it, to share what was compiled.
export CGO_ENABLED=0 GOFLAGS="-trimpath $(go env GOFLAGS)"
# Of the ways to install, those that have nothing in common; "make charts" holds
# the others to the same objects.
export GINKGO_FLAGS=${GINKGO_FLAGS--ginkgo.label-filter=!every-install}
cluster=${E2E_CLUSTER:-${KUBECONFIG:+existing}}
cluster=${cluster:-own}
suites=()
directory= # of kind's kubeconfig

main() {
  local build_only=
  if [ "${1-}" = --build ]; then
    build_only=1
    shift
  fi
  suites=("$@")
  if [ ${#suites[@]} -eq 0 ]; then mapfile -t suites < <(basename -a test/e2e/suite/*/); fi
  slow_last
  check
  trap finish EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM HUP
  build_all
  if [ -n "$build_only" ]; then return; fi
  export PATH=$PWD/bin:$PWD/bin/controlplane:$PATH
  "on_$cluster" "${suites[@]}"
}

# slow_last puts the slow suite at the end.
slow_last() {
  local suite others=() last=()
  for suite in "${suites[@]}"; do
    if [ "$suite" = "$slow" ]; then last=("$suite"); else others+=("$suite"); fi
  done
  suites=("${others[@]}" "${last[@]}")
}

# check says early what a cluster cannot do without.
check() {
  case $cluster in
    own) hack/packages.sh ;;
    existing) [ -n "${KUBECONFIG-}" ] || die "E2E_CLUSTER=existing needs KUBECONFIG" ;;
    kind)
      command -v docker >/dev/null || die "E2E_CLUSTER=kind needs docker, which is not installed; E2E_CLUSTER=own does without"
      docker info >/dev/null 2>&1 || die "E2E_CLUSTER=kind needs docker, and \"docker info\" fails; E2E_CLUSTER=own does without" ;;
    *) die "got E2E_CLUSTER=$cluster, want own, kind or existing" ;;
  esac
}

die() {
  echo "e2e.sh: $*" >&2
  exit 1
}

# run COMMAND ARGUMENT...: in the background, so that a signal is seen at once.
run() {
  "$@" &
  wait $!
}

# finish ends what still runs and removes kind's cluster. Its exit code is the
# script's.
finish() {
  local status=$? left
  trap '' INT TERM HUP
  for left in $(jobs -pr); do kill -TERM -- "-$left" 2>/dev/null || true; done
  wait
  if [ -n "$directory" ]; then
    bin/kind delete cluster --name "$kind_name" || true
    rm -rf "$directory"
  fi
  exit "$status"
}

build_all() {
  local suite
  if [ "$cluster" = own ]; then
    run hack/controlplane.sh
    run hack/node.sh
    build bin/cluster env -C test/e2e go build -o ../../bin/ ./cluster
  else
    run hack/controlplane.sh kubectl
  fi
  if [ "$cluster" = kind ]; then build bin/kind env -C hack/tools/kind go build -o ../../../bin/ sigs.k8s.io/kind; fi
  run hack/certmanager.sh
  build bin/helm env -C test/charts go build -o ../../bin/helm helm.sh/helm/v4/cmd/helm
  for suite in "${suites[@]}"; do
    build "bin/$suite.test" env -C test/e2e go test -c -o "../../bin/$suite.test" "./suite/$suite"
  done
  run hack/images.sh
}

# build WHAT COMMAND ARGUMENT...
build() {
  echo "building $1"
  run "${@:2}"
}

# run_suites SUITE...: on the cluster of $KUBECONFIG. The first that fails ends it.
run_suites() {
  local suite
  for suite; do
    # shellcheck disable=SC2086 # several flags
    "bin/$suite.test" -test.timeout=30m -ginkgo.v -ginkgo.no-color $GINKGO_FLAGS || return
  done
}

on_existing() {
  run run_suites "$@"
}

on_kind() {
  local image
  directory=$(mktemp -d)
  export KUBECONFIG=$directory/kubeconfig
  run bin/kind create cluster --name "$kind_name" --config test/e2e/kind.yaml --wait 5m ${KIND_IMAGE:+--image "$KIND_IMAGE"}
  for image in "${images[@]}"; do
    run bin/kind load image-archive "bin/images/$image.tar" --name "$kind_name"
  done
  run run_suites "$@"
}

on_own() {
  local beside= status=0
  if [ $# -gt 1 ] && [ "${!#}" = "$slow" ]; then
    echo "suite $slow: on a second cluster, its output follows (meanwhile in $slow_log)"
    own_cluster "$slow" >"$slow_log" 2>&1 &
    beside=$!
    set -- "${@:1:$#-1}"
  fi
  run own_cluster "$@" || status=$?
  if [ -n "$beside" ]; then
    echo "suite $slow: waiting for its end"
    wait "$beside" || status=$?
    cat "$slow_log"
  fi
  return "$status"
}

# own_cluster SUITE...
own_cluster() {
  local image flags=()
  for image in "${images[@]}"; do
    flags+=(--image "bin/images/$image.tar")
  done
  export -f run_suites
  exec bin/cluster "${flags[@]}" -- bash -c 'run_suites "$@"' -- "$@"
}

main "$@"
