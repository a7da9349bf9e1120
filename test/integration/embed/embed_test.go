// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package embed_test runs pkg/webhook in a manager of controller-runtime, with its
// webhook server and its cache, against a real kube-apiserver. Its decisions must be
// those of the golden cases.
package embed_test

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	ctrlwebhook "sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/lanyard-dev/lanyard/internal/cli/cluster"
	"github.com/lanyard-dev/lanyard/pkg/webhook"
	"github.com/lanyard-dev/lanyard/test/support/controlplane"
	"github.com/lanyard-dev/lanyard/test/support/decisions"
	support "github.com/lanyard-dev/lanyard/test/support/webhook"
)

const (
	deployDir = "../../../deploy/base"
	// namespace and serviceAccount are those of the golden cases.
	namespace      = "team"
	serviceAccount = "app"
	// config contains a custom provider and a mapping, which no golden case uses.
	config = `providers:
- name: example
  audience: example.com
  parameters:
  - {name: role, required: true, pattern: 'role/.+', example: role/loki}
  - {name: region, pattern: '[a-z]+', example: eu, default: eu}
  environment:
  - {name: EXAMPLE_ROLE, value: '{role}/{region}'}
  - {name: EXAMPLE_TOKEN_FILE, value: '{token-file}', credential: true}
identities:
- {namespace: team, serviceAccount: "mapped-*", annotations: {example-role: role/loki}}
`
	// keysOfConfig are the keys of its provider in a list of all keys.
	keysOfConfig = "lanyard.dev/example-role, lanyard.dev/example-region, lanyard.dev/example-audience, "
)

var (
	client  *kubernetes.Clientset
	manager ctrl.Manager
)

func TestEmbed(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "embedded webhooks")
}

// goldenCases returns the golden cases of new pods. Pods with ephemeral containers cannot be
// created.
func goldenCases() []*decisions.Case {
	cases, err := decisions.Read("../../decisions")
	if err != nil {
		panic(err)
	}
	return slices.DeleteFunc(cases, (*decisions.Case).IsEphemeral)
}

// inPlace contains handlers that replace the first ones, or is nil if there are none.
var inPlace atomic.Pointer[map[string]http.Handler]

// switching is a webhook server whose handlers can be replaced.
type switching struct{ ctrlwebhook.Server }

// Register implements webhook.Server.
func (s switching) Register(path string, first http.Handler) {
	s.Server.Register(path, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		handler := first
		if others := inPlace.Load(); others != nil {
			handler = (*others)[path]
		}
		handler.ServeHTTP(w, r)
	}))
}

// another is the running manager, for webhooks that replace the first ones.
type another struct {
	ctrl.Manager
	server recording
}

// GetWebhookServer implements manager.Manager.
func (a *another) GetWebhookServer() ctrlwebhook.Server { return a.server }

// recording is a webhook server that only keeps its handlers.
type recording struct {
	ctrlwebhook.Server
	handlers map[string]http.Handler
}

// Register implements webhook.Server.
func (r recording) Register(path string, handler http.Handler) { r.handlers[path] = handler }

// configure sets up the webhooks with the settings of a golden case, if it has any, until
// the spec ends.
func configure(settings string) {
	GinkgoHelper()
	if settings == "" {
		return
	}
	a := &another{manager, recording{handlers: map[string]http.Handler{}}}
	Expect(webhook.AddToManager(a, webhook.Options{Config: []byte(settings), Registerer: prometheus.NewRegistry()})).To(Succeed())
	inPlace.Store(&a.server.handlers)
	DeferCleanup(func() { inPlace.Store(nil) })
}

var _ = BeforeSuite(func(ctx SpecContext) {
	plane, err := controlplane.Start(ctx, controlplane.Options{})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(plane.Stop)
	client = kubernetes.NewForConfigOrDie(plane.Config())

	By("running a manager with the webhooks")
	ctrl.SetLogger(GinkgoLogr)
	dir := GinkgoT().TempDir()
	_, _, ca, err := controlplane.NewServingCertificate(dir)
	Expect(err).NotTo(HaveOccurred())
	ports, err := support.FreePorts(ctx, 1)
	Expect(err).NotTo(HaveOccurred())
	port, err := strconv.Atoi(ports[0])
	Expect(err).NotTo(HaveOccurred())
	mgr, err := ctrl.NewManager(plane.Config(), ctrl.Options{
		Metrics:       server.Options{BindAddress: "0"},
		WebhookServer: switching{webhook.NewServer(ctrlwebhook.Options{Host: "127.0.0.1", Port: port, CertDir: dir})},
	})
	Expect(err).NotTo(HaveOccurred())
	Expect(webhook.AddToManager(mgr, webhook.Options{Config: []byte(config)})).To(Succeed())
	manager = mgr
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(running) }()
	DeferCleanup(func() {
		stop()
		Eventually(ended).WithTimeout(controlplane.Patience).Should(Receive(BeNil()))
	})

	By("registering them")
	register(ctx, "https://127.0.0.1:"+strconv.Itoa(port), ca)
	_, err = client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	Eventually(func() (map[string]string, error) {
		writeServiceAccount(ctx, nil, map[string]string{"lanyard.dev/audience": "ready"})
		pod := &corev1.Pod{}
		pod.Name, pod.Spec.ServiceAccountName = "pod", serviceAccount
		pod.Spec.Containers = []corev1.Container{{Name: "main", Image: "image"}}
		got, err := create(ctx, pod)
		return got.Annotations, err
	}).WithTimeout(controlplane.Patience).Should(HaveKeyWithValue("lanyard.dev/injected", "token"))
})

