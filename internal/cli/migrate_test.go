// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/lanyard-dev/lanyard/internal/cli/command"
)

const annotated = `apiVersion: v1
kind: ServiceAccount
metadata:
  name: cart # the cart
  annotations:
    eks.amazonaws.com/role-arn: arn:aws:iam::111122223333:role/cart
`

// runMigrate runs migrate without a cluster.
func runMigrate(t *testing.T, input string, args ...string) (code int, out, errOut string) {
	t.Helper()
	return runOffline(t, input, append([]string{"migrate"}, args...)...)
}

// runOffline runs a command without a cluster.
func runOffline(t *testing.T, input string, args ...string) (code int, out, errOut string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	args = append([]string{"lanyard", "--kubeconfig", os.DevNull}, args...)
	code = Run(t.Context(), args, genericiooptions.IOStreams{In: strings.NewReader(input), Out: &stdout, ErrOut: &stderr})
	return code, stdout.String(), stderr.String()
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o640); err != nil {
		t.Fatal(err)
	}
}

func TestMigrateFlags(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"-f x":                             "--from is missing: name one or more of eks, azure, gcp, gke",
		"--from other":                     `--from: got "other"`,
		"--from eks -A -f x":               "--filename cannot be used with --all-namespaces",
		"--from eks --verify":              "unknown flag: --verify", // lanyard status does it
		"--from eks --write -f x":          "--filename cannot be used with --write",
		"--from eks --remove -f x":         "--filename cannot be used with --remove",
		"--from eks -f x --output nothing": "allowed formats are: json, yaml",
	} {
		code, _, errOut := runMigrate(t, "", strings.Fields(args)...)
		if code != command.ExitFailed || !strings.Contains(errOut, want) {
			t.Errorf("%s: got the code %d and %q, want 2 and %q", args, code, errOut, want)
		}
	}
}

func TestMigrateListsTheFilesOfADirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "sub", "a.yaml")
	write(t, file, annotated)
	write(t, filepath.Join(dir, "template.yaml"), "a: {{ .Values.a }}\nb: {{")
	write(t, filepath.Join(dir, ".git", "hidden.yaml"), annotated)
	write(t, filepath.Join(dir, "notes.txt"), annotated)
	code, out, errOut := runMigrate(t, "", "--from", "eks", "-f", dir)
	if code != command.ExitOK || strings.Count(out, "serviceaccount/cart") != 1 || !strings.Contains(errOut, "not read: ") || !strings.Contains(errOut, "template.yaml") {
		t.Errorf("got the code %d, %s and %q, want the ServiceAccount of a.yaml and a note about template.yaml", code, out, errOut)
	}
	if want := `Set lanyard.dev/aws-role-arn: "arn:aws:iam::111122223333:role/cart".`; !strings.Contains(out, want) {
		t.Errorf("got %s, want %s", out, want)
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != annotated {
		t.Errorf("the file changed: %s %v", text, err)
	}
	if code, stdin, errOut := runMigrate(t, annotated, "--from", "eks", "-f", "-"); code != command.ExitOK || !strings.Contains(stdin, "serviceaccount/cart in the namespace default, standard input") {
		t.Errorf("the standard input: got the code %d, %s and %s, want the ServiceAccount", code, stdin, errOut)
	}
}

// A GitOps repository may have more manifests than fit into memory. inject must keep them, because
// it writes them again.
func TestManifestsAreLimited(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	comments := strings.Repeat("# comment\n", 16<<20/20)
	write(t, filepath.Join(dir, "a.yaml"), annotated+comments)
	write(t, filepath.Join(dir, "b.yaml"), comments+"---\n"+comments+"---\n"+annotated)
	one := filepath.Join(dir, "c.yaml")
	write(t, one, annotated+comments+comments)
	const tooLarge = "c.yaml: document 1: it has more than 16777216 bytes: split it"
	for args, want := range map[string]struct {
		code    int
		found   int
		message string
	}{
		"migrate --from=eks -f " + dir: {command.ExitOK, 2, "not read: " + dir + "/" + tooLarge},
		"migrate --from=eks -f " + one: {command.ExitFailed, 0, "error: " + dir + "/" + tooLarge},
		"policies --compile " + one:    {command.ExitFound, 0, "error: " + dir + "/" + tooLarge},
		"inject --recursive -f " + dir: {command.ExitFailed, 0, "b.yaml: the files have more than 16777216 bytes; pass fewer files"},
	} {
		code, out, errOut := runOffline(t, "", strings.Fields(args)...)
		if code != want.code || strings.Count(out, "serviceaccount/cart") != want.found || !strings.Contains(errOut, want.message) {
			t.Errorf("%s: got the code %d, %q and %q, want %+v", args, code, out, errOut, want)
		}
	}
}

func TestMigrateKnowsCustomProviders(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, config := filepath.Join(dir, "a.yaml"), filepath.Join(dir, "config.yaml")
	write(t, file, annotated+"    lanyard.dev/other-name: x\n")
	write(t, config, "providers:\n- name: other\n  audience: other\n  parameters:\n  - {name: name, required: true, pattern: '^x$', message: must be x, example: x}\n  environment:\n  - {name: OTHER_TOKEN_FILE, value: '{token-file}', credential: true}\n")
	if code, out, errOut := runMigrate(t, "", "--from", "eks", "-f", file); code != command.ExitOK || !strings.Contains(out, "Lanyard would deny it") {
		t.Errorf("without the configuration: got the code %d, %s and %s, want that it would be denied", code, out, errOut)
	}
	if code, out, errOut := runMigrate(t, "", "--from", "eks", "-f", file, "--config", config); code != command.ExitOK || strings.Contains(out, "deny") || !strings.Contains(out, "its manifest: by hand") {
		t.Errorf("with the configuration: got the code %d, %s and %s, want a file to edit", code, out, errOut)
	}
}

func TestMigrateRemovesNothingWhileLanyardAdopts(t *testing.T) {
	t.Parallel()
	config := filepath.Join(t.TempDir(), "config.yaml")
	write(t, config, "adopt: [eks]\n")
	const want = "error: --remove: Lanyard adopts the annotations of eks"
	if code, _, errOut := runMigrate(t, "", "--from", "azure,eks", "--config", config, "--remove", "--write"); code != command.ExitFailed || !strings.HasPrefix(errOut, want) {
		t.Errorf("got the code %d and %q, want 2 and %q", code, errOut, want)
	}
	if _, _, errOut := runMigrate(t, "", "--from", "azure", "--config", config, "--remove"); strings.Contains(errOut, "--remove") {
		t.Errorf("another webhook: got %q, want no error about --remove", errOut)
	}
}
