// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lanyard-dev/lanyard/internal/cli/cluster"
	"github.com/lanyard-dev/lanyard/internal/cli/workload"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/pkg/mutate"
	"github.com/lanyard-dev/lanyard/pkg/mutate/injected"
	"github.com/lanyard-dev/lanyard/pkg/mutate/reason"
)

// status and explain report the state that follows from mutate.Decide, and decide nothing
// themselves.
func TestStatusAndExplainAgreeWithTheDecision(t *testing.T) {
	t.Parallel()
	seen := map[injected.State]int{}
	byTime := map[bool]int{} // pods whose state depends on the time of the annotations, by randomPod.unchanged
	for seed := range uint64(30) {
		c := newRandomCluster(t, rand.New(rand.NewPCG(seed, 1)))
		file := filepath.Join(t.TempDir(), "config.yaml")
		if err := os.WriteFile(file, []byte(c.config), 0o600); err != nil {
			t.Fatal(err)
		}
		wanted := map[string]map[injected.State]int{} // by namespace and workload
		for i := range c.pods {
			p := &c.pods[i]
			want, compared := c.stateOf(t, p), p.Namespace+" "+p.workload
			var explanation workload.Explanation
			decode(t, c, &explanation, "explain", "pod/"+p.Name, "--namespace", p.Namespace, "--config", file, "-o", "json")
			if explanation.Live == nil || explanation.Live.State != want {
				t.Fatalf("seed %d: explain has %s for %s %s, want %s: %s", seed, encode(t, explanation), p.Namespace, p.Name, want, c)
			}
			if outcome := c.outcomeOf(t, p); explanation.New.Outcome != outcome {
				t.Fatalf("seed %d: explain has %s for a new pod like %s %s, want %s: %s", seed, explanation.New.Outcome, p.Namespace, p.Name, outcome, explanation.New.Text)
			}
			seen[want]++
			if p.unchanged = !p.unchanged; c.stateOf(t, p) != want {
				byTime[!p.unchanged]++
			}
			p.unchanged = !p.unchanged
			if !c.settings.AskForIdentity(c.account(p).Annotations) && p.Annotations[annotations.Injected] == "" {
				continue // status does not list it
			}
			if wanted[compared] == nil {
				wanted[compared] = map[injected.State]int{}
			}
			wanted[compared][want]++
		}
		var status struct{ Workloads []workload.Row }
		decode(t, c, &status, "status", "--all-namespaces", "--config", file, "-o", "json")
		got := map[string]map[injected.State]int{}
		for _, row := range status.Workloads {
			if row.Pods > 0 {
				got[row.Namespace+" "+row.Workload] = row.States
			}
		}
		if !maps.EqualFunc(got, wanted, maps.Equal) {
			t.Fatalf("seed %d: status has %v, want %v: %s", seed, got, wanted, c)
		}
		for compared, want := range wanted { // explain counts the pods of a workload as status does
			namespace, name, _ := strings.Cut(compared, " ")
			if strings.HasPrefix(name, "pod/") {
				continue
			}
			var explanation workload.Explanation
			decode(t, c, &explanation, "explain", name, "--namespace", namespace, "--config", file, "-o", "json")
			if explanation.Pods == nil || !maps.Equal(explanation.Pods.States, want) {
				t.Fatalf("seed %d: explain has %s for %s, want %v: %s", seed, encode(t, explanation.Pods), compared, want, c)
			}
		}
	}
	if byTime[false] < 3 || byTime[true] < 3 {
		t.Errorf("got %v pods whose state depends on the time of the annotations, want more", byTime)
	}
	for _, state := range workload.States() {
		if seen[state.State] < 5 {
			t.Errorf("got %d pods with the state %s, want more: %v", seen[state.State], state.State, seen)
		}
	}
}

// decode decodes the output of a command, which reads each part of the cluster once.
func decode(t *testing.T, c *randomCluster, into any, args ...string) {
	t.Helper()
	c.reads = map[string]int{}
	defer func() {
		for uri, n := range c.reads {
			if n > 1 {
				t.Errorf("%v: got %d reads of %s, want one", args, n, uri)
			}
		}
	}()
	_, out, errOut := runAgainst(t, c, "", args...)
	if err := json.Unmarshal([]byte(out), into); err != nil {
		t.Fatalf("%v: %v: %s%s", args, err, out, errOut)
	}
}

// called reports whether the API server calls Lanyard for pods with these labels.
func (c *randomCluster) called(namespace string, labels map[string]string) bool {
	selected, _ := cluster.Selects(c.registration, labels)
	return selected && !slices.Contains([]string{annotations.LabelDisabled, annotations.OptOut}, c.namespaces[namespace].Labels[annotations.Inject])
}

// decide returns the decision about the JSON of a pod.
func (c *randomCluster) decide(namespace string, account *metav1.ObjectMeta, pod []byte) (*mutate.Decision, error) {
	read, err := mutate.ReadPod(pod, c.settings)
	if err != nil {
		return nil, err
	}
	return mutate.Decide(c.settings, accountIn(namespace, account), annotations.NamespaceObject(c.namespaces[namespace]), read)
}

