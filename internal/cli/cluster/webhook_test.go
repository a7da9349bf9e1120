// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/lanyard-dev/lanyard/internal/cli/cluster"
	"github.com/lanyard-dev/lanyard/test/support/webhook"
)

// installed are the objects of an installation with a configuration file.
type installed struct {
	service    *corev1.Service
	deployment *appsv1.Deployment
	configMap  *corev1.ConfigMap
}

func newInstalled() *installed {
	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: "lanyard-system", Name: name}
	}
	i := &installed{&corev1.Service{ObjectMeta: meta("lanyard-webhook")}, &appsv1.Deployment{ObjectMeta: meta("webhook")}, &corev1.ConfigMap{ObjectMeta: meta("config")}}
	i.service.Spec.Selector = map[string]string{"app": "lanyard"}
	i.deployment.Spec.Template.Labels = map[string]string{"app": "lanyard", "version": "1"}
	i.deployment.Spec.Template.Spec = corev1.PodSpec{
		Containers: []corev1.Container{{
			Name: "webhook", Args: []string{"--log-format=json", "--config=/etc/lanyard/config/config.yaml"},
			VolumeMounts: []corev1.VolumeMount{{Name: "other", MountPath: "/etc/lanyard/conf"}, {Name: "config", MountPath: "/etc/lanyard/config"}},
		}},
		Volumes: []corev1.Volume{{Name: "other"}, {Name: "config", VolumeSource: corev1.VolumeSource{
			ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "config"}},
		}}},
	}
	i.configMap.Data = map[string]string{"config.yaml": "v: 1\nadopt: [eks]\n", "other.yaml": "v: 2\n"}
	return i
}

func TestTheOptionsOfAnInstallation(t *testing.T) {
	t.Parallel()
	for sentence, tt := range map[string]struct {
		change func(*installed)
		want   string // the text or the error
	}{
		"a ConfigMap":               {func(*installed) {}, "verbosity 1, adopt [eks]"},
		"a flag in two words":       {func(i *installed) { args(i, "--config", "/etc/lanyard/config/other.yaml") }, "verbosity 2, adopt []"},
		"the last of two flags":     {func(i *installed) { args(i, "--config=/a", "--config=/etc/lanyard/config/other.yaml") }, "verbosity 2, adopt []"},
		"a key with another path":   {func(i *installed) { item(i, "other.yaml", "config.yaml") }, "verbosity 2, adopt []"},
		"no flag":                   {func(i *installed) { args(i, "--v=3", "--adopt=gke,eks") }, "verbosity 3, adopt [gke eks]"},
		"a flag of another version": {func(i *installed) { args(i, "--v=3", "--new=1", "--newer") }, "verbosity 3, adopt []"},
		"a flag and a file":         {func(i *installed) { args(i, "--config=/etc/lanyard/config/config.yaml", "--v=3") }, "verbosity 3, adopt [eks]"},
		"a malformed flag":          {func(i *installed) { args(i, "--v=x") }, `deployment lanyard-system/webhook: invalid argument "x" for "-v, --v" flag: strconv.ParseInt: parsing "x": invalid syntax`},
		"a container before it": {func(i *installed) {
			pod := &i.deployment.Spec.Template.Spec
			pod.Containers = append([]corev1.Container{{Name: "proxy", Args: []string{"--v=7"}}}, pod.Containers...)
		}, "verbosity 1, adopt [eks]"},
		"a container of another name":      {func(i *installed) { i.deployment.Spec.Template.Spec.Containers[0].Name = "lanyard" }, "verbosity 1, adopt [eks]"},
		"a file of the image":              {func(i *installed) { args(i, "--config=/config.yaml") }, "deployment lanyard-system/webhook: --config: /config.yaml is not a file of a ConfigMap"},
		"a volume of another kind":         {func(i *installed) { i.deployment.Spec.Template.Spec.Volumes[1].ConfigMap = nil }, "deployment lanyard-system/webhook: --config: /etc/lanyard/config/config.yaml is not a file of a ConfigMap"},
		"a key that is not there":          {func(i *installed) { delete(i.configMap.Data, "config.yaml") }, `deployment lanyard-system/webhook: --config: configmap lanyard-system/config: the key "config.yaml" is missing`},
		"a ConfigMap that is not there":    {func(i *installed) { i.configMap.Name = "x" }, "deployment lanyard-system/webhook: --config: configmap lanyard-system/config: configmaps \"config\" not found"},
		"a Deployment of something else":   {func(i *installed) { delete(i.deployment.Spec.Template.Labels, "app") }, "service lanyard-system/lanyard-webhook: no deployment has its pods"},
		"a Service without a selector":     {func(i *installed) { i.service.Spec.Selector = nil }, "service lanyard-system/lanyard-webhook: no deployment has its pods"},
		"a Service that is not there":      {func(i *installed) { i.service.Name = "x" }, "service lanyard-system/lanyard-webhook: services \"lanyard-webhook\" not found"},
		"a Deployment elsewhere":           {func(i *installed) { i.deployment.Namespace = "x" }, "service lanyard-system/lanyard-webhook: no deployment has its pods"},
		"a webhook outside of the cluster": {nil, "the webhook runs outside the cluster"},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			configuration, err := webhook.ReadMutating("../../../deploy/base")
			if err != nil {
				t.Fatal(err)
			}
			objects := newInstalled()
			if tt.change != nil {
				tt.change(objects)
			} else {
				cluster.Entry(configuration, cluster.PodWebhook).ClientConfig.Service = nil
			}
			client := fake.NewClientset(objects.service, objects.deployment, objects.configMap)
			o, _, err := cluster.NewSurvey(client).Options(t.Context(), configuration)
			var got string
			if err != nil {
				got = err.Error()
			} else {
				got = fmt.Sprintf("verbosity %d, adopt %v", o.Verbosity, o.Injection.Peers)
			}
			if got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func args(i *installed, args ...string) { i.deployment.Spec.Template.Spec.Containers[0].Args = args }

func item(i *installed, key, path string) {
	i.deployment.Spec.Template.Spec.Volumes[1].ConfigMap.Items = []corev1.KeyToPath{{Key: key, Path: path}}
}

// A probe with these fields passes the policies that the webhook's own pods pass.
func TestFieldsOfTheWebhooksPods(t *testing.T) {
	t.Parallel()
	configuration, err := webhook.ReadMutating("../../../deploy/base")
	if err != nil {
		t.Fatal(err)
	}
	objects := newInstalled()
	template := &objects.deployment.Spec.Template
	template.Labels["team"], template.Labels["lanyard.dev/inject"] = "platform", "false"
	template.Spec.Containers[0].Image = "mirror.example/webhook:v1"
	_, allowed, err := cluster.NewSurvey(fake.NewClientset(objects.service, objects.deployment, objects.configMap)).Options(t.Context(), configuration)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"metadata": map[string]any{"labels": map[string]any{"app": "lanyard", "version": "1", "team": "platform"}},
		"spec":     map[string]any{"containers": []any{map[string]any{"image": "mirror.example/webhook:v1"}}},
	}
	if diff := cmp.Diff(want, allowed); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
