// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package injected_test

import (
	"encoding/json"
	"maps"
	"strings"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"

	"github.com/lanyard-dev/lanyard/internal/injected"
	"github.com/lanyard-dev/lanyard/internal/jsonscan"
	"github.com/lanyard-dev/lanyard/internal/mutate"
	"github.com/lanyard-dev/lanyard/internal/provider"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

const (
	role  = "arn:aws:iam::111122223333:role/app"
	plain = `{"metadata":{"name":"a"},"spec":{"containers":[{"name":"main"}]}}`
)

func newSettings(t *testing.T) *annotations.Settings {
	t.Helper()
	s, err := annotations.NewSettings(provider.Builtin())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// inject returns the pod as Lanyard injects it for a ServiceAccount. A value of "" in
// a change removes an annotation.
func inject(t *testing.T, pod string, changes ...map[string]string) *injected.Pod {
	t.Helper()
	s := newSettings(t)
	values := map[string]string{}
	for _, change := range changes {
		for key, value := range change {
			values["lanyard.dev/"+key] = value
		}
	}
	maps.DeleteFunc(values, func(_, value string) bool { return value == "" })
	seconds := int64(3600)
	if values["lanyard.dev/token-expiration-seconds"] == "7200" {
		seconds = 7200
	}
	account, errs := s.ParseServiceAccount("team", "app", values)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	injection := provider.NewInjection(account.Identities, &provider.Subject{
		Namespace: "team", ServiceAccount: "app", MountPath: annotations.DefaultTokenMountPath, TokenExpirationSeconds: seconds,
	})
	parsed := new(mutate.Pod)
	if _, err := parsed.Read(jsonscan.New([]byte(pod)), s); err != nil {
		t.Fatal(err)
	}
	result, err := mutate.Create(parsed, &annotations.Pod{}, mutate.NewInjection(injection))
	if err != nil {
		t.Fatal(err)
	}
	patch, err := jsonpatch.DecodePatch(result.Patch.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	patched, err := patch.Apply([]byte(pod))
	if err != nil {
		t.Fatal(err)
	}
	read, err := injected.Read(json.RawMessage(patched), s)
	if err != nil {
		t.Fatal(err)
	}
	return read
}

// withEnv returns a pod whose container sets variables.
func withEnv(env string) string {
	return `{"metadata":{"name":"a"},"spec":{"containers":[{"name":"main","env":[` + env + `]}]}}`
}

func set(name, value string) string { return `{"name":"` + name + `","value":"` + value + `"}` }

func TestARunningPodIsComparedWithANewOne(t *testing.T) {
	t.Parallel()
	aws := map[string]string{"aws-role-arn": role, "aws-region": "eu-central-1"}
	other := map[string]string{"aws-role-arn": role + "2"}
	azure := map[string]string{"azure-client-id": "00000000-0000-0000-0000-000000000001", "azure-tenant-id": "contoso.example"}
	tokens := map[string]string{"tokens": "aws"}
	google := map[string]string{
		"gcp-workload-identity-provider": "projects/123456789012/locations/global/workloadIdentityPools/pool/providers/prov",
		"gcp-service-account":            "my-app@my-project-123.iam.gserviceaccount.com",
	}
	podName := map[string]string{"aws-role-arn": role, "aws-session-name": "pod"}
	long := strings.Replace(plain, `"a"`, `"`+strings.Repeat("a", 65)+`"`, 1)
	one, otherName := strings.Replace(plain, `"a"`, `"aa"`, 1), strings.Replace(plain, `"a"`, `"bb"`, 1)
	const region, ownRole = "AWS_REGION", "AWS_ROLE_ARN"
	two := `{"metadata":{"name":"a"},"spec":{"containers":[{"name":"main"},{"name":"own","env":[` + set(ownRole, role+"3") + `]}]}}`
	for name, test := range map[string]struct {
		pod      string
		before   map[string]string
		change   map[string]string
		new      string
		want     bool
		identity map[string]string // in place of before and change
	}{
		"nothing changed":    {plain, aws, nil, plain, true, nil},
		"another role":       {plain, aws, other, plain, false, nil},
		"another region":     {plain, aws, map[string]string{"aws-region": "eu-west-1"}, plain, false, nil},
		"no region any more": {plain, aws, map[string]string{"aws-region": ""}, plain, false, nil},
		"a new region":       {plain, other, aws, plain, false, nil},
		"a new region, and the container has one":   {withEnv(set(region, "x")), other, map[string]string{"aws-region": "eu-west-1"}, plain, true, nil},
		"another region, and the container's own":   {withEnv(set(region, "x")), aws, map[string]string{"aws-region": "eu-west-1"}, plain, true, nil},
		"another audience":                          {plain, aws, map[string]string{"aws-audience": "x"}, plain, false, nil},
		"another lifetime":                          {plain, aws, map[string]string{"token-expiration-seconds": "7200"}, plain, false, nil},
		"one more provider":                         {plain, aws, azure, plain, false, nil},
		"another tenant":                            {plain, azure, map[string]string{"azure-tenant-id": "other.example"}, plain, false, nil},
		"a profile":                                 {plain, aws, map[string]string{"aws-role-arn.audit": role}, plain, false, nil},
		"the name of the pod as the session name":   {one, podName, map[string]string{"aws-session-name": ""}, one, false, nil},
		"no longer the name of the pod":             {one, aws, map[string]string{"aws-region": "", "aws-session-name": "pod"}, one, false, nil},
		"the names of two pods":                     {one, podName, nil, otherName, true, nil},
		"the name of the pod, too long, and not":    {long, podName, nil, otherName, true, nil},
		"another role, and the name is too long":    {long, podName, other, otherName, false, nil},
		"the name of the pod, set by the container": {withEnv(`{"name":"AWS_ROLE_SESSION_NAME","valueFrom":{"fieldRef":{"fieldPath":"metadata.name"}}}`), podName, nil, otherName, true, nil},
		"a copy of the token":                       {plain, aws, map[string]string{"aws-token-path": "/var/run/secrets/a/token"}, plain, false, nil},
		"a copy, and the volume's name is taken": {
			`{"metadata":{"name":"a"},"spec":{"volumes":[{"name":"aws-iam-token"}],"containers":[{"name":"main"}]}}`,
			aws, map[string]string{"aws-token-path": "/var/run/secrets/a/token"}, plain, true, nil,
		},
		"Lanyard's path, set by the container, and a new region": {
			withEnv(set("AWS_WEB_IDENTITY_TOKEN_FILE", annotations.DefaultTokenMountPath+"/aws/token") + "," + set("X", "1")),
			map[string]string{"aws-role-arn": role}, aws, plain, false, nil,
		},
		"credentials of the container's own": {withEnv(set("AWS_WEB_IDENTITY_TOKEN_FILE", "/own")), aws, other, plain, true, nil},
		// As gcp-workload-identity-federation-webhook leaves a container.
		"credentials and the project of another webhook": {
			withEnv(set("GOOGLE_APPLICATION_CREDENTIALS", "/var/run/secrets/gcloud/config/federation.json") + "," + set("CLOUDSDK_CORE_PROJECT", "my-project-123")),
			google, nil, plain, true, nil,
		},
		"a profile that the container selects":               {withEnv(set("AWS_PROFILE", "audit")), nil, nil, plain, true, map[string]string{"aws-role-arn": role, "aws-role-arn.audit": role}},
		"a role of one of two containers":                    {two, aws, nil, plain, true, nil},
		"a role of one of two containers, and another role":  {two, aws, other, plain, false, nil},
		"the same containers, one of which has its own role": {two, aws, nil, two, true, nil},
		"the same containers, and another role":              {two, aws, other, two, false, nil},
		"a token, and a role of the container":               {withEnv(set(ownRole, role)), tokens, nil, plain, true, nil},
		"an identity instead of a token":                     {plain, map[string]string{"tokens": "azure"}, map[string]string{"tokens": "", "azure-client-id": azure["azure-client-id"], "azure-tenant-id": azure["azure-tenant-id"]}, plain, false, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			before, after := []map[string]string{test.before}, []map[string]string{test.before, test.change}
			if test.identity != nil {
				before, after = []map[string]string{test.identity}, []map[string]string{test.identity}
			}
			got := injected.Judge(inject(t, test.pod, before...), inject(t, test.new, after...), true, false, newSettings(t))
			if (got == injected.Current) != test.want {
				t.Errorf("got %s, want current: %t", got, test.want)
			}
		})
	}
}

func TestPodsThatWereNotInjected(t *testing.T) {
	t.Parallel()
	s := newSettings(t)
	const volume = `{"spec":{"volumes":[{"name":"bound-sa-token"}],"containers":[{"name":"main","volumeMounts":[{"name":"bound-sa-token","mountPath":"/a","readOnly":true}]}]}}`
	var pod, before map[string]any
	for _, into := range []*map[string]any{&pod, &before} {
		if err := json.Unmarshal([]byte(volume), into); err != nil {
			t.Fatal(err)
		}
	}
	read, err := injected.Read(pod, s)
	if err != nil || len(read.Providers) > 0 || read.Volume != "" || read.Containers[0].TakesPart {
		t.Errorf("got %+v and error %v, want nothing injected", read, err)
	}
	if err := injected.Remove(pod, s); err != nil || len(pod["spec"].(map[string]any)) != len(before["spec"].(map[string]any)) {
		t.Errorf("got %v and error %v, want %v", pod, err, before)
	}
	if _, err := injected.Read(map[string]any{"spec": 1}, s); err == nil {
		t.Error("got no error for a spec that is a number")
	}
}

func TestOneWordForEachState(t *testing.T) {
	t.Parallel()
	none, aws := &injected.Pod{}, &injected.Pod{Providers: []string{"aws"}}
	for name, test := range map[string]struct {
		running, fresh   *injected.Pod
		called, optedOut bool
		want             injected.State
	}{
		"the same":                           {none, none, true, false, injected.Current},
		"a new pod gets more":                {none, aws, true, false, injected.Without},
		"a new pod gets less":                {aws, none, true, false, injected.Stale},
		"a new pod is not known":             {aws, nil, true, false, injected.Unknown},
		"an excluded namespace":              {none, aws, false, false, injected.Excluded},
		"injected, in an excluded namespace": {aws, nil, false, false, injected.Excluded},
		"a pod that opts out":                {none, nil, true, true, injected.OptedOut},
		"a pod that opts out of nothing":     {none, nil, false, true, injected.OptedOut},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := injected.Judge(test.running, test.fresh, test.called, test.optedOut, newSettings(t)); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}
