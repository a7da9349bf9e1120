// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// cniPlugins is where Debian's containernetworking-plugins are.
const cniPlugins = "/usr/lib/cni"

// requirements are files that have to be there, by Debian's package. A name
// without a slash is looked for in PATH.
var requirements = []struct{ file, debianPackage string }{
	{"containerd", "containerd"},
	{"containerd-shim-runc-v2", "containerd"},
	{"ctr", "containerd"},
	{"runc", "runc"},
	{cniPlugins + "/host-local", "containernetworking-plugins"},
	{cniPlugins + "/loopback", "containernetworking-plugins"},
	{cniPlugins + "/ptp", "containernetworking-plugins"},
	{"iptables-restore", "iptables"},
	{"ip", "iproute2"},
}

// checkMachine says what this machine lacks: root, or packages.
func checkMachine() error {
	if os.Geteuid() != 0 {
		return errors.New("got a user without root's rights; a node needs those")
	}
	// A name with a slash is not looked for, only looked at.
	files, packages := missing(func(file string) bool {
		_, err := exec.LookPath(file)
		return err == nil
	})
	if len(files) > 0 {
		return fmt.Errorf("missing %s; on Debian: apt-get install --no-install-recommends %s",
			strings.Join(files, ", "), strings.Join(packages, " "))
	}
	return nil
}

// missing returns the required files that are not there, and the packages that
// they are in.
func missing(there func(file string) bool) (files, packages []string) {
	for _, required := range requirements {
		if there(required.file) {
			continue
		}
		files = append(files, required.file)
		if !slices.Contains(packages, required.debianPackage) {
			packages = append(packages, required.debianPackage)
		}
	}
	return files, packages
}

// binaries is where the things are that were built for the cluster.
type binaries struct {
	// Kubernetes is the directory of etcd and the components of Kubernetes.
	Kubernetes string
	// Pause is the archive of the pause image.
	Pause string
}

// findBinaries looks where the repository's build puts them, beside this
// program: in images, and in controlplane or $KUBEBUILDER_ASSETS.
func findBinaries() (binaries, error) {
	self, err := os.Executable()
	if err != nil {
		return binaries{}, fmt.Errorf("finding this program: %w", err)
	}
	found := binaries{
		Kubernetes: filepath.Join(filepath.Dir(self), "controlplane"),
		Pause:      filepath.Join(filepath.Dir(self), "images", "pause.tar"),
	}
	if dir := os.Getenv("KUBEBUILDER_ASSETS"); dir != "" {
		if found.Kubernetes, err = filepath.Abs(dir); err != nil {
			return binaries{}, err
		}
	}
	if _, err := os.Stat(found.Pause); err != nil {
		return binaries{}, fmt.Errorf("finding the pause image: %w; run \"hack/images.sh pause\" to make it", err)
	}
	for _, name := range []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-proxy", "kube-scheduler", "kubectl", "kubelet"} {
		if _, err := os.Stat(filepath.Join(found.Kubernetes, name)); err != nil {
			return binaries{}, fmt.Errorf("finding the cluster's binaries: %w; run hack/controlplane.sh and hack/node.sh to build them", err)
		}
	}
	return found, nil
}
