// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
)

// Each pod of a large cluster may have its own ConfigMap, so a run reads a hundred at most, each
// once, and reports how many it left out.
func TestTheNumberOfConfigMapsIsLimited(t *testing.T) {
	t.Parallel()
	const pods = 103
	var objects []runtime.Object
	for i := range 2 * pods {
		pod := podOf(t, metav1.ObjectMeta{Name: fmt.Sprintf("pod-%03d", i)}, "")
		name := fmt.Sprintf("env-%03d", i/2)
		pod.Spec.Containers[0].EnvFrom = []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: name}}}}
		pod = injectFor(t, pod, aws)
		pod.Namespace = "shop"
		objects = append(objects, pod)
		if i%2 == 0 {
			objects = append(objects, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Data: map[string]string{"AWS_PROFILE": "x"}})
		}
	}
	client, n, configMaps := fake.NewClientset(objects...), cart(t, true, true), ConfigMapLimit{}
	if err := n.ReadPods(t.Context(), client, "", &configMaps); err != nil {
		t.Fatal(err)
	}
	shadowed := 0
	for _, row := range n.Rows() {
		shadowed += row.States[Shadowed]
	}
	reads := 0
	for _, action := range client.Actions() {
		if action.Matches("get", "configmaps") {
			reads++
		}
	}
	if f := configMaps.Finding(); shadowed != 200 || reads != 100 || !strings.HasPrefix(f.Text, "the variables of 3 ConfigMaps were not read") || f.Fix == "" {
		t.Errorf("got %d shadowed pods, %d reads and %+v, want 200 pods, 100 reads, and 3 that were left out", shadowed, reads, f)
	}
	if f := new(ConfigMapLimit).Finding(); f.Text != "" {
		t.Errorf("got %+v", f)
	}
}
