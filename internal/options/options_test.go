// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package options_test

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"

	"github.com/lanyard-dev/lanyard/internal/options"
	"github.com/lanyard-dev/lanyard/internal/provider"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

// defaults contains the default of every flag. The flags and these values are public.
var defaults = map[string]string{
	"kubeconfig":                             "",
	"bind-address":                           "0.0.0.0",
	"secure-port":                            "9443",
	"tls-cert-file":                          "",
	"tls-private-key-file":                   "",
	"tls-min-version":                        "VersionTLS13",
	"tls-cipher-suites":                      "[]",
	"client-ca-file":                         "",
	"client-allowed-names":                   "[]",
	"certificate-source":                     "self-managed",
	"certificate-secret-namespace":           "",
	"certificate-secret-name":                "lanyard-webhook-ca",
	"certificate-dns-names":                  "[]",
	"webhook-configuration-name":             "lanyard",
	"ca-duration":                            "8760h0m0s",
	"certificate-duration":                   "24h0m0s",
	"metrics-bind-address":                   ":8080",
	"metrics-secure":                         "false",
	"health-probe-bind-address":              ":8081",
	"adopt":                                  "",
	"token-mount-path":                       "/var/run/secrets/lanyard.dev/serviceaccount",
	"token-expiration-seconds":               "3600",
	"token-path-prefixes":                    "[/var/run/secrets/,/run/secrets/]",
	"verify-image":                           "",
	"default-allowed-identities":             "",
	"excluded-namespaces":                    "[kube-system]",
	"aws-default-region":                     "",
	"aws-default-role-arn":                   "",
	"aws-role-arn-prefix":                    "",
	"gcp-default-project":                    "",
	"gcp-universe-domain":                    "",
	"gcp-impersonation-lifetime-seconds":     "",
	"aws-default-audience":                   "",
	"azure-default-tenant-id":                "",
	"azure-default-audience":                 "",
	"azure-authority-host":                   "https://login.microsoftonline.com/",
	"gcp-default-workload-identity-provider": "",
	"gcp-default-audience":                   "",
	"shutdown-delay":                         "10s",
	"log-format":                             "text",
	"v":                                      "0",
	"config":                                 "",
}

// flagSet returns all flags of o.
func flagSet(o *options.Options) *pflag.FlagSet {
	return o.FlagSet()
}

// parsed returns the options of a command line.
func parsed(t *testing.T, arguments ...string) (*options.Options, *pflag.FlagSet) {
	t.Helper()
	o := options.New()
	fs := flagSet(o)
	if err := fs.Parse(arguments); err != nil {
		t.Fatal(err)
	}
	return o, fs
}

// files are the arguments that other settings need to be complete.
var files = []string{"--certificate-source=files", "--tls-cert-file=C", "--tls-private-key-file=P"}

// sameProvider compares providers by name: they hold functions.
var sameProvider = cmp.Comparer(func(a, b *annotations.Provider) bool { return a.Name == b.Name })

// values returns the values of all flags.
func values(fs *pflag.FlagSet) map[string]string {
	values := map[string]string{}
	fs.VisitAll(func(flag *pflag.Flag) { values[flag.Name] = flag.Value.String() })
	return values
}

// The flags of the providers follow from their parameters.
func TestEveryProviderHasItsFlags(t *testing.T) {
	t.Parallel()
	fs := flagSet(options.New())
	for _, d := range provider.Builtin() {
		audience := fs.Lookup(d.Name + "-default-audience")
		if (audience != nil) == d.Plain() {
			t.Errorf("%s: got a flag for the default audience %t, want %t", d.Name, audience != nil, !d.Plain())
		}
		if audience != nil && !strings.Contains(audience.Usage, d.DefaultAudience) {
			t.Errorf("--%s: %q does not name the provider's own audience %q", audience.Name, audience.Usage, d.DefaultAudience)
		}
		for i := range d.Parameters {
			p := &d.Parameters[i]
			if p.Flag == "" {
				continue
			}
			flag := fs.Lookup(p.Flag)
			if flag == nil {
				t.Errorf("--%s is not a flag", p.Flag)
				continue
			}
			if flag.DefValue != p.Default || flag.Usage != p.Usage {
				t.Errorf("--%s: got default %q and usage %q, want %q and %q", p.Flag, flag.DefValue, flag.Usage, p.Default, p.Usage)
			}
		}
	}
}

// A message names the flag, the value and what is allowed.
func TestAnInvalidProviderFlagIsNamed(t *testing.T) {
	t.Parallel()
	const value = "not valid"
	want := map[string]string{} // flag to what is allowed
	for _, d := range provider.Builtin() {
		if d.Plain() {
			continue
		}
		_, err := annotations.ParseAudience(value, d.MaxAudienceBytes, nil)
		want[d.Name+"-default-audience"] = err.Error()
		for i := range d.Parameters {
			if p := &d.Parameters[i]; p.Flag != "" {
				_, err := p.Read(value)
				want[p.Flag] = err.Error()
			}
		}
	}
	for flag, allowed := range want {
		t.Run(flag, func(t *testing.T) {
			t.Parallel()
			o, _ := parsed(t, append(slices.Clone(files), "--"+flag+"="+value)...)
			_, err := o.Complete(nil)
			if want := "--" + flag + `: got "` + value + `": ` + allowed; err == nil || err.Error() != want {
				t.Errorf("message:\n got %v\nwant %s", err, want)
			}
		})
	}
}

