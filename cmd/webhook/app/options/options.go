// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package options holds the settings of lanyard-webhook: their flags, their
// file, and what is allowed in them.
package options

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"

	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/pkg/provider"
)

// Values of --certificate-source.
const (
	// SelfManaged makes and renews the certificate itself.
	SelfManaged = "self-managed"
	// FromFiles reads the certificate from --tls-cert-file and
	// --tls-private-key-file.
	FromFiles = "files"
)

// serviceName is what the manifests and the chart name the Service.
const serviceName = "lanyard-webhook"

// Values of --log-format.
const (
	logText = "text"
	logJSON = "json"
)

// Options are the settings as they are written. Complete makes of them what
// the program works with.
type Options struct {
	// Kubeconfig names a file; empty inside of a cluster.
	Kubeconfig string

	// BindAddress and SecurePort are where reviews are served.
	BindAddress string
	SecurePort  int
	// SocketStore is the path of a store's unix socket; empty for none.
	SocketStore string
	// MetricsBindAddress and HealthProbeBindAddress are host:port; "0" serves
	// none.
	MetricsBindAddress     string
	HealthProbeBindAddress string
	// ShutdownDelay is how long serving goes on after the first signal.
	ShutdownDelay time.Duration

	// CertificateSource is SelfManaged or FromFiles.
	CertificateSource string
	// CertificateSecretNamespace and CertificateSecretName are the Secret's that
	// holds the CA, WebhookConfigurationName is what has to trust it: of
	// SelfManaged, as are the names and durations.
	CertificateSecretNamespace, CertificateSecretName string
	WebhookConfigurationName                          string
	CertificateDNSNames                               []string
	CADuration, CertificateDuration                   time.Duration
	// TLSCertFile and TLSPrivateKeyFile are PEM files.
	TLSCertFile, TLSPrivateKeyFile string
	// TLSMinVersion and TLSCipherSuites are Go's names.
	TLSMinVersion   string
	TLSCipherSuites []string

	// AnnotationPrefix stands before every key.
	AnnotationPrefix string
	// TokenMountPath is where the volume is mounted.
	TokenMountPath string
	// TokenExpirationSeconds is the default.
	TokenExpirationSeconds int64

	// The clouds' defaults.
	AWSDefaultRegion, AWSDefaultAudience                   string
	AzureDefaultTenantID, AzureDefaultAudience             string
	AzureAuthorityHost                                     string
	GCPDefaultWorkloadIdentityProvider, GCPDefaultAudience string

	// ExcludedNamespaces are the namespaces that the webhook configurations exclude
	// by name. They are needed to count ServiceAccounts.
	ExcludedNamespaces []string

	// LogFormat is text or json; Verbosity is 0 for what an operator needs.
	LogFormat string
	Verbosity int

	// ConfigFile holds the same settings.
	ConfigFile string
}

// New gives the default settings.
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

		TLSMinVersion:          "VersionTLS13",
		AnnotationPrefix:       annotations.DefaultPrefix,
		TokenMountPath:         provider.DefaultTokenMountPath,
		TokenExpirationSeconds: annotations.DefaultTokenExpirationSeconds,
		AWSDefaultAudience:     annotations.DefaultAWSAudience,
		AzureDefaultAudience:   annotations.DefaultAzureAudience,
		AzureAuthorityHost:     provider.DefaultAzureAuthorityHost,
		ExcludedNamespaces:     []string{"kube-system"},
		LogFormat:              logText,
	}
}

// Flags gives the flags in the groups that --help shows.
func (o *Options) Flags() cliflag.NamedFlagSets {
	var groups cliflag.NamedFlagSets
	o.addServingFlags(groups.FlagSet("Serving"))
	o.addTLSFlags(groups.FlagSet("TLS"))
	o.addInjectionFlags(groups.FlagSet("Injection"))
	o.addCloudFlags(groups.FlagSet("Clouds"))
	o.addGeneralFlags(groups.FlagSet("General"))
	return groups
}

