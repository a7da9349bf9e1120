// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"github.com/lanyard-dev/lanyard/internal/cli/workload"
	"github.com/lanyard-dev/lanyard/internal/settings"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/pkg/mutate"
	"github.com/lanyard-dev/lanyard/pkg/mutate/injected"
	"github.com/lanyard-dev/lanyard/pkg/mutate/reason"
	"github.com/lanyard-dev/lanyard/test/support/randpod"
)

// keys are the annotations of random ServiceAccounts, and variables those of random containers.
var (
	keys = []map[string]string{
		{"lanyard.dev/aws-role-arn": role}, {"lanyard.dev/aws-role-arn": role + "2", "lanyard.dev/aws-region": "eu-central-1"}, {"lanyard.dev/audience": "vault"},
		{"lanyard.dev/azure-client-id": "00000000-0000-0000-0000-000000000001", "lanyard.dev/azure-tenant-id": "a.example"}, {"lanyard.dev/aws-region": "?"}, {},
	}
	variables = []corev1.EnvVar{
		{Name: "AWS_ACCESS_KEY_ID", Value: "x"}, {Name: "AWS_PROFILE", Value: "y"}, {Name: "AWS_ROLE_ARN", Value: role}, {Name: "AZURE_CLIENT_SECRET", Value: "z"}, {Name: "A", Value: "b"},
	}
	choices = []map[string]string{
		nil, nil, nil, {"lanyard.dev/inject": "false"}, {"lanyard.dev/containers": "nobody"}, {"lanyard.dev/skip-containers": "main-1"}, {"lanyard.dev/inject": "maybe"},
	}
)

// randomAccount returns a ServiceAccount with random annotations.
func randomAccount(r *rand.Rand) *metav1.ObjectMeta {
	values := map[string]string{}
	for range 1 + r.IntN(2) {
		maps.Copy(values, keys[r.IntN(len(keys))])
	}
	return &metav1.ObjectMeta{Name: "app", Annotations: values, Labels: map[string]string{"lanyard.dev/identity": "enabled"}}
}

// randomPod returns a random pod of the ServiceAccount app.
func randomPod(t *testing.T, r *rand.Rand) *corev1.Pod {
	t.Helper()
	pod := new(corev1.Pod)
	if err := convert(randpod.New(r), pod); err != nil {
		t.Fatal(err)
	}
	pod.Name, pod.Spec.ServiceAccountName = "pod", "app"
	pod.Annotations = maps.Clone(choices[r.IntN(len(choices))])
	for i := range pod.Spec.Containers {
		if r.IntN(2) == 0 {
			pod.Spec.Containers[i].Env = append(pod.Spec.Containers[i].Env, variables[r.IntN(len(variables))])
		}
	}
	return pod
}

// convert encodes a value and decodes it into another one.
func convert(from, to any) error {
	text, err := json.Marshal(from)
	if err == nil {
		err = json.Unmarshal(text, to)
	}
	return err
}