// register registers the mutating webhooks of deploy/ at url. The validating one would
// deny the malformed ServiceAccounts of the golden cases.
func register(ctx context.Context, url string, ca []byte) {
	configuration, err := support.ReadMutating(deployDir)
	Expect(err).NotTo(HaveOccurred())
	for i := range configuration.Webhooks {
		config := &configuration.Webhooks[i].ClientConfig
		path := url + *config.Service.Path
		*config = admissionregistrationv1.WebhookClientConfig{URL: &path, CABundle: ca}
	}
	expression, err := os.ReadFile("../testdata/adoption.cel")
	Expect(err).NotTo(HaveOccurred())
	cluster.Entry(configuration, cluster.ServiceAccountWebhook).MatchConditions[1].Expression = string(expression)
	_, err = client.AdmissionregistrationV1().MutatingWebhookConfigurations().Create(ctx, configuration, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
}

// writeServiceAccount gives the ServiceAccount these labels and annotations, and returns the
// annotations after the webhook. The webhook keeps the label of the ServiceAccount.
func writeServiceAccount(ctx context.Context, labels, annotations map[string]string) map[string]string {
	GinkgoHelper()
	object := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: serviceAccount, Labels: labels, Annotations: annotations}}
	api := client.CoreV1().ServiceAccounts(namespace)
	got, err := api.Update(ctx, object, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		got, err = api.Create(ctx, object, metav1.CreateOptions{})
	}
	Expect(err).NotTo(HaveOccurred())
	return got.Annotations
}

func create(ctx context.Context, pod *corev1.Pod) (*corev1.Pod, error) {
	return client.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
}

// byTheServer are the cases that the API server denies before or after the
// webhook.
var byTheServer = map[string]string{
	"no-container": "spec.containers: Required value",
	"mirror-pod":   "a mirror pod may not reference service accounts",
	// The API server only admits pods of ServiceAccounts that exist.
	"default-account": "not found",
}

