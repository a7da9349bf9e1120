// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lanyard-dev/lanyard/test/support/randpod"
	"github.com/lanyard-dev/lanyard/test/support/webhook"
)

// verdict is what happens to a pod.
type verdict int

const (
	allowed verdict = iota
	denied          // by the guard; and the webhook changes or denies the pod
	warned          // denied by the guard; the webhook only warns while the ServiceAccount asks for an identity
)

// rule is one sentence about a pod of one container, main-0, with changes.
type rule struct {
	sentence string
	verdict  verdict
	changes  []func(*corev1.Pod)
}

func (r *rule) pod() *corev1.Pod {
	pod := newPod("pod", "app", 1)
	for _, change := range r.changes {
		change(pod)
	}
	return pod
}

// guardRules contains pods about which guard and webhook agree: the guard denies those
// that the webhook changes or denies, or warns about because no container is left.
var guardRules = []rule{
	{"a container without a mount is denied", denied, nil},
	{"a mount at the token path is allowed", allowed, changes(mount(mountPath))},
	{"a mount below the token path is allowed", allowed, changes(mount(mountPath + "/aws"))},
	{"a mount far below the token path is allowed", allowed, changes(mount(mountPath + "/a/b/c"))},
	{"a mount above the token path is denied", denied, changes(mount("/var/run/secrets/lanyard.dev"))},
	{"a Secret above the token path is allowed: nothing can be mounted below it", allowed, changes(mountSource("/var/run/secrets/lanyard.dev", secret))},
	{"a Secret above the token path at /run is allowed", allowed, changes(mountSource("/run/secrets/", secret))},
	{"a projected volume above the token path is allowed", allowed, changes(mountSource("/var/run", corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{}}))},
	{"a read-only claim above the token path is allowed", allowed, changes(mountSource("/var", corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "a", ReadOnly: true}}))},
	{"a claim above the token path is denied", denied, changes(mountSource("/var/run/secrets", corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "a"}}))},
	{"a mount above the token path that is read-only is allowed", allowed, changes(mount("/var/run/secrets"), readOnly)},
	{"a Secret next to the token path is denied", denied, changes(mountSource("/var/run/secrets/lanyard", secret))},
	{"a mount at the token path below /run is denied", denied, changes(mount("/run/secrets/lanyard.dev/serviceaccount"))},
	{"a mount at a path that only starts like the token path is denied", denied, changes(mount(mountPath + "2"))},
	{"a mount at a path with another character is denied", denied, changes(mount("/var/run/secrets/lanyard-dev/serviceaccount"))},
	{"a mount at the token path in capitals is denied", denied, changes(mount(strings.ToUpper(mountPath)))},
	{"a mount at the token path without its first slash is denied", denied, changes(mount(mountPath[1:]))},
	{"a mount at the token path with two slashes is denied", denied, changes(mount("/" + mountPath))},
	{"a mount at the token path with a drive is denied on Windows", denied, changes(windows, mount(`C:`+mountPath))},
	{"a mount at the token path is allowed on Windows", allowed, changes(windows, mount(mountPath))},
	{"a device at the token path is denied", denied, changes(device(mountPath))},
	{"other mounts next to the token mount are allowed", allowed, changes(mount("/data"), mountOf("own", mountPath), mountOf("own", "/other"))},
	{"the token volume without a mount is denied", denied, changes(tokens)},

	{"a second container without a mount is denied", denied, changes(mount(mountPath), another)},
	{"a second container with a mount is allowed", allowed, changes(mount(mountPath), another, mountEverywhere)},
	{"an init container without a mount is denied", denied, changes(mount(mountPath), initContainer)},
	{"an init container with a mount is allowed", allowed, changes(mount(mountPath), initContainer, mountEverywhere)},
	{"a native sidecar without a mount is denied", denied, changes(mount(mountPath), sidecar)},
	{"a native sidecar with a mount is allowed", allowed, changes(mount(mountPath), sidecar, mountEverywhere)},

	{"its own variables do not replace the mount", denied, changes(env("AWS_ROLE_ARN", "own"), env("AWS_WEB_IDENTITY_TOKEN_FILE", "/own"))},
	{"the mount is enough without any variable", allowed, changes(mount(mountPath))},
	{"marks in a copied manifest do not replace the mount", denied, changes(annotate("injected", "aws"))},

	{"the annotation inject: false opts out", allowed, changes(annotate("inject", "false"))},
	{"the label inject: false opts out", allowed, changes(label("inject", "false"))},
	{"the annotation inject: False is malformed, and does not opt out", denied, changes(annotate("inject", "False"))},
	{"an empty annotation inject is malformed, and does not opt out", denied, changes(annotate("inject", ""))},
	{"the label inject: false opts out despite the annotation inject: true", allowed, changes(label("inject", "false"), annotate("inject", "true"))},
	{"the label inject: disabled is for namespaces, and does not opt out", denied, changes(label("inject", "disabled"))},
	{"the probe label does not opt out", denied, changes(label("probe", "true"))},

	{"a pod that insists is denied", denied, changes(annotate("inject", "true"))},
	{"a pod that insists by a label is denied", denied, changes(label("inject", "true"))},
	{"a mount is not enough for a pod that insists", denied, changes(mount(mountPath), annotate("inject", "true"))},
	{"a pod that insists and leaves its container out is denied", denied, changes(annotate("skip-containers", "main-0"), annotate("inject", "true"))},
	{"the label of an injected pod does not replace the mount", denied, changes(injectedLabel)},
	{"the label of an injected pod does not replace the mount of a second container", denied, changes(injectedLabel, mount(mountPath), another)},
	{"the label of an injected pod does not replace the mount of an init container", denied, changes(injectedLabel, mount(mountPath), initContainer)},
	{"a mount below a path like the token path does not help the label", denied, changes(injectedLabel, mount(mountPath+"2"))},
	{"the label of an injected pod does not replace the mount of a pod that insists", denied, changes(injectedLabel, annotate("inject", "true"))},
	{"the label of an injected pod with a mount is allowed", allowed, changes(injectedLabel, mount(mountPath))},
	{"the label of an injected pod whose only container is left out is denied", warned, changes(injectedLabel, annotate("containers", "other"))},
	{"the label of an injected pod that skips its only container is denied", warned, changes(injectedLabel, annotate("skip-containers", "main-0"))},
	{"the label of an injected pod that skips another container is denied", denied, changes(injectedLabel, annotate("skip-containers", "other"))},
	{"the label of an injected pod that opts out is allowed", allowed, changes(injectedLabel, annotate("inject", "false"))},
	{"the label of an injected pod that opts out by a label is allowed", allowed, changes(injectedLabel, label("inject", "false"))},
	{"the value of a ServiceAccount's label does not replace the mount", denied, changes(label("identity", "enabled"))},
	{"another value of the label does not replace the mount", denied, changes(label("identity", "Injected"))},

	{"a container that containers names is denied", denied, changes(annotate("containers", "main-0"))},
	{"a container that containers names among others, with spaces, is denied", denied, changes(annotate("containers", "other , main-0 "))},
	{"a pod whose only container is not in containers is denied", warned, changes(annotate("containers", "other"))},
	{"an init container that containers does not name is left out", allowed, changes(mount(mountPath), initContainer, annotate("containers", "main-0"))},
	{"an init container that containers names is denied", denied, changes(mount(mountPath), initContainer, annotate("containers", "init"))},
	{"a name that is only the beginning of a listed name is not in the list", warned, changes(annotate("containers", "main-01"))},
	{"a pod that skips its only container is denied", warned, changes(annotate("skip-containers", "main-0"))},
	{"a pod that skips its only container among others, with spaces, is denied", warned, changes(annotate("skip-containers", "other , main-0 "))},
	{"a container that skip-containers does not name is denied", denied, changes(annotate("skip-containers", "other"))},
	{"an init container that skip-containers names is left out", allowed, changes(mount(mountPath), initContainer, annotate("skip-containers", "init"))},
	{"a native sidecar that skip-containers names is left out", allowed, changes(mount(mountPath), sidecar, annotate("skip-containers", "sidecar"))},
	{"one of two containers that skip-containers names is not enough", denied, changes(another, annotate("skip-containers", "main-0"))},
	{"with both lists, a container that containers names is denied", denied, changes(annotate("containers", "main-0"), annotate("skip-containers", "main-0"))},
	{"an empty skip-containers leaves nothing out", denied, changes(annotate("skip-containers", ""))},
	{"the longest list is read to its end", warned, changes(annotate("skip-containers", strings.Repeat("x,", 255)+"main-0"))},
	{"a pod that leaves out one container by each name is denied", warned, changes(another, annotate("skip-containers", "main-0,another"))},
	{"a pod that leaves out all containers, of which one has a mount, is allowed", allowed, changes(another, mount(mountPath), annotate("skip-containers", "main-0,another"))},
	{"a pod that names no container, of which one has a mount, is allowed", allowed, changes(another, mount(mountPath+"/aws"), annotate("containers", "other"))},
	{"a pod that leaves out all containers and opts out is allowed", allowed, changes(annotate("skip-containers", "main-0"), label("inject", "false"))},
	{"an empty list of containers that leaves nothing is denied", denied, changes(annotate("containers", ""))},
	{"a list of containers with an invalid name that leaves nothing is denied", denied, changes(annotate("containers", "Main"))},
	{"a list of skipped containers with an invalid name that leaves nothing is denied", denied, changes(annotate("skip-containers", "main-0,Main"))},
	{"a list of skipped containers that ends with a comma that leaves nothing is denied", denied, changes(annotate("skip-containers", "main-0,"))},
	{"a list of skipped containers that is too long that leaves nothing is denied", denied, changes(annotate("skip-containers", "main-0"+strings.Repeat(",x", 512)))},
	{"both lists, which leave nothing, are denied", denied, changes(annotate("containers", "other"), annotate("skip-containers", "main-0"))},
}

