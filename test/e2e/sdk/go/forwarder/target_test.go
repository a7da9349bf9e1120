// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseTargets(t *testing.T) {
	whole := []target{
		{Name: "audit", ClientID: "c", TenantID: "t", ClientSecretFile: "/secret"},
		{Name: "infrastructure"},
	}
	cases := map[string]struct {
		content string
		want    []target
		err     string
	}{
		"YAML":                    {"- {name: audit, clientID: c, tenantID: t, clientSecretFile: /secret}\n- name: infrastructure\n", whole, ""},
		"JSON":                    {`[{"name":"audit","clientID":"c","tenantID":"t","clientSecretFile":"/secret"},{"name":"infrastructure"}]`, whole, ""},
		"no targets":              {"", nil, "no targets given"},
		"a target without a name": {"- clientID: c\n", nil, "target 0: name is missing"},
		"a duplicate name":        {"- name: a\n- name: a\n", nil, `target 1: duplicate name "a"`},
		"an unknown field":        {"- {name: a, client: c}\n", nil, `unknown field "client"`},
		"not a list":              {"name: a\n", nil, "cannot unmarshal object"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := parseTargets([]byte(c.content))
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("targets (-want +got):\n%s", diff)
			}
			if (err != nil) != (c.err != "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("got error %v, want one with %q", err, c.err)
			}
		})
	}
}

func TestRun(t *testing.T) {
	for _, name := range []string{"AZURE_CLIENT_ID", "AZURE_TENANT_ID", "AZURE_FEDERATED_TOKEN_FILE"} {
		t.Setenv(name, "") // the test restores the previous value
		if err := os.Unsetenv(name); err != nil {
			t.Fatal(err)
		}
	}
	directory := t.TempDir()
	for name, content := range map[string]string{
		"good.yaml": "- {name: a, clientSecretFile: " + filepath.Join(directory, "secret") + "}\n- name: b\n",
		"bad.yaml":  "name: a\n",
		"secret":    "s3cret\n",
	} {
		if err := os.WriteFile(filepath.Join(directory, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	good, bad := filepath.Join(directory, "good.yaml"), filepath.Join(directory, "bad.yaml")

	cases := map[string]struct {
		args           []string
		code           int
		stdout, stderr []string // one substring for each line
	}{
		"without a file":   {nil, 2, nil, []string{"forwarder: --config is missing", "usage: "}},
		"no such file":     {[]string{"--config", good + "x"}, 2, nil, []string{"no such file", "usage: "}},
		"a malformed file": {[]string{"--config", bad}, 2, nil, []string{bad + ": ", "usage: "}},
		"an argument":      {[]string{"--config", good, "x"}, 2, nil, []string{`unexpected argument "x"`, "usage: "}},
		"an invalid pause": {[]string{"--config", good, "--every", "0s"}, 2, nil, []string{"--every: got 0s", "usage: "}},
		"no credentials":   {[]string{"--config", good, "--forever"}, 1, []string{`{"cloud":"azure","target":"a","error":`, `{"cloud":"azure","target":"b","error":`}, nil},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			if code := run(t.Context(), c.args, &stdout, &stderr); code != c.code {
				t.Errorf("exit code: got %d, want %d", code, c.code)
			}
			contains(t, "stdout", stdout.String(), c.stdout)
			contains(t, "stderr", stderr.String(), c.stderr)
			if strings.Contains(stdout.String()+stderr.String(), "s3cret") {
				t.Error("got the secret in the output")
			}
		})
	}
}

func contains(t *testing.T, stream, got string, want []string) {
	t.Helper()
	lines := strings.Split(strings.TrimSuffix(got, "\n"), "\n")
	if got == "" {
		lines = nil
	}
	if len(lines) != len(want) {
		t.Fatalf("%s: got %q, want a line with each of %q", stream, got, want)
	}
	for i := range want {
		if !strings.Contains(lines[i], want[i]) {
			t.Errorf("%s: got line %q, want it to contain %q", stream, lines[i], want[i])
		}
	}
}
