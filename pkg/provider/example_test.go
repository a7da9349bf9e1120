// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package provider_test

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/pkg/provider"
)

// An operator adds the credentials for a custom provider to the pod template of a
// Deployment that it creates.
func Example() {
	renderer, err := provider.New(annotations.Options{Config: []byte(`
providers:
- name: example
  audience: example.com
  parameters:
  - {name: role, required: true, pattern: '[a-z]+', message: must be the name of a role, example: app}
  environment:
  - {name: EXAMPLE_ROLE, value: '{role}'}
  - {name: EXAMPLE_TOKEN_FILE, value: '{token-file}', credential: true}
`)})
	if err != nil {
		panic(err)
	}
	serviceAccount := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "app", Annotations: map[string]string{
		annotations.Prefix + "example-role": "loki",
	}}}
	injections, mistakes := renderer.Render(serviceAccount, false)
	if len(mistakes) > 0 {
		panic(mistakes.ToAggregate())
	}

	volume := corev1.Volume{Name: "token", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{}}}
	container := corev1.Container{Name: "main", Image: "image"}
	for _, injection := range injections {
		volume.Projected.Sources = append(volume.Projected.Sources, corev1.VolumeProjection{ServiceAccountToken: &injection.Token})
		container.VolumeMounts = []corev1.VolumeMount{{Name: volume.Name, MountPath: injection.MountPath, ReadOnly: true}}
		container.Env = append(container.Env, injection.Variables...)
		fmt.Println(injection.Provider, injection.Token.Audience, *injection.Token.ExpirationSeconds, injection.Token.Path)
	}
	fmt.Println(len(volume.Projected.Sources), container.VolumeMounts[0].MountPath)
	for _, variable := range container.Env {
		fmt.Println(variable.Name, variable.Value)
	}
	// Output:
	// example example.com 3600 example/token
	// 1 /var/run/secrets/lanyard.dev/serviceaccount
	// EXAMPLE_ROLE loki
	// EXAMPLE_TOKEN_FILE /var/run/secrets/lanyard.dev/serviceaccount/example/token
}
