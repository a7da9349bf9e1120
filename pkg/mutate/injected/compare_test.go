// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package injected_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lanyard-dev/lanyard/internal/settings"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/pkg/mutate"
	"github.com/lanyard-dev/lanyard/pkg/mutate/injected"
	"github.com/lanyard-dev/lanyard/pkg/mutate/reason"
)

const (
	role  = "arn:aws:iam::111122223333:role/app"
	plain = `{"metadata":{"name":"a"},"spec":{"serviceAccountName":"app","containers":[{"name":"main"}]}}`
)

func newSettings(t testing.TB) *annotations.Settings {
	t.Helper()
	s, err := settings.Load([]byte("verify-image: image:1"), nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// account returns a ServiceAccount with annotations. The value "" in a change removes an
// annotation.
func account(changes ...map[string]string) *annotations.Object {
	values := map[string]string{}
	for _, change := range changes {
		for key, value := range change {
			values["lanyard.dev/"+key] = value
		}
	}
	maps.DeleteFunc(values, func(_, value string) bool { return value == "" })
	return &annotations.Object{Namespace: "team", Name: "app", Annotations: values}
}

// inject returns the JSON of a pod as Lanyard changes it, and the decision.
func inject(t testing.TB, s *annotations.Settings, serviceAccount *annotations.Object, pod, old string) (string, *mutate.Decision) {
	t.Helper()
	read, err := mutate.ReadPod([]byte(pod), s)
	if err != nil {
		t.Fatal(err)
	}
	var decision *mutate.Decision
	if old == "" {
		decision, err = mutate.Decide(s, serviceAccount, nil, read)
	} else {
		before, errOld := mutate.ReadPod([]byte(old), s)
		if errOld != nil {
			t.Fatal(errOld)
		}
		decision, err = mutate.DecideEphemeral(s, serviceAccount, nil, read, before)
	}
	if err != nil {
		t.Fatal(err)
	}
	patched, err := decision.Apply([]byte(pod))
	if err != nil {
		t.Fatal(err)
	}
	return string(patched), decision
}

func compare(t testing.TB, s *annotations.Settings, serviceAccount *annotations.Object, pod string, unchanged bool) injected.State {
	t.Helper()
	got, err := injected.NewComparer(s, serviceAccount, nil).Compare([]byte(pod), unchanged)
	if err != nil {
		t.Fatal(err)
	}
	return got.State
}

// withEnv returns a pod whose container sets variables.
func withEnv(env ...string) string {
	return `{"metadata":{"name":"a"},"spec":{"serviceAccountName":"app","containers":[{"name":"main","env":[` + strings.Join(env, ",") + `]}]}}`
}

func set(name, value string) string { return `{"name":"` + name + `","value":"` + value + `"}` }

// with returns the plain pod with further members of its metadata, its spec and its container.
func with(metadata, spec, container string) string {
	return `{"metadata":{"name":"a"` + metadata + `},"spec":{"serviceAccountName":"app"` + spec + `,"containers":[{"name":"main"` + container + `}]}}`
}

const (
	ownRole    = "AWS_ROLE_ARN"
	region     = "AWS_REGION"
	tokenFile  = "AWS_WEB_IDENTITY_TOKEN_FILE"
	clientID   = "00000000-0000-0000-0000-000000000001"
	gcpPool    = "projects/123456789012/locations/global/workloadIdentityPools/pool/providers/prov"
	gcpAccount = "my-app@my-project-123.iam.gserviceaccount.com"
)

var (
	aws       = map[string]string{"aws-role-arn": role, "aws-region": "eu-central-1"}
	verified  = map[string]string{"aws-role-arn": role, "verify": "wait"}
	otherRole = map[string]string{"aws-role-arn": role + "2"}
	azure     = map[string]string{"azure-client-id": clientID, "azure-tenant-id": "contoso.example"}
	tokens    = map[string]string{"tokens": "aws"}
	google    = map[string]string{"gcp-workload-identity-provider": gcpPool, "gcp-service-account": gcpAccount}
	profiles  = map[string]string{"aws-role-arn": role, "aws-role-arn.audit": role}
	podName   = map[string]string{"aws-role-arn": role, "aws-session-name": "pod"}
)

func TestARunningPodIsComparedWithANewOne(t *testing.T) {
	t.Parallel()
	s := newSettings(t)
	long := strings.Replace(plain, `"a"`, `"`+strings.Repeat("a", 65)+`"`, 1)
	one := strings.Replace(plain, `"a"`, `"aa"`, 1)
	two := with("", "", `},{"name":"own","env":[`+set(ownRole, role+"3")+`]`)
	for sentence, test := range map[string]struct {
		pod            string
		before, change map[string]string
		want           injected.State
		unchanged      injected.State // with the annotations known to be unchanged; the same if empty
	}{
		"nothing changed":    {plain, aws, nil, injected.Current, ""},
		"another role":       {plain, aws, otherRole, injected.Stale, "-"},
		"another region":     {plain, aws, map[string]string{"aws-region": "eu-west-1"}, injected.Stale, "-"},
		"no region any more": {plain, aws, map[string]string{"aws-region": ""}, injected.Stale, "-"},
		"a new region":       {plain, otherRole, aws, injected.Stale, "-"},
		"a new region, and the container has one":   {withEnv(set(region, "x")), otherRole, map[string]string{"aws-region": "eu-west-1"}, injected.Current, ""},
		"another region, and the container's own":   {withEnv(set(region, "x")), aws, map[string]string{"aws-region": "eu-west-1"}, injected.Current, ""},
		"another audience":                          {plain, aws, map[string]string{"aws-audience": "x"}, injected.Stale, ""},
		"another lifetime":                          {plain, aws, map[string]string{"token-expiration-seconds": "7200"}, injected.Stale, ""},
		"one more provider":                         {plain, aws, azure, injected.Stale, ""},
		"another tenant":                            {plain, azure, map[string]string{"azure-tenant-id": "other.example"}, injected.Stale, "-"},
		"a profile":                                 {plain, aws, map[string]string{"aws-role-arn.audit": role}, injected.Stale, ""},
		"a profile no more":                         {plain, map[string]string{"aws-role-arn": role, "aws-role-arn.audit": role}, map[string]string{"aws-role-arn.audit": ""}, injected.Stale, ""},
		"the name of the pod as the session name":   {one, podName, map[string]string{"aws-session-name": ""}, injected.Stale, ""},
		"no longer the default session name":        {one, aws, map[string]string{"aws-session-name": "pod"}, injected.Stale, ""},
		"the name of the pod, which is too long":    {long, podName, nil, injected.Current, ""},
		"another role, and the name is too long":    {long, podName, otherRole, injected.Stale, "-"},
		"the name of the pod, set by the container": {withEnv(`{"name":"AWS_ROLE_SESSION_NAME","valueFrom":{"fieldRef":{"fieldPath":"metadata.name"}}}`), podName, nil, injected.Current, ""},
		"a copy of the token":                       {plain, aws, map[string]string{"aws-token-path": "/var/run/secrets/a/token"}, injected.Stale, ""},
		"a copy of the token no more":               {plain, map[string]string{"aws-role-arn": role, "aws-token-path": "/var/run/secrets/a/token"}, map[string]string{"aws-token-path": ""}, injected.Stale, ""},
		"another file of the copy": {
			plain, map[string]string{"aws-role-arn": role, "aws-token-path": "/var/run/secrets/a/token"}, map[string]string{"aws-token-path": "/var/run/secrets/a/token2"}, injected.Stale, "",
		},
		"a copy, and the volume's name is taken": {
			with("", `,"volumes":[{"name":"aws-iam-token"}]`, ""), aws, map[string]string{"aws-token-path": "/var/run/secrets/a/token"}, injected.Current, "",
		},
		"Lanyard's path, set by the container, and a new region": {
			withEnv(set(tokenFile, annotations.DefaultTokenMountPath+"/aws/token"), set("X", "1")), map[string]string{"aws-role-arn": role}, aws, injected.Stale, "",
		},
		"credentials of the container's own": {withEnv(set(tokenFile, "/own")), aws, otherRole, injected.Current, ""},
		// As gcp-workload-identity-federation-webhook leaves a container.
		"credentials and the project of another webhook": {
			withEnv(set("GOOGLE_APPLICATION_CREDENTIALS", "/var/run/secrets/gcloud/config/federation.json"), set("CLOUDSDK_CORE_PROJECT", "my-project-123")), google, nil, injected.Current, "",
		},
		"a profile that the container selects":      {withEnv(set("AWS_PROFILE", "audit")), map[string]string{"aws-role-arn": role, "aws-role-arn.audit": role}, nil, injected.Current, ""},
		"the same containers, one with its own":     {two, aws, nil, injected.Current, ""},
		"the same containers, and another role":     {two, aws, otherRole, injected.Stale, "-"},
		"an identity instead of a token":            {plain, tokens, map[string]string{"tokens": "", "aws-role-arn": role}, injected.Stale, "-"},
		"a token instead of an identity":            {plain, otherRole, map[string]string{"tokens": "aws", "aws-role-arn": ""}, injected.Stale, "-"},
		"no identity any more":                      {plain, aws, map[string]string{"aws-role-arn": "", "aws-region": ""}, injected.Stale, ""},
		"a verified start":                          {plain, aws, map[string]string{"verify": "wait"}, injected.Stale, "-"},
		"a verified start no more":                  {plain, verified, map[string]string{"verify": ""}, injected.Stale, "-"},
		"a verified start that only warns":          {plain, verified, map[string]string{"verify": "warn"}, injected.Stale, "-"},
		"a verified start as before":                {plain, verified, nil, injected.Current, ""},
		"a verified start, and other containers":    {with("", `,"initContainers":[{"name":"init","args":["verify"]}]`, ""), verified, nil, injected.Current, ""},
		"a verified start of the pod's own":         {with("", `,"initContainers":[{"name":"lanyard-verify","args":["verify"],"env":[{"name":"HTTPS_PROXY","value":"x"}]}]`, ""), verified, nil, injected.Current, ""},
		"no identity, before and after":             {plain, nil, nil, injected.None, ""},
		"an identity for the first time":            {plain, nil, aws, injected.Without, ""},
		"a mistake in the annotations":              {plain, aws, map[string]string{"aws-region": "?"}, injected.Unknown, ""},
		"the pod opts out":                          {with(`,"annotations":{"lanyard.dev/inject":"false"}`, "", ""), aws, nil, injected.OptedOut, ""},
		"a mirror pod":                              {with(`,"annotations":{"kubernetes.io/config.mirror":"x"}`, "", ""), aws, nil, injected.Current, ""},
		"a variable that another webhook added":     {plain, aws, nil, injected.Current, ""},
		"the only container is skipped":             {with(`,"annotations":{"lanyard.dev/skip-containers":"main"}`, "", ""), aws, nil, injected.LeftOut, ""},
		"the only container is not listed":          {with(`,"annotations":{"lanyard.dev/containers":"other"}`, "", ""), aws, nil, injected.LeftOut, ""},
		"something else is mounted for the token":   {with("", `,"volumes":[{"name":"x","emptyDir":{}}]`, `,"volumeMounts":[{"name":"x","mountPath":"`+annotations.DefaultTokenMountPath+`"}]`), aws, nil, injected.LeftOut, ""},
		"the last variable is a role of its own":    {withEnv(set(ownRole, role+"3")), aws, nil, injected.Stale, injected.Current},
		"the last variable is a client of its own":  {withEnv(set("AZURE_CLIENT_ID", "00000000-0000-0000-0000-000000000003")), azure, nil, injected.Stale, injected.Current},
		"a role of its own, and a token":            {withEnv(set(ownRole, role)), tokens, nil, injected.Stale, injected.Current},
		"a role of its own before another variable": {withEnv(set(ownRole, role+"3"), set("X", "1")), aws, nil, injected.Current, ""},
		"a role of its own, and profiles":           {withEnv(set(ownRole, role+"3")), map[string]string{"aws-role-arn": role, "aws-role-arn.audit": role}, nil, injected.Stale, injected.Current},
		"two roles of its own":                      {withEnv(set(ownRole, role+"3"), set(ownRole, role+"4")), aws, nil, injected.Current, ""},
		"a profile, and a role of its own":          {withEnv(set("AWS_PROFILE", "audit"), set(ownRole, role+"3")), profiles, nil, injected.Current, ""},
		"a profile from elsewhere, and a role":      {withEnv(`{"name":"AWS_PROFILE","valueFrom":{"configMapKeyRef":{"key":"k"}}}`, set(ownRole, role+"3")), profiles, nil, injected.Current, ""},
		"an empty profile, and another role":        {withEnv(set("AWS_PROFILE", "")), profiles, otherRole, injected.Stale, "-"},
		"a profile of its own, and another role":    {withEnv(set("AWS_PROFILE", "x"), set("AWS_CONFIG_FILE", "/own")), profiles, otherRole, injected.Stale, "-"},
		"something is mounted for the copy of the token": {
			with("", `,"volumes":[{"name":"x","emptyDir":{}}]`, `,"volumeMounts":[{"name":"x","mountPath":"/var/run/secrets/a"}]`),
			map[string]string{"aws-role-arn": role, "aws-token-path": "/var/run/secrets/a/token"}, nil, injected.Current, "",
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			pod, _ := inject(t, s, account(test.before), test.pod, "")
			after := account(test.before, test.change)
			if got := compare(t, s, after, pod, false); got != test.want {
				t.Errorf("got %s, want %s: %s", got, test.want, pod)
			}
			want := test.unchanged
			if want == "" {
				want = test.want
			}
			if got := compare(t, s, after, pod, true); got != want && want != "-" { // the annotations have changed
				t.Errorf("unchanged: got %s, want %s: %s", got, want, pod)
			}
		})
	}
}

// Another webhook, called later, may have added variables and mounts.
func TestAdditionsOfOthersDoNotHideAnOldIdentity(t *testing.T) {
	t.Parallel()
	s := newSettings(t)
	pod, _ := inject(t, s, account(aws), plain, "")
	pod = strings.Replace(pod, `"value":"eu-central-1"}]`, `"value":"eu-central-1"},{"name":"OTEL","value":"x"}]`, 1)
	if !strings.Contains(pod, "OTEL") {
		t.Fatalf("got %s, want one more variable", pod)
	}
	for want, after := range map[injected.State]*annotations.Object{injected.Current: account(aws), injected.Stale: account(aws, otherRole)} {
		if got := compare(t, s, after, pod, false); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
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
	if err := injected.Remove(pod, s, false); err != nil || len(pod["spec"].(map[string]any)) != len(before["spec"].(map[string]any)) {
		t.Errorf("got %v and error %v, want %v", pod, err, before)
	}
	if _, err := injected.Read(map[string]any{"spec": 1}, s); err == nil {
		t.Error("got no error for a spec that is a number")
	}
	if _, err := injected.NewComparer(s, account(aws), nil).Compare([]byte(`{"spec":1}`), false); err == nil {
		t.Error("got no error for a spec that is a number")
	}
}

// The pod of the API server shows more than Lanyard's own rules.
func TestARunningPodAgainstThePodOfTheCluster(t *testing.T) {
	t.Parallel()
	s := newSettings(t)
	readInto := func(pod string, values ...map[string]string) *injected.Pod {
		pod, _ = inject(t, s, account(values...), pod, "")
		read, err := injected.Read(json.RawMessage(pod), s)
		if err != nil {
			t.Fatal(err)
		}
		return read
	}
	read := func(values ...map[string]string) *injected.Pod { return readInto(plain, values...) }
	none := read()
	another := with("", `,"volumes":[{"name":"bound-sa-token","emptyDir":{}}]`, "")
	for sentence, test := range map[string]struct {
		running, fresh *injected.Pod
		want           injected.State
	}{
		"the same":             {read(aws), read(aws), injected.Current},
		"another role":         {read(aws), read(aws, otherRole), injected.Stale},
		"a new pod gets more":  {none, read(aws), injected.Without},
		"a new pod gets less":  {read(aws), none, injected.Stale},
		"neither has anything": {none, none, injected.Unknown},
		"the same tokens in a volume with the other name": {read(aws), readInto(another, aws), injected.Current},
	} {
		if got := test.running.Against(test.fresh).State; got != test.want {
			t.Errorf("%s: got %s, want %s", sentence, got, test.want)
		}
	}
}

// BenchmarkCompare compares a usual pod of a ServiceAccount, as lanyard status does for each pod.
func BenchmarkCompare(b *testing.B) {
	s, serviceAccount := newSettings(b), account(aws)
	pod := decode(b, []byte(plain))
	var env []any
	for i := range 30 {
		env = append(env, map[string]any{"name": "VARIABLE_" + string(rune('A'+i)), "value": "a value of about the usual length"})
	}
	pod["spec"].(map[string]any)["containers"].([]any)[0].(map[string]any)["env"] = env
	running, _ := inject(b, s, serviceAccount, string(encode(b, pod)), "")
	comparer := injected.NewComparer(s, serviceAccount, nil)
	b.ReportAllocs()
	for b.Loop() {
		if got, err := comparer.Compare([]byte(running), true); err != nil || got.State != injected.Current {
			b.Fatalf("got %s and error %v, want %s", got.State, err, injected.Current)
		}
	}
}

// A Comparer caches injections, which also depend on the pod.
func TestAComparerComparesPodsThatGetDifferentThings(t *testing.T) {
	t.Parallel()
	s, serviceAccount := newSettings(t), account(aws)
	pods := []string{
		plain,
		`{"metadata":{"name":"short","annotations":{"lanyard.dev/token-expiration-seconds":"600"}},"spec":{"serviceAccountName":"app","containers":[{"name":"main"}]}}`,
		`{"metadata":{"name":"windows"},"spec":{"os":{"name":"windows"},"serviceAccountName":"app","containers":[{"name":"main"}]}}`,
	}
	comparer := injected.NewComparer(s, serviceAccount, nil)
	for range 2 {
		for _, pod := range pods {
			running, _ := inject(t, s, serviceAccount, pod, "")
			if got, err := comparer.Compare([]byte(running), true); err != nil || got.State != injected.Current {
				t.Errorf("got %s and error %v, want %s: %s", got.State, err, injected.Current, running)
			}
			if got, err := comparer.Compare([]byte(pod), true); err != nil || got.State != injected.Without {
				t.Errorf("got %s and error %v, want %s: %s", got.State, err, injected.Without, pod)
			}
		}
	}
}

// A null in a list is skipped, but it has an index.
func TestRemoveFindsTheElementsBesideANull(t *testing.T) {
	t.Parallel()
	s := newSettings(t)
	const pod = `{"metadata":{"name":"a","annotations":{"x":"y"},"labels":{"x":"y"}},"spec":{"serviceAccountName":"app","volumes":[null,{"name":"v"}],
		"containers":[null,{"name":"main","env":[null,{"name":"A"},null],"volumeMounts":[null,{"name":"v","mountPath":"/v"}],"volumeDevices":[{"name":"d","devicePath":"/d"}]}]}}`
	running, _ := inject(t, s, account(aws, google), pod, "")
	got := decode(t, []byte(running))
	if err := injected.Remove(got, s, false); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(decode(t, []byte(pod)), got); diff != "" {
		t.Errorf("pod (-before the injection +after the removal):\n%s", diff)
	}
}

// Remove finds mounts and devices by their places in two lists, and keeps a volume that the pod
// itself mounts, and a label that Lanyard did not write.
func TestRemoveKeepsOtherFields(t *testing.T) {
	t.Parallel()
	s := newSettings(t)
	running, _ := inject(t, s, account(aws), `{"metadata":{"name":"a","labels":{"x":"y"}},"spec":{"serviceAccountName":"app",
		"containers":[{"name":"main","volumeDevices":[{"name":"d","devicePath":"/d"}]}]}}`, "")
	got := decode(t, []byte(running))
	got["metadata"].(map[string]any)["labels"].(map[string]any)[annotations.IdentityLabel] = "own"
	spec := got["spec"].(map[string]any)
	own := map[string]any{"name": "own", "volumeMounts": []any{map[string]any{"name": mutate.VolumeName, "mountPath": "/own"}}}
	spec["containers"] = append(spec["containers"].([]any), own)
	if err := injected.Remove(got, s, false); err != nil {
		t.Fatal(err)
	}
	main := spec["containers"].([]any)[0].(map[string]any)
	if main["volumeMounts"] != nil || main["volumeDevices"] == nil {
		t.Errorf("got %v, want the device and no mount", main)
	}
	if volumes, _ := spec["volumes"].([]any); len(volumes) != 1 {
		t.Errorf("got the volumes %v, want the one that is still mounted", spec["volumes"])
	}
	if labels := got["metadata"].(map[string]any)["labels"]; !cmp.Equal(labels, map[string]any{"x": "y", annotations.IdentityLabel: "own"}) {
		t.Errorf("got the labels %v, want them unchanged", labels)
	}
}

// A container that selects a profile has only some of the variables.
func TestRemoveRemovesTheVariablesBesideAProfile(t *testing.T) {
	t.Parallel()
	s := newSettings(t)
	const fromConfigMap = `"valueFrom":{"configMapKeyRef":{"key":"k","name":"n"}}}`
	for sentence, pod := range map[string]string{
		"no profile":                     plain,
		"a profile":                      withEnv(set("AWS_PROFILE", "audit")),
		"a profile from elsewhere":       withEnv(`{"name":"AWS_PROFILE",` + fromConfigMap),
		"an empty profile":               withEnv(set("AWS_PROFILE", "")),
		"a profile of a file of its own": withEnv(set("AWS_PROFILE", "x"), set("AWS_CONFIG_FILE", "/own")),
		"a profile of a file elsewhere":  withEnv(set("AWS_PROFILE", "x"), `{"name":"AWS_CONFIG_FILE",`+fromConfigMap),
	} {
		running, _ := inject(t, s, account(profiles), pod, "")
		object := decode(t, []byte(running))
		if err := injected.Remove(object, s, false); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(decode(t, []byte(pod))["spec"], object["spec"]); diff != "" {
			t.Errorf("%s: spec (-before the injection +after the removal):\n%s", sentence, diff)
		}
	}
}

// Other webhooks add their mounts at the end.
func TestRemoveKeepsAMountAfterLanyards(t *testing.T) {
	t.Parallel()
	s := newSettings(t)
	running, _ := inject(t, s, account(aws), plain, "")
	object := decode(t, []byte(running))
	main := object["spec"].(map[string]any)["containers"].([]any)[0].(map[string]any)
	others := map[string]any{"name": "others", "mountPath": "/others"}
	main["volumeMounts"] = append(main["volumeMounts"].([]any), others)
	if err := injected.Remove(object, s, false); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]any{others}, main["volumeMounts"]); diff != "" {
		t.Errorf("mounts (-want +got):\n%s", diff)
	}
}

