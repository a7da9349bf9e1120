// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mutate_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/google/go-cmp/cmp"

	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/pkg/mutate"
	"github.com/lanyard-dev/lanyard/pkg/provider"
	"github.com/lanyard-dev/lanyard/pkg/reason"
)

// The injection of these tests: one provider with a token, a credential of two
// variables and a setting of two.
const (
	mountPath = "/lanyard"
	tokenPath = "/lanyard/aws/token"
)

func injection() *provider.Injection {
	return &provider.Injection{MountPath: mountPath, Hash: "h", Providers: []provider.Provider{{
		Name:        "aws",
		Token:       provider.Token{Audience: "aud", ExpirationSeconds: 3600, Path: "aws/token"},
		Credentials: []provider.Variable{{Name: "ROLE", Value: "r"}, {Name: "FILE", Value: tokenPath}},
		Settings:    [][]provider.Variable{{{Name: "REGION", Value: "eu"}, {Name: "DEFAULT_REGION", Value: "eu"}}},
		Shadowing:   []string{"KEY"},
	}}}
}

// withFile is the injection with a credential file beside the token.
func withFile() *provider.Injection {
	i := injection()
	i.Providers[0].CredentialFile = provider.File{Path: "gcp/credentials.json", Content: `{"type":"external_account"}`}
	return i
}

func keysOf(t *testing.T, prefix string) *annotations.Keys {
	t.Helper()
	keys, err := annotations.NewKeys(prefix)
	if err != nil {
		t.Fatal(err)
	}
	return &keys
}

func parse(t *testing.T, pod string) *mutate.Pod {
	t.Helper()
	parsed, err := mutate.ParsePod([]byte(pod), keysOf(t, annotations.DefaultPrefix))
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

// add gives what Create adds to a pod.
func add(t *testing.T, pod string, injection *provider.Injection) mutate.Result {
	t.Helper()
	result, err := mutate.Create(parse(t, pod), &annotations.Pod{}, mutate.NewAddition(injection, keysOf(t, annotations.DefaultPrefix)), nil)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

// pathsOf lists the paths of a patch's operations.
func pathsOf(t *testing.T, patch []byte) (paths []string) {
	t.Helper()
	var operations []struct{ Op, Path string }
	if patch == nil {
		return nil
	}
	if err := json.Unmarshal(patch, &operations); err != nil {
		t.Fatalf("%s: %v", patch, err)
	}
	for _, operation := range operations {
		if operation.Op != "add" {
			t.Errorf("got operation %q, want add", operation.Op)
		}
		paths = append(paths, operation.Path)
	}
	return paths
}

func apply(t *testing.T, pod string, patch []byte) string {
	t.Helper()
	decoded, err := jsonpatch.DecodePatch(patch)
	if err != nil {
		t.Fatalf("%s: %v", patch, err)
	}
	patched, err := decoded.Apply([]byte(pod))
	if err != nil {
		t.Fatalf("apply %s to %s: %v", patch, pod, err)
	}
	return string(patched)
}

func TestAPodOfTheWrongShapeIsRefusedWithThePlace(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ pod, want string }{
		"no object at all":           {`[]`, "pod: got array, want object"},
		"nothing":                    {``, "pod: got no value, want object"},
		"something after the pod":    {`{}x`, `pod: at byte 2: got 'x', want the end`},
		"no closing bracket":         {`{"spec":{}`, "pod: unexpected end of JSON"},
		"metadata is a list":         {`{"metadata":[]}`, "pod: metadata: at byte 12: got array, want object"},
		"annotations are a string":   {`{"metadata":{"annotations":"x"}}`, "pod: metadata: annotations: at byte 27: got string, want object"},
		"an annotation is a number":  {`{"metadata":{"annotations":{"lanyard.dev/inject":1}}}`, "pod: metadata: annotations: lanyard.dev/inject: at byte 49: got number, want string"},
		"spec is a number":           {`{"spec":1}`, "pod: spec: at byte 8: got number, want object"},
		"the account is an object":   {`{"spec":{"serviceAccountName":{}}}`, "pod: spec: serviceAccountName: at byte 30: got object, want string"},
		"volumes are an object":      {`{"spec":{"volumes":{}}}`, "pod: spec: volumes: at byte 19: got object, want array"},
		"a volume is a string":       {`{"spec":{"volumes":[{},"v"]}}`, "pod: spec: volumes: [1]: at byte 23: got string, want object"},
		"a volume's name is a list":  {`{"spec":{"volumes":[{"name":[]}]}}`, "pod: spec: volumes: [0]: name: at byte 28: got array, want string"},
		"sources are a string":       {`{"spec":{"volumes":[{"name":"bound-sa-token","projected":{"sources":"x"}}]}}`, "pod: spec: volumes: [0]: projected: at byte 68: got string, want array"},
		"an audience is a number":    {`{"spec":{"volumes":[{"projected":{"sources":[{"serviceAccountToken":{"audience":1}}]},"name":"bound-sa-token"}]}}`, "pod: spec: volumes: [0]: projected: serviceAccountToken: at byte 80: got number, want string"},
		"a container is null's text": {`{"spec":{"containers":["null"]}}`, "pod: spec: containers: [0]: at byte 23: got string, want object"},
		"env is a string":            {`{"spec":{"containers":[{},{"env":"x"}]}}`, "pod: spec: containers: [1]: env: at byte 33: got string, want array"},
		"a value is an object":       {`{"spec":{"initContainers":[{},{"env":[{"name":"A","value":{}}]}]}}`, "pod: spec: initContainers: [1]: env: [0]: "},
		"a mount path is a number":   {`{"spec":{"ephemeralContainers":[{"volumeMounts":[{},{"mountPath":3}]}]}}`, "pod: spec: ephemeralContainers: [0]: volumeMounts: [1]: "},
		"a device path is a boolean": {`{"spec":{"containers":[{"volumeDevices":[{"devicePath":true}]}]}}`, "pod: spec: containers: [0]: volumeDevices: [0]: "},
		"a node selector is a list":  {`{"spec":{"nodeSelector":[]}}`, "pod: spec: nodeSelector: at byte 24: got array, want object"},
		"the os is a string":         {`{"spec":{"os":"windows"}}`, "pod: spec: os: at byte 14: got string, want object"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := mutate.ParsePod([]byte(test.pod), keysOf(t, annotations.DefaultPrefix))
			if err == nil || !strings.HasPrefix(err.Error(), test.want) {
				t.Errorf("got error %v, want %s", err, test.want)
			}
		})
	}
}

