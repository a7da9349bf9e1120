// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package annotations_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/lanyard-dev/lanyard/internal/provider"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

// newSettings returns settings with the built-in providers.
func newSettings(tb testing.TB) *annotations.Settings {
	tb.Helper()
	s, err := annotations.NewSettings(provider.Builtin())
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// generalKeys are the keys that belong to no provider.
func generalKeys() map[string]string {
	return map[string]string{
		"audience":                 annotations.Audience,
		"tokens":                   annotations.Tokens,
		"token-expiration-seconds": annotations.TokenExpirationSeconds,
		"adopted":                  annotations.Adopted,
		"inject":                   annotations.Inject,
		"containers":               annotations.Containers,
		"skip-containers":          annotations.SkipContainers,
		"probe":                    annotations.Probe,
		"injected":                 annotations.Injected,
		"denied":                   annotations.Denied,
		"allowed-identities":       annotations.AllowedIdentities,
		"identity":                 annotations.IdentityLabel,
		"policies":                 annotations.PoliciesSource,
	}
}

// Users write the keys.
func TestKeysDoNotChange(t *testing.T) {
	t.Parallel()
	for name, key := range generalKeys() {
		if want := "lanyard.dev/" + name; key != want {
			t.Errorf("got key %s, want %s", key, want)
		}
	}
	s := newSettings(t)
	serviceAccount := []string{
		"lanyard.dev/aws-role-arn", "lanyard.dev/aws-region", "lanyard.dev/aws-session-name", "lanyard.dev/aws-token-path", "lanyard.dev/aws-audience",
		"lanyard.dev/azure-client-id", "lanyard.dev/azure-tenant-id", "lanyard.dev/azure-token-path", "lanyard.dev/azure-audience",
		"lanyard.dev/gcp-workload-identity-provider", "lanyard.dev/gcp-service-account", "lanyard.dev/gcp-project", "lanyard.dev/gcp-token-path", "lanyard.dev/gcp-audience",
		"lanyard.dev/token-path",
		"lanyard.dev/audience", "lanyard.dev/tokens", "lanyard.dev/token-expiration-seconds", "lanyard.dev/verify",
	}
	if diff := cmp.Diff(serviceAccount, s.ServiceAccountKeys()); diff != "" {
		t.Errorf("keys of a ServiceAccount (-want +got):\n%s", diff)
	}
	pod := []string{
		"lanyard.dev/inject", "lanyard.dev/containers", "lanyard.dev/skip-containers", "lanyard.dev/token-expiration-seconds",
		"lanyard.dev/injected", "lanyard.dev/aws-config", "lanyard.dev/gcp-credentials",
	}
	if diff := cmp.Diff(pod, s.PodKeys()); diff != "" {
		t.Errorf("keys of a pod (-want +got):\n%s", diff)
	}
}

// Each key has one meaning: no two providers share a key, and none uses a general key.
func TestKeysAreUnique(t *testing.T) {
	t.Parallel()
	count := map[string]int{}
	for _, key := range generalKeys() {
		count[key]++
	}
	for _, d := range newSettings(t).Providers {
		for i := range d.Parameters {
			// A key that only the cluster sets may become an annotation, too.
			count[annotations.Key(d, d.Parameters[i].Name)]++
		}
		if !d.Plain() {
			count[annotations.Key(d, "audience")]++
		}
		if d.CredentialFile != nil {
			count[annotations.Prefix+d.CredentialFile.Annotation]++
		}
	}
	for key, n := range count {
		if n > 1 {
			t.Errorf("%s has %d meanings", key, n)
		}
		_, name, _ := strings.Cut(key, "/")
		if problems := validation.IsQualifiedName(key); len(problems) > 0 || strings.ToLower(name) != name {
			t.Errorf("%s: want a lower-case annotation key: %q", key, problems)
		}
	}
}

func TestMaxServiceAccountBytesIsEnoughForEveryValidServiceAccount(t *testing.T) {
	t.Parallel()
	s := newSettings(t)
	limit := s.MaxServiceAccountBytes()
	if limit > 10752 {
		t.Errorf("got %d bytes, want at most 10752: one is kept for each ServiceAccount", limit)
	}

	longest, most := longestServiceAccount(t, s)
	account, errs := s.ParseServiceAccount("team", "loki", longest)
	if len(errs) > 0 || account == nil {
		t.Fatalf("the longest ServiceAccount is not valid: %v", errs.ToAggregate())
	}
	size := 0
	for key, value := range longest {
		size += len(key) + len(value)
	}
	if size > limit {
		t.Errorf("got %d bytes, want at least the %d of a valid ServiceAccount", limit, size)
	}
	if most > limit {
		t.Errorf("got %d bytes, want at least the %d of all keys and the longest values of the providers", limit, most)
	}
}

// longestServiceAccount returns annotations with every key, each with the longest valid
// value, and the size that they would have if each value had as many bytes as the
// providers allow.
func longestServiceAccount(t *testing.T, s *annotations.Settings) (longest map[string]string, most int) {
	t.Helper()
	values := map[string]string{
		"aws-role-arn":                   "arn:aws-iso-b:iam::111122223333:role/" + strings.Repeat("p", 510) + "/" + strings.Repeat("r", 64),
		"aws-region":                     "eu-" + strings.Repeat("a", 59) + "-1",
		"aws-session-name":               "pod",
		"azure-client-id":                clientID,
		"azure-tenant-id":                strings.Repeat("a.", 126) + "a",
		"gcp-workload-identity-provider": "https://iam.googleapis.com/projects/" + strings.Repeat("1", 20) + "/locations/global/workloadIdentityPools/" + strings.Repeat("p", 32) + "/providers/" + strings.Repeat("k", 32),
		"gcp-service-account":            "reader@my-project." + strings.Repeat("d", 278) + ".iam.gserviceaccount.com",
		"gcp-project":                    strings.Repeat("d", 310) + ".c:abcdefg",
		"aws-token-path":                 "/run/secrets/aws/" + strings.Repeat("p", 238),
		"azure-token-path":               "/run/secrets/azure/" + strings.Repeat("p", 236),
		"gcp-token-path":                 "/run/secrets/gcp/" + strings.Repeat("p", 238),
	}
	longest = map[string]string{annotations.TokenExpirationSeconds: "86400"}
	most = len(annotations.TokenExpirationSeconds) + len("86400") + len(annotations.Audience)
	audience := 0
	for _, d := range s.Providers {
		audience = max(audience, d.MaxAudienceBytes)
		if d.Plain() {
			continue
		}
		longest[annotations.Key(d, "audience")] = strings.Repeat("a", d.MaxAudienceBytes)
		most += len(annotations.Key(d, "audience")) + d.MaxAudienceBytes
		for i := range d.Parameters {
			p := &d.Parameters[i]
			if p.ClusterOnly {
				continue
			}
			key := annotations.Key(d, p.Name)
			most += len(key) + p.MaxBytes
			value, found := values[strings.TrimPrefix(key, annotations.Prefix)]
			if !found {
				t.Errorf("%s: the test knows no longest value", key)
			}
			longest[key] = value
		}
	}
	longest[annotations.Audience] = strings.Repeat("a", audience)
	// Six profiles of 640 bytes and one of 256.
	for i, bytes := range []int{510, 510, 510, 510, 510, 510, 126} {
		longest[fmt.Sprintf("%saws-role-arn.p%d", annotations.Prefix, i)] = "arn:aws-us-gov:iam::111122223333:role/" + strings.Repeat("p", bytes) + "/" + strings.Repeat("r", 64)
	}
	most += annotations.MaxProfilesBytes
	var record []string
	for _, key := range s.ServiceAccountKeys() {
		record = append(record, strings.TrimPrefix(key, annotations.Prefix)+"=00000000")
	}
	longest[annotations.Adopted] = strings.Join(record, ",")
	most += len(annotations.Adopted) + len(longest[annotations.Adopted])
	return longest, most + audience
}

func TestIsIdentity(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		key  string
		want bool
	}{
		"no key does not ask":                          {"", false},
		"an AWS role asks":                             {"lanyard.dev/aws-role-arn", true},
		"an Azure client asks":                         {"lanyard.dev/azure-client-id", true},
		"a Google provider asks":                       {"lanyard.dev/gcp-workload-identity-provider", true},
		"a Google service account asks":                {"lanyard.dev/gcp-service-account", true},
		"an audience asks":                             {"lanyard.dev/audience", true},
		"a region is a detail of a role":               {"lanyard.dev/aws-region", false},
		"a tenant is a detail of a client":             {"lanyard.dev/azure-tenant-id", false},
		"a project is a detail of a Google identity":   {"lanyard.dev/gcp-project", false},
		"an AWS audience is a detail of a role":        {"lanyard.dev/aws-audience", false},
		"an Azure audience is a detail of a client":    {"lanyard.dev/azure-audience", false},
		"a Google audience is a detail of an identity": {"lanyard.dev/gcp-audience", false},
		"a lifetime is a detail of tokens":             {"lanyard.dev/token-expiration-seconds", false},
		"a setting of the cluster does not ask":        {"lanyard.dev/azure-authority-host", false},
		"a key of another prefix does not ask":         {"example.com/aws-role-arn", false},
		"a key without a prefix does not ask":          {"aws-role-arn", false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := newSettings(t).IsIdentity(tt.key); got != tt.want {
				t.Errorf("IsIdentity(%q) = %t, want %t", tt.key, got, tt.want)
			}
		})
	}
}

