// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/retry"

	"github.com/lanyard-dev/lanyard/test/e2e/framework"
	"github.com/lanyard-dev/lanyard/test/support/golden"
)

// books is the namespace that all users ask about: the pod seller-0 has its credentials,
// and the Deployment printer is older than the annotation of its ServiceAccount.
const books = "books"

// outdated is what explain says about the Deployment printer.
const outdated = "× 1 pod must be replaced\n"

// questions are the commands that each user runs, below the headings of the user's file.
var questions = []struct {
	heading  string
	commands []string
}{
	{"check", []string{"lanyard check --namespace books", "lanyard check --namespace books --service-account seller"}},
	{"explain", []string{"lanyard explain pod/seller-0 --namespace books", "lanyard explain deployment printer --namespace books"}},
	{"status", []string{"lanyard status --namespace books"}},
	{"token", []string{"lanyard token serviceaccount/seller --namespace books --for aws --exchange"}},
	{"trust", []string{"lanyard trust aws serviceaccount/seller --namespace books", "lanyard trust issuer"}},
}

// person is a user of the cluster, or a state of the cluster that a user meets.
type person struct {
	// name is the file in testdata/users.
	name string
	// as is the user of the API server; an administrator if empty.
	as string
	// more contains commands that only this user runs, by their headings.
	more map[string][]string
	// untrue are statements that are false for this user.
	untrue []string
}

// healthy are statements that are false for every user while Lanyard works.
var healthy = []string{
	"new pods: denied", "did not deny the pod", "not by Lanyard", "Lanyard is not installed", "cannot call the webhook",
	"has no ready replica", "does not exist", "× ", "lanyard label",
}

// The users whose cluster has an installation that works.
var people = []person{
	{name: "cluster-admin", untrue: healthy},
	{name: "view", as: "viewer", untrue: healthy},
	{name: "view-in-one-namespace", as: "tenant", untrue: healthy, more: map[string][]string{"status": {"lanyard status --all-namespaces"}}},
	{name: "no-rights", as: "guest", untrue: append([]string{"guard on", "no check failed\n"}, healthy...)},
}

// describeNotInstalled adds the spec of the user before the install. It must be called
// in the container of the suite, before the spec that installs Lanyard.
func describeNotInstalled() {
	It("tells a user the truth: not-installed", func(ctx SpecContext) {
		openBooks(ctx)
		DeferCleanup(func(ctx SpecContext) {
			Expect(cluster.DeleteNamespace(ctx, books)).To(Succeed())
			Eventually(ctx, terminating).Should(BeEmpty())
		})
		ask(ctx, &person{name: "not-installed", untrue: []string{"guard on", "\n  a new pod gets", "replica", "no check failed"}})
	})
}

// describeUsers adds the specs of the other users.
func describeUsers() {
	Describe("tells a user the truth:", Ordered, func() {
		BeforeAll(func(ctx SpecContext) {
			installed(ctx)
			openBooks(ctx)
			DeferCleanup(func(ctx SpecContext) error { return cluster.DeleteNamespace(ctx, books) })
			viewers(ctx)
		})
		for _, p := range people {
			It(p.name, func(ctx SpecContext) { ask(ctx, &p) })
		}

		It("strict-policy-engine", func(ctx SpecContext) {
			apply(ctx, "strict.yaml")
			pod := framework.SDKPod("seller", framework.Go, "aws")
			Eventually(ctx, func(ctx context.Context) error {
				_, err := cluster.CoreV1().Pods(books).Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
				return err
			}).Should(MatchError(ContainSubstring("strict.example.com")))
			ask(ctx, &person{
				name: "strict-policy-engine", untrue: []string{"Lanyard is not installed", "the API server cannot call", "would get no credentials"},
				more: map[string][]string{"check": {`lanyard check --namespace books --overrides '{"metadata":{"labels":{"owner":"books"}}}'`}},
			})
		})

		It("two-installations", func(ctx SpecContext) {
			secondInstallation(ctx)
			ask(ctx, &person{name: "two-installations", untrue: []string{"Lanyard is not installed", "no check failed"}})
		})

		It("no-network-to-the-webhook", func(ctx SpecContext) {
			disconnect(ctx)
			ask(ctx, &person{name: "no-network-to-the-webhook", untrue: []string{"Lanyard is not installed", "no check failed", "has no ready replica"}})
		})
	})
}

