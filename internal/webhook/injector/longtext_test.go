// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package injector_test

import (
	"math"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"

	"github.com/lanyard-dev/lanyard/internal/peer"
	"github.com/lanyard-dev/lanyard/internal/webhook/admission"
	"github.com/lanyard-dev/lanyard/internal/webhook/injector"
	"github.com/lanyard-dev/lanyard/test/support/alloc"
)

// fullPod has a text in every field that the webhook reads, and in some others. MISTAKE
// is the key of an annotation.
const fullPod = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"pod","generateName":"pod-","namespace":"team",
"annotations":{"MISTAKE":"true","lanyard.dev/containers":"main","lanyard.dev/token-expiration-seconds":"3600","kubernetes.io/x":"y"},
"labels":{"lanyard.dev/inject":"true","app":"x"}},
"spec":{"serviceAccountName":"app","os":{"name":"linux"},"nodeSelector":{"kubernetes.io/os":"linux"},
"volumes":[{"name":"bound-sa-token","projected":{"sources":[{"serviceAccountToken":{"audience":"a","path":"p"}},
{"downwardAPI":{"items":[{"path":"p","fieldRef":{"fieldPath":"f"}}]}}]}},{"name":"aws-iam-token"}],
"initContainers":[{"name":"init"}],"ephemeralContainers":[{"name":"debug","volumeMounts":[{"name":"data","mountPath":"/var/run/secrets/lanyard.dev/serviceaccount/x"}]}],
"containers":[{"name":"main","env":[{"name":"AWS_ROLE_ARN","value":"x"},{"name":"AWS_WEB_IDENTITY_TOKEN_FILE","value":"/x"}],
"volumeMounts":[{"name":"data","mountPath":"/var/run/secrets/lanyard.dev/serviceaccount/x"},{"name":"data","mountPath":"/var/run/secrets/eks/x","subPath":"s"}],
"volumeDevices":[{"name":"d","devicePath":"/dev/x"}]}]}}`

// fullAccount is like fullPod, for ServiceAccounts.
const fullAccount = `{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"app","namespace":"team",
"labels":{"lanyard.dev/identity":"enabled","app":"x"},
"annotations":{"MISTAKE":"true","lanyard.dev/aws-role-arn":"` + role + `","lanyard.dev/aws-role-arn.audit":"` + role + `","lanyard.dev/aws-source-profile.audit":"default",
"lanyard.dev/azure-client-id":"x","lanyard.dev/gcp-service-account":"x","lanyard.dev/tokens":"azure","lanyard.dev/audience":"x","lanyard.dev/adopted":"x",
"lanyard.dev/token-expiration-seconds":"3600","lanyard.dev/aws-token-path":"/var/run/secrets/eks/token","eks.amazonaws.com/role-arn":"x","kubernetes.io/x":"y"}},
"secrets":[{"name":"s"}]}`

// longTextBytes is the length of the one long text of a review.
const longTextBytes = 128 << 10

// Limits of the resources that a long text takes.
const (
	// copiesOfText is how often the text may be in memory, including the body.
	copiesOfText = 4
	// slackBytes is for messages, which repeat the start of the text.
	slackBytes = 256 << 10
	// maxLogBytes is for everything that is logged about one request: one line.
	maxLogBytes = 1 << 10
)

// longTexts maps each kind to a text of this kind, as JSON has it.
func longTexts() map[string]string {
	return map[string]string{
		"ASCII":               strings.Repeat("a", longTextBytes),
		"two-byte characters": strings.Repeat("\u0080", longTextBytes/2),
		"escapes":             strings.Repeat(`\u0080`, longTextBytes/6),
		"invalid bytes":       strings.Repeat("\xff", longTextBytes),
	}
}

// A review with one long text, anywhere, needs hardly more memory and log space than its
// body. The test is not parallel, because it counts the allocations of the process.
//
//nolint:paralleltest // see above
func TestOneLongTextIsNotCopiedOften(t *testing.T) {
	account := threeClouds()
	account["lanyard.dev/aws-token-path"] = "/var/run/secrets/eks/token"
	for _, mistake := range []string{"lanyard.dev/mistake", "example.com/none"} {
		pod, full := strings.ReplaceAll(fullPod, "MISTAKE", mistake), strings.ReplaceAll(fullAccount, "MISTAKE", mistake)
		if mistake == "example.com/none" {
			pod = strings.ReplaceAll(pod, `"linux"`, `"windows"`)
		}
		for name, identity := range map[string]map[string]string{" with an identity ": account, " without an identity ": nil} {
			holdsForLongTexts(t, injector.MutatePodPath+name+mistake, identity, create([]byte(pod)))
			holdsForLongTexts(t, injector.MutatePodPath+" as an update"+name+mistake, identity, debug([]byte(pod), []byte(plainPod)))
		}
		holdsForLongTexts(t, injector.MutateServiceAccountPath+" "+mistake, nil, write([]byte(full), nil))
		holdsForLongTexts(t, injector.ValidateServiceAccountPath+" "+mistake, nil, write([]byte(full), []byte(fullAccount)))
	}
}

// handlersFor returns the handlers of a cluster with this ServiceAccount.
func handlersFor(t *testing.T, account map[string]string, log logr.Logger) map[string]http.Handler {
	t.Helper()
	pods, _ := newPods(t, account)
	pods.Peers = peer.Names()
	budget, recorder, invalidator := admission.NewBudget(), uncounted{}, new(invalidated)
	return map[string]http.Handler{
		injector.MutatePodPath: admission.NewHandler(pods, budget, recorder, log),
		injector.MutateServiceAccountPath: admission.NewHandler(
			&injector.ServiceAccountMutator{Settings: pods.Settings, Invalidator: invalidator}, budget, recorder, log),
		injector.ValidateServiceAccountPath: admission.NewHandler(
			&injector.ServiceAccountValidator{Config: pods.Config, Invalidator: invalidator}, budget, recorder, log),
	}
}

var stringToken = regexp.MustCompile(`"[^"]*"`)

