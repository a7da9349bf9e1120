#!/usr/bin/env bash
# Copyright The Lanyard Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Shows Lanyard on a kind cluster:
#
#   hack/kind/quickstart.sh              creates the cluster or uses it again, builds and
#                                        installs Lanyard, creates the pods of examples/
#                                        and reports what they got
#   hack/kind/quickstart.sh --build      builds everything and runs nothing
#   hack/kind/quickstart.sh --uninstall  removes all of that from the cluster
#   hack/kind/quickstart.sh --delete     deletes the cluster
#
# With MODE=policies, Lanyard is the policies of deploy/policies, without a webhook. They
# need Kubernetes 1.36 or later. Each mode removes the other one from the cluster.
#
# It needs Go, make, and Docker or Podman. kind, Helm and kubectl are built from Go
# modules. $KIND_IMAGE overrides kind's node image, and $KIND_CONFIG names a configuration
# of the cluster. $KIND_EXPERIMENTAL_PROVIDER selects docker or podman.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

cluster=lanyard-quickstart
directory=bin/quickstart
kubeconfig=$directory/kubeconfig

mode=${MODE:-webhook}
programs=(lanyard-webhook whoami) # with an image
if [ "$mode" = policies ]; then programs=(whoami); fi
kubectl=kubectl
command -v kubectl >/dev/null || kubectl=bin/controlplane/kubectl

# The same flags as in the Makefile, to share the build cache.
export CGO_ENABLED=0 GOFLAGS="-trimpath -ldflags=-s $(go env GOFLAGS)"

main() {
  case $mode in
    webhook | policies) ;;
    *) echo "quickstart.sh: got MODE=$mode, want webhook or policies" >&2; exit 2 ;;
  esac
  case ${1-} in
    "") quickstart ;;
    --build) build_all ;;
    --uninstall) uninstall ;;
    --delete) delete ;;
    *) echo "quickstart.sh: got $1, want no argument, --build, --uninstall or --delete" >&2; exit 2 ;;
  esac
}

quickstart() {
  local flags=()
  use_engine
  build_all
  create_cluster
  step "load the images into the cluster" load_images
  if [ "$mode" = policies ]; then
    step "apply deploy/policies" install_policies
    flags=(--policies)
  else
    step "install charts/lanyard with Helm" install_chart
  fi
  printf '\n'
  bin/demo --kubeconfig "$kubeconfig" ${flags[@]+"${flags[@]}"} --image "lanyard-whoami:$(version whoami)"
  what_next
}

# use_engine selects the container engine for kind, or explains what is missing.
use_engine() {
  local engine
  engine=$(hack/kind/engine.sh)
  # kind's default is docker. It prints a warning if the variable is set.
  if [ "$engine" != docker ]; then export KIND_EXPERIMENTAL_PROVIDER=$engine; fi
}

# step WHAT COMMAND... runs a command and prints how long it took. It shows the
# command's output only if the command fails.
step() {
  local start=$SECONDS log=$directory/step.log
  printf '• %s ... ' "$1"
  # Not a function in an if: that would ignore errors within it.
  set +e
  (set -e; "${@:2}") >"$log" 2>&1
  local status=$?
  set -e
  if [ "$status" -eq 0 ]; then
    printf 'done in %d s\n' $((SECONDS - start))
    return
  fi
  printf 'failed\n\n'
  cat "$log"
  exit "$status"
}

build_all() {
  mkdir -p "$directory"
  echo "Building from source. The first run downloads Go modules and takes some minutes."
  step "build kind" make --no-print-directory bin/kind
  if ! command -v kubectl >/dev/null; then step "build kubectl" build_kubectl; fi
  step "build the command line tool lanyard" go build -o bin/lanyard ./cmd/lanyard
  if [ "$mode" = webhook ]; then
    step "build Helm" env -C test/charts go build -o ../../bin/helm helm.sh/helm/v4/cmd/helm
    step "build the image of the webhook" build_image lanyard-webhook ./cmd/webhook
  fi
  step "build the image of a test program" build_image whoami ./test/demo/whoami
  step "build the report" go build -o bin/demo ./test/demo
}

