// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// The other suites test what they rely on: the rights of users, the ServiceAccount plugin, and
// that Stop succeeds.
func TestTheKubeconfigIsPrivateAndHasAdministratorRights(t *testing.T) {
	c, err := Start(t.Context(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(c.dir); !os.IsNotExist(err) {
			t.Errorf("after Stop: stat the directory: got error %v, want it not to exist", err)
		}
		wantNoProcesses(t)
	})
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := c.Kubeconfig(path); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := info.Mode().Perm(), os.FileMode(0o600); got != want {
		t.Errorf("got mode %v, want %v", got, want)
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().Secrets(metav1.NamespaceAll).List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Errorf("list all Secrets as the administrator: %v", err)
	}
}

func TestStartFailureLeavesNothing(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	_, err := Start(t.Context(), Options{APIServerFlags: map[string]string{"no-such-flag": "true"}})
	if err == nil {
		t.Fatal("got no error, want one about the unknown flag")
	}
	if want := "unknown flag: --no-such-flag"; !strings.Contains(err.Error(), want) {
		t.Errorf("got error %q, want one with %q", err, want)
	}
	wantNoProcesses(t)
	left, err := os.ReadDir(temp)
	if err != nil {
		t.Fatal(err)
	}
	if len(left) != 0 {
		t.Errorf("got %v left in the temporary directory, want nothing", left)
	}
}

// wantNoProcesses checks that all processes that this one has started have ended.
func wantNoProcesses(t *testing.T) {
	t.Helper()
	if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); !errors.Is(err, syscall.ECHILD) {
		t.Errorf("look for child processes: got process %d and error %v, want none", pid, err)
	}
}

func TestStartWithCancelledContext(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Start(ctx, Options{}); err == nil || !strings.Contains(err.Error(), context.Canceled.Error()) {
		t.Errorf("got error %v, want %v", err, context.Canceled)
	}
	left, err := os.ReadDir(temp)
	if err != nil {
		t.Fatal(err)
	}
	if len(left) != 0 {
		t.Errorf("got %v left in the temporary directory, want nothing", left)
	}
}

func TestPolicies(t *testing.T) {
	for version, want := range map[string]bool{
		"v1.29.6": false, "v1.29.15-gke.100": false, "v1.30.0": true, "v1.30.14": true, "v1.36.3": true, "": false,
	} {
		if got := (&ControlPlane{version: version}).Policies(); got != want {
			t.Errorf("%q: got %t, want %t", version, got, want)
		}
	}
}
