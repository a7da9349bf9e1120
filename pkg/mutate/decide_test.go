// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mutate_test

import (
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/pkg/mutate"
	"github.com/lanyard-dev/lanyard/pkg/mutate/reason"
)

func TestDecideReturnsADenialForAPodThatMustNotBeCreated(t *testing.T) {
	t.Parallel()
	settings, err := mutate.ParseSettings(nil, []string{"https://issuer.example.com"})
	if err != nil {
		t.Fatal(err)
	}
	account := func(audience string) *annotations.Object {
		return &annotations.Object{Namespace: "team", Name: "app", Annotations: map[string]string{annotations.Audience: audience}}
	}
	const pod = `{"spec":{"serviceAccountName":"app","containers":[{"name":"main"}]}}`
	for sentence, test := range map[string]struct {
		pod                string
		account, namespace *annotations.Object
		reason             reason.Reason
		detail             string
	}{
		"the ServiceAccount does not exist": {pod, nil, nil, reason.ServiceAccountNotFound, `serviceaccount "app" does not exist`},
		"the pod has another one":           {`{}`, account("a"), nil, reason.InvalidReview, `spec.serviceAccountName: got "default", want "app"`},
		"a malformed annotation":            {pod, account(""), nil, reason.InvalidAnnotation, "lanyard.dev/audience"},
		"a malformed annotation of the pod": {
			`{"metadata":{"name":"a","annotations":{"lanyard.dev/containers":"?"}},"spec":{"serviceAccountName":"app","containers":[{"name":"main"}]}}`, account("a"), nil,
			reason.InvalidAnnotation, `pod "team/a": metadata.annotations[lanyard.dev/containers]`,
		},
		"a reserved audience": {pod, account("https://issuer.example.com"), nil, reason.InvalidAnnotation, "Kubernetes API server"},
		"no identity yet": {
			pod, &annotations.Object{Namespace: "team", Name: "app", Label: annotations.IdentityRequired}, nil, reason.IdentityRequired, "annotate the ServiceAccount",
		},
		"more annotations than any identity has": {
			pod, &annotations.Object{Namespace: "team", Name: "app", Annotations: map[string]string{annotations.Audience: strings.Repeat("a", annotations.MaxKeptBytes)}}, nil,
			reason.InvalidAnnotation, "must have at most",
		},
		"annotations that were not kept": {pod, &annotations.Object{Namespace: "team", Name: "app", TooLarge: 1}, nil, reason.InvalidAnnotation, "1 bytes under lanyard.dev/"},
		"a namespace that allows nothing": {
			pod, account("a"), &annotations.Object{Name: "team", Annotations: map[string]string{annotations.AllowedIdentities: "-"}}, reason.IdentityNotAllowed, "allows nothing",
		},
		"a namespace with annotations that were not kept": {pod, account("a"), &annotations.Object{Name: "team", TooLarge: 1}, reason.InvalidAnnotation, `namespace "team"`},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			read, err := mutate.ReadPod([]byte(test.pod), settings)
			if err != nil {
				t.Fatal(err)
			}
			decision, err := mutate.Decide(settings, test.account, test.namespace, read)
			denial, denied := errors.AsType[*reason.Error](err)
			if !denied || denial.Reason != test.reason || !strings.Contains(err.Error(), test.detail) {
				t.Errorf("got %+v and error %v, want %s and %q", decision, err, test.reason, test.detail)
			}
		})
	}
}

// A namespace without annotations may be nil.
func TestWithoutANamespaceTheDefaultPolicyApplies(t *testing.T) {
	t.Parallel()
	settings, err := mutate.ParseSettings([]byte(`default-allowed-identities: "audience-of-{namespace}"`), nil)
	if err != nil {
		t.Fatal(err)
	}
	const pod = `{"spec":{"serviceAccountName":"app","containers":[{"name":"main"}]}}`
	for audience, want := range map[string]reason.Reason{"audience-of-team": reason.Injected, "audience-of-others": reason.IdentityNotAllowed} {
		account := &annotations.Object{Namespace: "team", Name: "app", Annotations: map[string]string{annotations.Audience: audience}}
		for name, namespace := range map[string]*annotations.Object{"nil": nil, "without annotations": {Name: "team"}} {
			read, err := mutate.ReadPod([]byte(pod), settings)
			if err != nil {
				t.Fatal(err)
			}
			var got reason.Reason
			decision, err := mutate.Decide(settings, account, namespace, read)
			if denial, denied := errors.AsType[*reason.Error](err); denied {
				got = denial.Reason
			} else if decision != nil {
				got = decision.Reason
			}
			if got != want {
				t.Errorf("audience %s, namespace %s: got %q and error %v, want %s", audience, name, got, err, want)
			}
		}
	}
}

