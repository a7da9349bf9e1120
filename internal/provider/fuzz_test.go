// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package provider_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/lanyard-dev/lanyard/internal/provider"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

const reserved = "https://kubernetes.default.svc"

// annotated reads one annotation per line: a key without the prefix, "=", and a
// value. The seeds are written like this, and the fuzzer changes them.
func annotated(text string) map[string]string {
	values := map[string]string{}
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		values[annotations.Prefix+key] = value
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
	"tokens=aws, azure",
	"tokens=aws\nazure-client-id=" + clientID,
	"tokens=azure\nazure-client-id=" + clientID,
	"tokens=aws\naws-region=eu-west-1\naudience=x",
	"aws-role-arn=default",
	"aws-role-arn=team/loki\ngcp-service-account=reader",
	"aws-role-arn=" + roleARN + "\naws-role-arn.audit=" + roleARN + "\naws-role-arn.backup=team/$(A)/b\naws-source-profile.backup=audit",
	"aws-role-arn=default\naws-role-arn.a=default\naws-source-profile.a=default\naws-region=eu-west-1",
	"aws-role-arn=" + roleARN + "\naws-role-arn.a=a/#;[x]=\"'/b\naws-role-arn.b=b\naws-source-profile.b=a\naws-source-profile.a=b",
	"aws-role-arn=" + roleARN + "\naws-role-arn.a\rb=c\naws-role-arn.=c\naws-role-arn.default=c\naws-source-profile.z=",
	"aws-role-arn.audit=" + roleARN + "\ntokens=aws",
	"aws-role=x\n=y",
	"a=\nb=\nc=\nd=\ne=\nf=\ng=\nh=\ni=",
	"audience=\xff\x00",
}

// FuzzParseServiceAccount parses random annotations. The result is an identity, nothing, or
// mistakes. The injection for an identity is valid for SDKs and the API server.
func FuzzParseServiceAccount(f *testing.F) {
	for _, seed := range seeds {
		f.Add(seed, false)
		f.Add(seed, true)
	}
	s, err := annotations.NewSettings(provider.Builtin())
	if err != nil {
		f.Fatal(err)
	}
	s.TokenExpirationSeconds, s.ReservedAudiences = 600, []string{reserved}
	s.Parameters = map[string]string{
		"aws-region": "eu-west-1", "azure-tenant-id": tenantID, "gcp-workload-identity-provider": providerName,
		"aws-role-arn": "arn:aws:iam::111122223333:role/{namespace}/{serviceaccount}", "aws-role-arn-prefix": "arn:aws:iam::111122223333:role/",
		"gcp-default-project": "my-project",
	}
	f.Fuzz(func(t *testing.T, text string, windows bool) {
		given := annotated(text)
		account, errs := s.ParseServiceAccount("team-a", "loki", given)
		again, errsAgain := s.ParseServiceAccount("team-a", "loki", given)
		if diff := cmp.Diff(account, again, sameProvider); diff != "" {
			t.Fatalf("%q results in two ServiceAccounts:\n%s", given, diff)
		}
		if diff := cmp.Diff(errs.ToAggregate(), errsAgain.ToAggregate(), cmp.Comparer(sameMessage)); diff != "" {
			t.Fatalf("%q has two lists of mistakes:\n%s", given, diff)
		}
		switch {
		case len(errs) > 0 && account != nil:
			t.Fatalf("%q has identities and mistakes: %v", given, errs.ToAggregate())
		case len(errs) == 0 && (account != nil) != (len(given) > 0):
			t.Fatalf("%q: got %+v and no error", given, account)
		case account != nil && !asksForIdentity(s, given):
			t.Fatalf("%q does not ask for an identity and gets %+v", given, account)
		}
		for _, err := range errs {
			if err.Type == field.ErrorTypeTooMany {
				continue // more unknown keys than a message lists
			}
			if key := strings.TrimSuffix(strings.TrimPrefix(err.Field, "metadata.annotations["), "]"); !strings.HasPrefix(key, annotations.Prefix) || err.Detail == "" {
				t.Errorf("mistake %q does not name the key and what is allowed", err)
			}
		}
		if account == nil {
			return
		}
		checkIdentities(t, s, account, windows)
	})
}

// sameProvider compares providers by name, because they contain functions.
var sameProvider = cmp.Comparer(func(a, b *annotations.Provider) bool { return a.Name == b.Name })

func asksForIdentity(s *annotations.Settings, given map[string]string) bool {
	for key := range given {
		if s.IsIdentity(key) {
			return true
		}
	}
	return false
}

func sameMessage(a, b error) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return a.Error() == b.Error()
}

// checkIdentities checks the identities of a ServiceAccount and their injection.
func checkIdentities(t *testing.T, settings *annotations.Settings, account *annotations.ServiceAccount, windows bool) {
	t.Helper()
	seconds, errs := settings.Expiration(&annotations.Pod{}, account)
	if len(errs) > 0 || seconds < 600 || seconds > 86400 {
		t.Errorf("lifetime: got %d and %v", seconds, errs)
	}
	s := subject()
	s.TokenExpirationSeconds, s.Windows = seconds, windows
	injection := provider.NewInjection(account.Identities, s)
	checkInjection(t, injection)
	if diff := cmp.Diff(injection, provider.NewInjection(account.Identities, s)); diff != "" {
		t.Errorf("the same identities result in two injections:\n%s", diff)
	}
	want := len(injection.Providers)
	for i := range account.Identities {
		want += len(account.Identities[i].Profiles)
		if aws := &account.Identities[i]; len(aws.Profiles) > 0 {
			checkConfig(t, injection.Providers[i].File.Content, aws)
		}
	}
	if len(injection.Providers) == 0 || len(account.Principals()) != want {
		t.Errorf("got the principals %q, want %d for %d providers", account.Principals(), want, len(injection.Providers))
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
	for i := range account.Identities {
		checkEnvironment(t, &account.Identities[i], environment, seconds)
	}
}

// checkEnvironment checks that the values of an identity reach the container.
func checkEnvironment(t *testing.T, identity *annotations.Identity, environment map[string]string, seconds int64) {
	t.Helper()
	check := func(variable, parameter string) {
		if got, want := environment[variable], identity.Values[parameter]; got != want {
			t.Errorf("%s: got %q, want the value %q of %s", variable, got, want, parameter)
		}
	}
	switch identity.Provider.Name {
	case "aws":
		check("AWS_ROLE_ARN", "role-arn")
		check("AWS_REGION", "region")
		if !sessionGrammar.MatchString(environment["AWS_ROLE_SESSION_NAME"]) {
			t.Errorf("%q is not a session name", environment["AWS_ROLE_SESSION_NAME"])
		}
	case "azure":
		check("AZURE_CLIENT_ID", "client-id")
		check("AZURE_TENANT_ID", "tenant-id")
		check("AZURE_AUTHORITY_HOST", "authority-host")
		if seconds < 3600 {
			t.Errorf("lifetime: got %d, want at least 3600", seconds)
		}
	case "gcp":
		if identity.Values["project"] != "" {
			check("GOOGLE_CLOUD_PROJECT", "project")
		}
		if environment["GOOGLE_CLOUD_PROJECT"] != environment["CLOUDSDK_CORE_PROJECT"] {
			t.Errorf("environment %q, want one project", environment)
		}
	}
}
