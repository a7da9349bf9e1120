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

// cniPlugins is the directory of Debian's package containernetworking-plugins.
const cniPlugins = "/usr/lib/cni"

// requirements are the required files and their Debian packages. A name without
// a slash is looked up in PATH.
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

// checkMachine returns an error if the user is not root or if packages are
// missing.
func checkMachine() error {
	if os.Geteuid() != 0 {
		return errors.New("must run as root")
	}
	// LookPath only checks a name with a slash; it does not search for it.
	files, packages := missing(func(file string) bool {
		_, err := exec.LookPath(file)
		return err == nil
	})
	if len(files) > 0 {
		return fmt.Errorf("missing files: %s; on Debian: apt-get install --no-install-recommends %s",
			strings.Join(files, ", "), strings.Join(packages, " "))
	}
	return nil
}

// missing returns the required files that do not exist, and their packages.
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

// binaries holds the locations of the cluster's binaries.
type binaries struct {
	// Kubernetes is the directory of etcd and the Kubernetes components.
	Kubernetes string
	// Pause is the archive of the pause image.
	Pause string
}

// findBinaries looks in the directories of the repository's build next to this
// program: in images, and in controlplane or $KUBEBUILDER_ASSETS.
func findBinaries() (binaries, error) {
	self, err := os.Executable()
	if err != nil {
		return binaries{}, fmt.Errorf("find this program: %w", err)
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
		return binaries{}, fmt.Errorf("find the pause image: %w; run \"hack/images.sh pause\" to build it", err)
	}
	for _, name := range []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-proxy", "kube-scheduler", "kubectl", "kubelet"} {
		if _, err := os.Stat(filepath.Join(found.Kubernetes, name)); err != nil {
			return binaries{}, fmt.Errorf("find the cluster's binaries: %w; run hack/controlplane.sh and hack/node.sh to build them", err)
		}
	}
	return found, nil
}
