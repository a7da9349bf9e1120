// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package injector_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lanyard-dev/lanyard/internal/admission"
	"github.com/lanyard-dev/lanyard/internal/injector"
	"github.com/lanyard-dev/lanyard/pkg/reason"
)

// expected records what an Invalidator was told.
type expected []string

func (e *expected) Invalidate(namespace, name string) { *e = append(*e, namespace+"/"+name) }

// account is the JSON of a service account with this metadata.
func account(metadata string) []byte {
	return []byte(`{"apiVersion":"v1","kind":"ServiceAccount","metadata":{` + metadata + `},"secrets":[{"name":"s"}],"future":{"a":1}}`)
}

// write is the review of an account that is created or, with one before,
// updated.
func write(object, old []byte) *admission.Request {
	request := &admission.Request{
		UID: "1", Version: "v1", Resource: "serviceaccounts", Operation: admission.Create, Namespace: "team", Object: object,
	}
	if old != nil {
		request.Operation, request.OldObject = admission.Update, old
	}
	return request
}

const (
	named     = `"name":"app"`
	roleKey   = `"lanyard.dev/aws-role-arn":"` + role + `"`
	withRole  = named + `,"annotations":{` + roleKey + `}`
	labeled   = `"labels":{"app":"x","lanyard.dev/identity":"enabled"}`
	plainText = `"labels":{"app":"x"}`
)

func TestTheLabelFollowsTheIdentityKeys(t *testing.T) {
	t.Parallel()
	const addLabel = `[{"op":"add","path":"/metadata/labels/lanyard.dev~1identity","value":"enabled"}]`
	const addLabels = `[{"op":"add","path":"/metadata/labels","value":{"lanyard.dev/identity":"enabled"}}]`
	const remove = `[{"op":"remove","path":"/metadata/labels/lanyard.dev~1identity"}]`
	tests := map[string]struct {
		account, old string // metadata; old is empty on creation
		reason       reason.Reason
		patch        string
		labels       map[string]any // afterwards
	}{
		"an identity key adds the label":              {withRole + "," + plainText, "", reason.Labeled, addLabel, map[string]any{"app": "x", "lanyard.dev/identity": "enabled"}},
		"without labels it adds them whole":           {withRole, "", reason.Labeled, addLabels, map[string]any{"lanyard.dev/identity": "enabled"}},
		"null labels are none":                        {withRole + `,"labels":null`, "", reason.Labeled, addLabels, map[string]any{"lanyard.dev/identity": "enabled"}},
		"empty labels are some":                       {withRole + `,"labels":{}`, "", reason.Labeled, addLabel, map[string]any{"lanyard.dev/identity": "enabled"}},
		"another value is set right":                  {withRole + `,"labels":{"lanyard.dev/identity":"disabled"}`, "", reason.Labeled, addLabel, map[string]any{"lanyard.dev/identity": "enabled"}},
		"an empty value is set right":                 {withRole + `,"labels":{"lanyard.dev/identity":""}`, "", reason.Labeled, addLabel, map[string]any{"lanyard.dev/identity": "enabled"}},
		"a label that is there is left":               {withRole + "," + labeled, "", reason.Labeled, "", map[string]any{"app": "x", "lanyard.dev/identity": "enabled"}},
		"a user cannot take it off":                   {withRole + "," + plainText, withRole + "," + labeled, reason.Labeled, addLabel, map[string]any{"app": "x", "lanyard.dev/identity": "enabled"}},
		"the last key takes it off":                   {named + `,"annotations":{"a":"b"},` + labeled, withRole + "," + labeled, reason.Labeled, remove, map[string]any{"app": "x"}},
		"no annotations at all take it off":           {named + "," + labeled, withRole + "," + labeled, reason.Labeled, remove, map[string]any{"app": "x"}},
		"a false label comes off":                     {named + `,"labels":{"lanyard.dev/identity":"x"}`, "", reason.Labeled, remove, map[string]any{}},
		"one of two keys leaves it":                   {withRole + "," + labeled, strings.Replace(withRole, roleKey, roleKey+`,"lanyard.dev/audience":"a"`, 1) + "," + labeled, reason.Labeled, "", map[string]any{"app": "x", "lanyard.dev/identity": "enabled"}},
		"a malformed identity is one too":             {named + `,"annotations":{"lanyard.dev/audience":""}`, "", reason.Labeled, addLabels, map[string]any{"lanyard.dev/identity": "enabled"}},
		"a key that asks for nothing by itself":       {named + `,"annotations":{"lanyard.dev/aws-region":"eu-central-1"},` + plainText, "", reason.NoIdentity, "", map[string]any{"app": "x"}},
		"an account without annotations is left":      {named + "," + plainText, "", reason.NoIdentity, "", map[string]any{"app": "x"}},
		"an account of another's is left":             {named + `,"annotations":{"eks.amazonaws.com/role-arn":"x"},` + plainText, "", reason.NoIdentity, "", map[string]any{"app": "x"}},
		"an account whose name is yet to be made too": {strings.Replace(withRole, `"name"`, `"generateName"`, 1), "", reason.Labeled, addLabels, map[string]any{"lanyard.dev/identity": "enabled"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pods, _ := newPods(t, nil)
			labels := &injector.Labels{Keys: pods.Keys, Invalidator: &expected{}}
			object := account(test.account)
			var old []byte
			if test.old != "" {
				old = account(test.old)
			}
			response := labels.Decide(t.Context(), write(object, old))
			if response.Denial != nil || response.Reason != test.reason {
				t.Fatalf("got %+v, want reason %s", response, test.reason)
			}
			if diff := cmp.Diff(test.patch, string(response.Patch)); diff != "" {
				t.Errorf("patch (-want +got):\n%s", diff)
			}
			result := apply(t, object, response.Patch)
			after := unmarshal(t, result)["metadata"].(map[string]any)["labels"]
			if diff := cmp.Diff(any(test.labels), after); diff != "" {
				t.Errorf("labels (-want +got):\n%s", diff)
			}
			// With its label the account is as it should be.
			if again := labels.Decide(t.Context(), write(result, nil)); again.Patch != nil {
				t.Errorf("a second pass gave %s", again.Patch)
			}
		})
	}
}

