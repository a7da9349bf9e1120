// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package options_test

import (
	"fmt"
	"os"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/lanyard-dev/lanyard/internal/options"
)

const hosted = "../../examples/hosted-control-plane/"

// read decodes an example strictly.
func read(t *testing.T, name string, into any) {
	t.Helper()
	text, err := os.ReadFile(hosted + name)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(text, into); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

// The example command lines work outside of the cluster's pods, and the webhook listens
// where the chart sends the API server, with a certificate for that address.
func TestTheExamplesNextToAnAPIServer(t *testing.T) {
	var values struct {
		Replicas *int32               `json:"replicaCount"`
		Webhook  struct{ URL string } `json:"webhook"`
	}
	read(t, "values.yaml", &values)
	if values.Replicas == nil || *values.Replicas != 0 {
		t.Error("got replicas in the hosted cluster, want 0")
	}
	var sidecar appsv1.Deployment
	read(t, "sidecar.yaml", &sidecar)
	var static corev1.Pod
	read(t, "static-pod.yaml", &static)
	for name, spec := range map[string]*corev1.PodSpec{"sidecar.yaml": &sidecar.Spec.Template.Spec, "static-pod.yaml": &static.Spec} {
		o, err := options.Load(spec.Containers[0].Args, os.ReadFile)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if _, err := o.Complete(nil); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got := fmt.Sprintf("https://%s:%d", o.BindAddress, o.SecurePort); got != values.Webhook.URL {
			t.Errorf("%s: the webhook listens at %s, want the URL of values.yaml, %s", name, got, values.Webhook.URL)
		}
		if !slices.Contains(o.CertificateDNSNames, o.BindAddress) {
			t.Errorf("%s: got a certificate for %q, want %s", name, o.CertificateDNSNames, o.BindAddress)
		}
	}
}
