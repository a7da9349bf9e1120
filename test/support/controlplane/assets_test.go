// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestAssetsDir(t *testing.T) {
	tests := map[string]struct {
		files   map[string]string // content by path; binaries have none
		workDir string
		env     string // in the test's directory
		want    string // in the test's directory
		wantErr string
	}{
		"the root is found from a directory below it": {
			files:   map[string]string{script: "", "internal/mutate/x": "", "bin/controlplane/etcd": "", "bin/controlplane/kube-apiserver": ""},
			workDir: "internal/mutate",
			want:    "bin/controlplane",
		},
		"another module of the repository is not the root": {
			files: map[string]string{
				script: "", "test/e2e/go.mod": "", "bin/controlplane/etcd": "", "bin/controlplane/kube-apiserver": "",
			},
			workDir: "test/e2e",
			want:    "bin/controlplane",
		},
		"the variable takes precedence over the repository": {
			files:   map[string]string{script: "", "elsewhere/etcd": "", "elsewhere/kube-apiserver": ""},
			workDir: ".",
			env:     "elsewhere",
			want:    "elsewhere",
		},
		"the error for a missing binary says how to build it": {
			files:   map[string]string{script: "", "bin/controlplane/etcd": ""},
			workDir: ".",
			wantErr: "run hack/controlplane.sh",
		},
		"the error outside of the repository names the variable": {
			files:   map[string]string{"go.mod": ""},
			workDir: ".",
			wantErr: "set KUBEBUILDER_ASSETS",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			for path, content := range test.files {
				writeFile(t, filepath.Join(root, path), content)
			}
			t.Chdir(filepath.Join(root, test.workDir))
			t.Setenv(assetsEnv, "")
			if test.env != "" {
				t.Setenv(assetsEnv, filepath.Join(root, test.env))
			}
			got, err := assetsDir()
			if test.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), test.wantErr) {
					t.Fatalf("got %q and error %v, want an error with %q", got, err, test.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if want := filepath.Join(root, test.want); got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
}

func writeFile(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}
