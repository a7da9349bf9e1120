// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/lanyard-dev/lanyard/internal/cli/command"
)

// run runs a command line and returns its exit code and its output.
func run(t *testing.T, args ...string) (code int, out, errOut string) {
	t.Helper()
	streams, _, stdout, stderr := genericiooptions.NewTestIOStreams()
	code = Run(t.Context(), args, streams)
	return code, stdout.String(), stderr.String()
}

func TestMistakesInTheCommandLine(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"a mistyped command":      {[]string{"lanyard", "exlain"}, "error: unknown command \"exlain\"; did you mean explain?\nSee 'lanyard --help' for usage.\n"},
		"swapped letters":         {[]string{"lanyard", "stauts"}, "error: unknown command \"stauts\"; did you mean status?\nSee 'lanyard --help' for usage.\n"},
		"a subcommand":            {[]string{"lanyard", "label", "serviceacounts"}, "error: unknown command \"serviceacounts\"; did you mean serviceaccounts?\nSee 'lanyard label --help' for usage.\n"},
		"an unknown command":      {[]string{"lanyard", "frobnicate"}, "error: unknown command \"frobnicate\"\nSee 'lanyard --help' for usage.\n"},
		"an unknown flag":         {[]string{"lanyard", "--frobnicate"}, "error: unknown flag: --frobnicate\nSee 'lanyard --help' for usage.\n"},
		"an argument too much":    {[]string{"lanyard", "check", "shop"}, "error: unexpected argument \"shop\": write lanyard check [flags]\nSee 'lanyard check --help' for usage.\n"},
		"a file without a flag":   {[]string{"lanyard", "inject", "app.yaml"}, "error: unexpected argument \"app.yaml\": write lanyard inject -f FILE [flags]\nSee 'lanyard inject --help' for usage.\n"},
		"a time to wait":          {[]string{"lanyard", "check", "--wait", "5s"}, "error: --wait 5s: the value of this flag needs an equals sign: --wait=5s\nSee 'lanyard check --help' for usage.\n"},
		"a kind of dry run":       {[]string{"lanyard", "label", "sa", "--dry-run", "server"}, "error: --dry-run server: the value of this flag needs an equals sign: --dry-run=server\nSee 'lanyard label serviceaccounts --help' for usage.\n"},
		"the value of a switch":   {[]string{"lanyard", "status", "--stale", "false"}, "error: --stale false: the value of this flag needs an equals sign: --stale=false\nSee 'lanyard status --help' for usage.\n"},
		"a switch and a name":     {[]string{"lanyard", "trust", "aws", "cart", "--remove", "true"}, "error: --remove true: the value of this flag needs an equals sign: --remove=true\nSee 'lanyard trust aws --help' for usage.\n"},
		"a switch for all":        {[]string{"lanyard", "status", "--insecure-skip-tls-verify", "true"}, "error: --insecure-skip-tls-verify true: the value of this flag needs an equals sign: --insecure-skip-tls-verify=true\nSee 'lanyard status --help' for usage.\n"},
		"a mistyped flag":         {[]string{"lanyard", "status", "--stael"}, "error: unknown flag: --stael; did you mean --stale?\nSee 'lanyard status --help' for usage.\n"},
		"another kind":            {[]string{"lanyard", "check", "--service-account", "deploy/x"}, "error: --service-account: deploy/x: this command is for serviceaccount\nSee 'lanyard check --help' for usage.\n"},
		"an issuer without https": {[]string{"lanyard", "check", "--issuer", "x.example"}, "error: --issuer: issuer \"x.example\" is not an https URL without user, query and fragment\nSee 'lanyard check --help' for usage.\n"},
		"fields that are none":    {[]string{"lanyard", "check", "--overrides", "team"}, "error: invalid argument \"team\" for \"--overrides\" flag: overrides of the pod: no fields of a pod, such as {\"metadata\":{\"labels\":{\"team\":\"shop\"}}}\nSee 'lanyard check --help' for usage.\n"},
		"no ServiceAccount":       {[]string{"lanyard", "trust", "isuer"}, "error: the provider or the ServiceAccount is missing: write lanyard trust aws|azure|gcp|PROVIDER NAME\nSee 'lanyard trust --help' for usage.\n"},
		"a plugin of kubectl":     {[]string{"/usr/bin/kubectl-lanyard", "--x"}, "error: unknown flag: --x\nSee 'kubectl lanyard --help' for usage.\n"},
		"a path of the program":   {[]string{"/opt/kubectl-tools/lanyard", "--x"}, "error: unknown flag: --x\nSee 'lanyard --help' for usage.\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			code, _, errOut := run(t, test.args...)
			if code != command.ExitFailed || errOut != test.want {
				t.Errorf("got %d and %q, want %d and %q", code, errOut, command.ExitFailed, test.want)
			}
		})
	}
}

