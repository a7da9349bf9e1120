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

	"github.com/lanyard-dev/lanyard/internal/peer"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/pkg/provider"
)

// namespaceFile has the namespace of the pod that the program runs in.
const namespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// Completed holds valid settings.
type Completed struct {
	*Options
	// Keys, Defaults, Mappings and Peers are for the injector.
	Keys     annotations.Keys
	Defaults annotations.Defaults
	Mappings []*annotations.Mapping
	Peers    []*peer.Peer
	// MinVersion and CipherSuites are for tls.Config.
	MinVersion   uint16
	CipherSuites []uint16
}

// Complete validates the settings. It reports all mistakes at once.
func (o *Options) Complete() (*Completed, error) {
	c := &Completed{Options: o}
	v := validation{}
	c.completeInjection(&v)
	v.check("bind-address", func() error { return validIP(o.BindAddress) })
	v.check("secure-port", func() error { return validPort(o.SecurePort) })
	v.check("metrics-bind-address", func() error { return validAddress(o.MetricsBindAddress) })
	v.check("health-probe-bind-address", func() error { return validAddress(o.HealthProbeBindAddress) })
	v.check("log-format", func() error { return validLogFormat(o.LogFormat) })
	v.check("v", func() error {
		if o.Verbosity < 0 {
			return fmt.Errorf("got %d, want 0 or more", o.Verbosity)
		}
		return nil
	})
	v.check("shutdown-delay", func() error {
		if o.ShutdownDelay < 0 {
			return fmt.Errorf("got %s, want 0 or more", o.ShutdownDelay)
		}
		return nil
	})
	c.completeTLS(&v)
	c.completeProviders(&v)
	if len(v.errs) > 0 {
		return nil, errors.Join(v.errs...)
	}
	return c, nil
}

// CompleteInjection is like Complete, but only validates the settings that decide
// what is injected. Only these are valid in the result.
func (o *Options) CompleteInjection() (*Completed, error) {
	c := &Completed{Options: o}
	v := validation{}
	c.completeInjection(&v)
	c.completeProviders(&v)
	if len(v.errs) > 0 {
		return nil, errors.Join(v.errs...)
	}
	return c, nil
}

func (c *Completed) completeInjection(v *validation) {
	v.check("annotation-prefix", func() (err error) {
		providers := provider.Builtin()
		if c.file != nil {
			providers = append(providers, c.file.Providers...)
		}
		c.Keys, err = annotations.NewKeys(c.AnnotationPrefix, providers)
		return err
	})
	v.check("token-mount-path", func() error { return provider.ValidateTokenMountPath(c.TokenMountPath) })
	v.check("token-expiration-seconds", func() error {
		if err := annotations.ValidateTokenExpirationSeconds(c.TokenExpirationSeconds, 0); err != nil {
			return fmt.Errorf("got %d: %w", c.TokenExpirationSeconds, err)
		}
		return nil
	})
	v.check("default-allowed-identities", func() (err error) {
		if c.DefaultAllowedIdentities == "" {
			return nil
		}
		if c.Defaults.AllowedIdentities, err = annotations.ParseDefaultAllowedIdentities(c.DefaultAllowedIdentities); err != nil {
			return fmt.Errorf("got %q: %w", c.DefaultAllowedIdentities, err)
		}
		return nil
	})
	v.check("excluded-namespaces", func() error {
		for _, name := range c.ExcludedNamespaces {
			if err := validName(name, apivalidation.IsDNS1123Label); err != nil {
				return err
			}
		}
		return nil
	})
	c.Defaults.TokenExpirationSeconds = c.TokenExpirationSeconds
	c.Defaults.TokenMountPath = c.TokenMountPath
}

