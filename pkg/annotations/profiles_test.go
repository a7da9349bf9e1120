// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package annotations_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

const (
	auditARN  = "arn:aws:iam::444455556666:role/audit"
	backupARN = "arn:aws:iam::444455556666:role/backup"
)

func TestParseServiceAccountReturnsTheProfiles(t *testing.T) {
	t.Parallel()
	const prefix = "arn:aws:iam::111122223333:role/"
	cluster := settingsWith(t, "aws-role-arn-prefix", prefix, "aws-role-arn", prefix+"{namespace}/{serviceaccount}")
	chain, chained := map[string]string{}, []annotations.Profile{}
	for i := range annotations.MaxProfiles {
		name := fmt.Sprintf("p%02d", i)
		chain["aws-role-arn."+name] = auditARN
		chained = append(chained, annotations.Profile{Name: name, Identity: auditARN})
		if i > 0 {
			chained[i].Source = fmt.Sprintf("p%02d", i-1)
			chain["aws-source-profile."+name] = chained[i].Source
		}
	}
	for sentence, tt := range map[string]struct {
		annotations map[string]string // without the prefix, and without the role
		want        []annotations.Profile
	}{
		"none":                      {nil, nil},
		"one, with the token":       {map[string]string{"aws-role-arn.audit": auditARN}, []annotations.Profile{{Name: "audit", Identity: auditARN}}},
		"several, sorted by name":   {map[string]string{"aws-role-arn.b": backupARN, "aws-role-arn.a": auditARN}, []annotations.Profile{{Name: "a", Identity: auditARN}, {Name: "b", Identity: backupARN}}},
		"a role's name":             {map[string]string{"aws-role-arn.audit": "team/audit"}, []annotations.Profile{{Name: "audit", Identity: prefix + "team/audit"}}},
		"the cluster's role":        {map[string]string{"aws-role-arn.audit": "default"}, []annotations.Profile{{Name: "audit", Identity: prefix + "team/loki"}}},
		"a name with dots":          {map[string]string{"aws-role-arn.team.audit": auditARN}, []annotations.Profile{{Name: "team.audit", Identity: auditARN}}},
		"the name of the word":      {map[string]string{"aws-role-arn.PROFILE": auditARN}, []annotations.Profile{{Name: "PROFILE", Identity: auditARN}}},
		"with the ServiceAccount's": {map[string]string{"aws-role-arn.audit": auditARN, "aws-source-profile.audit": "default"}, []annotations.Profile{{Name: "audit", Identity: auditARN, Source: "default"}}},
		"as many as may be, each with the one before it": {chain, chained},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			given := prefixed(tt.annotations)
			given["lanyard.dev/aws-role-arn"] = roleARN
			account, errs := cluster.ParseServiceAccount("team", "loki", given)
			if len(errs) > 0 {
				t.Fatal(errs.ToAggregate())
			}
			if diff := cmp.Diff(tt.want, account.Identities[0].Profiles); diff != "" {
				t.Errorf("profiles (-want +got):\n%s", diff)
			}
			if got, want := len(account.Principals()), 1+len(tt.want); got != want {
				t.Errorf("got %d principals, want %d", got, want)
			}
		})
	}
}

