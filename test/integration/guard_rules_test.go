// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientv1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/lanyard-dev/lanyard/test/support/controlplane"
	"github.com/lanyard-dev/lanyard/test/support/randpod"
	"github.com/lanyard-dev/lanyard/test/support/webhook"
)

// identityKeys are those of which each asks for an identity by itself.
var identityKeys = []string{"aws-role-arn", "azure-client-id", "gcp-workload-identity-provider", "gcp-service-account", "audience"}

// guardedAccounts are accounts of every kind, by their names.
var guardedAccounts = map[string]map[string]string{
	"aws":   {"lanyard.dev/aws-role-arn": role},
	"azure": {"lanyard.dev/azure-client-id": strings.ToUpper("aaaabbbb-0000-cccc-1111-dddd2222eeee"), "lanyard.dev/azure-tenant-id": tenantID},
	"gcp":   {"lanyard.dev/gcp-workload-identity-provider": pool},
	"plain": {"lanyard.dev/audience": "vault"},
	"three": threeClouds(),
}

func guardedNamespace(ctx context.Context) string {
	GinkgoHelper()
	namespace := newNamespace(ctx)
	for name, values := range guardedAccounts {
		labelledAccount(ctx, namespace, name, values)
	}
	waitForGuard(ctx)
	return namespace
}

