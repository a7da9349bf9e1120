#!/usr/bin/env bash
# Copyright The Lanyard Authors.
# SPDX-License-Identifier: Apache-2.0
#
# The functions of offline.sh that make images: the node image of kind, and the base
# image of the Dockerfile. offline.sh reads this file and sets $work and $root.

bin=$root/bin/controlplane
suite=bookworm # its systemd still supports control groups of version 1

# kubernetes_version prints the version of the programs in hack/tools/kubernetes.
kubernetes_version() {
  env -C hack/tools/kubernetes go list -m -f '{{.Version}}' k8s.io/kubernetes
}

# node_image prints the name of the image, which changes with everything that the image
# is made from. So a machine makes the image once for all directories and runs.
node_image() {
  local key
  key=$(cat hack/kind/images.sh hack/kind/node/* hack/controlplane.sh hack/tools/{coredns,etcd,kind,kubernetes}/go.{mod,sum} \
    hack/tools/coredns/main.go test/e2e/pause/main.go | sha256sum | cut -c 1-12)
  echo "lanyard-kind-node:$(kubernetes_version)-$key"
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

# image makes the node image, if the engine does not have it: what kind's
# images/base/Dockerfile and "kind build node-image" do, from other sources.
image() {
  local tree=$work/node name old
  docker info >/dev/null 2>&1 || fail "the engine is not up"
  name=$(node_image)
  if docker image inspect "$name" >/dev/null 2>&1; then
    echo "$name: up to date"
    return
  fi
  # First what waits for the network, while something else may use the processor.
  debian "$work/debian" systemd,systemd-sysv,containerd,runc,containernetworking-plugins,iptables,nftables,iproute2,conntrack,ethtool,mount,kmod,procps,jq,hostname,ca-certificates
  hack/controlplane.sh etcd kube-apiserver kube-controller-manager kube-scheduler kube-proxy kubelet kubectl kubeadm
  env -C test/e2e go build -o "$work/" ./pause
  build_coredns
  rm -rf "$tree"
  cp -a "$work/debian" "$tree"
  add_kind "$tree"
  add_kubernetes "$tree"
  adapt "$tree"
  make_cluster_images
  preload "$tree"
  pack_tree "$tree" | import "$name" 'ENV container=docker' 'ENTRYPOINT ["/usr/local/bin/entrypoint", "/sbin/init"]'
  # Images of other versions would fill the disk.
  for old in $(docker images --format '{{.Repository}}:{{.Tag}}' lanyard-kind-node); do
    if [ "$old" != "$name" ]; then docker rmi "$old" >/dev/null || true; fi
  done
  docker images "$name"
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
  printf '\nGOGC=400\n' >>"$tree/etc/default/kubelet"
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

# make_cluster_images makes the images that control_plane_images lists. The programs have
# memory enough, so they collect garbage less often than by default.
make_cluster_images() {
  local image name
  for image in $(control_plane_images); do
    name=${image##*/}
    name=${name%:*}
    case $name in
      kube-proxy) kube_proxy_tree "$work/kube-proxy" && pack_tree "$work/kube-proxy" | import "$image" ;;
      coredns) pack "$work/coredns" coredns | import "$image" 'ENTRYPOINT ["/coredns"]' ;;
      pause) pack "$work/pause" pause | import "$image" 'ENTRYPOINT ["/pause"]' ;;
      # Manifests call etcd, kube-apiserver ... without a path.
      *) pack "$bin/$name" "usr/local/bin/$name" | import "$image" 'ENV GOGC=400' ;;
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