// A file or a value that is wrong in any cluster is an error before the cluster is read, and no finding.
func TestMistakesInFilesAndValues(t *testing.T) {
	t.Parallel()
	none, empty, hidden := filepath.Join(t.TempDir(), "none"), t.TempDir(), t.TempDir()
	text, kubeconfig := filepath.Join(t.TempDir(), "text.yaml"), filepath.Join(t.TempDir(), "kubeconfig")
	for path, content := range map[string]string{text: "hello", filepath.Join(hidden, ".git", "a.yaml"): "a: b", kubeconfig: "clusters: [{name: a, cluster: {server: http://cluster.invalid}}]"} {
		if err := cmp.Or(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(content), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	for sentence, test := range map[string]struct{ args, want string }{
		"the CA does not exist":                    {"check --ca-file " + none, "--ca-file: open " + none + ": no such file or directory"},
		"the context does not exist":               {"check --fleet-context other", `--fleet-context: kubeconfig: context "other" does not exist`},
		"the directory is empty":                   {"inject -f " + empty, empty + ": no file in this directory ends with .json, .yaml, .yml; --recursive also reads directories below it"},
		"the directory has no files that are read": {"policies --compile " + hidden, hidden + ": no file in this directory ends with .json, .yaml, .yml\n"},
		"the file has no object":                   {"inject -f " + text, text + ": not an object of Kubernetes: it has no apiVersion and no kind"},
		"the settings do not exist":                {"policies --config " + none, "--config: open " + none + ": no such file or directory"},
		"the provider does not exist":              {"policies --providers aws,azur", `providers: there is no provider "azur": choose from aws, azure, gcp, token`},
		"the manifests do not exist":               {"policies --compile " + none, "lstat " + none + ": no such file or directory"},
		"the name is none":                         {"policies --name A_b", `--name "A_b": a lowercase RFC 1123 subdomain must consist`},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			code, out, errOut := run(t, append([]string{"lanyard", "--kubeconfig", kubeconfig}, strings.Fields(test.args)...)...)
			if code != command.ExitFailed || !strings.HasPrefix(errOut, "error: "+test.want) || out != "" {
				t.Errorf("got %d, %q and %q, want %d and error: %s", code, out, errOut, command.ExitFailed, test.want)
			}
		})
	}
}

// The program gets a kubeconfig with a plugin whose session has ended.
func TestAPluginForCredentialsThatFailsHasANextStep(t *testing.T) {
	t.Parallel()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	const content = `{apiVersion: v1, kind: Config, current-context: a, clusters: [{name: a, cluster: {server: "https://127.0.0.1:1"}}],
contexts: [{name: a, context: {cluster: a, user: a}}],
users: [{name: a, user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: "false", interactiveMode: Never}}}]}`
	if err := os.WriteFile(kubeconfig, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	code, _, errOut := run(t, "lanyard", "--kubeconfig", kubeconfig, "--cache-dir", t.TempDir(), "status")
	if want := "Log in to the cluster again: the program for credentials in the kubeconfig failed.\n"; code != command.ExitFailed || !strings.HasSuffix(errOut, want) {
		t.Errorf("got %d and %q, want %d and %q", code, errOut, command.ExitFailed, want)
	}
}

// A user who ends a command needs no advice.
func TestAnInterruptedCommandSaysSo(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		cancel()
		<-r.Context().Done()
	}))
	defer server.Close()
	streams, _, _, errOut := genericiooptions.NewTestIOStreams()
	code := Run(ctx, []string{"lanyard", "--kubeconfig", os.DevNull, "--cache-dir", t.TempDir(), "--server", server.URL, "check"}, streams)
	if want := "error: interrupted\n"; code != command.ExitFailed || errOut.String() != want {
		t.Errorf("got %d and %q, want %d and %q", code, errOut, command.ExitFailed, want)
	}
}

// The errors of client-go have no next step.
func TestErrorsOfTheConnectionHaveANextStep(t *testing.T) {
	t.Parallel()
	unauthorized := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }))
	defer unauthorized.Close()
	gone := httptest.NewServer(nil)
	gone.Close()
	for server, want := range map[string]string{
		unauthorized.URL: "Log in to the cluster again: the API server rejects the credentials of the kubeconfig.\n",
		gone.URL:         "Check that the API server runs, and that the kubeconfig and its context are those of the cluster.\n",
	} {
		for _, args := range []string{"status", "check", "explain deploy/x", "policies --diff", "token x --for aws", "migrate --from eks", "label sa"} {
			args := append([]string{"lanyard", "--kubeconfig", os.DevNull, "--cache-dir", t.TempDir(), "--server", server}, strings.Fields(args)...)
			code, _, errOut := run(t, args...)
			if code != command.ExitFailed || !strings.HasPrefix(errOut, "error: ") || !strings.HasSuffix(errOut, want) {
				t.Errorf("%s: got %d and %q, want %d and %q", args, code, errOut, command.ExitFailed, want)
			}
		}
	}
}

