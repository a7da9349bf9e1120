// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	apivalidation "k8s.io/apimachinery/pkg/util/validation"
	cliflag "k8s.io/component-base/cli/flag"

	"github.com/lanyard-dev/lanyard/internal/settings"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

// namespaceFile contains the namespace of the pod that the program runs in.
const namespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// Complete returns the settings of the injection. It also validates the other options and fills in
// those that are derived. It reports all mistakes at once. reserved lists the audiences of the API
// server.
func (o *Options) Complete(reserved []string) (*annotations.Settings, error) {
	s, err := o.Settings(reserved)
	v := validation{errs: []error{err}}
	v.want("bind-address", net.ParseIP(o.BindAddress) != nil, o.BindAddress, "an IP address")
	v.want("secure-port", validPort(o.SecurePort), o.SecurePort, "1 to 65535")
	v.want("metrics-bind-address", validAddress(o.MetricsBindAddress), o.MetricsBindAddress, "host:port, or 0 for none")
	v.want("health-probe-bind-address", validAddress(o.HealthProbeBindAddress), o.HealthProbeBindAddress, "host:port, or 0 for none")
	v.want("log-format", o.LogFormat == logText || o.LogFormat == logJSON, o.LogFormat, logText+" or "+logJSON)
	v.want("v", o.Verbosity >= 0, o.Verbosity, "0 or more")
	v.want("shutdown-delay", o.ShutdownDelay >= 0, o.ShutdownDelay, "0 or more")
	o.completeTLS(&v)
	if o.SelfManaged() {
		o.completeSelfManaged(&v)
	}
	if err := errors.Join(v.errs...); err != nil {
		return nil, err
	}
	return s, nil
}

// Settings validates and returns only the settings of the injection.
func (o *Options) Settings(reserved []string) (*annotations.Settings, error) {
	written := *o.Injection
	written.ReservedAudiences = reserved
	s, errs := settings.New(&written, o.File)
	for i := range errs {
		errs[i] = fmt.Errorf("--%w", errs[i])
	}
	return s, errors.Join(errs...)
}

// SelfManaged reports whether the program issues its own certificate.
func (o *Options) SelfManaged() bool { return o.CertificateSource == SelfManaged }

func (o *Options) completeTLS(v *validation) {
	var err error
	o.MinVersion, err = cliflag.TLSVersion(o.TLSMinVersion)
	v.check("tls-min-version", err)
	o.CipherSuites, err = cliflag.TLSCipherSuites(o.TLSCipherSuites)
	v.check("tls-cipher-suites", err)
	if len(o.CipherSuites) > 0 && o.MinVersion == tls.VersionTLS13 {
		v.check("tls-cipher-suites", errors.New("has no effect with --tls-min-version=VersionTLS13: its suites cannot be chosen"))
	}
	switch {
	case len(o.ClientAllowedNames) > 0 && o.ClientCAFile == "":
		v.check("client-allowed-names", errors.New("has no effect without --client-ca-file"))
	case slices.Contains(o.ClientAllowedNames, ""):
		v.check("client-allowed-names", errors.New("got an empty name, which certificates without a common name have"))
	}
	v.check("certificate-source", o.validCertificateSource())
}

func (o *Options) validCertificateSource() error {
	switch files := o.TLSCertFile != "" || o.TLSPrivateKeyFile != ""; {
	case o.CertificateSource != SelfManaged && o.CertificateSource != FromFiles:
		return fmt.Errorf("got %q, want %s or %s", o.CertificateSource, SelfManaged, FromFiles)
	case o.CertificateSource == FromFiles && (o.TLSCertFile == "" || o.TLSPrivateKeyFile == ""):
		return fmt.Errorf("%s needs both --tls-cert-file and --tls-private-key-file", FromFiles)
	case o.SelfManaged() && files:
		return fmt.Errorf("%s issues its own certificate; --tls-cert-file and --tls-private-key-file need --certificate-source=%s", SelfManaged, FromFiles)
	}
	return nil
}

// minCertificateDuration leaves time to renew the certificate and to distribute
// the new one.
const minCertificateDuration = 10 * time.Second

func (o *Options) completeSelfManaged(v *validation) {
	if err := o.completeNamespace(); err != nil {
		v.check("certificate-secret-namespace", err)
	} else if len(o.CertificateDNSNames) == 0 {
		o.CertificateDNSNames = []string{serviceName + "." + o.CertificateSecretNamespace + ".svc"}
	}
	v.check("certificate-secret-name", validName(o.CertificateSecretName, apivalidation.IsDNS1123Subdomain))
	v.check("webhook-configuration-name", validName(o.WebhookConfigurationName, apivalidation.IsDNS1123Subdomain))
	for _, name := range o.CertificateDNSNames {
		if net.ParseIP(name) == nil {
			v.check("certificate-dns-names", validName(name, apivalidation.IsDNS1123Subdomain))
		}
	}
	v.want("certificate-duration", o.CertificateDuration >= minCertificateDuration, o.CertificateDuration, "at least "+minCertificateDuration.String())
	// The CA is renewed after two thirds of its lifetime. Certificates that it has
	// signed must expire before it does.
	shortest := 3 * o.CertificateDuration
	v.want("ca-duration", o.CADuration >= shortest, o.CADuration, "at least three times --certificate-duration, "+shortest.String())
}

// completeNamespace sets the namespace of the Secret.
func (o *Options) completeNamespace() error {
	if o.CertificateSecretNamespace == "" {
		namespace, err := os.ReadFile(namespaceFile)
		if err != nil {
			return fmt.Errorf("got none, and the program does not run in a cluster: %w", err)
		}
		o.CertificateSecretNamespace = strings.TrimSpace(string(namespace))
	}
	return validName(o.CertificateSecretNamespace, apivalidation.IsDNS1123Label)
}

func validName(value string, problems func(string) []string) error {
	if p := problems(value); len(p) > 0 {
		return fmt.Errorf("got %q: %s", value, strings.Join(p, "; "))
	}
	return nil
}

// validation collects errors, by flag.
type validation struct{ errs []error }

func (v *validation) check(flag string, err error) {
	if err != nil {
		v.errs = append(v.errs, fmt.Errorf("--%s: %w", flag, err))
	}
}

// want adds an error unless the value is valid.
func (v *validation) want(flag string, valid bool, got any, want string) {
	if text, ok := got.(string); ok {
		got = strconv.Quote(text)
	}
	if !valid {
		v.check(flag, fmt.Errorf("got %v, want %s", got, want))
	}
}

func validPort(port int) bool { return port > 0 && port <= 65535 }

// validAddress accepts host:port, with or without the host, and "0" for none.
func validAddress(value string) bool {
	_, port, _ := net.SplitHostPort(value)
	number, _ := strconv.Atoi(port)
	return value == "0" || validPort(number)
}
