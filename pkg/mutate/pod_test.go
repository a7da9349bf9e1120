// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mutate_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lanyard-dev/lanyard/internal/rawjson"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/pkg/mutate"
	"github.com/lanyard-dev/lanyard/pkg/mutate/reason"
)

func TestReadNamesTheFieldOfTheWrongType(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ pod, want string }{
		"not an object":                  {`[]`, "pod: got array, want object"},
		"nothing":                        {``, "pod: got no value, want object"},
		"something after the pod":        {`{}x`, `pod: at byte 2: invalid character 'x' at start of value`},
		"no closing bracket":             {`{"spec":{}`, "pod: unexpected end of JSON"},
		"a list without closing bracket": {`{"spec":{"containers":[{}}`, "pod: spec: containers: at byte 25: invalid character '}' after array element"},
		"a container is a string":        {`{"spec":{"containers":["null"]}}`, "pod: spec: containers: [0]: at byte 23: got string, want object"},
		"a container's name is true":     {`{"spec":{"containers":[{"name":true}]}}`, "pod: spec: containers: [0]: name: "},
		"metadata is a list":             {`{"metadata":[]}`, "pod: metadata: at byte 12: got array, want object"},
		"annotations are a string":       {`{"metadata":{"annotations":"x"}}`, "pod: metadata: annotations: at byte 27: got string, want object"},
		"an annotation is a number":      {`{"metadata":{"annotations":{"lanyard.dev/inject":1}}}`, "pod: metadata: annotations: lanyard.dev/inject: at byte 49: got number, want string"},
		"the label is a number":          {`{"metadata":{"labels":{"lanyard.dev/inject":1}}}`, "pod: metadata: labels: lanyard.dev/inject: at byte 44: got number, want string"},
		"the name is a list":             {`{"metadata":{"name":[]}}`, "pod: metadata: name: at byte 20: got array, want string"},
		"spec is a number":               {`{"spec":1}`, "pod: spec: at byte 8: got number, want object"},
		"the ServiceAccount is a map":    {`{"spec":{"serviceAccountName":{}}}`, "pod: spec: serviceAccountName: at byte 30: got object, want string"},
		"a node selector is a list":      {`{"spec":{"nodeSelector":[]}}`, "pod: spec: nodeSelector: at byte 24: got array, want object"},
		"the os is a string":             {`{"spec":{"os":"windows"}}`, "pod: spec: os: at byte 14: got string, want object"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := read(test.pod, newSettings(t))
			if err == nil || !strings.HasPrefix(err.Error(), test.want) {
				t.Errorf("got error %v, want %s", err, test.want)
			}
		})
	}
}

// ReadPod does not read volumes, variables and mounts: pods without an identity
// do not need them.
func TestCreateNamesTheListElementOfTheWrongType(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ pod, want string }{
		"volumes are an object":      {`{"spec":{"volumes":{}}}`, "pod: spec: volumes: at byte 0: got object, want array"},
		"a volume is a string":       {`{"spec":{"volumes":[{},"v"]}}`, "pod: spec: volumes: [1]: at byte 4: got string, want object"},
		"a volume's name is a list":  {`{"spec":{"volumes":[{"name":[]}]}}`, "pod: spec: volumes: [0]: name: "},
		"sources are a string":       {`{"spec":{"volumes":[{"name":"bound-sa-token","projected":{"sources":"x"}}]}}`, "pod: spec: volumes: [0]: projected: sources: "},
		"an audience is a number":    {`{"spec":{"volumes":[{"projected":{"sources":[{"serviceAccountToken":{"audience":1}}]},"name":"bound-sa-token"}]}}`, "pod: spec: volumes: [0]: projected: sources: [0]: serviceAccountToken: audience: "},
		"a file's path is a number":  {`{"spec":{"volumes":[{"projected":{"sources":[{"downwardAPI":{"items":[{"path":1}]}}]},"name":"bound-sa-token"}]}}`, "pod: spec: volumes: [0]: projected: sources: [0]: downwardAPI: items: [0]: path: "},
		"env is a string":            {`{"spec":{"containers":[{},{"env":"x"}]}}`, "pod: spec: containers: [1]: env: "},
		"a value is an object":       {`{"spec":{"initContainers":[{},{"env":[{"name":"A","value":{}}]}]}}`, "pod: spec: initContainers: [1]: env: [0]: value: "},
		"a mount path is a number":   {`{"spec":{"ephemeralContainers":[{"volumeMounts":[{},{"mountPath":3}]}]}}`, "pod: spec: ephemeralContainers: [0]: volumeMounts: [1]: mountPath: "},
		"a subPath is a number":      {`{"spec":{"containers":[{"volumeMounts":[{"subPath":3}]}]}}`, "pod: spec: containers: [0]: volumeMounts: [0]: subPath: "},
		"a device path is a boolean": {`{"spec":{"containers":[{"volumeDevices":[{"devicePath":true}]}]}}`, "pod: spec: containers: [0]: volumeDevices: [0]: devicePath: "},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want := string(reason.InvalidReview) + ": " + test.want
			result, err := tryCreate(t, test.pod, injection())
			denied(t, reason.InvalidReview, result, err)
			if !strings.HasPrefix(err.Error(), want) {
				t.Errorf("Create: got error %v, want %s", err, want)
			}
			add := mutate.NewInjection(injection())
			result, err = mutate.AddEphemeral(parse(t, `{}`), parse(t, test.pod), &annotations.Pod{}, add)
			denied(t, reason.InvalidReview, result, err)
			if !strings.HasPrefix(err.Error(), want) {
				t.Errorf("AddEphemeral: got error %v, want %s", err, want)
			}
		})
	}
}