// A default of the cluster has the same maximum length as an annotation.
func TestAProviderFlagOverMaxBytesIsDenied(t *testing.T) {
	t.Parallel()
	for _, d := range provider.Builtin() {
		for i := range d.Parameters {
			p := &d.Parameters[i]
			if p.Flag == "" {
				continue
			}
			o, _ := parsed(t, append(slices.Clone(files), "--"+p.Flag+"="+strings.Repeat("a", p.MaxBytes+1))...)
			_, err := o.Complete(nil)
			if want := fmt.Sprintf("must have at most %d bytes", p.MaxBytes); err == nil || !strings.HasSuffix(err.Error(), want) {
				t.Errorf("--%s: got %v, want %s", p.Flag, err, want)
			}
		}
	}
}

func TestFlagsHaveTheirDefaults(t *testing.T) {
	t.Parallel()
	if diff := cmp.Diff(defaults, values(flagSet(options.New()))); diff != "" {
		t.Errorf("flags (-want +got):\n%s", diff)
	}
}

func TestHelpExplainsEveryFlagInAGroup(t *testing.T) {
	t.Parallel()
	var help bytes.Buffer
	cliflag.PrintSections(&help, options.New().Flags(), 0)
	for name := range defaults {
		flag := "--" + name
		if name == "v" {
			flag = "-v, --v"
		}
		if !regexp.MustCompile(`(?m)^ +` + regexp.QuoteMeta(flag) + `( \w+)?  +\S.{20,}$`).MatchString(help.String()) {
			t.Errorf("%s: no line with an explanation in\n%s", flag, &help)
		}
	}
	for _, group := range []string{"Serving", "TLS", "Injection", "Providers", "General"} {
		if !strings.Contains(help.String(), group+" flags:") {
			t.Errorf("no group %s in\n%s", group, &help)
		}
	}
}

// The command line of a webhook that runs without Kubernetes objects of its own.
func TestTheStandAloneCommandLineIsComplete(t *testing.T) {
	t.Parallel()
	o, fs := parsed(t, "--kubeconfig", "K", "--bind-address", "127.0.0.1", "--secure-port", "9443",
		"--certificate-source", "files", "--tls-cert-file", "C", "--tls-private-key-file", "P",
		"--metrics-bind-address", "127.0.0.1:8080", "--health-probe-bind-address", "127.0.0.1:8081",
		"--azure-default-tenant-id", "contoso.onmicrosoft.com")
	if err := o.LoadConfig(fs, os.ReadFile); err != nil {
		t.Fatal(err)
	}
	s, err := o.Complete(nil)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(annotations.Settings{
		Providers:              provider.Builtin(),
		TokenExpirationSeconds: 3600,
		TokenMountPath:         "/var/run/secrets/lanyard.dev/serviceaccount",
		TokenPathPrefixes:      []string{"/var/run/secrets/", "/run/secrets/"},
		Parameters: map[string]string{
			"azure-tenant-id": "contoso.onmicrosoft.com", "azure-authority-host": "https://login.microsoftonline.com/",
		},
		ExcludedNamespaces: []string{"kube-system"},
	}, *s, sameProvider, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("settings (-want +got):\n%s", diff)
	}
	if o.MinVersion != tls.VersionTLS13 || len(o.CipherSuites) != 0 {
		t.Errorf("TLS: got version %x and suites %x, want 1.3 and Go's own", o.MinVersion, o.CipherSuites)
	}
	if o.Kubeconfig != "K" || o.BindAddress != "127.0.0.1" || o.SecurePort != 9443 || o.TLSCertFile != "C" || o.TLSPrivateKeyFile != "P" ||
		o.MetricsBindAddress != "127.0.0.1:8080" || o.HealthProbeBindAddress != "127.0.0.1:8081" || o.ShutdownDelay != 10*time.Second {
		t.Errorf("got %+v", o)
	}
}

