// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package migration_test

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/lanyard-dev/lanyard/test/e2e/framework"
	"github.com/lanyard-dev/lanyard/test/support/peers"
)

// switched are the namespaces of the workloads that are switched, by the peers of the
// table.
var switched = map[string]string{"eks": "switch-eks", "azure": "switch-azure", "azure-older": "switch-azure-older", "gcp": "switch-gcp"}

// app is the container of each workload whose credentials are in the table.
const app = "app"

//go:embed testdata/workloads.yaml
var workloadTable []byte

// peer40 is a peer of the table.
type peer40 struct {
	Prefix    string             `json:"prefix"`
	Usual     map[string]*string `json:"usual"`
	Labels    map[string]*string `json:"labels"`
	Workloads []*workload40      `json:"workloads"`
}

// workload40 is a workload of the table, which explains the fields.
type workload40 struct {
	Name        string             `json:"name"`
	Kind        string             `json:"kind"`
	Replicas    *int               `json:"replicas"`
	Account     map[string]*string `json:"account"`
	Labels      map[string]*string `json:"labels"`
	Annotations map[string]*string `json:"annotations"`
	Env         map[string]string  `json:"env"`
	Containers  []string           `json:"containers"`
	Native      []string           `json:"native"`
	Root        bool               `json:"root"`
	Mapped      bool               `json:"mapped"`
	Has         string             `json:"has"`
	Beside      string             `json:"beside"`
	Gets        string             `json:"gets"`
	Status      string             `json:"status"`

	peer string
	of   *peer40
}

// readTable reads the table, with the workloads of a peer in its order.
func readTable() []*workload40 {
	GinkgoHelper()
	var peers map[string]*peer40
	Expect(yaml.UnmarshalStrict(workloadTable, &peers)).To(Succeed())
	var all []*workload40
	for _, name := range []string{"eks", "azure", "azure-older", "gcp"} {
		for _, w := range peers[name].Workloads {
			w.peer, w.of = name, peers[name]
			all = append(all, w)
		}
	}
	return all
}

func (w *workload40) namespace() string { return switched[w.peer] }
func (w *workload40) id() string        { return w.namespace() + "/" + w.Name }
func (w *workload40) kind() string      { return cmp.Or(w.Kind, "Deployment") }
func (w *workload40) gets() string      { return cmp.Or(w.Gets, w.Has) }

func (w *workload40) beside() string {
	if w.Has == "none" {
		return cmp.Or(w.Beside, w.gets())
	}
	return cmp.Or(w.Beside, w.Has)
}

// workloadOf returns the workload of a pod.
func workloadOf(pod *corev1.Pod) *workload40 {
	GinkgoHelper()
	all := readTable()
	at := slices.IndexFunc(all, func(w *workload40) bool {
		return w.namespace() == pod.Namespace && w.Name == pod.Spec.ServiceAccountName
	})
	Expect(at).To(BeNumerically(">=", 0), pod.Namespace+"/"+pod.Name)
	return all[at]
}

// prefixed returns the values with the prefix of the peer before their keys. Later values
// win, and nil removes one.
func (w *workload40) prefixed(values ...map[string]*string) map[string]string {
	result := map[string]string{}
	for _, m := range values {
		for key, value := range m {
			if delete(result, w.of.Prefix+key); value != nil {
				result[w.of.Prefix+key] = *value
			}
		}
	}
	return result
}

// template returns the pods of the workload.
func (w *workload40) template() corev1.PodTemplateSpec {
	labels := w.prefixed(w.of.Labels, w.Labels)
	labels["app"] = w.Name
	spec := corev1.PodSpec{
		ServiceAccountName: w.Name, TerminationGracePeriodSeconds: new(int64(1)), EnableServiceLinks: new(false),
		SecurityContext: &corev1.PodSecurityContext{
			FSGroup: new(int64(65532)), RunAsNonRoot: new(true), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
		Containers: []corev1.Container{reader(app)},
	}
	for name, value := range w.Env {
		spec.Containers[0].Env = append(spec.Containers[0].Env, corev1.EnvVar{Name: name, Value: value})
	}
	slices.SortFunc(spec.Containers[0].Env, func(a, b corev1.EnvVar) int { return cmp.Compare(a.Name, b.Name) })
	for _, name := range w.Containers {
		spec.Containers = append(spec.Containers, reader(name))
	}
	for _, name := range w.Native {
		c := reader(name)
		c.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
		spec.InitContainers = append(spec.InitContainers, c)
	}
	if w.Root {
		spec.SecurityContext.RunAsNonRoot = nil
	}
	if w.Kind == "Job" || w.Kind == "CronJob" {
		spec.RestartPolicy = corev1.RestartPolicyNever
	}
	return corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: w.prefixed(w.Annotations)}, Spec: spec}
}