// An API server may have stored such a pod before its ServiceAccount had an identity.
func TestAPodThatExceedsTheLimitsIsReadBack(t *testing.T) {
	t.Parallel()
	pod := `{"metadata":{"name":"a"},"spec":{"serviceAccountName":"app","containers":[{"name":"c"}` + strings.Repeat(`,{"name":"c"}`, 600) + `]}}`
	got, err := injected.NewComparer(newSettings(t), account(aws), nil).Compare([]byte(pod), true)
	if err != nil || got.State != injected.Unknown || got.Denial == nil || got.Denial.Reason != reason.TooLarge {
		t.Errorf("got %s with %v and error %v, want %s with %s", got.State, got.Denial, err, injected.Unknown, reason.TooLarge)
	}
	if got, err := injected.NewComparer(newSettings(t), account(), nil).Compare([]byte(pod), true); err != nil || got.State != injected.None {
		t.Errorf("without an identity: got %s and error %v, want %s", got.State, err, injected.None)
	}
}

// An upgrade of Lanyard must not make all pods stale, and a container that the author added stays.
func TestTheContainerThatVerifies(t *testing.T) {
	t.Parallel()
	s := newSettings(t)
	pod, _ := inject(t, s, account(verified), plain, "")
	newer := newSettings(t)
	newer.VerifyImage = "image:2"
	if got := compare(t, newer, account(verified), pod, false); got != injected.Current {
		t.Errorf("with another image: got %s, want %s: %s", got, injected.Current, pod)
	}
	newer.VerifyImage = ""
	if got := compare(t, newer, account(verified), pod, false); got != injected.Stale {
		t.Errorf("without an image: got %s, want %s: %s", got, injected.Stale, pod)
	}
	own := with("", `,"initContainers":[{"name":"lanyard-verify","env":[{"name":"HTTPS_PROXY","value":"x"}]}]`, "")
	ca := with("", `,"initContainers":[{"name":"lanyard-verify","volumeMounts":[{"name":"ca","mountPath":"/ca"}]}]`, "")
	for _, original := range []string{plain, own, ca} {
		pod, _ := inject(t, s, account(verified), original, "")
		object := decode(t, []byte(pod))
		if err := injected.Remove(object, s, true); err != nil {
			t.Fatal(err)
		}
		spec, _ := object["spec"].(map[string]any)
		list, _ := spec["initContainers"].([]any)
		if kept := original != plain; len(list) == 1 != kept {
			t.Errorf("got init containers %v after the removal from %s", list, pod)
		}
	}
}

