// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"regexp"
	"strings"
)

var plainWord = regexp.MustCompile(`^[A-Za-z0-9@%+=:,./_-]+$`)

// Quote returns a text as one word, in which the shell expands nothing.
func Quote(text string) string {
	if plainWord.MatchString(text) {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// File returns the command that writes JSON into a file. name is a word of the
// shell.
func File(name, json string) string {
	// No line of JSON is EOF.
	return "cat > " + name + " <<'EOF'\n" + strings.TrimSuffix(json, "\n") + "\nEOF\n"
}
