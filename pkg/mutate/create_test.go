// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mutate_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/pkg/mutate"
	"github.com/lanyard-dev/lanyard/pkg/mutate/reason"
)

func TestThePatchAddsMissingParts(t *testing.T) {
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
			[]string{"/metadata/annotations", "/metadata/labels", "/spec/volumes", "/spec/containers/0/volumeMounts", "/spec/containers/0/env"}},
		"everything is null": {`{"metadata":{"annotations":null},"spec":{"volumes":null,"containers":[{"env":null,"volumeMounts":null}]}}`,
			[]string{"/metadata/annotations", "/metadata/labels", "/spec/volumes", "/spec/containers/0/volumeMounts", "/spec/containers/0/env"}},
		// One element at the end of an empty list is as long as the list; four are
		// longer.
		"everything is empty": {`{"metadata":{"annotations":{}},"spec":{"volumes":[],"containers":[{"env":[],"volumeMounts":[]}]}}`,
			[]string{"/metadata/annotations/lanyard.dev~1injected", "/metadata/labels",
				"/spec/volumes/-", "/spec/containers/0/volumeMounts/-", "/spec/containers/0/env"}},
		"one of the annotations is there": {`{"metadata":{"annotations":{"lanyard.dev/injected":"aws"}},"spec":{"containers":[{}]}}`,
			[]string{"/metadata/labels", "/spec/volumes", "/spec/containers/0/volumeMounts", "/spec/containers/0/env"}},
		"other labels are there": {`{"metadata":{"annotations":{},"labels":{"a":"b"}},"spec":{"containers":[{}]}}`,
			[]string{"/metadata/annotations/lanyard.dev~1injected", "/metadata/labels/lanyard.dev~1identity",
				"/spec/volumes", "/spec/containers/0/volumeMounts", "/spec/containers/0/env"}},
		"the label is there": {`{"metadata":{"annotations":{},"labels":{"lanyard.dev/identity":"injected"}},"spec":{"containers":[{}]}}`,
			[]string{"/metadata/annotations/lanyard.dev~1injected", "/spec/volumes", "/spec/containers/0/volumeMounts", "/spec/containers/0/env"}},
		"the init containers are null": {`{"metadata":{"annotations":{}},"spec":{"initContainers":null,"containers":[{"name":"a"},{"name":"b"}]}}`,
			[]string{"/metadata/annotations/lanyard.dev~1injected", "/metadata/labels", "/spec/volumes",
				"/spec/containers/0/volumeMounts", "/spec/containers/0/env", "/spec/containers/1/volumeMounts", "/spec/containers/1/env"}},
		"there are init containers": {`{"metadata":{},"spec":{"initContainers":[{"name":"i"}],"containers":[{"name":"a"}]}}`,
			[]string{"/metadata/annotations", "/metadata/labels", "/spec/volumes", "/spec/initContainers/0/volumeMounts", "/spec/initContainers/0/env",
				"/spec/containers/0/volumeMounts", "/spec/containers/0/env"}},
		"there is no container":           {`{"spec":{"containers":[]}}`, nil},
		"there is no spec":                {`{"spec":null}`, nil},
		"the only container is ephemeral": {`{"spec":{"ephemeralContainers":[{}]}}`, nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, result := createTwice(t, test.pod, injection())
			if diff := cmp.Diff(test.want, pathsOf(t, result.Patch.Bytes())); diff != "" {
				t.Errorf("paths (-want +got):\n%s", diff)
			}
			if result.Patch == nil && result.Reason != reason.NoContainer {
				t.Errorf("got reason %s, want %s", result.Reason, reason.NoContainer)
			}
		})
	}
}

// Only the container that another webhook added is completed.
func TestAContainerThatWasAddedLaterIsCompleted(t *testing.T) {
	t.Parallel()
	patched, _ := createTwice(t, `{"spec":{"containers":[{"name":"a"}]}}`, builtin())
	added := strings.Replace(patched, `"containers":[`, `"containers":[{"name":"sidecar"},`, 1)
	_, result := createTwice(t, added, builtin())
	want := []string{"/spec/containers/0/volumeMounts", "/spec/containers/0/env"}
	if diff := cmp.Diff(want, pathsOf(t, result.Patch.Bytes())); diff != "" {
		t.Errorf("paths (-want +got):\n%s", diff)
	}
}

