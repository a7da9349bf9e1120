// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package options holds the settings of lanyard-webhook: their flags, their file,
// and their allowed values.
package options

import (
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"

	"github.com/lanyard-dev/lanyard/internal/annotations"
	"github.com/lanyard-dev/lanyard/internal/peer"
	"github.com/lanyard-dev/lanyard/internal/provider"
	"github.com/lanyard-dev/lanyard/internal/settings"
	"github.com/lanyard-dev/lanyard/internal/texts"
)

// Values of --certificate-source.
const (
	// SelfManaged means that the program issues and renews the certificate.
	SelfManaged = "self-managed"
	// FromFiles means that the certificate is in --tls-cert-file and
	// --tls-private-key-file.
	FromFiles = "files"
)

// serviceName is the name of the Service in the manifests and the chart.
const serviceName = "lanyard-webhook"

// Values of --log-format.
const (
	logText = "text"
	logJSON = "json"
)

// Options holds the raw flag values. Complete validates and converts them. The usage of
// each flag explains its field.
type Options struct {
	// How to serve.
	BindAddress, MetricsBindAddress, HealthProbeBindAddress string
	SecurePort                                              int
	MetricsSecure                                           bool
	ShutdownDelay                                           time.Duration

	// TLS.
	CertificateSource               string
	TLSCertFile, TLSPrivateKeyFile  string
	TLSMinVersion                   string
	TLSCipherSuites                 []string
	ClientCAFile                    string
	ClientAllowedNames              []string
	CADuration, CertificateDuration time.Duration
	// The Secret that holds the self-managed CA, the names in its certificates, and the
	// configurations that must trust it.
	CertificateSecretNamespace, CertificateSecretName string
	CertificateDNSNames                               []string
	WebhookConfigurationName                          string

	// Values decide about the injection. File is the content of ConfigFile.
	settings.Values

	Kubeconfig, ConfigFile string
	LogFormat              string
	Verbosity              int

	// commandLine returns new options and flags, as the command line without the file
	// sets them.
	commandLine func() (*Options, *pflag.FlagSet)
}

// New returns the default settings.
func New() *Options {
	return &Options{
		BindAddress:            "0.0.0.0",
		SecurePort:             9443,
		MetricsBindAddress:     ":8080",
		HealthProbeBindAddress: ":8081",
		ShutdownDelay:          10 * time.Second,
		CertificateSource:      SelfManaged,

		CertificateSecretName:    "lanyard-webhook-ca",
		WebhookConfigurationName: "lanyard",
		CADuration:               365 * 24 * time.Hour,
		CertificateDuration:      24 * time.Hour,

		TLSMinVersion: "VersionTLS13",
		Values:        settings.Default(),
		LogFormat:     logText,
	}
}

// Flags returns the flags in the groups that --help shows.
func (o *Options) Flags() cliflag.NamedFlagSets {
	var groups cliflag.NamedFlagSets
	o.addServingFlags(groups.FlagSet("Serving"))
	o.addTLSFlags(groups.FlagSet("TLS"))
	o.addInjectionFlags(groups.FlagSet("Injection"))
	o.addProviderFlags(groups.FlagSet("Providers"))
	o.addGeneralFlags(groups.FlagSet("General"))
	return groups
}

// FlagSet returns all flags in one set.
func (o *Options) FlagSet() *pflag.FlagSet { return AllFlags(o.Flags()) }

// AllFlags returns the flags of all groups in one set.
func AllFlags(groups cliflag.NamedFlagSets) *pflag.FlagSet {
	all := pflag.NewFlagSet("lanyard-webhook", pflag.ContinueOnError)
	for _, group := range groups.FlagSets {
		all.AddFlagSet(group)
	}
	return all
}

// Parse returns the options of a command line, which may be of another version: unknown
// flags have no effect. readFile returns the content of the file of --config, if any.
func Parse(args []string, readFile func(name string) ([]byte, error)) (*Options, error) {
	o := New()
	fs := o.FlagSet()
	fs.ParseErrorsAllowlist.UnknownFlags = true
	if err := fs.Parse(args); err != nil {
		return nil, err
	}
	return o, o.loadConfig(fs, readFile)
}