// status and explain report the results of mutate.Decide and injected.Compare, and do not
// decide again.
func TestStatusAndExplainAgreeWithTheDecision(t *testing.T) {
	t.Parallel()
	s, err := settings.Load(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	asker, err := workload.NewAsker(&rest.Config{Host: "http://cluster.invalid"}, s, workload.Options{NoDryRun: true})
	if err != nil {
		t.Fatal(err)
	}
	namespace := &metav1.ObjectMeta{Name: "shop"}
	seen := map[injected.State]int{}
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 1))
		pod, before, after := randomPod(t, r), randomAccount(r), randomAccount(r)
		if r.IntN(2) == 0 {
			after = before
		}
		text, err := json.Marshal(pod)
		if err != nil {
			t.Fatal(err)
		}
		decision, err := workload.Decide(s, namespace, before, text)
		if err != nil { // no such pod exists
			continue
		}
		injectedText, err := decision.Apply(text)
		if err != nil {
			t.Fatal(err)
		}
		live := new(corev1.Pod)
		if err := json.Unmarshal(injectedText, live); err != nil {
			t.Fatal(err)
		}
		want, about := wanted(t, s, namespace, after, live)
		got := explained(t, s, asker, namespace, after, pod, live)
		if got.Live.State != want && !(about.Denial != nil && got.Live.State == injected.Unknown) {
			t.Fatalf("seed %d: explain has %s, want %s: %+v", seed, got.Live.State, want, got.Live)
		}
		if outcome := outcomeOf(s, namespace, after, text); got.New.Outcome != outcome {
			t.Fatalf("seed %d: explain has %s for a new pod, want %s: %s", seed, got.New.Outcome, outcome, got.New.Text)
		}
		seen[want]++
		n := workload.NewNamespace(s, namespace, nil, true)
		n.AddServiceAccount(&metav1.PartialObjectMetadata{ObjectMeta: *after})
		n.AddPod(live)
		rows := n.Rows()
		if len(rows) == 0 || rows[0].Pods == 0 { // the ServiceAccount asks for nothing
			continue
		}
		if rows[0].States[want] != 1 {
			t.Fatalf("seed %d: status has %v, want %s", seed, rows[0].States, want)
		}
	}
	for _, state := range []injected.State{injected.Current, injected.Stale, injected.Without, workload.Shadowed, injected.LeftOut, injected.OptedOut, injected.None, injected.Unknown} {
		if seen[state] < 5 {
			t.Errorf("got %d pods with the state %s, want more: %v", seen[state], state, seen)
		}
	}
}

// wanted returns the state of a pod by injected.Compare.
func wanted(t *testing.T, s *annotations.Settings, namespace, account *metav1.ObjectMeta, pod *corev1.Pod) (injected.State, injected.Comparison) {
	t.Helper()
	text, err := json.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	compared, err := injected.Compare(s, workload.Account(namespace, account), annotations.NamespaceObject(namespace), text, false)
	if err != nil {
		t.Fatal(err)
	}
	state := compared.State
	if selection, _ := s.ParsePod(pod.Annotations, pod.Labels[annotations.Inject]); selection.OptOut {
		state = injected.OptedOut
	}
	if state == injected.Current && slices.ContainsFunc(compared.Decision.Findings, func(f mutate.Finding) bool { return f.Reason == reason.EnvironmentShadowed }) {
		state = workload.Shadowed
	}
	return state, compared
}

// outcomeOf returns the outcome for a new pod by mutate.Decide, where the guard is in place.
func outcomeOf(s *annotations.Settings, namespace, account *metav1.ObjectMeta, pod []byte) injected.State {
	decision, err := workload.Decide(s, namespace, account, pod)
	if _, denied := errors.AsType[*reason.Error](err); denied || err != nil {
		return workload.Denied
	}
	switch decision.Reason {
	case reason.Injected, reason.AlreadyInjected:
		return workload.Injected
	case reason.OptedOut:
		return injected.OptedOut
	case reason.NoIdentity:
		return injected.None
	}
	if len(decision.Findings) > 0 && decision.Findings[0].Reason == reason.NoContainer {
		return workload.Denied
	}
	return injected.LeftOut
}

// explained returns the explanation of a running pod and of a new one, without a cluster.
func explained(t *testing.T, s *annotations.Settings, asker *workload.Asker, namespace, account *metav1.ObjectMeta, sent, live *corev1.Pod) *workload.Explanation {
	t.Helper()
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(sent)
	if err != nil {
		t.Fatal(err)
	}
	pod := &unstructured.Unstructured{Object: object}
	in := &workload.Input{
		Settings: s, Object: "pod/pod", Namespace: namespace, ServiceAccountName: "app", ServiceAccount: account, Named: true, Called: true,
		Live: live, Sent: pod, Answer: asker.Ask(t.Context(), namespace, account, pod),
	}
	if in.Answer.Pod != nil {
		in.Got = in.Answer.Pod
	}
	return workload.Explain(in)
}