func (o *Options) addServingFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.BindAddress, "bind-address", o.BindAddress, "IP address to serve admission reviews on; 0.0.0.0 or :: for every interface and IP family.")
	fs.IntVar(&o.SecurePort, "secure-port", o.SecurePort, "Port to serve admission reviews on, with HTTPS.")
	fs.StringVar(&o.MetricsBindAddress, "metrics-bind-address", o.MetricsBindAddress, "host:port to serve /metrics on, with HTTP; 0 to serve none.")
	fs.StringVar(&o.HealthProbeBindAddress, "health-probe-bind-address", o.HealthProbeBindAddress, "host:port to serve /healthz and /readyz on, with HTTP; 0 to serve none.")
	fs.StringVar(&o.SocketStore, "socket-store", o.SocketStore, "Unix socket of a keep-socket command that keeps the socket of --secure-port open while the program is started again; where empty, nothing does.")
	fs.DurationVar(&o.ShutdownDelay, "shutdown-delay", o.ShutdownDelay, "How long to go on serving, not ready, after SIGTERM: the time in which the cluster takes the replica out of its Service.")
}

func (o *Options) addTLSFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.CertificateSource, "certificate-source", o.CertificateSource, fmt.Sprintf("Where the serving certificate comes from: %s or %s.", SelfManaged, FromFiles))
	fs.StringVar(&o.CertificateSecretNamespace, "certificate-secret-namespace", o.CertificateSecretNamespace, "Namespace of the Secret that holds the self-managed CA; where empty, the one that the program runs in.")
	fs.StringVar(&o.CertificateSecretName, "certificate-secret-name", o.CertificateSecretName, "Name of the Secret that holds the self-managed CA. It is made where there is none.")
	fs.StringSliceVar(&o.CertificateDNSNames, "certificate-dns-names", o.CertificateDNSNames, "Names that the self-managed certificate is for, separated by commas; where empty, "+serviceName+".<namespace>.svc.")
	fs.StringVar(&o.WebhookConfigurationName, "webhook-configuration-name", o.WebhookConfigurationName, "Name of the MutatingWebhookConfiguration and the ValidatingWebhookConfiguration that have to trust the self-managed CA: their caBundle is written.")
	fs.DurationVar(&o.CADuration, "ca-duration", o.CADuration, "How long a certificate of the self-managed CA lives. It is renewed, with the same key, when two thirds of that are over.")
	fs.DurationVar(&o.CertificateDuration, "certificate-duration", o.CertificateDuration, "How long a self-managed serving certificate lives. It is renewed when two thirds of that are over.")
	fs.StringVar(&o.TLSCertFile, "tls-cert-file", o.TLSCertFile, "PEM file with the serving certificate of --certificate-source=files, and its intermediates after it. It is read anew when it changes.")
	fs.StringVar(&o.TLSPrivateKeyFile, "tls-private-key-file", o.TLSPrivateKeyFile, "PEM file with the key of --tls-cert-file.")
	fs.StringVar(&o.TLSMinVersion, "tls-min-version", o.TLSMinVersion, "Oldest TLS version to accept: "+strings.Join(cliflag.TLSPossibleVersions(), ", ")+".")
	fs.StringSliceVar(&o.TLSCipherSuites, "tls-cipher-suites", o.TLSCipherSuites, "Cipher suites for TLS 1.2 and older, separated by commas; Go's defaults where empty. TLS 1.3 has its own. Values: "+strings.Join(cliflag.PreferredTLSCipherNames(), ", ")+".")
}

