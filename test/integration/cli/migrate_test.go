// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lanyard-dev/lanyard/internal/cli/command"
	"github.com/lanyard-dev/lanyard/test/support/peers"
)

// withoutWarnings returns what a command writes to the error stream, without the
// warnings of the webhook about ServiceAccounts that have both annotations.
func withoutWarnings(errOut string) string {
	return regexp.MustCompile(`(?m)^Warning: lanyard: adoption: .*\n`).ReplaceAllString(errOut, "")
}

var _ = Describe("migrate", Ordered, func() {
	get := func(ctx context.Context, namespace, name string) *corev1.ServiceAccount {
		GinkgoHelper()
		account, err := env.client.CoreV1().ServiceAccounts(namespace).Get(ctx, name, metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		return account
	}

	BeforeAll(func(ctx SpecContext) {
		newNamespace(ctx, "moving")
		newServiceAccount(ctx, "moving", "app", map[string]string{eksRole: role, "eks.amazonaws.com/token-expiration": "7200"})
		newServiceAccount(ctx, "moving", "ceph", map[string]string{eksRole: "arn:aws:iam:::role/ceph"})
		newServiceAccount(ctx, "moving", "keda", nil)
		newServiceAccount(ctx, "moving", "other", nil)
		labels := map[string]string{"app": "keda", "azure.workload.identity/use": "true"}
		template := corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: map[string]string{"azure.workload.identity/skip-containers": "proxy;"}},
			Spec:       newPod("", "keda").Spec,
		}
		_, err := env.client.AppsV1().Deployments("moving").Create(ctx, &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Name: "keda"},
			Spec:       appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: template},
		}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
	})

	It("takes stock of a cluster and changes nothing", func(ctx SpecContext) {
		before := get(ctx, "moving", "app")
		expectOutputs(ctx, "migrate", command.ExitOK, "migrate", "--from", "eks,azure", "--namespace", "moving")
		Expect(get(ctx, "moving", "app")).To(Equal(before))
	})

	It("writes nothing if one ServiceAccount cannot be written", func(ctx SpecContext) {
		kubeconfig := reader(ctx, "migrate-app-only")
		api := env.client.RbacV1()
		_, err := api.Roles("moving").Create(ctx, &rbacv1.Role{
			ObjectMeta: metav1.ObjectMeta{Name: "app-only"},
			Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"serviceaccounts"}, ResourceNames: []string{"app"}, Verbs: []string{"patch"}}},
		}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		_, err = api.RoleBindings("moving").Create(ctx, &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "app-only"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "app-only"},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "migrate-app-only"}},
		}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		Eventually(ctx, func(ctx context.Context) string {
			_, _, errOut := lanyardAs(ctx, kubeconfig, "", "migrate", "--from", "eks,azure", "--namespace", "moving", "--write")
			return withoutWarnings(errOut)
		}).Should(And(HavePrefix("error: serviceaccount/keda in the namespace moving: serviceaccounts \"keda\" is forbidden"), HaveSuffix("\n"), Not(ContainSubstring("serviceaccount/app"))))
		code, out, _ := lanyardAs(ctx, kubeconfig, "", "migrate", "--from", "eks,azure", "--namespace", "moving", "--write")
		Expect(code).To(Equal(command.ExitFound))
		Expect(out).To(HaveSuffix("ServiceAccounts written: 0 of 2\n"))
		Expect(get(ctx, "moving", "app").Annotations).NotTo(HaveKey("lanyard.dev/aws-role-arn"))
	})

	It("annotates the ServiceAccounts, and nothing else", func(ctx SpecContext) {
		code, out, errOut := lanyard(ctx, "migrate", "--from", "eks,azure", "--namespace", "moving", "--write")
		Expect(withoutWarnings(errOut)).To(BeEmpty())
		Expect(code).To(Equal(command.ExitOK))
		Expect(out).To(HaveSuffix("ServiceAccounts written: 2 of 2\n"))
		account := get(ctx, "moving", "app")
		Expect(account.Annotations).To(Equal(map[string]string{
			eksRole: role, "eks.amazonaws.com/token-expiration": "7200", "lanyard.dev/aws-role-arn": role,
			"lanyard.dev/aws-token-path": "/var/run/secrets/eks.amazonaws.com/serviceaccount/token", "lanyard.dev/token-expiration-seconds": "7200",
		}))
		Expect(account.Labels).To(HaveKeyWithValue("lanyard.dev/identity", "enabled"))
		Expect(get(ctx, "moving", "keda").Annotations).To(HaveKeyWithValue("lanyard.dev/tokens", "azure"))
		Expect(get(ctx, "moving", "other").Annotations).To(BeEmpty())
		Expect(get(ctx, "moving", "ceph").Annotations).To(HaveLen(1))
		pod, err := env.client.CoreV1().Pods("moving").Create(ctx, newPod("probe", "app"), dryRun)
		Expect(err).NotTo(HaveOccurred())
		Expect(pod.Annotations).To(HaveKeyWithValue("lanyard.dev/injected", "aws"))
	})

	It("removes what is not needed any more", func(ctx SpecContext) {
		code, out, _ := lanyard(ctx, "migrate", "--from", "eks", "--namespace", "moving", "--remove", "--write")
		Expect(code).To(Equal(command.ExitOK))
		Expect(out).To(HaveSuffix("ServiceAccounts written: 1 of 1\n"))
		Expect(get(ctx, "moving", "app").Annotations).NotTo(HaveKey(HavePrefix("eks.amazonaws.com/")))
		Expect(get(ctx, "moving", "app").Annotations).To(HaveKeyWithValue("lanyard.dev/aws-role-arn", role))
		Expect(get(ctx, "moving", "ceph").Annotations).To(HaveLen(1))
	})

	It("says how far it is with many ServiceAccounts", func(ctx SpecContext) {
		newNamespace(ctx, "moving-many")
		for i := range 201 {
			newServiceAccount(ctx, "moving-many", fmt.Sprintf("app-%03d", i), map[string]string{eksRole: role})
		}
		code, out, errOut := lanyard(ctx, "migrate", "--from", "eks", "--namespace", "moving-many", "--write")
		Expect(code).To(Equal(command.ExitOK))
		Expect(out).To(HaveSuffix("ServiceAccounts written: 201 of 201\n"))
		errOut = withoutWarnings(errOut)
		Expect(strings.Split(strings.TrimSpace(errOut), "\n")).To(HaveLen(6))
		Expect(errOut).To(HaveSuffix("writing 200 of 201 ServiceAccounts ...\n"))
	})
})