func TestAnErrorShowsNoValue(t *testing.T) {
	t.Parallel()
	const secret = "s3cr3t"
	for _, pod := range []string{
		`{"spec":{"containers":[{"env":[{"name":"A","value":"` + secret + `"},{"value":{"` + secret + `":1}}]}]}}`,
		`{"spec":{"containers":[{"env":[{"name":"A","value":"` + secret + `\q"}]}]}}`,
		`{"spec":{"containers":[{"env":[{"name":"A","value":` + secret + `}]}]}}`,
		`{"metadata":{"annotations":{"a":"` + secret + `"},"name":["` + secret + `"]}}`,
	} {
		_, err := mutate.ParsePod([]byte(pod), keysOf(t, annotations.DefaultPrefix))
		if err == nil || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: got error %v, want one that does not show it", pod, err)
		}
	}
}

func TestAPatchMakesWhatIsMissing(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		pod  string
		want []string
	}{
		"metadata is absent": {`{"spec":{"containers":[{}]}}`,
			[]string{"/metadata", "/spec/volumes", "/spec/containers/0/volumeMounts", "/spec/containers/0/env"}},
		"metadata is null": {`{"metadata":null,"spec":{"containers":[{}]}}`,
			[]string{"/metadata", "/spec/volumes", "/spec/containers/0/volumeMounts", "/spec/containers/0/env"}},
		"annotations are absent": {`{"metadata":{},"spec":{"containers":[{}]}}`,
			[]string{"/metadata/annotations", "/spec/volumes", "/spec/containers/0/volumeMounts", "/spec/containers/0/env"}},
		"all is null": {`{"metadata":{"annotations":null},"spec":{"volumes":null,"containers":[{"env":null,"volumeMounts":null}]}}`,
			[]string{"/metadata/annotations", "/spec/volumes", "/spec/containers/0/volumeMounts", "/spec/containers/0/env"}},
		// One element at the end of an empty list is as long as the list; four
		// are longer.
		"all is empty": {`{"metadata":{"annotations":{}},"spec":{"volumes":[],"containers":[{"env":[],"volumeMounts":[]}]}}`,
			[]string{"/metadata/annotations/lanyard.dev~1injected", "/metadata/annotations/lanyard.dev~1identity-hash",
				"/spec/volumes/-", "/spec/containers/0/volumeMounts/-", "/spec/containers/0/env"}},
		"one of the annotations is there": {`{"metadata":{"annotations":{"lanyard.dev/injected":"aws"}},"spec":{"containers":[{}]}}`,
			[]string{"/metadata/annotations/lanyard.dev~1identity-hash", "/spec/volumes", "/spec/containers/0/volumeMounts", "/spec/containers/0/env"}},
		"the init containers are absent": {`{"metadata":{"annotations":{}},"spec":{"initContainers":null,"containers":[{"name":"a"},{"name":"b"}]}}`,
			[]string{"/metadata/annotations/lanyard.dev~1injected", "/metadata/annotations/lanyard.dev~1identity-hash", "/spec/volumes",
				"/spec/containers/0/volumeMounts", "/spec/containers/0/env", "/spec/containers/1/volumeMounts", "/spec/containers/1/env"}},
		"there is no container":           {`{"spec":{"containers":[]}}`, nil},
		"there is no spec":                {`{"spec":null}`, nil},
		"the only container is ephemeral": {`{"spec":{"ephemeralContainers":[{}]}}`, nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			result := add(t, test.pod, injection())
			if diff := cmp.Diff(test.want, pathsOf(t, result.Patch)); diff != "" {
				t.Errorf("paths (-want +got):\n%s", diff)
			}
			if result.Patch == nil {
				return
			}
			if second := add(t, apply(t, test.pod, result.Patch), injection()); second.Patch != nil || second.Reason != reason.AlreadyInjected {
				t.Errorf("a second pass gave %s, %s", second.Reason, second.Patch)
			}
		})
	}
}