// ask runs the commands as a user, compares each output with its golden file, and looks
// for statements that are never true.
func ask(ctx context.Context, p *person) {
	GinkgoHelper()
	kubeconfig := p.kubeconfig()
	var failures error
	for _, question := range questions {
		var text strings.Builder
		for _, command := range slices.Concat(question.commands, p.more[question.heading]) {
			code, shown := runAs(ctx, kubeconfig, command)
			fmt.Fprintf(&text, "$ %s\n%s[exit code %d]\n\n", command, shown, code)
		}
		failures = errors.Join(failures, InterceptGomegaFailure(func() {
			for _, statement := range append([]string{", want ", "%!", "panic", "eyJhbGciOi"}, p.untrue...) {
				shown := strings.ReplaceAll(text.String(), outdated, "") // which is true
				Expect(shown).NotTo(ContainSubstring(statement), "a statement that is false for the user %s", p.name)
			}
		}), InterceptGomegaFailure(func() {
			got := unchanging(text.String())
			want, err := golden.Want(testdata(filepath.Join("users", p.name+".txt")), question.heading, got, *update)
			Expect(err).NotTo(HaveOccurred())
			Expect(got).To(Equal(want), question.heading)
		}))
	}
	Expect(failures).NotTo(HaveOccurred())
}

// runAs runs a command outside of a terminal, and returns its exit code and both of its
// streams.
func runAs(ctx context.Context, kubeconfig, command string) (code int, shown string) {
	GinkgoHelper()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	shell := exec.CommandContext(ctx, "sh", "-c", command)
	shell.Dir = user.directory
	shell.Env = slices.Concat(os.Environ(), user.environment, []string{"KUBECONFIG=" + kubeconfig})
	output, err := shell.CombinedOutput()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.Exited() {
		return exit.ExitCode(), string(output)
	}
	Expect(err).NotTo(HaveOccurred(), "%s: %s", command, output)
	return 0, string(output)
}

// kubeconfig writes the kubeconfig of a user. The administrator impersonates the user, so
// that the API server applies the rights of the user.
func (p *person) kubeconfig() string {
	GinkgoHelper()
	if p.as == "" {
		return cluster.Kubeconfig
	}
	config, err := clientcmd.LoadFromFile(cluster.Kubeconfig)
	Expect(err).NotTo(HaveOccurred())
	for _, auth := range config.AuthInfos {
		auth.Impersonate = p.as
	}
	path := filepath.Join(GinkgoT().TempDir(), "kubeconfig")
	Expect(clientcmd.WriteToFile(*config, path)).To(Succeed())
	return path
}

// viewers binds the role view to viewer in the whole cluster, and to tenant only in the
// namespace books.
func viewers(ctx context.Context) {
	GinkgoHelper()
	api := cluster.RbacV1()
	view := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"}
	subject := func(name string) []rbacv1.Subject {
		return []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}}
	}
	everywhere := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "e2e-viewer"}, RoleRef: view, Subjects: subject("viewer")}
	_, err := api.ClusterRoleBindings().Create(ctx, everywhere, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx SpecContext) error {
		return api.ClusterRoleBindings().Delete(ctx, everywhere.Name, metav1.DeleteOptions{})
	})
	here := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "e2e-tenant"}, RoleRef: view, Subjects: subject("tenant")}
	_, err = api.RoleBindings(books).Create(ctx, here, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
}