// Programs format JSON in their own way.
func TestTheFormatOfTheJSONDoesNotMatter(t *testing.T) {
	t.Parallel()
	s := newSettings(t)
	pod, _ := inject(t, s, account(podName), strings.Replace(plain, `"a"`, `"pod"`, 1), "")
	var indented bytes.Buffer
	if err := json.Indent(&indented, []byte(pod), "", "  "); err != nil {
		t.Fatal(err)
	}
	for _, unchanged := range []bool{false, true} {
		if got := compare(t, s, account(podName), indented.String(), unchanged); got != injected.Current {
			t.Errorf("got %s, want %s: %s", got, injected.Current, &indented)
		}
	}
}

// Both were added to a pod that had been injected.
func TestWhatWasAddedToAnInjectedPod(t *testing.T) {
	t.Parallel()
	s := newSettings(t)
	pod, _ := inject(t, s, account(aws), plain, "")
	for sentence, test := range map[string]struct {
		before, after string
		want          injected.State
	}{
		"an annotation that opts out":               {`"annotations":{`, `"annotations":{"lanyard.dev/inject":"false",`, injected.OptedOut},
		"an ephemeral container that gets no token": {`"spec":{`, `"spec":{"ephemeralContainers":[{"name":"debug"}],`, injected.Current},
	} {
		changed := strings.Replace(pod, test.before, test.after, 1)
		if changed == pod {
			t.Fatalf("got %s, want %s in it", pod, test.before)
		}
		if got := compare(t, s, account(aws), changed, false); got != test.want {
			t.Errorf("%s: got %s, want %s", sentence, got, test.want)
		}
	}
}

