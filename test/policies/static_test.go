// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/lanyard-dev/lanyard/internal/cli"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/policies"
	"github.com/lanyard-dev/lanyard/test/support/controlplane"
	"github.com/lanyard-dev/lanyard/test/support/webhook"
)

// staticAccount is the manifest of a ServiceAccount with a role.
const staticAccount = `
apiVersion: v1
kind: ServiceAccount
metadata: {name: cart, namespace: shop, annotations: {lanyard.dev/aws-role-arn: %q}}
`

// writeStatic runs "lanyard policies --static" for a ServiceAccount with the role.
func writeStatic(t *testing.T, dir, role string) {
	t.Helper()
	streams, in, _, notes := genericiooptions.NewTestIOStreams()
	fmt.Fprintf(in, staticAccount, role)
	if code := cli.Run(t.Context(), []string{"lanyard", "policies", "--compile", "-", "--static", dir}, streams); code != 0 {
		t.Fatalf("got exit code %d: %s", code, notes)
	}
}

// An API server that reads the policies from files injects the first pod that it is asked to create.
// Nobody can delete the policies through the API, and a changed file comes into effect.
func TestStaticPolicies(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "static")
	writeStatic(t, dir, role)
	plane, client := startStatic(t, dir)
	must(t, "shop", plane.CreateNamespace(t.Context(), "shop"))
	_, err := client.CoreV1().ServiceAccounts("shop").Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "cart"}}, metav1.CreateOptions{})
	must(t, "cart", err)
	create := func(name, account string, labels map[string]string) (*corev1.Pod, error) {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Spec: corev1.PodSpec{ServiceAccountName: account, Containers: []corev1.Container{{Name: "main", Image: "image"}}}}
		return client.CoreV1().Pods("shop").Create(t.Context(), pod, metav1.CreateOptions{})
	}
	first, err := create("first", "cart", nil)
	must(t, "the first pod", err)
	if got := roleOf(first); got != role {
		t.Errorf("the first pod: got role %q, want %s", got, role)
	}
	if _, err := create("foreign", "default", map[string]string{injectedLabel: injectedValue}); err == nil || !strings.Contains(err.Error(), "a container has no token mount") {
		t.Errorf("a pod with the label of an injected pod: got error %v", err)
	}
	const change = `{"metadata":{"annotations":{"lanyard.dev/injected":"x"}}}`
	_, err = client.CoreV1().Pods("shop").Patch(t.Context(), "first", types.MergePatchType, []byte(change), metav1.PatchOptions{})
	if want := policies.KeepMarks(policies.DefaultName) + policies.StaticSuffix; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("a changed mark: got error %v, want a denial of %s", err, want)
	}

	api, name := client.AdmissionregistrationV1(), policies.InjectPods(policies.DefaultName)+policies.StaticSuffix
	if err := api.MutatingAdmissionPolicies().Delete(t.Context(), name, metav1.DeleteOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("delete %s: got error %v, want not found", name, err)
	}
	if err := api.MutatingAdmissionPolicyBindings().Delete(t.Context(), name, metav1.DeleteOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("delete the binding %s: got error %v, want not found", name, err)
	}

	writeStatic(t, dir, role+"-2")
	eventually(t, "the changed file to be in effect", func() bool {
		pod, err := create("changed", "cart", nil)
		if err == nil {
			err = client.CoreV1().Pods("shop").Delete(t.Context(), pod.Name, *metav1.NewDeleteOptions(0))
		}
		return err == nil && roleOf(pod) == role+"-2"
	})
	if left, err := filepath.Glob(filepath.Join(dir, "*", "*.tmp")); err != nil || len(left) > 0 {
		t.Errorf("got files %v and error %v, want no temporary file", left, err)
	}
}

// startStatic starts an API server with the files in dir.
func startStatic(t *testing.T, dir string) (*controlplane.ControlPlane, *kubernetes.Clientset) {
	t.Helper()
	plane, err := controlplane.Start(t.Context(), controlplane.Options{APIServerFlags: map[string]string{
		"admission-control-config-file": filepath.Join(dir, "admission.yaml"),
		"feature-gates":                 "ManifestBasedAdmissionControlConfig=true", // on by default from 1.37 on
	}})
	must(t, "the API server", err)
	t.Cleanup(func() { must(t, "the API server", plane.Stop()) })
	client, err := kubernetes.NewForConfig(plane.Config())
	must(t, "client", err)
	return plane, client
}

