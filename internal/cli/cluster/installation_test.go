// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster_test

import (
	"maps"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lanyard-dev/lanyard/internal/cli/cluster"
	"github.com/lanyard-dev/lanyard/internal/options"
	"github.com/lanyard-dev/lanyard/internal/peer"
	"github.com/lanyard-dev/lanyard/internal/probe"
	"github.com/lanyard-dev/lanyard/internal/provider"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/test/support/webhook"
)

// registered returns the webhook configuration of deploy/.
func registered(t *testing.T) admissionregistrationv1.MutatingWebhookConfiguration {
	t.Helper()
	configuration, err := webhook.ReadMutating("../../../deploy/base")
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
	found := cluster.Find([]admissionregistrationv1.MutatingWebhookConfiguration{other, own})
	if len(found) != 1 || found[0].Name != "release-lanyard" {
		t.Errorf("got %v, want release-lanyard", found)
	}
	for _, name := range []string{cluster.PodWebhook, cluster.ServiceAccountWebhook, probe.Webhook} {
		if cluster.Entry(&own, name) == nil {
			t.Errorf("deploy/ has no webhook %s", name)
		}
	}
}

func TestSelectorsOfNamespaces(t *testing.T) {
	t.Parallel()
	configuration := registered(t)
	for _, test := range []struct {
		labels map[string]string
		want   bool
	}{
		{map[string]string{"kubernetes.io/metadata.name": "shop"}, true},
		{map[string]string{"kubernetes.io/metadata.name": "kube-system"}, false},
		{map[string]string{"kubernetes.io/metadata.name": "shop", "lanyard.dev/inject": "disabled"}, false},
		{map[string]string{"kubernetes.io/metadata.name": "shop", "lanyard.dev/inject": "true"}, true},
	} {
		got := cluster.CalledFor(&configuration, nil, &metav1.ObjectMeta{Name: test.labels["kubernetes.io/metadata.name"], Labels: test.labels})
		if got != test.want {
			t.Errorf("%v: got %t, want %t", test.labels, got, test.want)
		}
	}
}

func TestUnguardedServiceAccounts(t *testing.T) {
	t.Parallel()
	s, err := annotations.NewSettings(provider.Builtin())
	if err != nil {
		t.Fatal(err)
	}
	own := func(value string) map[string]string { return map[string]string{"lanyard.dev/aws-role-arn": value} }
	theirs := map[string]string{"eks.amazonaws.com/role-arn": "r"}
	adopted := peer.Adopt(s, peer.All(), theirs).Set
	with := func(value string) map[string]string {
		all := maps.Clone(adopted)
		all["eks.amazonaws.com/role-arn"] = value
		return all
	}
	label := map[string]string{"lanyard.dev/identity": "enabled"}
	for name, test := range map[string]struct {
		annotations, labels map[string]string
		adopts              bool
		want                bool
	}{
		"an identity without the label":               {annotations: own("x"), want: true},
		"an identity with another value of the label": {annotations: own("x"), labels: map[string]string{"lanyard.dev/identity": "true"}, want: true},
		"an identity with the label":                  {annotations: own("x"), labels: label},
		"an identity with the user's value":           {annotations: own("x"), labels: map[string]string{"lanyard.dev/identity": "required"}},
		"no identity":                                 {annotations: map[string]string{"lanyard.dev/aws-region": "x"}},
		"nothing":                                     {},
		"a peer's identity, not adopted":              {annotations: theirs, adopts: true, want: true},
		"a peer's identity of a peer that is not":     {annotations: theirs},
		"a peer's identity, adopted":                  {annotations: with("r"), labels: label, adopts: true},
		"a peer's identity that changed since":        {annotations: with("s"), labels: label, adopts: true, want: true},
		"a peer's identity beside one by hand":        {annotations: map[string]string{"eks.amazonaws.com/role-arn": "r", "lanyard.dev/aws-role-arn": "x"}, labels: label, adopts: true},
		"a peer's identity of another cloud":          {annotations: map[string]string{"azure.workload.identity/client-id": "c", "lanyard.dev/aws-role-arn": "x"}, labels: label, adopts: true, want: true},
	} {
		s.Peers = nil
		if test.adopts {
			s.Peers = peer.Names()
		}
		object := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Annotations: test.annotations, Labels: test.labels}}
		if got := cluster.Unguarded(s, object); got != test.want {
			t.Errorf("%s: got %t, want %t", name, got, test.want)
		}
	}
}

func TestNamespacesAndTheirGuard(t *testing.T) {
	t.Parallel()
	s, err := options.New().Settings(nil)
	if err != nil {
		t.Fatal(err)
	}
	registration := func(selector *metav1.LabelSelector) *admissionregistrationv1.MutatingWebhookConfiguration {
		return &admissionregistrationv1.MutatingWebhookConfiguration{Webhooks: []admissionregistrationv1.MutatingWebhook{{Name: cluster.PodWebhook, NamespaceSelector: selector}}}
	}
	byName := registration(&metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpNotIn, Values: []string{"shop"}},
	}})
	disabled := map[string]string{"lanyard.dev/inject": "disabled"}
	for name, test := range map[string]struct {
		registration *admissionregistrationv1.MutatingWebhookConfiguration
		namespace    metav1.ObjectMeta
		label        string
		want         cluster.Guard
	}{
		"a labelled ServiceAccount":                          {nil, metav1.ObjectMeta{Name: "shop"}, "enabled", cluster.GuardOn},
		"a ServiceAccount without the label":                 {nil, metav1.ObjectMeta{Name: "shop"}, "", cluster.GuardOff},
		"a namespace that opts out":                          {nil, metav1.ObjectMeta{Name: "shop", Labels: disabled}, "", cluster.GuardExcluded},
		"a namespace that the settings exclude":              {nil, metav1.ObjectMeta{Name: "kube-system"}, "enabled", cluster.GuardExcluded},
		"a namespace that the registration excludes":         {byName, metav1.ObjectMeta{Name: "shop"}, "enabled", cluster.GuardExcluded},
		"a namespace that the registration does not exclude": {byName, metav1.ObjectMeta{Name: "web"}, "enabled", cluster.GuardOn},
		"a registration without the webhook":                 {new(admissionregistrationv1.MutatingWebhookConfiguration), metav1.ObjectMeta{Name: "shop"}, "enabled", cluster.GuardExcluded},
		"a registration that selects all":                    {registration(nil), metav1.ObjectMeta{Name: "kube-system", Labels: disabled}, "enabled", cluster.GuardOn},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			object := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
				Annotations: map[string]string{"lanyard.dev/audience": "vault"}, Labels: map[string]string{"lanyard.dev/identity": test.label},
			}}
			called := cluster.CalledFor(test.registration, s, &test.namespace)
			if got := cluster.GuardOf(s, object, called); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}
