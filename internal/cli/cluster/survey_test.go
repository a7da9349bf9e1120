// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster_test

import (
	"path/filepath"
	"slices"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/lanyard-dev/lanyard/internal/cli/cluster"
	"github.com/lanyard-dev/lanyard/test/support/webhook"
)

// installedObjects returns the registration, the guard and the fences of deploy/.
func installedObjects(t *testing.T) []runtime.Object {
	t.Helper()
	var objects []runtime.Object
	for _, name := range []string{"50-mutatingwebhookconfiguration.yaml", "70-guard.yaml", "71-fences.yaml"} {
		list, err := webhook.ReadManifest(filepath.Join("../../../deploy/base", name))
		if err != nil {
			t.Fatal(err)
		}
		for _, object := range list {
			objects = append(objects, object)
		}
	}
	return objects
}

// without returns the objects without the registration.
func without(objects []runtime.Object) []runtime.Object {
	return slices.DeleteFunc(objects, func(o runtime.Object) bool {
		_, isRegistration := o.(*admissionregistrationv1.MutatingWebhookConfiguration)
		return isRegistration
	})
}

// of returns a policy and its binding.
func of(name, expression string) []runtime.Object {
	meta := metav1.ObjectMeta{Name: name}
	return []runtime.Object{
		&admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: meta, Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{Validations: []admissionregistrationv1.Validation{{Expression: expression}}}},
		&admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: meta, Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: name, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}}},
	}
}

func TestLeftovers(t *testing.T) {
	t.Parallel()
	const guard = "kubectl delete validatingadmissionpolicybinding/lanyard-guard-injected validatingadmissionpolicybinding/lanyard-guard-marks validatingadmissionpolicybinding/lanyard-guard-pods " +
		"validatingadmissionpolicybinding/lanyard-guard-registration validatingadmissionpolicybinding/lanyard-guard-serviceaccounts"
	for sentence, test := range map[string]struct {
		objects []runtime.Object
		want    string
		absent  bool
	}{
		"an installation":                    {installedObjects(t), "kubectl delete", false},
		"nothing":                            {nil, "kubectl delete", true},
		"a guard whose registration is gone": {without(installedObjects(t)), guard, true},
		"a guard of another release":         {append(installedObjects(t), of("old-guard-pods", "'lanyard.dev/identity' in object")...), "kubectl delete validatingadmissionpolicybinding/old-guard-pods", false},
		"policies that only deny":            {of("lanyard-deny-pods", "'lanyard.dev/identity' in object"), "kubectl delete validatingadmissionpolicybinding/lanyard-deny-pods", true},
		"a policy of another program":        {of("other-guard-pods", "true"), "kubectl delete", true},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			c := cluster.NewSurvey(fake.NewClientset(test.objects...))
			left, err := c.Leftovers(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			slices.SortFunc(left, func(a, b cluster.Leftover) int {
				if a.Name < b.Name {
					return -1
				}
				return 1
			})
			if got := cluster.Remove(left); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
			installation, err := c.Installation(t.Context())
			if err != nil || installation.Absent() != test.absent {
				t.Errorf("got %+v and %v, want nothing %t", installation, err, test.absent)
			}
		})
	}
}

// If there are two installations, the one with replicas is the one to keep, and its registration
// decides.
func TestTheInstallationWithReplicasIsTheFirst(t *testing.T) {
	t.Parallel()
	var objects []runtime.Object
	for name, ready := range map[string]int32{"a-old": 0, "b-new": 2} {
		configuration, err := webhook.ReadMutating("../../../deploy/base")
		if err != nil {
			t.Fatal(err)
		}
		configuration.Name = name
		for i := range configuration.Webhooks {
			configuration.Webhooks[i].ClientConfig.Service.Namespace = name
		}
		labels := map[string]string{"app": "lanyard"}
		deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "webhook"}, Status: appsv1.DeploymentStatus{ReadyReplicas: ready}}
		deployment.Spec.Template.Labels = labels
		service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: configuration.Webhooks[0].ClientConfig.Service.Name}, Spec: corev1.ServiceSpec{Selector: labels}}
		objects = append(objects, configuration, deployment, service)
	}
	installation, err := cluster.NewSurvey(fake.NewClientset(objects...)).Installation(t.Context())
	if err != nil || installation.Registration().Name != "b-new" || !slices.Equal(installation.Ready, []int{2, 0}) {
		t.Errorf("got %+v and %v, want b-new first", installation, err)
	}
}