// newOfOthers creates a ReplicaSet whose pod another webhook has changed. No controller runs, so
// the pod is created here, before its ServiceAccount has an annotation of Lanyard. own are variables
// of the template.
func newOfOthers(ctx context.Context, name, account, runningRole string, own ...corev1.EnvVar) {
	GinkgoHelper()
	labels := map[string]string{"app": name}
	template := newPod("", account)
	template.Spec.Containers[0].Env = own
	set, err := env.client.AppsV1().ReplicaSets("theirs").Create(ctx, &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.ReplicaSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: template.Spec},
		},
	}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	pod := template.DeepCopy()
	pod.Name, pod.Labels = name+"-1", labels
	pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))}
	theirs := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "theirs", Name: account, Annotations: map[string]string{eksRole: runningRole}}}
	Expect(new(peers.EKS).Mutate(pod, theirs)).To(Succeed())
	_, err = env.client.CoreV1().Pods("theirs").Create(ctx, pod, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
}

var _ = Describe("status of pods that another webhook injected", Ordered, func() {
	notAdopted := HavePrefix("warning: serviceaccount theirs/app has the annotation eks.amazonaws.com/role-arn")

	BeforeAll(func(ctx SpecContext) {
		newNamespace(ctx, "theirs")
		newServiceAccount(ctx, "theirs", "app", map[string]string{eksRole: role})
		newServiceAccount(ctx, "theirs", "forgotten", nil)
		newOfOthers(ctx, "same", "app", role)
		newOfOthers(ctx, "differs", "app", role+"-old")
		newOfOthers(ctx, "own", "app", role, corev1.EnvVar{Name: "AWS_ROLE_ARN", Value: role + "-own"},
			corev1.EnvVar{Name: "AWS_WEB_IDENTITY_TOKEN_FILE", Value: "/var/run/secrets/eks.amazonaws.com/serviceaccount/token"})
		newOfOthers(ctx, "forgotten", "forgotten", role)
	})

	It("lists nothing as long as no ServiceAccount asks Lanyard", func(ctx SpecContext) {
		code, out, errOut := lanyard(ctx, "status", "--namespace", "theirs")
		Expect(errOut).To(notAdopted)
		Expect(code).To(Equal(command.ExitOK))
		Expect(out).To(Equal("no ServiceAccount asks for an identity\n"))
	})

	It("finds the same credentials, and others", func(ctx SpecContext) {
		code, out, errOut := lanyard(ctx, "migrate", "--from", "eks", "--namespace", "theirs", "--write")
		Expect(code).To(Equal(command.ExitOK), out+errOut)
		expectInjected(ctx, "theirs", "app", "aws")
		expectOutputsAs(ctx, env.kubeconfig, "status-others", command.ExitOK, notAdopted, "status", "--namespace", "theirs")
		code, out, errOut = lanyard(ctx, "status", "--namespace", "theirs", "--stale", "--output", "name")
		Expect(out).To(BeEmpty())
		Expect(errOut).To(ContainSubstring("no restart replaces the pods of replicaset/differs"))
		Expect(code).To(Equal(command.ExitFound))
	})

	It("is explained, also for a ServiceAccount that was forgotten", func(ctx SpecContext) {
		for name, want := range map[string][2]string{
			"same-1":      {"this pod: current\n  it has the credentials of a new pod, from another webhook", ""},
			"own-1":       {"this pod: current\n  it has the credentials of a new pod, from another webhook", ""},
			"differs-1":   {"this pod: stale\n  its credentials differ from those of a new pod", "  main: aws-role-arn: running pod " + role + "-old, new pod " + role + "\n"},
			"forgotten-1": {"this pod: stale\n  it has credentials, and a new pod gets none", "  main: aws-role-arn: running pod " + role + ", new pod none\n"},
		} {
			code, out, errOut := lanyard(ctx, "explain", "pod/"+name, "--namespace", "theirs")
			Expect(errOut).To(Or(BeEmpty(), notAdopted), name)
			Expect(out).To(And(ContainSubstring(want[0]), ContainSubstring(want[1])), name)
			Expect(code).To(Equal(map[bool]int{true: command.ExitOK, false: command.ExitFound}[want[1] == ""]), name)
		}
	})
})