# build_kubectl builds it next to lanyard, so that both are in one directory of $PATH.
build_kubectl() {
  hack/controlplane.sh kubectl
  ln -sf "${KUBEBUILDER_ASSETS:-$PWD/bin/controlplane}/kubectl" bin/kubectl
}

# build_image PROGRAM PACKAGE builds a program for Linux, whatever this machine runs,
# and an image like the last stage of the Dockerfile. It needs no registry.
build_image() {
  GOOS=linux go build -o "$directory/$1-image/$1" "$2"
  hack/archive.sh "$(name "$1"):$(version "$1")" "$directory/$1.tar" "/$1" "$directory/$1-image"
}

# name PROGRAM prints the name of its image.
name() {
  echo "lanyard-${1#lanyard-}"
}

# version PROGRAM prints a tag that changes with the program, so that a changed
# webhook is rolled out.
version() {
  git hash-object "$directory/$1-image/$1" | cut -c 1-12
}

# create_cluster shows kind's own output: the download of the node image can take
# minutes.
create_cluster() {
  local clusters
  clusters=$(bin/kind get clusters --quiet)
  if ! grep -qx "$cluster" <<<"$clusters"; then
    bin/kind create cluster --name "$cluster" --kubeconfig "$kubeconfig" --wait 15m \
      ${KIND_IMAGE:+--image "$KIND_IMAGE"} ${KIND_CONFIG:+--config "$KIND_CONFIG"}
  fi
  # Again for an existing cluster, because "make clean" removes the file.
  step "use the kind cluster $cluster" bin/kind export kubeconfig --name "$cluster" --kubeconfig "$kubeconfig"
}

load_images() {
  local program
  for program in "${programs[@]}"; do
    bin/kind load image-archive "$directory/$program.tar" --name "$cluster"
  done
}

install_chart() {
  delete_policies
  bin/helm upgrade --install lanyard charts/lanyard --kubeconfig "$kubeconfig" \
    --namespace lanyard-system --create-namespace --wait --timeout 15m \
    --set image.tag="$(version lanyard-webhook)"
}

install_policies() {
  uninstall_chart
  "$kubectl" --kubeconfig "$kubeconfig" apply -k deploy/policies
}

delete_policies() {
  # Older servers do not know all of their kinds.
  "$kubectl" --kubeconfig "$kubeconfig" delete -k deploy/policies --ignore-not-found || true
}

uninstall_chart() {
  if "$kubectl" --kubeconfig "$kubeconfig" get namespace lanyard-system >/dev/null 2>&1; then
    bin/helm uninstall lanyard --kubeconfig "$kubeconfig" --namespace lanyard-system --ignore-not-found --wait
  fi
}

uninstall() {
  uninstall_chart
  delete_policies
  "$kubectl" --kubeconfig "$kubeconfig" delete namespace lanyard-system lanyard-demo --ignore-not-found
}

what_next() {
  cat <<END

The cluster is still running. What to try next:

  export KUBECONFIG=\$PWD/$kubeconfig PATH=\$PWD/bin:\$PATH

  # See the installation, the pods of examples/, and why one of them has credentials.
  lanyard check
  kubectl get pods --namespace lanyard-demo
  lanyard explain pod aws --namespace lanyard-demo

  # Annotate a ServiceAccount. Then run a pod that prints its variables and files.
  kubectl annotate serviceaccount none --namespace lanyard-demo lanyard.dev/audience=my-service
  kubectl run mine --namespace lanyard-demo --image=lanyard-whoami:$(version whoami) --restart=Never \\
    --overrides='{"spec":{"serviceAccountName":"none"}}'
  kubectl wait pod mine --namespace lanyard-demo --for=jsonpath='{.status.phase}'=Succeeded
  kubectl logs mine --namespace lanyard-demo

  # Get a real credential, from Google Cloud, which needs no public issuer:
  # docs/clouds/gcp.md. Upload the public keys of the cluster.
  # Change the code, and install it in the same cluster: make quickstart
  # Delete the cluster: make quickstart-delete
END
}

delete() {
  use_engine
  mkdir -p "$directory"
  make --no-print-directory -s bin/kind
  bin/kind delete cluster --name "$cluster" --kubeconfig "$kubeconfig"
  rm -rf "$directory"
}

main "$@"