func TestCompleteUsesEverySetting(t *testing.T) {
	t.Parallel()
	const providerName = "projects/1/locations/global/workloadIdentityPools/pool/providers/k8s1"
	o, _ := parsed(t, append([]string{
		"--token-mount-path=/var/run/secrets/openshift/serviceaccount", "--excluded-namespaces=kube-system,system",
		"--token-path-prefixes=/opt/tokens/,/run/secrets/", "--token-expiration-seconds=600", "--aws-default-region=eu-central-1", "--aws-default-audience=a", "--azure-default-audience=b",
		"--azure-default-tenant-id=01234567-89AB-CDEF-0123-456789ABCDEF", "--azure-authority-host=https://login.microsoftonline.us",
		"--gcp-default-workload-identity-provider=//iam.googleapis.com/" + providerName, "--gcp-default-audience=c",
		"--aws-role-arn-prefix=arn:aws:iam::111122223333:role/team/", "--aws-default-role-arn=arn:aws:iam::111122223333:role/{namespace}_{serviceaccount}",
		"--gcp-default-project=my-project", "--gcp-universe-domain=example.goog", "--gcp-impersonation-lifetime-seconds=7200",
		"--default-allowed-identities=arn:aws:iam::*:role/{namespace}-*,b",
		"--tls-min-version=VersionTLS12", "--tls-cipher-suites=TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
	}, files...)...)
	s, err := o.Complete(nil)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(annotations.Settings{
		Providers:              provider.Builtin(),
		TokenExpirationSeconds: 600,
		TokenMountPath:         "/var/run/secrets/openshift/serviceaccount",
		TokenPathPrefixes:      []string{"/opt/tokens/", "/run/secrets/"},
		AllowedIdentities:      []string{"arn:aws:iam::*:role/{namespace}-*", "b"},
		Parameters: map[string]string{
			"aws-region": "eu-central-1", "aws-audience": "a",
			"aws-role-arn": "arn:aws:iam::111122223333:role/{namespace}_{serviceaccount}", "aws-role-arn-prefix": "arn:aws:iam::111122223333:role/team/",
			"gcp-default-project": "my-project", "gcp-universe-domain": "example.goog", "gcp-impersonation-lifetime-seconds": "7200",
			"azure-tenant-id": "01234567-89ab-cdef-0123-456789abcdef", "azure-authority-host": "https://login.microsoftonline.us/", "azure-audience": "b",
			"gcp-workload-identity-provider": providerName, "gcp-audience": "c",
		},
		ExcludedNamespaces: []string{"kube-system", "system"},
	}, *s, sameProvider, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("settings (-want +got):\n%s", diff)
	}
	if o.MinVersion != tls.VersionTLS12 {
		t.Errorf("TLS version: got %x, want 1.2", o.MinVersion)
	}
	want := []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256}
	if diff := cmp.Diff(want, o.CipherSuites); diff != "" {
		t.Errorf("cipher suites (-want +got):\n%s", diff)
	}
}

func TestCompleteAcceptsTheBounds(t *testing.T) {
	t.Parallel()
	tests := map[string][]string{
		"the lowest port":             {"--secure-port=1"},
		"the highest port":            {"--secure-port=65535"},
		"an IPv6 address":             {"--bind-address=::"},
		"no delay":                    {"--shutdown-delay=0s"},
		"the shortest lifetime":       {"--token-expiration-seconds=600"},
		"the longest lifetime":        {"--token-expiration-seconds=86400"},
		"a mount path of one element": {"--token-mount-path=/tokens"},
		"cipher suites with TLS 1.2":  {"--tls-min-version=VersionTLS12", "--tls-cipher-suites=TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"},
		"no audiences, which stands for the providers' own": {"--aws-default-audience=", "--azure-default-audience=", "--gcp-default-audience="},
		"a role for each namespace":                         {"--aws-default-role-arn=arn:aws:iam::111122223333:role/{namespace}"},
		"a role with a dot between the names":               {"--aws-default-role-arn=arn:aws:iam::111122223333:role/{serviceaccount}.{namespace}"},
		"one role for all":                                  {"--aws-default-role-arn=arn:aws:iam::111122223333:role/r"},
		"the longest audience of AWS":                       {"--aws-default-audience=" + strings.Repeat("a", 255)},
		"the longest audience of Azure":                     {"--azure-default-audience=" + strings.Repeat("a", 600)},
		"the longest audience of Google":                    {"--gcp-default-audience=" + strings.Repeat("a", 256)},
		"neither metrics nor probes":                        {"--metrics-bind-address=0", "--health-probe-bind-address=0"},
	}
	for name, arguments := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o, _ := parsed(t, append(arguments, files...)...)
			if _, err := o.Complete(nil); err != nil {
				t.Errorf("%q: %v", arguments, err)
			}
		})
	}
}

