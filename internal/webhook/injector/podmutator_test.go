// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package injector_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/lanyard-dev/lanyard/internal/webhook/admission"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/pkg/mutate/reason"
)

// plainPod is a pod of the ServiceAccount team/app.
const plainPod = `{"metadata":{"name":"pod"},"spec":{"serviceAccountName":"app","containers":[{"name":"main"}]}}`

// summary summarizes a decision.
type summary struct {
	Reason reason.Reason
	Code   int // 0 where allowed
	Patch  bool
}

func summaryOf(response decision) summary {
	return summary{Reason: response.Reason, Patch: response.Patch != nil, Code: response.Code}
}

// If nothing is known about the ServiceAccount, the API server decides: it creates the
// pod, or the guard denies it.
func TestAPodIsDeniedOnlyIfItsServiceAccountIsKnownToAsk(t *testing.T) {
	t.Parallel()
	accounts := schema.GroupResource{Resource: "serviceaccounts"}
	down := broken{errors.New("connection refused")}
	tests := map[string]struct {
		accounts, namespaces objects
		brokenAccounts       error
		brokenNamespaces     error
		want                 summary
		message              []string
	}{
		"the ServiceAccount cannot be read": {brokenAccounts: down.err,
			want: summary{Reason: reason.LookupFailed, Code: 503}, message: []string{"connection refused"}},
		"the ServiceAccount may not be read": {brokenAccounts: apierrors.NewForbidden(accounts, "app", errors.New("no rule")),
			want: summary{Reason: reason.LookupFailed, Code: 503}, message: []string{"forbidden"}},
		"the time is up": {brokenAccounts: context.DeadlineExceeded,
			want: summary{Reason: reason.LookupFailed, Code: 503}, message: []string{"deadline exceeded"}},
		"the ServiceAccount does not exist": {accounts: objects{},
			want: summary{Reason: reason.ServiceAccountNotFound, Code: 503}, message: []string{"team/app", "not found"}},
		"the namespace cannot be read": {brokenNamespaces: down.err,
			want: summary{Reason: reason.LookupFailed, Code: 500}, message: []string{"connection refused", "try again when lanyard-webhook reaches the API server"}},
		"the namespace does not exist": {namespaces: objects{},
			want: summary{Reason: reason.LookupFailed, Code: 500}, message: []string{"not found"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pods, injected := newPods(t, threeClouds())
			if test.accounts != nil {
				pods.ServiceAccounts = test.accounts
			}
			if test.namespaces != nil {
				pods.Namespaces = test.namespaces
			}
			if test.brokenAccounts != nil {
				pods.ServiceAccounts = broken{test.brokenAccounts}
			}
			if test.brokenNamespaces != nil {
				pods.Namespaces = broken{test.brokenNamespaces}
			}
			response := ask(t, pods, create([]byte(plainPod)))
			if diff := cmp.Diff(test.want, summaryOf(response)); diff != "" {
				t.Errorf("decision (-want +got):\n%s", diff)
			}
			for _, part := range append(test.message, "lanyard: "+string(test.want.Reason)+": ") {
				if response.Code != 0 && !strings.Contains(response.Message, part) {
					t.Errorf("got message %q, want %q in it", response.Message, part)
				}
			}
			if len(*injected) > 0 {
				t.Errorf("counted as injected: %v", *injected)
			}
		})
	}
}

// counting counts lookups.
type counting struct {
	objects
	asked []string
}

func (c *counting) Get(ctx context.Context, namespace, name string) (annotations.Object, error) {
	c.asked = append(c.asked, namespace+"/"+name)
	return c.objects.Get(ctx, namespace, name)
}

