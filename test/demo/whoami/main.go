// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Command whoami runs in a pod and prints Lanyard's additions to its container: the
// environment variables of the clouds' SDKs, and who the tokens are for. It never
// prints a token, and does not check its signature.
package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/lanyard-dev/lanyard/test/demo/claims"
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
	c, err := claims.Read(token)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("sub %s, aud %s, pod %s", c.Subject, strings.Join(c.Audience, ", "), c.Kubernetes.Pod.Name), nil
}