func TestParseServiceAccountDeniesProfiles(t *testing.T) {
	t.Parallel()
	const grammar = `it must be 1 to 44 of a-z, A-Z, 0-9, ".", "_" and "-", with a letter or a digit at both ends`
	tooMany := map[string]string{"aws-role-arn": roleARN}
	for i := range annotations.MaxProfiles + 1 {
		tooMany[fmt.Sprintf("aws-role-arn.p%d", i)] = auditARN
	}
	tooLong := map[string]string{"aws-role-arn": roleARN}
	for i := range 7 {
		tooLong[fmt.Sprintf("aws-role-arn.p%d", i)] = "arn:aws:iam::444455556666:role/" + strings.Repeat("p", 500) + "/" + strings.Repeat("r", 27)
	}
	manySources := map[string]string{"aws-role-arn": roleARN}
	for i := range annotations.MaxProfiles {
		name := fmt.Sprintf("p%043d", i)
		manySources["aws-role-arn."+name] = "arn:aws:iam::444455556666:role/" + strings.Repeat("p", 64)
		if i > 0 {
			manySources["aws-source-profile."+name] = fmt.Sprintf("p%043d", i-1)
		}
	}
	longName := strings.Repeat("a", 45)
	for sentence, tt := range map[string]struct {
		annotations map[string]string // without the prefix
		want        []string
	}{
		"without a role of its own": {
			map[string]string{"aws-role-arn.audit": auditARN, "aws-source-profile.audit": "default"},
			[]string{
				`metadata.annotations[lanyard.dev/aws-role-arn.audit]: Forbidden: has value "` + auditARN + `" but no effect without lanyard.dev/aws-role-arn`,
				`metadata.annotations[lanyard.dev/aws-source-profile.audit]: Forbidden: has value "default" but no effect without lanyard.dev/aws-role-arn`,
			},
		},
		"with the token alone": {
			map[string]string{"tokens": "aws", "aws-role-arn.audit": auditARN},
			[]string{`metadata.annotations[lanyard.dev/aws-role-arn.audit]: Forbidden: has value "` + auditARN + `" but no effect without lanyard.dev/aws-role-arn`},
		},
		"a malformed role": {
			map[string]string{"aws-role-arn": roleARN, "aws-role-arn.audit": "audit\n[default]"},
			[]string{`metadata.annotations[lanyard.dev/aws-role-arn.audit]: Invalid value: "audit\n[default]": must be the ARN of an IAM role, such as arn:aws:iam::111122223333:role/name`},
		},
		"an empty role": {
			map[string]string{"aws-role-arn": roleARN, "aws-role-arn.audit": ""},
			[]string{`metadata.annotations[lanyard.dev/aws-role-arn.audit]: Invalid value: "": must be the ARN of an IAM role, such as arn:aws:iam::111122223333:role/name`},
		},
		"the word default where the cluster has no role": {
			map[string]string{"aws-role-arn": roleARN, "aws-role-arn.audit": "default"},
			[]string{`metadata.annotations[lanyard.dev/aws-role-arn.audit]: Required value: set lanyard.dev/aws-role-arn.audit to a value: the cluster has no default (--aws-default-role-arn)`},
		},
		"the name of the ServiceAccount's own role": {
			map[string]string{"aws-role-arn": roleARN, "aws-role-arn.default": auditARN},
			[]string{`metadata.annotations[lanyard.dev/aws-role-arn.default]: Forbidden: the name of a profile is "default"; it must not be "default", which is the ServiceAccount's own identity`},
		},
		"a name with a line break": {
			map[string]string{"aws-role-arn": roleARN, "aws-role-arn.a]\n[b": auditARN},
			[]string{"metadata.annotations[lanyard.dev/aws-role-arn.a]\n[b]: Forbidden: the name of a profile is \"a]\\n[b\"; " + grammar},
		},
		"no name": {
			map[string]string{"aws-role-arn": roleARN, "aws-role-arn.": auditARN},
			[]string{`metadata.annotations[lanyard.dev/aws-role-arn.]: Forbidden: the name of a profile is ""; ` + grammar},
		},
		"a name that is too long": {
			map[string]string{"aws-role-arn": roleARN, "aws-role-arn." + longName: auditARN},
			[]string{`metadata.annotations[lanyard.dev/aws-role-arn.` + longName + `]: Forbidden: the name of a profile is "` + longName + `"; ` + grammar},
		},
		"a source without a role": {
			map[string]string{"aws-role-arn": roleARN, "aws-source-profile.audit": "default"},
			[]string{`metadata.annotations[lanyard.dev/aws-source-profile.audit]: Forbidden: has value "default" but no effect without lanyard.dev/aws-role-arn.audit`},
		},
		"a source that is not there": {
			map[string]string{"aws-role-arn": roleARN, "aws-role-arn.b": backupARN, "aws-role-arn.audit": auditARN, "aws-source-profile.audit": "c"},
			[]string{`metadata.annotations[lanyard.dev/aws-source-profile.audit]: Invalid value: "c": must be a profile of this ServiceAccount: default, audit, b`},
		},
		"an empty source": {
			map[string]string{"aws-role-arn": roleARN, "aws-role-arn.audit": auditARN, "aws-source-profile.audit": ""},
			[]string{`metadata.annotations[lanyard.dev/aws-source-profile.audit]: Invalid value: "": must be a profile of this ServiceAccount: default, audit`},
		},
		"a source of its own": {
			map[string]string{"aws-role-arn": roleARN, "aws-role-arn.audit": auditARN, "aws-source-profile.audit": "audit"},
			[]string{`metadata.annotations[lanyard.dev/aws-source-profile.audit]: Invalid value: "audit": must not lead in a circle: audit -> audit`},
		},
		"a circle, and a profile that leads into it": {
			map[string]string{
				"aws-role-arn": roleARN, "aws-role-arn.a": auditARN, "aws-role-arn.b": auditARN, "aws-role-arn.c": auditARN,
				"aws-source-profile.a": "b", "aws-source-profile.b": "c", "aws-source-profile.c": "b",
			},
			[]string{
				`metadata.annotations[lanyard.dev/aws-source-profile.a]: Invalid value: "b": must not lead in a circle: a -> b -> c -> b`,
				`metadata.annotations[lanyard.dev/aws-source-profile.b]: Invalid value: "c": must not lead in a circle: b -> c -> b`,
				`metadata.annotations[lanyard.dev/aws-source-profile.c]: Invalid value: "b": must not lead in a circle: c -> b -> c`,
			},
		},
		"too many": {
			tooMany,
			[]string{`metadata.annotations[lanyard.dev/aws-role-arn.PROFILE]: Too many: 17: must have at most 16 items`},
		},
		"together too long": {
			tooLong,
			[]string{`metadata.annotations[lanyard.dev/aws-role-arn.PROFILE]: Invalid value: "4102 bytes": all profiles together must have at most 4096 bytes, keys and values, with short values in their full form`},
		},
		"together too long with their sources": {
			manySources,
			[]string{`metadata.annotations[lanyard.dev/aws-role-arn.PROFILE]: Invalid value: "4409 bytes": all profiles together must have at most 4096 bytes, keys and values, with short values in their full form`},
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			account, errs := newSettings(t).ParseServiceAccount("team", "loki", prefixed(tt.annotations))
			if diff := cmp.Diff(tt.want, messages(errs)); diff != "" {
				t.Errorf("errors (-want +got):\n%s", diff)
			}
			if account != nil {
				t.Errorf("got the identities %+v in addition to the errors", account)
			}
		})
	}
}

