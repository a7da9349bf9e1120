#!/usr/bin/env bash
# Copyright The Lanyard Authors.
# SPDX-License-Identifier: Apache-2.0
#
# The steps of a release, see RELEASE.md. VERSION is the Git tag, such as v1.2.3.
#
#   hack/release.sh check [VERSION]       checks the configuration of GoReleaser; with
#                                         VERSION also that all files agree on it
#   hack/release.sh links VERSION|main    sets the version in the links of the chart and of
#                                         deploy/ to the documentation
#   hack/release.sh notes VERSION         prints the version's section of CHANGELOG.md
#   hack/release.sh snapshot              builds what GoReleaser releases, from any commit
#   hack/release.sh manifests VERSION DIRECTORY [DIGEST]
#                                         writes install.yaml and policies.yaml, with the
#                                         digest of the image, and adds their checksums
#   hack/release.sh build VERSION PLATFORM...
#                                         builds everything into bin/release; needs
#                                         docker with buildx, and skopeo
#   hack/release.sh publish VERSION       publishes bin/release
#
# The last one runs no code of this repository but this script. It needs skopeo, helm,
# cosign with an OIDC identity, gh with $GH_TOKEN, and a login for $REGISTRY. If
# $RELEASE_SUMS is set, even to nothing, it must be the SHA-256 of bin/release/SHA256SUMS.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

registry=${REGISTRY:-ghcr.io/lanyard-dev}
images=(lanyard-webhook lanyard)
charts=$registry/charts
release=bin/release
pages='github\.com/lanyard-dev/lanyard/(blob|tree)/' # and the version

main() {
  export PATH=$PWD/bin:$PATH CGO_ENABLED=0
  local step=${1-}
  case $step in
    check | links | notes | snapshot | manifests | build | publish) "$step" "${@:2}" ;;
    *) die "got step \"$step\", want check, links, notes, snapshot, manifests, build or publish" ;;
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
  if [ -n "${1-}" ]; then agree "$1"; fi
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
  want charts/lanyard/Chart.yaml "^      image: ${registry//./\\.}/lanyard-webhook:$escaped\$"
  want charts/lanyard/Chart.yaml "^      image: ${registry//./\\.}/lanyard:$escaped\$"
  want deploy/base/40-deployment.yaml "image: \"${registry//./\\.}/lanyard-webhook:$escaped\"\$"
  # overridden DIRECTORY IMAGE: the image that users replace in its kustomization.
  overridden() {
    local image="${registry//./\\.}/$2"
    want "$1/kustomization.yaml" "^  - name: $image\$"
    want "$1/kustomization.yaml" "^    newName: $image\$"
    want "$1/kustomization.yaml" "^    newTag: $escaped\$"
  }
  overridden deploy lanyard-webhook
  overridden deploy/checks lanyard
  want deploy/checks/checks.yaml "image: \"${registry//./\\.}/lanyard:$escaped\"\$"
  want Makefile "^IMAGE .*:$escaped\$"
  want CHANGELOG.md "^## \[$escaped\]"
  # A tag of the base image can be moved to other code, a digest cannot.
  want Dockerfile '^ARG GO_IMAGE=golang:[0-9.]+@sha256:[0-9a-f]{64}$'
  if grep -rEo "$pages[^/]+/" charts deploy | grep -v "/v$escaped/\$" >&2; then
    echo "these links are not to $1: run hack/release.sh links $1" >&2
    wrong=1
  fi
  [ "$wrong" -eq 0 ] || die "the files above do not agree with $1; RELEASE.md says how to change them"
  echo "all files agree with $1"
}

# links VERSION|main: an alert of an old version opens the page of its version.
links() {
  if [ "${1-}" != main ]; then number "${1-}" >/dev/null; fi
  grep -rlE "$pages" charts deploy | xargs sed -Ei "s#($pages)[^/]+/#\1$1/#g"
}

notes() {
  local number text
  number=$(number "${1-}")
  text=$(awk -v heading="## [$number]" 'index($0, "## ") == 1 { on = index($0, heading) == 1; next } on' CHANGELOG.md)
  [ -n "$text" ] || die "CHANGELOG.md has no section $number"
  printf '%s\n' "$text"
}

snapshot() {
  goreleaser release --snapshot --clean
  # The archives have a program that works, and the krew manifest and the cask have
  # these archives.
  go test -count=1 -v -run '^TestSnapshot$' ./test/release -dist "$PWD/bin/dist"
}

