// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package provider_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/pkg/provider"
)

const reserved = "https://kubernetes.default.svc"

// annotated reads one annotation a line: a key without the prefix, "=", and a
// value. It is how the seeds are written, and what the fuzzer changes.
func annotated(text string) map[string]string {
	values := map[string]string{}
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		values[annotations.DefaultPrefix+key] = value
	}
	return values
}

var seeds = []string{
	"",
	"aws-role-arn=" + roleARN,
	"aws-role-arn=arn:aws-us-gov:iam::111122223333:role/a/$(HOME)/$$/r\naws-region=us-gov-west-1\naws-audience=x",
	"aws-role-arn=" + roleARN + "\naws-audience=" + reserved,
	"aws-role-arn=" + roleARN + "\ntoken-expiration-seconds=600",
	"aws-region=eu-west-1",
	"aws-role-arn=",
	"azure-client-id=" + clientID,
	"azure-client-id=" + strings.ToUpper(clientID) + "\nazure-tenant-id=contoso.onmicrosoft.com",
	"azure-client-id=" + clientID + "\ntoken-expiration-seconds=3599",
	"azure-client-id=" + clientID + "\nazure-tenant-id=common\nazure-audience=",
	"gcp-workload-identity-provider=default\ngcp-project=example.com:my-project",
	"gcp-workload-identity-provider=https://iam.googleapis.com/" + providerName + "\ngcp-service-account=" + email,
	"gcp-service-account=reader@my-project.example.com.iam.gserviceaccount.com",
	"gcp-service-account=123456789012-compute@developer.gserviceaccount.com",
	"gcp-service-account=my-project@appspot.gserviceaccount.com\ngcp-audience=x",
	"gcp-workload-identity-provider=projects/1/locations/global/workloadIdentityPools/gcp-pool/providers/k8s1",
	"audience=openshift",
	"audience=" + reserved,
	"audience=\naws-role-arn=" + roleARN,
	"aws-role-arn=" + roleARN + "\nazure-client-id=" + clientID + "\ngcp-workload-identity-provider=default\naudience=$(TOKEN)\ntoken-expiration-seconds=86400",
	"token-expiration-seconds=3600",
	"aws-role=x\n=y",
	"audience=\xff\x00",
}

// FuzzParseServiceAccount reads any annotations. Whatever they are, they are an
// identity, or nothing of Lanyard's, or mistakes; and what is injected for an
// identity is what an SDK and the apiserver accept.
func FuzzParseServiceAccount(f *testing.F) {
	for _, seed := range seeds {
		f.Add(seed, false)
		f.Add(seed, true)
	}
	keys, err := annotations.NewKeys(annotations.DefaultPrefix)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text string, windows bool) {
		given := annotated(text)
		defaults := annotations.Defaults{
			TokenExpirationSeconds: 600, AWSRegion: "eu-west-1", AzureTenantID: tenantID, GCPWorkloadIdentityProvider: providerName,
			ReservedAudiences: []string{reserved},
		}
		identity, errs := annotations.ParseServiceAccount(&keys, given, &defaults)
		again, errsAgain := annotations.ParseServiceAccount(&keys, given, &defaults)
		if diff := cmp.Diff(identity, again); diff != "" {
			t.Fatalf("%q is two identities:\n%s", given, diff)
		}
		if diff := cmp.Diff(errs.ToAggregate(), errsAgain.ToAggregate(), cmp.Comparer(sameMessage)); diff != "" {
			t.Fatalf("%q has two lists of mistakes:\n%s", given, diff)
		}
		switch {
		case len(errs) > 0 && identity != nil:
			t.Fatalf("%q is an identity and has mistakes: %v", given, errs.ToAggregate())
		case len(errs) == 0 && (identity != nil) != (len(given) > 0):
			t.Fatalf("%q: got identity %+v and no error", given, identity)
		case identity != nil && !keys.AskForIdentity(given):
			t.Fatalf("%q asks for no identity and gets %+v", given, identity)
		}
		for _, err := range errs {
			if key := strings.TrimSuffix(strings.TrimPrefix(err.Field, "metadata.annotations["), "]"); !strings.HasPrefix(key, keys.Prefix) || err.Detail == "" {
				t.Errorf("mistake %q names no key, or not what is allowed", err)
			}
		}
		if identity == nil {
			return
		}
		checkIdentity(t, &keys, identity, &defaults, windows)
	})
}

func sameMessage(a, b error) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return a.Error() == b.Error()
}

// checkIdentity holds an identity, and what is injected for it, to their rules.
func checkIdentity(t *testing.T, keys *annotations.Keys, identity *annotations.Identity, defaults *annotations.Defaults, windows bool) {
	t.Helper()
	seconds, errs := annotations.Expiration(keys, &annotations.Pod{}, identity, defaults)
	if len(errs) > 0 || seconds < 600 || seconds > 86400 || identity.Azure != nil && seconds < 3600 {
		t.Errorf("lifetime: got %d and %v", seconds, errs)
	}
	s := provider.Subject{Namespace: "team-a", ServiceAccount: "loki", TokenExpirationSeconds: seconds, Windows: windows}
	injection := provider.New(settings(), identity, &s)
	checkInjection(t, injection)
	if diff := cmp.Diff(injection, provider.New(settings(), identity, &s)); diff != "" {
		t.Errorf("the same identity gives two injections:\n%s", diff)
	}
	if len(injection.Providers) == 0 || len(injection.Providers) != len(identity.Names()) {
		t.Errorf("got %d providers for the names %q", len(injection.Providers), identity.Names())
	}
	for _, p := range injection.Providers {
		if p.Token.Audience == reserved || len(p.Token.Audience) > 1024 {
			t.Errorf("%s: audience %q", p.Name, p.Token.Audience)
		}
		if p.Token.ExpirationSeconds != seconds {
			t.Errorf("%s: lifetime %d, want %d", p.Name, p.Token.ExpirationSeconds, seconds)
		}
	}
	environment := expanded(injection)
	if identity.AWS != nil && (environment["AWS_ROLE_ARN"] != identity.AWS.RoleARN || !sessionGrammar.MatchString(environment["AWS_ROLE_SESSION_NAME"])) {
		t.Errorf("environment %q, want the role %q and a session name", environment, identity.AWS.RoleARN)
	}
	if identity.Azure != nil && (environment["AZURE_CLIENT_ID"] != identity.Azure.ClientID || environment["AZURE_TENANT_ID"] != identity.Azure.TenantID) {
		t.Errorf("environment %q, want the client %q of %q", environment, identity.Azure.ClientID, identity.Azure.TenantID)
	}
	if identity.GCP != nil && identity.GCP.Project != environment["GOOGLE_CLOUD_PROJECT"] {
		t.Errorf("environment %q, want the project %q", environment, identity.GCP.Project)
	}
}