func (o *Options) addServingFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.BindAddress, "bind-address", o.BindAddress, "IP address to serve admission reviews on; 0.0.0.0 or :: for all interfaces and IP families.")
	fs.IntVar(&o.SecurePort, "secure-port", o.SecurePort, "Port to serve admission reviews on, with HTTPS.")
	fs.StringVar(&o.MetricsBindAddress, "metrics-bind-address", o.MetricsBindAddress, "host:port to serve /metrics on, with HTTP; 0 turns it off.")
	fs.BoolVar(&o.MetricsSecure, "metrics-secure", o.MetricsSecure, "Serve /metrics with HTTPS and the serving certificate, to callers with a token of a user who may get the non-resource URL /metrics. The program receives these tokens, see docs/reference/metrics.md. Needs the permission to create TokenReviews and SubjectAccessReviews.")
	fs.StringVar(&o.HealthProbeBindAddress, "health-probe-bind-address", o.HealthProbeBindAddress, "host:port to serve /healthz and /readyz on, with HTTP; 0 turns it off.")
	fs.DurationVar(&o.ShutdownDelay, "shutdown-delay", o.ShutdownDelay, "How long to serve on after SIGTERM, not ready, until the cluster has removed the replica from its Service.")
}

func (o *Options) addTLSFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.CertificateSource, "certificate-source", o.CertificateSource, fmt.Sprintf("Where the serving certificate comes from: %s or %s.", SelfManaged, FromFiles))
	fs.StringVar(&o.CertificateSecretNamespace, "certificate-secret-namespace", o.CertificateSecretNamespace, "Namespace of the Secret that holds the self-managed CA; if empty, the program's own.")
	fs.StringVar(&o.CertificateSecretName, "certificate-secret-name", o.CertificateSecretName, "Name of the Secret that holds the self-managed CA. The program creates it.")
	fs.StringSliceVar(&o.CertificateDNSNames, "certificate-dns-names", o.CertificateDNSNames, "DNS names and IP addresses of the self-managed certificate, separated by commas; if empty, "+serviceName+".<namespace>.svc.")
	fs.StringVar(&o.WebhookConfigurationName, "webhook-configuration-name", o.WebhookConfigurationName, "Name of the MutatingWebhookConfiguration and the ValidatingWebhookConfiguration whose caBundle is set to the self-managed CA.")
	fs.DurationVar(&o.CADuration, "ca-duration", o.CADuration, "Lifetime of the self-managed CA certificate. It is renewed with the same key after two thirds of it.")
	fs.DurationVar(&o.CertificateDuration, "certificate-duration", o.CertificateDuration, "Lifetime of the self-managed serving certificate. It is renewed after two thirds of it.")
	fs.StringVar(&o.TLSCertFile, "tls-cert-file", o.TLSCertFile, "PEM file with the serving certificate for --certificate-source=files, followed by its intermediates. It is read again when it changes.")
	fs.StringVar(&o.TLSPrivateKeyFile, "tls-private-key-file", o.TLSPrivateKeyFile, "PEM file with the key of --tls-cert-file.")
	fs.StringVar(&o.ClientCAFile, "client-ca-file", o.ClientCAFile, "PEM file with CA certificates. If set, callers of --secure-port must present a client certificate of one of these CAs. It is read again when it changes.")
	fs.StringSliceVar(&o.ClientAllowedNames, "client-allowed-names", o.ClientAllowedNames, "Common names or DNS names of the client certificates to accept, separated by commas; if empty, all certificates of --client-ca-file.")
	fs.StringVar(&o.TLSMinVersion, "tls-min-version", o.TLSMinVersion, "Oldest TLS version to accept: "+strings.Join(cliflag.TLSPossibleVersions(), ", ")+".")
	fs.StringSliceVar(&o.TLSCipherSuites, "tls-cipher-suites", o.TLSCipherSuites, "Cipher suites for TLS 1.2 and older, separated by commas; if empty, Go's defaults. TLS 1.3 has its own. Values: "+strings.Join(cliflag.PreferredTLSCipherNames(), ", ")+".")
}