var _ = Describe("The guard, without the webhook", Ordered, func() {
	var namespace string
	BeforeAll(func(ctx SpecContext) {
		unregister(ctx)
		namespace = guardedNamespace(ctx)
	})
	AfterAll(func(ctx SpecContext) { registerAnew(ctx) })

	DescribeTable("says of a pod what the webhook would:", func(ctx SpecContext, touched bool, account string, changes ...func(*corev1.Pod)) {
		pod := newPod("pod", account, 1)
		for _, change := range changes {
			change(pod)
		}
		Expect(touches(ctx, cluster.webhook, namespace, pod)).To(Equal(touched), "the webhook")
		Expect(refusedByGuard(tryPod(ctx, namespace, pod))).To(Equal(touched), "the guard")
	},
		Entry("a taken mount path", false, "aws", mount(mountPath)),
		Entry("with a slash at its end", false, "aws", mount(mountPath+"/")),
		Entry("with more than one slash, and dots", false, "aws", mount("//var/./run/secrets//lanyard.dev/././serviceaccount/.")),
		Entry("without the first slash", false, "aws", mount(mountPath[1:])),
		Entry("by way of another directory", false, "aws", mount("/var/log/../run/secrets/lanyard.dev/serviceaccount")),
		Entry("below it", false, "aws", mount(mountPath+"/aws")),
		Entry("above it", true, "aws", mount("/var/run/secrets/lanyard.dev")),
		Entry("beside it", true, "aws", mount(mountPath+"2")),
		Entry("a name that looks like it", true, "aws", mount("/var/run/secrets/lanyard-dev/serviceaccount")),
		Entry("in capitals", true, "aws", mount(strings.ToUpper(mountPath))),
		Entry("in capitals on Windows", false, "aws", windows, mount(strings.ToUpper(mountPath))),
		Entry("with a drive on Windows", false, "aws", windows, mount(`C:\var\run\\secrets/lanyard.dev\.\serviceaccount\below`)),
		Entry("in capitals on a node of Windows", false, "aws", windowsNode, mount(strings.ToUpper(mountPath))),
		Entry("with a drive elsewhere", true, "aws", mount(`/C:\var\run\secrets\lanyard.dev\serviceaccount`)),
		Entry("by a device", false, "aws", device(mountPath)),
		Entry("in one container of two", true, "aws", mount(mountPath), another),
		Entry("in one container of two, and the other is left out", false, "aws", mount(mountPath), another, annotate("skip-containers", "another")),

		Entry("a role of its own", false, "aws", env("AWS_ROLE_ARN", "own")),
		Entry("a role from elsewhere", false, "aws", envFrom("AWS_ROLE_ARN")),
		Entry("an empty role", false, "aws", env("AWS_ROLE_ARN", "")),
		Entry("a region of its own", true, "aws", env("AWS_REGION", "own")),
		Entry("another cloud's credential", true, "aws", env("AZURE_CLIENT_ID", "own")),
		Entry("credentials of its own for two of three clouds", true, "three", env("AWS_ROLE_ARN", "own"), env("AZURE_CLIENT_ID", "own")),
		Entry("credentials of its own for three of three", false, "three", env("AWS_ROLE_ARN", "own"), env("AZURE_CLIENT_ID", "own"), env("GOOGLE_APPLICATION_CREDENTIALS", "own")),
		Entry("its own in each container but one for initialization", true, "aws", env("AWS_ROLE_ARN", "own"), initContainer),
		Entry("half of what the webhook sets", false, "aws", env("AWS_ROLE_ARN", role)),
		Entry("what the webhook sets, for AWS", true, "aws", awsCredential),
		Entry("and an own role after it", false, "aws", awsCredential, env("AWS_ROLE_ARN", "own")),
		Entry("and an own role before it", true, "aws", env("AWS_ROLE_ARN", "own"), awsCredential),
		Entry("what the webhook sets, for Azure", true, "azure", azureCredential("aaaabbbb-0000-cccc-1111-dddd2222eeee", tenantID)),
		Entry("as the account spells it", false, "azure", azureCredential(strings.ToUpper("aaaabbbb-0000-cccc-1111-dddd2222eeee"), tenantID)),
		Entry("what the webhook sets, for Google", true, "gcp",
			env("GOOGLE_APPLICATION_CREDENTIALS", mountPath+"/gcp/credentials.json"), env("CLOUDSDK_AUTH_CREDENTIAL_FILE_OVERRIDE", mountPath+"/gcp/credentials.json")),
		Entry("what the webhook sets, for a plain token", true, "plain", env("LANYARD_TOKEN_FILE", mountPath+"/token")),
		Entry("the same on Windows", true, "plain", windows, env("LANYARD_TOKEN_FILE", `C:\var\run\secrets\lanyard.dev\serviceaccount\token`)),
		Entry("Windows' on Linux", false, "plain", env("LANYARD_TOKEN_FILE", `C:\var\run\secrets\lanyard.dev\serviceaccount\token`)),

		Entry("inject: false", false, "aws", annotate("inject", "false")),
		Entry("inject: true", true, "aws", annotate("inject", "true")),
		Entry("inject: no", true, "aws", annotate("inject", "no")),
		Entry("inject: no, and nothing to inject into", true, "aws", annotate("inject", "no"), mount(mountPath)),
		Entry("its container chosen", true, "aws", annotate("containers", " main-0 ,other")),
		Entry("another chosen", false, "aws", annotate("containers", "other")),
		Entry("its container left out", false, "aws", annotate("skip-containers", "other, main-0")),
		Entry("another left out", true, "aws", annotate("skip-containers", "other")),
		Entry("both lists", true, "aws", annotate("containers", "other"), annotate("skip-containers", "main-0")),
		Entry("an empty list", true, "aws", annotate("skip-containers", "")),
		Entry("a list that ends in a comma", true, "aws", annotate("skip-containers", "main-0,")),
		Entry("a list with what is no name", true, "aws", annotate("skip-containers", "main-0,Main")),
		Entry("a list that is too long", true, "aws", annotate("skip-containers", "main-0"+strings.Repeat(",x", 256))),
		Entry("a list that is not", false, "aws", annotate("skip-containers", "main-0"+strings.Repeat(",x", 255))),

		Entry("the marks alone", true, "aws", annotate("injected", "aws")),
		Entry("the marks and the volume, mounted nowhere", true, "aws", annotate("injected", "aws"), tokens),
	)

	It("says of random pods what the webhook would", func(ctx SpecContext) {
		names := slices.Sorted(maps.Keys(guardedAccounts))
		verdicts := map[bool]int{}
		for seed := range uint64(300) {
			r := rand.New(rand.NewPCG(seed, 2))
			pod := decodePod(randpod.New(r))
			pod.Spec.ServiceAccountName = names[r.IntN(len(names))]
			leaveOut(r, pod)
			touched := touches(ctx, cluster.webhook, namespace, pod)
			Expect(refusedByGuard(tryPod(ctx, namespace, pod))).To(Equal(touched), "seed %d, the webhook first", seed)
			verdicts[touched]++
		}
		AddReportEntry(fmt.Sprintf("of 300 random pods the guard refused %d", verdicts[true]), ReportEntryVisibilityAlways)
		Expect(verdicts[true]).To(BeNumerically(">", 75), "so few pods were refused that this shows little")
		Expect(verdicts[false]).To(BeNumerically(">", 75), "so few pods were passed that this shows little")
	})

	// Where it cannot tell, it does not stand in the way.
	DescribeTable("passes what it cannot tell, though the webhook would touch it:", func(ctx SpecContext, account string, changes ...func(*corev1.Pod)) {
		pod := newPod("pod", account, 1)
		for _, change := range changes {
			change(pod)
		}
		Expect(touches(ctx, cluster.webhook, namespace, pod)).To(BeTrue())
		Expect(tryPod(ctx, namespace, pod)).To(Succeed())
	},
		Entry("a path with two dots that leads elsewhere", "aws", mount("/data/../elsewhere")),
		Entry("a token volume of its own at the mount path", "plain", tokens, mountOf("bound-sa-token", mountPath)),
		Entry("an unknown key on a pod that gets nothing", "aws", mount(mountPath), annotate("unknown", "x")),
	)

	It("does not know the cluster's tenant, and passes a container that sets one", func(ctx SpecContext) {
		process := launch(ctx, webhook.Options{Kubeconfig: cluster.kubeconfig, Args: []string{"--azure-default-tenant-id", tenantID}})
		Expect(controlplane.WaitReady(ctx, process.HealthURL+"/readyz")).To(Succeed())
		labelledAccount(ctx, namespace, "no-tenant", map[string]string{"lanyard.dev/azure-client-id": clientID})
		waitForGuard(ctx)
		for tenant, touched := range map[string]bool{tenantID: true, "own": false, "": false} {
			pod := newPod("pod", "no-tenant", 1)
			azureCredential(clientID, tenant)(pod)
			Expect(touches(ctx, process, namespace, pod)).To(Equal(touched), tenant)
			Expect(tryPod(ctx, namespace, pod)).To(Succeed(), tenant)
		}
	})

	It("takes any one of the keys for the wish", func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		for _, key := range identityKeys {
			labelledAccount(ctx, namespace, key, map[string]string{"lanyard.dev/" + key: ""})
		}
		waitForGuard(ctx)
		for _, key := range identityKeys {
			Expect(refusedByGuard(tryPod(ctx, namespace, newPod("pod", key, 1)))).To(BeTrue(), key)
		}
	})

	It("says which account, why, and what to do", func(ctx SpecContext) {
		err := tryPod(ctx, namespace, newPod("pod", "aws", 1))
		Expect(apierrors.IsForbidden(err)).To(BeTrue())
		Expect(err).To(MatchError(`pods "pod" is forbidden: ` + guardsPods + "service account " + namespace + "/aws asks for an identity (lanyard.dev/identity=enabled), " +
			"but this pod did not get it: lanyard-webhook did not answer, or has not learnt of the account yet. Controllers try again by themselves; " +
			`a pod that is to run without an identity says so by the annotation lanyard.dev/inject: "false"`))
		pod := newPod("pod", "aws", 1)
		annotate("injected", "aws")(pod)
		Expect(tryPod(ctx, namespace, pod)).To(MatchError(ContainSubstring("not every container of this pod got it")))
		annotate("inject", "no")(pod)
		Expect(tryPod(ctx, namespace, pod)).To(MatchError(ContainSubstring(`lanyard.dev/inject must be "false" or "true"`)))
	})

	It("passes the pods of every other account of the namespace", func(ctx SpecContext) {
		newAccount(ctx, namespace, "none", nil)
		labelledAccount(ctx, namespace, "no-longer", nil)
		label := []byte(`{"metadata":{"labels":{"lanyard.dev/identity":"enabled"}}}`)
		_, err := cluster.client.CoreV1().ServiceAccounts(namespace).Patch(ctx, "no-longer", types.MergePatchType, label, metav1.PatchOptions{})
		Expect(err).NotTo(HaveOccurred())
		waitForGuard(ctx)
		Expect(tryPod(ctx, namespace, newPod("pod", "", 1))).To(Succeed())
		Expect(tryPod(ctx, namespace, newPod("pod", "none", 1))).To(Succeed())
		Expect(tryPod(ctx, namespace, newPod("pod", "no-longer", 1))).To(Succeed(), "the label without a key")
	})

	DescribeTable("leaves alone the namespaces that the webhook does:", func(ctx SpecContext, namespace string) {
		labelledAccount(ctx, namespace, "guarded", guardedAccounts["aws"])
		waitForGuard(ctx)
		pod := newPod("pod", "guarded", 1)
		pod.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsNonRoot: new(true), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}}
		pod.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{AllowPrivilegeEscalation: new(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}}
		Expect(tryPod(ctx, namespace, pod)).To(Succeed())
		newAccount(ctx, namespace, "unlabelled", guardedAccounts["aws"])
	},
		Entry(nil, webhook.Namespace),
		Entry(nil, "kube-system"),
	)

	It("is all that refuses when the webhook is registered and every replica gone", func(ctx SpecContext) {
		process := launch(ctx, webhook.Options{Kubeconfig: cluster.kubeconfig})
		Expect(process.Register(ctx, cluster.client, deployDir)).To(Succeed())
		waitForRegistration(ctx)
		DeferCleanup(unregister)
		newAccount(ctx, namespace, "before", guardedAccounts["aws"])
		Expect(tryPod(ctx, namespace, newPod("pod", "before", 1))).To(Succeed())

		Expect(process.Stop()).To(Succeed())
		Eventually(ctx, func(ctx context.Context) error { return tryPod(ctx, namespace, newPod("pod", "before", 1)) }).
			Within(startTimeout).Should(MatchError(ContainSubstring(guardsPods)))
		Expect(tryPod(ctx, namespace, newPod("pod", "", 1))).To(Succeed())
		newAccount(ctx, namespace, "plainly-none", nil)
		_, err := cluster.client.CoreV1().ServiceAccounts(namespace).Create(ctx, &corev1.ServiceAccount{
			ObjectMeta: metav1.ObjectMeta{Name: "after", Annotations: guardedAccounts["aws"]},
		}, metav1.CreateOptions{})
		Expect(err).To(MatchError(ContainSubstring(guardsAccount)))
	})

	DescribeTable("can work a large pod out", func(ctx SpecContext, refused bool, last ...func(*corev1.Pod)) {
		pod := largePod("three", 100, 100)
		for _, change := range last {
			change(pod)
		}
		Expect(refusedByGuard(tryPod(ctx, namespace, pod))).To(Equal(refused))
	},
		Entry("whose containers all have credentials of their own", false),
		Entry("the last of whose containers has none", true, another),
	)
})

