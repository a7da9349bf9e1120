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
#
# For example:
#
#   hack/kind/offline.sh up && hack/kind/offline.sh image
#   hack/kind/quickstart.sh --build      needs the network, so it is not under "run"
#   hack/kind/offline.sh run make quickstart
#   hack/kind/offline.sh run make quickstart-delete
#   hack/kind/offline.sh down
#
# It needs root, Debian 12 or later, and these packages: docker.io containerd runc
# iptables iproute2 debootstrap jq. The engine runs in a network namespace that leads
# nowhere, with all files in $KIND_OFFLINE, /var/tmp/lanyard-kind by default. Nothing
# is left after "down" but that directory.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$root"

work=${KIND_OFFLINE:-/var/tmp/lanyard-kind}
bin=$root/bin/controlplane
netns=lanyard-kind
dns=192.0.2.53 # of a range for documentation (RFC 5737)
suite=bookworm # its systemd still supports control groups of version 1

export DOCKER_HOST=unix://$work/docker.sock
# The same flags as in the Makefile, to share the build cache.
export CGO_ENABLED=0 GOFLAGS="-trimpath $(go env GOFLAGS)"

usage() {
  sed -n '/^# For example/q; s/^#   //p' "$0" >&2
  exit 2
}

fail() {
  echo "offline.sh: $*" >&2
  exit 1
}

# wait_for WHAT COMMAND... tries the command for 20 seconds.
wait_for() {
  for _ in $(seq 100); do
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
  local runtime=()
  check
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
  # kind mounts /lib/modules, so Docker creates it. "down" removes it again.
  if [ ! -e /lib/modules ]; then touch "$work/created-lib-modules"; fi
  nsenter --net="/run/netns/$netns" setsid dockerd --host "$DOCKER_HOST" --data-root "$work/docker" --exec-root "$work/run" \
    --pidfile "$work/dockerd.pid" --storage-driver overlay2 --dns "$dns" "${runtime[@]}" >"$work/dockerd.log" 2>&1 &
  wait_for dockerd docker info
  echo "Docker is ready at DOCKER_HOST=$DOCKER_HOST"
}