var _ = Describe("Embedded in a manager, Lanyard", func() {
	for _, c := range goldenCases() {
		It("decides as "+c.Theme+"/"+c.Name, func(ctx SpecContext) {
			configure(c.Settings)
			var pod, want corev1.Pod
			result, err := c.Result()
			Expect(err).NotTo(HaveOccurred())
			read(result, &want)
			read(c.Pod, &pod)
			adopted := writeServiceAccount(ctx, c.Labels, c.Annotations)
			if c.Want.ServiceAccount != nil {
				Expect(lanyards(adopted)).To(Equal(c.Want.ServiceAccount))
			}
			writePolicy(ctx, c.NamespaceAnnotations)
			Eventually(func(g Gomega) {
				got, err := create(ctx, &pod)
				switch denial := byTheServer[c.Name]; {
				case denial != "":
					g.Expect(err).To(MatchError(ContainSubstring(denial)))
				case c.Want.Message != "":
					g.Expect(err).To(HaveOccurred())
					g.Expect(strings.ReplaceAll(err.Error(), keysOfConfig, "")).To(ContainSubstring(c.Want.Message))
				default:
					g.Expect(err).NotTo(HaveOccurred())
					compare(g, &want, got)
				}
			}).WithTimeout(controlplane.Patience).Should(Succeed())
		})
	}

	It("completes an ephemeral container", func(ctx SpecContext) {
		writeServiceAccount(ctx, nil, map[string]string{"lanyard.dev/audience": "neutral"})
		writePolicy(ctx, nil)
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "running"}}
		pod.Spec.ServiceAccountName, pod.Spec.Containers = serviceAccount, []corev1.Container{{Name: "main", Image: "image"}}
		pods := client.CoreV1().Pods(namespace)
		pod, err := pods.Create(ctx, pod, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debugger", Image: "image"}}}
		pod, err = pods.UpdateEphemeralContainers(ctx, pod.Name, pod, metav1.UpdateOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(pod.Spec.EphemeralContainers[0].Env).To(ContainElement(HaveField("Name", "LANYARD_TOKEN_FILE")))
	})

	It("knows the custom providers and the mappings of the configuration file", func(ctx SpecContext) {
		// deploy/ calls the webhook for a ServiceAccount that has an annotation already.
		object := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "mapped-1", Annotations: map[string]string{"lanyard.dev/aws-role-arn": "arn:aws:iam::111122223333:role/loki"}}}
		object, err := client.CoreV1().ServiceAccounts(namespace).Create(ctx, object, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(object.Annotations).To(HaveKeyWithValue("lanyard.dev/example-role", "role/loki"))
		writePolicy(ctx, nil)
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "pod"}}
		pod.Spec.ServiceAccountName, pod.Spec.Containers = "mapped-1", []corev1.Container{{Name: "main", Image: "image"}}
		Eventually(func(g Gomega) {
			got, err := create(ctx, pod)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(got.Annotations).To(HaveKeyWithValue("lanyard.dev/injected", "aws,example"))
			g.Expect(variables(got.Spec.Containers[0].Env)).To(HaveKeyWithValue("EXAMPLE_ROLE", "role/loki/eu"))
		}).WithTimeout(controlplane.Patience).Should(Succeed())
	})

	DescribeTable("denies a configuration file", func(config, want string) {
		mgr, err := ctrl.NewManager(&rest.Config{}, ctrl.Options{Metrics: server.Options{BindAddress: "0"}})
		Expect(err).NotTo(HaveOccurred())
		err = webhook.AddToManager(mgr, webhook.Options{Config: []byte(config), Registerer: prometheus.NewRegistry()})
		Expect(err).To(MatchError(HavePrefix("add Lanyard to the manager: " + want)))
	},
		Entry("with a mistake in a provider", "providers:\n- {name: aws, audience: a, parameters: [{name: b, required: true}]}\n", "config: line 2: providers[0].name: "),
		Entry("with a mistake in a mapping", "identities:\n- namespace: a\n  serviceAccount: b\n  annotations: {aws-role-arn: c}\n", "config: line 4: identities[0].annotations: "),
		Entry("with a mistake in a setting", "token-mount-path: a\n", `token-mount-path: got "a", want an absolute path`),
		Entry("with an unknown setting", "tokens: a\n", "config: tokens: unknown setting"),
	)

	It("keeps the label of a ServiceAccount", func(ctx SpecContext) {
		label := func() string {
			object, err := client.CoreV1().ServiceAccounts(namespace).Get(ctx, serviceAccount, metav1.GetOptions{})
			Expect(err).NotTo(HaveOccurred())
			return object.Labels["lanyard.dev/identity"]
		}
		writeServiceAccount(ctx, nil, map[string]string{"lanyard.dev/audience": "neutral"})
		Expect(label()).To(Equal("enabled"))
		writeServiceAccount(ctx, nil, nil)
		Expect(label()).To(BeEmpty())
		writeServiceAccount(ctx, map[string]string{"lanyard.dev/identity": "required"}, nil)
		Expect(label()).To(Equal("required"))
	})
})

// read reads an object of a golden case, if there is one.
func read(text []byte, into any) {
	GinkgoHelper()
	if text != nil {
		Expect(json.Unmarshal(text, into)).To(Succeed())
	}
}

// writePolicy sets the annotations of the namespace.
func writePolicy(ctx context.Context, annotations map[string]string) {
	GinkgoHelper()
	object, err := client.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{})
	Expect(err).NotTo(HaveOccurred())
	object.Annotations = annotations
	_, err = client.CoreV1().Namespaces().Update(ctx, object, metav1.UpdateOptions{})
	Expect(err).NotTo(HaveOccurred())
}

// compare compares a pod with the golden one, except for the API server's additions: its
// token volume and defaults.
func compare(g Gomega, want, got *corev1.Pod) {
	g.Expect(lanyards(got.Annotations)).To(Equal(lanyards(want.Annotations)))
	g.Expect(names(got.Spec.Volumes)).To(ContainElements(names(want.Spec.Volumes)))
	for _, lists := range [][2][]corev1.Container{{want.Spec.InitContainers, got.Spec.InitContainers}, {want.Spec.Containers, got.Spec.Containers}} {
		g.Expect(lists[1]).To(HaveLen(len(lists[0])))
		for i := range lists[0] {
			want, got := &lists[0][i], &lists[1][i]
			g.Expect(got.Name).To(Equal(want.Name))
			g.Expect(variables(got.Env)).To(Equal(variables(want.Env)))
			g.Expect(got.VolumeMounts).To(ContainElements(want.VolumeMounts))
			g.Expect(len(got.VolumeMounts)).To(BeNumerically("<=", len(want.VolumeMounts)+1))
		}
	}
}

func lanyards(annotations map[string]string) map[string]string {
	kept := map[string]string{}
	for key, value := range annotations {
		if strings.HasPrefix(key, "lanyard.dev/") {
			kept[key] = value
		}
	}
	return kept
}

func names(volumes []corev1.Volume) []string {
	names := []string{}
	for _, v := range volumes {
		names = append(names, v.Name)
	}
	return names
}

func variables(env []corev1.EnvVar) map[string]string {
	values := map[string]string{}
	for _, v := range env {
		values[v.Name] = v.Value
	}
	return values
}
