// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package inject changes the pods of tests as Lanyard does.
package inject

import (
	"encoding/json"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/pkg/mutate"
)

// Pod returns the pod as Lanyard changes it for the ServiceAccount.
func Pod(t testing.TB, s *annotations.Settings, serviceAccount *annotations.Object, pod *corev1.Pod) *corev1.Pod {
	t.Helper()
	text, err := json.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	read, err := mutate.ReadPod(text, s)
	if err != nil {
		t.Fatal(err)
	}
	decision, err := mutate.Decide(s, serviceAccount, nil, read)
	if err != nil {
		t.Fatal(err)
	}
	if text, err = decision.Apply(text); err != nil {
		t.Fatal(err)
	}
	injected := new(corev1.Pod)
	if err := json.Unmarshal(text, injected); err != nil {
		t.Fatal(err)
	}
	return injected
}