// A token alone gives a container no variable that shows its path.
func TestAnotherTokenMountPathMakesAPodStale(t *testing.T) {
	t.Parallel()
	s := newSettings(t)
	pod, _ := inject(t, s, account(tokens), plain, "")
	moved := newSettings(t)
	moved.TokenMountPath = "/var/run/secrets/moved"
	for settings, want := range map[*annotations.Settings]injected.State{s: injected.Current, moved: injected.Stale} {
		if got := compare(t, settings, account(tokens), pod, false); got != want {
			t.Errorf("at %s: got %s, want %s: %s", settings.TokenMountPath, got, want, pod)
		}
	}
}

// The copy is mounted into all containers.
func TestAContainerThatLacksTheCopyOfTheTokenIsStale(t *testing.T) {
	t.Parallel()
	s := newSettings(t)
	serviceAccount := account(aws, map[string]string{"aws-token-path": "/var/run/secrets/a/token"})
	pod, _ := inject(t, s, serviceAccount, with("", "", `},{"name":"second"`), "")
	const mount = `,{"name":"aws-iam-token","readOnly":true,"mountPath":"/var/run/secrets/a"}`
	at := strings.LastIndex(pod, mount)
	if at < 0 {
		t.Fatalf("got %s, want the mount %s", pod, mount)
	}
	if got := compare(t, s, serviceAccount, pod[:at]+pod[at+len(mount):], false); got != injected.Stale {
		t.Errorf("got %s, want %s", got, injected.Stale)
	}
}

