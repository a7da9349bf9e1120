#!/usr/bin/env bash
# Copyright The Lanyard Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Writes a container image without a container engine or a registry:
#
#   hack/archive.sh NAME:TAG OUTPUT ENTRYPOINT DIRECTORY...
#
# ENTRYPOINT is the command, with its words separated by blanks. Each directory becomes a
# layer, in the given order. OUTPUT has the format of docker save, which docker, podman,
# kind and containerd can read. The image is for this machine's architecture. Its process
# runs as user and group 65532, as the Dockerfile's does.
set -euo pipefail

if [ $# -lt 4 ]; then
  sed -n 's/^#   //p' "$0" >&2
  exit 2
fi
tag=$1 output=$2 entrypoint=$3
directories=("${@:4}")
new=$output.new
trap 'rm -rf "$new"' EXIT

# macOS before version 15 has only the second program.
sha256() {
  if command -v sha256sum >/dev/null; then sha256sum "$1"; else shasum -a 256 "$1"; fi | cut -d ' ' -f 1
}

# quoted WORD... prints a JSON list.
quoted() {
  local list
  list=$(printf '"%s",' "$@")
  echo "[${list%,}]"
}

# The umask of the build must not decide who may read the files. No file is setuid.
chmod -R u+rwX,go+rX,go-w,ug-s "${directories[@]}"
rm -rf "$new"
mkdir "$new"
layers=() ids=()
for directory in "${directories[@]}"; do
  layer=layer-${#layers[@]}.tar
  tar -cf "$new/$layer" -C "$directory" .
  layers+=("$layer")
  ids+=("sha256:$(sha256 "$new/$layer")")
done
# shellcheck disable=SC2086 # several words
cat >"$new/config.json" <<END
{"architecture": "$(go env GOARCH)", "os": "linux",
 "config": {"User": "65532:65532", "Entrypoint": $(quoted $entrypoint)},
 "rootfs": {"type": "layers", "diff_ids": $(quoted "${ids[@]}")}}
END
cat >"$new/manifest.json" <<END
[{"Config": "config.json", "RepoTags": $(quoted "$tag"), "Layers": $(quoted "${layers[@]}")}]
END
# Whoever reads the archive at the same time must see the old one or the new one.
tar -cf "$new/image" -C "$new" manifest.json config.json "${layers[@]}"
mv "$new/image" "$output"
