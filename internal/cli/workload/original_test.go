// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

func TestTheOriginalOfAPod(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ pod, want string }{
		"an injected pod": {`
metadata:
  name: cart
  uid: x
  labels: {app: cart}
  annotations: {lanyard.dev/injected: "aws,gcp", lanyard.dev/gcp-credentials: "{}", lanyard.dev/skip-containers: proxy, own: x}
spec:
  serviceAccountName: cart
  volumes:
  - {name: data}
  - {name: bound-sa-token, projected: {defaultMode: 420, sources: [{serviceAccountToken: {audience: sts.amazonaws.com, path: aws/token}}]}}
  initContainers: [{name: proxy, volumeMounts: [{name: data}]}]
  containers:
  - {name: main, env: [{name: A, value: b}, {name: AWS_ROLE_ARN, value: "arn:aws:iam::111122223333:role/cart"}, {name: AWS_WEB_IDENTITY_TOKEN_FILE, value: /lanyard/aws/token}, {name: AWS_STS_REGIONAL_ENDPOINTS, value: regional}], volumeMounts: [{name: data}, {name: bound-sa-token, mountPath: /lanyard, readOnly: true}]}
  ephemeralContainers: [{name: debugger}]
status: {phase: Running}`, `
metadata:
  generateName: cart-
  labels: {app: cart}
  annotations: {lanyard.dev/skip-containers: proxy, own: x}
spec:
  serviceAccountName: cart
  volumes: [{name: data}]
  initContainers: [{name: proxy, volumeMounts: [{name: data}]}]
  containers:
  - {name: main, env: [{name: A, value: b}], volumeMounts: [{name: data}]}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var pod, want unstructured.Unstructured
			for text, into := range map[string]*unstructured.Unstructured{test.pod: &pod, test.want: &want} {
				if err := yaml.Unmarshal([]byte(text), &into.Object); err != nil {
					t.Fatal(err)
				}
			}
			running, err := NewNamespace(newSettings(t), &metav1.ObjectMeta{Name: "shop"}, nil).newPod(&pod, "cart")
			if err != nil {
				t.Fatal(err)
			}
			got, err := running.original()
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want.Object, got.Object); diff != "" {
				t.Errorf("pod (-want +got):\n%s", diff)
			}
		})
	}
}
