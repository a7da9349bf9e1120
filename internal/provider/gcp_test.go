// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"maps"
	"testing"

	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

// The project of the service account is more exact than the cluster's.
func TestTheProjectComesFromTheMostExactSource(t *testing.T) {
	t.Parallel()
	const email = "reader@my-project.iam.gserviceaccount.com"
	for sentence, tt := range map[string]struct {
		values annotations.Values
		want   string
	}{
		"the annotation before all others":           {annotations.Values{"project": "annotated", "service-account": email, "default-project": "default"}, "annotated"},
		"the service account before the default":     {annotations.Values{"service-account": email, "default-project": "default"}, "my-project"},
		"the default for direct federation":          {annotations.Values{"default-project": "default"}, "default"},
		"the default for a number in place of an ID": {annotations.Values{"service-account": "1-compute@developer.gserviceaccount.com", "default-project": "default"}, "default"},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			gcp().Derive(tt.values)
			if got := tt.values["project"]; got != tt.want {
				t.Errorf("got project %q, want %q", got, tt.want)
			}
		})
	}
}

func TestProjectOfAServiceAccount(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ email, project string }{
		"a user's own service account has its project in the e-mail": {"reader@my-project.iam.gserviceaccount.com", "my-project"},
		"a domain comes before its project":                          {"reader@my-project.example.com.iam.gserviceaccount.com", "example.com:my-project"},
		"App Engine's service account is named after the project":    {"my-project@appspot.gserviceaccount.com", "my-project"},
		"Compute Engine's e-mail has a number, which is not an ID":   {"123456789012-compute@developer.gserviceaccount.com", ""},
		"direct federation has no service account":                   {"", ""},
	}
	project := parameter(t, "gcp-project")
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := GCPProjectOf(tt.email)
			if got != tt.project {
				t.Errorf("%s: got project %q, want %q", tt.email, got, tt.project)
			}
			if got == "" {
				return
			}
			if _, err := project.Read(got); err != nil {
				t.Errorf("%s: its project %q is not accepted as an annotation: %v", tt.email, got, err)
			}
		})
	}
}

func TestACredentialFileIsReadBack(t *testing.T) {
	t.Parallel()
	file := gcp().CredentialFile
	for _, want := range []annotations.Values{
		{"workload-identity-provider": "projects/1/locations/global/workloadIdentityPools/pool/providers/prov", "service-account": "", "universe-domain": "", "token-file": "/a/token"},
		{"workload-identity-provider": "projects/1/locations/global/workloadIdentityPools/pool/providers/prov", "service-account": "app@my-project-123.iam.gserviceaccount.com", "universe-domain": "s3nsapis.fr", "token-file": `C:\a\token`},
	} {
		if got := file.Read(file.Content(want, nil)); !maps.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
	}
	for _, text := range []string{"", "{", "{}", `{"type":"service_account"}`} {
		if got := file.Read(text); got != nil {
			t.Errorf("%s: got %v, want none", text, got)
		}
	}
}
