// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

const (
	// assetsEnv is envtest's variable for the directory of the binaries.
	assetsEnv = "KUBEBUILDER_ASSETS"
	// productModule is the module whose go.mod marks the repository's root.
	productModule = "github.com/lanyard-dev/lanyard"
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
			return "", fmt.Errorf("find the control plane's binaries: %w; run hack/controlplane.sh to build them", err)
		}
	}
	return dir, nil
}

// RepositoryRoot returns the nearest directory at or above the working
// directory that holds the product's go.mod. All other modules of the
// repository are below it.
func RepositoryRoot() (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find the repository: %w", err)
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		found, err := declaresModule(filepath.Join(dir, "go.mod"), productModule)
		if err != nil {
			return "", fmt.Errorf("find the repository: %w", err)
		}
		if found {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("find the repository: no go.mod of %s at or above %s", productModule, start)
		}
	}
}

// declaresModule reports whether path is the go.mod of the module. It reports
// false if the file does not exist.
func declaresModule(path, module string) (bool, error) {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		if name, ok := strings.CutPrefix(lines.Text(), "module "); ok {
			return strings.TrimSpace(name) == module, nil
		}
	}
	return false, lines.Err()
}
