#!/usr/bin/env bash
# Copyright The Lanyard Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Builds the images for the test/e2e suites without a container engine:
# bin/images/NAME.tar in the format of docker save. The arguments are image names; the
# default is all images.
#
# The SDK images for Node.js and Python are built from npm packages
# (test/e2e/sdk/node/package-lock.json) and Debian 13 packages
# (test/e2e/sdk/*/packages), whatever the host runs. Debian packages come from
# $DEBIAN_MIRROR, or from the mirror that the host's apt uses for Debian, or from
# Debian's mirror in the host's package python-apt-common. A run takes seconds if
# nothing has changed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

all=(lanyard-webhook lanyard lanyard-abuse lanyard-clouds lanyard-peers lanyard-reader lanyard-sdk-go lanyard-sdk-node lanyard-sdk-python lanyard-forwarder)
suite=trixie
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
images=$PWD/bin/images
work=$images/work # kept between runs; one directory per image
sdk=$PWD/test/e2e/sdk

# The same flags as in the Makefile, to share the build cache.
export CGO_ENABLED=0 GOFLAGS="-trimpath -ldflags=-s $(go env GOFLAGS)"

main() {
  local name names=("$@")
  if [ $# -eq 0 ]; then names=("${all[@]}"); fi
  mkdir -p "$work"
  # One run at a time.
  exec 9>"$work/.lock"
  flock 9
  for name in "${names[@]}"; do make_image "$name"; done
}

make_image() {
  local start=$SECONDS made=
  case $1 in
    lanyard-webhook | lanyard) make --no-print-directory build; archive "$1" "bin/$1" ;;
    lanyard-abuse) go_build test/e2e ../../bin/ ./abuse; archive "$1" bin/abuse ;;
    lanyard-clouds) go_build test/e2e ../../bin/ ./clouds; archive "$1" bin/clouds ;;
    lanyard-peers) go_build test/e2e ../../bin/ ./peers; archive "$1" bin/peers ;;
    lanyard-reader) go_build test/e2e ../../bin/ ./reader; archive "$1" bin/reader ;;
    lanyard-sdk-go) sdk_go "$1" credentials ;;
    lanyard-forwarder) sdk_go "$1" forwarder ;;
    lanyard-sdk-node) sdk_node ;;
    lanyard-sdk-python) sdk_python ;;
    *) die "unknown image $1, want one of ${all[*]}" ;;
  esac
  echo "bin/images/$1.tar: ${made:-made in $((SECONDS - start)) s}"
}

die() {
  echo "images.sh: $*" >&2
  exit 1
}

# go_build MODULE OUTPUT PACKAGE... builds the packages; OUTPUT is relative to the
# module.
go_build() {
  (cd "$1" && go build -o "${@:2}")
}

# archive NAME PROGRAM writes an image with a static program as its only file.
archive() {
  local tree=$work/program/$1
  rm -rf "$tree"
  mkdir -p "$tree"
  cp "$2" "$tree/"
  hack/archive.sh "$1:e2e" "$images/$1.tar" "/$(basename "$2")" "$tree"
}

# sdk_go NAME PROGRAM
sdk_go() {
  mkdir -p "$work/sdk-go"
  go_build test/e2e/sdk/go "$work/sdk-go/" "./$2"
  archive "$1" "$work/sdk-go/$2"
}

sdk_node() {
  local base=$work/sdk-node program=$sdk/node/credentials.mjs
  stamped "$base" node_base "$sdk/node/package.json" "$sdk/node/package-lock.json" "$sdk/node/packages"
  sdk_archive lanyard-sdk-node "$base" "$program" /usr/bin/node
}

sdk_python() {
  local base=$work/sdk-python program=$sdk/python/credentials.py
  stamped "$base" python_base "$sdk/python/packages"
  sdk_archive lanyard-sdk-python "$base" "$program" /usr/bin/python3
}

# sdk_archive NAME BASE PROGRAM INTERPRETER writes two layers, so that a changed
# program does not change the base layer.
sdk_archive() {
  local app
  app=$work/app/$(basename "$3")
  if [ "$(cat "$images/$1.key" 2>/dev/null)" = "$(key "$2.key" "$3" hack/archive.sh)" ] && [ -f "$images/$1.tar" ]; then
    made="up to date"
    return
  fi
  rm -rf "$app" "$images/$1.key"
  mkdir -p "$app/app"
  cp "$3" "$app/app/"
  hack/archive.sh "$1:e2e" "$images/$1.tar" "$4 /app/$(basename "$3")" "$2" "$app"
  key "$2.key" "$3" hack/archive.sh >"$images/$1.key"
}

# key FILE... prints a hash of the files, this script and the machine type.
key() {
  (uname -m && cat "$PWD/hack/images.sh" "$@") | sha256sum | cut -d ' ' -f 1
}

# stamped DIR FUNCTION FILE... lets the function fill the directory, unless the
# files are unchanged since the last time. The directory is either complete or
# missing.
stamped() {
  local key
  key=$(key "${@:3}")
  if [ "$(cat "$1.key" 2>/dev/null)" = "$key" ]; then return; fi
  rm -rf "$1" "$1.key" "$1.new"
  mkdir "$1.new"
  "$2" "$1.new"
  mv "$1.new" "$1"
  echo "$key" >"$1.key"
}