// guardAllows are pods that the webhook changes or denies, and that the guard
// allows: it does not check what is mounted, nor whether annotations are valid.
var guardAllows = []rule{
	{"a token path with a slash at its end", allowed, changes(mount(mountPath + "/"))},
	{"a path below the token path that leads elsewhere", allowed, changes(mount(mountPath + "/../elsewhere"))},
	{"its own volume with the token, mounted, but without variables", allowed, changes(tokens, mountOf("bound-sa-token", mountPath))},
	{"a pod that insists and has the label of an injected pod, and a mount of its own", allowed, changes(injectedLabel, mount(mountPath), annotate("inject", "true"))},
	{"another value of the label of an injected pod, with a mount", allowed, changes(label("identity", "enabled"), mount(mountPath))},
	{"an unknown annotation", allowed, changes(mount(mountPath), annotate("unknown", "x"))},
	{"inject: no", allowed, changes(mount(mountPath), annotate("inject", "no"))},
}

// plainToken contains the annotations of the ServiceAccount of the pods above. The
// volume of the function tokens contains what it needs.
var plainToken = map[string]string{"lanyard.dev/audience": "vault"}

var _ = Describe("The guard, without the webhook", policies, Ordered, ContinueOnFailure, func() {
	var namespace string
	BeforeAll(func(ctx SpecContext) {
		unregister(ctx)
		namespace = newNamespace(ctx)
		labelledAccount(ctx, namespace, "app", plainToken)
		waitingAccount(ctx, namespace, "waiting", nil)
		waitForGuard(ctx)
	})
	AfterAll(func(ctx SpecContext) { registerAnew(ctx) })

	for _, r := range guardRules {
		It("follows the rule: "+r.sentence, func(ctx SpecContext) {
			Expect(guardRule(r.pod(), true)).To(Equal(r.verdict != allowed), "the rule in Go")
			Expect(deniedByGuard(tryPod(ctx, namespace, r.pod()))).To(Equal(r.verdict != allowed))
			Expect(deniedByGuard(tryPod(ctx, namespace, waits(r.pod())))).To(Equal(r.verdict != allowed), "before its ServiceAccount asks for an identity")
		})
	}

	for _, r := range guardAllows {
		It("allows what it does not check: "+r.sentence, func(ctx SpecContext) {
			Expect(tryPod(ctx, namespace, r.pod())).To(Succeed())
		})
	}

	It("agrees with the webhook about every rule", func(ctx SpecContext) {
		var disagree []string
		for _, r := range guardRules {
			if touches(ctx, cluster.webhook, namespace, r.pod()) != (r.verdict == denied) || warnsOfGuard(ctx, namespace, r.pod()) != (r.verdict == warned) {
				disagree = append(disagree, r.sentence)
			}
			if touches(ctx, cluster.webhook, namespace, waits(r.pod())) != (r.verdict != allowed) {
				disagree = append(disagree, r.sentence+", before its ServiceAccount asks for an identity")
			}
		}
		for _, r := range guardAllows {
			if !touches(ctx, cluster.webhook, namespace, r.pod()) {
				disagree = append(disagree, r.sentence)
			}
		}
		Expect(disagree).To(BeEmpty(), strings.Join(disagree, "\n"))
	})

	It("denies random pods by the same rule", func(ctx SpecContext) {
		verdicts := map[bool]int{}
		for seed := range uint64(300) {
			pod := randomPod(seed)
			denied := guardRule(pod, true)
			Expect(deniedByGuard(tryPod(ctx, namespace, pod))).To(Equal(denied), "seed %d", seed)
			verdicts[denied]++
		}
		AddReportEntry(fmt.Sprintf("the guard denied %d of 300 random pods", verdicts[true]), ReportEntryVisibilityAlways)
		Expect(verdicts[true]).To(BeNumerically(">", 75), "too few pods were denied")
		Expect(verdicts[false]).To(BeNumerically(">", 75), "too few pods were allowed")
	})

	It("agrees with the webhook about random pods", func(ctx SpecContext) {
		for seed := range uint64(300) {
			pod := randomPod(seed)
			Expect(touches(ctx, cluster.webhook, namespace, pod) || warnsOfGuard(ctx, namespace, pod)).To(Equal(guardRule(pod, true)), "seed %d", seed)
			Expect(touches(ctx, cluster.webhook, namespace, waits(pod))).To(Equal(guardRule(pod, true)), "seed %d, without an identity", seed)
		}
	})

	It("needs only the label, whatever the ServiceAccount's annotations are", func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		for _, key := range identityKeys {
			labelledAccount(ctx, namespace, key, map[string]string{"lanyard.dev/" + key: ""})
		}
		waitForGuard(ctx)
		for _, key := range identityKeys {
			Expect(deniedByGuard(tryPod(ctx, namespace, newPod("pod", key, 1)))).To(BeTrue(), key)
		}
	})

	It("names the ServiceAccount, the reason, and what to do", func(ctx SpecContext) {
		err := tryPod(ctx, namespace, newPod("pod", "app", 1))
		Expect(apierrors.IsForbidden(err)).To(BeTrue())
		Expect(err).To(MatchError(`pods "pod" is forbidden: ` + guardDenies + "ServiceAccount " + namespace + "/app needs credentials (label lanyard.dev/identity=enabled), " +
			"but a container of this pod has no token mount: lanyard-webhook did not respond, does not know the ServiceAccount yet, or did not see the container. " +
			`Controllers retry automatically. To create the pod without credentials, annotate it with lanyard.dev/inject: "false"`))
	})

	It("names the containers of a pod that leaves out all of them", func(ctx SpecContext) {
		pod := newPod("pod", "app", 2)
		annotate("containers", "man-0")(pod)
		err := tryPod(ctx, namespace, pod)
		Expect(apierrors.IsForbidden(err)).To(BeTrue())
		Expect(err).To(MatchError(`pods "pod" is forbidden: ` + guardDenies + "ServiceAccount " + namespace + "/app needs credentials (label lanyard.dev/identity=enabled), " +
			"but the annotations of the pod (lanyard.dev/containers, lanyard.dev/skip-containers) leave out all of its containers: main-0, main-1. Correct the names. " +
			`To create the pod without credentials, annotate it with lanyard.dev/inject: "false"`))
		injectedLabel(pod)
		Expect(tryPod(ctx, namespace, pod)).To(MatchError(`pods "pod" is forbidden: ` + guardDeniesInjected + "this pod of ServiceAccount " + namespace +
			"/app needs credentials (label lanyard.dev/identity=injected), but the annotations of the pod (lanyard.dev/containers, lanyard.dev/skip-containers) " +
			"leave out all of its containers: main-0, main-1. Correct the names. If a manifest or a pod template has the label, remove it there: only Lanyard may write it"))
	})

	It("denies a pod with very long names in its message", func(ctx SpecContext) {
		pod := newPod("pod", "app", 1)
		pod.Spec.Containers = nil
		for i := range 200 {
			pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: fmt.Sprintf("%s-%d", strings.Repeat("x", 58), i), Image: "image"})
		}
		annotate("containers", "main")(pod)
		Expect(tryPod(ctx, namespace, pod)).To(MatchError(And(ContainSubstring("leave out all of its containers: xxx"), ContainSubstring("... Correct the names"))))
	})

	It("names the missing identity of a ServiceAccount with the label required", func(ctx SpecContext) {
		err := tryPod(ctx, namespace, newPod("pod", "waiting", 1))
		Expect(apierrors.IsForbidden(err)).To(BeTrue())
		Expect(err).To(MatchError(`pods "pod" is forbidden: ` + guardDenies + "ServiceAccount " + namespace + "/waiting needs credentials (label lanyard.dev/identity=required), " +
			"but no annotation asks for an identity yet: annotate the ServiceAccount. " +
			`Controllers retry automatically. To create the pod without credentials, annotate it with lanyard.dev/inject: "false"`))
	})

	It("allows the pods of every other ServiceAccount in the namespace", func(ctx SpecContext) {
		newAccount(ctx, namespace, "none", nil)
		newAccount(ctx, namespace, "annotated", plainToken)
		disabled := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "disabled", Labels: map[string]string{"lanyard.dev/identity": "disabled"}}}
		_, err := cluster.client.CoreV1().ServiceAccounts(namespace).Create(ctx, disabled, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		waitForGuard(ctx)
		for _, name := range []string{"", "none", "annotated", "disabled"} {
			Expect(tryPod(ctx, namespace, newPod("pod", name, 1))).To(Succeed(), name)
		}
	})

	It("denies pods without a name of a ServiceAccount if default is labelled, but not mirror pods", func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		patch := []byte(`{"metadata":{"labels":{"lanyard.dev/identity":"enabled"}}}`)
		_, err := cluster.client.CoreV1().ServiceAccounts(namespace).Patch(ctx, "default", types.MergePatchType, patch, metav1.PatchOptions{})
		Expect(err).NotTo(HaveOccurred())
		waitForGuard(ctx)
		pod := newPod("pod", "", 1)
		Expect(deniedByGuard(tryPod(ctx, namespace, pod))).To(BeTrue())
		pod.Annotations = map[string]string{mirrorPod: "x"}
		Expect(tryPod(ctx, namespace, pod)).To(Succeed())
		injectedLabel(pod)
		Expect(tryPod(ctx, namespace, pod)).To(Succeed(), "with the label of an injected pod")
	})

	DescribeTable("does not match the pods of a namespace that the webhook is not called for:", func(ctx SpecContext, namespace string, labels map[string]string) {
		if namespace == "" {
			namespace = labelledNamespace(ctx, labels)
		}
		labelledAccount(ctx, namespace, "guarded", plainToken)
		waitingAccount(ctx, namespace, "required", nil)
		waitForGuard(ctx)
		for _, name := range []string{"guarded", "required"} {
			pod := newPod("pod", name, 1)
			restrict(pod)
			Expect(tryPod(ctx, namespace, pod)).To(Succeed(), name)
		}
	},
		Entry("its own", webhook.Namespace, nil),
		Entry("kube-system", "kube-system", nil),
		Entry("with the label inject: disabled", "", map[string]string{"lanyard.dev/inject": "disabled"}),
		Entry("with the label inject: false", "", map[string]string{"lanyard.dev/inject": "false"}),
	)

	DescribeTable("denies pods that insist in every namespace, and checks the label where it guards:", func(ctx SpecContext, namespace string, labels map[string]string, checks bool) {
		if namespace == "" {
			namespace = labelledNamespace(ctx, labels)
		}
		account := newAccount(ctx, namespace, "insists", nil)
		try := func(change func(*corev1.Pod)) error {
			pod := newPod("pod", account.Name, 1)
			restrict(pod)
			change(pod)
			return tryPod(ctx, namespace, pod)
		}
		Expect(try(annotate("inject", "true"))).To(MatchError(ContainSubstring(guardDeniesInjected)))
		Expect(try(label("inject", "true"))).To(MatchError(ContainSubstring(guardDeniesInjected)))
		Expect(try(annotate("inject", "false"))).To(Succeed())
		Expect(deniedByGuard(try(injectedLabel))).To(Equal(checks))
	},
		Entry("its own", webhook.Namespace, nil, false),
		Entry("kube-system", "kube-system", nil, false),
		Entry("with the label inject: disabled", "", map[string]string{"lanyard.dev/inject": "disabled"}, true),
		Entry("without a label", "", nil, true),
	)

	It("names the label of an injected pod, and what to do", func(ctx SpecContext) {
		pod := newPod("pod", "none", 1)
		injectedLabel(pod)
		Expect(tryPod(ctx, namespace, pod)).To(MatchError(`pods "pod" is forbidden: ` + guardDeniesInjected + "this pod of ServiceAccount " + namespace +
			"/none needs credentials (label lanyard.dev/identity=injected), but a container has no token mount: lanyard-webhook did not respond, or did not see the container. " +
			"Controllers retry automatically. If a manifest or a pod template has the label, remove it there: only Lanyard may write it"))
	})

	It("names the annotation of a pod that insists, and what to do", func(ctx SpecContext) {
		pod := newPod("pod", "none", 1)
		annotate("inject", "true")(pod)
		Expect(tryPod(ctx, namespace, pod)).To(MatchError(`pods "pod" is forbidden: ` + guardDeniesInjected + "this pod of ServiceAccount " + namespace +
			`/none needs credentials (lanyard.dev/inject: "true"), but was not injected: lanyard-webhook did not respond, ` +
			"does not know an identity of the ServiceAccount yet, or is not called for this pod or namespace. " +
			"Controllers retry automatically. To create the pod without credentials, remove lanyard.dev/inject"))
	})

	It("matches the pods of a namespace with the label inject: enabled", func(ctx SpecContext) {
		namespace := labelledNamespace(ctx, map[string]string{"lanyard.dev/inject": "enabled"})
		labelledAccount(ctx, namespace, "app", plainToken)
		waitForGuard(ctx)
		Expect(deniedByGuard(tryPod(ctx, namespace, newPod("pod", "app", 1)))).To(BeTrue())
	})

	DescribeTable("can evaluate a pod of 100 containers with 50 mounts each", func(ctx SpecContext, denied bool, last ...func(*corev1.Pod)) {
		pod := largePod("app", 100, 50)
		for _, change := range last {
			change(pod)
		}
		Expect(deniedByGuard(tryPod(ctx, namespace, pod))).To(Equal(denied))
	},
		Entry("that all have the token mount", false, mountEverywhere),
		Entry("of which the last has no token mount", true, mountEverywhere, another),
		Entry("that are all in a list", true, skipAll),
	)
})

