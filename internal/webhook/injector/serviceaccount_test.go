// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package injector_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lanyard-dev/lanyard/internal/webhook/admission"
	"github.com/lanyard-dev/lanyard/internal/webhook/injector"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/pkg/mutate/reason"
)

// invalidated records the calls of an Invalidator.
type invalidated []string

func (e *invalidated) Invalidate(namespace, name, resourceVersion string) {
	*e = append(*e, strings.TrimSuffix(namespace+"/"+name+"@"+resourceVersion, "@"))
}

// account returns the JSON of a ServiceAccount with this metadata.
func account(metadata string) []byte {
	return []byte(`{"apiVersion":"v1","kind":"ServiceAccount","metadata":{` + metadata + `},"secrets":[{"name":"s"}],"future":{"a":1}}`)
}

// write returns the review of a ServiceAccount that is created or, if old is set,
// updated.
func write(object, old []byte) *request {
	r := &request{Attributes: admission.Attributes{Version: "v1", Resource: "serviceaccounts", Operation: admission.Create, Namespace: "team"}, Object: object}
	if old != nil {
		r.Operation, r.OldObject = admission.Update, old
	}
	return r
}

const (
	named     = `"name":"app"`
	roleKey   = `"lanyard.dev/aws-role-arn":"` + role + `"`
	withRole  = named + `,"annotations":{` + roleKey + `}`
	labeled   = `"labels":{"app":"x","lanyard.dev/identity":"enabled"}`
	required  = `"labels":{"app":"x","lanyard.dev/identity":"required"}`
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
		"an identity key adds the label":                  {withRole + "," + plainText, "", reason.Labeled, addLabel, map[string]any{"app": "x", "lanyard.dev/identity": "enabled"}},
		"without labels it adds them whole":               {withRole, "", reason.Labeled, addLabels, map[string]any{"lanyard.dev/identity": "enabled"}},
		"null labels are none":                            {withRole + `,"labels":null`, "", reason.Labeled, addLabels, map[string]any{"lanyard.dev/identity": "enabled"}},
		"empty labels are some":                           {withRole + `,"labels":{}`, "", reason.Labeled, addLabel, map[string]any{"lanyard.dev/identity": "enabled"}},
		"another value is set right":                      {withRole + `,"labels":{"lanyard.dev/identity":"disabled"}`, "", reason.Labeled, addLabel, map[string]any{"lanyard.dev/identity": "enabled"}},
		"an empty value is set right":                     {withRole + `,"labels":{"lanyard.dev/identity":""}`, "", reason.Labeled, addLabel, map[string]any{"lanyard.dev/identity": "enabled"}},
		"a label that is there is left":                   {withRole + "," + labeled, "", reason.Labeled, "", map[string]any{"app": "x", "lanyard.dev/identity": "enabled"}},
		"a user cannot take it off":                       {withRole + "," + plainText, withRole + "," + labeled, reason.Labeled, addLabel, map[string]any{"app": "x", "lanyard.dev/identity": "enabled"}},
		"the last key takes it off":                       {named + `,"annotations":{"a":"b"},` + labeled, withRole + "," + labeled, reason.Labeled, remove, map[string]any{"app": "x"}},
		"no annotations at all take it off":               {named + "," + labeled, withRole + "," + labeled, reason.Labeled, remove, map[string]any{"app": "x"}},
		"a false label comes off":                         {named + `,"labels":{"lanyard.dev/identity":"x"}`, "", reason.Labeled, remove, map[string]any{}},
		"one of two keys leaves it":                       {withRole + "," + labeled, strings.Replace(withRole, roleKey, roleKey+`,"lanyard.dev/audience":"a"`, 1) + "," + labeled, reason.Labeled, "", map[string]any{"app": "x", "lanyard.dev/identity": "enabled"}},
		"a malformed identity is one too":                 {named + `,"annotations":{"lanyard.dev/audience":""}`, "", reason.Labeled, addLabels, map[string]any{"lanyard.dev/identity": "enabled"}},
		"a key that asks for nothing by itself":           {named + `,"annotations":{"lanyard.dev/aws-region":"eu-central-1"},` + plainText, "", reason.NoIdentity, "", map[string]any{"app": "x"}},
		"a user's label stays with an identity key":       {withRole + "," + required, "", reason.Labeled, "", map[string]any{"app": "x", "lanyard.dev/identity": "required"}},
		"a user's label stays without one":                {named + "," + required, "", reason.Labeled, "", map[string]any{"app": "x", "lanyard.dev/identity": "required"}},
		"a user's label stays when the last key goes":     {named + "," + required, withRole + "," + required, reason.Labeled, "", map[string]any{"app": "x", "lanyard.dev/identity": "required"}},
		"a user may set it in place of Lanyard's":         {withRole + "," + required, withRole + "," + labeled, reason.Labeled, "", map[string]any{"app": "x", "lanyard.dev/identity": "required"}},
		"a user may take it off, and Lanyard's comes":     {withRole + "," + plainText, withRole + "," + required, reason.Labeled, addLabel, map[string]any{"app": "x", "lanyard.dev/identity": "enabled"}},
		"a user may take it off an account without a key": {named + "," + plainText, named + "," + required, reason.NoIdentity, "", map[string]any{"app": "x"}},
		"another spelling of it is not it":                {named + `,"labels":{"lanyard.dev/identity":"Required"}`, "", reason.Labeled, remove, map[string]any{}},
		"an account without annotations is left":          {named + "," + plainText, "", reason.NoIdentity, "", map[string]any{"app": "x"}},
		"an account of another's is left":                 {named + `,"annotations":{"eks.amazonaws.com/role-arn":"x"},` + plainText, "", reason.NoIdentity, "", map[string]any{"app": "x"}},
		"an account whose name is yet to be made too":     {strings.Replace(withRole, `"name"`, `"generateName"`, 1), "", reason.Labeled, addLabels, map[string]any{"lanyard.dev/identity": "enabled"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pods, _ := newPods(t, nil)
			labels := &injector.ServiceAccountMutator{Settings: pods.Settings, Invalidator: &invalidated{}}
			object := account(test.account)
			var old []byte
			if test.old != "" {
				old = account(test.old)
			}
			response := ask(t, labels, write(object, old))
			if response.Code != 0 || response.Reason != test.reason {
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
			// A ServiceAccount with its label needs no change.
			if again := ask(t, labels, write(result, nil)); again.Patch != nil {
				t.Errorf("a second pass gave %s", again.Patch)
			}
		})
	}
}

