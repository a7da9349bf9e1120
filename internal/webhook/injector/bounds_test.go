// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package injector_test

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"

	"github.com/lanyard-dev/lanyard/internal/rawjson"
	"github.com/lanyard-dev/lanyard/internal/webhook/admission"
	"github.com/lanyard-dev/lanyard/internal/webhook/injector"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/pkg/mutate"
	"github.com/lanyard-dev/lanyard/pkg/mutate/reason"
	"github.com/lanyard-dev/lanyard/test/integration/abuse"
	"github.com/lanyard-dev/lanyard/test/support/alloc"
)

// podOf returns a pod with n containers, each with these members besides a name.
func podOf(n int, annotations, members string) []byte {
	containers := make([]string, n)
	for i := range containers {
		containers[i] = fmt.Sprintf(`{"name":"c%d"%s}`, i, members)
	}
	return []byte(`{"metadata":{"name":"pod","annotations":{` + annotations + `}},"spec":{"serviceAccountName":"app","containers":[` + strings.Join(containers, ",") + `]}}`)
}

// A pod's author must not be able to fill the memory that all pods share.
func TestAPodThatNoAPIServerStoresIsRefusedBeforeItCostsMuch(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		pod  []byte
		want summary
	}{
		"as many containers as will do":      {podOf(500, "", ""), summary{Reason: reason.Injected, Patch: true}},
		"too many containers":                {podOf(513, "", ""), summary{Reason: reason.TooLarge, Code: 400}},
		"too many variables":                 {podOf(1, "", `,"env":[`+strings.Repeat(`{"name":"A"},`, 40000)+`{}]`), summary{Reason: reason.TooLarge, Code: 400}},
		"a list of too many container names": {podOf(1, `"lanyard.dev/skip-containers":"`+strings.Repeat("a,", 512)+`a"`, ""), summary{Reason: reason.InvalidAnnotation, Code: 400}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pods, _ := newPods(t, threeClouds())
			response := ask(t, pods, create(test.pod))
			if diff := cmp.Diff(test.want, summaryOf(response)); diff != "" {
				t.Errorf("decision (-want +got):\n%s", diff)
			}
			if response.Code != 0 && len(response.Message) > 2000 {
				t.Errorf("got a message of %d bytes", len(response.Message))
			}
		})
	}
}

func TestMessagesAboutAPodAreBounded(t *testing.T) {
	t.Parallel()
	pods, _ := newPods(t, threeClouds())
	response := ask(t, pods, create(podOf(100, "", `,"env":[{"name":"AWS_WEB_IDENTITY_TOKEN_FILE","value":"mine"}]`)))
	if got := len(response.Warnings); got != 33 {
		t.Errorf("got %d warnings, want 32 and one more", got)
	}
	if got, want := response.Warnings[32], "lanyard: and 68 more"; got != want {
		t.Errorf("got last warning %q, want %q", got, want)
	}
	if got, want := response.Findings[32], "and 68 more"; got != want {
		t.Errorf("got last finding %q, want %q", got, want)
	}
}

// Annotations must not take many times their size in memory. The test is not parallel,
// because it counts the allocations of the process.
//
//nolint:paralleltest // see above
func TestAnnotationsAllocateNotMuchMoreThanTheirText(t *testing.T) {
	many := make([]string, 100_000)
	for i := range many {
		many[i] = fmt.Sprintf(`"lanyard.dev/%06d":""`, i)
	}
	identity := `"lanyard.dev/audience":"x",`
	pods, _ := newPods(t, threeClouds())
	serviceAccounts := &injector.ServiceAccountMutator{Settings: pods.Settings, Invalidator: new(invalidated)}
	validator := &injector.ServiceAccountValidator{Config: pods.Config, Invalidator: new(invalidated)}
	// The body is read once, and a message may repeat a little of it.
	const times, more = 3, 2 << 20
	for name, test := range map[string]struct {
		handler http.Handler
		body    []byte
	}{
		"a pod with 100,000 annotations":       {handlerOf(pods), create(podOf(1, strings.Join(many, ","), "")).body()},
		"a list of 3,000,000 commas":           {handlerOf(pods), create(podOf(1, `"lanyard.dev/containers":"`+strings.Repeat(",", 3_000_000)+`"`, "")).body()},
		"a ServiceAccount that is labelled":    {handlerOf(serviceAccounts), write(account(`"annotations":{`+identity+strings.Join(many, ",")+`}`), nil).body()},
		"a ServiceAccount that is validated":   {handlerOf(validator), write(account(`"annotations":{`+identity+strings.Join(many, ",")+`}`), nil).body()},
		"a ServiceAccount with a long name":    {handlerOf(validator), []byte(strings.Replace(string(write(account(identity[:0]), nil).body()), `"name":"app"`, `"name":"`+strings.Repeat("a", 3_000_000)+`"`, 2))},
		"a review whose version is a megabyte": {handlerOf(pods), []byte(`{"apiVersion":"` + strings.Repeat("v", 1_000_000) + `","kind":"x"}`)},
	} {
		t.Run(name, func(t *testing.T) {
			most := times*len(test.body) + more
			if got := alloc.Least(most, func() { askHandler(t, test.handler, test.body) }); got > most {
				t.Errorf("got %d KiB allocated for a body of %d KiB, want at most %d KiB", got>>10, len(test.body)>>10, most>>10)
			}
		})
	}
}