// The pod of a ServiceAccount without an identity is created in spite of it.
func TestAMistakeOfAPodWithoutAnIdentityIsAWarning(t *testing.T) {
	t.Parallel()
	settings := newSettings(t)
	for value, want := range map[string][]string{
		"main": nil,
		"?":    {`invalid_annotation: pod "team/a": metadata.annotations[lanyard.dev/containers]`},
	} {
		read, err := mutate.ReadPod([]byte(`{"metadata":{"name":"a","annotations":{"lanyard.dev/containers":"`+value+`"}}}`), settings)
		if err != nil {
			t.Fatal(err)
		}
		decision, err := mutate.Decide(settings, &annotations.Object{Namespace: "team", Name: "default"}, nil, read)
		if err != nil || decision.Reason != reason.NoIdentity {
			t.Fatalf("%s: got %+v and error %v, want %s", value, decision, err, reason.NoIdentity)
		}
		findings, warnings := decision.Texts()
		if len(findings) > 0 || len(warnings) != len(want) || len(want) > 0 && !strings.HasPrefix(warnings[0], want[0]) {
			t.Errorf("%s: got findings %q and warnings %q, want no findings and %q", value, findings, warnings, want)
		}
	}
}

// The policy of the namespace may have changed since the pod was created. A pod that insists on an
// identity can be debugged without it.
func TestDecideEphemeral(t *testing.T) {
	t.Parallel()
	settings := newSettings(t)
	const pod = `{"metadata":{"annotations":{"lanyard.dev/inject":"true"}},"spec":{"serviceAccountName":"app","containers":[{"name":"main"}],"ephemeralContainers":[%s]}}`
	account := &annotations.Object{Namespace: "team", Name: "app", Annotations: map[string]string{annotations.Audience: "a"}}
	for sentence, test := range map[string]struct {
		allowed string
		want    reason.Reason
		denied  bool
	}{
		"the namespace allows the identity": {"*", reason.VolumeMissing, false},
		"the namespace allows nothing":      {annotations.AllowNothing, reason.IdentityNotAllowed, true},
	} {
		updated, old := parse(t, fmt.Sprintf(pod, `{"name":"debug"}`)), parse(t, fmt.Sprintf(pod, ""))
		namespace := &annotations.Object{Name: "team", Annotations: map[string]string{annotations.AllowedIdentities: test.allowed}}
		decision, err := mutate.DecideEphemeral(settings, account, namespace, updated, old)
		denial, denied := errors.AsType[*reason.Error](err)
		if denied != test.denied || denied && denial.Reason != test.want || !denied && decision.Reason != test.want {
			t.Errorf("%s: got %+v and error %v, want %s", sentence, decision, err, test.want)
		}
	}
}

// A mirror pod and a pod that opts out depend on nothing else.
func TestAPodThatNeedsNoServiceAccount(t *testing.T) {
	t.Parallel()
	settings := newSettings(t)
	for annotation, want := range map[string]reason.Reason{annotations.MirrorPod: reason.MirrorPod, annotations.Inject: reason.OptedOut} {
		read, err := mutate.ReadPod([]byte(`{"metadata":{"annotations":{"`+annotation+`":"false"}}}`), settings)
		if err != nil {
			t.Fatal(err)
		}
		if decision, err := mutate.Decide(settings, nil, nil, read); err != nil || decision.Reason != want {
			t.Errorf("%s: got %+v and error %v, want %s", annotation, decision, err, want)
		}
	}
}

func TestInvalidPods(t *testing.T) {
	t.Parallel()
	settings := newSettings(t)
	for _, text := range []string{`{`, `[]`, `{} {}`, ``} {
		if _, err := mutate.ReadPod([]byte(text), settings); err == nil || !strings.Contains(err.Error(), "pod: ") {
			t.Errorf("%s: got error %v, want an error about the pod", text, err)
		}
	}
}

func TestAPodWithTwoListsOfContainersIsNotRead(t *testing.T) {
	t.Parallel()
	settings := newSettings(t)
	const pod = `{"spec":{"serviceAccountName":"app","containers":[{"name":"a"},{"name":"b"}],"containers":[{"name":"c"}]}}`
	if _, err := mutate.ReadPod([]byte(pod), settings); err == nil || !strings.Contains(err.Error(), "containers: is there twice") {
		t.Errorf("got error %v, want an error about containers", err)
	}
}

func TestSettingsOfAFileWithAMistake(t *testing.T) {
	t.Parallel()
	if _, err := mutate.ParseSettings([]byte("token-expiration-seconds: 1\n"), nil); err == nil || !strings.Contains(err.Error(), "token-expiration-seconds") {
		t.Errorf("got error %v, want the name of the setting", err)
	}
}

// Programs that decide about pods need neither a command line nor a client.
func TestTheDecisionLinksNoFlagsAndNoClient(t *testing.T) {
	t.Parallel()
	output, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "./...").Output()
	if err != nil {
		t.Fatal(err)
	}
	for dependency := range strings.SplitSeq(strings.TrimSpace(string(output)), "\n") {
		for _, unwanted := range []string{"github.com/spf13/", "k8s.io/client-go", "k8s.io/component-base", "sigs.k8s.io/controller-runtime", "k8s.io/api/", "net/http"} {
			if strings.HasPrefix(dependency, unwanted) {
				t.Errorf("got %s among the dependencies, want none of %s", dependency, unwanted)
			}
		}
	}
}