var _ = Describe("A pod with the label of an injected pod", policies, Ordered, func() {
	var namespace string
	BeforeAll(func(ctx SpecContext) {
		namespace = newNamespace(ctx)
		newAccount(ctx, namespace, "app", plainToken)
		newAccount(ctx, namespace, "none", nil)
		waitForRegistration(ctx)
	})

	// This is a pod of kubectl debug --copy-to, or of a template that was copied from a pod.
	It("is injected like any other pod", func(ctx SpecContext) {
		created := createPod(ctx, namespace, newPod("first", "app", 1))
		Expect(created.Labels).To(HaveKeyWithValue("lanyard.dev/identity", "injected"))
		for sentence, changes := range map[string][]func(*corev1.Pod){
			"only the label": {injectedLabel}, "it insists": {injectedLabel, annotate("inject", "true")},
			"with another container": {func(pod *corev1.Pod) { pod.ObjectMeta.Labels, pod.Spec = created.Labels, *created.Spec.DeepCopy() }, another},
		} {
			pod := newPod("second", "app", 1)
			for _, change := range changes {
				change(pod)
			}
			got, err := cluster.client.CoreV1().Pods(namespace).Create(ctx, pod, dryRun)
			Expect(err).NotTo(HaveOccurred(), sentence)
			Expect(lacksMount(got)).To(BeFalse(), sentence)
		}
	})

	It("is denied if its ServiceAccount asks for no identity and it has no mount", func(ctx SpecContext) {
		pod := newPod("pod", "none", 1)
		injectedLabel(pod)
		Expect(tryPod(ctx, namespace, pod)).To(MatchError(ContainSubstring(guardDeniesInjected)))
		pod.Labels = nil
		annotate("inject", "true")(pod)
		Expect(tryPod(ctx, namespace, pod)).To(MatchError(ContainSubstring(
			`lanyard: identity_required: pod "` + namespace + `/pod" has lanyard.dev/inject: "true", but no annotation of serviceaccount "` + namespace + `/none" asks for an identity`)))
	})
})

