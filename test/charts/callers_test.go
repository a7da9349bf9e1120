// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

func TestTheCAOfCallersIsMountedWithoutAKey(t *testing.T) {
	items := []corev1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}}
	for values, want := range map[string]corev1.VolumeSource{
		"clientCertificates: {secret: a, allowedNames: [b, c]}": {
			Secret: &corev1.SecretVolumeSource{SecretName: "a", Items: items},
		},
		"clientCertificates: {configMap: a, allowedNames: [b, c]}": {
			ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "a"}, Items: items},
		},
	} {
		t.Run(values, func(t *testing.T) {
			pod := deployment(t, render(t, defaultInstall, parseValues(t, values)).objects).Spec.Template.Spec
			if diff := cmp.Diff([]corev1.Volume{{Name: "client-ca", VolumeSource: want}}, slices.DeleteFunc(pod.Volumes, isNot("client-ca"))); diff != "" {
				t.Errorf("volumes (-want +got):\n%s", diff)
			}
			container := pod.Containers[0]
			mount := corev1.VolumeMount{Name: "client-ca", MountPath: "/etc/lanyard/client-ca", ReadOnly: true}
			if !slices.ContainsFunc(container.VolumeMounts, func(m corev1.VolumeMount) bool { return cmp.Equal(m, mount) }) {
				t.Errorf("got mounts %v, want %v", container.VolumeMounts, mount)
			}
			for _, argument := range []string{"--client-ca-file=/etc/lanyard/client-ca/ca.crt", "--client-allowed-names=b,c"} {
				if !slices.Contains(container.Args, argument) {
					t.Errorf("got arguments %q, want %s", container.Args, argument)
				}
			}
		})
	}
}

// isNot reports whether a volume has another name.
func isNot(name string) func(corev1.Volume) bool {
	return func(v corev1.Volume) bool { return v.Name != name }
}
