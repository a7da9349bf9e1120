// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package policies_test

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"sigs.k8s.io/yaml"

	"github.com/lanyard-dev/lanyard/internal/settings"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/policies"
)

const roleKey, testRole = "lanyard.dev/aws-role-arn", "arn:aws:iam::111122223333:role/app"

// object returns a ServiceAccount with annotations: keys and values in turn.
func object(namespace, name string, pairs ...string) policies.Account {
	values := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		values[pairs[i]] = pairs[i+1]
	}
	return policies.Account{ServiceAccount: &annotations.Object{Namespace: namespace, Name: name, Annotations: values}}
}

func compile(t *testing.T, file, suffix string, accounts ...policies.Account) (*policies.Compiled, error) {
	t.Helper()
	s, err := settings.Load([]byte(file), nil)
	if err != nil {
		t.Fatal(err)
	}
	return policies.Compile(s, policies.DefaultName, suffix, &policies.Source{}, accounts)
}

// The values of a row are the same as those of the rules in Go.
func TestCompileEvaluates(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", 63)
	for name, test := range map[string]struct {
		file    string
		account policies.Account
		want    string
	}{
		"a role by its name": {"aws-role-arn-prefix: arn:aws:iam::111122223333:role/", object("shop", "cart", roleKey, "app"),
			`'shop/cart': {'aws-audience': 'sts.amazonaws.com', 'aws-default-session-name': 'cart@shop', 'aws-role-arn': '` + testRole + `', 'expires': '3600', 'uses': 'aws'},`},
		"a long session name": {"", object("shop", long, roleKey, testRole), `'aws-default-session-name': '` + strings.Repeat("a", 47) + `=`},
		"a GUID":              {"azure-default-tenant-id: aaaaaaaa-2222-3333-4444-555555555555", object("shop", "cart", "lanyard.dev/azure-client-id", "BBBBBBBB-2222-3333-4444-555555555555"), `'azure-client-id': 'bbbbbbbb-2222-3333-4444-555555555555'`},
		"a mapping": {"identities: [{namespace: shop, serviceAccount: cart, annotations: {aws-role-arn: '" + testRole + "'}}]", object("shop", "cart"),
			`'aws-role-arn': '` + testRole + `'`},
		"a profile":     {"", object("shop", "cart", roleKey, testRole, roleKey+".audit", testRole+"2"), `'aws-profile-principals': '` + testRole + `2'`},
		"only a token":  {"", object("shop", "cart", "lanyard.dev/tokens", "aws"), `'tokens': 'aws', 'uses': 'aws'},`},
		"only required": {"", policies.Account{ServiceAccount: &annotations.Object{Namespace: "shop", Name: "cart", Label: annotations.IdentityRequired}}, `'shop/cart': {'required': 'true'},`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := compile(t, test.file, "", test.account)
			if err != nil || !strings.Contains(got.Mutating, test.want) {
				t.Errorf("got error %v, want rows with %s", err, test.want)
			}
		})
	}
}

// Mistakes are errors that name all ServiceAccounts with one, and there is no text.
func TestCompileDenies(t *testing.T) {
	t.Parallel()
	limited := object("shop", "cart", roleKey, testRole)
	limited.Namespace = &annotations.Object{Name: "shop", Annotations: map[string]string{annotations.AllowedIdentities: "arn:aws:iam::111122223333:role/other"}}
	for name, test := range map[string]struct {
		file     string
		accounts []policies.Account
		want     []string
	}{
		"two mistakes":           {"", []policies.Account{object("shop", "cart", roleKey, "app"), object("shop", "ok", roleKey, testRole), object("shop", "web", "lanyard.dev/aws-rolearn", testRole)}, []string{`serviceaccount "shop/cart"`, `serviceaccount "shop/web"`}},
		"an identity too many":   {"", []policies.Account{limited}, []string{`serviceaccount "shop/cart" asks for the identity "` + testRole + `", but`}},
		"the same twice":         {"", []policies.Account{object("shop", "cart", roleKey, testRole), object("shop", "cart", roleKey, testRole)}, []string{`serviceaccount "shop/cart" is in the input more than once: remove the others`}},
		"nothing":                {"", []policies.Account{object("shop", "cart"), object("kube-system", "cart", roleKey, testRole)}, []string{"got no ServiceAccount with an identity"}},
		"the setting adopt":      {"adopt: [eks]", []policies.Account{object("shop", "cart", roleKey, testRole)}, []string{"adopt: policies cannot adopt"}},
		"a path with characters": {`token-mount-path: /a"b`, []policies.Account{object("shop", "cart", roleKey, testRole)}, []string{"token-mount-path: got"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := compile(t, test.file, "", test.accounts...)
			for _, want := range test.want {
				if got != nil || err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("got %v and error %v, want error %s", got, err, want)
				}
			}
		})
	}
}

// The objects are valid, have the suffix, and refer to no parameter. Whatever the number of
// identities, each expression and object is within its limit, and each ServiceAccount is in exactly
// one policy, even if a table is full.
func TestCompiledPoliciesAreWithinTheLimits(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 400, 2000, 9000} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			var accounts []policies.Account
			for i := range n {
				accounts = append(accounts, object(fmt.Sprintf("namespace-%02d", i%40), fmt.Sprintf("account-%04d", i), roleKey, testRole))
			}
			got, err := compile(t, "", policies.StaticSuffix, accounts...)
			if err != nil {
				t.Fatal(err)
			}
			found, longest, names := 0, 0, map[string]bool{}
			for document := range strings.SplitSeq(got.Text(), "\n---\n") {
				var policy admissionv1.MutatingAdmissionPolicy
				if err := yaml.Unmarshal([]byte(document), &policy); err != nil {
					t.Fatal(err)
				}
				if !strings.HasSuffix(policy.Name, policies.StaticSuffix) {
					t.Errorf("got name %q, want suffix %s", policy.Name, policies.StaticSuffix)
				}
				if policy.Kind != "MutatingAdmissionPolicy" {
					continue
				}
				if err := yaml.UnmarshalStrict([]byte(document), &policy); err != nil || policy.Spec.ParamKind != nil || names[policy.Name] {
					t.Errorf("%s: got error %v, parameter %v, another with the name: %t", policy.Name, err, policy.Spec.ParamKind, names[policy.Name])
				}
				names[policy.Name] = true
				if len(document) > 1<<20 {
					t.Errorf("%s: got %d bytes, want at most 1 MiB", policy.Name, len(document))
				}
				rows, keys := 0, strings.Count(policy.Spec.MatchConditions[0].Expression, "/account-")
				for _, v := range policy.Spec.Variables {
					if strings.HasPrefix(v.Name, "identities") {
						rows += strings.Count(v.Expression, "/account-")
					}
					longest = max(longest, utf8.RuneCountInString(v.Expression))
				}
				for _, m := range policy.Spec.MatchConditions {
					longest = max(longest, utf8.RuneCountInString(m.Expression))
				}
				if keys != rows {
					t.Errorf("%s: got %d names and %d rows", policy.Name, keys, rows)
				}
				found += rows
			}
			if found != n || longest > 100_000 {
				t.Errorf("got %d rows and %d code points, want %d and at most 100000", found, longest, n)
			}
			if n >= 2000 && longest < 95_000 {
				t.Errorf("got at most %d code points in an expression, want nearly full tables", longest)
			}
		})
	}
}