func TestProfileNamesHaveAGrammar(t *testing.T) {
	t.Parallel()
	for name, valid := range map[string]bool{
		"audit": true, "a": true, "Team_1.audit-eu": true, strings.Repeat("a", 44): true, "0": true,
		"": false, "default": false, strings.Repeat("a", 45): false, "-a": false, "a-": false, ".a": false, "_": false,
		"a b": false, "a]": false, "a\nb": false, "a\n": false, "\na": false, "a=b": false, "a/b": false, "ä": false, "a\t": false, "a#": false,
	} {
		_, errs := newSettings(t).ParseServiceAccount("team", "loki", prefixed(map[string]string{"aws-role-arn": roleARN, "aws-role-arn." + name: auditARN}))
		if (len(errs) == 0) != valid {
			t.Errorf("%q: got errors %v, want valid %t", name, errs, valid)
		}
	}
}

// Short names in annotations must not make the file larger than the limit of the annotations.
func TestTheSizeOfProfilesIsThatOfTheirFullForm(t *testing.T) {
	t.Parallel()
	given := map[string]string{"lanyard.dev/aws-role-arn": "app"}
	for i := range annotations.MaxProfiles {
		given[fmt.Sprintf("lanyard.dev/aws-role-arn.p%d", i)] = "r"
	}
	short := settingsWith(t, "aws-role-arn-prefix", "arn:aws:iam::111122223333:role/")
	if _, errs := short.ParseServiceAccount("team", "loki", given); len(errs) > 0 {
		t.Errorf("got %v, want no error with a short prefix", errs.ToAggregate())
	}
	long := settingsWith(t, "aws-role-arn-prefix", "arn:aws:iam::111122223333:role/"+strings.Repeat("p", 400)+"/")
	if _, errs := long.ParseServiceAccount("team", "loki", given); len(errs) != 1 || !strings.Contains(errs[0].Detail, "all profiles together") {
		t.Errorf("got %v, want one error about the size with a long prefix", errs.ToAggregate())
	}
}

func TestThousandsOfProfilesAreOneShortMessage(t *testing.T) {
	t.Parallel()
	for _, role := range []string{"aws-role-arn", "aws-region"} { // with an identity, and without
		given := map[string]string{"lanyard.dev/" + role: roleARN}
		for i := range 5000 {
			given[fmt.Sprintf("lanyard.dev/aws-role-arn.%d", i)] = strings.Repeat("x", 200)
			given[fmt.Sprintf("lanyard.dev/aws-source-profile.%d", i)] = strings.Repeat("y", 200)
		}
		_, errs := clusterSettings(t).ParseServiceAccount("team", "loki", given)
		if size := len(errs.ToAggregate().Error()); len(errs) == 0 || len(errs) > 20 || size > 8192 {
			t.Errorf("%s: got %d errors of %d bytes, want 1 to 20 of at most 8192", role, len(errs), size)
		}
	}
}

func TestPodsCannotHaveProfiles(t *testing.T) {
	t.Parallel()
	_, errs := newSettings(t).ParsePod(map[string]string{"lanyard.dev/aws-role-arn.audit": auditARN}, "")
	if len(errs) != 1 || !strings.Contains(errs[0].Detail, "identities are set on the ServiceAccount") {
		t.Errorf("got %v, want the key denied", errs)
	}
}

func TestAProfileDoesNotAskForAnIdentity(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"lanyard.dev/aws-role-arn.audit", "lanyard.dev/aws-source-profile.audit"} {
		if newSettings(t).IsIdentity(key) {
			t.Errorf("%s asks for an identity, want only the ServiceAccount's own role to", key)
		}
	}
}

func TestAMappingMayHaveProfiles(t *testing.T) {
	t.Parallel()
	s := newSettings(t)
	s.Mappings = []*annotations.Mapping{newMapping(t, "*", "*", "aws-role-arn", roleARN, "aws-role-arn.audit", auditARN)}
	want := prefixed(map[string]string{"aws-role-arn": roleARN, "aws-role-arn.audit": auditARN})
	if diff := cmp.Diff(want, s.Map("team", "loki", nil)); diff != "" {
		t.Errorf("added (-want +got):\n%s", diff)
	}
	has := prefixed(map[string]string{"aws-role-arn.backup": backupARN})
	if added := s.Map("team", "loki", has); added != nil {
		t.Errorf("got %v for a ServiceAccount with a profile of its own, want nothing", added)
	}
}