func (c *Completed) completeTLS(v *validation) {
	v.check("tls-min-version", func() (err error) { c.MinVersion, err = cliflag.TLSVersion(c.TLSMinVersion); return err })
	v.check("tls-cipher-suites", func() (err error) { c.CipherSuites, err = cliflag.TLSCipherSuites(c.TLSCipherSuites); return err })
	v.check("tls-cipher-suites", func() error {
		if len(c.CipherSuites) > 0 && c.MinVersion == tls.VersionTLS13 {
			return errors.New("has no effect with --tls-min-version=VersionTLS13: its suites cannot be chosen")
		}
		return nil
	})
	v.check("client-allowed-names", func() error {
		switch {
		case len(c.ClientAllowedNames) > 0 && c.ClientCAFile == "":
			return errors.New("has no effect without --client-ca-file")
		case slices.Contains(c.ClientAllowedNames, ""):
			return errors.New("got an empty name, which certificates without a common name have")
		}
		return nil
	})
	v.check("unguessable-path", func() error {
		if c.UnguessablePath && c.CertificateSource != SelfManaged {
			return fmt.Errorf("needs --certificate-source=%s, which writes the webhook configurations", SelfManaged)
		}
		return nil
	})
	v.check("certificate-source", func() error {
		switch c.CertificateSource {
		case FromFiles:
			if c.TLSCertFile == "" || c.TLSPrivateKeyFile == "" {
				return fmt.Errorf("%s needs both --tls-cert-file and --tls-private-key-file", FromFiles)
			}
			return nil
		case SelfManaged:
			c.completeSelfManaged(v)
			if c.TLSCertFile != "" || c.TLSPrivateKeyFile != "" {
				return fmt.Errorf("%s issues its own certificate; --tls-cert-file and --tls-private-key-file need --certificate-source=%s", SelfManaged, FromFiles)
			}
			return nil
		}
		return fmt.Errorf("got %q, want %s or %s", c.CertificateSource, SelfManaged, FromFiles)
	})
}

// minCertificateDuration leaves time to renew the certificate and to distribute
// the new one.
const minCertificateDuration = 10 * time.Second

func (c *Completed) completeSelfManaged(v *validation) {
	v.check("certificate-secret-namespace", func() error {
		if c.CertificateSecretNamespace == "" {
			namespace, err := os.ReadFile(namespaceFile)
			if err != nil {
				return fmt.Errorf("got none, and the program does not run in a cluster: %w", err)
			}
			c.CertificateSecretNamespace = strings.TrimSpace(string(namespace))
		}
		return validName(c.CertificateSecretNamespace, apivalidation.IsDNS1123Label)
	})
	v.check("certificate-secret-name", func() error { return validName(c.CertificateSecretName, apivalidation.IsDNS1123Subdomain) })
	v.check("webhook-configuration-name", func() error { return validName(c.WebhookConfigurationName, apivalidation.IsDNS1123Subdomain) })
	if len(c.CertificateDNSNames) == 0 && len(v.errs) == 0 {
		c.CertificateDNSNames = []string{serviceName + "." + c.CertificateSecretNamespace + ".svc"}
	}
	v.check("certificate-dns-names", func() error {
		for _, name := range c.CertificateDNSNames {
			if net.ParseIP(name) != nil {
				continue
			}
			if err := validName(name, apivalidation.IsDNS1123Subdomain); err != nil {
				return err
			}
		}
		return nil
	})
	v.check("certificate-duration", func() error {
		if c.CertificateDuration < minCertificateDuration {
			return fmt.Errorf("got %s, want at least %s", c.CertificateDuration, minCertificateDuration)
		}
		return nil
	})
	v.check("ca-duration", func() error {
		// The CA is renewed after two thirds of its lifetime. What it has signed must
		// expire before it does.
		if c.CADuration < 3*c.CertificateDuration {
			return fmt.Errorf("got %s, want at least three times --certificate-duration, %s", c.CADuration, 3*c.CertificateDuration)
		}
		return nil
	})
}

func validName(value string, problems func(string) []string) error {
	if p := problems(value); len(p) > 0 {
		return fmt.Errorf("got %q: %s", value, strings.Join(p, "; "))
	}
	return nil
}

// validation collects what is wrong, by flag.
type validation struct{ errs []error }

func (v *validation) check(flag string, valid func() error) {
	if err := valid(); err != nil {
		v.errs = append(v.errs, fmt.Errorf("--%s: %w", flag, err))
	}
}

func validIP(value string) error {
	if net.ParseIP(value) == nil {
		return fmt.Errorf("got %q, want an IP address", value)
	}
	return nil
}

func validPort(value int) error {
	if value < 1 || value > 65535 {
		return fmt.Errorf("got %d, want 1 to 65535", value)
	}
	return nil
}

// validAddress accepts host:port, with or without the host, and "0" for none.
func validAddress(value string) error {
	if value == "0" {
		return nil
	}
	_, port, err := net.SplitHostPort(value)
	if err != nil {
		return fmt.Errorf("got %q, want host:port, or 0 for none: %w", value, err)
	}
	number, err := strconv.Atoi(port)
	if err != nil {
		return fmt.Errorf("got port %q, want a number", port)
	}
	return validPort(number)
}

func validLogFormat(value string) error {
	if value != logText && value != logJSON {
		return fmt.Errorf("got %q, want %s or %s", value, logText, logJSON)
	}
	return nil
}