func TestCompleteDenies(t *testing.T) {
	t.Parallel()
	const (
		wantMountPath = ", want an absolute path such as /var/run/secrets/lanyard.dev/serviceaccount, without a trailing slash, a colon and control characters"
		wantPrefix    = `, want an absolute path of a-z, A-Z, 0-9, ".", "_" and "-" between single slashes, with a slash at the end, such as /var/run/secrets/`
		wantHost      = ": must be an https URL without user, query and fragment, such as https://login.microsoftonline.com/"
	)
	tests := map[string]struct{ argument, want string }{
		"an empty mount path":               {"--token-mount-path=", `--token-mount-path: got ""` + wantMountPath},
		"a relative mount path":             {"--token-mount-path=var/run", `--token-mount-path: got "var/run"` + wantMountPath},
		"a mount path with a closing slash": {"--token-mount-path=/var/run/", `--token-mount-path: got "/var/run/"` + wantMountPath},
		"a mount path that goes up":         {"--token-mount-path=/var/../run", `--token-mount-path: got "/var/../run"` + wantMountPath},
		"a prefix without a closing slash":  {"--token-path-prefixes=/opt", `--token-path-prefixes: got "/opt"` + wantPrefix},
		"a prefix that goes up":             {"--token-path-prefixes=/opt/../", `--token-path-prefixes: got "/opt/../"` + wantPrefix},
		"the root as a prefix":              {"--token-path-prefixes=/", `--token-path-prefixes: got "/"` + wantPrefix},
		"a mount path with a colon":         {"--token-mount-path=/var:/run", `--token-mount-path: got "/var:/run"` + wantMountPath},
		"a mount path with a line break":    {"--token-mount-path=/var\n/run", `--token-mount-path: got "/var\n/run"` + wantMountPath},
		"the root as the mount path":        {"--token-mount-path=/", `--token-mount-path: got "/"` + wantMountPath},
		"two slashes in the mount path":     {"--token-mount-path=/var//run", `--token-mount-path: got "/var//run"` + wantMountPath},
		"a host name to bind to":            {"--bind-address=localhost", `--bind-address: got "localhost", want an IP address`},
		"no address to bind to":             {"--bind-address=", `--bind-address: got "", want an IP address`},
		"an address with a port":            {"--bind-address=127.0.0.1:80", `--bind-address: got "127.0.0.1:80", want an IP address`},
		"port 0":                            {"--secure-port=0", `--secure-port: got 0, want 1 to 65535`},
		"a negative port":                   {"--secure-port=-1", `--secure-port: got -1, want 1 to 65535`},
		"port 65536":                        {"--secure-port=65536", `--secure-port: got 65536, want 1 to 65535`},
		"a negative delay":                  {"--shutdown-delay=-1s", `--shutdown-delay: got -1s, want 0 or more`},
		"an unknown TLS version":            {"--tls-min-version=1.3", `--tls-min-version: unknown tls version "1.3"`},
		"names of callers without a CA":     {"--client-allowed-names=a", `--client-allowed-names: has no effect without --client-ca-file`},
		"an unknown cipher suite":           {"--tls-cipher-suites=ROT13", `--tls-cipher-suites: Cipher suite ROT13 not supported or doesn't exist`},
		"cipher suites with TLS 1.3": {
			"--tls-cipher-suites=TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
			`--tls-cipher-suites: has no effect with --tls-min-version=VersionTLS13: its suites cannot be chosen`,
		},
		"a certificate of an unknown source": {"--certificate-source=magic", `--certificate-source: got "magic", want self-managed or files`},
		"a certificate of no source":         {"--certificate-source=", `--certificate-source: got "", want self-managed or files`},
		"files without a certificate":        {"--tls-cert-file=", `--certificate-source: files needs both --tls-cert-file and --tls-private-key-file`},
		"files without a key":                {"--tls-private-key-file=", `--certificate-source: files needs both --tls-cert-file and --tls-private-key-file`},
		"identities with an empty element":   {"--default-allowed-identities=a,", `--default-allowed-identities: got "a,": must be a list separated by commas, without an empty element`},
		"identities with another variable":   {"--default-allowed-identities={ns}", `--default-allowed-identities: got "{ns}": must have no braces except in {namespace}`},
		"a malformed region":                 {"--aws-default-region=EU", `--aws-default-region: got "EU": must be an AWS region, such as eu-central-1`},
		"a role with another variable": {
			"--aws-default-role-arn=arn:aws:iam::111122223333:role/{ns}/{namespace}",
			`--aws-default-role-arn: got "arn:aws:iam::111122223333:role/{ns}/{namespace}": must have no braces except in {namespace} and {serviceaccount}`,
		},
		"a role that two ServiceAccounts could share by their names": {
			"--aws-default-role-arn=arn:aws:iam::111122223333:role/{namespace}-x-{serviceaccount}",
			`--aws-default-role-arn: got "arn:aws:iam::111122223333:role/{namespace}-x-{serviceaccount}": must have a character other than a-z, 0-9 and - between {namespace} and {serviceaccount}, so that no two ServiceAccounts have the same value`,
		},
		"a default that is only the name of a role": {
			"--aws-default-role-arn={serviceaccount}",
			`--aws-default-role-arn: got "{serviceaccount}": must be the ARN of an IAM role, such as arn:aws:iam::111122223333:role/name`,
		},
		"a tenant that stands for any": {
			"--azure-default-tenant-id=common",
			`--azure-default-tenant-id: got "common": must be a tenant ID (GUID) or a domain of the tenant such as contoso.onmicrosoft.com; common, organizations, consumers and adfs do not name a tenant`,
		},
		"an authority without TLS": {"--azure-authority-host=http://example.com/", `--azure-authority-host: got "http://example.com/"` + wantHost},
		"no authority":             {"--azure-authority-host=", `--azure-authority-host: must not be empty`},
		"a malformed provider": {
			"--gcp-default-workload-identity-provider=my-pool",
			`--gcp-default-workload-identity-provider: got "my-pool": must be projects/NUMBER/locations/global/workloadIdentityPools/POOL/providers/PROVIDER, with or without //iam.googleapis.com/ or https://iam.googleapis.com/ in front; pool and provider have 4 to 32 of a-z, 0-9 and "-" and do not begin with "gcp-"`,
		},
		"an AWS audience with a space":   {"--aws-default-audience=a b", `--aws-default-audience: got "a b": must be 1 to 255 visible ASCII characters without a space`},
		"an Azure audience with a space": {"--azure-default-audience=a b", `--azure-default-audience: got "a b": must be 1 to 600 visible ASCII characters without a space`},
		"a Google audience with a space": {"--gcp-default-audience=a b", `--gcp-default-audience: got "a b": must be 1 to 256 visible ASCII characters without a space`},
		"the word default":               {"--aws-default-region=default", `--aws-default-region: got "default": must be an AWS region, such as eu-central-1`},
		"a tenant that is too long": {
			"--azure-default-tenant-id=" + strings.Repeat("a.", 126) + "aa",
			`--azure-default-tenant-id: got "` + strings.Repeat("a.", 126) + `aa": must have at most 253 bytes`,
		},
		"a lifetime that is too short by a second": {
			"--token-expiration-seconds=599",
			`--token-expiration-seconds: got 599: must be a whole number of seconds from 600 to 86400`,
		},
		"a lifetime that is too long by a second": {
			"--token-expiration-seconds=86401",
			`--token-expiration-seconds: got 86401: must be a whole number of seconds from 600 to 86400`,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o, _ := parsed(t, append(slices.Clone(files), tt.argument)...)
			_, err := o.Complete(nil)
			if err == nil {
				t.Fatalf("%s: got no error", tt.argument)
			}
			if got := err.Error(); got != tt.want {
				t.Errorf("message:\n got %s\nwant %s", got, tt.want)
			}
		})
	}
}