func TestErrorsDoNotShowValues(t *testing.T) {
	t.Parallel()
	const secret = "s3cr3t"
	for name, pod := range map[string]string{
		"a value of the wrong type":     `{"spec":{"containers":[{"env":[{"name":"A","value":"` + secret + `"},{"value":{"` + secret + `":1}}]}]}}`,
		"a value with a wrong escape":   `{"spec":{"containers":[{"env":[{"name":"A","value":"` + secret + `\q"}]}]}}`,
		"a value without quotes":        `{"spec":{"containers":[{"env":[{"name":"A","value":` + secret + `}]}]}}`,
		"another field's type is wrong": `{"metadata":{"annotations":{"a":"` + secret + `"},"name":["` + secret + `"]}}`,
		"a mount is invalid":            `{"spec":{"containers":[{"env":[{"name":"A","value":"` + secret + `"}],"volumeMounts":[{"mountPath":"/lanyard/"}]}]}}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			parsed, err := read(pod, newSettings(t))
			if err == nil {
				_, err = mutate.Create(parsed, &annotations.Pod{}, mutate.NewInjection(injection()))
			}
			if err == nil || strings.Contains(err.Error(), secret) {
				t.Errorf("got error %v, want one without %s", err, secret)
			}
		})
	}
}

func TestReadKeepsNothingOfTheFormerPod(t *testing.T) {
	t.Parallel()
	const full = `{"metadata":{"name":"a","generateName":"b","annotations":{"lanyard.dev/injected":"x","kubernetes.io/config.mirror":""},"labels":{"lanyard.dev/inject":"false"}},` +
		`"spec":{"serviceAccountName":"c","os":{"name":"windows"},"volumes":[{"name":"bound-sa-token"},{"name":"lanyard-bound-sa-token"}],` +
		`"initContainers":[{"name":"i","env":[{"name":"FILE","value":"x"}]}],` +
		`"containers":[{"name":"m","env":[{"name":"FILE","value":"x"}],"volumeMounts":[{"name":"v","mountPath":"/lanyard"}]}],"ephemeralContainers":[{}]}}`
	const bare = `{"spec":{"containers":[{"name":"n"},{"name":"o"}]}}`
	settings := newSettings(t)
	add := mutate.NewInjection(injection())
	var pod mutate.Pod
	readNext := func(object string) error {
		text, decoder := rawjson.NewScanner([]byte(object)).State()
		return pod.ReadNext(text, decoder, settings)
	}
	if err := readNext(full); err != nil {
		t.Fatal(err)
	}
	if _, err := mutate.Create(&pod, &annotations.Pod{}, add); err == nil {
		t.Fatal("got no error for the full pod, want one: the test needs a pod with marks")
	}
	for range 2 {
		if err := readNext(bare); err != nil {
			t.Fatal(err)
		}
		result, err := mutate.Create(&pod, &annotations.Pod{}, add)
		if err != nil {
			t.Fatal(err)
		}
		want := create(t, bare, injection())
		if diff := cmp.Diff(string(want.Patch.Bytes()), string(result.Patch.Bytes())); diff != "" || len(result.Findings) > 0 {
			t.Errorf("findings %v, patch (-fresh +used again):\n%s", result.Findings, diff)
		}
	}
}

func TestNullElementsOfListsAreSkipped(t *testing.T) {
	t.Parallel()
	result := create(t, `{"spec":{"volumes":[null],"containers":[null,{"name":"main","env":[null],"volumeMounts":[null]}]}}`, injection())
	want := []string{"/metadata", "/spec/volumes/-", "/spec/containers/1/volumeMounts/-", "/spec/containers/1/env"}
	if diff := cmp.Diff(want, pathsOf(t, result.Patch.Bytes())); diff != "" {
		t.Errorf("paths (-want +got):\n%s", diff)
	}
}

func TestPodsOverTheLimitsAreParsedButDenied(t *testing.T) {
	t.Parallel()
	list := func(n int, element string) string {
		return "[" + strings.TrimSuffix(strings.Repeat(element+",", n), ",") + "]"
	}
	tests := map[string]struct {
		spec string
		want bool
	}{
		"512 containers":                          {`"containers":` + list(512, "{}"), true},
		"513 containers":                          {`"containers":` + list(513, "{}"), false},
		"512 containers of all kinds":             {`"initContainers":` + list(256, "{}") + `,"containers":` + list(255, "{}") + `,"ephemeralContainers":[{}]`, true},
		"513 containers of all kinds":             {`"initContainers":` + list(256, "{}") + `,"containers":` + list(256, "{}") + `,"ephemeralContainers":[{}]`, false},
		"32768 elements":                          {`"containers":[{"env":` + list(32767, `{"name":"A"}`) + `}]`, true},
		"32769 elements":                          {`"containers":[{"env":` + list(32768, `{"name":"A"}`) + `}]`, false},
		"32769 elements in all lists of the spec": {`"volumes":` + list(8192, "{}") + `,"containers":[{"env":` + list(8192, "{}") + `,"volumeMounts":` + list(8192, "{}") + `,"volumeDevices":` + list(8192, "{}") + `}]`, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pod := parse(t, `{"spec":{`+test.spec+`}}`)
			add := mutate.NewInjection(injection())
			created, errCreate := mutate.Create(pod, &annotations.Pod{}, add)
			added, errAdd := mutate.AddEphemeral(pod, parse(t, `{}`), &annotations.Pod{}, add)
			if test.want {
				if errCreate != nil || errAdd != nil {
					t.Errorf("got errors %v and %v, want none", errCreate, errAdd)
				}
				return
			}
			denied(t, reason.TooLarge, created, errCreate)
			denied(t, reason.TooLarge, added, errAdd)
		})
	}
}
