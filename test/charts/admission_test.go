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

	"github.com/lanyard-dev/lanyard/internal/provider"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

// registration is the admission configuration of the API server.
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
	var names []string
	for _, w := range r.mutating {
		names = append(names, w.Name)
	}
	if diff := cmp.Diff([]string{"pods.lanyard.dev", "serviceaccounts.lanyard.dev", "probe.lanyard.dev"}, names); diff != "" || len(r.validating) != 1 {
		t.Fatalf("got %d validating webhooks, want 1; mutating webhooks (-want +got):\n%s", len(r.validating), diff)
	}
	return r
}

func (r registration) pods() admissionv1.MutatingWebhook  { return r.mutating[0] }
func (r registration) probe() admissionv1.MutatingWebhook { return r.mutating[2] }

// guard returns the policy that denies pods without credentials.
func (r registration) guard(t *testing.T) admissionv1.ValidatingAdmissionPolicySpec {
	t.Helper()
	policy := r.policy("-guard-pods")
	if policy == nil {
		t.Fatal("there is no guard")
	}
	return policy.Spec
}

// policy returns the policy whose name has this suffix, or nil.
func (r registration) policy(suffix string) *admissionv1.ValidatingAdmissionPolicy {
	for i := range r.policies {
		if strings.HasSuffix(r.policies[i].Name, suffix) {
			return &r.policies[i]
		}
	}
	return nil
}

// namespaceSelectors returns the selectors of all webhooks except the probe, and of all
// policies except the fences, by their names. The probe and the fences have none.
func (r registration) namespaceSelectors() map[string]*metav1.LabelSelector {
	selectors := map[string]*metav1.LabelSelector{}
	for _, w := range r.mutating[:2] {
		selectors["mutating "+w.Name] = w.NamespaceSelector
	}
	for _, w := range r.validating {
		selectors["validating "+w.Name] = w.NamespaceSelector
	}
	for _, p := range r.policies {
		if selector := p.Spec.MatchConstraints.NamespaceSelector; selector != nil {
			selectors["policy "+p.Name] = selector
		}
	}
	return selectors
}

// selects reports whether a namespace with that name and labels is selected.
func selects(t *testing.T, selector *metav1.LabelSelector, name string, more labels.Set) bool {
	t.Helper()
	s, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		t.Fatal(err)
	}
	return s.Matches(labels.Merge(labels.Set{metav1LabelName: name}, more))
}

const metav1LabelName = "kubernetes.io/metadata.name"

func TestTheOwnNamespaceIsNeverSelectedAndKubeSystemIsNeverGuarded(t *testing.T) {
	check := func(t *testing.T, own string, included []string, r registration) {
		t.Helper()
		for at, selector := range r.namespaceSelectors() {
			if selects(t, selector, own, labels.Set{"tier": "a"}) {
				t.Errorf("%s: %s is selected by %s", at, own, metav1.FormatLabelSelector(selector))
			}
			want := slices.Contains(included, "kube-system") && !strings.HasPrefix(at, "policy")
			if got := selects(t, selector, "kube-system", labels.Set{"tier": "a"}); got != want {
				t.Errorf("%s: kube-system is selected: %t, want %t", at, got, want)
			}
			if !selects(t, selector, "shop", labels.Set{"tier": "a"}) {
				t.Errorf("%s: the namespace shop is not selected", at)
			}
		}
	}
	for name, set := range valueSets {
		t.Run(name, func(t *testing.T) {
			r := render(t, set.in, parseValues(t, set.values))
			var included []string
			if strings.Contains(set.values, "excluded-namespaces: []") {
				included = []string{"kube-system"}
			}
			check(t, own(t, r), included, registered(t, r.objects))
		})
	}
	for name, components := range kustomizations {
		t.Run("kustomize: "+name, func(t *testing.T) { check(t, namespace, nil, registered(t, kustomize(t, ca, components...))) })
	}
}