func TestTheSelfManagedCertificateIsForTheServiceOfItsNamespace(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		arguments []string
		want      []string
	}{
		"by default": {nil, []string{"lanyard-webhook.tools.svc"}},
		"or as set":  {[]string{"--certificate-dns-names=a.tools.svc,a.tools.svc.cluster.local"}, []string{"a.tools.svc", "a.tools.svc.cluster.local"}},
		"or for IPs": {[]string{"--certificate-dns-names=a.tools.svc,192.0.2.1,2001:db8::1"}, []string{"a.tools.svc", "192.0.2.1", "2001:db8::1"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o, _ := parsed(t, append([]string{"--certificate-secret-namespace=tools"}, test.arguments...)...)
			_, err := o.Complete(nil)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, o.CertificateDNSNames); diff != "" {
				t.Errorf("names (-want +got):\n%s", diff)
			}
		})
	}
}

func TestCompleteDeniesForASelfManagedCertificate(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		arguments []string
		want      string
	}{
		"a certificate file":           {[]string{"--tls-cert-file=C"}, `--certificate-source: self-managed issues its own certificate; --tls-cert-file and --tls-private-key-file need --certificate-source=files`},
		"a key file":                   {[]string{"--tls-private-key-file=P"}, `--certificate-source: self-managed issues its own certificate; --tls-cert-file and --tls-private-key-file need --certificate-source=files`},
		"no namespace":                 {[]string{"--certificate-secret-namespace="}, `--certificate-secret-namespace: got none, and the program does not run in a cluster: open /var/run/secrets/kubernetes.io/serviceaccount/namespace: no such file or directory`},
		"a malformed namespace":        {[]string{"--certificate-secret-namespace=a.b"}, `--certificate-secret-namespace: got "a.b": must not contain dots`},
		"no Secret":                    {[]string{"--certificate-secret-name="}, `--certificate-secret-name: got "": a lowercase RFC 1123 subdomain`},
		"no configuration":             {[]string{"--webhook-configuration-name="}, `--webhook-configuration-name: got "": a lowercase RFC 1123 subdomain`},
		"a malformed name":             {[]string{"--certificate-dns-names=a_b"}, `--certificate-dns-names: got "a_b": a lowercase RFC 1123 subdomain`},
		"a lifetime that is too short": {[]string{"--certificate-duration=9s"}, `--certificate-duration: got 9s, want at least 10s`},
		"an empty name of a caller":    {[]string{"--client-ca-file=C", `--client-allowed-names=a,""`}, `--client-allowed-names: got an empty name`},
		"a CA that is too short":       {[]string{"--certificate-duration=1h", "--ca-duration=2h59m"}, `--ca-duration: got 2h59m0s, want at least three times --certificate-duration, 3h0m0s`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o, _ := parsed(t, append([]string{"--certificate-secret-namespace=lanyard-system"}, test.arguments...)...)
			_, err := o.Complete(nil)
			if err == nil || !strings.HasPrefix(err.Error(), test.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("got %v\nwant one mistake, %s", err, test.want)
			}
		})
	}
}

