// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package injected_test

import (
	"encoding/json"
	"errors"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/pkg/mutate"
	"github.com/lanyard-dev/lanyard/pkg/mutate/injected"
	"github.com/lanyard-dev/lanyard/pkg/mutate/reason"
	"github.com/lanyard-dev/lanyard/test/support/randpod"
)

// identities are the annotations of random ServiceAccounts: each has some of them.
var identities = []map[string]string{
	aws, azure, google, tokens, podName,
	{"audience": "neutral"}, {"aws-role-arn": role, "verify": "wait"},
	{"aws-role-arn": role, "aws-role-arn.audit": role + "-audit", "aws-role-arn.backup": role + "-backup", "aws-source-profile.backup": "audit"},
	{"aws-role-arn": role, "aws-token-path": "/var/run/secrets/eks.amazonaws.com/serviceaccount/token"},
	{"azure-client-id": clientID, "azure-tenant-id": "contoso.example", "azure-token-path": "/var/run/secrets/azure/tokens/azure-identity-token"},
}

// edits are changes of a ServiceAccount.
var edits = []map[string]string{
	otherRole, {"aws-region": "us-east-2"}, {"aws-region": ""}, {"aws-role-arn": "", "tokens": "aws"}, {"aws-session-name": "pod"}, {"aws-session-name": ""},
	{"aws-role-arn.audit": role + "-other"}, {"aws-role-arn.audit": ""}, {"aws-role-arn.new": role + "-new"}, {"aws-audience": "other"}, {"aws-token-path": "/var/run/secrets/b/token"}, {"aws-token-path": ""},
	{"azure-client-id": "00000000-0000-0000-0000-000000000002"}, {"azure-tenant-id": "other.example"}, {"azure-client-id": "", "azure-tenant-id": "", "azure-token-path": ""},
	{"gcp-service-account": ""}, {"gcp-project": "my-project-456"}, {"gcp-workload-identity-provider": "", "gcp-service-account": ""},
	{"audience": "other"}, {"audience": ""}, {"token-expiration-seconds": "7200"}, {"tokens": ""}, {"verify": "wait"}, {"verify": "warn"}, {"verify": ""}, aws, azure, google,
}

// editsPerSample is the number of changes that are tried with one random pod.
const editsPerSample = 8

// ofPods are annotations of random pods.
var ofPods = []map[string]any{
	{"lanyard.dev/skip-containers": "main-1"}, {"lanyard.dev/containers": "main-1,init-2"}, {"lanyard.dev/containers": "nobody"},
	{"lanyard.dev/token-expiration-seconds": "4000"}, {"lanyard.dev/inject": "false"}, {"lanyard.dev/inject": "true"},
}

// own contains variables of containers with values that Lanyard could have written.
var own = []map[string]any{
	{"name": "AWS_ROLE_ARN", "value": role + "-own"}, {"name": "AWS_ROLE_ARN", "value": role}, {"name": "AWS_REGION", "value": "eu-west-3"}, {"name": "AWS_DEFAULT_REGION", "value": "eu-central-1"},
	{"name": "AZURE_CLIENT_ID", "value": "00000000-0000-0000-0000-000000000009"}, {"name": "AZURE_TENANT_ID", "value": "own.example"},
	{"name": "AWS_WEB_IDENTITY_TOKEN_FILE", "value": "/own/token"}, {"name": "AWS_WEB_IDENTITY_TOKEN_FILE", "value": randpod.MountPath + "/aws/token"},
	{"name": "AWS_PROFILE", "value": "audit"}, {"name": "GOOGLE_CLOUD_PROJECT", "value": "own-project-1"}, {"name": "AWS_STS_REGIONAL_ENDPOINTS", "value": "regional"},
}

// taken contains paths at which containers have mounts and Lanyard would mount something.
var taken = []string{"/var/run/secrets/eks.amazonaws.com/serviceaccount", "/var/run/secrets/azure/tokens/below", "/var/run/secrets/b", randpod.MountPath}

// sample is a random pod before its injection, and its ServiceAccount.
type sample struct {
	pod     map[string]any
	account *annotations.Object
	debugs  []any // ephemeral containers that are added later
}

