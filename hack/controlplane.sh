#!/usr/bin/env bash
# Copyright The Lanyard Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Builds the programs of a Kubernetes cluster from the Go modules in hack/tools/etcd
# and hack/tools/kubernetes: the ones that the arguments name, or else the control
# plane of the tests and of the demo, etcd and kube-apiserver.
# Needs Go and coreutils; neither root nor a download from anywhere but the Go
# module proxy. The first run takes some minutes, a run with nothing to do none.
#
# The binaries go to bin/controlplane, or to $KUBEBUILDER_ASSETS where that is
# set. Binaries that something else put there (setup-envtest) are left alone.
#
# Beside each binary stands NAME.version: the module's version, and on the
# second line the key of what it was built from.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
self=$root/hack/$(basename "${BASH_SOURCE[0]}")
bin=${KUBEBUILDER_ASSETS:-$root/bin/controlplane}
if [ $# -eq 0 ]; then set -- etcd kube-apiserver; fi
names=("$@")

# A build that means the same everywhere: nobody's flags, nobody's workspace.
export CGO_ENABLED=0 GOFLAGS="-mod=readonly -trimpath" GOWORK=off

build_pid=
log=
cleanup() {
  # go cleans up after itself on an interrupt alone.
  if [ -n "$build_pid" ]; then kill -INT "$build_pid" 2>/dev/null && wait "$build_pid" || true; fi
  if [ -n "$log" ]; then rm -f "$log"; fi
  rm -f "$bin"/*.new.$$
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# source_of NAME: where its module is required, the module, and its package.
source_of() {
  case $1 in
    etcd) echo hack/tools/etcd go.etcd.io/etcd/server/v3 go.etcd.io/etcd/server/v3 ;;
    kube-apiserver | kube-controller-manager | kube-proxy | kube-scheduler | kubectl | kubelet)
      echo hack/tools/kubernetes k8s.io/kubernetes "k8s.io/kubernetes/cmd/$1" ;;
    *)
      echo "controlplane.sh: got the name $1, want etcd or a program of Kubernetes" >&2
      return 1 ;;
  esac
}

# key NAME: changes when anything that decides about the binary does.
key() {
  local dir
  read -r dir _ <<<"$(source_of "$1")"
  cat "$root/$dir/go.mod" "$root/$dir/go.sum" "$self" - <<<"$toolchain" | sha256sum | cut -d ' ' -f 1
}

# current NAME: is the binary there, and built from what its key stands for?
current() {
  [ -x "$bin/$1" ] && [ -f "$bin/$1.version" ] && [ "$(tail -n 1 "$bin/$1.version")" = "$(key "$1")" ]
}

# all_current: is there nothing to build?
all_current() {
  local name
  for name in "${names[@]}"; do current "$name" || return 1; done
}

# foreign: did something else put all of the binaries where the user said?
foreign() {
  local name
  [ -n "${KUBEBUILDER_ASSETS-}" ] || return 1
  for name in "${names[@]}"; do
    { [ -x "$bin/$name" ] && [ ! -f "$bin/$name.version" ]; } || return 1
  done
}

# listed: the names as prose, with their versions where those are known.
listed() {
  local name text=
  for name in "${names[@]}"; do
    text+="${text:+, }$name"
    if [ -f "$bin/$name.version" ]; then text+=" $(head -n 1 "$bin/$name.version")"; fi
  done
  printf '%s\n' "$text"
}

# say LINE: on a terminal in place of the line before, else a line of its own.
say() {
  if [ -t 1 ]; then printf '\r\033[K%s' "$1"; else printf '%s\n' "$1"; fi
}

# fail NAME: what Go said, without the packages that it only listed (-v). Those
# are the lines with neither a blank nor a colon.
fail() {
  if [ -t 1 ]; then printf '\n'; fi
  while IFS= read -r line; do
    case $line in *[[:space:]:]*) printf '%s\n' "$line" >&2 ;; esac
  done <"$log"
  echo "controlplane.sh: building $1 failed" >&2
  exit 1
}

# follow TITLE TOTAL: shows how far the build is, until it ends. Packages that
# the build cache already holds are not compiled and so not counted: with a
# warm cache the count stays low and the end comes early.
follow() {
  local every=15 next=15 start=$SECONDS count
  if [ -t 1 ]; then every=1 next=1; fi
  while kill -0 "$build_pid" 2>/dev/null; do
    sleep 1
    if [ $((SECONDS - start)) -ge "$next" ]; then
      next=$((SECONDS - start + every))
      count=$(wc -l <"$log")
      say "$1: about $((count)) of $2 packages compiled (cached ones not counted), $((SECONDS - start)) s"
    fi
  done
}

# build NAME
build() {
  local name=$1 key dir module package version number total stamps=() start=$SECONDS
  key=$(key "$name")
  read -r dir module package <<<"$(source_of "$name")"
  cd "$root/$dir"
  log=$(mktemp)
  version=$(go list -m -f '{{.Version}}' "$module" 2>"$log") || fail "$name"
  if [ "$module" = k8s.io/kubernetes ]; then
    # Kubernetes learns its own version from the linker alone.
    number=${version#v}
    stamps=(
      -X "k8s.io/component-base/version.gitVersion=$version"
      -X "k8s.io/component-base/version.gitMajor=${number%%.*}"
      -X "k8s.io/component-base/version.gitMinor=$(cut -d . -f 2 <<<"$number")"
    )
  fi

  say "$name $version: loading its packages (the first time downloads their modules)"
  total=$(go list -deps "$package" 2>"$log" | wc -l) || fail "$name"

  : >"$log"
  # Descriptor 9 is the lock: not for a helper that Go may leave running.
  go build -v -buildvcs=false -ldflags "-s -w ${stamps[*]-}" \
    -o "$bin/$name.new.$$" "$package" >"$log" 2>&1 9>&- &
  build_pid=$!
  follow "$name $version" "$((total))"
  wait "$build_pid" || fail "$name"
  build_pid=

  # A binary without its stamp is built again; a stamp without its binary would
  # never be. So the stamp goes first and comes back last.
  rm -f "$bin/$name.version"
  mv -f "$bin/$name.new.$$" "$bin/$name"
  printf '%s\n%s\n' "$version" "$key" >"$bin/$name.version.new.$$"
  mv -f "$bin/$name.version.new.$$" "$bin/$name.version"
  rm -f "$log"
  log=
  say "$name $version: built in $((SECONDS - start)) s"
  if [ -t 1 ]; then printf '\n'; fi
}

for name in "${names[@]}"; do source_of "$name" >/dev/null; done
toolchain=$(cd "$root/hack/tools/kubernetes" && go env GOVERSION GOOS GOARCH)

if foreign; then
  echo "using $(listed) in $bin as they are"
  exit 0
fi
if all_current; then
  echo "$(listed) in $bin: up to date"
  exit 0
fi

mkdir -p "$bin"
bin=$(cd "$bin" && pwd)
# One build at a time. Without flock two would do the work twice and the later
# one win: each builds to a name of its own and moves it into place.
if command -v flock >/dev/null 2>&1; then
  exec 9>"$bin/.lock"
  if ! flock -n 9; then
    echo "waiting for another build of the same programs"
    flock 9
  fi
fi
for name in "${names[@]}"; do
  current "$name" || build "$name"
done
