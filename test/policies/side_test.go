// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lanyard-dev/lanyard/internal/cli/rules"
	"github.com/lanyard-dev/lanyard/internal/settings"
)

// testSideBySide installs two configurations in one cluster, with different prefixes, mount paths
// and names. A pod gets from each what its ServiceAccount asks for there, as from two webhooks.
// The API server has no fixed order of policies, so each order is correct.
func (c *cluster) testSideBySide(t *testing.T) {
	first, second := settingsOf(t, ""), settingsOf(t, "annotation-prefix: example.com/\ntoken-mount-path: /var/run/secrets/example.com\n")
	const group, namespace = "side", "probe-side"
	c.createPlain(t, first.Keys)
	c.installNamed(t, first, "lanyard", group)
	c.installNamed(t, second, "second", group)
	for name, values := range map[string]map[string]string{
		"neither": nil,
		"one":     {"lanyard.dev/aws-role-arn": role},
		"other":   {"example.com/audience": "vault"},
		"both":    {"lanyard.dev/aws-role-arn": role, "example.com/audience": "vault", "example.com/aws-role-arn": role + "2"},
	} {
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: values}}
		account.AutomountServiceAccountToken = new(bool)
		stored, err := c.client.CoreV1().ServiceAccounts(namespace).Create(t.Context(), account, metav1.CreateOptions{})
		must(t, name, err)
		for key, prefix := range map[string]string{first.Keys.IdentityLabel: "lanyard.dev/", second.Keys.IdentityLabel: "example.com/"} {
			_, want := values[prefix+"aws-role-arn"]
			_, plain := values[prefix+"audience"]
			if _, got := stored.Labels[key]; got != (want || plain) {
				t.Errorf("%s: got labels %v", name, stored.Labels)
			}
		}
		c.createAccount(t, plainNamespace, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}})
		if len(values) > 0 {
			c.waitInjected(t, namespace, name, first.Keys.Injected, second.Keys.Injected)
		}
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "pod", Namespace: namespace}, Spec: corev1.PodSpec{ServiceAccountName: name, Containers: []corev1.Container{{Name: "main", Image: "image"}}}}
		got, err := c.client.CoreV1().Pods(namespace).Create(t.Context(), pod, dryRun)
		must(t, name, err)
		var diffs []string
		for _, order := range [][]*settings.Settings{{first, second}, {second, first}} {
			want := pod
			for _, s := range order {
				webhook := rules.New(s)
				webhook.AddServiceAccount(namespace, &stored.ObjectMeta)
				want, _, err = mutated(t, webhook, want)
				must(t, name, err)
			}
			want, err = c.inPlain(t, want)
			must(t, name, err)
			diffs = append(diffs, cmp.Diff(compared(want), compared(got)))
		}
		if !slices.Contains(diffs, "") {
			t.Errorf("%s (-two webhooks +policies):\n%s", name, diffs[0])
		}
	}
}