func TestCompleteReportsAllMistakesAtOnce(t *testing.T) {
	t.Parallel()
	o, _ := parsed(t, "--token-mount-path=x", "--token-expiration-seconds=1", "--bind-address=x", "--secure-port=0",
		"--default-allowed-identities=,", "--shutdown-delay=-1s", "--tls-min-version=x", "--tls-cipher-suites=x", "--certificate-source=x", "--aws-default-region=x",
		"--azure-default-tenant-id=x", "--azure-authority-host=x", "--gcp-default-workload-identity-provider=x",
		"--aws-default-audience= ", "--azure-default-audience= ", "--gcp-default-audience= ")
	_, err := o.Complete(nil)
	if err == nil {
		t.Fatal("got no error")
	}
	for _, name := range []string{
		"token-mount-path", "token-expiration-seconds", "default-allowed-identities", "bind-address", "secure-port", "shutdown-delay",
		"tls-min-version", "tls-cipher-suites", "certificate-source", "aws-default-region", "azure-default-tenant-id", "azure-authority-host",
		"gcp-default-workload-identity-provider", "aws-default-audience", "azure-default-audience", "gcp-default-audience",
	} {
		if count := strings.Count("\n"+err.Error(), "\n--"+name+": "); count != 1 {
			t.Errorf("--%s: got %d lines, want one in\n%v", name, count, err)
		}
	}
}

// Without the flag, namespaces without the annotation are not restricted.
func TestDefaultAllowedIdentities(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		arguments []string
		want      []string
	}{
		"by default everything is allowed": {nil, nil},
		"empty allows everything":          {[]string{"--default-allowed-identities="}, nil},
		"a dash allows nothing":            {[]string{"--default-allowed-identities=-"}, []string{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o, _ := parsed(t, append(slices.Clone(files), test.arguments...)...)
			completed, err := o.Settings(nil)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, completed.AllowedIdentities); diff != "" {
				t.Errorf("globs (-want +got):\n%s", diff)
			}
		})
	}
}

