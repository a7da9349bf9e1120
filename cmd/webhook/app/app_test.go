// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
)

// flags are the documented flags, in the groups of --help.
var flags = map[string][]string{
	"Serving": {"bind-address", "health-probe-bind-address", "metrics-bind-address", "metrics-secure", "secure-port", "shutdown-delay"},
	"TLS": {
		"ca-duration", "certificate-dns-names", "certificate-duration", "certificate-secret-name", "certificate-secret-namespace", "certificate-source",
		"client-allowed-names", "client-ca-file",
		"tls-cert-file", "tls-cipher-suites", "tls-min-version", "tls-private-key-file", "webhook-configuration-name",
	},
	"Injection": {
		"adopt", "default-allowed-identities", "excluded-namespaces", "token-expiration-seconds", "token-mount-path", "token-path-prefixes", "verify-image",
	},
	"Providers": {
		"aws-default-audience", "aws-default-region", "aws-default-role-arn", "aws-role-arn-prefix",
		"azure-authority-host", "azure-default-audience", "azure-default-tenant-id",
		"gcp-default-audience", "gcp-default-project", "gcp-default-workload-identity-provider",
		"gcp-impersonation-lifetime-seconds", "gcp-universe-domain",
	},
	"General": {"config", "kubeconfig", "log-format", "v", "version"},
}

func TestHelpListsEveryFlagInItsGroup(t *testing.T) {
	t.Parallel()
	cmd := NewCommand([]string{"--help"})
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	if err := cmd.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	got := map[string][]string{}
	group := ""
	heading, flag := regexp.MustCompile(`^(\w+) flags:$`), regexp.MustCompile(`^ +(?:-v, )?--([a-z-]+)`)
	for line := range strings.Lines(out.String()) {
		line = strings.TrimRight(line, "\n")
		if match := heading.FindStringSubmatch(line); match != nil {
			group = match[1]
		} else if match := flag.FindStringSubmatch(line); match != nil {
			got[group] = append(got[group], match[1])
		}
	}
	if diff := cmp.Diff(flags, got); diff != "" {
		t.Errorf("flags (-want +got):\n%s\n%s", diff, out.String())
	}
}

func TestTheCommandHasTheFlagsThatHelpLists(t *testing.T) {
	t.Parallel()
	var want []string
	for _, names := range flags {
		want = append(want, names...)
	}
	slices.Sort(want)
	var got []string
	NewCommand(nil).Flags().VisitAll(func(flag *pflag.Flag) { got = append(got, flag.Name) })
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("flags (-want +got):\n%s", diff)
	}
}

