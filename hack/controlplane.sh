#!/usr/bin/env bash
# Copyright The Lanyard Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Builds Kubernetes programs from the Go modules in hack/tools/etcd and
# hack/tools/kubernetes. The arguments name the programs; the default is etcd and
# kube-apiserver, the control plane for the tests and the demo. Needs Go, coreutils
# and the Go module proxy, but not root. The first run takes some minutes; later
# runs return at once if nothing has changed.
#
# The binaries go to bin/controlplane, or to $KUBEBUILDER_ASSETS if set. Binaries
# that another tool put there (setup-envtest) are left alone.
#
# NAME.version next to each binary holds the module's version and, on the second
# line, the key of its build inputs.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
self=$root/hack/$(basename "${BASH_SOURCE[0]}")
bin=${KUBEBUILDER_ASSETS:-$root/bin/controlplane}
if [ $# -eq 0 ]; then set -- etcd kube-apiserver; fi
names=("$@")

# Build the same way everywhere: ignore the user's flags and workspace.
export CGO_ENABLED=0 GOFLAGS="-mod=readonly -trimpath" GOWORK=off

build_pid=
log=
cleanup() {
  # Go removes its temporary files only on an interrupt.
  if [ -n "$build_pid" ]; then kill -INT "$build_pid" 2>/dev/null && wait "$build_pid" || true; fi
  if [ -n "$log" ]; then rm -f "$log"; fi
  rm -f "$bin"/*.new.$$
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# source_of NAME prints the directory that requires the module, the module and the
# package.
source_of() {
  case $1 in
    etcd) echo hack/tools/etcd go.etcd.io/etcd/server/v3 go.etcd.io/etcd/server/v3 ;;
    kube-apiserver | kube-controller-manager | kube-proxy | kube-scheduler | kubeadm | kubectl | kubelet)
      echo hack/tools/kubernetes k8s.io/kubernetes "k8s.io/kubernetes/cmd/$1" ;;
    *)
      echo "controlplane.sh: unknown program $1, want etcd or a Kubernetes program" >&2
      return 1 ;;
  esac
}

# key NAME prints a hash of all build inputs of the binary.
key() {
  local dir
  read -r dir _ <<<"$(source_of "$1")"
  cat "$root/$dir/go.mod" "$root/$dir/go.sum" "$self" - <<<"$toolchain" | sha256sum | cut -d ' ' -f 1
}

# current NAME reports whether the binary exists and matches its build inputs.
current() {
  [ -x "$bin/$1" ] && [ -f "$bin/$1.version" ] && [ "$(tail -n 1 "$bin/$1.version")" = "$(key "$1")" ]
}

# all_current reports whether nothing must be built.
all_current() {
  local name
  for name in "${names[@]}"; do current "$name" || return 1; done
}

# foreign reports whether another tool put all binaries into $KUBEBUILDER_ASSETS.
foreign() {
  local name
  [ -n "${KUBEBUILDER_ASSETS-}" ] || return 1
  for name in "${names[@]}"; do
    { [ -x "$bin/$name" ] && [ ! -f "$bin/$name.version" ]; } || return 1
  done
}

# listed prints the names with their versions, if known.
listed() {
  local name text=
  for name in "${names[@]}"; do
    text+="${text:+, }$name"
    if [ -f "$bin/$name.version" ]; then text+=" $(head -n 1 "$bin/$name.version")"; fi
  done
  printf '%s\n' "$text"
}

# say LINE replaces the previous line on a terminal, and prints a new line
# elsewhere.
say() {
  if [ -t 1 ]; then printf '\r\033[K%s' "$1"; else printf '%s\n' "$1"; fi
}

# fail NAME prints Go's errors without the package names that -v lists. Those are
# the lines with neither a blank nor a colon.
fail() {
  if [ -t 1 ]; then printf '\n'; fi
  while IFS= read -r line; do
    case $line in *[[:space:]:]*) printf '%s\n' "$line" >&2 ;; esac
  done <"$log"
  echo "controlplane.sh: building $1 failed" >&2
  exit 1
}

# follow TITLE TOTAL shows the progress of the build until it ends. Packages from
# the build cache are not compiled, so they are not counted: with a warm cache the
# build ends at a low count.
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
    # Kubernetes takes its version only from linker flags.
    number=${version#v}
    stamps=(
      -X "k8s.io/component-base/version.gitVersion=$version"
      -X "k8s.io/component-base/version.gitMajor=${number%%.*}"
      -X "k8s.io/component-base/version.gitMinor=$(cut -d . -f 2 <<<"$number")"
    )
  fi

  say "$name $version: loading packages (the first run downloads their modules)"
  total=$(go list -deps "$package" 2>"$log" | wc -l) || fail "$name"

  : >"$log"
  # Close descriptor 9, the lock, so that a helper process that Go leaves running
  # does not hold it.
  go build -v -buildvcs=false -ldflags "-s -w ${stamps[*]-}" \
    -o "$bin/$name.new.$$" "$package" >"$log" 2>&1 9>&- &
  build_pid=$!
  follow "$name $version" "$((total))"
  wait "$build_pid" || fail "$name"
  build_pid=

  # Remove the version file first and write it last: a binary without a version file
  # is built again, but a version file without its binary would suggest that it
  # exists.
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
  echo "using $(listed) in $bin without changes"
  exit 0
fi
if all_current; then
  echo "$(listed) in $bin: up to date"
  exit 0
fi

mkdir -p "$bin"
bin=$(cd "$bin" && pwd)
# One build at a time. Without flock, two builds do the work twice and the later one
# wins: each builds to its own name and moves the result into place.
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
