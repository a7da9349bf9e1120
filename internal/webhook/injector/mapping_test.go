// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package injector_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lanyard-dev/lanyard/internal/annotations"
	"github.com/lanyard-dev/lanyard/internal/reason"
	"github.com/lanyard-dev/lanyard/internal/webhook/injector"
)

// mapper returns a mutator with a mapping for the ServiceAccounts team/app*.
func mapper(t *testing.T) *injector.ServiceAccountMutator {
	t.Helper()
	pods, _ := newPods(t, nil)
	values := map[string]string{"lanyard.dev/aws-role-arn": role, "lanyard.dev/aws-region": "eu-central-1"}
	mapping, errs := annotations.NewMapping(pods.Keys, "team", "app*", values, pods.Defaults)
	if len(errs) > 0 {
		t.Fatal(errs.ToAggregate())
	}
	pods.Mappings = []*annotations.Mapping{mapping}
	return &injector.ServiceAccountMutator{Settings: pods.Settings, Invalidator: &invalidated{}}
}

func TestAMappingIsWrittenOntoTheServiceAccount(t *testing.T) {
	t.Parallel()
	const (
		whole  = `{"op":"add","path":"/metadata/annotations","value":{}},`
		region = `{"op":"add","path":"/metadata/annotations/lanyard.dev~1aws-region","value":"eu-central-1"},`
		arn    = `{"op":"add","path":"/metadata/annotations/lanyard.dev~1aws-role-arn","value":"` + role + `"},`
		label  = `{"op":"add","path":"/metadata/labels","value":{"lanyard.dev/identity":"enabled"}}`
	)
	for sentence, tt := range map[string]struct {
		account string // metadata
		reason  reason.Reason
		patch   string
	}{
		"without annotations":                    {named, reason.Mapped, "[" + whole + region + arn + label + "]"},
		"with null annotations":                  {named + `,"annotations":null`, reason.Mapped, "[" + whole + region + arn + label + "]"},
		"with others' annotations":               {named + `,"annotations":{"a":"b"}`, reason.Mapped, "[" + region + arn + label + "]"},
		"with the label already":                 {named + "," + labeled, reason.Mapped, "[" + whole + region + strings.TrimSuffix(arn, ",") + "]"},
		"with an identity of its own":            {withRole, reason.Labeled, "[" + label + "]"},
		"whose name is yet to be made":           {strings.Replace(named, `"name"`, `"generateName"`, 1), reason.NoIdentity, ""},
		"with another name":                      {strings.Replace(named, `"app"`, `"other"`, 1), reason.NoIdentity, ""},
		"with annotations that are not all read": {named + `,"annotations":{"lanyard.dev/x":"` + strings.Repeat("x", 40<<10) + `","lanyard.dev/aws-region":"us-east-1"}`, reason.NoIdentity, ""},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			m := mapper(t)
			object := account(tt.account)
			response := ask(t, m, write(object, nil))
			if response.Code != 0 || response.Reason != tt.reason {
				t.Fatalf("got %+v, want reason %s", response, tt.reason)
			}
			if diff := cmp.Diff(tt.patch, string(response.Patch)); diff != "" {
				t.Errorf("patch (-want +got):\n%s", diff)
			}
			if again := ask(t, m, write(apply(t, object, response.Patch), nil)); again.Patch != nil {
				t.Errorf("a second pass gave %s", again.Patch)
			}
		})
	}
}
