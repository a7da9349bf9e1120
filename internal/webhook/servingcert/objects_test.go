// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package servingcert

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func TestRegistrationPatchOfCABundles(t *testing.T) {
	t.Parallel()
	webhookWith := func(name, caBundle string) map[string]any {
		return map[string]any{"name": name, "clientConfig": map[string]any{"caBundle": caBundle}}
	}
	for name, test := range map[string]struct {
		webhooks []any
		want     string
	}{
		"webhooks with the bundle need no patch": {[]any{webhookWith("a", "bmV3"), webhookWith("b", "bmV3")}, ""},
		"a configuration without webhooks":       {nil, ""},
		"a webhook with another bundle": {
			[]any{webhookWith("a", "bmV3"), webhookWith("b", "b2xk")},
			`[{"op":"test","path":"/webhooks/1/name","value":"b"},{"op":"add","path":"/webhooks/1/clientConfig/caBundle","value":"bmV3"}]`,
		},
		"a webhook without a bundle": {
			[]any{map[string]any{"name": "a", "clientConfig": map[string]any{}}},
			`[{"op":"test","path":"/webhooks/0/name","value":"a"},{"op":"add","path":"/webhooks/0/clientConfig/caBundle","value":"bmV3"}]`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			configuration := &unstructured.Unstructured{Object: map[string]any{"webhooks": test.webhooks}}
			patch := registrationPatch(webhooksOf(configuration), []byte("new"))
			if diff := cmp.Diff(test.want, string(patch.Bytes())); diff != "" {
				t.Errorf("patch (-want +got):\n%s", diff)
			}
		})
	}
}
