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

	"github.com/lanyard-dev/lanyard/internal/settings"
	"github.com/lanyard-dev/lanyard/internal/texts"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
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

// Options holds the values of the flags. The usage of each flag explains its field.
type Options struct {
	// How to serve.
	BindAddress, MetricsBindAddress, HealthProbeBindAddress string
	SecurePort                                              int
	MetricsSecure                                           bool
	ShutdownDelay                                           time.Duration

	// TLS.
	CertificateSource              string
	TLSCertFile, TLSPrivateKeyFile string
	TLSMinVersion                  string
	TLSCipherSuites                []string
	// MinVersion and CipherSuites are for the tls.Config. Complete sets them.
	MinVersion                      uint16
	CipherSuites                    []uint16
	ClientCAFile                    string
	ClientAllowedNames              []string
	CADuration, CertificateDuration time.Duration
	// The Secret of the self-managed CA, the names in its certificates, and the webhook
	// configurations that must trust it.
	CertificateSecretNamespace, CertificateSecretName string
	CertificateDNSNames                               []string
	WebhookConfigurationName                          string

	// Injection holds the settings of the injection as they were given. File is the content of
	// ConfigFile, or nil if there is none.
	Injection *annotations.Settings
	File      *settings.File

	Kubeconfig, ConfigFile string
	LogFormat              string
	Verbosity              int
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
		Injection:     settings.Default(),
		LogFormat:     logText,
	}
}

// Flags returns the flags in the groups that --help shows.
func (o *Options) Flags() cliflag.NamedFlagSets {
	var groups cliflag.NamedFlagSets
	o.addServingFlags(groups.FlagSet("Serving"))
	o.addTLSFlags(groups.FlagSet("TLS"))
	o.addFields(groups.FlagSet("Injection"), false)
	o.addFields(groups.FlagSet("Providers"), true)
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

func (o *Options) addServingFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.BindAddress, "bind-address", o.BindAddress, "IP address that serves admission requests. 0.0.0.0 or :: stands for all interfaces and IP families.")
	fs.IntVar(&o.SecurePort, "secure-port", o.SecurePort, "HTTPS port for admission requests.")
	fs.StringVar(&o.MetricsBindAddress, "metrics-bind-address", o.MetricsBindAddress, "host:port that serves /metrics over HTTP. 0 disables it.")
	fs.BoolVar(&o.MetricsSecure, "metrics-secure", o.MetricsSecure, "Serve /metrics over HTTPS, only to callers whose bearer token may get the URL /metrics (docs/reference/metrics.md). Needs the right to create TokenReviews and SubjectAccessReviews.")
	fs.StringVar(&o.HealthProbeBindAddress, "health-probe-bind-address", o.HealthProbeBindAddress, "host:port that serves /healthz and /readyz over HTTP. 0 disables them.")
	fs.DurationVar(&o.ShutdownDelay, "shutdown-delay", o.ShutdownDelay, "How long a replica continues to serve after SIGTERM, while it reports not ready and the Service removes it.")
}

func (o *Options) addTLSFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.CertificateSource, "certificate-source", o.CertificateSource, fmt.Sprintf("Source of the serving certificate: %s or %s.", SelfManaged, FromFiles))
	fs.StringVar(&o.CertificateSecretNamespace, "certificate-secret-namespace", o.CertificateSecretNamespace, "Namespace of the Secret of the self-managed CA. If empty, the namespace of the program.")
	fs.StringVar(&o.CertificateSecretName, "certificate-secret-name", o.CertificateSecretName, "Name of the Secret of the self-managed CA. The program creates it.")
	fs.StringSliceVar(&o.CertificateDNSNames, "certificate-dns-names", o.CertificateDNSNames, "DNS names and IP addresses of the self-managed certificate. If empty, "+serviceName+".<namespace>.svc.")
	fs.StringVar(&o.WebhookConfigurationName, "webhook-configuration-name", o.WebhookConfigurationName, "Name of the two webhook configurations in which the program sets the caBundle to the self-managed CA.")
	fs.DurationVar(&o.CADuration, "ca-duration", o.CADuration, "Lifetime of the self-managed CA. It is renewed after two thirds, with the same key.")
	fs.DurationVar(&o.CertificateDuration, "certificate-duration", o.CertificateDuration, "Lifetime of the self-managed serving certificate. It is renewed after two thirds.")
	fs.StringVar(&o.TLSCertFile, "tls-cert-file", o.TLSCertFile, "PEM file with the serving certificate and its intermediates, for --certificate-source=files. It is reloaded when it changes.")
	fs.StringVar(&o.TLSPrivateKeyFile, "tls-private-key-file", o.TLSPrivateKeyFile, "PEM file with the key of --tls-cert-file.")
	fs.StringVar(&o.ClientCAFile, "client-ca-file", o.ClientCAFile, "PEM file with CA certificates. If set, callers of --secure-port must present a client certificate signed by one of them. It is reloaded when it changes.")
	fs.StringSliceVar(&o.ClientAllowedNames, "client-allowed-names", o.ClientAllowedNames, "Common names or DNS names of accepted client certificates. If empty, all that --client-ca-file signed are accepted.")
	fs.StringVar(&o.TLSMinVersion, "tls-min-version", o.TLSMinVersion, "Minimum TLS version: "+strings.Join(cliflag.TLSPossibleVersions(), ", ")+".")
	fs.StringSliceVar(&o.TLSCipherSuites, "tls-cipher-suites", o.TLSCipherSuites, "Cipher suites for TLS 1.2 and older. If empty, Go's defaults. Values: "+strings.Join(cliflag.PreferredTLSCipherNames(), ", ")+".")
}

// addFields adds the flags of the injection, or of the providers.
func (o *Options) addFields(fs *pflag.FlagSet, ofProvider bool) {
	for _, f := range settings.Fields(o.Injection) {
		if f.OfProvider == ofProvider {
			fs.Var(f.Value, f.Name, f.Usage)
		}
	}
}

func (o *Options) addGeneralFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.Kubeconfig, "kubeconfig", o.Kubeconfig, "Kubeconfig file. Not needed in a cluster.")
	fs.StringVar(&o.ConfigFile, "config", o.ConfigFile, "YAML file with settings by the names of these flags, custom providers and identity mappings (docs/providers.md). Providers and mappings are reloaded when they change. Flags take precedence.")
	fs.StringVar(&o.LogFormat, "log-format", o.LogFormat, "Log format: text or json.")
	fs.IntVarP(&o.Verbosity, "v", "v", o.Verbosity, "Log verbosity: 1 logs each admission; higher values, up to 7, are for debugging.")
}

// maxVerbosity is the highest verbosity of the log. From 8 on, client-go logs the bodies of
// requests and responses: the metadata of all ServiceAccounts and Namespaces.
const maxVerbosity = 7

// NewLogger returns the logger for the settings.
func (o *Options) NewLogger(w io.Writer) logr.Logger {
	// In logr, verbosity n is slog's level -n.
	w = escaped{w}
	handlerOptions := &slog.HandlerOptions{Level: slog.Level(-min(o.Verbosity, maxVerbosity)), ReplaceAttr: plainLevel}
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