func TestAnAccountIsExpectedWhenItsLanyardAnnotationsChange(t *testing.T) {
	t.Parallel()
	app := expected{"team/app"}
	tests := map[string]struct {
		account, old string
		want         expected
	}{
		"created with some":              {withRole, "", app},
		"created with others' alone":     {named + `,"annotations":{"a":"b"}`, "", nil},
		"created with none":              {named, "", nil},
		"created with a name to be made": {strings.Replace(withRole, `"name"`, `"generateName"`, 1), "", nil},
		"updated with the same":          {withRole, withRole, nil},
		"updated with other labels":      {withRole + "," + labeled, withRole, nil},
		"updated with others' changed":   {strings.Replace(withRole, roleKey, roleKey+`,"a":"b"`, 1), withRole, nil},
		"updated with one more":          {strings.Replace(withRole, roleKey, roleKey+`,"lanyard.dev/aws-region":"eu-central-1"`, 1), withRole, app},
		"updated with another value":     {strings.Replace(withRole, "role/app", "role/other", 1), withRole, app},
		"updated with an empty value":    {strings.Replace(withRole, role, "", 1), named, app},
		"updated with the last one gone": {named, withRole, app},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got expected
			pods, _ := newPods(t, nil)
			labels := &injector.Labels{Keys: pods.Keys, Invalidator: &got}
			var old []byte
			if test.old != "" {
				old = account(test.old)
			}
			labels.Decide(t.Context(), write(account(test.account), old))
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("expected (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAnAccountWithAMistakeIsRefusedUnlessTheMistakeIsOld(t *testing.T) {
	t.Parallel()
	bad := strings.Replace(withRole, role, "not-an-arn", 1)
	worse := strings.Replace(withRole, role, "not-an-arn-either", 1)
	misspelled := strings.Replace(withRole, "aws-role-arn", "aws-rolearn", 1)
	const finalizer = `,"finalizers":["example.com/f"]`
	const deleted = `,"deletionTimestamp":"2030-01-01T00:00:00Z"`
	invalid, forbidden := summary{Reason: reason.InvalidAnnotation, Code: 400}, summary{Reason: reason.IdentityNotAllowed, Code: 403}
	valid := summary{Reason: reason.Valid}
	warned := func(r reason.Reason) summary { return summary{Reason: r} }
	tests := map[string]struct {
		account, old string
		allowed      string // the namespace's allowed-identities; none where empty
		down         bool
		want         summary
		says         []string // in the message or the warning
	}{
		"a good one":                              {account: withRole, want: valid},
		"one without annotations":                 {account: named, want: valid},
		"one of another's":                        {account: named + `,"annotations":{"eks.amazonaws.com/role-arn":"x"}`, want: valid},
		"a malformed value":                       {account: bad, want: invalid, says: []string{`serviceaccount "team/app"`, "lanyard.dev/aws-role-arn", `"not-an-arn"`}},
		"a misspelled key":                        {account: misspelled, want: invalid, says: []string{"lanyard.dev/aws-rolearn", "lanyard.dev/aws-role-arn"}},
		"an identity that the policy allows":      {account: withRole, allowed: "arn:aws:iam::111122223333:role/*", want: valid},
		"an identity outside of the policy":       {account: withRole, allowed: "arn:aws:iam::*:role/other", want: forbidden, says: []string{"team/app", role, "lanyard.dev/allowed-identities", "role/other"}},
		"a good one made bad":                     {account: bad, old: withRole, want: invalid, says: []string{`"not-an-arn"`}},
		"one mistake changed into another":        {account: worse, old: bad, want: invalid, says: []string{"not-an-arn-either"}},
		"a mistake beside an old one":             {account: strings.Replace(bad, `{"lan`, `{"lanyard.dev/aws-region":"??","lan`, 1), old: bad, want: invalid},
		"an old mistake mended":                   {account: withRole, old: bad, want: valid},
		"an old mistake taken out":                {account: named, old: bad, want: valid},
		"an old mistake left":                     {account: bad + "," + plainText, old: bad, want: warned(reason.InvalidAnnotation), says: []string{"lanyard: invalid_annotation", "lanyard.dev/aws-role-arn"}},
		"an old mistake, and others' annotations": {account: strings.Replace(bad, `{"lan`, `{"a":"b","lan`, 1), old: bad, want: warned(reason.InvalidAnnotation), says: []string{"invalid_annotation"}},
		"a deleted one that loses its finalizer":  {account: bad + deleted, old: bad + deleted + finalizer, want: warned(reason.InvalidAnnotation), says: []string{"invalid_annotation"}},
		"one that a newer policy leaves out":      {account: withRole + "," + labeled, old: withRole, allowed: "none", want: warned(reason.IdentityNotAllowed), says: []string{"identity_not_allowed"}},
		"one that is moved out of the policy":     {account: strings.Replace(withRole, "role/app", "role/x", 1), old: withRole, allowed: role, want: forbidden, says: []string{"role/x"}},
		"a new one whose policy cannot be read":   {account: withRole, down: true, want: summary{Reason: reason.LookupFailed, Code: 500}, says: []string{"connection refused"}},
		"one without identity needs no policy":    {account: named, down: true, want: valid},
		"an old one whose policy cannot be read":  {account: withRole + finalizer, old: withRole, down: true, want: warned(reason.LookupFailed), says: []string{"lookup_failed"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pods, _ := newPods(t, nil)
			if test.allowed != "" {
				pods.Namespaces = objects{"/team": {"lanyard.dev/allowed-identities": test.allowed}}
			}
			if test.down {
				pods.Namespaces = broken{errors.New("connection refused")}
			}
			var old []byte
			if test.old != "" {
				old = account(test.old)
			}
			validator := &injector.Validator{Cluster: pods.Cluster}
			response := validator.Decide(t.Context(), write(account(test.account), old))
			if diff := cmp.Diff(test.want, summaryOf(response)); diff != "" {
				t.Fatalf("decision (-want +got):\n%s", diff)
			}
			said := strings.Join(response.Warnings, "\n")
			if response.Denial != nil {
				said = response.Denial.Message
			}
			if quiet := test.want == valid; quiet != (said == "") {
				t.Errorf("got %q", said)
			}
			for _, part := range test.says {
				if !strings.Contains(said, part) {
					t.Errorf("got %q, want %q in it", said, part)
				}
			}
		})
	}
}

func TestAReviewOfNoAccountIsRefusedByBoth(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(*admission.Request)
		says   string
	}{
		"another resource":        {func(r *admission.Request) { r.Resource = "pods" }, `resource "pods"`},
		"a subresource":           {func(r *admission.Request) { r.SubResource = "token" }, `subResource "token"`},
		"another group":           {func(r *admission.Request) { r.Group = "apps" }, `group "apps"`},
		"annotations of a list":   {func(r *admission.Request) { r.Object = account(`"annotations":[]`) }, "annotations"},
		"labels that are numbers": {func(r *admission.Request) { r.Object = account(`"labels":{"a":1}`) }, "labels"},
		"an old one of a list":    {func(r *admission.Request) { r.OldObject = account(`"annotations":[]`) }, "annotations"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pods, _ := newPods(t, nil)
			var told expected
			for _, d := range []decider{&injector.Labels{Keys: pods.Keys, Invalidator: &told}, &injector.Validator{Cluster: pods.Cluster}} {
				request := write(account(withRole), account(withRole))
				test.change(request)
				response := d.Decide(t.Context(), request)
				if diff := cmp.Diff(summary{Reason: reason.InvalidReview, Code: 400}, summaryOf(response)); diff != "" {
					t.Fatalf("%T (-want +got):\n%s", d, diff)
				}
				if !strings.Contains(response.Denial.Message, test.says) {
					t.Errorf("%T: got %q, want %q in it", d, response.Denial.Message, test.says)
				}
			}
			if len(told) > 0 {
				t.Errorf("expected %v", told)
			}
		})
	}
}