// Not parallel: settings that are valid up to the kubeconfig set the loggers of the
// libraries, which are global.
func TestInvalidSettingsStopTheProgramAtOnce(t *testing.T) {
	file := func(text string) string {
		name := filepath.Join(t.TempDir(), "config.yaml")
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	files := []string{"--certificate-source=files", "--tls-cert-file=c", "--tls-private-key-file=k"}
	tests := map[string]struct {
		args []string
		want []string
	}{
		"every mistake is listed": {
			[]string{"--bind-address=host", "--secure-port=0", "--shutdown-delay=-1s", "--tls-min-version=1.3", "--tls-cipher-suites=X", "--certificate-source=none",
				"--token-mount-path=relative", "--token-expiration-seconds=1", "--default-allowed-identities={x}", "--excluded-namespaces=kube-system,A_b", "--aws-default-region=?", "--aws-default-audience= ",
				"--azure-default-tenant-id=?", "--azure-authority-host=http://x", "--azure-default-audience= ", "--gcp-default-workload-identity-provider=p", "--gcp-default-audience= "},
			[]string{`--bind-address: got "host"`, "--secure-port: got 0", "--shutdown-delay: got -1s", "--tls-min-version: ", "--tls-cipher-suites: ", `--certificate-source: got "none"`,
				`--token-mount-path: got "relative"`, "--token-expiration-seconds: ", `--default-allowed-identities: got "{x}": `, `--excluded-namespaces: got "A_b": `, `--aws-default-region: got "?"`, `--aws-default-audience: got " "`,
				`--azure-default-tenant-id: got "?"`, `--azure-authority-host: got "http://x"`, `--azure-default-audience: got " "`,
				`--gcp-default-workload-identity-provider: got "p"`, `--gcp-default-audience: got " "`},
		},
		"mistakes in a file are listed too": {
			append(files, "--config="+file("secure-port: 70000\nbind-address: host\n")),
			[]string{"--secure-port: got 70000", `--bind-address: got "host"`},
		},
		"a certificate without files": {
			[]string{"--certificate-source=files", "--tls-cert-file=c"}, []string{"needs both --tls-cert-file and --tls-private-key-file"},
		},
		"a file that does not exist":       {[]string{"--config=/nonexistent/config.yaml"}, []string{"--config: ", "no such file"}},
		"a setting that does not exist":    {[]string{"--config=" + file("port: 1")}, []string{"--config ", "port: unknown setting"}},
		"a version in a file":              {[]string{"--config=" + file(`version: "true"`)}, []string{"--config ", "version: unknown setting"}},
		"a flag that does not exist":       {[]string{"--port=1"}, []string{"unknown flag: --port"}},
		"an argument":                      {[]string{"run"}, []string{`unknown command "run"`}},
		"a log format that does not exist": {append(files, "--log-format=xml"), []string{`--log-format: got "xml", want text or json`}},
		"a kubeconfig that does not exist": {append(files, "--kubeconfig=/nonexistent/kubeconfig"), []string{"--kubeconfig: ", "/nonexistent/kubeconfig", "no such file"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			cmd := NewCommand(test.args)
			cmd.SetOut(&out)
			cmd.SetErr(&out)
			err := cmd.ExecuteContext(t.Context())
			if err == nil {
				t.Fatal("got no error")
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("got error %q, want %q in it", err, want)
				}
			}
			if out.Len() > 0 {
				t.Errorf("got output %q, want nothing: main prints the error", out.String())
			}
		})
	}
}

func TestVersionIsOneLine(t *testing.T) {
	t.Parallel()
	cmd := NewCommand([]string{"--version"})
	var out bytes.Buffer
	cmd.SetOut(&out)
	if err := cmd.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := regexp.MustCompile(`^lanyard-webhook version \S+ \(go1\.\S+, ` + runtime.GOOS + "/" + runtime.GOARCH + `\)\n$`)
	if !want.MatchString(out.String()) {
		t.Errorf("got %q, want %s", out.String(), want)
	}
}

const kubeconfig = `apiVersion: v1
kind: Config
current-context: c
clusters: [{name: c, cluster: {server: "https://192.0.2.1:6443"}}]
users: [{name: u, user: {token: t}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
`

func TestTheClientIsConfiguredByTheFileOrTheCluster(t *testing.T) {
	// Run as outside a cluster, even if the tests run in one.
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	t.Setenv("KUBERNETES_SERVICE_PORT", "")
	write := func(name, text string) string {
		file := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	for name, test := range map[string]struct {
		file string
		want []string
	}{
		"no file, and no cluster":    {"", []string{"--kubeconfig: got none, and the program does not run in a cluster", "KUBERNETES_SERVICE_HOST"}},
		"a file that does not exist": {"/nonexistent/kubeconfig", []string{"--kubeconfig: ", "/nonexistent/kubeconfig", "no such file"}},
		"a file that is empty":       {write("empty", ""), []string{"--kubeconfig: ", "no configuration"}},
		"a file that is not YAML":    {write("malformed", "{"), []string{"--kubeconfig: ", "malformed"}},
		"a context that is missing":  {write("context", strings.Replace(kubeconfig, "current-context: c", "current-context: d", 1)), []string{"--kubeconfig: ", "specified context: d"}},
	} {
		t.Run(name, func(t *testing.T) {
			config, err := restConfig(test.file)
			if err == nil {
				t.Fatalf("got %v, want an error", config)
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("got error %q, want %q in it", err, want)
				}
			}
		})
	}
	config, err := restConfig(write("good", kubeconfig))
	if err != nil {
		t.Fatal(err)
	}
	if config.Host != "https://192.0.2.1:6443" || config.UserAgent != "lanyard-webhook" || config.QPS != -1 {
		t.Errorf("got host %s, user agent %s and %v queries a second, want those of the file, lanyard-webhook and no limit", config.Host, config.UserAgent, config.QPS)
	}
}
