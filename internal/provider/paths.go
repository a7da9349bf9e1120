// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"errors"
	"fmt"
	"path"
	"regexp"
	"strings"
	"unicode"
)

// DefaultTokenMountPath is where the volume is mounted in every container.
const DefaultTokenMountPath = "/var/run/secrets/lanyard.dev/serviceaccount"

// ValidateTokenMountPath returns an error unless value is a path that the API
// accepts for a volume mount, in its shortest form. A line break would add a line to the
// AWS file.
func ValidateTokenMountPath(value string) error {
	if !path.IsAbs(value) || path.Clean(value) != value || value == "/" ||
		strings.Contains(value, ":") || strings.ContainsFunc(value, unicode.IsControl) {
		const want = "an absolute path such as " + DefaultTokenMountPath + ", without a trailing slash, a colon and control characters"
		return fmt.Errorf("got %q, want %s", value, want)
	}
	return nil
}

// TokenPathParameter is the parameter that asks for a copy of the token at a path of
// its own, for programs that hard-code one.
const TokenPathParameter = "token-path"

// apiTokenPath is where the API server mounts its own token. If something else is
// mounted there, it does not.
const apiTokenPath = "/var/run/secrets/kubernetes.io/serviceaccount"

// plainPath matches paths that are the same in JSON, in a variable and on Windows.
var plainPath = regexp.MustCompile(`^(/[A-Za-z0-9._-]+){2,}$`)

// tokenPath returns the parameter for a copy of the token.
func tokenPath() Parameter {
	return Parameter{Name: TokenPathParameter, MaxBytes: 256, Parse: parseTokenPath}
}

// parseTokenPath accepts the absolute path of a file in a directory that can be
// mounted.
func parseTokenPath(value string) (string, error) {
	switch {
	case !plainPath.MatchString(value) || path.Clean(value) != value:
		return "", errors.New("must be the absolute path of a file in a directory, such as /var/run/secrets/example/token, of a-z, A-Z, 0-9, \".\", \"_\" and \"-\" between single slashes")
	case PathsOverlap(path.Dir(value), apiTokenPath):
		return "", errors.New("must not be in a directory at, above or below " + apiTokenPath + ", where the token for the API server is")
	}
	return value, nil
}

// CopyPath returns where a copy of the token is asked for, or "".
func (i *Identity) CopyPath() string {
	if i.Definition.CopyVolume == "" { // a custom provider may use the name for something else
		return ""
	}
	return i.Values[TokenPathParameter]
}

// PathsOverlap reports whether two clean directories are the same, or one is below
// the other.
func PathsOverlap(a, b string) bool { return IsAtOrBelow(a, b) || IsAtOrBelow(b, a) }

// IsAtOrBelow reports whether a clean path is dir, or below it.
func IsAtOrBelow(path, dir string) bool {
	rest, found := strings.CutPrefix(path, dir)
	return found && (rest == "" || rest[0] == '/')
}