// provided returns a provider with one parameter.
func provided(name, parameter string, maxBytes int) *annotations.Provider {
	return &annotations.Provider{Name: name, MaxAudienceBytes: 1, Parameters: []annotations.Parameter{{Name: parameter, Identity: true, MaxBytes: maxBytes}}}
}

func TestNewSettingsDeniesProvidersThatDoNotGoTogether(t *testing.T) {
	t.Parallel()
	for sentence, tt := range map[string]struct {
		more []*annotations.Provider
		want string // in the error
	}{
		"another provider":                        {[]*annotations.Provider{provided("zeta", "x", 1), provided("alpha", "x", 1)}, ""},
		"the same name twice":                     {[]*annotations.Provider{provided("aws", "x", 1)}, "annotation lanyard.dev/aws-audience has two meanings"},
		"another name and the same annotation":    {[]*annotations.Provider{provided("aws-role", "arn", 1)}, "annotation lanyard.dev/aws-role-arn has two meanings"},
		"an annotation of a pod":                  {[]*annotations.Provider{provided("skip", "containers", 1)}, "annotation lanyard.dev/skip-containers has two meanings"},
		"an annotation of a namespace":            {[]*annotations.Provider{provided("allowed", "identities", 1)}, "annotation lanyard.dev/allowed-identities has two meanings"},
		"the name of a credential file":           {[]*annotations.Provider{provided("gcp-x", "y", 1), provided("gcp", "credentials", 1)}, "has two meanings"},
		"annotations that would not all be kept":  {[]*annotations.Provider{provided("zeta", "x", 32<<10)}, "want at most 32768"},
		"annotations that would just all be kept": {[]*annotations.Provider{provided("zeta", "x", 20<<10)}, ""},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			s, err := annotations.NewSettings(append(provider.Builtin(), tt.more...))
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("got error %v, want %q", err, tt.want)
			}
			if err != nil {
				return
			}
			var names []string
			for _, d := range s.Providers {
				names = append(names, d.Name)
			}
			if last := names[len(names)-1]; last != "token" || !slices.IsSorted(names[:len(names)-1]) {
				t.Errorf("got providers %q, want them sorted, and the plain one last", names)
			}
		})
	}
}