func TestKeysUnderAnotherPrefixAreEscapedAndRead(t *testing.T) {
	t.Parallel()
	keys := keysOf(t, "identity.example.com/")
	const pod = `{"metadata":{"annotations":{"lanyard.dev/injected":"other"}},"spec":{"containers":[{}]}}`
	once := func(pod string) mutate.Result {
		parsed, err := mutate.ParsePod([]byte(pod), keys)
		if err != nil {
			t.Fatal(err)
		}
		result, err := mutate.Create(parsed, &annotations.Pod{}, mutate.NewAddition(withFile(), keys), nil)
		if err != nil {
			t.Fatal(err)
		}
		return result
	}
	result := once(pod)
	want := []string{
		"/metadata/annotations/identity.example.com~1injected", "/metadata/annotations/identity.example.com~1identity-hash",
		"/metadata/annotations/identity.example.com~1gcp-credentials",
		"/spec/volumes", "/spec/containers/0/volumeMounts", "/spec/containers/0/env",
	}
	if diff := cmp.Diff(want, pathsOf(t, result.Patch)); diff != "" {
		t.Errorf("paths (-want +got):\n%s", diff)
	}
	patched := apply(t, pod, result.Patch)
	for _, part := range []string{`"identity.example.com/injected":"aws"`, `"lanyard.dev/injected":"other"`, `metadata.annotations['identity.example.com/gcp-credentials']`} {
		if !strings.Contains(patched, part) {
			t.Errorf("got %s, want %s in it", patched, part)
		}
	}
	if second := once(patched); second.Patch != nil {
		t.Errorf("a second pass gave %s", second.Patch)
	}
}