// The commands of the pages must work with manifests and with a cluster.
var _ = Describe("the commands of docs/migrate", Serial, func() {
	It("run", func(ctx SpecContext) {
		pages, err := filepath.Glob("../../../docs/migrate/*.md")
		Expect(err).NotTo(HaveOccurred())
		manifests := filepath.Join(GinkgoT().TempDir(), "manifests")
		Expect(os.Mkdir(manifests, 0o700)).To(Succeed())
		text := "apiVersion: v1\nkind: ServiceAccount\nmetadata:\n  name: app\n  annotations:\n    " + eksRole + ": " + role + "\n"
		Expect(os.WriteFile(filepath.Join(manifests, "app.yaml"), []byte(text), 0o600)).To(Succeed())
		commandLine := regexp.MustCompile(`(?m)^ *lanyard (migrate .*)$`)
		ran := 0
		for _, page := range pages {
			text, err := os.ReadFile(page)
			Expect(err).NotTo(HaveOccurred())
			for _, match := range commandLine.FindAllStringSubmatch(string(text), -1) {
				args := strings.Fields(strings.ReplaceAll(match[1], "manifests/", manifests))
				code, _, errOut := lanyard(ctx, args...)
				Expect(code).To(Equal(command.ExitOK), "%s: %s", match[1], errOut)
				ran++
			}
		}
		Expect(ran).To(BeNumerically(">=", 5))
	})
})

var _ = Describe("migrate, after adoption", Serial, Ordered, func() {
	It("leaves what is adopted in sync, and adds what is not", func(ctx SpecContext) {
		callForPeers(ctx)
		newNamespace(ctx, "beside")
		newServiceAccount(ctx, "beside", "app", map[string]string{eksRole: role})
		newServiceAccount(ctx, "beside", "mapped", nil)
		// Other specs look at all ServiceAccounts, and would get a warning.
		DeferCleanup(func(ctx SpecContext) error {
			return env.client.CoreV1().ServiceAccounts("beside").DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
		})
		_, err := env.client.CoreV1().ConfigMaps("beside").Create(ctx, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: "pod-identity-webhook"}, Data: map[string]string{"config": `{"beside/mapped": {"RoleARN": "` + role + `"}}`},
		}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		args := []string{"migrate", "--from", "eks", "--namespace", "beside", "--config", adopting("eks"), "--write"}
		code, out, errOut := lanyard(ctx, args...)
		Expect(code).To(Equal(command.ExitOK), errOut)
		Expect(out).To(HaveSuffix("ServiceAccounts written: 1 of 1\n"))
		values := func(name string) map[string]string {
			account, err := env.client.CoreV1().ServiceAccounts("beside").Get(ctx, name, metav1.GetOptions{})
			Expect(err).NotTo(HaveOccurred())
			return account.Annotations
		}
		Expect(values("mapped")).To(And(HaveKeyWithValue("lanyard.dev/aws-role-arn", role), Not(HaveKey("lanyard.dev/adopted"))))
		Expect(values("app")).To(HaveKey("lanyard.dev/adopted"))
		code, _, errOut = lanyard(ctx, append(args, "--remove")...)
		Expect(code).To(Equal(command.ExitFailed))
		Expect(errOut).To(HavePrefix("error: --remove: Lanyard adopts the annotations of eks, "))
		Expect(values("app")).To(HaveKey(eksRole))
	})

	It("makes the annotations the user's, so that they stay without the other ones", func(ctx SpecContext) {
		callForPeers(ctx)
		newNamespace(ctx, "adopted")
		newServiceAccount(ctx, "adopted", "app", map[string]string{eksRole: role})
		values := func() map[string]string {
			account, err := env.client.CoreV1().ServiceAccounts("adopted").Get(ctx, "app", metav1.GetOptions{})
			Expect(err).NotTo(HaveOccurred())
			return account.Annotations
		}
		adopted := values()
		Expect(adopted).To(And(HaveKey("lanyard.dev/adopted"), HaveKeyWithValue("lanyard.dev/aws-role-arn", role)))
		code, _, _ := lanyard(ctx, "migrate", "--from", "eks", "--namespace", "adopted", "--write")
		Expect(code).To(Equal(command.ExitOK))
		delete(adopted, "lanyard.dev/adopted")
		Expect(values()).To(Equal(adopted))
		code, _, _ = lanyard(ctx, "migrate", "--from", "eks", "--namespace", "adopted", "--remove", "--write")
		Expect(code).To(Equal(command.ExitOK))
		delete(adopted, eksRole)
		Expect(values()).To(Equal(adopted))
	})
})
