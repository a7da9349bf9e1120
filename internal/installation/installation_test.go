// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package installation_test

import (
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/lanyard-dev/lanyard/internal/installation"
	"github.com/lanyard-dev/lanyard/test/support/webhook"
)

// registered returns the webhook configuration of deploy/.
func registered(t *testing.T) admissionregistrationv1.MutatingWebhookConfiguration {
	t.Helper()
	configuration, err := webhook.ReadMutating("../../deploy/base")
	if err != nil {
		t.Fatal(err)
	}
	return *configuration
}

func TestFindIsNotMisledByNames(t *testing.T) {
	t.Parallel()
	other := admissionregistrationv1.MutatingWebhookConfiguration{Webhooks: []admissionregistrationv1.MutatingWebhook{{Name: "pods.example.com"}}}
	other.Name = "lanyard"
	own := registered(t)
	own.Name = "release-lanyard"
	found := installation.Find([]admissionregistrationv1.MutatingWebhookConfiguration{other, own})
	if len(found) != 1 || found[0].Name != "release-lanyard" {
		t.Errorf("got %v, want release-lanyard", found)
	}
	for _, name := range []string{installation.PodWebhook, installation.ServiceAccountWebhook, installation.ProbeWebhook} {
		if installation.Entry(&own, name) == nil {
			t.Errorf("deploy/ has no webhook %s", name)
		}
	}
}

func TestSelectorsOfNamespaces(t *testing.T) {
	t.Parallel()
	configuration := registered(t)
	selector, err := installation.Selector(&configuration)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		labels map[string]string
		want   bool
	}{
		{map[string]string{"kubernetes.io/metadata.name": "shop"}, true},
		{map[string]string{"kubernetes.io/metadata.name": "kube-system"}, false},
		{map[string]string{"kubernetes.io/metadata.name": "shop", "lanyard.dev/inject": "disabled"}, false},
		{map[string]string{"kubernetes.io/metadata.name": "shop", "lanyard.dev/inject": "true"}, true},
	} {
		if got := selector.Matches(labels.Set(test.labels)); got != test.want {
			t.Errorf("%v: got %t, want %t", test.labels, got, test.want)
		}
	}
}

func TestConfigurationsWithoutASelector(t *testing.T) {
	t.Parallel()
	configuration := registered(t)
	installation.Entry(&configuration, installation.PodWebhook).NamespaceSelector = nil
	if selector, err := installation.Selector(&configuration); err != nil || !selector.Empty() {
		t.Errorf("got %v and %v, want a selector of everything", selector, err)
	}
	configuration.Webhooks = nil
	if _, err := installation.Selector(&configuration); err == nil {
		t.Error("got no error for a configuration without the webhook")
	}
}