// handlerOf returns a handler with a separate budget.
func handlerOf[T any](d admission.Decider[T]) http.Handler {
	return admission.NewHandler(d, admission.NewBudget(), uncounted{}, logr.Discard())
}

// A request waits until there is memory of this size.
//
//nolint:paralleltest // it counts what the process allocates
func TestDecisionsStayWithinTheChargedMemory(t *testing.T) {
	variables := `,"env":[` + strings.Repeat(`{"name":"A","value":"b"},`, 50) + `{}]`
	own := func(names ...string) string {
		return `,"env":[{"name":"` + strings.Join(names, `","value":"x"},{"name":"`) + `","value":"x"}]`
	}
	annotations := make([]string, 32)
	for i := range annotations {
		annotations[i] = fmt.Sprintf(`"lanyard.dev/%d":"%s"`, i, strings.Repeat("a", 64<<10))
	}
	annotations[0] = `"lanyard.dev/containers":"` + strings.Repeat("aa,", 22<<10) + `"`
	names := strings.TrimSuffix(strings.Repeat("a,", 512), ",")
	for name, pod := range map[string][]byte{
		"with own credentials":                 podOf(300, "", own("AWS_WEB_IDENTITY_TOKEN_FILE", "AZURE_FEDERATED_TOKEN_FILE", "GOOGLE_APPLICATION_CREDENTIALS")),
		"with a variable of each":              podOf(300, "", own("AWS_REGION")),
		"with shadows":                         podOf(300, "", own("AWS_ACCESS_KEY_ID", "AZURE_CLIENT_SECRET", "AWS_PROFILE", "GOOGLE_CLOUD_PROJECT")),
		"with something at the path":           podOf(300, "", `,"volumeMounts":[{"name":"v","mountPath":"/var/run/secrets/lanyard.dev/serviceaccount/`+strings.Repeat("a", 100)+`"}]`),
		"that names unknown containers":        podOf(1, `"lanyard.dev/containers":"`+names+`"`, ""),
		"that leaves out all containers":       podOf(300, `"lanyard.dev/skip-containers":"`+strings.TrimSuffix(strings.Repeat("c1,c2,c3,c4,", 128), ",")+`"`, ""),
		"with annotations of 64 KiB":           podOf(1, strings.Join(annotations, ","), ""),
		"with escapes in annotations":          podOf(1, strings.ReplaceAll(strings.Join(annotations, ","), "aa", `\u0061a`), ""),
		"of nulls":                             []byte(`{"spec":{"serviceAccountName":"app","containers":[{"name":"c","env":[` + strings.Repeat(`null,`, 20000) + `null]}]}}`),
		"of empty containers":                  []byte(`{"spec":{"serviceAccountName":"app","containers":[` + strings.Repeat(`{},`, 300) + `{}]}}`),
		"of one container":                     podOf(1, "", ""),
		"of 400 containers":                    podOf(400, "", ""),
		"of 300 containers with 51 variables":  podOf(300, "", variables),
		"of too many containers for a patch":   podOf(512, "", ""),
		"of one container with many variables": podOf(1, "", `,"env":[`+strings.Repeat("{},", 30000)+`{}]`),
		"of many volumes": []byte(`{"spec":{"serviceAccountName":"app","containers":[{"name":"c"}],"volumes":[` +
			strings.Repeat(`{"name":"v","emptyDir":{}},`, 20000) + `{"name":"w"}]}}`),
	} {
		t.Run(name, func(t *testing.T) {
			pods, _ := newPods(t, longestThreeClouds())
			ask(t, pods, create(podOf(1, "", ""))) // encodes the injection, which is kept
			charged := admission.DecisionBytes(pod)
			if bytes.Contains(pod, []byte(`\u`)) {
				charged += len(pod) // each text without its escape sequences, one after another
			}
			var response admission.Response
			decide := func() {
				request := &admission.Request[mutate.Pod]{Attributes: create(nil).Attributes, Object: new(mutate.Pod)}
				if err := pods.Read(rawjson.NewScanner(pod), request.Object); err != nil {
					t.Fatal(err)
				}
				response, _ = pods.Decide(t.Context(), request) // a pod may be denied
			}
			if got := alloc.Least(charged, decide); got > charged {
				t.Errorf("got %d KiB allocated, want at most %d KiB", got>>10, charged>>10)
			}
			if response.Patch == nil {
				return
			}
			charged = response.Patch.Size() + 8<<10 // memory comes in pages
			size := 0
			encode := func() {
				decide()
				size = len(response.Patch.Bytes())
			}
			without := alloc.Least(0, decide)
			if got := alloc.Least(without+charged, encode) - without; got > charged || size > charged {
				t.Errorf("got %d KiB allocated for a patch of %d KiB, want at most %d KiB", got>>10, size>>10, charged>>10)
			}
		})
	}
}

