#!/usr/bin/env bash
# Copyright The Lanyard Authors.
# SPDX-License-Identifier: Apache-2.0
#
# The steps of a release, see RELEASE.md. VERSION is the Git tag, such as v1.2.3.
#
#   hack/release.sh check [VERSION]       checks the configuration of GoReleaser; with
#                                         VERSION also that all files agree on it
#   hack/release.sh notes VERSION         prints the version's section of CHANGELOG.md
#   hack/release.sh snapshot              builds what GoReleaser releases, from any commit
#   hack/release.sh image VERSION PLATFORM...
#   hack/release.sh chart VERSION
#   hack/release.sh binaries VERSION
#
# The last three publish. They need cosign, an OIDC identity that cosign can use, and a
# login for $REGISTRY; "image" needs docker with buildx, "binaries" needs $GITHUB_TOKEN.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

registry=${REGISTRY:-ghcr.io/lanyard-dev}
image=$registry/lanyard-webhook
charts=$registry/charts

main() {
  export PATH=$PWD/bin:$PATH CGO_ENABLED=0
  local step=${1-}
  case $step in
    check | notes | snapshot | image | chart | binaries) "$step" "${@:2}" ;;
    *) die "got step \"$step\", want check, notes, snapshot, image, chart or binaries" ;;
  esac
}

die() {
  echo "release.sh: $*" >&2
  exit 1
}

# number VERSION prints it without the v.
number() {
  [[ ${1-} =~ ^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.]+)?$ ]] || die "got version \"${1-}\", want one like v1.2.3"
  echo "${1#v}"
}

check() {
  goreleaser check
  if [ $# -gt 0 ]; then agree "$1"; fi
}

# agree VERSION checks that all files that name the version, or where it is published,
# are right, and reports each one that is not.
agree() {
  local number wrong=0
  number=$(number "$1")
  # want FILE PATTERN: a line of the file must match the extended regular expression.
  want() {
    grep -Eq "$2" "$1" || { echo "$1: no line matches: $2" >&2; wrong=1; }
  }
  local escaped=${number//./\\.}
  want charts/lanyard/Chart.yaml "^version: $escaped\$"
  want charts/lanyard/Chart.yaml "^appVersion: $escaped\$"
  want charts/lanyard/values.yaml "^  registry: ${registry//./\\.}\$"
  want deploy/base/40-deployment.yaml "image: \"${image//./\\.}:$escaped\"\$"
  want Makefile "^IMAGE .*:$escaped\$"
  want CHANGELOG.md "^## \[$escaped\]"
  [ "$wrong" -eq 0 ] || die "the files above do not agree with $1; RELEASE.md says how to change them"
  echo "all files agree with $1"
}

notes() {
  local number text
  number=$(number "${1-}")
  text=$(awk -v heading="## [$number]" 'index($0, "## ") == 1 { on = index($0, heading) == 1; next } on' CHANGELOG.md)
  [ -n "$text" ] || die "CHANGELOG.md has no section $number"
  printf '%s\n' "$text"
}

snapshot() {
  goreleaser release --snapshot --clean --skip=sign
  # The archives have a program that works, and the krew manifest and the cask have
  # these archives.
  go test -count=1 -v -run '^TestSnapshot$' ./test/supplychain -dist "$PWD/bin/dist"
}

image() {
  local number digest
  number=$(number "${1-}")
  # Attestations need a builder of this driver.
  docker buildx inspect lanyard-release >/dev/null 2>&1 ||
    docker buildx create --name lanyard-release --driver docker-container
  docker buildx build --builder lanyard-release --platform "$(IFS=, && echo "${*:2}")" \
    --sbom=true --provenance=mode=max --metadata-file bin/image.json --push --tag "$image:$number" .
  digest=$(sed -n 's/.*"containerimage\.digest": "\(sha256:[0-9a-f]*\)".*/\1/p' bin/image.json)
  [ -n "$digest" ] || die "bin/image.json has no digest"
  cosign sign --yes "$image@$digest"
}

chart() {
  local number digest
  number=$(number "${1-}")
  (cd test/charts && go build -o ../../bin/helm helm.sh/helm/v4/cmd/helm)
  helm package charts/lanyard --destination bin
  # helm prints "Digest: sha256:...". HELM_PUSH_FLAGS=--plain-http is for a registry
  # on this machine.
  # shellcheck disable=SC2086 # several flags
  digest=$(helm push "bin/lanyard-$number.tgz" "oci://$charts" ${HELM_PUSH_FLAGS-} 2>&1 | tee /dev/stderr | sed -n 's/^Digest: //p')
  [ -n "$digest" ] || die "helm printed no digest"
  cosign sign --yes "$charts/lanyard@$digest"
}

binaries() {
  notes "${1-}" >bin/release-notes.md
  goreleaser release --clean --release-notes bin/release-notes.md
}

main "$@"
