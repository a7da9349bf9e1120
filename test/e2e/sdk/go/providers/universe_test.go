// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package providers

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"cloud.google.com/go/auth/credentials"
)

// Google's SDK accepts the credential file for another universe, and asks the servers of
// that universe.
func TestGoogleInAnotherUniverse(t *testing.T) {
	pod := injected(t, "configured/google-in-another-universe")
	directory := t.TempDir()
	if err := os.MkdirAll(filepath.Join(directory, "gcp"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(directory, "gcp", "token"), []byte(token), 0o600); err != nil {
		t.Fatal(err)
	}
	file := strings.ReplaceAll(pod.Metadata.Annotations["lanyard.dev/gcp-credentials"], mountPath, directory)
	found, err := credentials.NewCredentialsFromJSON(credentials.ExternalAccount, []byte(file), &credentials.DetectOptions{
		Scopes: []string{"https://www.googleapis.com/auth/cloud-platform"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := found.UniverseDomain(t.Context()); err != nil || got != "apis.example.goog" {
		t.Errorf("got universe %q and error %v", got, err)
	}
	// No server has this name, so the error contains it.
	if _, err := found.Token(t.Context()); err == nil || !strings.Contains(err.Error(), "sts.apis.example.goog") {
		t.Errorf("got error %v, want one about the token server of the universe", err)
	}
}