var _ = Describe("The guard of service accounts, without the webhook", Ordered, func() {
	var namespace string
	accounts := func() clientv1.ServiceAccountInterface { return cluster.client.CoreV1().ServiceAccounts(namespace) }
	patch := func(ctx context.Context, name, patch string) error {
		_, err := accounts().Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		return err
	}
	BeforeAll(func(ctx SpecContext) {
		unregister(ctx)
		namespace = newNamespace(ctx)
		withoutAccountGuard(ctx, func() {
			for _, name := range []string{"old", "old-and-deleted"} {
				_, err := accounts().Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{
					Name: name, Annotations: guardedAccounts["aws"], Finalizers: []string{"example.com/held"},
				}}, metav1.CreateOptions{})
				Expect(err).NotTo(HaveOccurred())
			}
		})
	})
	AfterAll(func(ctx SpecContext) { registerAnew(ctx) })

	It("refuses one with a key and without the label, and says what to do", func(ctx SpecContext) {
		for _, key := range identityKeys {
			account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "app", Annotations: map[string]string{"lanyard.dev/" + key: ""}}}
			_, err := accounts().Create(ctx, account, dryRun)
			Expect(apierrors.IsForbidden(err)).To(BeTrue(), "%s: %v", key, err)
			Expect(err).To(MatchError(`serviceaccounts "app" is forbidden: ` + guardsAccount + "service account " + namespace + "/app asks for an identity by an annotation, " +
				"but came through without the label lanyard.dev/identity=enabled: lanyard-webhook, which adds it, did not answer. Try again when it is back, or add the label too"))
			account.Labels = map[string]string{"lanyard.dev/identity": "enabled"}
			_, err = accounts().Create(ctx, account, dryRun)
			Expect(err).NotTo(HaveOccurred(), key)
		}
	})

	It("passes one without a key", func(ctx SpecContext) {
		newAccount(ctx, namespace, "none", map[string]string{"lanyard.dev/aws-region": "eu-central-1"})
		Expect(patch(ctx, "none", `{"metadata":{"labels":{"a":"b"}}}`)).To(Succeed())
		Expect(patch(ctx, "none", `{"metadata":{"annotations":{"lanyard.dev/audience":"vault"}}}`)).To(MatchError(ContainSubstring(guardsAccount)))
		Expect(patch(ctx, "none", `{"metadata":{"labels":{"lanyard.dev/identity":"enabled"},"annotations":{"lanyard.dev/audience":"vault"}}}`)).To(Succeed())
	})

	It("lets the label go with the last key, and not before", func(ctx SpecContext) {
		labelledAccount(ctx, namespace, "app", guardedAccounts["aws"])
		Expect(patch(ctx, "app", `{"metadata":{"labels":null}}`)).To(MatchError(ContainSubstring(guardsAccount)))
		Expect(patch(ctx, "app", `{"metadata":{"labels":{"lanyard.dev/identity":"disabled"}}}`)).To(MatchError(ContainSubstring(guardsAccount)))
		Expect(patch(ctx, "app", `{"metadata":{"labels":null,"annotations":null}}`)).To(Succeed())
	})

	It("knows nothing of an account from before the install, until it is written", func(ctx SpecContext) {
		Expect(tryPod(ctx, namespace, newPod("pod", "old", 1))).To(Succeed())
		Expect(patch(ctx, "old", `{"imagePullSecrets":[{"name":"a"}]}`)).To(MatchError(ContainSubstring(guardsAccount)))

		By("labelling it with any write when the webhook is back")
		registerAnew(ctx)
		DeferCleanup(unregister)
		account, err := accounts().Get(ctx, "old", metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		account, err = accounts().Update(ctx, account, metav1.UpdateOptions{}) // changes nothing
		Expect(err).NotTo(HaveOccurred())
		Expect(account.Labels).To(HaveKeyWithValue("lanyard.dev/identity", "enabled"))
	})

	It("lets go one that is being deleted", func(ctx SpecContext) {
		Expect(accounts().Delete(ctx, "old-and-deleted", metav1.DeleteOptions{})).To(Succeed())
		Expect(patch(ctx, "old-and-deleted", `{"metadata":{"finalizers":null}}`)).To(Succeed())
		_, err := accounts().Get(ctx, "old-and-deleted", metav1.GetOptions{})
		Expect(apierrors.IsNotFound(err)).To(BeTrue(), "%v", err)
	})
})