// openBooks creates the namespace books, and annotates the ServiceAccount printer after
// its pod was created.
func openBooks(ctx context.Context) {
	GinkgoHelper()
	Expect(cluster.CreateNamespace(ctx, books, nil)).To(Succeed())
	_, err := cluster.Run(ctx, "kubectl", "apply", "--namespace", books, "--filename", testdata("books.yaml"))
	Expect(err).NotTo(HaveOccurred())
	Eventually(ctx, func(ctx context.Context) (int, error) {
		pods, err := cluster.CoreV1().Pods(books).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=printer"})
		return len(pods.Items), err
	}).Should(Equal(1))
	annotate(ctx, books, "printer", "lanyard.dev/aws-role-arn=arn:aws:iam::111122223333:role/printer")
}

// testdata returns the path of a file for the commands of the suite.
func testdata(name string) string {
	return filepath.Join(cluster.Root, "test", "e2e", "suite", "cli", "testdata", name)
}

// apply creates the objects of a file until the end of the spec.
func apply(ctx context.Context, name string) {
	GinkgoHelper()
	_, err := cluster.Run(ctx, "kubectl", "apply", "--filename", testdata(name))
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx SpecContext) error {
		_, err := cluster.Run(ctx, "kubectl", "delete", "--filename", testdata(name))
		return err
	})
}

// secondInstallation installs Lanyard a second time until the end of the spec, in another
// namespace.
func secondInstallation(ctx context.Context) {
	GinkgoHelper()
	second := install
	second.Release = "second"
	second.Values = append(slices.Clone(install.Values), "replicaCount=1", "podDisruptionBudget.enabled=false")
	DeferCleanup(func(ctx SpecContext) error { return second.Down(ctx, cluster) })
	Expect(second.Up(ctx, cluster)).To(Succeed())
	Eventually(ctx, callWebhook).Should(Succeed())
}

// disconnect makes the API server call the webhook at a port where nothing listens,
// until the end of the spec. It changes the port of the Service, so that the API server
// opens new connections.
func disconnect(ctx context.Context) {
	GinkgoHelper()
	service := cluster.CoreV1().Services(framework.Namespace)
	change := func(ctx context.Context, operation string, port int32) {
		GinkgoHelper()
		setPort(ctx, port)
		_, err := service.Patch(ctx, framework.Deployment, types.JSONPatchType, []byte(operation), metav1.PatchOptions{})
		Expect(err).NotTo(HaveOccurred())
	}
	change(ctx, `[{"op":"add","path":"/spec/ports/0","value":{"name":"blocked","port":8443,"targetPort":9}}]`, 8443)
	DeferCleanup(func(ctx SpecContext) error {
		change(ctx, `[{"op":"remove","path":"/spec/ports/0"}]`, 443)
		return cluster.WaitInjected(ctx, books, "seller")
	})
	Eventually(ctx, callWebhook).Should(MatchError(ContainSubstring("connection refused")))
}

// setPort sets the port of the Service in all webhook configurations of Lanyard.
func setPort(ctx context.Context, port int32) {
	GinkgoHelper()
	api := cluster.AdmissionregistrationV1()
	Expect(retry.RetryOnConflict(retry.DefaultRetry, func() error {
		mutating, err := api.MutatingWebhookConfigurations().Get(ctx, framework.Configuration, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for i := range mutating.Webhooks {
			mutating.Webhooks[i].ClientConfig.Service.Port = &port
		}
		_, err = api.MutatingWebhookConfigurations().Update(ctx, mutating, metav1.UpdateOptions{})
		return err
	})).To(Succeed())
	Expect(retry.RetryOnConflict(retry.DefaultRetry, func() error {
		validating, err := api.ValidatingWebhookConfigurations().Get(ctx, framework.Configuration, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for i := range validating.Webhooks {
			validating.Webhooks[i].ClientConfig.Service.Port = &port
		}
		_, err = api.ValidatingWebhookConfigurations().Update(ctx, validating, metav1.UpdateOptions{})
		return err
	})).To(Succeed())
}
