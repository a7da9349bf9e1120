// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"slices"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
)

const checksDir = deployDir + "/checks"

// checks returns the objects of deploy/checks.
func checks(t *testing.T) []object {
	t.Helper()
	return build(t, checksDir)
}

// checkJobs returns the CronJobs of deploy/checks.
func checkJobs(t *testing.T) []batchv1.CronJob {
	t.Helper()
	var jobs []batchv1.CronJob
	for _, o := range find(checks(t), "CronJob") {
		jobs = append(jobs, *decode[batchv1.CronJob](t, o))
	}
	if len(jobs) != 2 {
		t.Fatalf("got %d CronJobs, want 2", len(jobs))
	}
	return jobs
}

// The CronJobs may create nothing, not even pods as dry runs: users who may create pods may
// act as each ServiceAccount.
func TestTheChecksMayOnlyRead(t *testing.T) {
	const account = "lanyard-system/lanyard-checks"
	checkGrants(t, checks(t), []grant{
		{account, "", "list /namespaces,pods,serviceaccounts"},
		{account, "", "get,list /replicationcontrollers"},
		{account, "", "get,list apps/daemonsets,deployments,replicasets,statefulsets"},
		{account, "", "get,list batch/cronjobs,jobs"},
		{account, "", "list admissionregistration.k8s.io/mutatingwebhookconfigurations"},
		{account, "", "get admissionregistration.k8s.io/validatingadmissionpolicies"},
		{account, "", "list admissionregistration.k8s.io/validatingadmissionpolicybindings"},
		{account, "lanyard-system", "get /configmaps,services"},
	})
}

func TestTheChecksAreRestricted(t *testing.T) {
	specs := map[string]corev1.PodSpec{}
	for _, job := range checkJobs(t) {
		specs[job.Name] = job.Spec.JobTemplate.Spec.Template.Spec
	}
	checkRestricted(t, specs)
}

// A run that hangs ends, and no two runs are at the same time.
func TestTheChecksEnd(t *testing.T) {
	for _, job := range checkJobs(t) {
		spec, run := job.Spec, job.Spec.JobTemplate.Spec
		switch {
		case spec.ConcurrencyPolicy != batchv1.ForbidConcurrent:
			t.Errorf("%s: got concurrencyPolicy %q, want Forbid", job.Name, spec.ConcurrencyPolicy)
		case spec.StartingDeadlineSeconds == nil || run.ActiveDeadlineSeconds == nil || *run.ActiveDeadlineSeconds > 900:
			t.Errorf("%s: got no deadline, or one that is longer than the alert waits", job.Name)
		}
		// 1 is a finding, which is not tried again. 2 is tried again.
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

// Each CronJob has an alert that reads its result.
func TestEachCheckHasAnAlert(t *testing.T) {
	all := rules(t, render(t, defaultInstall, parseValues(t, monitoringValues)).objects)
	for _, job := range checkJobs(t) {
		alerts := 0
		for _, rule := range all {
			if strings.Contains(rule.Expr.String(), `cronjob="`+job.Name+`"`) {
				alerts++
			}
		}
		if alerts != 1 {
			t.Errorf("got %d alerts about the CronJob %s, want 1", alerts, job.Name)
		}
	}
}
