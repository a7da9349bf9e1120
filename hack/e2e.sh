#!/usr/bin/env bash
# Copyright The Lanyard Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Runs the test/e2e suites on a real cluster:
#
#   hack/e2e.sh [--build | --built] [SUITE...]
#
# The arguments are suite names. The default is all suites but rotation, which waits ten
# minutes for the kubelet. They run one after the other on one cluster. $GINKGO_FLAGS is
# passed to each suite (-ginkgo.focus=...); if it is not set, two of the four install
# methods are skipped. --build builds everything and runs nothing; --built runs what was
# built. $E2E_CLUSTER selects the cluster:
#
#   kind      a kind cluster on Docker or Podman (the default), with the node image
#             $KIND_IMAGE or kind's default; without an engine or a registry, the node
#             image of hack/kind/offline.sh, which needs root on Debian. $E2E_KIND names
#             a cluster that exists, such as lanyard-quickstart, and stays
#   existing  the cluster of $KUBECONFIG (the default if KUBECONFIG is set); its nodes
#             need the images in bin/images and the kubelet settings in
#             test/e2e/kind.yaml
#
# Everything that this script starts ends with it, however it ends.
set -euo pipefail
# Job control puts each background command into its own process group, which can be
# killed as a whole.
set -m
cd "$(dirname "${BASH_SOURCE[0]}")/.."

. hack/times.sh

# The last one kills the API server.
suites=(identity scenarios migration cli availability policies)
kind_name=${E2E_KIND:-lanyard-e2e-$$} # unique, because it is deleted at the end
images=(lanyard-webhook lanyard lanyard-abuse lanyard-clouds lanyard-peers lanyard-reader lanyard-sdk-go lanyard-sdk-node lanyard-sdk-python lanyard-forwarder)

# The same flags as in the Makefile, to share the build cache.
export CGO_ENABLED=0 GOFLAGS="-trimpath -ldflags=-s $(go env GOFLAGS)"
# Skip the install methods that have much in common with another; "make charts"
# checks that they render the same objects.
export GINKGO_FLAGS=${GINKGO_FLAGS--ginkgo.label-filter=!every-install}
cluster=${E2E_CLUSTER:-${KUBECONFIG:+existing}}
cluster=${cluster:-kind}
directory= # for kind's kubeconfig, and the times
created=   # set if kind's cluster is to be deleted

main() {
  local only=
  case ${1-} in --build | --built) only=$1; shift ;; esac
  if [ $# -gt 0 ]; then suites=("$@"); fi
  case $cluster in
    kind) ;;
    existing) [ -n "${KUBECONFIG-}" ] || die "E2E_CLUSTER=existing needs KUBECONFIG" ;;
    *) die "got E2E_CLUSTER=$cluster, want kind or existing" ;;
  esac
  trap finish EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM HUP
  directory=$(mktemp -d)
  if [ -z "${TIMES-}" ]; then export TIMES=$directory/times; fi
  if [ "$only" != --built ]; then build_all; fi
  if [ "$only" = --build ]; then return; fi
  export PATH=$PWD/bin:$PWD/bin/controlplane:$PATH
  "on_$cluster" "${suites[@]}"
}

die() {
  echo "e2e.sh: $*" >&2
  exit 1
}

# run COMMAND ARGUMENT... runs it in the background, so that signals are handled at
# once.
run() {
  "$@" &
  wait $!
}

# finish ends everything that still runs, deletes kind's cluster, prints the times and
# keeps the script's exit code.
finish() {
  local status=$? left
  trap '' INT TERM HUP
  for left in $(jobs -pr); do kill -TERM -- "-$left" 2>/dev/null || true; done
  wait
  if [ -n "$created" ]; then bin/kind delete cluster --name "$kind_name" || true; fi
  # A script that has called this one prints them itself.
  if [ "$TIMES" = "$directory/times" ] && [ -s "$TIMES" ]; then times; fi
  rm -rf "$directory"
  exit "$status"
}

build_all() {
  run hack/controlplane.sh kubectl
  if [ "$cluster" = kind ]; then run make --no-print-directory bin/kind; fi
  run hack/certmanager.sh
  build bin/helm env -C test/charts go build -o ../../bin/helm helm.sh/helm/v4/cmd/helm
  build "the suites ${suites[*]}" env -C test/e2e go test -c -o ../../bin/ "${suites[@]/#/./suite/}"
  run hack/images.sh
}

# build WHAT COMMAND ARGUMENT...
build() {
  echo "building $1"
  run "${@:2}"
}

# run_suites SUITE... runs the suites on the cluster of $KUBECONFIG and stops at the
# first failure.
run_suites() {
  local suite
  for suite; do
    # shellcheck disable=SC2086 # several flags
    timed "suite $suite" "bin/$suite.test" -test.timeout=3h -ginkgo.timeout=2h -ginkgo.v -ginkgo.no-color $GINKGO_FLAGS || return
  done
}

on_existing() {
  run run_suites "$@"
}

on_kind() {
  if hack/kind/offline.sh needed; then
    echo "no container engine with a registry: starting hack/kind/offline.sh"
    run hack/kind/offline.sh with hack/e2e.sh --built "$@"
    return
  fi
  kind_cluster
  run run_suites "$@"
}

# kind_cluster creates a cluster, unless there is one, and loads the images.
kind_cluster() {
  local engine begun=$EPOCHSECONDS
  engine=$(hack/kind/engine.sh)
  # kind's default is docker. It prints a warning if the variable is set.
  if [ "$engine" != docker ]; then export KIND_EXPERIMENTAL_PROVIDER=$engine; fi
  export KUBECONFIG=$directory/kubeconfig
  if [ -n "${E2E_KIND-}" ]; then
    run bin/kind export kubeconfig --name "$kind_name"
  else
    created=1
    run bin/kind create cluster --name "$kind_name" --config test/e2e/kind.yaml --wait 15m ${KIND_IMAGE:+--image "$KIND_IMAGE"}
    # kind waits for the node, but not for DNS.
    run kubectl rollout status deployment/coredns --namespace kube-system --timeout 15m
    note "kind cluster" "$begun"
  fi
  run timed "images into the cluster" load_images
}

load_images() {
  local image
  for image in "${images[@]}"; do
    bin/kind load image-archive "bin/images/$image.tar" --name "$kind_name" || return
  done
}

main "$@"
