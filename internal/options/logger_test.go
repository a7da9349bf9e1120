// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"unicode"
)

// stringer is a value that implements fmt.Stringer.
type stringer string

func (s stringer) String() string { return string(s) }

// Any text in a log line may come from users: the name of an owner, the message of an error,
// a warning.
func TestLogsDoNotControlATerminal(t *testing.T) {
	t.Parallel()
	for _, format := range []string{logText, logJSON} {
		for r := rune(0); r < 0xa0; r++ {
			if !unicode.IsControl(r) {
				continue
			}
			for _, hostile := range []string{string(r), "a" + string(r) + "b", "a b\n" + string(r) + "[2J\"", string([]byte{byte(r)})} {
				o := New()
				o.LogFormat = format
				var text bytes.Buffer
				log := o.NewLogger(&text).WithName(hostile).WithValues(hostile, hostile)
				err := fmt.Errorf("review: %w", errors.Join(errors.New(hostile), errors.New("second")))
				log.Error(err, hostile, "string", hostile, "list", []string{hostile}, "error", err, "stringer", stringer(hostile),
					"bytes", []byte(hostile), "map", map[string]string{hostile: hostile}, hostile, "value")
				line := strings.TrimSuffix(text.String(), "\n")
				if at := strings.IndexFunc(line, unicode.IsControl); at >= 0 || line == "" || strings.Contains(line, "\x9b") && r != 0x9b {
					t.Errorf("%s, %q: got %q", format, hostile, line)
				}
			}
		}
	}
}

// The metadata of all ServiceAccounts would be in the log, without a limit.
func TestNoVerbosityLogsTheBodiesOfResponses(t *testing.T) {
	t.Parallel()
	for verbosity, want := range map[int]bool{0: false, 6: false, 7: true, 8: true, 10: true} {
		o := New()
		o.Verbosity = verbosity
		log := o.NewLogger(io.Discard)
		const ofBodies = 8 // in client-go
		if log.V(ofBodies).Enabled() || log.V(ofBodies-1).Enabled() != want {
			t.Errorf("-v=%d: got bodies %t and requests %t, want no bodies and %t", verbosity, log.V(ofBodies).Enabled(), log.V(ofBodies-1).Enabled(), want)
		}
	}
}
