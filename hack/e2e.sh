#!/usr/bin/env bash
# Copyright The Lanyard Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Runs the suites of test/e2e on a whole cluster of their own, built from
# source: as root, on Linux. The arguments are the suites' names, all where there
# are none; $GINKGO_FLAGS goes to each of them (-ginkgo.focus=...).
#
# Where $KUBECONFIG is set the suites run on that cluster, which needs the images
# lanyard-webhook:e2e and lanyard-kill:e2e on its nodes.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

suites=("$@")
if [ ${#suites[@]} -eq 0 ]; then
  for directory in test/e2e/suite/*/; do suites+=("$(basename "$directory")"); done
fi

build() {
  echo "building $1"
  shift
  "$@"
}

export CGO_ENABLED=0
hack/controlplane.sh
hack/node.sh
hack/certmanager.sh
build bin/lanyard-webhook make --no-print-directory build
build bin/helm env -C test/charts go build -o ../../bin/helm helm.sh/helm/v4/cmd/helm
build "bin/cluster, bin/pause and bin/kill" env -C test/e2e go build -o ../../bin/ ./cluster ./cluster/pause ./kill
for suite in "${suites[@]}"; do
  build "bin/$suite.test" env -C test/e2e go test -c -o "../../bin/$suite.test" "./suite/$suite"
done

PATH=$PWD/bin:$PWD/bin/controlplane:$PATH
run=(bash -euc 'for suite in "$@"; do "bin/$suite.test" -test.timeout=30m -ginkgo.v -ginkgo.no-color $GINKGO_FLAGS; done' --)
export GINKGO_FLAGS=${GINKGO_FLAGS-}
if [ -n "${KUBECONFIG-}" ]; then
  exec "${run[@]}" "${suites[@]}"
fi
exec bin/cluster --image lanyard-webhook:e2e=bin/lanyard-webhook --image lanyard-kill:e2e=bin/kill -- "${run[@]}" "${suites[@]}"