func (o *Options) addInjectionFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.AnnotationPrefix, "annotation-prefix", o.AnnotationPrefix, "Prefix of every annotation and label, with its slash.")
	fs.StringVar(&o.TokenMountPath, "token-mount-path", o.TokenMountPath, "Absolute path that the token volume is mounted at.")
	fs.Int64Var(&o.TokenExpirationSeconds, "token-expiration-seconds", o.TokenExpirationSeconds,
		fmt.Sprintf("Lifetime of the tokens, from %d to %d, where neither pod nor service account says one; at least %d for accounts with Azure.",
			annotations.MinTokenExpirationSeconds, annotations.MaxTokenExpirationSeconds, annotations.MinAzureTokenExpirationSeconds))
	fs.StringSliceVar(&o.ExcludedNamespaces, "excluded-namespaces", o.ExcludedNamespaces, "Namespaces that the webhook configurations exclude, separated by commas. This only affects metrics: ServiceAccounts that ask for an identity there are counted as excluded, not as unguarded.")
}

func (o *Options) addCloudFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.AWSDefaultRegion, "aws-default-region", o.AWSDefaultRegion, "AWS region for accounts that name none; without it they get no region.")
	fs.StringVar(&o.AWSDefaultAudience, "aws-default-audience", o.AWSDefaultAudience, "Audience of AWS tokens.")
	fs.StringVar(&o.AzureDefaultTenantID, "azure-default-tenant-id", o.AzureDefaultTenantID, "Azure tenant, GUID or domain, for accounts that name none.")
	fs.StringVar(&o.AzureDefaultAudience, "azure-default-audience", o.AzureDefaultAudience, "Audience of Azure tokens.")
	fs.StringVar(&o.AzureAuthorityHost, "azure-authority-host", o.AzureAuthorityHost, "URL of the Microsoft Entra authority; another one for sovereign clouds.")
	fs.StringVar(&o.GCPDefaultWorkloadIdentityProvider, "gcp-default-workload-identity-provider", o.GCPDefaultWorkloadIdentityProvider, "Workload identity provider for accounts that name none or \"default\": projects/NUMBER/locations/global/workloadIdentityPools/POOL/providers/PROVIDER.")
	fs.StringVar(&o.GCPDefaultAudience, "gcp-default-audience", o.GCPDefaultAudience, "Audience of Google tokens; where empty, https://iam.googleapis.com/ and the provider's resource name.")
}

func (o *Options) addGeneralFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.Kubeconfig, "kubeconfig", o.Kubeconfig, "Kubeconfig file; not needed inside of a cluster.")
	fs.StringVar(&o.ConfigFile, "config", o.ConfigFile, "YAML file with any of these settings, by the flags' names; a flag on the command line is over it.")
	fs.StringVar(&o.LogFormat, "log-format", o.LogFormat, "Format of the log: text or json.")
	fs.IntVarP(&o.Verbosity, "v", "v", o.Verbosity, "Verbosity of the log: 0 for what an operator needs, 1 for each admission, more for debugging.")
}

// NewLogger gives the logger that the settings ask for.
func (o *Options) NewLogger(w io.Writer) logr.Logger {
	// logr's verbosity n is slog's level -n.
	handlerOptions := &slog.HandlerOptions{Level: slog.Level(-o.Verbosity), ReplaceAttr: plainLevel}
	if o.LogFormat == logJSON {
		return logr.FromSlogHandler(slog.NewJSONHandler(w, handlerOptions))
	}
	return logr.FromSlogHandler(slog.NewTextHandler(w, handlerOptions))
}

// plainLevel writes DEBUG for every verbosity above 0, where slog would write
// DEBUG+3 for the first.
func plainLevel(_ []string, attr slog.Attr) slog.Attr {
	if level, ok := attr.Value.Any().(slog.Level); ok && level < slog.LevelInfo {
		return slog.String(slog.LevelKey, slog.LevelDebug.String())
	}
	return attr
}

// LoadConfig sets from --config what the command line leaves out. fs holds all
// flags, parsed.
func (o *Options) LoadConfig(fs *pflag.FlagSet) error {
	if o.ConfigFile == "" {
		return nil
	}
	text, err := os.ReadFile(o.ConfigFile)
	if err != nil {
		return fmt.Errorf("--config: %w", err)
	}
	if err := applyConfig(fs, text); err != nil {
		return fmt.Errorf("--config %s: %w", o.ConfigFile, err)
	}
	return nil
}
