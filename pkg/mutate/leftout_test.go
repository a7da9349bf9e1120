// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mutate_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/pkg/mutate"
	"github.com/lanyard-dev/lanyard/pkg/mutate/reason"
)

func TestAPodThatLeavesNothingIsWarnedOfTheGuard(t *testing.T) {
	t.Parallel()
	const (
		pod     = `{"spec":{"containers":[{"name":"main"},{"name":"side"}]}}`
		mounted = `{"spec":{"containers":[{"name":"main"},{"name":"side","volumeMounts":[{"name":"own","mountPath":"/lanyard"}]}]}}`
	)
	for name, test := range map[string]struct {
		pod       string
		selection annotations.Pod
		want      bool
	}{
		"all are skipped":                     {pod, annotations.Pod{SkipContainers: []string{"main", "side"}}, true},
		"none is named":                       {pod, annotations.Pod{Containers: []string{"man"}}, true},
		"the pod insists":                     {pod, annotations.Pod{SkipContainers: []string{"main", "side"}, Insists: true}, false}, // the webhook denies it
		"one is left":                         {pod, annotations.Pod{SkipContainers: []string{"main"}}, false},
		"a container that is left out has it": {mounted, annotations.Pod{SkipContainers: []string{"main", "side"}}, false},
		"a peer writes them":                  {pod, annotations.Pod{PeerContainers: []string{"main", "side"}}, false},
		"a peer and the pod leave them out":   {pod, annotations.Pod{PeerContainers: []string{"main"}, SkipContainers: []string{"side"}}, true},
		"the pod is left to a peer":           {pod, annotations.Pod{LeftToPeer: "azure", Containers: []string{"man"}}, false},
		"there is no container":               {`{"spec":{"containers":[]}}`, annotations.Pod{Containers: []string{"man"}}, false},
	} {
		result := createSelected(t, test.pod, injection(), &test.selection)
		var got []string
		for _, finding := range result.Findings {
			if finding.Reason == reason.NoContainer {
				got = append(got, finding.String())
			}
		}
		var want []string
		if test.want {
			want = []string{"no_container: the pod's annotations leave out all of its containers, so none has a token: unless another webhook adds a container that they name, the guard denies the pod. " +
				`To create it without credentials, annotate it with lanyard.dev/inject: "false"`}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: findings (-want +got):\n%s", name, diff)
		}
		if test.want && (result.Reason != reason.NoContainer || result.Findings[0].Reason != reason.NoContainer) {
			t.Errorf("%s: got %s and findings %v, want %s first: of many findings, some are not shown", name, result.Reason, result.Findings, reason.NoContainer)
		}
	}
}

func TestTheFindingHasTheNearestNameOfAContainer(t *testing.T) {
	t.Parallel()
	const pod = `{"spec":{"initContainers":[{"name":"setup"}],"containers":[{"name":"main"},{"name":"log-shipper"}]}}`
	result := createSelected(t, pod, injection(), &annotations.Pod{SkipContainers: []string{"log-shiper", "nobody", "mian"}})
	var got []string
	for _, finding := range result.Findings {
		got = append(got, finding.String())
	}
	want := []string{
		`container_not_found: container "log-shiper": an annotation names it, but the pod has no such container: did you mean "log-shipper"? Its containers are "setup", "main", "log-shipper"`,
		`container_not_found: container "nobody": an annotation names it, but the pod has no such container`,
		`container_not_found: container "mian": an annotation names it, but the pod has no such container: did you mean "main"?`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("findings (-want +got):\n%s", diff)
	}
}

// A message is logged, and a pod may have 512 containers.
func TestTheFindingsAboutNamesAreBounded(t *testing.T) {
	t.Parallel()
	var containers, listed []string
	for i := range 500 {
		containers = append(containers, fmt.Sprintf(`{"name":"%s-%03d"}`, strings.Repeat("a", 59), i))
		listed = append(listed, fmt.Sprintf("%s-%03d", strings.Repeat("a", 59), 500+i))
	}
	result := createSelected(t, `{"spec":{"containers":[`+strings.Join(containers, ",")+`]}}`, injection(), &annotations.Pod{SkipContainers: listed})
	if got := len(result.Findings[0].Detail); got > 1024 || !strings.HasSuffix(result.Findings[0].Detail, " and 492 more") {
		t.Errorf("got %d bytes, want at most 1024, and the number of the other names: %s", got, result.Findings[0].Detail)
	}
	nearest := 0
	for _, finding := range result.Findings {
		if strings.Contains(finding.Detail, ": did you mean ") {
			nearest++
		}
	}
	last := result.Findings[len(result.Findings)-1].Detail
	if len(result.Findings) != 33 || nearest != 8 || !strings.HasSuffix(last, "and 467 more that the pod does not have") {
		t.Errorf("got %d findings, %d with the nearest name, and %q at the end, want 33, 8 and the number of the others", len(result.Findings), nearest, last)
	}
}

// Only the command line and programs that call pkg/mutate can get such JSON.
func TestAPodWithAMemberTwiceIsNotRead(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"spec":{"containers":[{"name":"a"},{"name":"b"}],"containers":[{"name":"c"}]}}`:                        "pod: spec: containers: is there twice",
		`{"spec":{"initContainers":[],"initContainers":[]}}`:                                                     "pod: spec: initContainers: is there twice",
		`{"spec":{"ephemeralContainers":[],"ephemeralContainers":null}}`:                                         "pod: spec: ephemeralContainers: is there twice",
		`{"spec":{"containers":[]},"metadata":{},"spec":{"containers":[{"name":"c"}]}}`:                          "pod: spec: is there twice",
		`{"spec":{"os":{"name":"windows"},"os":{"name":"linux"}}}`:                                               "pod: spec: os: is there twice",
		`{"spec":{"nodeSelector":{"kubernetes.io/os":"windows"},"nodeSelector":{}}}`:                             "pod: spec: nodeSelector: is there twice",
		`{"metadata":{"annotations":{"lanyard.dev/inject":"false"},"annotations":{}}}`:                           "pod: metadata: annotations: is there twice",
		`{"metadata":{"labels":{"lanyard.dev/inject":"false"},"labels":{}}}`:                                     "pod: metadata: labels: is there twice",
		`{"metadata":{},"metadata":{}}`:                                                                          "pod: metadata: is there twice",
		`{"metadata":{"spec":1,"containers":[]},"spec":{"metadata":1,"annotations":{},"labels":{},"future":{}}}`: "",
	} {
		_, err := mutate.ReadPod([]byte(text), &annotations.Settings{})
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: got error %v, want %q", text, err, want)
		}
	}
}
