// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package injector_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lanyard-dev/lanyard/internal/webhook/injector"
	"github.com/lanyard-dev/lanyard/pkg/mutate/reason"
)

// The message of a denial must name its origin: the administrators of the namespace can
// change the annotation, and those of the cluster the flag.
func TestTheClustersDefaultPolicy(t *testing.T) {
	t.Parallel()
	const (
		annotation = "lanyard.dev/allowed-identities"
		asks       = `serviceaccount "team/app" asks for the identity "` + role + `", but `
		byDefault  = asks + `its namespace has no annotation ` + annotation + `, and the cluster's default, --default-allowed-identities, allows `
	)
	roles := func(name string) string { return strings.Replace(role, "role/app", "role/"+name, 1) }
	tests := map[string]struct {
		defaults  []string
		namespace map[string]string
		denied    string // the message after the reason, or none if it is allowed
	}{
		"no default allows everything":               {},
		"a default that has the identity":            {defaults: []string{"x", roles("*")}},
		"a default without the identity":             {defaults: []string{roles("x")}, denied: byDefault + `only ["` + roles("x") + `"]`},
		"a default that allows nothing":              {defaults: []string{}, denied: byDefault + "nothing"},
		"a default of another namespace":             {defaults: []string{roles("{namespace}-*")}, denied: byDefault + `only ["` + roles("team-*") + `"]`},
		"a default of the same namespace":            {defaults: []string{"*/team*", "*:role/app"}},
		"the annotation overrides the default":       {defaults: []string{}, namespace: map[string]string{annotation: "*"}},
		"the annotation denies what the default has": {defaults: []string{"*"}, namespace: map[string]string{annotation: "x"}, denied: asks + "annotation " + annotation + ` of its namespace allows only ["x"]`},
		"the annotation may allow nothing":           {defaults: []string{"*"}, namespace: map[string]string{annotation: "-"}, denied: asks + "annotation " + annotation + ` of its namespace allows nothing`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pods, _ := newPods(t, map[string]string{"lanyard.dev/aws-role-arn": role})
			pods.AllowedIdentities = test.defaults
			pods.Namespaces = objects{"/team": test.namespace}
			validator := &injector.ServiceAccountValidator{Config: pods.Config, Invalidator: &invalidated{}}
			for webhook, got := range map[string]decision{
				"pod":            ask(t, pods, create([]byte(plainPod))),
				"ServiceAccount": ask(t, validator, write(account(withRole), nil)),
			} {
				message := ""
				if test.denied != "" {
					message = "lanyard: " + string(reason.IdentityNotAllowed) + ": " + test.denied
				}
				if diff := cmp.Diff(message, got.Message); diff != "" {
					t.Errorf("%s: message (-want +got):\n%s", webhook, diff)
				}
			}
		})
	}
}

// The default also applies to a namespace without any annotation, and contains the name
// of each namespace.
func TestTheDefaultPolicyHasTheNameOfTheNamespace(t *testing.T) {
	t.Parallel()
	pods, _ := newPods(t, nil)
	pods.AllowedIdentities = []string{"arn:aws:iam::*:role/{namespace}-*"}
	values := map[string]string{"lanyard.dev/aws-role-arn": "arn:aws:iam::111122223333:role/blue-backup"}
	pods.ServiceAccounts = objects{"blue/app": values, "green/app": values}
	pods.Namespaces = objects{"/blue": nil, "/green": nil}
	for namespace, want := range map[string]reason.Reason{"blue": reason.Injected, "green": reason.IdentityNotAllowed} {
		request := create([]byte(plainPod))
		request.Namespace = namespace
		if got := ask(t, pods, request); got.Reason != want {
			t.Errorf("%s: got %+v, want reason %s", namespace, got, want)
		}
	}
}