// reader returns a container that prints its credentials once a second.
func reader(name string) corev1.Container {
	c := framework.SDK(framework.Go)
	c.Name, c.Image = name, framework.ReaderImage
	return c
}

// pod returns a pod as the workload would create it.
func (w *workload40) pod() *corev1.Pod {
	template := w.template()
	template.GenerateName = w.Name + "-"
	return &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
}

// object returns the workload itself.
func (w *workload40) object() map[string]any {
	GinkgoHelper()
	text := w.template()
	template, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&text)
	Expect(err).NotTo(HaveOccurred())
	metadata := map[string]any{"name": w.Name, "namespace": w.namespace()}
	version, spec := "apps/v1", map[string]any{"selector": map[string]any{"matchLabels": map[string]any{"app": w.Name}}, "template": template}
	switch w.Kind {
	case "Pod":
		pod := template
		maps.Copy(pod["metadata"].(map[string]any), metadata)
		pod["apiVersion"], pod["kind"] = "v1", "Pod"
		return pod
	case "Job":
		version, spec = "batch/v1", map[string]any{"template": template}
	case "CronJob":
		version, spec = "batch/v1", map[string]any{"schedule": "0 3 29 2 *", "jobTemplate": map[string]any{"spec": map[string]any{"template": template}}}
	case "StatefulSet":
		spec["serviceName"] = w.Name
	}
	if w.Replicas != nil {
		spec["replicas"] = *w.Replicas
	}
	return map[string]any{"apiVersion": version, "kind": w.kind(), "metadata": metadata, "spec": spec}
}

// createAccounts creates the namespaces with their ServiceAccounts.
func createAccounts(ctx context.Context) {
	GinkgoHelper()
	for peer, namespace := range switched {
		var labels map[string]string
		if peer == "azure" {
			// Its proxy has a privileged init container.
			labels = map[string]string{"pod-security.kubernetes.io/enforce": "privileged"}
		}
		Expect(cluster.CreateNamespace(ctx, namespace, labels)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) error { return cluster.DeleteNamespace(ctx, namespace) })
	}
	var items []any
	for _, w := range readTable() {
		items = append(items, map[string]any{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": map[string]any{
			"name": w.Name, "namespace": w.namespace(), "annotations": w.prefixed(w.of.Usual, w.Account),
		}})
	}
	mapped, err := json.Marshal(mappedRoles())
	Expect(err).NotTo(HaveOccurred())
	configMaps := cluster.CoreV1().ConfigMaps(switched["eks"])
	_, err = configMaps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "pod-identity-webhook"}, Data: map[string]string{"config": string(mapped)}}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	create(ctx, items)
}

// mappedRoles returns the entries of the ConfigMap of the peer of EKS.
func mappedRoles() map[string]peers.EKSIdentity {
	GinkgoHelper()
	roles := map[string]peers.EKSIdentity{}
	for _, w := range readTable() {
		if w.Mapped {
			roles[w.id()] = peers.EKSIdentity{RoleARN: role, Audience: "sts.amazonaws.com"}
		}
	}
	return roles
}

// createWorkloads creates the workloads.
func createWorkloads(ctx context.Context) {
	GinkgoHelper()
	var items []any
	for _, w := range readTable() {
		items = append(items, w.object())
	}
	Expect(len(items)).To(BeNumerically(">=", 40))
	create(ctx, items)
}