// A mistake in the label leaves pods without their credentials.
func TestALabelWithoutAMeaningIsAWarning(t *testing.T) {
	t.Parallel()
	for label, warns := range map[string]bool{"required": false, "enabled": false, "Required": true, "require": true, "": true} {
		pods, _ := newPods(t, nil)
		labels := &injector.ServiceAccountMutator{Settings: pods.Settings, Invalidator: &invalidated{}}
		response := ask(t, labels, write(account(withRole+`,"labels":{"lanyard.dev/identity":"`+label+`"}`), nil))
		var want []string
		if warns {
			want = []string{`lanyard: the label lanyard.dev/identity was "` + label + `", which has no meaning: a user can set it to "required"`}
		}
		if diff := cmp.Diff(want, response.Warnings); diff != "" {
			t.Errorf("%q (-want +got):\n%s", label, diff)
		}
	}
}

func TestAServiceAccountIsReadAgainAfterItWasWritten(t *testing.T) {
	t.Parallel()
	created, app := invalidated{"team/app"}, invalidated{"team/app@41"}
	tests := map[string]struct {
		account, old     string
		mutator, checker invalidated
	}{
		"created with an identity":     {withRole, "", created, created},
		"created with a name to come":  {strings.Replace(withRole, `"name"`, `"generateName"`, 1), "", nil, nil},
		"updated with the same":        {withRole, withRole, app, nil},
		"updated with other labels":    {withRole + "," + labeled, withRole, app, nil},
		"updated with others' changed": {strings.Replace(withRole, roleKey, roleKey+`,"a":"b"`, 1), withRole, app, nil},
		"updated with one more":        {strings.Replace(withRole, roleKey, roleKey+`,"lanyard.dev/aws-region":"eu-central-1"`, 1), withRole, app, app},
		"updated with another value":   {strings.Replace(withRole, "role/app", "role/other", 1), withRole, app, app},
		"updated with the last gone":   {named, withRole, app, app},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var mutator, checker invalidated
			pods, _ := newPods(t, nil)
			var old []byte
			if test.old != "" {
				old = account(test.old + `,"resourceVersion":"41"`)
			}
			ask(t, &injector.ServiceAccountMutator{Settings: pods.Settings, Invalidator: &mutator}, write(account(test.account), old))
			ask(t, &injector.ServiceAccountValidator{Config: pods.Config, Invalidator: &checker}, write(account(test.account), old))
			if diff := cmp.Diff(test.mutator, mutator); diff != "" {
				t.Errorf("mutator (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.checker, checker); diff != "" {
				t.Errorf("validator (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAnAccountWithAMistakeIsRefusedUnlessTheMistakeIsOld(t *testing.T) {
	t.Parallel()
	bad := strings.Replace(withRole, role, "not-an-arn", 1)
	worse := strings.Replace(withRole, role, "not-an-arn-either", 1)
	verified := strings.Replace(withRole, `{"lan`, `{"lanyard.dev/verify":"wait","lan`, 1)
	misspelled := strings.Replace(withRole, "aws-role-arn", "aws-rolearn", 1)
	const finalizer = `,"finalizers":["example.com/f"]`
	const deleted = `,"deletionTimestamp":"2030-01-01T00:00:00Z"`
	invalid, forbidden := summary{Reason: reason.InvalidAnnotation, Code: 400}, summary{Reason: reason.IdentityNotAllowed, Code: 403}
	valid := summary{Reason: reason.Valid}
	warned := func(r reason.Reason) summary { return summary{Reason: r} }
	tests := map[string]struct {
		account, old string
		allowed      string // the namespace's allowed-identities; none where empty
		image        string // that verifies
		down         bool
		want         summary
		says         []string // in the message or the warning
	}{
		"a good one":                              {account: withRole, want: valid},
		"one without annotations":                 {account: named, want: valid},
		"one of another's":                        {account: named + `,"annotations":{"eks.amazonaws.com/role-arn":"x"}`, want: valid},
		"a malformed value":                       {account: bad, want: invalid, says: []string{`serviceaccount "team/app"`, "lanyard.dev/aws-role-arn", `"not-an-arn"`}},
		"verify without an image":                 {account: verified, old: withRole, want: invalid, says: []string{`metadata.annotations[lanyard.dev/verify]: Forbidden: has value "wait", but the cluster has no image`, "set verifiedStart.enabled in the chart, or --verify-image"}},
		"verify without an image any more":        {account: verified + "," + plainText, old: verified, want: warned(reason.InvalidAnnotation), says: []string{"the cluster has no image that verifies"}},
		"verify with an image":                    {account: verified, image: "image:1", want: valid},
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
			if test.image != "" {
				with := *pods.Settings
				with.VerifyImage = test.image
				pods.Settings = &with
			}
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
			validator := &injector.ServiceAccountValidator{Config: pods.Config, Invalidator: &invalidated{}}
			response := ask(t, validator, write(account(test.account), old))
			if diff := cmp.Diff(test.want, summaryOf(response)); diff != "" {
				t.Fatalf("decision (-want +got):\n%s", diff)
			}
			said := strings.Join(response.Warnings, "\n")
			if response.Code != 0 {
				said = response.Message
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

// The region may be set later, so the write must not be denied.
func TestARegionThatCannotServeTheRoleIsAWarning(t *testing.T) {
	t.Parallel()
	pods, _ := newPods(t, nil)
	validator := &injector.ServiceAccountValidator{Config: pods.Config, Invalidator: &invalidated{}}
	for region, want := range map[string][]string{
		"cn-north-1": nil,
		"eu-central-1": {"lanyard: lanyard.dev/aws-region: the region eu-central-1 belongs to the partition aws and the role to aws-cn, " +
			"so SDKs cannot exchange the token: set a region of the role's partition"},
		"": {"lanyard: lanyard.dev/aws-region: the role belongs to the partition aws-cn, which has no endpoint without a region, " +
			"so SDKs cannot exchange the token: set a region of the partition"},
	} {
		object := named + `,"annotations":{"lanyard.dev/aws-role-arn":"` + strings.Replace(role, "arn:aws:", "arn:aws-cn:", 1) + `"`
		if region != "" {
			object += `,"lanyard.dev/aws-region":"` + region + `"`
		}
		response := ask(t, validator, write(account(object+"}"), nil))
		if diff := cmp.Diff(want, response.Warnings); diff != "" || response.Reason != reason.Valid {
			t.Errorf("region %q: got reason %s, want %s; warnings (-want +got):\n%s", region, response.Reason, reason.Valid, diff)
		}
	}
}

func TestAReviewOfSomethingElseIsAFaultOfBoth(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(*request)
		code   int
		says   string
	}{
		"another resource":         {func(r *request) { r.Resource = "pods" }, 503, `resource "pods"`},
		"a subresource":            {func(r *request) { r.SubResource = "token" }, 503, `subResource "token"`},
		"another group":            {func(r *request) { r.Group = "apps" }, 503, `group "apps"`},
		"annotations of a list":    {func(r *request) { r.Object = account(`"annotations":[]`) }, 400, "annotations"},
		"a label that is a number": {func(r *request) { r.Object = account(`"labels":{"lanyard.dev/identity":1}`) }, 400, "labels"},
		"an old one of a list":     {func(r *request) { r.OldObject = account(`"annotations":[]`) }, 400, "annotations"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pods, _ := newPods(t, nil)
			var told invalidated
			r := write(account(withRole), account(withRole))
			test.change(r)
			for name, response := range map[string]decision{
				"mutator":   ask(t, &injector.ServiceAccountMutator{Settings: pods.Settings, Invalidator: &told}, r),
				"validator": ask(t, &injector.ServiceAccountValidator{Config: pods.Config, Invalidator: &told}, r),
			} {
				if diff := cmp.Diff(summary{Reason: reason.InvalidReview, Code: test.code}, summaryOf(response)); diff != "" {
					t.Fatalf("%s (-want +got):\n%s", name, diff)
				}
				if !strings.Contains(response.Message, test.says) {
					t.Errorf("%s: got %q, want %q in it", name, response.Message, test.says)
				}
			}
			if len(told) > 0 {
				t.Errorf("expected %v", told)
			}
		})
	}
}

// mapper returns a mutator with a mapping for the ServiceAccounts team/app*.
func mapper(t *testing.T) *injector.ServiceAccountMutator {
	t.Helper()
	pods, _ := newPods(t, nil)
	values := map[string]string{"lanyard.dev/aws-role-arn": role, "lanyard.dev/aws-region": "eu-central-1"}
	mapping, errs := pods.NewMapping("team", "app*", values)
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
