// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/policies"
)

// Annotations that only compiled identities support, by the key that asks for the identity.
var compiledOnly = []struct {
	asks string
	with map[string]string
}{
	{"aws-role-arn", map[string]string{"aws-role-arn.audit": role, "aws-role-arn.b": role, "aws-source-profile.b": "audit"}},
	{"aws-role-arn", map[string]string{"aws-token-path": "/var/run/secrets/x/token"}},
	{"azure-client-id", map[string]string{"azure-token-path": "/run/secrets/azure/tokens/token"}},
}

// copyPaths are at, above and below the paths of the copies. None contains "..", which CEL cannot
// follow.
var copyPaths = []string{
	"/var/run/secrets/x", "/run/secrets/x/", "//var/run/secrets/x/sub", "/VAR/run/secrets/x", `C:\run\secrets\x`,
	"/var/run/secrets/azure/tokens", "/run/secrets/azure", "/var/run/secrets/azure/tokens/token",
}

// choices are variables by which a container chooses its identity.
var choices = []corev1.EnvVar{
	{Name: "AWS_PROFILE", Value: "audit"}, {Name: "AWS_PROFILE", Value: ""}, {Name: "AWS_DEFAULT_PROFILE", Value: "b"},
	{Name: "AWS_CONFIG_FILE", Value: "/var/run/secrets/lanyard.dev/serviceaccount/aws/config"}, {Name: "AWS_ROLE_ARN", Value: role}, {Name: "AWS_ROLE_ARN", Value: ""},
	{Name: "AWS_WEB_IDENTITY_TOKEN_FILE", Value: "/var/run/secrets/x/token"}, {Name: "AWS_WEB_IDENTITY_TOKEN_FILE", Value: `C:\var\run\secrets\x\token`},
	{Name: "AZURE_FEDERATED_TOKEN_FILE", Value: "/run/secrets/azure/tokens/token"},
}

// testRandomCompiledPods is testRandomPods for policies with compiled identities. It leaves out the
// ServiceAccounts that cannot be compiled.
func (c *cluster) testRandomCompiledPods(t *testing.T) {
	s := settingsOf(t, "")
	webhook := newRules(s)
	c.createPlain(t)
	const namespace, group = "random-compiled", "random-compiled"
	_, err := c.client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace, Labels: map[string]string{configLabel: group}}}, metav1.CreateOptions{})
	must(t, namespace, err)
	var all []*sample
	var accounts []policies.Account
	for i := range *randomPods / podsPerAccount {
		a := newSample(i)
		a.live = namespace
		r := rand.New(rand.NewPCG(27+*seed, uint64(i)))
		for _, only := range compiledOnly {
			if _, asks := a.meta.Annotations[annotations.Prefix+only.asks]; asks && r.IntN(2) == 0 {
				for key, value := range only.with {
					a.meta.Annotations[annotations.Prefix+key] = value
				}
			}
		}
		a.label(s)
		object := &annotations.Object{Namespace: namespace, Name: a.meta.Name, Annotations: a.meta.Annotations, Label: a.meta.Labels[annotations.IdentityLabel]}
		account := policies.Account{ServiceAccount: object}
		if _, err := compile(s, account); err == nil {
			webhook.accounts[namespace+"/"+a.meta.Name] = object
			all, accounts = append(all, a), append(accounts, account)
		}
	}
	eachOf(all, func(a *sample) {
		c.createAccount(t, namespace, &corev1.ServiceAccount{ObjectMeta: *a.meta.DeepCopy()})
		c.createAccount(t, plainNamespace, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: a.meta.Name}})
	})
	c.installCompiled(t, s, group, accounts...)
	var mu sync.Mutex
	counts := map[string]int{}
	eachOf(all, func(a *sample) {
		for i := range podsPerAccount {
			result := c.compareRandom(t, webhook, a, a.newCompiledPod(t, i), fmt.Sprintf("compiled ServiceAccount %d, pod %d", a.index, i))
			mu.Lock()
			counts[result]++
			mu.Unlock()
		}
	})
	t.Log(counts)
	if want := *randomPods / 10; counts[equal] < want {
		t.Errorf("got %d pods %s, want at least %d", counts[equal], equal, want)
	}
}

// newCompiledPod returns a random pod with fields that matter to profiles and copies.
func (a *sample) newCompiledPod(t *testing.T, index int) *corev1.Pod {
	t.Helper()
	pod := a.newRandomPod(t, index)
	r := rand.New(rand.NewPCG(uint64(a.index)+*seed<<32, uint64(index)+1000))
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		if volumes := pod.Spec.Volumes; len(volumes) > 0 && r.IntN(3) == 0 {
			c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: volumes[r.IntN(len(volumes))].Name, MountPath: copyPaths[r.IntN(len(copyPaths))], ReadOnly: r.IntN(4) == 0})
		}
		if r.IntN(4) == 0 {
			c.Env = append(c.Env, choices[r.IntN(len(choices))])
		}
	}
	if r.IntN(8) == 0 {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: []string{"aws-iam-token", "azure-identity-token"}[r.IntN(2)]})
	}
	return pod
}
