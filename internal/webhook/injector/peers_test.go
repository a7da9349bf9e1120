// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package injector_test

import (
	"maps"
	"slices"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/pkg/mutate/reason"
	"github.com/lanyard-dev/lanyard/test/support/decisions"
	"github.com/lanyard-dev/lanyard/test/support/peers"
)

// stored creates the pod of a case with both webhooks, and returns Lanyard's decision
// and the additions of both.
func stored(t *testing.T, c *decisions.Case, peerFirst bool) *decisions.Stored {
	t.Helper()
	var flags peers.Flags
	if err := yaml.UnmarshalStrict([]byte(c.Peer), &flags); err != nil {
		t.Fatal(err)
	}
	b := newBeside(t, flags, c.Settings, c.ServiceAccount)
	pod := b.admit(t, peerFirst, c.Pod)
	b.holds(t, pod, false)
	// The peers write the empty fields of a Pod.
	got := &decisions.Stored{Findings: b.findings, Additions: *additions(t, marshal(t, typedPod(t, c.Pod)), marshal(t, typedPod(t, pod)))}
	for _, r := range b.reasons {
		got.Reasons = append(got.Reasons, string(r))
	}
	return got
}

var google = map[string]string{
	"cloud.google.com/workload-identity-provider": "projects/123456789012/locations/global/workloadIdentityPools/pool/providers/prov",
	"cloud.google.com/service-account-email":      "my-app@my-project-123.iam.gserviceaccount.com",
}

// If the API server calls the webhook of Google's peer after Lanyard, and once more, the
// peer writes the container gcloud-setup after Lanyard's last call.
func TestAContainerThatAPeerReplacesIsLeftOut(t *testing.T) {
	t.Parallel()
	for _, peerFirst := range []bool{true, false} {
		b := adopting(t, peers.Flags{GCP: &peers.GCP{ReinvocationPolicy: admissionregistrationv1.IfNeededReinvocationPolicy}}, google)
		stored := b.admit(t, peerFirst, newPodOf(t, nil, "main"))
		b.holds(t, stored, false)
		spec := typedPod(t, stored).Spec
		for _, c := range slices.Concat(spec.InitContainers, spec.Containers) {
			got := slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == "bound-sa-token" })
			if want := c.Name == "main"; got != want {
				t.Errorf("peer first %v: container %s: got the token volume %v, want %v", peerFirst, c.Name, got, want)
			}
		}
	}
}

func TestOnlyAnAdoptedPeerHasItsContainers(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		adopted         bool
		account, values map[string]string
		want            bool
	}{
		{adopted: true, account: google, want: false},
		{adopted: true, account: google, values: map[string]string{"lanyard.dev/containers": "gcloud-setup"}, want: true},
		{adopted: false, account: map[string]string{"lanyard.dev/audience": "vault"}, want: true},
	} {
		pods, _ := newPods(t, tt.account)
		if tt.adopted {
			pods = adopting(t, peers.Flags{}, tt.account).pods
		}
		response := ask(t, pods, create(newPodOf(t, tt.values, "gcloud-setup")))
		if got := response.Reason == reason.Injected; got != tt.want {
			t.Errorf("%v %v: got %s, want it injected: %v", tt.adopted, tt.values, response.Reason, tt.want)
		}
	}
}

// A pod with an identity binding gets a token of another audience from Azure's peer. The
// proxy of AKS does not accept Lanyard's token.
func TestAPodWithAnIdentityBindingIsLeftToAzuresPeer(t *testing.T) {
	t.Parallel()
	const binding = "azure.workload.identity/use-identity-binding"
	azure := map[string]string{
		"azure.workload.identity/client-id": "00000000-0000-0000-0000-000000000001",
		"azure.workload.identity/tenant-id": "00000000-0000-0000-0000-000000000002",
	}
	both := map[string]string{"eks.amazonaws.com/role-arn": "arn:aws:iam::111122223333:role/app"}
	maps.Copy(both, azure)
	for _, tt := range []struct {
		name            string
		account, values map[string]string
		reason          reason.Reason
		providers       string
	}{
		{"with one cloud", azure, map[string]string{binding: "true"}, reason.OptedOut, ""},
		{"with another spelling", azure, map[string]string{binding: "True"}, reason.OptedOut, ""},
		{"with another cloud", both, map[string]string{binding: "true"}, reason.Injected, "aws"},
		{"turned off", both, map[string]string{binding: "false"}, reason.Injected, "aws,azure"},
		{"another annotation of the peer", azure, map[string]string{"azure.workload.identity/skip-containers": "true"}, reason.Injected, "azure"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := adopting(t, peers.Flags{}, tt.account)
			pod := newPodOf(t, tt.values, "main")
			response := ask(t, b.pods, create(pod))
			if response.Code != 0 || response.Reason != tt.reason {
				t.Fatalf("got %d %s: %s, want %s", response.Code, response.Reason, response.Message, tt.reason)
			}
			after := typedPod(t, apply(t, pod, response.Patch))
			if got := after.Annotations[annotations.Prefix+"injected"]; got != tt.providers {
				t.Errorf("got providers %q, want %q", got, tt.providers)
			}
			if got := value(&after.Spec.Containers[0], "AZURE_FEDERATED_TOKEN_FILE") != ""; got != (tt.reason == reason.Injected && tt.providers != "aws") {
				t.Errorf("has Azure's variables: %v", got)
			}
		})
	}
}