func (o *Options) addInjectionFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.AnnotationPrefix, "annotation-prefix", o.AnnotationPrefix, "Prefix of every annotation and label, with its slash.")
	fs.StringVar(&o.Defaults.TokenMountPath, "token-mount-path", o.Defaults.TokenMountPath, "Absolute path that the token volume is mounted at.")
	fs.StringSliceVar(&o.Defaults.TokenPathPrefixes, "token-path-prefixes", o.Defaults.TokenPathPrefixes, "Directories below which the annotations aws-token-path, azure-token-path and gcp-token-path may have a copy of the token, separated by commas, each with a slash at the end. A copy hides the directory that it is in, in every container.")
	fs.Int64Var(&o.Defaults.TokenExpirationSeconds, "token-expiration-seconds", o.Defaults.TokenExpirationSeconds,
		fmt.Sprintf("Lifetime of the tokens if neither pod nor ServiceAccount sets one, from %d to %d. A provider may need more: azure has at least 3600.",
			annotations.MinTokenExpirationSeconds, annotations.MaxTokenExpirationSeconds))
	fs.StringVar(&o.DefaultAllowedIdentities, "default-allowed-identities", o.DefaultAllowedIdentities,
		"Globs, separated by commas, of the identities that ServiceAccounts may ask for in namespaces without the annotation allowed-identities. "+
			provider.NamespaceVariable+" stands for the namespace's name. "+annotations.AllowNothing+" allows nothing. If empty, everything is allowed.")
	fs.StringSliceVar(&o.Adopt, "adopt", o.Adopt, "Other programs whose annotations on ServiceAccounts are translated to Lanyard's, separated by commas: "+strings.Join(peer.Names(), ", ")+". See docs/migrate/adoption.md.")
	fs.StringSliceVar(&o.ExcludedNamespaces, "excluded-namespaces", o.ExcludedNamespaces, "Namespaces that the webhook configurations exclude, separated by commas. This only affects metrics: ServiceAccounts that ask for an identity there are counted as excluded, not as unguarded.")
}

func (o *Options) addProviderFlags(fs *pflag.FlagSet) {
	for _, p := range settings.Parameters(provider.Builtin()) {
		fs.Var(parameter{o.Defaults.Parameters, p.Key}, p.Flag, p.Usage)
	}
}

// parameter is the value of a provider's flag: an element of Defaults.Parameters.
type parameter struct {
	values map[string]string
	key    string
}

// String implements pflag.Value.
func (p parameter) String() string { return p.values[p.key] }

// Set implements pflag.Value.
func (p parameter) Set(value string) error {
	p.values[p.key] = value
	return nil
}

// Type implements pflag.Value.
func (p parameter) Type() string { return "string" }

func (o *Options) addGeneralFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.Kubeconfig, "kubeconfig", o.Kubeconfig, "Kubeconfig file; not needed in a cluster.")
	fs.StringVar(&o.ConfigFile, "config", o.ConfigFile, "YAML file with any of these settings, by the names of the flags, and with custom providers and identity mappings (docs/providers.md). Flags on the command line take precedence. Changed providers and mappings are used without a restart.")
	fs.StringVar(&o.LogFormat, "log-format", o.LogFormat, "Format of the log: text or json.")
	fs.IntVarP(&o.Verbosity, "v", "v", o.Verbosity, "Verbosity of the log: 0 for operators, 1 for each admission, more for debugging.")
}

// NewLogger returns the logger for the settings.
func (o *Options) NewLogger(w io.Writer) logr.Logger {
	// logr's verbosity n is slog's level -n.
	w = escaped{w}
	handlerOptions := &slog.HandlerOptions{Level: slog.Level(-o.Verbosity), ReplaceAttr: plainLevel}
	if o.LogFormat == logJSON {
		return logr.FromSlogHandler(slog.NewJSONHandler(w, handlerOptions))
	}
	return logr.FromSlogHandler(slog.NewTextHandler(w, handlerOptions))
}

// escaped escapes the control characters that slog writes as they are. It gets a whole line.
type escaped struct{ io.Writer }

// Write implements io.Writer.
func (e escaped) Write(line []byte) (int, error) {
	if _, err := e.Writer.Write(texts.EscapeJSON(line)); err != nil {
		return 0, err
	}
	return len(line), nil
}

// plainLevel writes DEBUG for every verbosity above 0. slog would write DEBUG+3 for
// verbosity 1.
func plainLevel(_ []string, attr slog.Attr) slog.Attr {
	if level, ok := attr.Value.Any().(slog.Level); ok && level < slog.LevelInfo {
		return slog.String(slog.LevelKey, slog.LevelDebug.String())
	}
	return attr
}