var _ = Describe("With the webhook registered and every replica gone", policies, Ordered, ContinueOnFailure, func() {
	var namespace string
	patch := func(ctx context.Context, name, patch string) error {
		_, err := cluster.client.CoreV1().ServiceAccounts(namespace).Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		return err
	}
	create := func(ctx context.Context, meta *metav1.ObjectMeta) error {
		_, err := cluster.client.CoreV1().ServiceAccounts(namespace).Create(ctx, &corev1.ServiceAccount{ObjectMeta: *meta}, metav1.CreateOptions{})
		return err
	}
	labelled := map[string]string{"lanyard.dev/identity": "enabled"}
	setting := map[string]string{"lanyard.dev/aws-region": "eu-central-1"}
	unlabelled := MatchError(ContainSubstring(`failed calling webhook "serviceaccounts.lanyard.dev"`))

	BeforeAll(func(ctx SpecContext) {
		namespace = newNamespace(ctx)
		newAccount(ctx, namespace, "before", plainToken)
		unregister(ctx)
		newAccount(ctx, namespace, "old", plainToken)
		Expect(create(ctx, &metav1.ObjectMeta{Name: "deleted", Annotations: plainToken, Finalizers: []string{"example.com/held"}})).To(Succeed())
		process := launch(ctx, webhook.Options{Kubeconfig: cluster.kubeconfig})
		Expect(process.Register(ctx, cluster.client, deployDir)).To(Succeed())
		waitForRegistration(ctx)
		Expect(process.Stop()).To(Succeed())
		Eventually(ctx, func(ctx context.Context) error { return tryPod(ctx, namespace, newPod("pod", "before", 1)) }).
			Within(startTimeout).Should(MatchError(ContainSubstring(guardDenies)))
	})
	AfterAll(func(ctx SpecContext) {
		unregister(ctx)
		registerAnew(ctx)
	})

	It("only pods that need credentials are denied", func(ctx SpecContext) {
		Expect(deniedByGuard(tryPod(ctx, namespace, newPod("pod", "before", 1)))).To(BeTrue())
		Expect(tryPod(ctx, namespace, newPod("pod", "", 1))).To(Succeed())
	})

	It("a pod with the probe label shows the API server's error, in every namespace", func(ctx SpecContext) {
		optedOut := labelledNamespace(ctx, map[string]string{"lanyard.dev/inject": "disabled"})
		for _, namespace := range []string{namespace, optedOut, "kube-system", webhook.Namespace} {
			newAccount(ctx, namespace, "probe", nil)
			pod := newPod("pod", "probe", 1)
			restrict(pod)
			label("probe", "true")(pod)
			Expect(tryPod(ctx, namespace, pod)).To(MatchError(And(
				ContainSubstring(`failed calling webhook "probe.lanyard.dev"`), ContainSubstring("connection refused"))), namespace)
			label("probe", "false")(pod)
			Expect(tryPod(ctx, namespace, pod)).To(Succeed(), namespace)
		}
	})

	It("an annotated ServiceAccount is not stored without the label", func(ctx SpecContext) {
		for _, key := range append([]string{"alibaba-role-arn"}, identityKeys...) {
			annotations := map[string]string{"lanyard.dev/" + key: "x"}
			Expect(create(ctx, &metav1.ObjectMeta{GenerateName: "app-", Annotations: annotations})).To(unlabelled, key)
			Expect(create(ctx, &metav1.ObjectMeta{GenerateName: "app-", Annotations: annotations, Labels: labelled})).To(Succeed(), key)
		}
		disabled := map[string]string{"lanyard.dev/identity": "disabled"}
		Expect(create(ctx, &metav1.ObjectMeta{Name: "app", Annotations: plainToken, Labels: disabled})).To(unlabelled)
		Expect(create(ctx, &metav1.ObjectMeta{Name: "app", Labels: labelled})).To(unlabelled, "the label without an annotation")
	})

	It("no other ServiceAccount waits for the webhook", func(ctx SpecContext) {
		Expect(create(ctx, &metav1.ObjectMeta{Name: "none"})).To(Succeed())
		Expect(create(ctx, &metav1.ObjectMeta{Name: "other", Annotations: map[string]string{"example.com/a": "b"}, Labels: map[string]string{"a": "b"}})).To(Succeed())
		Expect(patch(ctx, "none", `{"metadata":{"labels":{"a":"b"}}}`)).To(Succeed())
		Expect(patch(ctx, "before", `{"metadata":{"labels":{"a":"b"}}}`)).To(Succeed())
		Expect(patch(ctx, "before", `{"metadata":{"annotations":{"lanyard.dev/audience":"other"}}}`)).To(Succeed(), "another value")
		Expect(patch(ctx, "before", `{"metadata":{"annotations":{"lanyard.dev/token-expiration-seconds":"600"}}}`)).To(Succeed(), "one more annotation")
	})

	It("the label is neither added nor removed in disagreement with the annotations", func(ctx SpecContext) {
		newAccount(ctx, namespace, "plain", nil)
		Expect(patch(ctx, "plain", `{"metadata":{"annotations":{"lanyard.dev/audience":"vault"}}}`)).To(unlabelled)
		Expect(patch(ctx, "plain", `{"metadata":{"labels":{"lanyard.dev/identity":"enabled"}}}`)).To(unlabelled)
		Expect(patch(ctx, "plain", `{"metadata":{"labels":{"lanyard.dev/identity":"enabled"},"annotations":{"lanyard.dev/audience":"vault"}}}`)).To(Succeed())
		Expect(patch(ctx, "plain", `{"metadata":{"labels":{"lanyard.dev/identity":null}}}`)).To(unlabelled)
		Expect(patch(ctx, "plain", `{"metadata":{"annotations":{"lanyard.dev/audience":null}}}`)).To(unlabelled)
		Expect(patch(ctx, "plain", `{"metadata":{"labels":null,"annotations":null}}`)).To(Succeed())
	})

	It("a ServiceAccount with the label required does not wait for it, and its pods are denied", func(ctx SpecContext) {
		required := map[string]string{"lanyard.dev/identity": "required"}
		Expect(create(ctx, &metav1.ObjectMeta{Name: "later", Labels: required})).To(Succeed())
		Eventually(ctx, func(ctx context.Context) error { return tryPod(ctx, namespace, newPod("pod", "later", 1)) }).
			Within(startTimeout).Should(MatchError(ContainSubstring(guardDenies)))
		Expect(patch(ctx, "later", `{"metadata":{"annotations":{"lanyard.dev/audience":"vault"}}}`)).To(Succeed())
		Expect(patch(ctx, "later", `{"metadata":{"annotations":null}}`)).To(Succeed())
		Expect(patch(ctx, "later", `{"metadata":{"labels":null}}`)).To(Succeed())
		Expect(patch(ctx, "later", `{"metadata":{"labels":{"lanyard.dev/identity":"Required"}}}`)).To(unlabelled)
	})

	It("a ServiceAccount from before the install is not guarded, and not written without the label", func(ctx SpecContext) {
		Expect(tryPod(ctx, namespace, newPod("pod", "old", 1))).To(Succeed())
		Expect(patch(ctx, "old", `{"imagePullSecrets":[{"name":"a"}]}`)).To(unlabelled)
		Expect(patch(ctx, "old", `{"metadata":{"labels":{"lanyard.dev/identity":"enabled"}}}`)).To(Succeed())
	})

	It("a ServiceAccount can be deleted, and its finalizers removed", func(ctx SpecContext) {
		Expect(patch(ctx, "deleted", `{"metadata":{"finalizers":["example.com/held","example.com/other"]}}`)).To(unlabelled)
		Expect(cluster.client.CoreV1().ServiceAccounts(namespace).Delete(ctx, "deleted", metav1.DeleteOptions{})).To(Succeed())
		Expect(patch(ctx, "deleted", `{"metadata":{"finalizers":null}}`)).To(Succeed())
		_, err := cluster.client.CoreV1().ServiceAccounts(namespace).Get(ctx, "deleted", metav1.GetOptions{})
		Expect(apierrors.IsNotFound(err)).To(BeTrue(), "%v", err)
	})

	It("ServiceAccounts of kube-system and the webhook's own namespace do not wait for it", func(ctx SpecContext) {
		for _, namespace := range []string{"kube-system", webhook.Namespace} {
			_, err := cluster.client.CoreV1().ServiceAccounts(namespace).Create(ctx, &corev1.ServiceAccount{
				ObjectMeta: metav1.ObjectMeta{GenerateName: "app-", Annotations: setting},
			}, metav1.CreateOptions{})
			Expect(err).NotTo(HaveOccurred(), namespace)
		}
	})
})

