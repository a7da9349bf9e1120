// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

const checksDir = deployDir + "/checks"

// checks returns the objects of deploy/checks.
func checks(t *testing.T) []object {
	t.Helper()
	return build(t, checksDir)
}

// checkJobs returns the CronJobs of the checks.
func checkJobs(t *testing.T, objects []object) []batchv1.CronJob {
	t.Helper()
	var jobs []batchv1.CronJob
	for _, o := range find(objects, "CronJob") {
		jobs = append(jobs, *decode[batchv1.CronJob](t, o))
	}
	if len(jobs) != 2 {
		t.Fatalf("got %d CronJobs, want 2", len(jobs))
	}
	return jobs
}

const checksAccount = "lanyard-system/lanyard-checks"

// checksRead are the permissions of the checks. They may create nothing, not even pods as
// dry runs, because users who may create pods can act as any ServiceAccount.
var checksRead = []grant{
	{checksAccount, "", "list /namespaces,pods,serviceaccounts"},
	{checksAccount, "", "get,list /replicationcontrollers"},
	{checksAccount, "", "get,list apps/daemonsets,deployments,replicasets,statefulsets"},
	{checksAccount, "", "get,list batch/cronjobs,jobs"},
	{checksAccount, "", "list admissionregistration.k8s.io/mutatingwebhookconfigurations"},
	{checksAccount, "", "list admissionregistration.k8s.io/validatingadmissionpolicies"},
	{checksAccount, "", "list admissionregistration.k8s.io/validatingadmissionpolicybindings"},
	{checksAccount, "lanyard-system", "get /configmaps,services"},
}

func TestTheChecksMayOnlyRead(t *testing.T) {
	checkGrants(t, checks(t), checksRead)
}

func TestTheChecksAreRestricted(t *testing.T) {
	checkRestricted(t, podSpecs(t, checks(t)))
}

// The chart renders the checks only if they are enabled, and then as deploy/checks.
func TestChartAndKustomizeRenderTheSameChecks(t *testing.T) {
	without := byKey(render(t, defaultInstall, nil).objects)
	added := byKey(render(t, defaultInstall, parseValues(t, checksValues)).objects)
	for key, object := range without {
		if diff := cmp.Diff(object, added[key]); diff != "" {
			t.Errorf("%s, which is no check (-without +with checks.enabled):\n%s", key, diff)
		}
		delete(added, key)
	}
	if diff := cmp.Diff(byKey(checks(t)), added); diff != "" {
		t.Errorf("(-kustomize +chart):\n%s", diff)
	}
}

// The pods of the checks run where the webhook's pods run, but the Service must not select
// them, because it would send them reviews.
func TestThePodsOfTheChecksAreLikeTheWebhooks(t *testing.T) {
	objects := render(t, defaultInstall, merge(parseValues(t, everything), parseValues(t, "image: {pullPolicy: Always}"))).objects
	webhook := deployment(t, objects)
	selector, err := metav1.LabelSelectorAsSelector(webhook.Spec.Selector)
	if err != nil {
		t.Fatal(err)
	}
	type shared struct {
		NodeSelector map[string]string
		Tolerations  []corev1.Toleration
		PullPolicy   corev1.PullPolicy
		Team         string // one of commonLabels
		Contact      string // one of commonAnnotations
	}
	of := func(pod corev1.PodTemplateSpec) shared {
		return shared{pod.Spec.NodeSelector, pod.Spec.Tolerations, pod.Spec.Containers[0].ImagePullPolicy, pod.Labels["team"], pod.Annotations["contact"]}
	}
	for _, job := range checkJobs(t, objects) {
		pod := job.Spec.JobTemplate.Spec.Template
		if diff := cmp.Diff(of(webhook.Spec.Template), of(pod)); diff != "" {
			t.Errorf("%s (-webhook +check):\n%s", job.Name, diff)
		}
		if selector.Matches(labels.Set(pod.Labels)) {
			t.Errorf("%s: the Service selects the pods with the labels %v", job.Name, pod.Labels)
		}
	}
}

// Without an issuer, as for clouds with uploaded keys, there is no CronJob that reads the keys.
func TestOnlyAnIssuerIsRead(t *testing.T) {
	jobs := find(render(t, defaultInstall, parseValues(t, "checks: {enabled: true}")).objects, "CronJob")
	if len(jobs) != 1 || jobs[0].GetName() != "lanyard-stale-pods" {
		t.Errorf("got %d CronJobs without an issuer, want only lanyard-stale-pods", len(jobs))
	}
}

