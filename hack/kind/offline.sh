#!/usr/bin/env bash
# Copyright The Lanyard Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Runs kind on a machine that reaches no container registry: with a Docker engine of
# its own, and a node image made of Debian packages and Go modules.
#
#   hack/kind/offline.sh up              starts the engine
#   hack/kind/offline.sh image           makes the node image
#   hack/kind/offline.sh golang          makes golang:1.26, the base of the Dockerfile
#   hack/kind/offline.sh run COMMAND...  runs a command with the engine and the image
#   hack/kind/offline.sh down            stops the engine
#   hack/kind/offline.sh with COMMAND... does all of this for one command
#   hack/kind/offline.sh needed          reports whether the machine has neither an
#                                        engine nor a registry for kind
#
# For example:
#
#   hack/kind/quickstart.sh --build      needs the network, so it is not under "with"
#   hack/kind/offline.sh with make quickstart
#
# It needs root and Debian 12 or later, and installs missing packages. The engine runs in
# a network namespace that leads nowhere, with all files in $KIND_OFFLINE,
# /var/tmp/lanyard-kind by default. Nothing is left after "down" but that directory.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$root"

work=${KIND_OFFLINE:-/var/tmp/lanyard-kind}
netns=lanyard-kind
dns=192.0.2.53 # of a range for documentation (RFC 5737)

# The same flags as in the Makefile, to share the build cache.
export CGO_ENABLED=0 GOFLAGS="-trimpath -ldflags=-s $(go env GOFLAGS)"
. hack/kind/images.sh

# needed tries a small image of the registry that has kind's node images. $KIND_IMAGE is
# an image that the engine has already.
needed() {
  local engine
  engine=$(hack/kind/engine.sh 2>/dev/null) || return 0
  if [ -n "${KIND_IMAGE-}" ]; then return 1; fi
  ! timeout 120 "$engine" pull --quiet busybox >/dev/null 2>&1
}

usage() {
  sed -n '/^# For example/q; s/^#   //p' "$0" >&2
  exit 2
}

fail() {
  echo "offline.sh: $*" >&2
  exit 1
}

# wait_for WHAT COMMAND... tries the command for three minutes: other builds may take the
# processor.
wait_for() {
  for _ in $(seq 900); do
    if "${@:2}" >/dev/null 2>&1; then return; fi
    sleep 0.2
  done
  fail "$1 did not start; its log is in $work"
}

# -- The engine --

# inside COMMAND... runs a command in the network namespace. "ip netns exec" would
# mount /sys again, without the control groups that Docker needs.
inside() {
  nsenter --net="/run/netns/$netns" "$@"
}

up() {
  local runtime=() left
  check
  # What a machine leaves that was switched off.
  down
  mkdir -p "$work"
  build_coredns
  ip netns add "$netns"
  inside ip link set lo up
  inside ip address add "$dns/32" dev lo
  # By default, the kernel sends one "unreachable" per second. Other connections that
  # lead nowhere would wait for their timeout.
  inside sh -c 'echo 0 >/proc/sys/net/ipv4/icmp_ratelimit'
  start_dns
  if ! has_sys_resource; then
    runtime=(--add-runtime "limited=$root/hack/kind/runc-without-sys-resource.sh" --default-runtime limited)
  fi
  prefer_containers
  # kind mounts /lib/modules, so Docker creates it. "down" removes it again.
  if [ ! -e /lib/modules ]; then touch "$work/created-lib-modules"; fi
  nsenter --net="/run/netns/$netns" setsid dockerd --host "$DOCKER_HOST" --data-root "$work/docker" --exec-root "$work/run" \
    --pidfile "$work/dockerd.pid" --storage-driver overlay2 --dns "$dns" "${runtime[@]}" >"$work/dockerd.log" 2>&1 &
  wait_for dockerd docker info
  left=$(docker ps --all --quiet)
  # shellcheck disable=SC2086 # several IDs
  if [ -n "$left" ]; then docker rm --force $left >/dev/null; fi
  echo "Docker is ready at DOCKER_HOST=$DOCKER_HOST"
}

check() {
  [ "$EUID" -eq 0 ] || fail "needs root"
  ! docker info >/dev/null 2>&1 || fail "it is up already; stop it with: hack/kind/offline.sh down"
  hack/packages.sh
}

# has_sys_resource reports whether root has CAP_SYS_RESOURCE, which is bit 24.
has_sys_resource() {
  local capabilities
  capabilities=$(awk '/^CapBnd/ {print $2}' /proc/self/status)
  [ $((0x$capabilities >> 24 & 1)) -eq 1 ]
}

# prefer_containers gives the containers a larger share of the CPU than other processes have: a
# cluster mostly waits, and a build at the same time should not delay it. "nice" has no effect
# between control groups.
prefer_containers() {
  local file=/sys/fs/cgroup/cpu/docker/cpu.shares weight=8192
  if [ ! -d /sys/fs/cgroup/cpu ]; then file=/sys/fs/cgroup/docker/cpu.weight weight=800; fi
  mkdir -p "$(dirname "$file")"
  if [ -w "$file" ]; then echo "$weight" >"$file"; fi
}

# start_dns starts a DNS server that knows no name. Without it, Docker's own server
# keeps each look-up waiting for 20 seconds.
start_dns() {
  cat >"$work/Corefile" <<END
.:53 {
  bind $dns
  template ANY ANY {
    rcode NXDOMAIN
  }
}
END
  # Not with "inside": that would leave a shell running.
  nsenter --net="/run/netns/$netns" setsid "$work/coredns" -conf "$work/Corefile" >"$work/dns.log" 2>&1 &
  echo $! >"$work/coredns.pid"
}

down() {
  local name pid
  for name in dockerd coredns; do
    pid=$(cat "$work/$name.pid" 2>/dev/null) || continue
    # After a restart of the machine, it is perhaps the ID of another process.
    if [ "$(cat "/proc/$pid/comm" 2>/dev/null)" = "$name" ]; then
      kill "$pid" 2>/dev/null || true
      # Not "wait": they are not children of this shell.
      wait_for_end "$pid"
    fi
    rm -f "$work/$name.pid"
  done
  umount "$work"/run/netns/* 2>/dev/null || true
  if [ -e "/run/netns/$netns" ]; then ip netns delete "$netns"; fi
  # Empty control groups that containers leave.
  find /sys/fs/cgroup -depth -type d -path '/sys/fs/cgroup/*/docker*' -exec rmdir {} + 2>/dev/null || true
  if [ -e "$work/created-lib-modules" ]; then
    if [ -d /lib/modules ]; then rmdir /lib/modules; fi
    rm "$work/created-lib-modules"
  fi
}

wait_for_end() {
  for _ in $(seq 900); do
    if ! kill -0 "$1" 2>/dev/null; then return; fi
    sleep 0.2
  done
  fail "process $1 does not end"
}

run() {
  [ $# -gt 0 ] || usage
  [ -e "/run/netns/$netns" ] || fail "the engine is not up"
  KIND_IMAGE=${KIND_IMAGE:-$(node_image)} inside "$@"
}

# with COMMAND... ends the engine, however the command ends.
with() {
  [ $# -gt 0 ] || usage
  up
  trap down EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM HUP
  image
  run "$@"
}

build_coredns() {
  env -C hack/tools/coredns go build -ldflags='-s -w' -o "$work/" .
}

command=${1-}
if [ "$command" = needed ]; then needed; exit; fi
export DOCKER_HOST=unix://$work/docker.sock
case $command in
  up | image | golang | down) "$command" ;;
  run | with) "$command" "${@:2}" ;;
  *) usage ;;
esac
