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
		"a bundle that is not base64": {
			[]any{webhookWith("a", "%")},
			`[{"op":"test","path":"/webhooks/0/name","value":"a"},{"op":"add","path":"/webhooks/0/clientConfig/caBundle","value":"bmV3"}]`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			configuration := &unstructured.Unstructured{Object: map[string]any{"webhooks": test.webhooks}}
			patch := registrationPatch(webhooksOf(configuration), []byte("new"), "")
			if diff := cmp.Diff(test.want, string(patch.Bytes())); diff != "" {
				t.Errorf("patch (-want +got):\n%s", diff)
			}
		})
	}
}

func TestRegistrationPatchOfPaths(t *testing.T) {
	t.Parallel()
	const secret, old = "0123456789abcdef0123456789abcdef", "fedcba9876543210fedcba9876543210"
	service := func(path string) map[string]any {
		return map[string]any{"name": "a", "clientConfig": map[string]any{"caBundle": "bmV3", "service": map[string]any{"name": "s", "path": path}}}
	}
	url := func(url string) map[string]any {
		return map[string]any{"name": "a", "clientConfig": map[string]any{"caBundle": "bmV3", "url": url}}
	}
	replaced := func(field, from, to string) string {
		return `[{"op":"test","path":"/webhooks/0/name","value":"a"},{"op":"test","path":"/webhooks/0/clientConfig/` + field + `","value":"` + from +
			`"},{"op":"add","path":"/webhooks/0/clientConfig/` + field + `","value":"` + to + `"}]`
	}
	for name, test := range map[string]struct {
		webhook any
		segment string
		want    string
	}{
		"no secret path is wanted":                {service("/mutate"), "", ""},
		"no secret path is wanted, but there is":  {service("/mutate/" + secret), "", ""},
		"a plain path":                            {service("/mutate"), secret, replaced("service/path", "/mutate", "/mutate/"+secret)},
		"the secret path":                         {service("/mutate/" + secret), secret, ""},
		"an earlier secret path":                  {service("/mutate/" + old), secret, replaced("service/path", "/mutate/"+old, "/mutate/"+secret)},
		"a path that only resembles a secret one": {service("/mutate/0123"), secret, replaced("service/path", "/mutate/0123", "/mutate/0123/"+secret)},
		"a Service without a path":                {service(""), secret, ""},
		"a plain URL":                             {url("https://h:1/mutate"), secret, replaced("url", "https://h:1/mutate", "https://h:1/mutate/"+secret)},
		"a secret URL":                            {url("https://h:1/mutate/" + secret), secret, ""},
		"neither a Service nor a URL":             {map[string]any{"name": "a", "clientConfig": map[string]any{"caBundle": "bmV3"}}, secret, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			configuration := &unstructured.Unstructured{Object: map[string]any{"webhooks": []any{test.webhook}}}
			patch := registrationPatch(webhooksOf(configuration), []byte("new"), test.segment)
			if diff := cmp.Diff(test.want, string(patch.Bytes())); diff != "" {
				t.Errorf("patch (-want +got):\n%s", diff)
			}
		})
	}
}