// withoutAccountGuard runs do as before the install, when accounts were not
// guarded.
func withoutAccountGuard(ctx context.Context, do func()) {
	GinkgoHelper()
	const name = "lanyard-guard-serviceaccounts"
	namespace := newNamespace(ctx)
	try := func(ctx context.Context) error {
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "probe", Annotations: guardedAccounts["aws"]}}
		_, err := cluster.client.CoreV1().ServiceAccounts(namespace).Create(ctx, account, dryRun)
		return err
	}
	api := cluster.client.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
	binding, err := api.Get(ctx, name, metav1.GetOptions{})
	Expect(err).NotTo(HaveOccurred())
	Expect(api.Delete(ctx, name, metav1.DeleteOptions{})).To(Succeed())
	Eventually(ctx, try).Within(startTimeout).Should(Succeed())
	do()
	binding.ResourceVersion, binding.UID = "", ""
	_, err = api.Create(ctx, binding, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	Eventually(ctx, try).Within(startTimeout).Should(MatchError(ContainSubstring(guardsAccount)))
}

// The changes below make a pod of one container what an entry says.

func annotate(key, value string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { metav1.SetMetaDataAnnotation(&pod.ObjectMeta, "lanyard.dev/"+key, value) }
}

func env(name, value string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		c := &pod.Spec.Containers[0]
		c.Env = append(c.Env, corev1.EnvVar{Name: name, Value: value})
	}
}