func TestWhatAContainerSetsItselfDecidesWhatItGets(t *testing.T) {
	t.Parallel()
	const ours = `{"name":"ROLE","value":"r"},{"name":"FILE","value":"` + tokenPath + `"}`
	const region = `{"name":"REGION","value":"eu"},{"name":"DEFAULT_REGION","value":"eu"}`
	tests := map[string]struct {
		env     string
		want    string // the env afterwards; as before where empty
		finding reason.Reason
	}{
		"nothing":                         {`{"name":"A"}`, `{"name":"A"},` + ours + `,` + region, ""},
		"our credential":                  {ours, ours + `,` + region, ""},
		"a role of its own":               {`{"name":"ROLE","value":"mine"}`, "", reason.EnvironmentTaken},
		"half of our credential":          {`{"name":"ROLE","value":"r"}`, "", reason.EnvironmentTaken},
		"an empty role":                   {`{"name":"ROLE"}`, "", reason.EnvironmentTaken},
		"a role from elsewhere":           {`{"name":"ROLE","valueFrom":{"secretKeyRef":{}}},{"name":"FILE","value":"` + tokenPath + `"}`, "", reason.EnvironmentTaken},
		"our value and another's source":  {`{"name":"ROLE","value":"r","valueFrom":{"fieldRef":{}}},{"name":"FILE","value":"` + tokenPath + `"}`, "", reason.EnvironmentTaken},
		"our value and no source":         {`{"name":"ROLE","value":"r","valueFrom":null},{"name":"FILE","value":"` + tokenPath + `"}`, `{"name":"ROLE","value":"r","valueFrom":null},{"name":"FILE","value":"` + tokenPath + `"},` + region, ""},
		"its own, and ours after it":      {`{"name":"ROLE","value":"mine"},` + ours, `{"name":"ROLE","value":"mine"},` + ours + `,` + region, ""},
		"ours, and its own after it":      {ours + `,{"name":"ROLE","value":"mine"}`, "", reason.EnvironmentTaken},
		"one setting of its own":          {`{"name":"DEFAULT_REGION","value":"us"}`, `{"name":"DEFAULT_REGION","value":"us"},` + ours, ""},
		"a setting from elsewhere":        {`{"name":"REGION","valueFrom":{"fieldRef":{}}}`, `{"name":"REGION","valueFrom":{"fieldRef":{}}},` + ours, ""},
		"what SDKs prefer":                {`{"name":"KEY","value":"k"}`, `{"name":"KEY","value":"k"},` + ours + `,` + region, reason.EnvironmentShadowed},
		"a name that only begins like it": {`{"name":"ROLE_ARN","value":"mine"}`, `{"name":"ROLE_ARN","value":"mine"},` + ours + `,` + region, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pod := `{"spec":{"containers":[{"name":"main","env":[` + test.env + `]}]}}`
			result := add(t, pod, injection())
			want := test.want
			if want == "" {
				want = test.env
				if result.Patch != nil {
					t.Errorf("got patch %s, want none", result.Patch)
				}
			}
			if result.Patch != nil {
				pod = apply(t, pod, result.Patch)
			}
			if diff := cmp.Diff(decoded(t, "["+want+"]"), envOf(t, pod)); diff != "" {
				t.Errorf("env (-want +got):\n%s", diff)
			}
			var found reason.Reason
			for _, finding := range result.Findings {
				found = finding.Reason
				if strings.Contains(finding.Detail, "mine") || strings.Contains(finding.Detail, `"k"`) {
					t.Errorf("a finding shows a value: %s", finding)
				}
			}
			if found != test.finding {
				t.Errorf("got finding %q, want %q", found, test.finding)
			}
		})
	}
}

func decoded(t *testing.T, text string) any {
	t.Helper()
	var v any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return v
}

// envOf gives the env of a pod's only container.
func envOf(t *testing.T, pod string) any {
	t.Helper()
	container := decoded(t, pod).(map[string]any)["spec"].(map[string]any)["containers"].([]any)[0]
	return container.(map[string]any)["env"]
}

