// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"slices"
	"strings"
	"testing"

	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
)

// clientConfigs returns how the API server calls each webhook, by the webhook's name.
func (r registration) clientConfigs() map[string]admissionv1.WebhookClientConfig {
	configs := map[string]admissionv1.WebhookClientConfig{}
	for _, w := range r.mutating {
		configs["mutating "+w.Name] = w.ClientConfig
	}
	for _, w := range r.validating {
		configs["validating "+w.Name] = w.ClientConfig
	}
	return configs
}

// TestEveryWebhookIsCalledAtTheURL checks that URLs have the paths of the Service, at which
// the program listens.
func TestEveryWebhookIsCalledAtTheURL(t *testing.T) {
	const url = "https://lanyard.example:9443"
	for _, mode := range []string{"certificates: {mode: selfManaged}\n", "certificates: {mode: certManager}\n", caValues} {
		service := registered(t, render(t, defaultInstall, parseValues(t, mode)).objects).clientConfigs()
		configs := registered(t, render(t, defaultInstall, parseValues(t, mode+"webhook: {url: '"+url+"'}")).objects).clientConfigs()
		if len(configs) != 4 {
			t.Errorf("got %d webhooks, want 4", len(configs))
		}
		for name, got := range configs {
			want := admissionv1.WebhookClientConfig{URL: new(url + *service[name].Service.Path), CABundle: service[name].CABundle}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s: %s (-want +got):\n%s", mode, name, diff)
			}
		}
	}
}

// The certificate keeps the name of the Service, which may be used to read the metrics.
func TestTheCertificateIsForTheHostOfTheURL(t *testing.T) {
	for url, test := range map[string]struct{ names, addresses []string }{
		"":                              {[]string{serverName}, nil},
		"https://lanyard.example":       {[]string{serverName, "lanyard.example"}, nil},
		"https://lanyard.example:9443":  {[]string{serverName, "lanyard.example"}, nil},
		"https://192.0.2.1:9443":        {[]string{serverName}, []string{"192.0.2.1"}},
		"https://[2001:db8::1]:9443":    {[]string{serverName}, []string{"2001:db8::1"}},
		"https://10-0-0-1.example:9443": {[]string{serverName, "10-0-0-1.example"}, nil},
	} {
		t.Run(url, func(t *testing.T) {
			values := "webhook: {url: '" + url + "'}\n"
			o := loadOptions(t, render(t, defaultInstall, parseValues(t, values)).objects, "")
			if _, err := o.Complete(nil); err != nil {
				t.Error(err)
			}
			if diff := cmp.Diff(slices.Concat(test.names, test.addresses), o.CertificateDNSNames); diff != "" {
				t.Errorf("selfManaged (-want +got):\n%s", diff)
			}
			objects := render(t, defaultInstall, parseValues(t, values+"certificates: {mode: certManager}")).objects
			certificate := decode[certmanagerv1.Certificate](t, one(t, objects, "Certificate/lanyard-system/lanyard-webhook-tls")).Spec
			if diff := cmp.Diff(test.names, certificate.DNSNames); diff != "" {
				t.Errorf("certManager: dnsNames (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.addresses, certificate.IPAddresses); diff != "" {
				t.Errorf("certManager: ipAddresses (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTheCertificateIsForTheService(t *testing.T) {
	for values, want := range map[string]string{"": serverName, "webhook: {url: 'https://lanyard.example:9443'}": "lanyard.example"} {
		text := find(render(t, defaultInstall, parseValues(t, values)).objects, "Service")[0].text
		if !strings.Contains(text, "# The certificate must be valid for "+want+".\n") {
			t.Errorf("%s: want %s:\n%s", values, want, text)
		}
	}
}
