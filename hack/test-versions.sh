#!/usr/bin/env bash
# Copyright The Lanyard Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Runs the integration tests on the kube-apiserver of several Kubernetes versions, and
# writes the results into the table in docs/reference/versions.md:
#
#   hack/test-versions.sh [--build] [MINOR...]
#
# The arguments are versions such as 1.30; the default is all versions in the list
# below. --build builds the kube-apiservers and runs nothing. To build one takes about
# five minutes on two cores, to test it another three. Needs Go and the Go module proxy,
# but not root.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# The newest patch release of each minor version that the Go module proxy has, oldest
# first.
versions=(1.29.6 1.30.14 1.31.0 1.32.13 1.33.13 1.34.4 1.35.4 1.36.3 1.37.2)

# The version of all other tests, which make controlplane builds.
pinned=$(sed -n 's|^\tk8s.io/kubernetes v\([0-9.]*\).*|\1|p' hack/tools/kubernetes/go.mod)

# Not test/integration/abuse: it is about the memory of the webhook.
suites=(./test/integration ./test/integration/callers ./test/integration/embed ./test/integration/selfmanaged)

table=docs/reference/versions.md

# The first minor version with ValidatingAdmissionPolicy v1, for the guard and the
# fences.
first_with_policies=30

# The first minor version whose API server can inject by itself, for test/policies. It has
# more random pods here than in "make test-cluster".
first_with_injection=36
random_pods=2000

main() {
  local build_only= version minors=("$@")
  if [ "${1-}" = --build ]; then
    build_only=1
    minors=("${@:2}")
  fi
  if [ ${#minors[@]} -eq 0 ]; then minors=("${versions[@]%.*}"); fi
  for minor in "${minors[@]}"; do
    version_of "$minor" >/dev/null
  done

  local failed=()
  for minor in "${minors[@]}"; do
    version=$(version_of "$minor")
    build "$version"
    if [ -n "$build_only" ]; then continue; fi
    run "$version" || failed+=("$version")
  done
  [ ${#failed[@]} -eq 0 ] || die "tests failed on Kubernetes ${failed[*]}"
}

die() {
  echo "test-versions.sh: $*" >&2
  exit 1
}

# version_of MINOR prints the version in the list.
version_of() {
  local version
  for version in "${versions[@]}"; do
    if [ "${version%.*}" = "$1" ]; then
      echo "$version"
      return
    fi
  done
  die "got version $1, want one of ${versions[*]%.*}"
}

# assets VERSION prints the directory of the version's binaries.
assets() {
  if [ "$1" = "$pinned" ]; then echo "$PWD/bin/controlplane"; else echo "$PWD/bin/controlplane-${1%.*}"; fi
}

# build VERSION builds the version's kube-apiserver if it is missing. All versions use the
# etcd of the other tests.
build() {
  local version=$1 assets stamp=k8s.io/component-base/version start=$SECONDS
  assets=$(assets "$version")
  hack/controlplane.sh
  if [ "$version" = "$pinned" ] || [ "$("$assets/kube-apiserver" --version 2>/dev/null)" = "Kubernetes v$version" ]; then return; fi
  echo "kube-apiserver $version: building"
  mkdir -p "$assets"
  cp bin/controlplane/etcd "$assets/etcd"
  write_module "$version" "$assets/module"
  # Kubernetes takes its version only from linker flags.
  (cd "$assets/module" && kubernetes_go build -trimpath -buildvcs=false \
    -ldflags "-s -w -X $stamp.gitVersion=v$version -X $stamp.gitMajor=1 -X $stamp.gitMinor=$(cut -d . -f 2 <<<"$version")" \
    -o "$assets/kube-apiserver" k8s.io/kubernetes/cmd/kube-apiserver)
  echo "kube-apiserver $version: built in $((SECONDS - start)) s"
}

# kubernetes_go runs Go in a module of write_module. The tag leaves out the cloud
# providers that Kubernetes before 1.31 had; the tests need none.
kubernetes_go() {
  CGO_ENABLED=0 GOWORK=off GOFLAGS="-mod=mod -tags=providerless" go "$@"
}

# write_module VERSION DIRECTORY writes a go.mod that builds Kubernetes from the same
# modules as its release: a copy of its own, in which the released staging modules
# replace the directories ./staging/src/k8s.io/NAME.
write_module() {
  local version=$1 directory=$2 source
  rm -rf "$directory"
  mkdir -p "$directory"
  echo "module example.com/kubernetes" >"$directory/go.mod"
  source=$(cd "$directory" && kubernetes_go mod download -json "k8s.io/kubernetes@v$version" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
  [ -d "$source" ] || die "the module k8s.io/kubernetes v$version could not be downloaded"
  sed -E -e 's|^module .*|module example.com/kubernetes|' \
    -e "s|=> \./staging/src/(k8s\.io/[a-z-]+)$|=> \1 v0.${version#1.}|" "$source/go.mod" >"$directory/go.mod"
  cp --no-preserve=mode "$source/go.sum" "$directory/go.sum"
  (cd "$directory" && kubernetes_go mod edit "-require=k8s.io/kubernetes@v$version")
}

# run VERSION tests the version and writes its row.
run() {
  local version=$1 minor=${1%.*} log=bin/test-versions-${1%.*}.log policies=yes filter= status=0
  local suites=("${suites[@]}")
  if [ "${minor#1.}" -lt "$first_with_policies" ]; then
    policies=no
    filter='!policies'
    # The specs of this suite for a server without policies.
    suites+=(./test/integration/cli)
  fi
  echo "Kubernetes $version: testing, output is in $log"
  # The same flags as in the Makefile, to share the build cache. Without the race detector:
  # "make test" runs these suites with it, and the API server is another process.
  CGO_ENABLED=0 GOFLAGS="-trimpath $(go env GOFLAGS)" KUBEBUILDER_ASSETS=$(assets "$version") \
    go test -count=1 -timeout=1h -v "${suites[@]}" -args -ginkgo.no-color -ginkgo.label-filter="$filter" \
    >"$log" 2>&1 || status=$?
  if [ "${minor#1.}" -ge "$first_with_injection" ]; then
    (cd test/policies && KUBEBUILDER_ASSETS=$(assets "$version") go test -count=1 -timeout=1h -v . -args -pods="$random_pods") >>"$log" 2>&1 || status=$?
  fi
  grep -E '^(\[FAIL\]|(ok|FAIL)[[:space:]]+github\.com/)' "$log" || true
  write_row "$version" "$policies" "$log" "$status"
  return "$status"
}

# write_row VERSION POLICIES LOG STATUS adds up the suites' last lines, such as "SUCCESS! --
# 184 Passed | 0 Failed | 0 Pending | 2 Skipped", and replaces the version's row. The row
# has the day of the run.
write_row() {
  local row
  row=$(awk -v minor="${1%.*}" -v version="$1" -v policies="$2" -v status="$4" -v suites="${#suites[@]}" \
    -v day="$(date -u +%Y-%m-%d)" '
    / -- [0-9]+ Passed \| [0-9]+ Failed \| / {
      ended++
      for (i = 2; i <= NF; i++) count[$i] += $(i - 1)
    }
    END {
      result = ended == suites && count["Failed"] == 0 && status == 0 ? "passed" : "**failed**"
      printf "| %s | %s | %s | %s | %d | %s |\n", minor, version, policies, day, count["Passed"] + count["Failed"], result
    }' "$3")
  echo "$row"
  awk -v minor="${1%.*}" -v row="$row" -F ' *[|] *' '$2 == minor { print row; next } { print }' "$table" >"$table.new"
  mv "$table.new" "$table"
}

main "$@"
