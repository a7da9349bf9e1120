// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package peers_test

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/lanyard-dev/lanyard/internal/cli/cluster"
	"github.com/lanyard-dev/lanyard/internal/peer"
	"github.com/lanyard-dev/lanyard/test/support/peers"
)

// The stand-ins and the table of the product have the same keys, names and paths.
func TestTheStandInsAreThoseOfTheTable(t *testing.T) {
	standIns := map[string]peers.Peer{
		"eks": &peers.EKS{}, "azure": &peers.Azure{Version: peers.AzureOlder, TenantID: "t"}, "gcp": &peers.GCP{},
	}
	identity := map[string]string{
		"cloud.google.com/workload-identity-provider": "projects/1/locations/global/workloadIdentityPools/p/providers/c",
		"cloud.google.com/service-account-email":      "a@b.iam.gserviceaccount.com",
	}
	for _, p := range peer.All() {
		standIn, found := standIns[p.Name]
		if !found {
			continue // GKE has no webhook
		}
		registration := cluster.Registered(standIn.Registration())
		if !p.Registers(registration) {
			t.Errorf("%s: the table does not know the configuration %s", p.Name, registration.Name)
		}
		if got := map[bool]string{false: "Never", true: "IfNeeded"}[registration.Again]; got != p.Reinvocation {
			t.Errorf("%s: the table has the reinvocationPolicy %q, want %q", p.Name, p.Reinvocation, got)
		}
		account := &corev1.ServiceAccount{}
		account.Annotations = map[string]string{}
		for _, key := range p.Identity {
			if account.Annotations[key] = identity[key]; identity[key] == "" {
				account.Annotations[key] = "x"
			}
		}
		pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main"}}}}
		if err := standIn.Mutate(pod, account); err != nil {
			t.Fatalf("%s: %v", p.Name, err)
		}
		if !tokenAt(pod, p.Volumes[0], p.TokenPath) {
			t.Errorf("%s: got no token of the volume %s at %s: %+v", p.Name, p.Volumes[0], p.TokenPath, pod.Spec)
		}
	}
}

// tokenAt reports whether the first container has the token of the volume at the path.
func tokenAt(pod *corev1.Pod, volume, path string) bool {
	for _, v := range pod.Spec.Volumes {
		for _, mount := range pod.Spec.Containers[0].VolumeMounts {
			if v.Name == volume && mount.Name == volume && v.Projected != nil &&
				slices.ContainsFunc(v.Projected.Sources, func(s corev1.VolumeProjection) bool { return mount.MountPath+"/"+s.ServiceAccountToken.Path == path }) {
				return true
			}
		}
	}
	return false
}