var _ = Describe("The label of a ServiceAccount", func() {
	It("follows the annotations while the webhook responds", func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		api := cluster.client.CoreV1().ServiceAccounts(namespace)
		labelOf := func(patch string) map[string]string {
			GinkgoHelper()
			account, err := api.Patch(ctx, "app", types.MergePatchType, []byte(patch), metav1.PatchOptions{})
			Expect(err).NotTo(HaveOccurred())
			return account.Labels
		}
		Expect(newAccount(ctx, namespace, "app", nil).Labels).To(BeEmpty())
		enabled := HaveKeyWithValue("lanyard.dev/identity", "enabled")
		Expect(labelOf(`{"metadata":{"annotations":{"lanyard.dev/audience":"vault"}}}`)).To(enabled)
		Expect(labelOf(`{"metadata":{"labels":{"lanyard.dev/identity":null}}}`)).To(enabled)
		Expect(labelOf(`{"metadata":{"labels":{"lanyard.dev/identity":"disabled"}}}`)).To(enabled)
		Expect(labelOf(`{"metadata":{"annotations":{"lanyard.dev/audience":null}}}`)).To(BeEmpty())
		Expect(labelOf(`{"metadata":{"labels":{"lanyard.dev/identity":"enabled"}}}`)).To(BeEmpty())
	})

	It("stays as the user sets it to required", func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		api := cluster.client.CoreV1().ServiceAccounts(namespace)
		waitingAccount(ctx, namespace, "app", nil)
		for _, patch := range []string{
			`{"metadata":{"annotations":{"lanyard.dev/audience":"vault"}}}`, `{"metadata":{"annotations":{"lanyard.dev/audience":"other"}}}`,
			`{"metadata":{"annotations":{"lanyard.dev/audience":null}}}`, `{"metadata":{"labels":{"a":"b"}}}`,
		} {
			account, err := api.Patch(ctx, "app", types.MergePatchType, []byte(patch), metav1.PatchOptions{})
			Expect(err).NotTo(HaveOccurred())
			Expect(account.Labels).To(HaveKeyWithValue("lanyard.dev/identity", "required"), patch)
		}
	})

	It("lets pods start as soon as the ServiceAccount asks for an identity, and not before", func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		waitingAccount(ctx, namespace, "app", nil)
		Expect(tryPod(ctx, namespace, newPod("pod", "app", 1))).To(MatchError(
			ContainSubstring(`admission webhook "pods.lanyard.dev" denied the request: lanyard: identity_required: serviceaccount "` + namespace + `/app" has the label`)))
		_, err := cluster.client.CoreV1().ServiceAccounts(namespace).Patch(ctx, "app", types.MergePatchType,
			[]byte(`{"metadata":{"annotations":{"lanyard.dev/audience":"vault"}}}`), metav1.PatchOptions{})
		Expect(err).NotTo(HaveOccurred())
		Eventually(ctx, func(ctx context.Context) error { return tryPod(ctx, namespace, newPod("pod", "app", 1)) }).Within(startTimeout).Should(Succeed())
	})
})