func TestExcludedNamespacesAreExcludedEverywhereAndKnownToTheProgram(t *testing.T) {
	for v, want := range map[string]string{
		"":                                  "--excluded-namespaces=kube-system,lanyard-system",
		"config: {excluded-namespaces: []}": "--excluded-namespaces=lanyard-system",
		"config: {excluded-namespaces: [legacy, kube-system]}":            "--excluded-namespaces=legacy,kube-system,lanyard-system",
		"config: {excluded-namespaces: [lanyard-system, kube-system]}":    "--excluded-namespaces=lanyard-system,kube-system",
		"namespaceOverride: own\nconfig: {excluded-namespaces: [legacy]}": "--excluded-namespaces=legacy,own",
	} {
		t.Run(v, func(t *testing.T) {
			r := render(t, defaultInstall, parseValues(t, v))
			if args := deployment(t, r.objects).Spec.Template.Spec.Containers[0].Args; !slices.Contains(args, want) {
				t.Errorf("got arguments %q, want %s", args, want)
			}
			for at, selector := range registered(t, r.objects).namespaceSelectors() {
				for excluded := range strings.SplitSeq(strings.TrimPrefix(want, "--excluded-namespaces="), ",") {
					if selects(t, selector, excluded, nil) {
						t.Errorf("%s: %s is selected", at, excluded)
					}
				}
			}
		})
	}
}

func TestNamespacesOptOutOnlyForTheirPods(t *testing.T) {
	r := registered(t, render(t, defaultInstall, nil).objects)
	for _, value := range []string{"disabled", "false"} {
		t.Run(value, func(t *testing.T) {
			for at, selector := range r.namespaceSelectors() {
				pods := strings.Contains(at, "pods")
				if got := selects(t, selector, "shop", labels.Set{annotations.Inject: value}); got == pods {
					t.Errorf("%s: the namespace that opted out is selected: %t, want %t", at, got, !pods)
				}
			}
		})
	}
}

func TestTheProbeIsOnlyCalledForLabelledPodsAndReportsFailures(t *testing.T) {
	for name, v := range map[string]string{"defaults": "", "everything": everything} {
		t.Run(name, func(t *testing.T) {
			r := registered(t, render(t, defaultInstall, parseValues(t, v)).objects)
			probe := r.probe()
			want := &metav1.LabelSelector{MatchLabels: map[string]string{annotations.Probe: annotations.LabelProbe}}
			if diff := cmp.Diff(want, probe.ObjectSelector); diff != "" {
				t.Errorf("objectSelector (-want +got):\n%s", diff)
			}
			if probe.NamespaceSelector != nil || len(probe.MatchConditions) > 0 {
				t.Errorf("got namespaceSelector %v and match conditions %v, want none", probe.NamespaceSelector, probe.MatchConditions)
			}
			if *probe.FailurePolicy != admissionv1.Fail {
				t.Errorf("got failurePolicy %s, want Fail", *probe.FailurePolicy)
			}
			if diff := cmp.Diff(r.pods().ClientConfig, probe.ClientConfig); diff != "" {
				t.Errorf("clientConfig (-pods +probe):\n%s", diff)
			}
			if diff := cmp.Diff(r.pods().Rules[:1], probe.Rules); diff != "" {
				t.Errorf("rules (-pods +probe):\n%s", diff)
			}
		})
	}
}

