// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package injector_test

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lanyard-dev/lanyard/internal/webhook/injector"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/pkg/mutate/reason"
)

// adopted returns Lanyard's annotations of a ServiceAccount as the mutating webhook leaves it.
func adopted(t *testing.T, config *injector.Config, object []byte) map[string]string {
	t.Helper()
	response := ask(t, mutator(config), write(object, nil))
	if response.Code != 0 {
		t.Fatalf("the ServiceAccount is denied: %+v", response)
	}
	validator := &injector.ServiceAccountValidator{Config: *config, Invalidator: &invalidated{}}
	whole := apply(t, object, response.Patch)
	if denied := ask(t, validator, write(whole, nil)); denied.Code != 0 {
		t.Errorf("the ServiceAccount is denied: %s", denied.Message)
	}
	return underPrefix(t, whole)
}

func mutator(config *injector.Config) *injector.ServiceAccountMutator {
	return &injector.ServiceAccountMutator{Settings: config.Settings, Invalidator: &invalidated{}}
}

// underPrefix returns Lanyard's annotations of an object.
func underPrefix(t *testing.T, object []byte) map[string]string {
	t.Helper()
	var metadata metav1.PartialObjectMetadata
	if err := json.Unmarshal(object, &metadata); err != nil {
		t.Fatal(err)
	}
	own := map[string]string{}
	for key, value := range metadata.Annotations {
		if strings.HasPrefix(key, annotations.Prefix) {
			own[key] = value
		}
	}
	return own
}

func adopter(t *testing.T) (*injector.ServiceAccountMutator, *injector.ServiceAccountValidator) {
	t.Helper()
	pods, _ := newPods(t, nil)
	pods.Peers = []string{"eks"}
	return mutator(&pods.Config), &injector.ServiceAccountValidator{Config: pods.Config, Invalidator: &invalidated{}}
}

const eksRole = `"eks.amazonaws.com/role-arn":"` + role + `"`

func TestAPeersAnnotationIsTranslatedChangedAndRemoved(t *testing.T) {
	t.Parallel()
	m, _ := adopter(t)
	before := account(named + `,"annotations":{` + eksRole + `}`)
	response := ask(t, m, write(before, nil))
	if response.Reason != reason.Adopted {
		t.Fatalf("got %+v", response)
	}
	stored := apply(t, before, response.Patch)
	if !strings.Contains(string(stored), `"lanyard.dev/identity":"enabled"`) || underPrefix(t, stored)["lanyard.dev/aws-role-arn"] != role {
		t.Fatalf("got %s", stored)
	}
	if again := ask(t, m, write(stored, stored)); again.Patch != nil || again.Reason != reason.Labeled {
		t.Errorf("a second pass gave %+v", again)
	}
	changed := []byte(strings.Replace(string(stored), eksRole, `"eks.amazonaws.com/role-arn":"arn:aws:iam::111122223333:role/other"`, 1))
	response = ask(t, m, write(changed, stored))
	if got := underPrefix(t, apply(t, changed, response.Patch))["lanyard.dev/aws-role-arn"]; got != "arn:aws:iam::111122223333:role/other" {
		t.Errorf("after a change, got role %s", got)
	}
	removed := []byte(strings.Replace(string(stored), eksRole, `"a":"b"`, 1))
	response = ask(t, m, write(removed, stored))
	left := apply(t, removed, response.Patch)
	if len(underPrefix(t, left)) > 0 || strings.Contains(string(left), "lanyard.dev") || response.Reason != reason.Adopted {
		t.Errorf("after the removal, got reason %s and %s", response.Reason, left)
	}
	want := []string{"lanyard: adoption: lanyard.dev/aws-role-arn is removed with the annotation that it was translated from; to keep it, write the ServiceAccount again"}
	if !slices.Equal(response.Warnings, want) {
		t.Errorf("after the removal, got warnings %q, want %q", response.Warnings, want)
	}
}

func TestWithoutPeersTheirAnnotationsAreNotRead(t *testing.T) {
	t.Parallel()
	m, _ := adopter(t)
	m.Peers = nil
	if response := ask(t, m, write(account(named+`,"annotations":{`+eksRole+`}`), nil)); response.Patch != nil || response.Reason != reason.NoIdentity {
		t.Errorf("got %+v", response)
	}
}

// Values that worked with the peer are not denied when they are written, but their pods are.
func TestOddAdoptedValuesAreWarnedOf(t *testing.T) {
	t.Parallel()
	for sentence, value := range map[string]string{
		"a role of another vendor":    "arn:aws:iam:::role/x",
		"a role that is too long":     "arn:aws:iam::111122223333:role/" + strings.Repeat("x", 5000),
		"a role with a character cut": strings.Repeat("é", 2000),
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			m, v := adopter(t)
			object := account(named + `,"annotations":{"eks.amazonaws.com/role-arn":"` + value + `"}`)
			object = apply(t, object, ask(t, m, write(object, nil)).Patch)
			response := ask(t, v, write(object, nil))
			if response.Code != 0 || response.Reason != reason.InvalidAnnotation || len(response.Warnings) != 1 {
				t.Errorf("got %+v, want a warning", response)
			}
			if again := ask(t, m, write(object, object)); again.Patch != nil {
				t.Errorf("a second pass gave %s", again.Patch)
			}
			pods, _ := newPods(t, underPrefix(t, object))
			if pod := ask(t, pods, create([]byte(plainPod))); pod.Reason != reason.InvalidAnnotation {
				t.Errorf("the pod got %+v, want a denial", pod)
			}
		})
	}
}