func TestAContainerWhoseMountPathIsTakenIsLeftOut(t *testing.T) {
	t.Parallel()
	const volumes = `"volumes":[{"name":"bound-sa-token","projected":{"sources":[{"serviceAccountToken":{"audience":"aud","path":"aws/token"}}]}}],`
	tests := map[string]struct {
		container string
		taken     bool
		mounts    bool // it is given the mount
	}{
		"nothing is there":                  {``, false, true},
		"the volume is there":               {`"volumeMounts":[{"name":"bound-sa-token","mountPath":"/lanyard"}]`, false, false},
		"the volume is there, with a slash": {`"volumeMounts":[{"name":"bound-sa-token","mountPath":"/lanyard/"}]`, false, false},
		"another volume is there":           {`"volumeMounts":[{"name":"own","mountPath":"/lanyard"}]`, true, false},
		"another volume is below":           {`"volumeMounts":[{"name":"own","mountPath":"/lanyard/aws"}]`, true, false},
		"another volume is beside":          {`"volumeMounts":[{"name":"own","mountPath":"/lanyard2"}]`, false, true},
		"the volume is below":               {`"volumeMounts":[{"name":"bound-sa-token","mountPath":"/lanyard/aws"}]`, true, false},
		"a part of the volume is there":     {`"volumeMounts":[{"name":"bound-sa-token","mountPath":"/lanyard","subPath":"aws"}]`, true, false},
		"an expanded part of it is there":   {`"volumeMounts":[{"name":"bound-sa-token","mountPath":"/lanyard","subPathExpr":"$(A)"}]`, true, false},
		"an empty part is all of it":        {`"volumeMounts":[{"name":"bound-sa-token","mountPath":"/lanyard","subPath":"","subPathExpr":null}]`, false, false},
		"another is below the volume":       {`"volumeMounts":[{"name":"bound-sa-token","mountPath":"/lanyard"},{"name":"own","mountPath":"/lanyard/aws"}]`, true, false},
		"another is below, named first":     {`"volumeMounts":[{"name":"own","mountPath":"/lanyard/aws"},{"name":"bound-sa-token","mountPath":"/lanyard"}]`, true, false},
		"a device is there":                 {`"volumeDevices":[{"name":"bound-sa-token","devicePath":"/lanyard"}]`, true, false},
		"a device is below":                 {`"volumeDevices":[{"name":"disk","devicePath":"/lanyard/disk"}]`, true, false},
		"a device is elsewhere":             {`"volumeDevices":[{"name":"disk","devicePath":"/dev/lanyard"}]`, false, true},
		"the volume is elsewhere":           {`"volumeMounts":[{"name":"bound-sa-token","mountPath":"/elsewhere"}]`, false, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			result := add(t, `{"spec":{`+volumes+`"containers":[{`+test.container+`}]}}`, injection())
			if taken := result.Reason == reason.MountPathTaken; taken != test.taken || taken != (result.Patch == nil) {
				t.Errorf("got %s and patch %s", result.Reason, result.Patch)
			}
			if mounts := strings.Contains(string(result.Patch), "/volumeMounts"); mounts != test.mounts {
				t.Errorf("got patch %s, want a mount: %v", result.Patch, test.mounts)
			}
			if test.taken && len(result.Providers) > 0 {
				t.Errorf("got providers %v, want none", result.Providers)
			}
		})
	}
}