// The guard must not deny a pod that the webhook is not called for.
func TestGuardAndWebhookMatchTheSamePods(t *testing.T) {
	r := registered(t, render(t, defaultInstall, parseValues(t, everything)).objects)
	pods := r.guard(t)
	if diff := cmp.Diff(r.pods().NamespaceSelector, pods.MatchConstraints.NamespaceSelector); diff != "" {
		t.Errorf("pods: namespaceSelector (-webhook +guard):\n%s", diff)
	}
	selector := r.pods().ObjectSelector.DeepCopy()
	selector.MatchExpressions = append(selector.MatchExpressions, metav1.LabelSelectorRequirement{
		Key: annotations.IdentityLabel, Operator: metav1.LabelSelectorOpNotIn, Values: []string{"injected"},
	})
	if diff := cmp.Diff(selector, pods.MatchConstraints.ObjectSelector); diff != "" {
		t.Errorf("pods: objectSelector (-webhook, without injected pods +guard):\n%s", diff)
	}
	own := r.pods().MatchConditions[1:]
	if len(own) != 1 {
		t.Fatalf("got %d match conditions of the user, want 1", len(own))
	}
	for _, condition := range own {
		if !slices.Contains(pods.MatchConditions, condition) {
			t.Errorf("the guard lacks the match condition %s", condition.Name)
		}
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
		if in.KubeVersion == kubeVersionWithoutGuard && len(g.policies) > 0 {
			t.Error("there are policies that the cluster does not have")
		}
		// If nothing denies them, pods must not start without credentials.
		denies := slices.ContainsFunc(g.bindings, func(b admissionv1.ValidatingAdmissionPolicyBinding) bool {
			return strings.HasSuffix(b.Name, "-guard-pods") && slices.Contains(b.Spec.ValidationActions, admissionv1.Deny)
		})
		if got, want := *g.pods().FailurePolicy, map[bool]admissionv1.FailurePolicyType{true: admissionv1.Ignore, false: admissionv1.Fail}[denies]; got != want {
			t.Errorf("the guard denies: %t; got failurePolicy %s, want %s", denies, got, want)
		}
		if got := *g.mutating[1].FailurePolicy; got != admissionv1.Fail {
			t.Errorf("labels of ServiceAccounts: got failurePolicy %s, want Fail", got)
		}
		if got := *g.validating[0].FailurePolicy; got != admissionv1.Ignore {
			t.Errorf("validation of ServiceAccounts: got failurePolicy %s, want Ignore", got)
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

func TestTheGuardKnowsTheMountPath(t *testing.T) {
	guard := registered(t, render(t, defaultInstall, parseValues(t, "config: {token-mount-path: /var/run/x}")).objects).guard(t)
	const want = "(m.mountPath + '/').startsWith('/var/run/x/')"
	if got := guard.MatchConditions[0].Expression; !strings.Contains(got, want) {
		t.Errorf("got %s, want it to contain %s", got, want)
	}
}

// After an upgrade to another certificate mode, there must be a fence for each
// permission that the webhook has, and none for others.
func TestFencesMatchTheInstalledObjects(t *testing.T) {
	check := func(t *testing.T, objects []object, fenced bool) {
		t.Helper()
		r := registered(t, objects)
		if got := r.policy("-guard-marks") != nil; got != fenced {
			t.Errorf("fence around the marks: got %t, want %t", got, fenced)
		}
		patches := slices.ContainsFunc(grants(t, objects), func(g grant) bool {
			return strings.Contains(g.Rule, "patch admissionregistration.k8s.io/")
		})
		if got, want := r.policy("-guard-serviceaccounts") != nil, fenced && r.policy("-guard-pods") != nil; got != want {
			t.Errorf("limit of ServiceAccounts: got %t, want %t", got, want)
		}
		registration := r.policy("-guard-registration")
		if got, want := registration != nil, fenced && patches; got != want {
			t.Fatalf("fence around the registration: got %t, want %t", got, want)
		}
		if registration == nil {
			return
		}
		spec := deployment(t, objects).Spec.Template.Spec
		account := "system:serviceaccount:" + deployment(t, objects).Namespace + ":" + spec.ServiceAccountName
		if got := registration.Spec.MatchConditions[0].Expression; !strings.HasSuffix(got, "== '"+account+"'") {
			t.Errorf("got the condition %s, want one for %s", got, account)
		}
	}
	for name, set := range valueSets {
		if name == "no rights and no account" { // somebody else grants them
			continue
		}
		t.Run(name, func(t *testing.T) {
			check(t, render(t, set.in, parseValues(t, set.values)).objects,
				set.in.KubeVersion != kubeVersionWithoutGuard && !strings.Contains(set.values, "fences: {enabled: false}"))
		})
	}
	for name, components := range kustomizations {
		t.Run("kustomize: "+name, func(t *testing.T) {
			check(t, kustomize(t, ca, components...), !slices.Contains(components, "no-fences"))
		})
	}
}

func TestTheDefaultAudiencesAreCloudAudiences(t *testing.T) {
	policy := registered(t, render(t, defaultInstall, parseValues(t, everything)).objects).policy("-token-audiences")
	var text strings.Builder
	for _, variable := range policy.Spec.Variables {
		text.WriteString(variable.Expression)
	}
	for _, validation := range policy.Spec.Validations {
		text.WriteString(validation.Expression)
	}
	wanted := []string{
		"|| audience == 'a')", "|| audience == 'b')", "|| audience == 'c' && variables.provider == '')",
		"provider == 'default' ? 'projects/1/locations/global/workloadIdentityPools/pool/providers/prov' : provider",
		"'lanyard.dev/aws-role-arn' in variables.annotations",
	}
	for _, d := range provider.Builtin() {
		if !d.Plain() {
			audience, _, _ := strings.Cut(d.DefaultAudience, "{")
			wanted = append(wanted, "'"+d.Key("audience")+"'", "audience.startsWith('"+audience)
		}
	}
	for _, want := range wanted {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the policy lacks %s:\n%s", want, text.String())
		}
	}
}

// The guard has few lines, and each of its two policies contains the rule about mounts.
// Everything else belongs to the webhook.
func TestTheGuardIsShortAndKnowsNoProvider(t *testing.T) {
	guard := registered(t, render(t, defaultInstall, nil).objects).guard(t)
	var expressions []string
	for _, condition := range guard.MatchConditions {
		expressions = append(expressions, condition.Expression)
	}
	for _, variable := range guard.Variables {
		expressions = append(expressions, variable.Expression)
	}
	for _, validation := range guard.Validations {
		expressions = append(expressions, validation.Expression, validation.MessageExpression)
	}
	text := strings.Join(expressions, "\n")
	for _, word := range []string{"aws", "azure", "gcp", "google", "env", "AWS_", "AZURE_"} {
		if strings.Contains(text, word) {
			t.Errorf("the guard mentions %s:\n%s", word, text)
		}
	}
	// YAML folds lines, so count those of the manifest.
	lines, in := 0, false
	for line := range strings.Lines(readFile(t, deployDir+"/base/70-guard.yaml")) {
		key := strings.TrimLeft(line, " -")
		starts := strings.HasPrefix(key, "expression:") || strings.HasPrefix(key, "messageExpression:")
		if in = starts || in && strings.HasPrefix(line, "        "); in && !strings.HasSuffix(line, ">-\n") {
			lines++
		}
	}
	if lines < 5 || lines > 60 {
		t.Errorf("got %d lines of expressions, want at most 60", lines)
	}
	t.Logf("%d lines of expressions", lines)
}

// An upgrade must not remove a caBundle that another program writes.
func TestTheCABundleIsOnlyRenderedForASecret(t *testing.T) {
	check := func(t *testing.T, objects []object, own bool) {
		t.Helper()
		r := registered(t, objects)
		for name, config := range map[string]admissionv1.WebhookClientConfig{
			"pods": r.mutating[0].ClientConfig, "mutating accounts": r.mutating[1].ClientConfig, "validating accounts": r.validating[0].ClientConfig, "probe": r.probe().ClientConfig,
		} {
			if got := string(config.CABundle); own && got != ca || !own && got != "" {
				t.Errorf("%s: got %q", name, got)
			}
		}
		if !own && strings.Contains(textOf(objects), "caBundle:") {
			t.Error("there is a caBundle, even if empty")
		}
	}
	for name, set := range valueSets {
		t.Run(name, func(t *testing.T) {
			check(t, render(t, set.in, parseValues(t, set.values)).objects, strings.HasPrefix(set.values, caValues))
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
		if *w.SideEffects != admissionv1.SideEffectClassNone || *w.TimeoutSeconds != 5 {
			t.Errorf("%s: got side effects %s and %d s, want None and 5 s", w.Name, *w.SideEffects, *w.TimeoutSeconds)
		}
	}
}