// The kubelet expands $(NAME) in values, and turns $$ into $.
func TestADollarInAValueIsReadBack(t *testing.T) {
	t.Parallel()
	s, err := settings.Load([]byte(`
providers:
- name: example
  audience: example.com
  parameters: [{name: user, required: true, pattern: '[a-z]+[$][a-z]+', message: 'must have a dollar', example: a$b}]
  environment: [{name: EXAMPLE_USER, value: '{user}'}, {name: EXAMPLE_TOKEN, value: '{token-file}', credential: true}]
`), nil)
	if err != nil {
		t.Fatal(err)
	}
	pod, _ := inject(t, s, account(map[string]string{"example-user": "a$b"}), plain, "")
	if !strings.Contains(pod, `"a$$b"`) {
		t.Fatalf("got %s, want an escaped dollar", pod)
	}
	for user, want := range map[string]injected.State{"a$b": injected.Current, "a$c": injected.Stale} {
		if got := compare(t, s, account(map[string]string{"example-user": user}), pod, false); got != want {
			t.Errorf("%s: got %s, want %s", user, got, want)
		}
	}
}

// A volume is Lanyard's only with the name and the form that Lanyard gives it.
func TestRemoveKeepsTheVolumesOfOthers(t *testing.T) {
	t.Parallel()
	s := newSettings(t)
	const (
		token  = `{"serviceAccountToken":{"audience":"sts.amazonaws.com","expirationSeconds":86400,"path":"aws/token"}}`
		copied = `{"name":"aws-iam-token","projected":{"sources":[{"serviceAccountToken":{"audience":"sts.amazonaws.com","path":"token"}}]}}`
	)
	projected := func(mode, sources string) string {
		return `{"name":"bound-sa-token","projected":{"defaultMode":` + mode + `,"sources":[` + sources + `]}}`
	}
	own := projected("420", token)
	for sentence, test := range map[string]struct {
		volumes string
		kept    []string
	}{
		"the token":                    {own, nil},
		"the token and its copy":       {own + "," + copied, nil},
		"another source than a token":  {`{"name":"bound-sa-token","emptyDir":{}}`, []string{"bound-sa-token"}},
		"another mode":                 {projected("256", token), []string{"bound-sa-token"}},
		"another token beside it":      {projected("420", token+`,{"serviceAccountToken":{"audience":"x","path":"x"}}`), []string{"bound-sa-token"}},
		"another file beside it":       {projected("420", token+`,{"downwardAPI":{"items":[{"path":"labels","fieldRef":{"fieldPath":"metadata.labels"}}]}}`), []string{"bound-sa-token"}},
		"a ConfigMap beside it":        {projected("420", token+`,{"configMap":{"name":"ca"}}`), []string{"bound-sa-token"}},
		"the copy before it":           {copied + "," + own, []string{"aws-iam-token"}},
		"a copy in a volume of others": {own + "," + strings.Replace(copied, "aws-iam-token", "own", 1), []string{"own"}},
		"a copy beside something else": {own + "," + strings.Replace(copied, `"sources":[`, `"sources":[{"secret":{"name":"s"}},`, 1), []string{"aws-iam-token"}},
		"a copy for another audience":  {own + "," + strings.Replace(copied, "sts.amazonaws.com", "x", 1), []string{"aws-iam-token"}},
		"the other name before it": {
			strings.Replace(own, "bound-sa-token", "lanyard-bound-sa-token", 1) + `,{"name":"bound-sa-token","emptyDir":{}}`, []string{"bound-sa-token"},
		},
		"the same tokens in a volume of others": {own + "," + strings.Replace(own, "bound-sa-token", "own", 1), []string{"own"}},
		"a volume without tokens":               {own + `,{"name":"own","emptyDir":{}}`, []string{"own"}},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			object := decode(t, []byte(`{"metadata":{"annotations":{"lanyard.dev/injected":"aws,azure"}},"spec":{"volumes":[`+test.volumes+`],"containers":[{"name":"main"}]}}`))
			if err := injected.Remove(object, s, false); err != nil {
				t.Fatal(err)
			}
			var kept []string
			volumes, _ := object["spec"].(map[string]any)["volumes"].([]any)
			for _, v := range volumes {
				kept = append(kept, v.(map[string]any)["name"].(string))
			}
			if diff := cmp.Diff(test.kept, kept); diff != "" {
				t.Errorf("volumes (-want +got):\n%s", diff)
			}
		})
	}
}

