// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cli tests the commands of lanyard against a real kube-apiserver with the
// webhook, the guard and the fences, as deploy/ registers them. It compares the output
// of the commands with the files in testdata, which "go test -update" writes.
package cli

import (
	"bytes"
	"context"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	gomegatypes "github.com/onsi/gomega/types"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/kubernetes"

	"github.com/lanyard-dev/lanyard/internal/cli"
	"github.com/lanyard-dev/lanyard/test/support/controlplane"
	"github.com/lanyard-dev/lanyard/test/support/golden"
	"github.com/lanyard-dev/lanyard/test/support/webhook"
)

const (
	deployDir = "../../../deploy/base"
	role      = "arn:aws:iam::111122223333:role/cart"
)

var update = flag.Bool("update", false, "write the golden files")

// env is shared by all specs.
var env struct {
	plane      *controlplane.ControlPlane
	client     *kubernetes.Clientset
	kubeconfig string // of an administrator
}

var dryRun = metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}

func TestCLI(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(controlplane.Patience)
	suite, reporter := GinkgoConfiguration()
	suite.RandomizeAllSpecs = true
	RunSpecs(t, "cli", suite, reporter)
}

var _ = BeforeSuite(func(ctx SpecContext) {
	dir := GinkgoT().TempDir()
	// Set kubectl's discovery cache, because another API server may have had the same port.
	GinkgoT().Setenv("KUBECACHEDIR", filepath.Join(dir, "cache"))
	binary, err := webhook.Build(ctx, dir, false)
	Expect(err).NotTo(HaveOccurred())
	env.plane, err = controlplane.Start(ctx, controlplane.Options{})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() error { return env.plane.Stop() })
	env.client, err = kubernetes.NewForConfig(env.plane.Config())
	Expect(err).NotTo(HaveOccurred())
	env.kubeconfig = filepath.Join(dir, "admin")
	Expect(env.plane.Kubeconfig(env.kubeconfig)).To(Succeed())

	config, err := webhook.Grant(ctx, env.plane, deployDir)
	Expect(err).NotTo(HaveOccurred())
	kubeconfig := filepath.Join(dir, "webhook")
	Expect(controlplane.WriteKubeconfig(kubeconfig, config)).To(Succeed())
	process, err := webhook.Start(ctx, webhook.Options{Binary: binary, Kubeconfig: kubeconfig, Dir: dir, Args: []string{"--azure-default-tenant-id=contoso.onmicrosoft.com", "--adopt=eks", "--config", customConfig}})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() error { return process.Stop() })
	if env.plane.Policies() {
		Expect(webhook.Create(ctx, env.plane.Config(), deployDir, webhook.Guard, webhook.Fences)).To(Succeed())
	}
	Expect(process.Register(ctx, env.client, deployDir)).To(Succeed())
	if !env.plane.Policies() {
		failClosed(ctx)
	}

	newNamespace(ctx, "shop")
	waitForLabels(ctx)
	newServiceAccount(ctx, "shop", "cart", map[string]string{"lanyard.dev/aws-role-arn": role, "lanyard.dev/aws-region": "eu-central-1"})
	Eventually(ctx, func(ctx context.Context) (map[string]string, error) {
		pod, err := env.client.CoreV1().Pods("shop").Create(ctx, newPod("probe", "cart"), dryRun)
		if err != nil {
			return nil, err
		}
		return pod.Annotations, nil
	}).Should(HaveKey("lanyard.dev/injected"))
})

// waitForLabels waits until the API server calls the webhook that labels ServiceAccounts.
func waitForLabels(ctx context.Context) {
	GinkgoHelper()
	Eventually(ctx, func(ctx context.Context) (map[string]string, error) {
		account, err := env.client.CoreV1().ServiceAccounts("shop").Create(ctx, serviceAccount("probe", map[string]string{"lanyard.dev/aws-role-arn": role}), dryRun)
		if err != nil {
			return nil, err
		}
		return account.Labels, nil
	}).Should(HaveKey("lanyard.dev/identity"))
}

// failClosed sets the failurePolicy that the chart sets without a guard.
func failClosed(ctx context.Context) {
	GinkgoHelper()
	patch := []byte(`[{"op":"replace","path":"/webhooks/0/failurePolicy","value":"Fail"}]`)
	_, err := env.client.AdmissionregistrationV1().MutatingWebhookConfigurations().Patch(ctx, "lanyard", types.JSONPatchType, patch, metav1.PatchOptions{})
	Expect(err).NotTo(HaveOccurred())
}

// The specs without the label need the guard and the fences.
var _ = BeforeEach(func() {
	if slices.Contains(CurrentSpecReport().Labels(), older) == env.plane.Policies() {
		Skip("not for Kubernetes " + env.plane.Version())
	}
})

func newNamespace(ctx context.Context, name string) {
	GinkgoHelper()
	Expect(env.plane.CreateNamespace(ctx, name)).To(Succeed())
}

func serviceAccount(name string, annotations map[string]string) *corev1.ServiceAccount {
	return &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations}}
}