func accountIn(namespace string, meta *metav1.ObjectMeta) *annotations.Object {
	account := annotations.ServiceAccountObject(meta)
	account.Namespace = namespace
	return account
}

// stateOf returns the state of a pod: a new pod of its template or, without one, of the pod as it was
// created, gets what mutate.Decide decides.
func (c *randomCluster) stateOf(t *testing.T, p *randomPod) injected.State {
	t.Helper()
	account := c.account(p)
	selection, _ := c.settings.ParsePod(p.Annotations, p.Labels[annotations.Inject])
	compared, err := injected.NewComparer(c.settings, accountIn(p.Namespace, account), annotations.NamespaceObject(c.namespaces[p.Namespace])).Compare(encode(t, &p.Pod), p.unchanged)
	state := compared.State
	switch {
	case err != nil:
		t.Fatal(err)
	case (selection.OptOut || state == injected.OptedOut) && p.Annotations[annotations.Injected] == "":
		return injected.OptedOut
	case !c.called(p.Namespace, p.template.Labels):
		return injected.Excluded
	case state == injected.OptedOut: // since its creation
		state = injected.Stale
	}
	switch {
	case (state == injected.Stale || state == injected.Without) && p.workload != "pod/"+p.Name:
		state = c.against(t, p, account)
	}
	if state == injected.Current && (slices.ContainsFunc(compared.Decision.Findings, func(f mutate.Finding) bool { return f.Reason == reason.EnvironmentShadowed }) ||
		c.shadowedByConfigMap(p, compared.Decision)) {
		return workload.Shadowed
	}
	return state
}

// against compares a pod with the result of Decide for its template.
func (c *randomCluster) against(t *testing.T, p *randomPod, account *metav1.ObjectMeta) injected.State {
	t.Helper()
	text := encode(t, p.template)
	decision, err := c.decide(p.Namespace, account, text)
	if _, denied := errors.AsType[*reason.Error](err); denied {
		return injected.Unknown
	}
	if err == nil {
		text, err = decision.Apply(text)
	}
	if err != nil {
		t.Fatal(err)
	}
	fresh, err := injected.Read(json.RawMessage(text), c.settings)
	running, errRunning := injected.Read(&p.Pod, c.settings)
	if err := errors.Join(err, errRunning); err != nil {
		t.Fatal(err)
	}
	return running.Against(fresh).State
}

// shadowedByConfigMap reports whether a container gets an identity of AWS, and keys of AWS from a
// ConfigMap.
func (c *randomCluster) shadowedByConfigMap(p *randomPod, d *mutate.Decision) bool {
	aws := slices.ContainsFunc(d.Identities, func(i annotations.Identity) bool { return i.Provider.Name == "aws" && !i.TokenAlone })
	return aws && slices.ContainsFunc(slices.Concat(p.Spec.InitContainers, p.Spec.Containers), func(container corev1.Container) bool {
		reads := slices.ContainsFunc(container.EnvFrom, func(from corev1.EnvFromSource) bool {
			return from.ConfigMapRef != nil && from.ConfigMapRef.Name == keysOfAWS
		})
		own := slices.ContainsFunc(container.Env, func(v corev1.EnvVar) bool { return v.Name == "AWS_ACCESS_KEY_ID" })
		left := slices.ContainsFunc(d.Findings, func(f mutate.Finding) bool {
			return f.Container == container.Name && f.Reason == reason.ContainerNotSelected
		})
		return reads && !own && !left
	})
}

// outcomeOf returns the outcome for a new pod, in a cluster without a guard.
func (c *randomCluster) outcomeOf(t *testing.T, p *randomPod) injected.State {
	t.Helper()
	account, text := c.account(p), encode(t, p.template)
	if p.workload == "pod/"+p.Name { // explain sends the pod as it was created
		object := map[string]any{}
		if err := convert(&p.Pod, &object); err != nil {
			t.Fatal(err)
		}
		if err := injected.RemoveAll(object, c.settings, p.unchanged, nil); err != nil {
			t.Fatal(err)
		}
		text = encode(t, object)
	}
	decision, err := c.decide(p.Namespace, account, text)
	_, denied := errors.AsType[*reason.Error](err)
	switch called := c.called(p.Namespace, p.template.Labels); {
	case denied && !called, err == nil && !called && decision.Reason != reason.OptedOut && decision.Reason != reason.NoIdentity:
		return injected.Excluded
	case denied:
		return workload.Denied
	case err != nil:
		t.Fatal(err)
	}
	switch decision.Reason {
	case reason.Injected, reason.AlreadyInjected:
		return workload.Injected
	case reason.OptedOut:
		return injected.OptedOut
	case reason.NoIdentity:
		return injected.None
	}
	return injected.LeftOut
}

func encode(t *testing.T, object any) []byte {
	t.Helper()
	text, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// String shows the settings, the Namespaces and the ServiceAccounts of a cluster that failed.
func (c *randomCluster) String() string {
	text, err := json.Marshal([]any{c.config, c.namespaces, c.accounts, c.mayCreate})
	return strings.TrimSpace(fmt.Sprintf("%s %v", text, err))
}
