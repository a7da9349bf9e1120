// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package annotations

import (
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// DefaultTokenMountPath is the default path at which the token volume is mounted.
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

// TokenPathParameter is the parameter that asks for a copy of the token at another path, for
// programs that hard-code one.
const TokenPathParameter = "token-path"

// apiTokenPath is where the token for the API server is mounted. If a pod already has a mount
// there, the API server adds none.
const apiTokenPath = "/var/run/secrets/kubernetes.io/serviceaccount"

// plainPath matches paths that are the same in JSON, in a variable and on Windows.
var plainPath = regexp.MustCompile(`^(/[A-Za-z0-9._-]+){2,}$`)

// TokenPath returns the parameter for a copy of the token.
func TokenPath() Parameter {
	return Parameter{Name: TokenPathParameter, MaxBytes: 256, Parse: parseTokenPath}
}

// parseTokenPath accepts the absolute path of a file in a directory that can be
// mounted.
func parseTokenPath(value string) (string, error) {
	switch {
	case !plainPath.MatchString(value) || path.Clean(value) != value:
		return "", errors.New("must be the absolute path of a file in a directory, such as /var/run/secrets/example/token, of a-z, A-Z, 0-9, \".\", \"_\" and \"-\" between single slashes")
	case strings.HasPrefix(path.Base(value), ".."): // the API server denies a volume with such a file
		return "", errors.New("must be a file whose name does not begin with \"..\"")
	case pathsOverlap(path.Dir(value), apiTokenPath):
		return "", errors.New("must not be in a directory at, above or below " + apiTokenPath + ", where the token for the API server is")
	}
	return value, nil
}

// CopyPath returns the path at which the ServiceAccount asks for a copy of the token, or "".
func (i *Identity) CopyPath() string {
	if i.Provider.CopyVolume == "" { // a custom provider may use the name for something else
		return ""
	}
	return i.Values[TokenPathParameter]
}

// TokenPathPrefixes are the default directories for copies of tokens. The volume of a copy
// hides the directory at which it is mounted; images have no files in these.
func TokenPathPrefixes() []string { return []string{"/var/run/secrets/", "/run/secrets/"} }

// checkTokenPath returns an error unless the file is in a directory below one of the
// prefixes, by default TokenPathPrefixes.
func checkTokenPath(file string, prefixes []string) error {
	if len(prefixes) == 0 {
		prefixes = TokenPathPrefixes()
	}
	if slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(path.Dir(file), prefix) }) {
		return nil
	}
	return fmt.Errorf("must be in a directory below %s (--token-path-prefixes)", strings.Join(prefixes, " or "))
}

// tokenPathPrefix matches the prefixes of plain paths.
var tokenPathPrefix = regexp.MustCompile(`^(/[A-Za-z0-9._-]+)+/$`)

// ValidateTokenPathPrefix returns an error unless value is a directory with a slash at
// both ends.
func ValidateTokenPathPrefix(value string) error {
	if !tokenPathPrefix.MatchString(value) || path.Clean(value)+"/" != value {
		return fmt.Errorf("got %q, want an absolute path of a-z, A-Z, 0-9, \".\", \"_\" and \"-\" between single slashes, with a slash at the end, such as %s", value, TokenPathPrefixes()[0])
	}
	return nil
}

// pathsOverlap reports whether two clean directories are the same in a container, or one is
// below the other.
func pathsOverlap(a, b string) bool { return IsInside(a, b) || IsInside(b, a) }

// PathInContainer returns the path under which a container sees a mounted file. A Windows
// container sees mounts on drive C:.
func PathInContainer(file string, windows bool) string {
	if windows {
		return "C:" + strings.ReplaceAll(file, "/", `\`)
	}
	return file
}

// IsInside reports whether a clean path is dir in a container, or below it. In containers,
// /var/run is usually a link to /run.
func IsInside(path, dir string) bool {
	return IsAtOrBelow(path, dir) || IsAtOrBelow(withoutLink(path), withoutLink(dir))
}

func withoutLink(dir string) string {
	if IsAtOrBelow(dir, "/var/run") {
		return strings.TrimPrefix(dir, "/var")
	}
	return dir
}

// IsAtOrBelow reports whether the text of a clean path is that of dir, or below it.
func IsAtOrBelow(path, dir string) bool {
	rest, found := strings.CutPrefix(path, dir)
	return found && (rest == "" || rest[0] == '/')
}