func envFrom(name string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		c := &pod.Spec.Containers[0]
		c.Env = append(c.Env, corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}})
	}
}

func awsCredential(pod *corev1.Pod) {
	env("AWS_ROLE_ARN", role)(pod)
	env("AWS_WEB_IDENTITY_TOKEN_FILE", mountPath+"/aws/token")(pod)
}

func azureCredential(client, tenant string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		env("AZURE_CLIENT_ID", client)(pod)
		env("AZURE_TENANT_ID", tenant)(pod)
		env("AZURE_FEDERATED_TOKEN_FILE", mountPath+"/azure/token")(pod)
	}
}

// mount mounts a volume of the pod's own.
func mount(path string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "own", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}})
		mountOf("own", path)(pod)
	}
}

func mountOf(volume, path string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		c := &pod.Spec.Containers[0]
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: volume, MountPath: path})
	}
}

func device(path string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "own", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "own"}}})
		pod.Spec.Containers[0].VolumeDevices = []corev1.VolumeDevice{{Name: "own", DevicePath: path}}
	}
}

// tokens is a volume with the token of the account "plain".
func tokens(pod *corev1.Pod) {
	pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "bound-sa-token", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
		Sources: []corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Audience: "vault", Path: "token"}}},
	}}})
}

func another(pod *corev1.Pod) {
	pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: "another", Image: "image"})
}

