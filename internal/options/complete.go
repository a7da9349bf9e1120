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
)

// namespaceFile has the namespace of the pod that the program runs in.
const namespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// Completed holds valid settings.
type Completed struct {
	*Options
	// MinVersion and CipherSuites are for tls.Config.
	MinVersion   uint16
	CipherSuites []uint16
}

// Complete validates the settings. It reports all mistakes at once.
func (o *Options) Complete() (*Completed, error) {
	c := &Completed{Options: o}
	v := validation{}
	if _, err := o.Settings(nil); err != nil {
		v.errs = append(v.errs, err)
	}
	v.want("bind-address", net.ParseIP(o.BindAddress) != nil, o.BindAddress, "an IP address")
	v.want("secure-port", validPort(o.SecurePort), o.SecurePort, "1 to 65535")
	v.want("metrics-bind-address", validAddress(o.MetricsBindAddress), o.MetricsBindAddress, "host:port, or 0 for none")
	v.want("health-probe-bind-address", validAddress(o.HealthProbeBindAddress), o.HealthProbeBindAddress, "host:port, or 0 for none")
	v.want("log-format", o.LogFormat == logText || o.LogFormat == logJSON, o.LogFormat, logText+" or "+logJSON)
	v.want("v", o.Verbosity >= 0, o.Verbosity, "0 or more")
	v.want("shutdown-delay", o.ShutdownDelay >= 0, o.ShutdownDelay, "0 or more")
	c.completeTLS(&v)
	if c.CertificateSource == SelfManaged {
		c.completeSelfManaged(&v)
	}
	if len(v.errs) > 0 {
		return nil, errors.Join(v.errs...)
	}
	return c, nil
}

// Settings returns the settings of the injection, and only checks these.
// reserved are the audiences of the API server.
func (o *Options) Settings(reserved []string) (*settings.Settings, error) {
	values := o.Values
	values.Defaults.ReservedAudiences = reserved
	s, errs := settings.New(&values)
	for i := range errs {
		errs[i] = fmt.Errorf("--%w", errs[i])
	}
	return s, errors.Join(errs...)
}

func (c *Completed) completeTLS(v *validation) {
	var err error
	c.MinVersion, err = cliflag.TLSVersion(c.TLSMinVersion)
	v.check("tls-min-version", err)
	c.CipherSuites, err = cliflag.TLSCipherSuites(c.TLSCipherSuites)
	v.check("tls-cipher-suites", err)
	if len(c.CipherSuites) > 0 && c.MinVersion == tls.VersionTLS13 {
		v.check("tls-cipher-suites", errors.New("has no effect with --tls-min-version=VersionTLS13: its suites cannot be chosen"))
	}
	switch {
	case len(c.ClientAllowedNames) > 0 && c.ClientCAFile == "":
		v.check("client-allowed-names", errors.New("has no effect without --client-ca-file"))
	case slices.Contains(c.ClientAllowedNames, ""):
		v.check("client-allowed-names", errors.New("got an empty name, which certificates without a common name have"))
	}
	v.check("certificate-source", c.validCertificateSource())
}

func (c *Completed) validCertificateSource() error {
	switch files := c.TLSCertFile != "" || c.TLSPrivateKeyFile != ""; {
	case c.CertificateSource != SelfManaged && c.CertificateSource != FromFiles:
		return fmt.Errorf("got %q, want %s or %s", c.CertificateSource, SelfManaged, FromFiles)
	case c.CertificateSource == FromFiles && (c.TLSCertFile == "" || c.TLSPrivateKeyFile == ""):
		return fmt.Errorf("%s needs both --tls-cert-file and --tls-private-key-file", FromFiles)
	case c.CertificateSource == SelfManaged && files:
		return fmt.Errorf("%s issues its own certificate; --tls-cert-file and --tls-private-key-file need --certificate-source=%s", SelfManaged, FromFiles)
	}
	return nil
}

// minCertificateDuration leaves time to renew the certificate and to distribute
// the new one.
const minCertificateDuration = 10 * time.Second

func (c *Completed) completeSelfManaged(v *validation) {
	if err := c.completeNamespace(); err != nil {
		v.check("certificate-secret-namespace", err)
	} else if len(c.CertificateDNSNames) == 0 {
		c.CertificateDNSNames = []string{serviceName + "." + c.CertificateSecretNamespace + ".svc"}
	}
	v.check("certificate-secret-name", validName(c.CertificateSecretName, apivalidation.IsDNS1123Subdomain))
	v.check("webhook-configuration-name", validName(c.WebhookConfigurationName, apivalidation.IsDNS1123Subdomain))
	for _, name := range c.CertificateDNSNames {
		if net.ParseIP(name) == nil {
			v.check("certificate-dns-names", validName(name, apivalidation.IsDNS1123Subdomain))
		}
	}
	v.want("certificate-duration", c.CertificateDuration >= minCertificateDuration, c.CertificateDuration, "at least "+minCertificateDuration.String())
	// The CA is renewed after two thirds of its lifetime. Certificates that it has
	// signed must expire before it does.
	shortest := 3 * c.CertificateDuration
	v.want("ca-duration", c.CADuration >= shortest, c.CADuration, "at least three times --certificate-duration, "+shortest.String())
}

// completeNamespace sets the namespace of the Secret.
func (c *Completed) completeNamespace() error {
	if c.CertificateSecretNamespace == "" {
		namespace, err := os.ReadFile(namespaceFile)
		if err != nil {
			return fmt.Errorf("got none, and the program does not run in a cluster: %w", err)
		}
		c.CertificateSecretNamespace = strings.TrimSpace(string(namespace))
	}
	return validName(c.CertificateSecretNamespace, apivalidation.IsDNS1123Label)
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

// want adds the error for a value that is not valid.
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
