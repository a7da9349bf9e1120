// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/lanyard-dev/lanyard/internal/cli/cloud"
)

func TestQuoteIsOneWordThatNothingExpands(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", "plain", "a b", "$HOME", "`id`", "$(id)", "'", `"`, `\`, "a'b'c", "*", "~", "#x", "a\nb", "a;b", "-n", "ü", "{a,b}", "!1", "a=b",
	} {
		out, err := exec.CommandContext(t.Context(), "sh", "-c", "printf '[%s]' "+cloud.Quote(text)).Output()
		if err != nil || string(out) != "["+text+"]" {
			t.Errorf("%q: got %q and error %v", text, out, err)
		}
	}
	if got := cloud.Quote("https://issuer.example.com/a"); strings.Contains(got, "'") {
		t.Errorf("got %s, want plain words without quotes", got)
	}
}

func TestFileKeepsTheTextUnchanged(t *testing.T) {
	t.Parallel()
	const json = `{"a": "$HOME 'b' \"c\" \\ EOF"}`
	directory := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "sh", "-c", cloud.File("file", json)+"cat file")
	cmd.Dir = directory
	if out, err := cmd.Output(); err != nil || string(out) != json+"\n" {
		t.Errorf("got %q and error %v, want %q", out, err, json)
	}
}