// warnsOfGuard reports whether the webhook warns that the guard denies the pod.
func warnsOfGuard(ctx context.Context, namespace string, pod *corev1.Pod) bool {
	GinkgoHelper()
	text, err := json.Marshal(pod)
	Expect(err).NotTo(HaveOccurred())
	return slices.ContainsFunc(review(ctx, cluster.webhook, namespace, text).Warnings, func(warning string) bool {
		return strings.HasPrefix(warning, "lanyard: no_container: ")
	})
}

// waits changes the ServiceAccount of the pod to waiting.
func waits(pod *corev1.Pod) *corev1.Pod {
	pod = pod.DeepCopy()
	pod.Spec.ServiceAccountName = "waiting"
	return pod
}

// changes is a list.
func changes(all ...func(*corev1.Pod)) []func(*corev1.Pod) { return all }

func annotate(key, value string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { metav1.SetMetaDataAnnotation(&pod.ObjectMeta, "lanyard.dev/"+key, value) }
}

func label(key, value string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { metav1.SetMetaDataLabel(&pod.ObjectMeta, "lanyard.dev/"+key, value) }
}

func injectedLabel(pod *corev1.Pod) { label("identity", "injected")(pod) }

func env(name, value string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		c := &pod.Spec.Containers[0]
		c.Env = append(c.Env, corev1.EnvVar{Name: name, Value: value})
	}
}

