// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mutate_test

import (
	"encoding/json"
	"errors"
	"fmt"

	jsonpatch "github.com/evanphx/json-patch/v5"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/pkg/mutate"
)

// An operator injects the identity into a pod before it creates the pod.
func Example() {
	mutator, err := mutate.New(nil, nil)
	if err != nil {
		panic(err)
	}
	serviceAccount := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "app", Annotations: map[string]string{
		annotations.Audience: "example.com",
	}}}
	text := []byte(`{"metadata":{"name":"pod"},"spec":{"serviceAccountName":"app","containers":[{"name":"main","image":"image"}]}}`)
	result, err := mutator.Create(text, serviceAccount, nil)
	if err != nil {
		panic(err)
	}
	fmt.Println(result.Reason)

	patch, err := jsonpatch.DecodePatch(result.Patch)
	if err != nil {
		panic(err)
	}
	if text, err = patch.Apply(text); err != nil {
		panic(err)
	}
	var pod corev1.Pod
	if err := json.Unmarshal(text, &pod); err != nil {
		panic(err)
	}
	fmt.Println(pod.Annotations[annotations.Injected])
	fmt.Println(pod.Spec.Containers[0].Env[0].Name, pod.Spec.Containers[0].Env[0].Value)

	again, err := mutator.Create(text, serviceAccount, nil)
	fmt.Println(again.Reason, len(again.Patch), err)

	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team", Annotations: map[string]string{annotations.AllowedIdentities: "-"}}}
	_, err = mutator.Create(text, serviceAccount, namespace)
	if denial, ok := errors.AsType[*mutate.Denial](err); ok {
		fmt.Println(denial.Reason)
	}
	// Output:
	// injected
	// token
	// LANYARD_TOKEN_FILE /var/run/secrets/lanyard.dev/serviceaccount/token
	// already_injected 0 <nil>
	// identity_not_allowed
}