// The image of the command line comes from the registry of the webhook's image, in the same version.
func TestTheImageOfTheChecksIsNextToTheWebhooks(t *testing.T) {
	for name, test := range map[string]struct{ values, want string }{
		"by the chart's version":   {"", "lanyard:" + appVersion(t)},
		"by registry":              {"image: {registry: registry.example/team}", "registry.example/team/lanyard:" + appVersion(t)},
		"by the parent's registry": {"global: {imageRegistry: mirror.example/a}\nimage: {registry: registry.example}", "mirror.example/a/lanyard:" + appVersion(t)},
		"by repository":            {"image: {repository: registry.example/team/webhook}", "registry.example/team/lanyard:" + appVersion(t)},
		"by tag, not by digest":    {"image: {tag: v2, digest: 'sha256:" + strings.Repeat("0", 64) + "'}", "lanyard:v2"},
		"by its own value":         {"image: {registry: registry.example}\nchecks: {image: 'mirror.example/cli:v3'}", "mirror.example/cli:v3"},
	} {
		t.Run(name, func(t *testing.T) {
			v := merge(parseValues(t, checksValues), parseValues(t, test.values))
			for key, spec := range podSpecs(t, find(render(t, defaultInstall, v).objects, "CronJob")) {
				if got := spec.Containers[0].Image; got != test.want {
					t.Errorf("%s: got the image %s, want %s", key, got, test.want)
				}
			}
		})
	}
}

// A run that hangs is ended, and no two runs overlap.
func TestTheChecksEnd(t *testing.T) {
	for _, job := range checkJobs(t, checks(t)) {
		spec, run := job.Spec, job.Spec.JobTemplate.Spec
		switch {
		case spec.ConcurrencyPolicy != batchv1.ForbidConcurrent:
			t.Errorf("%s: got concurrencyPolicy %q, want Forbid", job.Name, spec.ConcurrencyPolicy)
		case spec.StartingDeadlineSeconds == nil || run.ActiveDeadlineSeconds == nil || *run.ActiveDeadlineSeconds > 900:
			t.Errorf("%s: got no deadline, or one that is longer than the alert waits", job.Name)
		}
		// Exit code 1 is a finding, which is not retried. Exit code 2 is retried.
		rules := run.PodFailurePolicy.Rules
		if len(rules) != 1 || rules[0].Action != batchv1.PodFailurePolicyActionFailJob || !slices.Equal(rules[0].OnExitCodes.Values, []int32{1}) {
			t.Errorf("%s: got the rules %+v, want one that fails at the exit code 1", job.Name, rules)
		}
		if image := job.Spec.JobTemplate.Spec.Template.Spec.Containers[0].Image; image != "lanyard:"+appVersion(t) {
			t.Errorf("%s: got the image %s, want the version of the chart", job.Name, image)
		}
	}
}

// appVersion returns the version in Chart.yaml.
func appVersion(t *testing.T) string {
	t.Helper()
	_, version, found := strings.Cut(readFile(t, chartDir+"/Chart.yaml"), "\nappVersion: ")
	if !found {
		t.Fatal("Chart.yaml has no appVersion")
	}
	version, _, _ = strings.Cut(version, "\n")
	return version
}

// Each CronJob has an alert that reads its result, even if the CronJob has another name.
func TestEachCheckHasAnAlert(t *testing.T) {
	for name, in := range map[string]install{
		"the default": defaultInstall, "another release": installAs("blue", "security", kubeVersion), "a very long name": valueSets["the checks, with a very long name"].in,
	} {
		t.Run(name, func(t *testing.T) {
			objects := render(t, in, parseValues(t, checksValues+monitoringValues)).objects
			jobs := checkJobs(t, objects)
			if name == "the default" {
				jobs = append(jobs, checkJobs(t, checks(t))...)
			}
			for _, job := range jobs {
				alerts := 0
				for _, rule := range rules(t, objects) {
					query := rule.Expr.String()
					about := strings.Count(query, `namespace="`+job.Namespace+`", cronjob="`+job.Name+`"`)
					if about > 0 && about == strings.Count(query, "cronjob=") {
						alerts++
					}
				}
				if alerts != 1 {
					t.Errorf("got %d alerts about the CronJob %s, want 1", alerts, job.Name)
				}
			}
		})
	}
}