func initContainer(pod *corev1.Pod) {
	pod.Spec.InitContainers = append(pod.Spec.InitContainers, corev1.Container{Name: "init", Image: "image"})
}

func windowsNode(pod *corev1.Pod) {
	pod.Spec.NodeSelector = map[string]string{"kubernetes.io/os": "windows"}
}

func windows(pod *corev1.Pod) { pod.Spec.OS = &corev1.PodOS{Name: corev1.Windows} }

// leaveOut has a random pod say something about its containers, well or badly,
// and has some of them, or all, be left out for what is in them.
func leaveOut(r *rand.Rand, pod *corev1.Pod) {
	all := slices.Concat(pod.Spec.Containers, pod.Spec.InitContainers)
	var list []string
	for _, c := range all {
		if r.IntN(3) > 0 {
			list = append(list, c.Name)
		}
	}
	some := strings.Join(append(list, "other"), []string{",", ", "}[r.IntN(2)])
	changes := []func(*corev1.Pod){
		annotate("inject", []string{"true", "false", "False", "no", ""}[r.IntN(5)]),
		annotate("containers", some), annotate("containers", "other"), annotate("containers", some+","),
		annotate("skip-containers", some), annotate("skip-containers", "main-1,"+some), annotate("skip-containers", "Main-1"),
	}
	for _, change := range changes {
		if r.IntN(len(changes)*2) == 0 {
			change(pod)
		}
	}
	ofThree, taken := r.IntN(3) == 0, r.IntN(4) == 0
	if taken {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "own", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}})
	}
	for _, containers := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range containers {
			c := &containers[i]
			if ofThree && r.IntN(8) > 0 {
				c.Env = append(c.Env, ownCredentials()...)
			}
			if taken && r.IntN(8) > 0 {
				c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: "own", MountPath: mountPath + "//own"})
			}
		}
	}
}

// ownCredentials are of every provider.
func ownCredentials() []corev1.EnvVar {
	return []corev1.EnvVar{
		{Name: "AWS_ROLE_ARN", Value: "own"}, {Name: "AZURE_TENANT_ID", Value: "own"},
		{Name: "GOOGLE_APPLICATION_CREDENTIALS", Value: "own"}, {Name: "LANYARD_TOKEN_FILE", Value: "own"},
	}
}

// largePod has containers of so many variables and half as many mounts, each
// with credentials of its own.
func largePod(account string, containers, size int) *corev1.Pod {
	pod := newPod("large", account, containers)
	pod.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		for n := range size - len(ownCredentials()) {
			c.Env = append(c.Env, corev1.EnvVar{Name: fmt.Sprintf("APPLICATION_SETTING_%d", n), Value: "value"})
		}
		c.Env = append(c.Env, ownCredentials()...)
		for n := range size / 2 {
			c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: "data", MountPath: fmt.Sprintf("/var/lib/application/data-%d", n), SubPath: fmt.Sprint(n)})
		}
	}
	return pod
}