func TestExcludedNamespacesMustBeNames(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ value, want string }{
		"several names":            {"kube-system,lanyard-system", ""},
		"no names":                 {"", ""},
		"a name with a dot":        {"kube-system,a.b", `--excluded-namespaces: got "a.b": must not contain dots`},
		"a name in capitals":       {"Kube-System", `--excluded-namespaces: got "Kube-System": a lowercase RFC 1123 label`},
		"a name with a wildcard":   {"kube-*", `--excluded-namespaces: got "kube-*": a lowercase RFC 1123 label`},
		"a list with an empty one": {"a,,b", `--excluded-namespaces: got "": a lowercase RFC 1123 label`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o, _ := parsed(t, append([]string{"--excluded-namespaces=" + test.value}, files...)...)
			_, err := o.Complete(nil)
			if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.HasPrefix(err.Error(), test.want)) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

func TestCompleteDeniesAnUnknownLogFormat(t *testing.T) {
	t.Parallel()
	o, _ := parsed(t, append([]string{"--log-format=xml"}, files...)...)
	_, err := o.Complete(nil)
	if want := `--log-format: got "xml", want text or json`; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// configured returns the options of a command line and a config file.
func configured(t *testing.T, text string, arguments ...string) (*options.Options, string, error) {
	t.Helper()
	name := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	o, fs := parsed(t, append(arguments, "--config", name)...)
	return o, name, o.LoadConfig(fs, os.ReadFile)
}

func TestLoadConfigSetsTheFlags(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		text      string
		arguments []string
		want      map[string]string // flags that do not have their default
	}{
		"an empty file sets nothing":        {"", nil, nil},
		"a file of comments sets nothing":   {"# nothing\n", nil, nil},
		"an empty mapping sets nothing":     {"{}", nil, nil},
		"a string":                          {"kubeconfig: K", nil, map[string]string{"kubeconfig": "K"}},
		"a string in quotes":                {`azure-default-tenant-id: "01"`, nil, map[string]string{"azure-default-tenant-id": "01"}},
		"a number":                          {"secure-port: 8443", nil, map[string]string{"secure-port": "8443"}},
		"a large number":                    {"token-expiration-seconds: 86400", nil, map[string]string{"token-expiration-seconds": "86400"}},
		"a number in quotes":                {`secure-port: "8443"`, nil, map[string]string{"secure-port": "8443"}},
		"a duration":                        {"shutdown-delay: 1m", nil, map[string]string{"shutdown-delay": "1m0s"}},
		"a number for a text":               {"aws-default-audience: 01", nil, map[string]string{"aws-default-audience": "01"}},
		"a boolean for a text":              {"aws-default-audience: true", nil, map[string]string{"aws-default-audience": "true"}},
		"a number for true":                 {"metrics-secure: 1", nil, map[string]string{"metrics-secure": "true"}},
		"an alias":                          {"kubeconfig: &a K\ntls-cert-file: *a", nil, map[string]string{"kubeconfig": "K", "tls-cert-file": "K"}},
		"true":                              {"metrics-secure: true", nil, map[string]string{"metrics-secure": "true"}},
		"a list":                            {"tls-cipher-suites: [a, b]", nil, map[string]string{"tls-cipher-suites": "[a,b]"}},
		"a list with a number":              {"tls-cipher-suites: [a, 1]", nil, map[string]string{"tls-cipher-suites": "[a,1]"}},
		"an empty list":                     {"excluded-namespaces: []", nil, map[string]string{"excluded-namespaces": ""}},
		"a list as the command line has it": {"tls-cipher-suites: a,b", nil, map[string]string{"tls-cipher-suites": "[a,b]"}},
		"the verbosity":                     {"v: 2", nil, map[string]string{"v": "2"}},
		"an empty string":                   {`azure-authority-host: ""`, nil, map[string]string{"azure-authority-host": ""}},
		"JSON is YAML":                      {`{"secure-port": 8443, "kubeconfig": "K"}`, nil, map[string]string{"secure-port": "8443", "kubeconfig": "K"}},
		"the command line takes precedence": {"secure-port: 8443\nkubeconfig: K", []string{"--secure-port=7443"}, map[string]string{"secure-port": "7443", "kubeconfig": "K"}},
		"the command line takes precedence with a default": {"secure-port: 8443", []string{"--secure-port=9443"}, nil},
		"a short flag takes precedence":                    {"v: 2", []string{"-v=4"}, map[string]string{"v": "4"}},
		"a list on the command line replaces the file's": {
			"tls-cipher-suites: [a, b]", []string{"--tls-cipher-suites=c"}, map[string]string{"tls-cipher-suites": "[c]"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o, file, err := configured(t, tt.text, tt.arguments...)
			if err != nil {
				t.Fatal(err)
			}
			want := maps.Clone(defaults)
			maps.Copy(want, tt.want)
			want["config"] = file
			if diff := cmp.Diff(want, values(flagSet(o))); diff != "" {
				t.Errorf("flags (-want +got):\n%s", diff)
			}
		})
	}
}

// Every flag can be set from the file, except the one that names it.
func TestLoadConfigKnowsEveryFlag(t *testing.T) {
	t.Parallel()
	for name := range defaults {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, _, err := configured(t, name+`: "7"`)
			unknown := err != nil && strings.Contains(err.Error(), "unknown setting")
			if unknown != (name == "config") {
				t.Errorf("%s: got error %v", name, err)
			}
		})
	}
}

func TestLoadConfigDenies(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		text string
		want string // after the file's name
	}{
		"an unknown setting":      {"secure-prot: 1", `secure-prot: unknown setting; settings have the names of the flags in --help`},
		"another case":            {"Secure-Port: 1", `Secure-Port: unknown setting; settings have the names of the flags in --help`},
		"a field's name":          {"securePort: 1", `securePort: unknown setting; settings have the names of the flags in --help`},
		"a setting in dashes":     {"--secure-port: 1", `--secure-port: unknown setting; settings have the names of the flags in --help`},
		"a file that names files": {"config: other.yaml", `config: unknown setting; settings have the names of the flags in --help`},
		"help":                    {"help: true", `help: unknown setting; settings have the names of the flags in --help`},
		"text for a number":       {"secure-port: https", `secure-port: invalid argument "https" for "--secure-port" flag: strconv.ParseInt: parsing "https": invalid syntax`},
		"a fraction for a number": {"secure-port: 1.5", `secure-port: invalid argument "1.5" for "--secure-port" flag: strconv.ParseInt: parsing "1.5": invalid syntax`},
		"a number for a duration": {"shutdown-delay: 10", `shutdown-delay: invalid argument "10" for "--shutdown-delay" flag: time: missing unit in duration "10"`},
		"a mapping for a string":  {"kubeconfig: {a: b}", `line 1: kubeconfig: got map, want a text or a list of texts`},
		"nothing for a string":    {"kubeconfig:", `line 1: kubeconfig: got null, want a text or a list of texts`},
		"a word for true":         {"metrics-secure: maybe", `metrics-secure: invalid argument "maybe" for "--metrics-secure" flag: strconv.ParseBool: parsing "maybe": invalid syntax`},
		"a list for a string":     {"kubeconfig: [a, b]", `kubeconfig: got a list, want a text`},
		"a list for a number":     {"secure-port: ['1']", `secure-port: got a list, want a text`},
		"a list in a list":        {"tls-cipher-suites: [[a]]", `line 1: tls-cipher-suites: got seq, want a text or a list of texts`},
		"an alias in a list":      {"kubeconfig: &a K\nadopt: [*a]", `line 2: adopt: got seq, want a text or a list of texts`},
		"an alias of itself":      {"adopt: &a [*a]", `line 1: adopt: got seq, want a text or a list of texts`},
		"an alias of a list":      {"tls-cipher-suites: &a [a]\nadopt: *a", `line 2: adopt: got seq, want a text or a list of texts`},
		"an empty text in a list": {"adopt: [eks, '']", `line 1: adopt: got seq, want a text or a list of texts`},
		"nothing in a list":       {"adopt: [eks, null]", `line 1: adopt: got seq, want a text or a list of texts`},
		"a boolean for a number":  {"secure-port: true", `secure-port: invalid argument "true" for "--secure-port" flag: strconv.ParseInt: parsing "true": invalid syntax`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, file, err := configured(t, tt.text)
			if err == nil {
				t.Fatal("got no error")
			}
			if want := "--config " + file + ": " + tt.want; err.Error() != want {
				t.Errorf("message:\n got %s\nwant %s", err, want)
			}
		})
	}
}