func create(ctx context.Context, items []any) {
	GinkgoHelper()
	text, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "List", "items": items})
	Expect(err).NotTo(HaveOccurred())
	file := filepath.Join(GinkgoT().TempDir(), "list.json")
	Expect(os.WriteFile(file, text, 0o600)).To(Succeed())
	_, err = cluster.Run(ctx, "kubectl", "create", "--filename", file)
	Expect(err).NotTo(HaveOccurred())
}

// restart replaces the pods of the workloads that can have new ones.
func restart(ctx context.Context, t *tools) {
	GinkgoHelper()
	names := map[string][]string{}
	for _, w := range readTable() {
		if w.Status != "unknown" && slices.Contains([]string{"Deployment", "StatefulSet", "DaemonSet"}, w.kind()) {
			names[w.namespace()] = append(names[w.namespace()], strings.ToLower(w.kind())+"/"+w.Name)
		}
	}
	for namespace, list := range names {
		t.must(ctx, "kubectl rollout restart --namespace "+namespace+" "+strings.Join(list, " "))
	}
	for namespace, list := range names {
		for _, name := range list {
			t.must(ctx, "kubectl rollout status --timeout "+framework.Patience.String()+" --namespace "+namespace+" "+name)
		}
	}
}

// warnings collects the warnings of the API server.
type warnings []string

func (w *warnings) HandleWarningHeader(_ int, _, text string) { *w = append(*w, text) }

// dryRun creates a pod of a workload as a dry run.
func dryRun(ctx context.Context, w *workload40) (*corev1.Pod, []string, error) {
	GinkgoHelper()
	var found warnings
	config := *cluster.Config
	config.WarningHandler = &found
	client, err := kubernetes.NewForConfig(&config)
	Expect(err).NotTo(HaveOccurred())
	pod, err := client.CoreV1().Pods(w.namespace()).Create(ctx, w.pod(), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return pod, found, err
}

// credentialsOf returns the credentials of the container app as the reader would print
// them, by the specification of the pod.
func credentialsOf(pod *corev1.Pod) string {
	at := slices.IndexFunc(pod.Spec.Containers, func(c corev1.Container) bool { return c.Name == app })
	c := &pod.Spec.Containers[at]
	var found []string
	for _, cloud := range []struct{ name, variable string }{
		{"aws", "AWS_WEB_IDENTITY_TOKEN_FILE"}, {"eks", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"}, {"azure", "AZURE_FEDERATED_TOKEN_FILE"},
		{"gcp", "GOOGLE_APPLICATION_CREDENTIALS"},
	} {
		at := slices.IndexFunc(c.Env, func(v corev1.EnvVar) bool { return v.Name == cloud.variable })
		if at < 0 {
			continue
		}
		file := c.Env[at].Value
		if cloud.name == "gcp" { // the tokens of its credential files
			file = map[string]string{
				"/var/run/secrets/gcloud/config/federation.json": gcpPath + "/token", "/var/run/secrets/workload-identity/federation.json": gcpPath + "/token",
				ownPath + "/gcp/credentials.json": ownPath + "/gcp/token",
			}[file]
		}
		found = append(found, cloud.name+" "+cmp.Or(audienceAt(pod, c, file), "unreadable"))
	}
	return cmp.Or(strings.Join(found, ", "), "none")
}

// gcpPath is the directory of the peer's token.
const gcpPath = "/var/run/secrets/sts.googleapis.com/serviceaccount"

// audienceAt returns the audience of the token in a file, or "".
func audienceAt(pod *corev1.Pod, c *corev1.Container, file string) string {
	for _, mount := range c.VolumeMounts {
		path, found := strings.CutPrefix(file, mount.MountPath+"/")
		at := slices.IndexFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == mount.Name })
		if !found || at < 0 || pod.Spec.Volumes[at].Projected == nil {
			continue
		}
		for _, source := range pod.Spec.Volumes[at].Projected.Sources {
			if token := source.ServiceAccountToken; token != nil && token.Path == path {
				return cmp.Or(token.Audience, "https://kubernetes.default.svc.cluster.local")
			}
		}
	}
	return ""
}