// An API server that reads the webhook configurations from files calls the webhook for the first
// ServiceAccount and the first pod. Nobody can delete the configurations through the API.
func TestStaticWebhook(t *testing.T) {
	t.Parallel()
	certificates, dir := t.TempDir(), filepath.Join(t.TempDir(), "static")
	certificate, key, ca, err := controlplane.NewServingCertificate(certificates, "127.0.0.1")
	must(t, "the certificate", err)
	ports, err := webhook.FreePorts(t.Context(), 1)
	must(t, "a port", err)
	mutating, validating, err := webhook.Registration("../../deploy/base", "https://127.0.0.1:"+ports[0], ca)
	must(t, "the webhook configurations", err)
	streams, in, _, notes := genericiooptions.NewTestIOStreams()
	for _, configuration := range []any{mutating, validating} {
		text, err := yaml.Marshal(configuration)
		must(t, "a webhook configuration", err)
		fmt.Fprintf(in, "---\n%s", text)
	}
	if code := cli.Run(t.Context(), []string{"lanyard", "policies", "--webhook", "-", "--static", dir}, streams); code != 0 {
		t.Fatalf("got exit code %d: %s", code, notes)
	}
	plane, client := startStatic(t, dir)

	kubeconfig := filepath.Join(certificates, "kubeconfig")
	must(t, "kubeconfig", plane.Kubeconfig(kubeconfig))
	binary, err := webhook.Build(t.Context(), t.TempDir(), false)
	must(t, "the webhook", err)
	running, err := webhook.Start(t.Context(), webhook.Options{
		Binary: binary, Kubeconfig: kubeconfig, Dir: t.TempDir(), Port: ports[0], Args: []string{"--tls-cert-file", certificate, "--tls-private-key-file", key},
	})
	must(t, "the webhook", err)
	t.Cleanup(func() { must(t, "the webhook", running.Stop()) })

	must(t, "shop", plane.CreateNamespace(t.Context(), "shop"))
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "cart", Annotations: map[string]string{annotations.Prefix + "aws-role-arn": "no role"}}}
	if _, err := client.CoreV1().ServiceAccounts("shop").Create(t.Context(), account, metav1.CreateOptions{}); err == nil || !strings.Contains(err.Error(), "invalid_annotation") {
		t.Errorf("a ServiceAccount with a mistake: got error %v", err)
	}
	account.Annotations[annotations.Prefix+"aws-role-arn"] = role
	account, err = client.CoreV1().ServiceAccounts("shop").Create(t.Context(), account, metav1.CreateOptions{})
	must(t, "cart", err)
	if got := account.Labels[annotations.IdentityLabel]; got != annotations.IdentityEnabled {
		t.Errorf("cart: got label %q, want %q", got, annotations.IdentityEnabled)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "first"}, Spec: corev1.PodSpec{ServiceAccountName: "cart", Containers: []corev1.Container{{Name: "main", Image: "image"}}}}
	first, err := client.CoreV1().Pods("shop").Create(t.Context(), pod, metav1.CreateOptions{})
	must(t, "the first pod", err)
	if got := roleOf(first); got != role {
		t.Errorf("the first pod: got role %q, want %s", got, role)
	}
	api := client.AdmissionregistrationV1()
	if err := api.MutatingWebhookConfigurations().Delete(t.Context(), mutating.Name+policies.StaticSuffix, metav1.DeleteOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("delete the webhook configuration: got error %v, want not found", err)
	}
}

// An API server would not start with a webhook configuration that refers to a Service.
func TestStaticWebhookNeedsAURL(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "static")
	for file, want := range map[string]string{
		"../../deploy/base/50-mutatingwebhookconfiguration.yaml": "mutatingwebhookconfiguration lanyard: webhooks[0].clientConfig has no url",
		"../../deploy/base/40-deployment.yaml":                   "has no ValidatingWebhookConfiguration",
	} {
		streams, _, _, notes := genericiooptions.NewTestIOStreams()
		if code := cli.Run(t.Context(), []string{"lanyard", "policies", "--webhook", file, "--static", dir}, streams); code != 1 || !strings.Contains(notes.String(), want) {
			t.Errorf("%s: got exit code %d and notes %s, want %q", file, code, notes, want)
		}
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("got error %v, want no directory", err)
	}
}

// roleOf returns the role in the first container of a pod.
func roleOf(pod *corev1.Pod) string {
	for _, e := range pod.Spec.Containers[0].Env {
		if e.Name == "AWS_ROLE_ARN" {
			return e.Value
		}
	}
	return ""
}

// After a mistake, the files stay as they are.
func TestStaticPoliciesAreWrittenAsAWhole(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeStatic(t, dir, role)
	before, err := os.ReadFile(filepath.Join(dir, "mutating", "lanyard.yaml"))
	must(t, "the file", err)
	streams, in, out, notes := genericiooptions.NewTestIOStreams()
	fmt.Fprintf(in, staticAccount+"---"+staticAccount, role+"-2", "no role")
	code := cli.Run(t.Context(), []string{"lanyard", "policies", "--compile", "-", "--static", dir}, streams)
	if code == 0 || !strings.Contains(notes.String(), `serviceaccount "shop/cart"`) || out.Len() > 0 {
		t.Errorf("got %d bytes, exit code %d and notes %s, want an error that names the ServiceAccount", out.Len(), code, notes)
	}
	if after, err := os.ReadFile(filepath.Join(dir, "mutating", "lanyard.yaml")); err != nil || string(after) != string(before) {
		t.Errorf("got error %v, want the file as it was", err)
	}
}

// testManyIdentities compiles 2,000 identities, which need several tables. Each pod has the
// identity of its ServiceAccount, including those at the ends of the tables.
func (c *cluster) testManyIdentities(t *testing.T) {
	const group, n = "many", 2000
	namespace := "probe-" + group
	var accounts []policies.Account
	for i := range n {
		accounts = append(accounts, account(namespace, fmt.Sprintf("account-%04d", i), map[string]string{annotations.Prefix + "aws-role-arn": fmt.Sprintf("%s-%04d", role, i)}))
	}
	c.installCompiled(t, settingsOf(t, ""), group, accounts...)
	for i := 0; i < n; i += 57 {
		name := fmt.Sprintf("account-%04d", i)
		c.createAccount(t, namespace, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}})
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "pod"}, Spec: corev1.PodSpec{ServiceAccountName: name, Containers: []corev1.Container{{Name: "main", Image: "image"}}}}
		got, err := c.client.CoreV1().Pods(namespace).Create(t.Context(), pod, dryRun)
		must(t, name, err)
		if want := fmt.Sprintf("%s-%04d", role, i); roleOf(got) != want {
			t.Errorf("%s: got role %q, want %s", name, roleOf(got), want)
		}
	}
}