func TestNothingIsLookedUpThatTheDecisionDoesNotNeed(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		pod  string
		want []string
	}{
		"an injection needs the account and its namespace": {plainPod, []string{"team/app", "/team"}},
		"a pod without identity needs the account":         {`{"spec":{"containers":[{"name":"main"}]}}`, []string{"team/default"}},
		"a mirror pod needs nothing":                       {`{"metadata":{"annotations":{"kubernetes.io/config.mirror":"x"}},"spec":{"serviceAccountName":"app"}}`, nil},
		"a pod that opts out needs nothing":                {`{"metadata":{"annotations":{"lanyard.dev/inject":"false"}},"spec":{"serviceAccountName":"app"}}`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pods, _ := newPods(t, threeClouds())
			known := &counting{objects: objects{"team/app": threeClouds(), "team/default": nil, "/team": nil}}
			pods.ServiceAccounts, pods.Namespaces = known, known
			if response := ask(t, pods, create([]byte(test.pod))); response.Code != 0 {
				t.Fatal(response.Message)
			}
			if diff := cmp.Diff(test.want, known.asked); diff != "" {
				t.Errorf("looked up (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAReviewOfSomethingElseIsAFault(t *testing.T) {
	t.Parallel()
	for name, attributes := range map[string]admission.Attributes{
		"another resource":    {Version: "v1", Resource: "deployments"},
		"another group":       {Group: "example.com", Version: "v1", Resource: "pods"},
		"another version":     {Version: "v2", Resource: "pods"},
		"another subresource": {Version: "v1", Resource: "pods", SubResource: "status"},
		"an update of a pod, whose volumes and containers cannot change": {Version: "v1", Resource: "pods", Operation: admission.Update},
		"ephemeral containers without the pod before":                    {Version: "v1", Resource: "pods", SubResource: "ephemeralcontainers"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pods, injected := newPods(t, threeClouds())
			if attributes.Operation == "" {
				attributes.Operation = admission.Create
			}
			attributes.Namespace = "team"
			r := request{Attributes: attributes, Object: []byte(plainPod)}
			if attributes.Operation == admission.Update {
				r.OldObject = []byte(plainPod)
			}
			response := ask(t, pods, &r)
			if diff := cmp.Diff(summary{Reason: reason.InvalidReview, Code: 503}, summaryOf(response)); diff != "" {
				t.Errorf("decision (-want +got):\n%s", diff)
			}
			if len(*injected) > 0 {
				t.Errorf("counted as injected: %v", *injected)
			}
		})
	}
}

func TestInjectionsAreCountedWhereSomethingIsAdded(t *testing.T) {
	t.Parallel()
	pods, injected := newPods(t, threeClouds())
	decide := func(pod string) (result string) {
		t.Helper()
		*injected = nil
		response := ask(t, pods, create([]byte(pod)))
		if response.Code != 0 {
			t.Fatal(response.Message)
		}
		return string(apply(t, []byte(pod), response.Patch))
	}
	counted := func(want ...string) {
		t.Helper()
		if diff := cmp.Diff(want, []string(*injected)); diff != "" {
			t.Errorf("counted (-want +got):\n%s", diff)
		}
	}
	result := decide(plainPod)
	counted("aws", "azure", "gcp")
	decide(result)
	counted()
	// A container that another webhook added later. Its token volume has the tokens
	// of all providers, whatever variables it sets.
	decide(strings.Replace(result, `"containers":[`, `"containers":[{"name":"late","env":[{"name":"AWS_WEB_IDENTITY_TOKEN_FILE","value":"mine"}]},`, 1))
	counted("aws", "azure", "gcp")
	decide(strings.Replace(plainPod, `"app"`, `"default"`, 1))
	counted()
	decide(strings.Replace(plainPod, `"main"`, `"main","volumeMounts":[{"name":"own","mountPath":"/var/run/secrets/lanyard.dev/serviceaccount"}]`, 1))
	counted()
}

func TestAMalformedAnnotationOfAPodMattersOnlyWithAnIdentity(t *testing.T) {
	t.Parallel()
	malformed := `{"metadata":{"name":"pod","annotations":{"lanyard.dev/containers":",","lanyard.dev/inject":"no"}},"spec":{"serviceAccountName":"%s","containers":[{"name":"main"}]}}`
	pods, _ := newPods(t, threeClouds())
	response := ask(t, pods, create(fmt.Appendf(nil, malformed, "default")))
	if diff := cmp.Diff(summary{Reason: reason.NoIdentity}, summaryOf(response)); diff != "" {
		t.Errorf("without identity (-want +got):\n%s", diff)
	}
	if len(response.Warnings) != 1 || !strings.Contains(response.Warnings[0], "invalid_annotation") ||
		!strings.Contains(response.Warnings[0], "lanyard.dev/containers") || !strings.Contains(response.Warnings[0], "lanyard.dev/inject") {
		t.Errorf("got warnings %q, want one of both annotations", response.Warnings)
	}
	response = ask(t, pods, create(fmt.Appendf(nil, malformed, "app")))
	if diff := cmp.Diff(summary{Reason: reason.InvalidAnnotation, Code: 400}, summaryOf(response)); diff != "" {
		t.Fatalf("with an identity (-want +got):\n%s", diff)
	}
	for _, part := range []string{`pod "team/pod"`, "lanyard.dev/containers", "lanyard.dev/inject", `"no"`} {
		if !strings.Contains(response.Message, part) {
			t.Errorf("got message %q, want %q in it", response.Message, part)
		}
	}
}

// variablesOfThreeClouds contains every variable of all three clouds.
var variablesOfThreeClouds = []string{
	"AWS_ROLE_ARN", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_ROLE_SESSION_NAME", "AWS_STS_REGIONAL_ENDPOINTS", "AWS_REGION", "AWS_DEFAULT_REGION",
	"AZURE_CLIENT_ID", "AZURE_TENANT_ID", "AZURE_FEDERATED_TOKEN_FILE", "AZURE_AUTHORITY_HOST",
	"GOOGLE_APPLICATION_CREDENTIALS", "CLOUDSDK_AUTH_CREDENTIAL_FILE_OVERRIDE", "GOOGLE_CLOUD_PROJECT", "CLOUDSDK_CORE_PROJECT",
}

func TestEveryContainerGetsAllThreeCloudsInOnePatch(t *testing.T) {
	t.Parallel()
	for _, n := range []int{2, 20} {
		t.Run(fmt.Sprintf("%d containers of each kind", n), func(t *testing.T) {
			t.Parallel()
			containers := func(kind string) (list []any) {
				for i := range n {
					list = append(list, map[string]any{"name": fmt.Sprintf("%s-%d", kind, i), "env": []any{map[string]any{"name": "A", "value": "b"}}})
				}
				return list
			}
			pod := marshal(t, map[string]any{"spec": map[string]any{
				"serviceAccountName": "app", "containers": containers("main"), "initContainers": containers("init"),
			}})
			pods, injected := newPods(t, threeClouds())
			response := ask(t, pods, create(pod))
			if diff := cmp.Diff(summary{Reason: reason.Injected, Patch: true}, summaryOf(response)); diff != "" {
				t.Fatalf("decision (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff([]string{"aws", "azure", "gcp"}, []string(*injected)); diff != "" {
				t.Errorf("counted (-want +got):\n%s", diff)
			}
			spec := unmarshal(t, apply(t, pod, response.Patch))["spec"].(map[string]any)
			all := append(list(spec, "containers"), list(spec, "initContainers")...)
			if len(all) != 2*n {
				t.Fatalf("got %d containers, want %d", len(all), 2*n)
			}
			for _, c := range all {
				if diff := cmp.Diff(append([]string{"A"}, variablesOfThreeClouds...), names(c, "env")); diff != "" {
					t.Errorf("variables of %v (-want +got):\n%s", c["name"], diff)
				}
				if diff := cmp.Diff([]string{"bound-sa-token"}, names(c, "volumeMounts")); diff != "" {
					t.Errorf("mounts of %v (-want +got):\n%s", c["name"], diff)
				}
			}
			if diff := cmp.Diff([]string{"bound-sa-token"}, names(spec, "volumes")); diff != "" {
				t.Errorf("volumes (-want +got):\n%s", diff)
			}
		})
	}
}

// names lists the names in a list.
func names(object map[string]any, key string) (names []string) {
	for _, element := range list(object, key) {
		names = append(names, element["name"].(string))
	}
	return names
}

func TestTheTokenMountPathHasOneSpelling(t *testing.T) {
	t.Parallel()
	const windows = `"os":{"name":"windows"},`
	injected := summary{Reason: reason.Injected, Patch: true}
	taken := summary{Reason: reason.MountPathTaken}
	denied := summary{Reason: reason.InvalidMountPath, Code: 400}
	for name, test := range map[string]struct {
		os, path string
		want     summary
	}{
		"as it is":                      {"", "/var/run/secrets/lanyard.dev/serviceaccount", taken},
		"with a trailing slash":         {"", "/var/run/secrets/lanyard.dev/serviceaccount/", denied},
		"with detours":                  {"", "/var/run//secrets/./x/../lanyard.dev/serviceaccount", denied},
		"with a detour out of it":       {"", "/var/run/secrets/lanyard.dev/serviceaccount/../x", denied},
		"below it":                      {"", "/var/run/secrets/lanyard.dev/serviceaccount/aws", taken},
		"below it, with dots":           {"", "/var/run/secrets/lanyard.dev/serviceaccount/./aws", denied},
		"above it":                      {"", "/var/run/secrets", injected},
		"next to it":                    {"", "/var/run/secrets/lanyard.dev/serviceaccount2", injected},
		"as it is, on Windows":          {windows, "/var/run/secrets/lanyard.dev/serviceaccount", taken},
		"with backslashes on Windows":   {windows, `\\var\\run\\secrets\\lanyard.dev\\serviceaccount`, denied},
		"with a drive on Windows":       {windows, `C:\\var\\run\\secrets\\lanyard.dev\\serviceaccount`, denied},
		"in capitals on Windows":        {windows, `C:\\VAR\\Run\\secrets\\lanyard.dev\\serviceaccount`, denied},
		"in capitals but on Linux":      {"", "/VAR/run/secrets/lanyard.dev/serviceaccount", injected},
		"with a drive and slashes":      {windows, `c:/var/run/secrets/lanyard.dev/serviceaccount/`, denied},
		"below it on Windows":           {windows, `C:\\var\\run\\secrets\\lanyard.dev\\serviceaccount\\aws`, denied},
		"next to it on Windows":         {windows, `C:\\var\\run\\secrets\\lanyard.dev`, injected},
		"with backslashes but on Linux": {"", `\\var\\run\\secrets\\lanyard.dev\\serviceaccount`, injected},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pod := `{"spec":{"serviceAccountName":"app",` + test.os + `"containers":[{"name":"main","volumeMounts":[{"name":"own","mountPath":"` + test.path + `"}]}]}}`
			pods, _ := newPods(t, threeClouds())
			response := ask(t, pods, create([]byte(pod)))
			if diff := cmp.Diff(test.want, summaryOf(response)); diff != "" {
				t.Errorf("decision (-want +got):\n%s", diff)
			}
			if warned := len(response.Warnings) > 0; warned != (test.want == taken) {
				t.Errorf("got warnings %q", response.Warnings)
			}
			left := strings.Replace(pod, `{"spec"`, `{"metadata":{"annotations":{"lanyard.dev/skip-containers":"main"}},"spec"`, 1)
			if response := ask(t, pods, create([]byte(left))); response.Code != 0 || response.Patch != nil {
				t.Errorf("a container that is left out: got %+v", response)
			}
		})
	}
}

func TestADollarSignOfAnIdentityIsNotExpandedByTheKubelet(t *testing.T) {
	t.Parallel()
	// All characters that IAM allows in the path of a role are accepted, but not "$".
	const odd = "arn:aws:iam::111122223333:role/a$(HOME)/$b/app"
	pods, _ := newPods(t, map[string]string{"lanyard.dev/aws-role-arn": odd})
	response := ask(t, pods, create([]byte(plainPod)))
	if response.Code != 0 {
		t.Fatal(response.Message)
	}
	result := unmarshal(t, apply(t, []byte(plainPod), response.Patch))
	env := list(list(result["spec"].(map[string]any), "containers")[0], "env")
	i := slices.IndexFunc(env, func(v map[string]any) bool { return v["name"] == "AWS_ROLE_ARN" })
	if i < 0 || env[i]["value"] != "arn:aws:iam::111122223333:role/a$$(HOME)/$$b/app" {
		t.Errorf("got %v, want AWS_ROLE_ARN with every $ twice", env)
	}
}

func TestUnknownFieldsSurviveAtEveryLevel(t *testing.T) {
	t.Parallel()
	const pod = `{"new0":{"a":[1,null]},"metadata":{"new1":1.50,"name":"pod","annotations":{"a/b":"c"},"labels":{"d":"e"}},` +
		`"spec":{"new2":[],"serviceAccountName":"app","os":{"name":"linux","new3":{}},"nodeSelector":{"new4":"x"},` +
		`"volumes":[{"name":"v","new5":{"projected":"no"},"projected":{"new6":1,"sources":[{"new7":{}},{"serviceAccountToken":{"path":"t","new8":0}},{"downwardAPI":{"new9":0,"items":[{"new10":1}]}}]}}],` +
		`"containers":[{"name":"main","new11":{"env":[]},"env":[{"name":"A","new12":"\u00e9"}],"volumeMounts":[{"name":"v","mountPath":"/v","new13":9007199254740993}],"volumeDevices":[{"name":"d","devicePath":"/d","new14":true}]}],` +
		`"initContainers":[{"name":"init","new15":"<>"}],"ephemeralContainers":null}}`
	pods, _ := newPods(t, threeClouds())
	response := ask(t, pods, create([]byte(pod)))
	if response.Patch == nil {
		t.Fatalf("got no patch: %+v", response)
	}
	result := apply(t, []byte(pod), response.Patch)
	holdsAppendOnly(t, []byte(pod), response.Patch, result)
	for i := range 16 {
		if key := fmt.Sprintf(`"new%d":`, i); strings.Count(string(result), key) != 1 {
			t.Errorf("%s is lost in %s", key, result)
		}
	}
	// As numbers in Go, these two would change.
	for _, text := range []string{`"new13":9007199254740993`, `"new1":1.50`} {
		if !strings.Contains(string(result), text) {
			t.Errorf("%s is not as it was in %s", text, result)
		}
	}
}

func TestAMountThatAnotherWebhookRemovedIsRestored(t *testing.T) {
	t.Parallel()
	pods, _ := newPods(t, threeClouds())
	first := apply(t, []byte(plainPod), ask(t, pods, create([]byte(plainPod))).Patch)
	pod := unmarshal(t, first)
	delete(list(pod["spec"].(map[string]any), "containers")[0], "volumeMounts")
	bare := marshal(t, pod)
	response := ask(t, pods, create(bare))
	const want = `[{"op":"add","path":"/spec/containers/0/volumeMounts","value":[{"name":"bound-sa-token","readOnly":true,"mountPath":"/var/run/secrets/lanyard.dev/serviceaccount"}]}]`
	if diff := cmp.Diff(want, string(response.Patch)); diff != "" {
		t.Errorf("patch (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(unmarshal(t, first), unmarshal(t, apply(t, bare, response.Patch))); diff != "" {
		t.Errorf("pod (-first +again):\n%s", diff)
	}
}

func TestAContainerThatThePodLeavesOutIsAFindingAndNoWarning(t *testing.T) {
	t.Parallel()
	const pod = `{"metadata":{"annotations":{"lanyard.dev/skip-containers":"side"}},"spec":{"serviceAccountName":"app","containers":[{"name":"main"},{"name":"side"}]}}`
	pods, _ := newPods(t, threeClouds())
	response := ask(t, pods, create([]byte(pod)))
	if diff := cmp.Diff([]string{`container_not_selected: container "side": the pod's annotations leave it out`}, response.Findings); diff != "" {
		t.Errorf("findings (-want +got):\n%s", diff)
	}
	if len(response.Warnings) > 0 {
		t.Errorf("got warnings %q, want none", response.Warnings)
	}
}

func TestTheSameInputGivesTheSameBytesInEveryProgramRun(t *testing.T) {
	t.Parallel()
	pod := []byte(`{"metadata":{"name":"pod"},"spec":{"serviceAccountName":"app","containers":[{"name":"main"}]}}`)
	pods, _ := newPods(t, map[string]string{"lanyard.dev/audience": "neutral"})
	want := `[{"op":"add","path":"/metadata/annotations","value":{"lanyard.dev/injected":"token"}},` +
		`{"op":"add","path":"/metadata/labels","value":{"lanyard.dev/identity":"injected"}},` +
		`{"op":"add","path":"/spec/volumes","value":[{"name":"bound-sa-token","projected":{"sources":[{"serviceAccountToken":{"audience":"neutral","expirationSeconds":3600,"path":"token"}}],"defaultMode":420}}]},` +
		`{"op":"add","path":"/spec/containers/0/volumeMounts","value":[{"name":"bound-sa-token","readOnly":true,"mountPath":"/var/run/secrets/lanyard.dev/serviceaccount"}]},` +
		`{"op":"add","path":"/spec/containers/0/env","value":[{"name":"LANYARD_TOKEN_FILE","value":"/var/run/secrets/lanyard.dev/serviceaccount/token"}]}]`
	if diff := cmp.Diff(want, string(ask(t, pods, create(pod)).Patch)); diff != "" {
		t.Error(diff)
	}
}