// mount mounts a volume of the pod's own in its first container.
func mount(path string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "own", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}})
		mountOf("own", path)(pod)
	}
}

// secret is the source of a volume that is always mounted read-only.
var secret = corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "a"}}

// mountSource mounts a volume with this source in the first container.
func mountSource(path string, source corev1.VolumeSource) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		mount(path)(pod)
		pod.Spec.Volumes[len(pod.Spec.Volumes)-1].VolumeSource = source
	}
}

// readOnly makes the mounts of the first container read-only.
func readOnly(pod *corev1.Pod) {
	for i := range pod.Spec.Containers[0].VolumeMounts {
		pod.Spec.Containers[0].VolumeMounts[i].ReadOnly = true
	}
}

func mountOf(volume, path string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		c := &pod.Spec.Containers[0]
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: volume, MountPath: path})
	}
}

// mountEverywhere mounts the first volume at the token path, in every container
// that has nothing there.
func mountEverywhere(pod *corev1.Pod) {
	for _, containers := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range containers {
			taken := slices.ContainsFunc(containers[i].VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == mountPath })
			if !taken {
				containers[i].VolumeMounts = append(containers[i].VolumeMounts, corev1.VolumeMount{Name: pod.Spec.Volumes[0].Name, MountPath: mountPath})
			}
		}
	}
}