func TestTheVolumeIsTheUsualOneUnlessThatIsSomethingElse(t *testing.T) {
	t.Parallel()
	const token = `{"serviceAccountToken":{"audience":"aud","expirationSeconds":600,"path":"aws/token"}}`
	const file = `{"downwardAPI":{"items":[{"path":"labels","fieldRef":{"fieldPath":"metadata.labels"}},` +
		`{"fieldRef":{"fieldPath":"metadata.annotations['lanyard.dev/gcp-credentials']"},"path":"gcp/credentials.json"}]}}`
	named := func(name string, sources ...string) string {
		return `{"projected":{"sources":[` + strings.Join(sources, ",") + `]},"name":"` + name + `"}`
	}
	const usual, fallback = mutate.VolumeName, mutate.FallbackVolumeName
	tests := map[string]struct {
		volumes   []string
		injection *provider.Injection
		mounts    string // this volume; a conflict where empty
		adds      bool   // the volume
	}{
		"there is none":                             {nil, injection(), usual, true},
		"there are others":                          {[]string{`{"name":"data","emptyDir":{}}`}, injection(), usual, true},
		"it holds the token":                        {[]string{named(usual, token)}, injection(), usual, false},
		"it holds the token among others":           {[]string{named(usual, `{"configMap":{}}`, file, token)}, injection(), usual, false},
		"it holds another audience":                 {[]string{named(usual, strings.Replace(token, "aud", "aud2", 2))}, injection(), fallback, true},
		"it holds the token elsewhere":              {[]string{named(usual, strings.Replace(token, "aws/token", "token", 1))}, injection(), fallback, true},
		"it holds no sources":                       {[]string{`{"name":"bound-sa-token","projected":{"sources":null}}`}, injection(), fallback, true},
		"it is of another kind":                     {[]string{`{"name":"bound-sa-token","secret":{"secretName":"s"}}`}, injection(), fallback, true},
		"it holds token and file":                   {[]string{named(usual, file, token)}, withFile(), usual, false},
		"it holds the token without the file":       {[]string{named(usual, token)}, withFile(), fallback, true},
		"it holds the file under another path":      {[]string{named(usual, token, strings.Replace(file, "credentials.json", "c.json", 1))}, withFile(), fallback, true},
		"it holds another annotation as the file":   {[]string{named(usual, token, strings.Replace(file, "lanyard.dev/", "own.dev/", 1))}, withFile(), fallback, true},
		"it is something else, and the other holds": {[]string{named(usual), named(fallback, token)}, injection(), fallback, false},
		"it holds, and so does the other":           {[]string{named(fallback, token), named(usual, token)}, injection(), usual, false},
		"both are something else":                   {[]string{named(usual), named(fallback)}, injection(), "", false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pod := `{"spec":{"volumes":[` + strings.Join(test.volumes, ",") + `],"containers":[{}]}}`
			keys := keysOf(t, annotations.DefaultPrefix)
			result, err := mutate.Create(parse(t, pod), &annotations.Pod{}, mutate.NewAddition(test.injection, keys), nil)
			if test.mounts == "" {
				var conflict *mutate.ConflictError
				if !errors.As(err, &conflict) || conflict.Reason != reason.VolumeNameTaken || result.Patch != nil {
					t.Errorf("got %v, want a conflict about the volume's name", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if want := fmt.Sprintf(`"path":"/spec/containers/0/volumeMounts","value":[{"name":%q,`, test.mounts); !strings.Contains(string(result.Patch), want) {
				t.Errorf("got %s, want %s in it", result.Patch, want)
			}
			if adds := strings.Contains(string(result.Patch), `"/spec/volumes`); adds != test.adds {
				t.Errorf("got %s, want the volume added: %v", result.Patch, test.adds)
			}
			if second := add(t, apply(t, pod, result.Patch), test.injection); second.Patch != nil || second.Reason != reason.AlreadyInjected {
				t.Errorf("a second pass gave %s, %s", second.Reason, second.Patch)
			}
		})
	}
}

func TestMarksOfAnotherInjectionRefuseThePod(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		annotations string
		says        []string
		hides       string
	}{
		"other providers":      {`"lanyard.dev/injected":"gcp"`, []string{"lanyard.dev/injected", `"gcp"`, `"aws"`}, "external_account"},
		"no providers":         {`"lanyard.dev/injected":""`, []string{"lanyard.dev/injected"}, "external_account"},
		"another hash":         {`"lanyard.dev/identity-hash":"g"`, []string{"lanyard.dev/identity-hash", `"g"`, `"h"`}, "external_account"},
		"other credentials":    {`"lanyard.dev/gcp-credentials":"s3cr3t"`, []string{"lanyard.dev/gcp-credentials"}, "s3cr3t"},
		"one right, one wrong": {`"lanyard.dev/injected":"aws","lanyard.dev/identity-hash":"g"`, []string{"lanyard.dev/identity-hash"}, "external_account"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pod := parse(t, `{"metadata":{"annotations":{`+test.annotations+`}},"spec":{"containers":[{}]}}`)
			result, err := mutate.Create(pod, &annotations.Pod{}, mutate.NewAddition(withFile(), keysOf(t, annotations.DefaultPrefix)), nil)
			var conflict *mutate.ConflictError
			if !errors.As(err, &conflict) || conflict.Reason != reason.ForeignInjection || result.Patch != nil {
				t.Fatalf("got %v and %s, want a conflict", err, result.Patch)
			}
			for _, part := range test.says {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("got %q, want %q in it", err, part)
				}
			}
			if strings.Contains(err.Error(), test.hides) {
				t.Errorf("got %q, want %q hidden", err, test.hides)
			}
		})
	}
}