func TestFieldsThatAreNotKnownStay(t *testing.T) {
	t.Parallel()
	const pod = `{"x":1.50,"metadata":{"y":"\u0041","annotations":{"a":"b"}},"spec":{"new":[{}],"volumes":[{"name":"v","new":1}],"containers":[{"name":"a","new":true,"env":[{"name":"A","new":null}]}]}}`
	patched, result := createTwice(t, pod, injection())
	p := decode(t, patched)
	if result.Reason != reason.Injected || p.Metadata.Annotations["a"] != "b" {
		t.Fatalf("got %s and annotations %v", result.Reason, p.Metadata.Annotations)
	}
	for _, part := range []string{`"x":1.50`, `"new":[{}]`, `{"name":"v","new":1}`, `"new":true`, `{"name":"A","new":null}`} {
		if !strings.Contains(patched, part) {
			t.Errorf("got %s, want %s in it", patched, part)
		}
	}
}

func TestKeysAreEscapedAndRead(t *testing.T) {
	t.Parallel()
	const pod = `{"metadata":{"annotations":{"identity.example.com/injected":"other"}},"spec":{"containers":[{}]}}`
	once := func(pod string) mutate.Result {
		result, err := mutate.Create(parse(t, pod), &annotations.Pod{}, mutate.NewInjection(withFile()))
		if err != nil {
			t.Fatal(err)
		}
		return result
	}
	result := once(pod)
	want := []string{
		"/metadata/annotations/lanyard.dev~1injected",
		"/metadata/annotations/lanyard.dev~1gcp-credentials", "/metadata/labels",
		"/spec/volumes", "/spec/containers/0/volumeMounts", "/spec/containers/0/env",
	}
	if diff := cmp.Diff(want, pathsOf(t, result.Patch.Bytes())); diff != "" {
		t.Errorf("paths (-want +got):\n%s", diff)
	}
	patched := apply(t, pod, result.Patch.Bytes())
	for _, part := range []string{`"lanyard.dev/injected":"aws"`, `"identity.example.com/injected":"other"`, `metadata.annotations['lanyard.dev/gcp-credentials']`} {
		if !strings.Contains(patched, part) {
			t.Errorf("got %s, want %s in it", patched, part)
		}
	}
	if second := once(patched); second.Patch != nil {
		t.Errorf("second pass: got %s, want no patch", second.Patch.Bytes())
	}
}