func newSample(r *rand.Rand) *sample {
	pod := randpod.New(r)
	metadata, spec := pod["metadata"].(map[string]any), pod["spec"].(map[string]any)
	if r.IntN(3) == 0 {
		metadata["annotations"] = ofPods[r.IntN(len(ofPods))]
	}
	var debugs []any
	for range r.IntN(3) {
		debugs = append(debugs, map[string]any{"name": "debug-" + string(rune('a'+len(debugs))), "image": "image"})
	}
	changed := func(c map[string]any) {
		for range r.IntN(3) {
			env, _ := c["env"].([]any)
			c["env"] = append(slices.Clone(env), own[r.IntN(len(own))])
		}
		if volumes, _ := spec["volumes"].([]any); len(volumes) > 0 && r.IntN(4) == 0 {
			mounts, _ := c["volumeMounts"].([]any)
			c["volumeMounts"] = append(slices.Clone(mounts), map[string]any{"name": volumes[0].(map[string]any)["name"], "mountPath": taken[r.IntN(len(taken))]})
		}
	}
	for _, member := range []string{"initContainers", "containers"} {
		list, _ := spec[member].([]any)
		for _, c := range list {
			changed(c.(map[string]any))
		}
	}
	for _, c := range debugs {
		changed(c.(map[string]any))
	}
	chosen := []map[string]string{identities[r.IntN(len(identities))], identities[r.IntN(len(identities))]}
	return &sample{pod, account(chosen...), debugs}
}

// inject returns the injected pod, including its ephemeral containers. It reports false if
// the pod is denied.
func (a *sample) inject(t testing.TB, s *annotations.Settings, serviceAccount *annotations.Object) ([]byte, *mutate.Decision, bool) {
	t.Helper()
	pod, decision, ok := a.decide(t, s, serviceAccount, encode(t, a.pod), nil)
	if !ok || len(a.debugs) == 0 {
		return pod, decision, ok
	}
	object := decode(t, pod)
	object["spec"].(map[string]any)["ephemeralContainers"] = a.debugs
	with, _, ok := a.decide(t, s, serviceAccount, encode(t, object), pod)
	return with, decision, ok
}

func (a *sample) decide(t testing.TB, s *annotations.Settings, serviceAccount *annotations.Object, pod, old []byte) ([]byte, *mutate.Decision, bool) {
	t.Helper()
	read, err := mutate.ReadPod(pod, s)
	if err != nil {
		t.Fatal(err)
	}
	var decision *mutate.Decision
	if old == nil {
		decision, err = mutate.Decide(s, serviceAccount, nil, read)
	} else {
		before, errOld := mutate.ReadPod(old, s)
		if errOld != nil {
			t.Fatal(errOld)
		}
		decision, err = mutate.DecideEphemeral(s, serviceAccount, nil, read, before)
	}
	if denied, ok := errors.AsType[*reason.Error](err); ok && denied != nil {
		return nil, nil, false
	}
	if err != nil {
		t.Fatal(err)
	}
	patched, err := decision.Apply(pod)
	if err != nil {
		t.Fatal(err)
	}
	return patched, decision, true
}

func encode(t testing.TB, object any) []byte {
	t.Helper()
	text, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func decode(t testing.TB, text []byte) (object map[string]any) {
	t.Helper()
	if err := json.Unmarshal(text, &object); err != nil {
		t.Fatal(err)
	}
	return object
}

// FuzzCompare checks that a pod is current directly after its injection, and no longer after
// a change of its ServiceAccount that affects new pods.
func FuzzCompare(f *testing.F) {
	for seed := range uint64(100) {
		f.Add(seed)
	}
	s := newSettings(f)
	f.Fuzz(func(t *testing.T, seed uint64) {
		a := newSample(rand.New(rand.NewPCG(seed, 1)))
		pod, decision, ok := a.inject(t, s, a.account)
		if !ok {
			return // the pod or the ServiceAccount has a mistake
		}
		want := stateOf(decision)
		if got := compare(t, s, a.account, string(pod), true); got != want {
			t.Fatalf("directly after the injection: got %s, want %s:\n%v\n%s", got, want, a.account.Annotations, pod)
		}
		r := rand.New(rand.NewPCG(seed, 2))
		for range editsPerSample {
			edit := edits[r.IntN(len(edits))]
			after := edited(a.account, edit)
			fresh, decision, ok := a.inject(t, s, after)
			if !ok || reflect.DeepEqual(decode(t, fresh), decode(t, pod)) {
				continue
			}
			if got := compare(t, s, after, string(pod), false); got == injected.Current || got == injected.LeftOut || got == injected.None {
				t.Errorf("after %v: got %s, want another state than that of a new pod, which is %s:\nrunning %s\nnew     %s", edit, got, decision.Reason, pod, fresh)
			}
		}
	})
}

// stateOf returns the state of a pod directly after a decision.
func stateOf(d *mutate.Decision) injected.State {
	switch d.Reason {
	case reason.Injected, reason.AlreadyInjected:
		return injected.Current
	case reason.OptedOut:
		return injected.OptedOut
	case reason.NoIdentity:
		return injected.None
	}
	return injected.LeftOut
}

// edited returns the ServiceAccount after a change.
func edited(a *annotations.Object, change map[string]string) *annotations.Object {
	short := map[string]string{}
	for key, value := range a.Annotations {
		short[key[len(annotations.Prefix):]] = value
	}
	return account(short, change)
}