func TestUnknownOnServiceAccount(t *testing.T) {
	t.Parallel()
	got := newSettings(t).UnknownOnServiceAccount(map[string]string{
		"lanyard.dev/aws-role-arn": "", "lanyard.dev/aws-role-arn.audit": "", "lanyard.dev/aws-source-profile.audit": "", "lanyard.dev/adopted": "",
		"lanyard.dev/b": "", "lanyard.dev/a": "", "lanyard.dev/inject": "", "example.com/a": "",
	})
	if diff := cmp.Diff([]string{"lanyard.dev/a", "lanyard.dev/b", "lanyard.dev/inject"}, got); diff != "" {
		t.Errorf("keys (-want +got):\n%s", diff)
	}
}

func TestAServiceAccountWaitsForItsIdentity(t *testing.T) {
	t.Parallel()
	asks, does := map[string]string{"lanyard.dev/aws-role-arn": ""}, map[string]string{"lanyard.dev/aws-region": "eu-central-1"}
	for _, test := range []struct {
		label          string
		values         map[string]string
		guarded, waits bool
	}{
		{"required", nil, true, true},
		{"required", does, true, true},
		{"required", asks, true, false},
		{"enabled", nil, true, false},
		{"enabled", asks, true, false},
		{"Required", nil, false, false},
		{"", nil, false, false},
		{"", asks, false, false},
	} {
		if got := annotations.IsGuarded(test.label); got != test.guarded {
			t.Errorf("%q: got guarded %t", test.label, got)
		}
		if got := newSettings(t).Waits(test.label, test.values); got != test.waits {
			t.Errorf("%q and %v: got waits %t", test.label, test.values, got)
		}
	}
}