// A list of a namespace that does not exist is empty, so the commands would find nothing.
func TestANamespaceThatDoesNotExistIsAMistake(t *testing.T) {
	t.Parallel()
	answers := map[string]any{
		"/version":                version.Info{GitVersion: "v1.37.2"},
		"/api/v1/namespaces/nope": failure(http.StatusNotFound, metav1.StatusReasonNotFound, `namespaces "nope" not found`),
	}
	if code, out, errOut := runWith(t, answers, "", "migrate", "--from", "eks", "-n", "nope"); code != command.ExitFailed || errOut != "error: namespace nope: namespaces \"nope\" not found\n" {
		t.Errorf("migrate: got %d, %q and %q", code, out, errOut)
	}
	if code, out, _ := runWith(t, answers, "", "check", "--exchange", "-n", "nope"); code != command.ExitFound || !strings.Contains(out, "× the namespace nope does not exist\n") {
		t.Errorf("check: got %d and %q", code, out)
	}
}

// The libraries would ask an API server at http://localhost:8080.
func TestCommandsThatNeedAClusterSayThatThereIsNoKubeconfig(t *testing.T) {
	t.Setenv("KUBECONFIG", t.TempDir()+"/none")
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	for _, args := range []string{
		"check", "check --pre", "explain pod/x", "status", "label serviceaccounts", "trust aws x", "trust issuer",
		"token x --for aws", "migrate --from eks", "policies --diff", "inject --cluster -f -", "version",
	} {
		code, _, errOut := run(t, append([]string{"lanyard"}, strings.Fields(args)...)...)
		if want := "error: no kubeconfig: name a file with --kubeconfig or KUBECONFIG\n"; code != command.ExitFailed || errOut != want {
			t.Errorf("%s: got %d and %q, want %d and %q", args, code, errOut, command.ExitFailed, want)
		}
	}
}

// As kubectl, the program and the commands that only group others print their help.
func TestACommandThatGroupsOthersPrintsItsHelp(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"lanyard"}, {"lanyard", "label"}} {
		code, out, errOut := run(t, args...)
		_, want, _ := run(t, append(args, "--help")...)
		if code != command.ExitOK || out != want || errOut != "" || !strings.Contains(out, "Available Commands:") {
			t.Errorf("%s: got %d, %q and %q, want the help", args, code, out, errOut)
		}
	}
}

// Every command has examples, and they can be pasted: their commands and flags
// exist.
func TestExamples(t *testing.T) {
	t.Parallel()
	root := newRootCommand(command.NewCLI("lanyard", genericiooptions.NewTestIOStreamsDiscard()))
	eachCommand(root, func(cmd *cobra.Command) {
		if cmd.HasSubCommands() || cmd == root {
			return
		}
		if cmd.Short == "" || cmd.Long == "" || cmd.Example == "" {
			t.Errorf("%s: want Short, Long and Example", cmd.CommandPath())
		}
		for line := range strings.Lines(cmd.Long + "\n" + cmd.Example) {
			if line = strings.TrimRight(line, "\n"); len(line) > 80 {
				t.Errorf("%s: %q is wider than a terminal of 80 columns", cmd.CommandPath(), line)
			}
		}
		for line := range strings.Lines(cmd.Example) {
			if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
				continue
			}
			line, filter, _ := strings.Cut(line, " | ")
			if cmd.Name() == "check" && strings.HasPrefix(filter, "jq ") && !strings.HasPrefix(filter, "jq '.findings[]") {
				t.Errorf("example %q: got %q, want a filter of .findings[]", line, filter)
			}
			line, _, _ = strings.Cut(line, " > ")
			args := strings.Fields(line)
			if args[0] != "lanyard" {
				t.Errorf("%s: example %q does not start with lanyard", cmd.CommandPath(), line)
				continue
			}
			fresh := newRootCommand(command.NewCLI("lanyard", genericiooptions.NewTestIOStreamsDiscard()))
			found, rest, err := fresh.Find(args[1:])
			if err != nil || found.CommandPath() != cmd.CommandPath() {
				t.Errorf("%s: example %q is of another command: %v", cmd.CommandPath(), line, err)
				continue
			}
			if err := found.ParseFlags(rest); err != nil {
				t.Errorf("example %q: %v", line, err)
			} else if err := found.ValidateArgs(found.Flags().Args()); err != nil {
				t.Errorf("example %q: %v", line, err)
			}
		}
	})
}

func eachCommand(cmd *cobra.Command, do func(*cobra.Command)) {
	do(cmd)
	for _, child := range cmd.Commands() {
		eachCommand(child, do)
	}
}

func TestExamplesShowTheNameOfThePlugin(t *testing.T) {
	t.Parallel()
	root := newRootCommand(command.NewCLI("kubectl-lanyard", genericiooptions.NewTestIOStreamsDiscard()))
	eachCommand(root, func(cmd *cobra.Command) {
		for line := range strings.Lines(cmd.Example) {
			if strings.HasPrefix(line, "  lanyard") {
				t.Errorf("%s: %q", cmd.CommandPath(), line)
			}
		}
	})
}