func TestMarksOfAnotherInjectionDenyThePod(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		annotations string
		shows       []string
		hides       string
	}{
		"other providers":      {`"lanyard.dev/injected":"gcp"`, []string{"lanyard.dev/injected", `"gcp"`, `"aws"`}, "external_account"},
		"no providers":         {`"lanyard.dev/injected":""`, []string{"lanyard.dev/injected"}, "external_account"},
		"other credentials":    {`"lanyard.dev/gcp-credentials":"s3cr3t"`, []string{"lanyard.dev/gcp-credentials"}, "s3cr3t"},
		"one right, one wrong": {`"lanyard.dev/injected":"aws","lanyard.dev/gcp-credentials":"g"`, []string{"lanyard.dev/gcp-credentials"}, "external_account"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			result, err := tryCreate(t, `{"metadata":{"annotations":{`+test.annotations+`}},"spec":{"containers":[{}]}}`, withFile())
			denied(t, reason.ForeignInjection, result, err)
			for _, part := range test.shows {
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

func TestThePodsAnnotationsSelectContainers(t *testing.T) {
	t.Parallel()
	const pod = `{"spec":{"initContainers":[{"name":"i"}],"containers":[{"name":"a"},{"name":"b"}]}}`
	tests := map[string]struct {
		selection annotations.Pod
		injected  []string
		want      reason.Reason
		finds     []string
	}{
		"they select none in particular": {annotations.Pod{}, []string{"i", "a", "b"}, reason.Injected, nil},
		"they name one":                  {annotations.Pod{Containers: []string{"a"}}, []string{"a"}, reason.Injected, []string{`container_not_selected: container "i"`, `container_not_selected: container "b"`}},
		"they skip one":                  {annotations.Pod{SkipContainers: []string{"i"}}, []string{"a", "b"}, reason.Injected, []string{`container_not_selected: container "i"`}},
		"they skip all":                  {annotations.Pod{SkipContainers: []string{"a", "b", "i"}}, nil, reason.NoContainer, []string{"no_container", "container_not_selected", "container_not_selected", "container_not_selected"}},
		"they name an unknown one, too":  {annotations.Pod{Containers: []string{"b", "c"}}, []string{"b"}, reason.Injected, []string{`container_not_found: container "c"`, "container_not_selected", "container_not_selected"}},
		"they skip an unknown one":       {annotations.Pod{SkipContainers: []string{"c"}}, []string{"i", "a", "b"}, reason.Injected, []string{`container_not_found: container "c"`}},
		"they name only an unknown one":  {annotations.Pod{Containers: []string{"c"}}, nil, reason.NoContainer, []string{"no_container", "container_not_found", "container_not_selected", "container_not_selected", "container_not_selected"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			result := createSelected(t, pod, injection(), &test.selection)
			var injected []string
			p := decode(t, apply(t, pod, result.Patch.Bytes()))
			for _, c := range append(p.Spec.InitContainers, p.Spec.Containers...) {
				if len(c.VolumeMounts) > 0 && len(c.Env) > 0 {
					injected = append(injected, c.Name)
				}
			}
			if diff := cmp.Diff(test.injected, injected); diff != "" || result.Reason != test.want {
				t.Errorf("got %s, want %s; injected (-want +got):\n%s", result.Reason, test.want, diff)
			}
			if test.injected == nil && result.Patch != nil {
				t.Errorf("got patch %s, want none", result.Patch.Bytes())
			}
			checkFindings(t, test.finds, result.Findings)
		})
	}
}

// The webhook's memory is bounded although a small pod can ask for a large patch.
func TestAPatchThatIsTooLargeDeniesThePod(t *testing.T) {
	t.Parallel()
	large := injection()
	large.Providers[0].Variables[0].Value = strings.Repeat("r", 3600)
	pod := func(n int) string {
		return `{"spec":{"containers":[` + strings.Repeat("{},", n-1) + `{}]}}`
	}
	if result := create(t, pod(300), large); result.Reason != reason.Injected {
		t.Errorf("300 containers: got %s, want %s", result.Reason, reason.Injected)
	}
	result, err := tryCreate(t, pod(500), large)
	denied(t, reason.TooLarge, result, err)
	// The memory for one container is reserved before its identity is known.
	large.Providers[0].Variables[0].Value = strings.Repeat("r", 9000)
	result, err = tryCreate(t, pod(1), large)
	denied(t, reason.TooLarge, result, err)
	if want := `serviceaccount "default": the identities add 9597 bytes to each container, want at most 8777`; !strings.HasSuffix(err.Error(), want) {
		t.Errorf("got error %v, want %s", err, want)
	}
}

// An Injection is used for many pods at the same time. The test needs -race.
func TestAnInjectionIsUsedConcurrently(t *testing.T) {
	t.Parallel()
	add := mutate.NewInjection(builtin())
	if diff := cmp.Diff([]string{"aws", "azure", "gcp", "token"}, add.Providers()); diff != "" {
		t.Errorf("providers (-want +got):\n%s", diff)
	}
	pods := []string{
		`{"spec":{"containers":[{"name":"a"},{"name":"b"}]}}`,
		`{"spec":{"volumes":[` + projected("bound-sa-token") + `],"containers":[{"env":[` + set("AWS_REGION", "x") + `]}]}}`,
	}
	done := make(chan string)
	const rounds = 20
	for range rounds {
		for _, pod := range pods {
			go func() {
				result, err := mutate.Create(parse(t, pod), &annotations.Pod{}, add)
				if err != nil {
					t.Error(err)
				}
				done <- string(result.Patch.Bytes())
			}()
		}
	}
	patches := map[string]int{}
	for range rounds * len(pods) {
		patches[<-done]++
	}
	for _, pod := range pods {
		result := create(t, pod, builtin())
		if n := patches[string(result.Patch.Bytes())]; n != rounds {
			t.Errorf("got the same patch %d times of %d", n, rounds)
		}
	}
}