// The record lanyard.dev/adopted tolerates mistakes in values that a peer accepted. A record
// that a user wrote must not relax a check.
func TestAHandWrittenRecordRelaxesNothing(t *testing.T) {
	t.Parallel()
	const (
		odd       = "arn:aws:iam:::role/x"
		peersRole = "eks.amazonaws.com/role-arn"
		own       = "lanyard.dev/aws-role-arn"
		record    = "lanyard.dev/adopted"
	)
	adoptedBy := func(name string, values map[string]string) map[string]string {
		m, _ := adopter(t)
		m.Peers = []string{name}
		object := accountObject(t, values)
		return underPrefix(t, apply(t, object, ask(t, m, write(object, nil)).Patch))
	}
	adopted := adoptedBy("eks", map[string]string{peersRole: odd})
	with := func(changes ...string) map[string]string {
		values := map[string]string{peersRole: odd}
		maps.Copy(values, adopted)
		for i := 0; i < len(changes); i += 2 {
			if values[changes[i]] = changes[i+1]; changes[i+1] == "" {
				delete(values, changes[i])
			}
		}
		return values
	}
	azure := map[string]string{"azure.workload.identity/client-id": "00000000-1111-2222-3333-444444444444"}
	azureAdopted := adoptedBy("azure", azure)
	azureAdopted["azure.workload.identity/client-id"] = azure["azure.workload.identity/client-id"]
	const restricted = "-"
	for sentence, tt := range map[string]struct {
		values  map[string]string
		adopt   string
		allowed string
		want    reason.Reason // of a denial; "" for a warning
	}{
		"a value that follows the peer":              {with(), "eks", "", ""},
		"a tenant that the peer has in its settings": {azureAdopted, "azure", "", ""},
		"a peer that is not adopted":                 {with(), "azure", "", reason.InvalidAnnotation},
		"no peer":                                    {with(), "", "", reason.InvalidAnnotation},
		"an empty record":                            {map[string]string{own: odd, record: ""}, "eks", "", reason.InvalidAnnotation},
		"a record of another key":                    {with(record, "aws-token-path=fa56b51a"), "eks", "", reason.InvalidAnnotation},
		"a record with another checksum":             {with(record, "aws-role-arn=00000000"), "eks", "", reason.InvalidAnnotation},
		"the record, without the peer's annotation":  {with(peersRole, ""), "eks", "", reason.InvalidAnnotation},
		"the record, and another value of the peer":  {with(peersRole, role), "eks", "", reason.InvalidAnnotation},
		"a mistake in another key":                   {with("lanyard.dev/aws-region", "no region"), "eks", "", reason.InvalidAnnotation},
		"a missing value of another cloud":           {with("lanyard.dev/azure-client-id", "00000000-1111-2222-3333-444444444444"), "eks", "", reason.InvalidAnnotation},
		"an identity that the namespace does not allow": {
			map[string]string{own: role, record: ""}, "eks", restricted, reason.IdentityNotAllowed,
		},
		"an adopted identity that the namespace does not allow": {
			with(peersRole, role, own, role, record, adoptedBy("eks", map[string]string{peersRole: role})[record]), "eks", restricted, reason.IdentityNotAllowed,
		},
		"more annotations than are read": {
			with("lanyard.dev/zz", strings.Repeat("a", 20000)), "eks", "", reason.InvalidAnnotation,
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			_, v := adopter(t)
			v.Peers = nil
			if tt.adopt != "" {
				v.Peers = []string{tt.adopt}
			}
			if tt.allowed != "" {
				v.Namespaces = objects{"/team": {annotations.Prefix + "allowed-identities": tt.allowed}}
			}
			object := accountObject(t, tt.values)
			response := ask(t, v, write(object, accountObject(t, map[string]string{peersRole: odd, "a": "b"})))
			if old := accountObject(t, tt.values); ask(t, v, write(object, old)).Code != 0 {
				t.Error("a write that changes no annotation is denied")
			}
			if denied := response.Code != 0; denied != (tt.want != "") || denied && response.Reason != tt.want {
				t.Errorf("got %+v, want a denial: %t, %q", response, tt.want != "", tt.want)
			}
			if response.Code == 0 && len(response.Warnings) != 1 {
				t.Errorf("got the warnings %q, want one", response.Warnings)
			}
		})
	}
}
