// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package injector_test

import (
	"maps"
	"strings"
	"testing"

	"github.com/lanyard-dev/lanyard/internal/annotations"
	"github.com/lanyard-dev/lanyard/internal/peer"
	"github.com/lanyard-dev/lanyard/internal/reason"
)

// The record lanyard.dev/adopted is for mistakes in values that a peer accepted. Users can
// write the record, too: then it must not relax a check.
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
		m.Peers, _ = peer.Named([]string{name})
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
				v.Peers, _ = peer.Named([]string{tt.adopt})
			}
			if tt.allowed != "" {
				v.Namespaces = objects{"/team": {annotations.DefaultPrefix + "allowed-identities": tt.allowed}}
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