func TestReadFindsTheTokensAndTheKindsOfContainers(t *testing.T) {
	t.Parallel()
	s := newSettings(t)
	pod, _ := inject(t, s, account(aws, azure), with("", `,"initContainers":[{"name":"init"}]`, ""), "")
	read, err := injected.Read(json.RawMessage(strings.Replace(pod, `"spec":{`, `"spec":{"ephemeralContainers":[{"name":"debug"}],`, 1)), s)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, c := range read.Containers {
		got[c.Name] = c.Kind
	}
	for _, token := range read.Tokens {
		got[token.File] = token.Provider
	}
	want := map[string]string{
		"init": injected.Init, "main": injected.Ordinary, "debug": injected.Ephemeral,
		annotations.DefaultTokenMountPath + "/aws/token": "aws", annotations.DefaultTokenMountPath + "/azure/token": "azure",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("containers and tokens (-want +got):\n%s", diff)
	}
}

func TestReadFindsTheProvidersOfAContainer(t *testing.T) {
	t.Parallel()
	s := newSettings(t)
	for sentence, test := range map[string]struct {
		pod  string
		want []string
	}{
		"all":                               {plain, []string{"aws", "azure", "gcp"}},
		"all, on Windows":                   {with("", `,"os":{"name":"windows"}`, ""), []string{"aws", "azure", "gcp"}},
		"a token of its own":                {withEnv(set(tokenFile, "/own")), []string{"azure", "gcp"}},
		"a path that only begins like it":   {withEnv(set(tokenFile, annotations.DefaultTokenMountPath+"2/aws/token")), []string{"azure", "gcp"}},
		"its path in a variable of its own": {withEnv(set(tokenFile, "/own"), set("X", annotations.DefaultTokenMountPath+"/aws/token")), []string{"azure", "gcp"}},
	} {
		pod, _ := inject(t, s, account(aws, azure, google), test.pod, "")
		read, err := injected.Read(json.RawMessage(pod), s)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(test.want, read.Containers[0].Providers); diff != "" {
			t.Errorf("%s: providers (-want +got):\n%s", sentence, diff)
		}
	}
}

// The role, which the container needs for the token, comes from the ConfigMap.
func TestReadFindsAProviderByItsPath(t *testing.T) {
	t.Parallel()
	s := newSettings(t)
	own := set(tokenFile, annotations.DefaultTokenMountPath+"/aws/token")
	pod, _ := inject(t, s, account(tokens), with("", "", `,"env":[`+own+`],"envFrom":[{"configMapRef":{"name":"role"}}]`), "")
	read, err := injected.Read(json.RawMessage(pod), s)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"aws"}, read.Containers[0].Providers); diff != "" {
		t.Errorf("providers (-want +got):\n%s", diff)
	}
}

// No API server accepts such a manifest.
func TestAMountWithoutANameIsNotLanyards(t *testing.T) {
	t.Parallel()
	read, err := injected.Read(json.RawMessage(with("", "", `,"volumeMounts":[{"mountPath":"/x","readOnly":true}]`)), newSettings(t))
	if err != nil || read.Containers[0].TakesPart {
		t.Errorf("got %+v and error %v, want nothing of Lanyard", read, err)
	}
}