func TestLoadConfigRejectsFilesThatAreNotMappings(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ text, want string }{
		"a setting that is set twice": {"secure-port: 1\nsecure-port: 2", `line 2: mapping key "secure-port" already defined at line 1`},
		"a list":                      {"- secure-port", "line 1: cannot unmarshal !!seq, want a mapping of settings by the names of the flags"},
		"a string":                    {"secure-port", "line 1: cannot unmarshal !!str `secure-...`, want a mapping of settings by the names of the flags"},
		"broken YAML":                 {"secure-port: [", "yaml: line 1: did not find expected node content"},
		"a tab":                       {"\tsecure-port: 1", "yaml: found character that cannot start any token"},
		"a second document":           {"secure-port: 1\n---\nsecure-port: 2", "got more than one document"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, file, err := configured(t, tt.text)
			if err == nil {
				t.Fatal("got no error")
			}
			if !strings.HasPrefix(err.Error(), "--config "+file+": ") || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want the file's name and %q", err, tt.want)
			}
		})
	}
}

func TestLoadConfigNamesAFileThatCannotBeRead(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "missing.yaml")
	o, flags := parsed(t, "--config", name)
	err := o.LoadConfig(flags, os.ReadFile)
	if !errors.Is(err, fs.ErrNotExist) || !strings.HasPrefix(err.Error(), "--config: ") || !strings.Contains(err.Error(), name) {
		t.Errorf("got %v, want an error with the flag and the file's name", err)
	}
}

func TestNewLogger(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		arguments []string
		want      []string // in the log
		not       string
	}{
		"text":        {nil, []string{"level=INFO", "msg=operator"}, "msg=each"},
		"JSON":        {[]string{"--log-format=json"}, []string{`"level":"INFO"`, `"msg":"operator"`}, `"msg":"each"`},
		"verbosity 1": {[]string{"-v=1"}, []string{"level=INFO msg=operator", "level=DEBUG msg=each"}, "msg=debug"},
		"verbosity 2": {[]string{"-v=2"}, []string{"msg=operator", "msg=each", "msg=debug"}, "msg=more"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o, _ := parsed(t, append(tt.arguments, files...)...)
			_, err := o.Complete(nil)
			if err != nil {
				t.Fatal(err)
			}
			var text bytes.Buffer
			log := o.NewLogger(&text)
			log.Info("operator")
			log.V(1).Info("each")
			log.V(2).Info("debug")
			log.V(3).Info("more")
			for _, want := range tt.want {
				if !strings.Contains(text.String(), want) {
					t.Errorf("no %q in %s", want, &text)
				}
			}
			if strings.Contains(text.String(), tt.not) {
				t.Errorf("%q in %s", tt.not, &text)
			}
		})
	}
}

// "lanyard inject" needs no cluster, so only the settings of the injection matter.
func TestSettingsOnlyLooksAtTheInjection(t *testing.T) {
	t.Parallel()
	o := options.New()
	o.SecurePort, o.LogFormat, o.CertificateSource = 0, "x", "x"
	o.Injection.TokenExpirationSeconds = 4000
	completed, err := o.Settings(nil)
	if err != nil {
		t.Fatal(err)
	}
	if completed.TokenExpirationSeconds != 4000 || completed.Parameters["azure-authority-host"] != "https://login.microsoftonline.com/" {
		t.Errorf("got %+v", completed)
	}
	o.Injection.TokenMountPath, o.Injection.TokenExpirationSeconds = "x", 1
	o.Injection.AllowedIdentities, o.Injection.ExcludedNamespaces = []string{"{x}"}, []string{"X"}
	o.Injection.VerifyImage = "a b"
	_, err = o.Settings(nil)
	for _, flag := range []string{"token-mount-path", "token-expiration-seconds", "default-allowed-identities", "excluded-namespaces", "verify-image"} {
		if err == nil || !strings.Contains(err.Error(), "--"+flag+": ") {
			t.Errorf("got error %v, want it to name --%s", err, flag)
		}
	}
}
