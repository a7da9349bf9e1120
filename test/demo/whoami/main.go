// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Command whoami runs in a pod and prints Lanyard's additions to its container: the
// environment variables of the clouds' SDKs, and who the tokens are for. It never
// prints a token, and does not check its signature.
package main

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
)

const tokens = "/var/run/secrets/lanyard.dev/serviceaccount"

func main() {
	if err := run(os.Stdout, os.Environ(), os.DirFS(tokens)); err != nil {
		fmt.Fprintln(os.Stderr, "whoami:", err)
		os.Exit(1)
	}
}

// run prints the variables and the tokens of a directory.
func run(out io.Writer, environment []string, directory fs.FS) error {
	slices.Sort(environment)
	for _, variable := range environment {
		if given(variable) {
			_, _ = fmt.Fprintln(out, variable)
		}
	}
	found := false
	for _, path := range []string{"aws/token", "azure/token", "gcp/token", "token"} {
		token, err := fs.ReadFile(directory, path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		found = true
		text, err := describe(string(token))
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		_, _ = fmt.Fprintf(out, "token %s: %s\n", path, text)
	}
	if !found {
		_, _ = fmt.Fprintln(out, "no token: the ServiceAccount has no annotation of Lanyard")
	}
	return nil
}

// given reports whether Lanyard sets such a variable.
func given(variable string) bool {
	for _, prefix := range []string{"AWS_", "AZURE_", "CLOUDSDK_", "GOOGLE_", "LANYARD_TOKEN_FILE="} {
		if strings.HasPrefix(variable, prefix) {
			return true
		}
	}
	return false
}

// describe formats the claims of a JSON Web Token.
func describe(token string) (string, error) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return "", fmt.Errorf("got a token with %d parts, want 3", len(parts))
	}
	text, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return "", fmt.Errorf("decode the claims: %w", err)
	}
	var claims struct {
		Subject    string   `json:"sub"`
		Audience   []string `json:"aud"`
		Kubernetes struct {
			Pod struct{ Name string } `json:"pod"`
		} `json:"kubernetes.io"`
	}
	if err := json.Unmarshal(text, &claims); err != nil {
		return "", fmt.Errorf("decode the claims: %w", err)
	}
	return fmt.Sprintf("sub %s, aud %s, pod %s", claims.Subject, strings.Join(claims.Audience, ", "), claims.Kubernetes.Pod.Name), nil
}
