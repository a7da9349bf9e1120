// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// registration is what the apiserver is told.
type registration struct {
	mutating   []admissionv1.MutatingWebhook
	validating []admissionv1.ValidatingWebhook
	policies   []admissionv1.ValidatingAdmissionPolicy
	bindings   []admissionv1.ValidatingAdmissionPolicyBinding
}

func registered(t *testing.T, objects []object) registration {
	t.Helper()
	var r registration
	for _, o := range objects {
		switch o.GetKind() {
		case "MutatingWebhookConfiguration":
			r.mutating = append(r.mutating, decode[admissionv1.MutatingWebhookConfiguration](t, o).Webhooks...)
		case "ValidatingWebhookConfiguration":
			r.validating = append(r.validating, decode[admissionv1.ValidatingWebhookConfiguration](t, o).Webhooks...)
		case "ValidatingAdmissionPolicy":
			r.policies = append(r.policies, *decode[admissionv1.ValidatingAdmissionPolicy](t, o))
		case "ValidatingAdmissionPolicyBinding":
			r.bindings = append(r.bindings, *decode[admissionv1.ValidatingAdmissionPolicyBinding](t, o))
		}
	}
	if len(r.mutating) != 2 || len(r.validating) != 1 {
		t.Fatalf("got %d mutating and %d validating webhooks, want 2 and 1", len(r.mutating), len(r.validating))
	}
	return r
}

// pods gives the webhook of pods.
func (r registration) pods() admissionv1.MutatingWebhook { return r.mutating[0] }

// policy gives the policy whose name ends so.
func (r registration) policy(t *testing.T, suffix string) admissionv1.ValidatingAdmissionPolicySpec {
	t.Helper()
	for _, p := range r.policies {
		if strings.HasSuffix(p.Name, suffix) {
			return p.Spec
		}
	}
	t.Fatalf("there is no policy whose name ends in %s", suffix)
	return admissionv1.ValidatingAdmissionPolicySpec{}
}

// namespaceSelectors gives all of them, by what they belong to.
func (r registration) namespaceSelectors() map[string]*metav1.LabelSelector {
	selectors := map[string]*metav1.LabelSelector{}
	for _, w := range r.mutating {
		selectors["mutating "+w.Name] = w.NamespaceSelector
	}
	for _, w := range r.validating {
		selectors["validating "+w.Name] = w.NamespaceSelector
	}
	for _, p := range r.policies {
		selectors["policy "+p.Name] = p.Spec.MatchConstraints.NamespaceSelector
	}
	return selectors
}

// selects tells whether a namespace of that name, with labels, is looked at.
func selects(t *testing.T, selector *metav1.LabelSelector, name string, more labels.Set) bool {
	t.Helper()
	s, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		t.Fatal(err)
	}
	return s.Matches(labels.Merge(labels.Set{metav1LabelName: name}, more))
}

const metav1LabelName = "kubernetes.io/metadata.name"

func TestOwnNamespaceAndKubeSystemAreNeverLookedAt(t *testing.T) {
	check := func(t *testing.T, own string, r registration) {
		t.Helper()
		for at, selector := range r.namespaceSelectors() {
			for _, name := range []string{"kube-system", own} {
				if selects(t, selector, name, labels.Set{"tier": "a"}) {
					t.Errorf("%s: %s is selected by %s", at, name, metav1.FormatLabelSelector(selector))
				}
			}
			if !selects(t, selector, "shop", labels.Set{"tier": "a"}) {
				t.Errorf("%s: the namespace shop is not selected", at)
			}
		}
	}
	eachValueSet(t, func(t *testing.T, _ install, r *rendering) { check(t, own(t, r), registered(t, r.objects)) })
	for name, components := range kustomizations {
		t.Run("kustomize: "+name, func(t *testing.T) { check(t, namespace, registered(t, kustomize(t, ca, components...))) })
	}
}

func TestNamespacesOptOutForTheirPodsAlone(t *testing.T) {
	for prefix, v := range map[string]string{"lanyard.dev/": "", "id.example/": "annotationPrefix: id.example/"} {
		t.Run(prefix, func(t *testing.T) {
			r := registered(t, render(t, defaultInstall, parseValues(t, v)).objects)
			optedOut := labels.Set{prefix + "inject": "disabled"}
			for at, selector := range r.namespaceSelectors() {
				pods := strings.Contains(at, "pods")
				if got := selects(t, selector, "shop", optedOut); got == pods {
					t.Errorf("%s: the namespace that opted out is looked at: %t, want %t", at, got, !pods)
				}
			}
		})
	}
}

// The guard must not deny a pod that the webhook would leave alone.
func TestTheGuardLooksAtWhatTheWebhookLooksAt(t *testing.T) {
	r := registered(t, render(t, defaultInstall, parseValues(t, everything)).objects)
	pods, accounts := r.policy(t, "-pods"), r.policy(t, "-serviceaccounts")
	if diff := cmp.Diff(r.pods().NamespaceSelector, pods.MatchConstraints.NamespaceSelector); diff != "" {
		t.Errorf("pods: namespaceSelector (-webhook +guard):\n%s", diff)
	}
	if diff := cmp.Diff(r.pods().ObjectSelector, pods.MatchConstraints.ObjectSelector); diff != "" {
		t.Errorf("pods: objectSelector (-webhook +guard):\n%s", diff)
	}
	own := r.pods().MatchConditions[1:]
	if len(own) != 1 {
		t.Fatalf("got %d match conditions of the user, want 1", len(own))
	}
	for _, condition := range own {
		if !slices.Contains(pods.MatchConditions, condition) {
			t.Errorf("the guard has not the match condition %s", condition.Name)
		}
	}
	if diff := cmp.Diff(r.mutating[1].NamespaceSelector, accounts.MatchConstraints.NamespaceSelector); diff != "" {
		t.Errorf("accounts: namespaceSelector (-webhook +guard):\n%s", diff)
	}
}