func TestAskedProviders(t *testing.T) {
	t.Parallel()
	s := newSettings(t)
	tests := map[string]struct {
		values map[string]string
		want   []string
	}{
		"none":                              {map[string]string{"lanyard.dev/aws-region": "eu-central-1"}, nil},
		"an identity, malformed":            {map[string]string{"lanyard.dev/aws-role-arn": ""}, []string{"aws"}},
		"identities":                        {map[string]string{"lanyard.dev/gcp-service-account": "a", "lanyard.dev/azure-client-id": "b"}, []string{"azure", "gcp"}},
		"a plain token":                     {map[string]string{"lanyard.dev/audience": "x"}, []string{"token"}},
		"an audience of an identity":        {map[string]string{"lanyard.dev/audience": "x", "lanyard.dev/aws-role-arn": "a"}, []string{"aws"}},
		"tokens":                            {map[string]string{"lanyard.dev/tokens": "azure, aws"}, []string{"aws", "azure"}},
		"tokens with an audience":           {map[string]string{"lanyard.dev/tokens": "aws", "lanyard.dev/audience": "x"}, []string{"aws"}},
		"a token and an identity":           {map[string]string{"lanyard.dev/tokens": "aws", "lanyard.dev/azure-client-id": "b"}, []string{"aws", "azure"}},
		"tokens of an unknown provider":     {map[string]string{"lanyard.dev/tokens": "aws,other"}, nil},
		"tokens without a provider in them": {map[string]string{"lanyard.dev/tokens": ""}, nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got []string
			for _, d := range s.Asked(test.values) {
				got = append(got, d.Name)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("providers (-want +got):\n%s", diff)
			}
		})
	}
}

func TestExcludedNamespaces(t *testing.T) {
	t.Parallel()
	s := newSettings(t)
	s.ExcludedNamespaces = []string{"kube-system"}
	for _, test := range []struct {
		namespace, label string
		want             bool
	}{
		{"team", "", false},
		{"team", "enabled", false},
		{"team", annotations.LabelDisabled, true},
		{"team", annotations.OptOut, true},
		{"kube-system", "", true},
		{"kube-system-2", "", false},
	} {
		if got := s.Excludes(test.namespace, test.label); got != test.want {
			t.Errorf("namespace %s with the label %q: got %t, want %t", test.namespace, test.label, got, test.want)
		}
	}
}

func TestTheOwnerOfAKey(t *testing.T) {
	t.Parallel()
	s := newSettings(t)
	for key, want := range map[string]string{
		"lanyard.dev/aws-role-arn": "aws", "lanyard.dev/aws-role-arn.audit": "aws", "lanyard.dev/gcp-audience": "gcp",
		"lanyard.dev/tokens": "", "lanyard.dev/awsx": "", "aws-role-arn": "", "other.dev/aws-role-arn": "",
	} {
		got := ""
		if owner := s.Owner(key); owner != nil {
			got = owner.Name
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", key, got, want)
		}
	}
}

func TestATokenAloneAsksForAnIdentity(t *testing.T) {
	t.Parallel()
	s := newSettings(t)
	for key, want := range map[string]bool{annotations.Tokens: true, annotations.AWSRoleARN: true, annotations.AWSRegion: false, annotations.Inject: false} {
		if got := s.AskForIdentity(map[string]string{key: "x"}); got != want {
			t.Errorf("%s: got %t, want %t", key, got, want)
		}
	}
}

// A credential file may have a secret of a user in it.
func TestMessagesDoNotRepeatACredentialFile(t *testing.T) {
	t.Parallel()
	const content = "s3cr3t"
	_, errs := newSettings(t).ParseServiceAccount("team", "app", prefixed(map[string]string{"gcp-credentials": content, "unknown": "shown"}))
	got := errs.ToAggregate().Error()
	if len(errs) != 2 || strings.Contains(got, content) || !strings.Contains(got, "shown") {
		t.Errorf("got %s, want two errors, and %q in none", got, content)
	}
}

func TestAnObjectHasWhatDecisionsDependOn(t *testing.T) {
	t.Parallel()
	values := map[string]string{"a": "b"}
	meta := &metav1.ObjectMeta{
		Namespace: "team", Name: "app", Annotations: values,
		Labels: map[string]string{annotations.IdentityLabel: annotations.IdentityRequired, annotations.Inject: annotations.LabelDisabled},
	}
	want := &annotations.Object{Namespace: "team", Name: "app", Annotations: values, Label: annotations.IdentityRequired}
	if diff := cmp.Diff(want, annotations.ServiceAccountObject(meta)); diff != "" {
		t.Errorf("ServiceAccount (-want +got):\n%s", diff)
	}
	want = &annotations.Object{Name: "app", Annotations: values, Label: annotations.LabelDisabled}
	if diff := cmp.Diff(want, annotations.NamespaceObject(meta)); diff != "" {
		t.Errorf("Namespace (-want +got):\n%s", diff)
	}
}

func TestTrustHasTheValuesOfItsTemplate(t *testing.T) {
	t.Parallel()
	d := &annotations.Provider{Trust: "trust {subject} with issuer"}
	if !d.TrustHas("subject") || d.TrustHas("issuer") {
		t.Errorf("got %t for subject and %t for issuer, want only the first", d.TrustHas("subject"), d.TrustHas("issuer"))
	}
}