func device(path string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "own", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "own"}}})
		pod.Spec.Containers[0].VolumeDevices = []corev1.VolumeDevice{{Name: "own", DevicePath: path}}
	}
}

// tokens adds a volume with the token of plainToken.
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

func sidecar(pod *corev1.Pod) {
	pod.Spec.InitContainers = append(pod.Spec.InitContainers, corev1.Container{
		Name: "sidecar", Image: "image", RestartPolicy: new(corev1.ContainerRestartPolicyAlways),
	})
}

func windows(pod *corev1.Pod) { pod.Spec.OS = &corev1.PodOS{Name: corev1.Windows} }

// skipAll leaves every container out.
func skipAll(pod *corev1.Pod) {
	var names []string
	for _, c := range pod.Spec.Containers {
		names = append(names, c.Name)
	}
	annotate("skip-containers", strings.Join(names, ", "))(pod)
}

// restrict changes the pod to comply with Pod Security "restricted".
func restrict(pod *corev1.Pod) {
	pod.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsNonRoot: new(true), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}}
	pod.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{AllowPrivilegeEscalation: new(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}}
}

// randomPod has mounts at, below and far from the token path, opts out now and
// then, and leaves some of its containers out by a valid list.
func randomPod(seed uint64) *corev1.Pod {
	GinkgoHelper()
	r := rand.New(rand.NewPCG(seed, 2))
	pod := decodePod(randpod.New(r))
	pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "own", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}})
	mounts := r.IntN(2) == 0
	var list []string
	for _, containers := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range containers {
			c := &containers[i]
			for j := range c.VolumeMounts { // the webhook denies other spellings
				path := &c.VolumeMounts[j].MountPath
				*path = strings.TrimSuffix(*path, "/")
				if *path == randpod.OtherPath {
					*path = "/run/other"
				}
			}
			if mounts && r.IntN(8) > 0 {
				c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: "own", MountPath: mountPath + []string{"/own", "/a/b", "/own/c", "/d", "2"}[r.IntN(5)]})
			}
			if r.IntN(3) > 0 {
				list = append(list, c.Name)
			}
		}
	}
	names := strings.Join(append(list, "other"), []string{",", ", "}[r.IntN(2)])
	changes := []func(*corev1.Pod){
		annotate("inject", "true"), annotate("inject", "false"), label("inject", "false"), label("inject", "true"), injectedLabel, injectedLabel,
		annotate("containers", names), annotate("containers", "other"),
		annotate("skip-containers", names), annotate("skip-containers", "main-1, "+names), annotate("skip-containers", "other"),
	}
	if r.IntN(2) == 0 {
		changes[r.IntN(len(changes))](pod)
	}
	return pod
}

// largePod returns a pod with this many containers, each with this many mounts.
func largePod(account string, containers, mounts int) *corev1.Pod {
	pod := newPod("large", account, containers)
	pod.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		for n := range mounts {
			c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: "data", MountPath: fmt.Sprintf("/var/lib/application/data-%d", n), SubPath: fmt.Sprint(n)})
		}
	}
	return pod
}