func TestTheGuardIsBoundAndDenies(t *testing.T) {
	eachValueSet(t, func(t *testing.T, in install, r *rendering) {
		g := registered(t, r.objects)
		bound := map[string]bool{}
		for _, binding := range g.bindings {
			bound[binding.Spec.PolicyName] = true
		}
		for _, policy := range g.policies {
			if !bound[policy.Name] {
				t.Errorf("the policy %s is bound by nothing", policy.Name)
			}
		}
		if len(bound) != len(g.policies) {
			t.Errorf("got %d bound policies, want %d", len(bound), len(g.policies))
		}
		if in.kubeVersion == kubeVersionWithoutGuard && len(g.policies) > 0 {
			t.Error("there are policies that the cluster does not have")
		}
		// While nothing refuses them, pods must not start bare.
		denies := len(g.bindings) == 2 && slices.Contains(g.bindings[0].Spec.ValidationActions, admissionv1.Deny)
		if got, want := *g.pods().FailurePolicy, map[bool]admissionv1.FailurePolicyType{true: admissionv1.Ignore, false: admissionv1.Fail}[denies]; got != want {
			t.Errorf("the guard denies: %t; got failurePolicy %s, want %s", denies, got, want)
		}
		for _, w := range []*admissionv1.FailurePolicyType{g.mutating[1].FailurePolicy, g.validating[0].FailurePolicy} {
			if *w != admissionv1.Ignore {
				t.Errorf("accounts: got failurePolicy %s, want Ignore", *w)
			}
		}
	})
}

func TestTheFailurePolicyIsTheUsers(t *testing.T) {
	for _, want := range []admissionv1.FailurePolicyType{admissionv1.Fail, admissionv1.Ignore} {
		for _, guard := range []bool{true, false} {
			v := parseValues(t, fmt.Sprintf("webhook: {failurePolicy: %s}\nguard: {enabled: %t}", want, guard))
			r := registered(t, render(t, defaultInstall, v).objects)
			if got := *r.pods().FailurePolicy; got != want {
				t.Errorf("guard %t: got %s, want %s", guard, got, want)
			}
		}
	}
}

func TestEveryKeyHasThePrefix(t *testing.T) {
	r := render(t, defaultInstall, parseValues(t, "annotationPrefix: id.example/"))
	for _, o := range r.objects {
		// The names of webhooks are names, the mount path is a path, and the
		// project is where it is.
		text := strings.NewReplacer("pods.lanyard.dev", "", "serviceaccounts.lanyard.dev", "",
			"/var/run/secrets/lanyard.dev/serviceaccount", "", "lanyard-dev/lanyard", "").Replace(o.text)
		if i := strings.Index(text, "lanyard.dev"); i >= 0 {
			t.Errorf("%s keeps the default prefix: ...%s", o.key(), text[i:min(len(text), i+60)])
		}
	}
	guard := registered(t, r.objects).policy(t, "-pods")
	if got := guard.Variables[0]; got.Name != "prefix" || got.Expression != "'id.example/'" {
		t.Errorf("the guard's prefix: got %+v", got)
	}
}

func TestTheGuardKnowsTheMountPath(t *testing.T) {
	guard := registered(t, render(t, defaultInstall, parseValues(t, "config: {tokenMountPath: /var/run/x}")).objects).policy(t, "-pods")
	if got := guard.Variables[1]; got.Name != "mountPath" || got.Expression != "'/var/run/x'" {
		t.Errorf("got %+v", got)
	}
}

// Whoever writes the caBundle must not have it taken away by an upgrade.
func TestTheCABundleIsRenderedForASecretAlone(t *testing.T) {
	check := func(t *testing.T, objects []object, own bool) {
		t.Helper()
		r := registered(t, objects)
		for name, config := range map[string]admissionv1.WebhookClientConfig{
			"pods": r.mutating[0].ClientConfig, "mutating accounts": r.mutating[1].ClientConfig, "validating accounts": r.validating[0].ClientConfig,
		} {
			if got := string(config.CABundle); own && got != ca || !own && got != "" {
				t.Errorf("%s: got %q", name, got)
			}
		}
		if !own && strings.Contains(textOf(objects), "caBundle:") {
			t.Error("there is a caBundle, even if it is empty")
		}
	}
	for name, set := range valueSets {
		t.Run(name, func(t *testing.T) {
			check(t, render(t, set.in, parseValues(t, set.values)).objects, set.values == caValues)
		})
	}
	for name, components := range kustomizations {
		t.Run("kustomize: "+name, func(t *testing.T) {
			check(t, kustomize(t, ca, components...), slices.Contains(components, "secret"))
		})
	}
}

func textOf(objects []object) string {
	var b strings.Builder
	for _, o := range objects {
		b.WriteString(o.text)
	}
	return b.String()
}

func TestWebhooksHaveNoSideEffectsAndAShortTimeout(t *testing.T) {
	r := registered(t, render(t, defaultInstall, nil).objects)
	for _, w := range r.mutating {
		if *w.SideEffects != admissionv1.SideEffectClassNone || *w.TimeoutSeconds != 5 || *w.ReinvocationPolicy != admissionv1.IfNeededReinvocationPolicy {
			t.Errorf("%s: got side effects %s, %d s, reinvocation %s", w.Name, *w.SideEffects, *w.TimeoutSeconds, *w.ReinvocationPolicy)
		}
	}
}
