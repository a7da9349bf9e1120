// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"cmp"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
)

// grant is one permission of a ServiceAccount: verbs on resources.
type grant struct {
	Account   string
	Namespace string // empty for the whole cluster
	Rule      string
}

// The permissions of the webhook. No others may be rendered.
var (
	reads = grant{"lanyard-system/lanyard-webhook", "", "get,list,watch /serviceaccounts,namespaces"}

	selfManaged = []grant{
		{"lanyard-system/lanyard-webhook", "", "get,list,watch,patch admissionregistration.k8s.io/mutatingwebhookconfigurations,validatingwebhookconfigurations lanyard"},
		{"lanyard-system/lanyard-webhook", "lanyard-system", "get,list,watch,create,update,patch /secrets lanyard-webhook-ca"},
	}

	// secureMetrics are for metrics.secure.
	secureMetrics = []grant{
		{"lanyard-system/lanyard-webhook", "", "create authentication.k8s.io/tokenreviews"},
		{"lanyard-system/lanyard-webhook", "", "create authorization.k8s.io/subjectaccessreviews"},
	}

	// helmTest exists while a test runs. It creates pods only as dry runs.
	helmTest = grant{"lanyard-system/lanyard-test", "default", "create /pods"}
)

func TestPermissionsAreThoseOfTheList(t *testing.T) {
	all := append([]grant{reads, helmTest}, selfManaged...)
	for name, test := range map[string]struct {
		values string
		want   []grant
	}{
		"self-managed":              {"", all},
		"self-managed, and the lot": {monitoringValues, all},
		"cert-manager":              {"certificates: {mode: certManager}", []grant{reads, helmTest}},
		"the user's issuer":         {"certificates: {mode: certManager, issuerRef: {name: corp}}", []grant{reads, helmTest}},
		"openshift":                 {"certificates: {mode: openshift}", []grant{reads, helmTest}},
		"secret":                    {caValues, []grant{reads, helmTest}},
		"no test":                   {"test: {enabled: false}", append([]grant{reads}, selfManaged...)},
		"secure metrics":            {"metrics: {secure: true}", append(slices.Clone(all), secureMetrics...)},
		"the checks":                {checksValues, slices.Concat(all, checksRead)},
		"no rights for the checks":  {checksValues + "rbac: {create: false}", []grant{helmTest}},
		"no rights":                 {"rbac: {create: false}", []grant{helmTest}},
	} {
		t.Run(name, func(t *testing.T) {
			checkGrants(t, render(t, defaultInstall, parseValues(t, test.values)).objects, test.want)
		})
	}
	for name, components := range kustomizations {
		t.Run("kustomize: "+name, func(t *testing.T) {
			want := []grant{reads}
			if !bringsCertificate(components) {
				want = append(want, selfManaged...)
			}
			checkGrants(t, kustomize(t, ca, components...), want)
		})
	}
}

// bringsCertificate reports whether one of the components replaces the self-managed
// certificate.
func bringsCertificate(components []string) bool {
	return slices.ContainsFunc(components, func(c string) bool {
		return c == "cert-manager" || c == "openshift" || c == "secret"
	})
}

func checkGrants(t *testing.T, objects []object, want []grant) {
	t.Helper()
	order := func(a, b grant) int {
		return cmp.Or(cmp.Compare(a.Account, b.Account), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Rule, b.Rule))
	}
	got := grants(t, objects)
	slices.SortFunc(got, order)
	want = slices.SortedFunc(slices.Values(want), order)
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("permissions (-want +got):\n%s", diff)
	}
}

// grants returns each rule of each role that is bound. It fails for roles that are
// not bound, and for bindings to missing roles.
func grants(t *testing.T, objects []object) []grant {
	t.Helper()
	rules := map[string][]rbacv1.PolicyRule{}
	for _, o := range find(objects, "Role") {
		rules[o.key()] = decode[rbacv1.Role](t, o).Rules
	}
	for _, o := range find(objects, "ClusterRole") {
		if o.GetLabels()[aggregateToView] == "" {
			rules[o.key()] = decode[rbacv1.ClusterRole](t, o).Rules
		}
	}
	var got []grant
	used := map[string]bool{}
	for _, o := range append(find(objects, "RoleBinding"), find(objects, "ClusterRoleBinding")...) {
		binding := decode[rbacv1.RoleBinding](t, o)
		key := binding.RoleRef.Kind + "/" + binding.RoleRef.Name
		if binding.RoleRef.Kind == "Role" {
			key = "Role/" + o.GetNamespace() + "/" + binding.RoleRef.Name
		}
		if len(rules[key]) == 0 {
			t.Errorf("%s is bound to %s, which does not exist", o.key(), key)
		}
		used[key] = true
		for _, subject := range binding.Subjects {
			if subject.Kind != rbacv1.ServiceAccountKind {
				t.Errorf("%s: got a subject of the kind %s", o.key(), subject.Kind)
			}
			for _, rule := range rules[key] {
				got = append(got, grant{subject.Namespace + "/" + subject.Name, o.GetNamespace(), ruleText(t, rule)})
			}
		}
	}
	if len(used) != len(rules) {
		t.Errorf("got %d roles, of which %d are bound", len(rules), len(used))
	}
	return got
}

func ruleText(t *testing.T, r rbacv1.PolicyRule) string {
	t.Helper()
	if len(r.NonResourceURLs) > 0 {
		t.Errorf("a rule is about URLs: %v", r.NonResourceURLs)
	}
	text := strings.Join(r.Verbs, ",") + " " + strings.Join(r.APIGroups, ",") + "/" + strings.Join(r.Resources, ",")
	if len(r.ResourceNames) > 0 {
		text += " " + strings.Join(r.ResourceNames, ",")
	}
	return text
}

const aggregateToView = "rbac.authorization.k8s.io/aggregate-to-view"

// Everyone with the ClusterRole view gets these rights, so they must not include reading secrets
// or writing anything.
func TestReadersMayReadTheInstallation(t *testing.T) {
	want := rbacv1.ClusterRole{Rules: []rbacv1.PolicyRule{
		{
			APIGroups: []string{"admissionregistration.k8s.io"}, Verbs: []string{"get", "list", "watch"},
			Resources: []string{
				"mutatingwebhookconfigurations", "validatingwebhookconfigurations", "mutatingadmissionpolicies", "mutatingadmissionpolicybindings",
				"validatingadmissionpolicies", "validatingadmissionpolicybindings",
			},
		},
		{NonResourceURLs: []string{"/.well-known/openid-configuration", "/openid/v1/jwks"}, Verbs: []string{"get"}},
	}}
	for name, role := range map[string]object{
		"chart": one(t, render(t, defaultInstall, nil).objects, "ClusterRole/lanyard-view"), "kustomize": one(t, kustomize(t, ca), "ClusterRole/lanyard-view"),
		"policies": one(t, build(t, deployDir+"/policies"), "ClusterRole/lanyard-policies-view"),
	} {
		if diff := gocmp.Diff(want.Rules, decode[rbacv1.ClusterRole](t, role).Rules); diff != "" || role.GetLabels()[aggregateToView] != "true" {
			t.Errorf("%s: labels %v, rules (-want +got):\n%s", name, role.GetLabels(), diff)
		}
	}
	if all := find(render(t, defaultInstall, parseValues(t, "rbac: {create: false}")).objects, "ClusterRole"); len(all) > 0 {
		t.Errorf("got %s without rbac.create", all[0].key())
	}
}