check() {
  local program missing=()
  [ "$EUID" -eq 0 ] || fail "needs root"
  [ ! -e "/run/netns/$netns" ] || fail "it is up already; stop it with: hack/kind/offline.sh down"
  for program in dockerd:docker.io containerd runc iptables ip:iproute2 debootstrap jq; do
    command -v "${program%:*}" >/dev/null || missing+=("${program#*:}")
  done
  [ ${#missing[@]} -eq 0 ] || fail "missing packages: apt-get install --no-install-recommends ${missing[*]}"
}

# has_sys_resource reports whether root has CAP_SYS_RESOURCE, which is bit 24.
has_sys_resource() {
  local capabilities
  capabilities=$(awk '/^CapBnd/ {print $2}' /proc/self/status)
  [ $((0x$capabilities >> 24 & 1)) -eq 1 ]
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
  echo $! >"$work/dns.pid"
}

down() {
  local name pid
  for name in dockerd dns; do
    pid=$(cat "$work/$name.pid" 2>/dev/null) || continue
    kill "$pid" 2>/dev/null || true
    # Not "wait": they are not children of this shell.
    wait_for_end "$pid"
    rm -f "$work/$name.pid"
  done
  umount "$work"/run/netns/* 2>/dev/null || true
  if [ -e "/run/netns/$netns" ]; then ip netns delete "$netns"; fi
  # Empty control groups that containers leave.
  find /sys/fs/cgroup -depth -type d -path '/sys/fs/cgroup/*/docker*' -exec rmdir {} + 2>/dev/null || true
  if [ -e "$work/created-lib-modules" ]; then rmdir /lib/modules && rm "$work/created-lib-modules"; fi
}

wait_for_end() {
  for _ in $(seq 150); do
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

# -- Programs --

build_coredns() {
  env -C hack/tools/coredns go build -ldflags='-s -w' -o "$work/" github.com/coredns/coredns
}

# kubernetes_version prints the version of the programs in hack/tools/kubernetes.
kubernetes_version() {
  env -C hack/tools/kubernetes go list -m -f '{{.Version}}' k8s.io/kubernetes
}

node_image() {
  echo "lanyard-kind-node:$(kubernetes_version)"
}

# import TAG CHANGE... makes an image of the tar archive on standard input. Its
# process is root's: control plane pods read files that only root may read.
import() {
  local change changes=()
  for change in "${@:2}"; do changes+=(--change "$change"); done
  docker import "${changes[@]}" - "$1" >/dev/null
}

# pack FILE PATH prints a tar archive with the file at the path.
pack() {
  tar --create --directory "$(dirname "$1")" --owner 0 --group 0 --transform "s|^.*$|$2|" "$(basename "$1")"
}

# pack_tree DIRECTORY prints a tar archive of its contents.
pack_tree() {
  tar --create --directory "$1" --numeric-owner .
}

# debian DIRECTORY PACKAGES installs Debian with these packages, once.
debian() {
  if [ -e "$1.done" ]; then return; fi
  rm -rf "$1"
  debootstrap --variant=minbase --include="$2" "$suite" "$1" "$(mirror)" >"$1.log" || fail "debootstrap failed; its log is $1.log"
  rm -rf "$1"/var/cache/apt/archives/*.deb "$1"/var/lib/apt/lists/* "$1"/usr/share/{doc,man,locale}
  touch "$1.done"
}

# mirror prints the Debian mirror of this machine's apt, or $DEBIAN_MIRROR if set.
mirror() {
  if [ -n "${DEBIAN_MIRROR-}" ]; then
    echo "$DEBIAN_MIRROR"
    return
  fi
  apt-get --no-release-info indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Component: main' \
    "Release: $(. /etc/os-release && echo "$VERSION_CODENAME")" | sed -n 1p
}

# -- The images --

# image makes the node image: what kind's images/base/Dockerfile and "kind build
# node-image" do, from other sources.
image() {
  local tree=$work/node
  docker info >/dev/null 2>&1 || fail "the engine is not up"
  hack/controlplane.sh etcd kube-apiserver kube-controller-manager kube-scheduler kube-proxy kubelet kubectl kubeadm
  hack/images.sh pause
  build_coredns
  debian "$work/debian" systemd,systemd-sysv,containerd,runc,containernetworking-plugins,iptables,nftables,iproute2,conntrack,ethtool,mount,kmod,procps,jq,hostname,ca-certificates
  rm -rf "$tree"
  cp -a "$work/debian" "$tree"
  add_kind "$tree"
  add_kubernetes "$tree"
  adapt "$tree"
  make_cluster_images
  preload "$tree"
  pack_tree "$tree" | import "$(node_image)" 'ENV container=docker' 'ENTRYPOINT ["/usr/local/bin/entrypoint", "/sbin/init"]'
  docker images "$(node_image)"
}

# add_kind adds the files of kind's base image, and selects its services.
add_kind() {
  local tree=$1 files units=$1/lib/systemd/system name
  files=$(cd hack/tools/kind && go mod download sigs.k8s.io/kind && go list -m -f '{{.Dir}}' sigs.k8s.io/kind)/images/base/files
  cp -r --no-preserve=mode,ownership "$files/." "$tree/"
  rm -rf "$tree/LICENSES"
  chmod 0755 "$tree"/usr/local/bin/* "$tree"/kind "$tree"/kind/bin "$tree"/kind/bin/*
  rm -f "$units"/sysinit.target.wants/systemd-tmpfiles-setup.service "$units"/multi-user.target.wants/* \
    "$units"/local-fs.target.wants/* "$units"/sockets.target.wants/*{udev,initctl}* "$units"/basic.target.wants/* \
    "$tree"/etc/systemd/system/*.wants/*
  echo ReadKMsg=no >>"$tree/etc/systemd/journald.conf"
  systemctl --quiet --root="$tree" enable kubelet.service containerd.service undo-mount-hacks.service
  systemctl --quiet --root="$tree" mask systemd-binfmt.service
  # Debian's paths, where kind expects others.
  mkdir -p "$tree/opt/cni"
  ln -s /usr/lib/cni "$tree/opt/cni/bin"
  for name in containerd ctr containerd-shim-runc-v2; do ln -s "/usr/bin/$name" "$tree/usr/local/bin/"; done
  ctr oci spec | jq '.hooks.createContainer += [{path: "/kind/bin/mount-product-files.sh"}] | del(.process.rlimits)' \
    >"$tree/etc/containerd/cri-base.json"
}

# add_kubernetes adds the programs of the node, and what "kind create cluster" reads.
add_kubernetes() {
  local tree=$1
  mkdir -p "$tree"/etc/kubernetes/manifests "$tree"/kind/manifests
  cp "$bin"/{kubeadm,kubelet,kubectl} "$tree/usr/bin/"
  printf %s "$(kubernetes_version)" >"$tree/kind/version"
  cp hack/kind/node/default-{cni,storage}.yaml "$tree/kind/manifests/"
  # Instead of kindnet: containerd writes the network's configuration when the kubelet
  # tells it the node's range of pod addresses. This is for clusters of one node.
  cp hack/kind/node/cni.conflist "$tree/kind/"
  printf '\n[plugins."io.containerd.grpc.v1.cri".cni]\n  conf_template = "/kind/cni.conflist"\n' >>"$tree/etc/containerd/config.toml"
}

# adapt changes what does not work on every machine: control groups of version 1, root
# without CAP_SYS_RESOURCE, and kernel parameters, which are the whole machine's.
adapt() {
  local tree=$1
  sed -i 's/^KUBELET_EXTRA_ARGS=.*/& --fail-cgroupv1=false/' "$tree/etc/default/kubelet"
  sed -i 's/restrict_oom_score_adj = false/restrict_oom_score_adj = true/' "$tree/etc/containerd/config.toml"
  rm -f "$tree"/usr/lib/sysctl.d/* "$tree"/etc/sysctl.conf "$tree"/etc/sysctl.d/99-sysctl.conf
  install -m 0755 hack/kind/node/shield-kernel.sh "$tree/kind/bin/"
  install -m 0644 hack/kind/node/shield-kernel.service "$tree/etc/systemd/system/"
  systemctl --quiet --root="$tree" enable shield-kernel.service
}

# control_plane_images prints the images that kubeadm uses, with the pause image of
# kind's containerd configuration.
control_plane_images() {
  "$bin/kubeadm" config images list --kubernetes-version "$(kubernetes_version)" | grep -v /pause:
  sed -n 's/.*sandbox_image = "\(.*\)"/\1/p' "$work/node/etc/containerd/config.toml"
}

# make_cluster_images makes the images that control_plane_images lists.
make_cluster_images() {
  local image name
  for image in $(control_plane_images); do
    name=${image##*/}
    name=${name%:*}
    case $name in
      kube-proxy) kube_proxy_tree "$work/kube-proxy" && pack_tree "$work/kube-proxy" | import "$image" ;;
      coredns) pack "$work/coredns" coredns | import "$image" 'ENTRYPOINT ["/coredns"]' ;;
      pause) pack bin/pause pause | import "$image" 'ENTRYPOINT ["/pause"]' ;;
      # Manifests call etcd, kube-apiserver ... without a path.
      *) pack "$bin/$name" "usr/local/bin/$name" | import "$image" ;;
    esac
  done
}

