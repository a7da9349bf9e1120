// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"bytes"
	"strings"
	"testing"

	"github.com/lanyard-dev/lanyard/internal/finding"
)

func TestCheckReportsMistakes(t *testing.T) {
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"no ServiceAccount":                {nil, "check pods of ServiceAccount /: --namespace and --service-account are required"},
		"malformed overrides":              {[]string{"--namespace=n", "--service-account=a", "--overrides=[]"}, "--overrides: overrides of the pod: "},
		"a kubeconfig that does not exist": {[]string{"--namespace=n", "--service-account=a", "--kubeconfig=/nonexistent"}, "ServiceAccount n/a: --kubeconfig: "},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := NewCommand(nil)
			cmd.SetArgs(append([]string{"check"}, test.args...))
			if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

// The error contains what failed, so that users see it last.
func TestCheckShowsItsLines(t *testing.T) {
	t.Parallel()
	found := []finding.Finding{{Status: finding.OK, Text: "called"}, {Status: finding.Failed, Text: "no credentials", Fix: "Annotate it."}, {Status: finding.Skipped, Text: "not tried"}}
	var out bytes.Buffer
	if err := show(&out, found); err == nil || err.Error() != "no credentials\n  Annotate it.\nnot tried" {
		t.Errorf("got %v", err)
	}
	if out.String() != "called\n" {
		t.Errorf("got %q", out.String())
	}
}

func TestCheckHasItsOwnHelp(t *testing.T) {
	t.Parallel()
	cmd := NewCommand(nil)
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetArgs([]string{"check", "--help"})
	if err := cmd.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	if help := out.String(); !strings.Contains(help, "--service-account") || !strings.Contains(help, "probe.lanyard.dev") || strings.Contains(help, "--secure-port") {
		t.Errorf("got\n%s", help)
	}
}
