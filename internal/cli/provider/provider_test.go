// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package provider_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/lanyard-dev/lanyard/internal/cli/provider"
	"github.com/lanyard-dev/lanyard/internal/settings"
	"github.com/lanyard-dev/lanyard/test/support/optionstest"
)

const config = `token-mount-path: /var/run/tokens
providers:
- name: cloud
  audience: cloud.example.com
  minTokenExpirationSeconds: 7200
  parameters:
  - {name: role, required: true, pattern: 'role/[a-z]+', example: role/loki}
  - {name: tenant, required: true, pattern: '[a-z-]+/[a-z-]+', example: a/b, default: '{namespace}/{serviceaccount}'}
  - {name: region, pattern: '[a-z]+', example: eu, default: eu}
  - {name: zone}
  environment:
  - {name: CLOUD_ROLE, value: '{role}'}
  - {name: CLOUD_TENANT, value: '{tenant}'}
  - {name: CLOUD_REGION, value: '{region}/{zone}'}
  - {name: CLOUD_TOKEN_FILE, value: '{token-file}', credential: true}
- name: cloud-b
  audience: b.example.com
  parameters:
  - {name: id, required: true}
`

// test runs the providers of a configuration file.
func test(t *testing.T, text string, given map[string]string) ([]provider.Result, error) {
	t.Helper()
	file, err := settings.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return provider.Run(optionstest.Settings(t, text), file, given)
}

func TestAProviderGetsItsDefaultsAndExamples(t *testing.T) {
	t.Parallel()
	got, err := test(t, config, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := []provider.Result{
		{
			Provider: "cloud",
			Annotations: map[string]string{
				"lanyard.dev/cloud-role": "role/loki", "lanyard.dev/cloud-tenant": "default", "lanyard.dev/cloud-zone": "example",
			},
			Environment: []corev1.EnvVar{
				{Name: "CLOUD_ROLE", Value: "role/loki"}, {Name: "CLOUD_TENANT", Value: "team/app"},
				{Name: "CLOUD_REGION", Value: "eu/example"}, {Name: "CLOUD_TOKEN_FILE", Value: "/var/run/tokens/cloud/token"},
			},
			Token:  provider.Token{Audience: "cloud.example.com", ExpirationSeconds: 7200, File: "/var/run/tokens/cloud/token"},
			Volume: provider.Volume{Name: "bound-sa-token", MountPath: "/var/run/tokens"},
		},
		{
			Provider:    "cloud-b",
			Annotations: map[string]string{"lanyard.dev/cloud-b-id": "example"},
			Token:       provider.Token{Audience: "b.example.com", ExpirationSeconds: 3600, File: "/var/run/tokens/cloud-b/token"},
			Volume:      provider.Volume{Name: "bound-sa-token", MountPath: "/var/run/tokens"},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("results (-want +got):\n%s", diff)
	}
}

func TestGivenAnnotationsReplaceTheOthers(t *testing.T) {
	t.Parallel()
	got, err := test(t, config, map[string]string{"cloud-role": "role/tempo", "cloud-region": "us", "cloud-b-audience": "other.example.com"})
	if err != nil {
		t.Fatal(err)
	}
	if role, region := got[0].Environment[0].Value, got[0].Environment[2].Value; role != "role/tempo" || region != "us/example" {
		t.Errorf("got the role %q and the region %q", role, region)
	}
	if _, found := got[0].Annotations["lanyard.dev/cloud-b-audience"]; found || got[1].Token.Audience != "other.example.com" {
		t.Errorf("got the annotations %v and the audience %q", got[0].Annotations, got[1].Token.Audience)
	}
}

func TestMistakes(t *testing.T) {
	t.Parallel()
	for sentence, tt := range map[string]struct {
		text  string
		given map[string]string
		want  string
	}{
		"a file without providers":     {"token-mount-path: /a\n", nil, "the file has no providers"},
		"an annotation of no provider": {config, map[string]string{"cloud-rol": "a"}, `annotation "cloud-rol" is unknown: the providers of the file have cloud-role, cloud-tenant, cloud-region, cloud-zone, cloud-audience, cloud-b-id, cloud-b-audience`},
		"a value that is not allowed":  {config, map[string]string{"cloud-role": "Loki"}, `provider cloud: invalid_annotation: serviceaccount "team/app": metadata.annotations[lanyard.dev/cloud-role]: Invalid value: "Loki": must match the pattern role/[a-z]+`},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			_, err := test(t, tt.text, tt.given)
			if err == nil || !strings.HasPrefix(err.Error(), tt.want) {
				t.Errorf("got error %v, want %s", err, tt.want)
			}
		})
	}
}