# kube_proxy_tree DIRECTORY fills it with kube-proxy and Debian's iptables.
kube_proxy_tree() {
  local debs=$work/debs deb name
  rm -rf "$1" "$debs"
  mkdir -p "$debs" "$1"/usr/{bin,sbin,lib,lib64,local/bin} "$1"/{run,tmp}
  ln -s usr/bin usr/sbin usr/lib usr/lib64 "$1/"
  (cd "$debs" && apt-get download -qq libc6 iptables libip4tc2 libip6tc2 libxtables12 libmnl0 libnftnl11 \
    libnfnetlink0 libnetfilter-conntrack3)
  for deb in "$debs"/*.deb; do
    dpkg-deb --fsys-tarfile "$deb" | tar --extract --directory "$1" --exclude ./usr/share
  done
  # What update-alternatives would do.
  for name in ip{,6}tables{,-save,-restore}; do ln -sf xtables-nft-multi "$1/usr/sbin/$name"; done
  cp "$bin/kube-proxy" "$1/usr/local/bin/"
  chroot "$1" /usr/sbin/iptables --version >/dev/null
}

# preload TREE writes the images into the tree's containerd, with a containerd of this
# machine. As in kind's images, the node unpacks them when it uses them first.
preload() {
  local tree=$1 directory=$work/preload image pid
  local ctr=(ctr --address "$directory/socket" --namespace k8s.io)
  rm -rf "$tree/var/lib/containerd" "$directory"
  mkdir -p "$tree/var/lib/containerd" "$directory"
  cat >"$directory/config.toml" <<END
version = 2
root = "$tree/var/lib/containerd"
state = "$directory/state"
disabled_plugins = ["io.containerd.grpc.v1.cri", "io.containerd.internal.v1.opt"]
[grpc]
  address = "$directory/socket"
[ttrpc]
  address = "$directory/socket.ttrpc"
END
  containerd --config "$directory/config.toml" >"$work/preload.log" 2>&1 &
  pid=$!
  # shellcheck disable=SC2064 # the process ID of now
  trap "kill $pid 2>/dev/null || true" EXIT
  wait_for preload "${ctr[@]}" version
  for image in $(control_plane_images); do
    docker save "$image" | "${ctr[@]}" images import --all-platforms --no-unpack --digests - >/dev/null
  done
  kill "$pid"
  wait "$pid" || true
  trap - EXIT
}

# golang makes the base image of the Dockerfile with this machine's Go, and with a
# directory of modules instead of a proxy, so that no step of the build needs the
# network. go.sum is checked all the same.
golang() {
  local tree=$work/golang
  docker info >/dev/null 2>&1 || fail "the engine is not up"
  debian "$tree" git,ca-certificates
  rm -rf "$tree"/usr/local/go "$tree"/modules
  GOMODCACHE=$work/modules go mod download
  cp -r "$(go env GOROOT)" "$tree/usr/local/go"
  cp -r "$work/modules/cache/download" "$tree/modules"
  pack_tree "$tree" | import golang:1.26 \
    'ENV PATH=/go/bin:/usr/local/go/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin' \
    'ENV GOPATH=/go GOTOOLCHAIN=local GOPROXY=file:///modules GOSUMDB=off'
  docker images golang:1.26
}

case ${1-} in
  up | image | golang | down) "$1" ;;
  run) run "${@:2}" ;;
  *) usage ;;
esac