func newServiceAccount(ctx context.Context, namespace, name string, annotations map[string]string) {
	GinkgoHelper()
	_, err := env.client.CoreV1().ServiceAccounts(namespace).Create(ctx, serviceAccount(name, annotations), metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
}

// newPod returns a pod that is not created yet.
func newPod(name, account string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.PodSpec{ServiceAccountName: account, Containers: []corev1.Container{{Name: "main", Image: "image"}}},
	}
}

// lanyard runs the command line with a kubeconfig of an administrator.
func lanyard(ctx context.Context, args ...string) (code int, out, errOut string) {
	return lanyardAs(ctx, env.kubeconfig, "", args...)
}

// lanyardAs runs the command line with a kubeconfig and an input.
func lanyardAs(ctx context.Context, kubeconfig, input string, args ...string) (code int, out, errOut string) {
	var stdout, stderr bytes.Buffer
	args = append([]string{"lanyard", "--kubeconfig", kubeconfig}, args...)
	code = cli.Run(ctx, args, genericiooptions.IOStreams{In: bytes.NewBufferString(input), Out: &stdout, ErrOut: &stderr})
	return code, stdout.String(), waiting.ReplaceAllString(stderr.String(), "")
}

// waiting matches the lines in which a command says what it waits for, as on a slow machine.
var waiting = regexp.MustCompile(`(?m)^waiting for .* \.\.\.\n`)

// user returns the kubeconfig of a user without rights of their own.
func user(name string) string {
	GinkgoHelper()
	config, err := env.plane.User(name)
	Expect(err).NotTo(HaveOccurred())
	path := filepath.Join(GinkgoT().TempDir(), name)
	Expect(controlplane.WriteKubeconfig(path, config)).To(Succeed())
	return path
}

// reader returns the kubeconfig of a user who may read everything that the commands
// read, and write nothing.
func reader(ctx context.Context, name string) string {
	GinkgoHelper()
	api := env.client.RbacV1()
	_, err := api.ClusterRoles().Create(ctx, &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"get", "list", "watch"}}},
	}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	_, err = api.ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}},
	}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	waitToList(ctx, name, "", "", "serviceaccounts")
	return user(name)
}

// waitToList waits until a user may list a resource in a namespace, or in all: the API server
// learns of roles and their bindings from watches.
func waitToList(ctx context.Context, user, namespace, group, resource string) {
	GinkgoHelper()
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: user, ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "list", Namespace: namespace, Group: group, Resource: resource},
	}}
	Eventually(ctx, func(ctx context.Context) (bool, error) {
		answer, err := env.client.AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
		return err == nil && answer.Status.Allowed, err
	}).Should(BeTrue())
}

// changing lists the parts of a command and its output that differ between runs, and
// their replacements in testdata.
var changing = []struct {
	pattern *regexp.Regexp
	text    string
}{
	{regexp.MustCompile(regexp.QuoteMeta(os.TempDir()) + `/\S*/`), ""},
	{regexp.MustCompile(`20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ`), "TIME"},
	{regexp.MustCompile(`127\.0\.0\.1:\d+`), "127.0.0.1:PORT"},
	{regexp.MustCompile(`v1\.\d+\.\d+`), "VERSION"},
	{regexp.MustCompile(`(?m)(keyID"?: "?|signingKey"?: "?|^ +"|^ *- |^  key +|\bkey )[A-Za-z0-9_-]{43}\b`), "${1}KEY"},
}

// expectGolden compares an output with a text of testdata. The first word of its heading is
// the name of the file.
func expectGolden(heading, got string) {
	GinkgoHelper()
	for _, c := range changing {
		got = c.pattern.ReplaceAllString(got, c.text)
	}
	theme, _, _ := strings.Cut(strings.Fields(heading)[0], "-")
	want, err := golden.Want(filepath.Join("testdata", theme+".txt"), heading, got, *update)
	Expect(err).NotTo(HaveOccurred())
	Expect(got).To(Equal(want), heading)
}

// expectOutputs compares the output of a command for people and as JSON.
// TestYAMLIsTheSameObjectAsJSON in internal/cli tests YAML.
func expectOutputs(ctx context.Context, heading string, code int, args ...string) {
	GinkgoHelper()
	expectOutputsAs(ctx, env.kubeconfig, heading, code, BeEmpty(), args...)
}

// expectOutputsAs is expectOutputs for a kubeconfig, and a command that writes to the
// error stream.
func expectOutputsAs(ctx context.Context, kubeconfig, heading string, code int, notes gomegatypes.GomegaMatcher, args ...string) {
	GinkgoHelper()
	expectOutput(ctx, kubeconfig, heading, code, notes, args...)
	expectOutput(ctx, kubeconfig, heading+" as JSON", code, notes, append(slices.Clip(args), "--output", "json")...)
}

// expectOutput compares the output of a command in one format.
func expectOutput(ctx context.Context, kubeconfig, heading string, code int, notes gomegatypes.GomegaMatcher, args ...string) {
	GinkgoHelper()
	got, out, errOut := lanyardAs(ctx, kubeconfig, "", args...)
	Expect(errOut).To(notes)
	Expect(got).To(Equal(code), out)
	expectGolden(heading, "$ lanyard "+strings.Join(args, " ")+"\n"+out)
}
