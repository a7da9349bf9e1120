// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"github.com/lanyard-dev/lanyard/internal/cli/cluster"
)

func TestKindsAreFoundByTheNamesThatKubectlAccepts(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"pod": "Pod", "pods": "Pod", "po": "Pod", "Pod": "Pod",
		"deploy": "Deployment", "deployments.apps": "Deployment", "deployment.apps": "Deployment", "Deployment": "Deployment",
		"sts": "StatefulSet", "ds": "DaemonSet", "rs": "ReplicaSet", "rc": "ReplicationController",
		"job": "Job", "jobs.batch": "Job", "cj": "CronJob", "cronjob": "CronJob", "podtemplate": "PodTemplate",
		"": "", "service": "", "deployment.batch": "", "serviceaccount": "",
	} {
		if got, _ := cluster.ByName(name); got.Kind != want {
			t.Errorf("%q: got %q, want %q", name, got.Kind, want)
		}
	}
}

// parse reads a manifest.
func parse(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	object := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &object.Object); err != nil {
		t.Fatal(err)
	}
	return object
}

func TestPodsOfWorkloads(t *testing.T) {
	t.Parallel()
	const pod = "{apiVersion: v1, kind: Pod, metadata: {generateName: web-, namespace: shop, labels: {app: web}}, spec: {serviceAccountName: web}}"
	const template = "{metadata: {labels: {app: web}, creationTimestamp: null}, spec: {serviceAccountName: web}}"
	for name, test := range map[string]struct{ object, want string }{
		"a Deployment":            {"{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: shop}, spec: {template: " + template + "}}", pod},
		"a StatefulSet":           {"{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: web, namespace: shop}, spec: {template: " + template + "}}", pod},
		"a DaemonSet":             {"{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: web, namespace: shop}, spec: {template: " + template + "}}", pod},
		"a ReplicaSet":            {"{apiVersion: apps/v1, kind: ReplicaSet, metadata: {name: web, namespace: shop}, spec: {template: " + template + "}}", pod},
		"a ReplicationController": {"{apiVersion: v1, kind: ReplicationController, metadata: {name: web, namespace: shop}, spec: {template: " + template + "}}", pod},
		"a Job":                   {"{apiVersion: batch/v1, kind: Job, metadata: {name: web, namespace: shop}, spec: {template: " + template + "}}", pod},
		"a CronJob":               {"{apiVersion: batch/v1, kind: CronJob, metadata: {name: web, namespace: shop}, spec: {jobTemplate: {spec: {template: " + template + "}}}}", pod},
		"a PodTemplate":           {"{apiVersion: v1, kind: PodTemplate, metadata: {name: web, namespace: shop}, template: " + template + "}", pod},
		"a Rollout of Argo": {
			"{apiVersion: argoproj.io/v1alpha1, kind: Rollout, metadata: {name: web, namespace: shop}, spec: {template: {metadata: {labels: {app: web}}, spec: {serviceAccountName: web, containers: []}}}}",
			"{apiVersion: v1, kind: Pod, metadata: {generateName: web-, namespace: shop, labels: {app: web}}, spec: {serviceAccountName: web, containers: []}}",
		},
		"a Pod": {
			"{apiVersion: v1, kind: Pod, metadata: {name: web-0, namespace: shop}, spec: {serviceAccountName: web}}",
			"{apiVersion: v1, kind: Pod, metadata: {name: web-0, namespace: shop}, spec: {serviceAccountName: web}}",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			object := parse(t, test.object)
			before := object.DeepCopy()
			got, err := cluster.PodOf(object)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(parse(t, test.want).Object, got.Object); diff != "" {
				t.Errorf("pod (-want +got):\n%s", diff)
			}
			if name := cluster.ServiceAccountOf(object); name != "web" {
				t.Errorf("got ServiceAccount %q, want web", name)
			}
			if diff := cmp.Diff(before.Object, object.Object); diff != "" {
				t.Errorf("the object changed:\n%s", diff)
			}
		})
	}
}

func TestAnObjectWithoutATemplateIsAnError(t *testing.T) {
	t.Parallel()
	for object, want := range map[string]string{
		"{apiVersion: batch/v1, kind: CronJob, metadata: {name: web}, spec: {template: {}}}":                          "cronjob/web has no pod template",
		"{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {}}":                                            "service/web has no pod template",
		"{apiVersion: cert-manager.io/v1, kind: Issuer, metadata: {name: web}, spec: {template: {spec: {acme: {}}}}}": "issuer/web has no pod template",
	} {
		if _, err := cluster.PodOf(parse(t, object)); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestServiceAccountsOfPods(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"{metadata: {}}":                                         "default",
		"{spec: {serviceAccountName: web}}":                      "web",
		"{spec: {serviceAccount: web}}":                          "web",
		"{spec: {serviceAccount: old, serviceAccountName: web}}": "web",
		"{spec: {serviceAccountName: 1}}":                        "default",
	} {
		if got := cluster.ServiceAccountOf(parse(t, "{apiVersion: v1, kind: Pod, "+text[1:])); got != want {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
	}
}

func TestEveryKindExists(t *testing.T) {
	t.Parallel()
	for _, kind := range cluster.Kinds() {
		if gvk := kind.Resource.GroupVersion().WithKind(kind.Kind); !scheme.Scheme.Recognizes(gvk) {
			t.Errorf("the API has no %s", gvk)
		}
	}
}

func TestOwnersWithNamesThatNoObjectHas(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ kind, owner, want string }{
		"a Deployment":               {"Deployment", "cart", "deployment/cart"},
		"a custom kind":              {"Rollout", "cart.v1", "rollout/cart.v1"},
		"a command in the name":      {"Rollout", "x;reboot", ""},
		"a substitution in the kind": {"$(reboot)", "cart", ""},
		"a second line":              {"Rollout", "cart\nreboot", ""},
	} {
		if got := cluster.OwnerName(&metav1.OwnerReference{Kind: test.kind, Name: test.owner}); got != test.want {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
	}
}