# manifests VERSION DIRECTORY [DIGEST] writes the manifests. Those of a release have the
# digest: a tag can be moved to another image.
manifests() {
  local number directory=${2-}
  number=$(number "${1-}")
  [ -d "$directory" ] || die "got directory \"$directory\", want one that exists"
  directory=$(cd "$directory" && pwd)
  (cd test/charts && go run ./release ../../deploy "$directory" "$registry" "$number" "${@:3}")
  (cd "$directory" && sha256sum install.yaml policies.yaml >>checksums.txt)
}

build() {
  local number name
  number=$(number "${1-}")
  rm -rf "$release"
  mkdir -p "$release"
  notes "$1" >"$release/notes.md"
  # Attestations need a builder of this driver.
  docker buildx inspect lanyard-release >/dev/null 2>&1 ||
    docker buildx create --name lanyard-release --driver docker-container
  for name in "${images[@]}"; do
    docker buildx build --builder lanyard-release --platform "$(IFS=, && echo "${*:2}")" --target "$name" \
      --sbom=true --provenance=mode=max --output "type=oci,dest=$release/$name.tar" .
  done
  (cd test/charts && go build -o ../../bin/helm helm.sh/helm/v4/cmd/helm)
  helm package charts/lanyard --destination "$release"
  goreleaser release --clean --skip=publish
  # The files of the GitHub release are the ones that the checksums name.
  mkdir "$release/files"
  (cd bin/dist && cut -c 67- checksums.txt | xargs cp -t "../../$release/files" checksums.txt)
  manifests "$1" "$release/files" "sha256:$(digest lanyard-webhook)"
  cp -r bin/dist/krew bin/dist/homebrew "$release/"
  sums
}

# sums writes the checksums of everything that was built, and prints their own checksum.
sums() {
  local sum
  (cd "$release" && find . -type f ! -name SHA256SUMS | LC_ALL=C sort | xargs -d '\n' sha256sum >SHA256SUMS)
  sum=$(sha256sum "$release/SHA256SUMS" | cut -d ' ' -f 1)
  output sums "$sum"
}

# output NAME VALUE prints it, and sets an output of the step in a workflow.
output() {
  echo "$1=$2" | tee -a "${GITHUB_OUTPUT:-/dev/null}"
}

publish() {
  local number name digest
  number=$(number "${1-}")
  verify
  for name in "${images[@]}"; do publish_image "$name" "$number"; done
  # helm prints "Digest: sha256:...". HELM_PUSH_FLAGS=--plain-http is for a registry
  # on this machine.
  # shellcheck disable=SC2086 # several flags
  digest=$(helm push "$release/lanyard-$number.tgz" "oci://$charts" ${HELM_PUSH_FLAGS-} 2>&1 | tee /dev/stderr | sed -n 's/^Digest: //p')
  [ -n "$digest" ] || die "helm printed no digest"
  cosign sign --yes "$charts/lanyard@$digest"
  output chart "$digest"
  cosign sign-blob --yes --bundle "$release/files/checksums.txt.sigstore.json" "$release/files/checksums.txt"
  gh release create "$1" --verify-tag --draft --title "$1" --notes-file "$release/notes.md" "$release"/files/*
}

# publish_image NAME NUMBER pushes and signs an image. The digest is an output.
publish_image() {
  local image=$registry/$1 digest pushed
  digest=$(digest "$1")
  skopeo copy --all --preserve-digests "oci-archive:$release/$1.tar" "docker://$image:$2"
  pushed=$(skopeo inspect --raw "docker://$image:$2" | sha256sum | cut -d ' ' -f 1)
  [ "$pushed" = "$digest" ] || die "$image:$2: got the digest $pushed, want $digest"
  cosign sign --yes "$image@sha256:$digest"
  output "$1" "sha256:$digest"
}

# digest NAME prints the digest of a built image, without the algorithm. Pushing does not
# change the digest.
digest() {
  skopeo inspect --raw "oci-archive:$release/$1.tar" | sha256sum | cut -d ' ' -f 1
}

# verify checks that bin/release is what the job "build" built.
verify() {
  local sum files
  sum=$(sha256sum "$release/SHA256SUMS" | cut -d ' ' -f 1)
  [ "$sum" = "${RELEASE_SUMS-$sum}" ] || die "$release/SHA256SUMS: got SHA-256 $sum, want $RELEASE_SUMS"
  (cd "$release" && sha256sum --check --strict --quiet SHA256SUMS) || die "$release is not what was built"
  files=$(find "$release" -type f ! -name SHA256SUMS | wc -l)
  [ "$files" -eq "$(wc -l <"$release/SHA256SUMS")" ] || die "$release: got $files files, want those of SHA256SUMS"
}

main "$@"