// holdsForLongTexts sends the review once for each string in it, with a long text appended to
// the string.
func holdsForLongTexts(t *testing.T, name string, account map[string]string, r *request) {
	t.Helper()
	path, _, _ := strings.Cut(name, " ")
	newHandler := func(log logr.Logger) http.Handler { return handlersFor(t, account, log)[path] }
	body := string(r.body())
	without, _ := resources(t, math.MaxInt, newHandler, body)
	for kind, text := range longTexts() {
		for _, at := range stringToken.FindAllStringIndex(body, -1) {
			long := body[:at[1]-1] + text + body[at[1]-1:]
			most := without + copiesOfText*len(text) + slackBytes
			allocated, logged := resources(t, most, newHandler, long)
			if allocated > most {
				t.Errorf("%s: %s behind %s: got %d KiB allocated, want at most %d KiB", name, kind, body[at[0]:at[1]], allocated>>10, most>>10)
			}
			if logged > maxLogBytes {
				t.Errorf("%s: %s behind %s: got %d KiB logged, want at most %d KiB", name, kind, body[at[0]:at[1]], logged>>10, maxLogBytes>>10)
			}
		}
	}
}

func reviewRequest(t *testing.T, body string) *http.Request {
	t.Helper()
	request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(body))
	request.Header.Set("Content-Type", "application/json")
	return request
}

// resources returns the minimum that a new handler allocates for a body, see alloc.Least,
// and the bytes that it logs.
func resources(t *testing.T, most int, newHandler func(logr.Logger) http.Handler, body string) (allocated, logged int) {
	t.Helper()
	log := funcr.New(func(prefix, args string) { logged += len(prefix) + len(args) }, funcr.Options{})
	allocated = alloc.Least(most, func() {
		logged = 0
		answer := httptest.NewRecorder()
		newHandler(log).ServeHTTP(answer, reviewRequest(t, body))
		if answer.Code >= http.StatusInternalServerError && !strings.Contains(answer.Body.String(), "serviceaccount_not_found") && !strings.Contains(answer.Body.String(), "lookup_failed") && !strings.Contains(answer.Body.String(), "invalid_review") {
			t.Fatalf("got %d: %.300s", answer.Code, answer.Body)
		}
	})
	return allocated, logged
}