// longestThreeClouds is the ServiceAccount whose pods get the longest patch: the
// values are the longest that are valid, and each $ of the role is doubled.
func longestThreeClouds() map[string]string {
	values := threeClouds()
	values["lanyard.dev/aws-role-arn"] = "arn:aws:iam::111122223333:role/" + strings.Repeat("$", 510) + "/" + strings.Repeat("r", 64)
	values["lanyard.dev/azure-tenant-id"] = strings.Repeat("a", 251) + ".b"
	values["lanyard.dev/gcp-project"] = strings.Repeat("a", 285) + ".a:aaaaaaaaaa"
	values["lanyard.dev/aws-region"] = "eu-" + strings.Repeat("a", 59) + "-1"
	maps.Copy(values, abuse.LongestProfiles())
	return values
}

// One dry run of a pod with 32,000 tiny containers must not use up a replica's memory (128
// MiB). The test is not parallel, because it counts the allocations of the process.
//
//nolint:paralleltest // see above
func TestAPodOfVeryManyContainersAllocatesLittle(t *testing.T) {
	for name, containers := range map[string]int{"as many as are allowed": 512, "one more": 513, "32,000": 32000} {
		t.Run(name, func(t *testing.T) {
			pods, _ := newPods(t, longestThreeClouds())
			request := create(podOf(containers, "", ""))
			const most = 4 << 20
			got := alloc.Least(most, func() {
				if response := ask(t, pods, request); response.Reason != reason.TooLarge || response.Code != 400 {
					t.Errorf("got %+v, want it denied as too large", response)
				}
			})
			if got > most {
				t.Errorf("got %d KiB allocated, want at most %d KiB", got>>10, most>>10)
			}
		})
	}
}

// tooLarge is a ServiceAccount whose annotations were not kept.
type tooLarge struct{}

func (tooLarge) Get(_ context.Context, namespace, name string) (annotations.Object, error) {
	return annotations.Object{Namespace: namespace, Name: name, TooLarge: 200000}, nil
}

func TestAnAccountWhoseAnnotationsWereNotKeptHasNoPods(t *testing.T) {
	t.Parallel()
	pods, _ := newPods(t, nil)
	pods.ServiceAccounts = tooLarge{}
	response := ask(t, pods, create([]byte(plainPod)))
	if diff := cmp.Diff(summary{Reason: reason.InvalidAnnotation, Code: 400}, summaryOf(response)); diff != "" {
		t.Fatalf("decision (-want +got):\n%s", diff)
	}
	want := `lanyard: invalid_annotation: serviceaccount "team/app": metadata.annotations: Invalid value: "200000 bytes under lanyard.dev/": must have at most 10393 bytes`
	if response.Message != want {
		t.Errorf("message:\n got %s\nwant %s", response.Message, want)
	}
}

// The largest valid ServiceAccount must be kept.
func TestTheLargestValidAccountIsWithinTheBound(t *testing.T) {
	t.Parallel()
	pods, _ := newPods(t, nil)
	size := 0
	for key, value := range threeClouds() {
		size += len(key) + len(value)
	}
	size += len("lanyard.dev/aws-audiencelanyard.dev/azure-audiencelanyard.dev/gcp-audiencelanyard.dev/audience") + 255 + 600 + 256 + 1024
	if limit := pods.MaxServiceAccountBytes(); size > limit || limit > 10752 {
		t.Errorf("a valid account has %d bytes, the bound is %d", size, limit)
	}
}

// The memory for the additions to a container is reserved before its identity is known.
func TestAPodOfTheLongestValidIdentityIsInjected(t *testing.T) {
	t.Parallel()
	pods, _ := newPods(t, abuse.LongestIdentity())
	if response := ask(t, pods, create([]byte(plainPod))); response.Reason != reason.Injected {
		t.Errorf("got %s (%s), want %s", response.Reason, response.Message, reason.Injected)
	}
}
