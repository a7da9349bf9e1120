// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mutate_test

import (
	"encoding/json"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/pkg/mutate"
	"github.com/lanyard-dev/lanyard/pkg/mutate/reason"
)

// config is a configuration file of lanyard-webhook.
const config = `
token-expiration-seconds: 7200
providers:
- name: vault
  audience: https://vault.example.com
  parameters:
  - {name: role, required: true, pattern: '[a-z-]+', message: must be the name of a role, example: app}
  environment:
  - {name: VAULT_ROLE, value: '{role}'}
  - {name: VAULT_TOKEN_FILE, value: '{token-file}', credential: true}
`

// An operator injects the identity into a pod before it creates the pod.
func Example() {
	settings, err := mutate.ParseSettings([]byte(config), []string{"https://issuer.example.com"})
	if err != nil {
		panic(err)
	}
	serviceAccount := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "app", Annotations: map[string]string{
		annotations.Prefix + "vault-role": "shop",
	}}}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team"}}
	decide := func(text []byte) (*mutate.Decision, error) {
		pod, err := mutate.ReadPod(text, settings)
		if err != nil {
			return nil, err
		}
		return mutate.Decide(settings, annotations.ServiceAccountObject(serviceAccount), annotations.NamespaceObject(namespace), pod)
	}

	text := []byte(`{"metadata":{"name":"pod"},"spec":{"serviceAccountName":"app","containers":[{"name":"main","image":"image"}]}}`)
	decision, err := decide(text)
	if err != nil {
		panic(err)
	}
	fmt.Println(decision.Reason)
	if text, err = decision.Apply(text); err != nil {
		panic(err)
	}
	var pod corev1.Pod
	if err := json.Unmarshal(text, &pod); err != nil {
		panic(err)
	}
	fmt.Println(pod.Annotations[annotations.Injected])
	for _, variable := range pod.Spec.Containers[0].Env {
		fmt.Println(variable.Name, variable.Value)
	}
	token := pod.Spec.Volumes[0].Projected.Sources[0].ServiceAccountToken
	fmt.Println(token.Audience, *token.ExpirationSeconds)

	again, err := decide(text)
	fmt.Println(again.Reason, again.Patch == nil, err)

	namespace.Annotations = map[string]string{annotations.AllowedIdentities: "-"}
	_, err = decide(text)
	if denial, ok := errors.AsType[*reason.Error](err); ok {
		fmt.Println(denial.Reason)
	}
	// Output:
	// injected
	// vault
	// VAULT_ROLE shop
	// VAULT_TOKEN_FILE /var/run/secrets/lanyard.dev/serviceaccount/vault/token
	// https://vault.example.com 7200
	// already_injected true <nil>
	// identity_not_allowed
}