node_base() {
  need npm npm
  debian_tree "$1" "$sdk/node/packages"
  echo "downloading the npm packages of the SDKs for Node.js"
  mkdir "$1/app"
  cp "$sdk"/node/package*.json "$1/app/"
  (cd "$1/app" && npm ci --ignore-scripts --omit=dev --no-audit --no-fund --loglevel=error)
  # Node.js itself is an npm package; only its program is needed.
  cp "$1"/app/node_modules/node-linux-*/bin/node "$1/usr/bin/node"
  rm -r "$1"/app/node_modules/node-linux-*
  # Three of four files are never read at run time, and each one slows down the
  # node.
  find "$1/app/node_modules" -type f '(' -name '*.map' -o -name '*.ts' -o -name '*.mts' -o -name '*.cts' -o -name '*.md' ')' -delete
  run_in "$1" usr/bin/node --version
}

python_base() {
  local packages=$1/usr/lib/python3/dist-packages
  debian_tree "$1" "$sdk/python/packages"
  # The descriptions of all AWS services: a hundred megabytes.
  find "$packages/botocore/data" -mindepth 1 -maxdepth 1 -type d ! -name sts -exec rm -r {} +
  # What the packages' scripts do after installation.
  mkdir -p "$1/etc/ssl/certs"
  cat "$1"/usr/share/ca-certificates/mozilla/*.crt >"$1/etc/ssl/certs/ca-certificates.crt"
  PYTHONHOME=$1/usr run_in "$1" usr/bin/python3 -m compileall -q --invalidation-mode unchecked-hash \
    -s "$1" "$1/usr/lib/python3.13" "$packages"
  PYTHONHOME=$1/usr run_in "$1" usr/bin/python3 -c \
    'import boto3, azure.identity as a, google.auth as g; print("boto3", boto3.__version__, "azure-identity", a.__version__, "google-auth", g.__version__)'
}

# run_in TREE PROGRAM ARGUMENT...: runs a program of the tree with its libraries.
run_in() {
  local loader
  loader=$(find "$1/usr/lib" "$1/usr/lib64" -maxdepth 1 -name 'ld-linux*.so.*' -print -quit)
  "$loader" --library-path "$(echo "$1"/usr/lib/*-linux-gnu)" "$1/$2" "${@:3}"
}

# debian_tree TREE LIST unpacks the listed packages without running their scripts.
debian_tree() {
  local debs=$work/debs package paths
  need apt-get apt
  need dpkg-deb dpkg
  rm -rf "$debs"
  mkdir -p "$debs"
  echo "downloading the Debian packages in $2"
  apt_update
  (cd "$debs" && apt_get download -qq $(list "$2" | cut -d ' ' -f 1))
  # The directory layout of base-files.
  mkdir -p "$1/usr/bin" "$1/usr/lib" "$1/usr/lib64"
  ln -s usr/bin usr/lib usr/lib64 "$1/"
  while read -r package paths; do
    # shellcheck disable=SC2086 # several paths
    dpkg-deb --fsys-tarfile "$debs/$package"_*.deb | tar --extract --directory "$1" --no-same-owner \
      --exclude ./usr/share/doc --exclude ./usr/share/man ${paths:+$(printf './%s ' $paths)}
  done < <(list "$2")
  rm -rf "$debs"
}

# list FILE prints it without comments and empty lines.
list() {
  sed -e '/^#/d' -e '/^$/d' "$1"
}

# apt_update reads the package index of the Debian release, once per run.
apt_update() {
  local apt=$work/apt mirror
  if [ -f "$apt/updated.$$" ]; then return; fi
  [ -f "$keyring" ] || die "$keyring is missing; on Debian and Ubuntu: apt-get install --no-install-recommends debian-archive-keyring"
  mirror=$(mirror)
  [ -n "$mirror" ] || die "this machine knows no Debian mirror; on Ubuntu: apt-get install --no-install-recommends python-apt-common, or set DEBIAN_MIRROR"
  rm -rf "$apt"
  mkdir -p "$apt"/{state/lists/partial,cache/archives/partial}
  : >"$apt/status"
  echo "deb [target=Packages signed-by=$keyring] $mirror $suite main" >"$apt/sources.list"
  # Use separate state and sources; from the host's configuration take only how to
  # reach its mirror.
  cat - <(apt-config dump | grep '^Acquire::') >"$apt/apt.conf" <<EOF
Dir::Etc::main "/dev/null";
Dir::Etc::parts "/dev/null";
Dir::Etc::preferences "/dev/null";
Dir::Etc::preferencesparts "/dev/null";
Dir::Etc::sourcelist "$apt/sources.list";
Dir::Etc::sourceparts "/dev/null";
Dir::State "$apt/state";
Dir::State::status "$apt/status";
Dir::Cache "$apt/cache";
APT::Sandbox::User "";
EOF
  apt_get update -qq
  touch "$apt/updated.$$"
}

apt_get() {
  APT_CONFIG=$work/apt/apt.conf apt-get "$@"
}

# mirror prints a Debian mirror.
mirror() {
  local id codename distributions=/usr/share/python-apt/templates/Debian.info
  if [ -n "${DEBIAN_MIRROR-}" ]; then
    echo "$DEBIAN_MIRROR"
    return
  fi
  read -r id codename < <(. /etc/os-release && echo "${ID-}" "${VERSION_CODENAME-}")
  if [ "$id" = debian ]; then
    apt-get --no-release-info indextargets --format '$(REPO_URI)' \
      'Created-By: Packages' 'Component: main' "Release: $codename" | sed -n 1p
  elif [ -f "$distributions" ]; then
    sed -n 's/^BaseURI: *//p' "$distributions" | sed -n 1p
  fi
}

# need COMMAND PACKAGE
need() {
  command -v "$1" >/dev/null || die "$1 is missing; on Debian: apt-get install --no-install-recommends $2"
}

main "$@"
