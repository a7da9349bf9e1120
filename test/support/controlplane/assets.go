// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"fmt"
	"os"
	"path/filepath"
)

const (
	// assetsEnv is envtest's variable for the directory of the binaries.
	assetsEnv = "KUBEBUILDER_ASSETS"
	// script builds the binaries. It marks the repository's root.
	script = "hack/controlplane.sh"
)

// assetsDir returns the directory that holds etcd and kube-apiserver.
func assetsDir() (string, error) {
	dir := os.Getenv(assetsEnv)
	if dir == "" {
		root, err := RepositoryRoot()
		if err != nil {
			return "", fmt.Errorf("%w; set %s instead", err, assetsEnv)
		}
		dir = filepath.Join(root, "bin", "controlplane")
	}
	for _, name := range []string{"etcd", "kube-apiserver"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			return "", fmt.Errorf("find the control plane's binaries: %w; run %s to build them", err, script)
		}
	}
	return dir, nil
}

// RepositoryRoot returns the nearest directory at or above the working directory that
// holds the script. All modules of the repository are below it.
func RepositoryRoot() (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find the repository: %w", err)
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, script)); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("find the repository: no %s at or above %s", script, start)
		}
	}
}
