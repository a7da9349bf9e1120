// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package provider_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lanyard-dev/lanyard/internal/provider"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

func TestARoleNeedsARegionOfItsPartition(t *testing.T) {
	t.Parallel()
	s, err := annotations.NewSettings(provider.Builtin())
	if err != nil {
		t.Fatal(err)
	}
	for sentence, tt := range map[string]struct{ partition, region, want string }{
		"no region is needed":                 {"aws", "", ""},
		"a region":                            {"aws", "eu-central-1", ""},
		"a region that is newer than Lanyard": {"aws", "xx-north-9", ""},
		"China":                               {"aws-cn", "cn-north-1", ""},
		"China without a region":              {"aws-cn", "", "lanyard.dev/aws-region: the role belongs to the partition aws-cn, which has no endpoint without a region"},
		"China with a region of another partition": {"aws-cn", "eu-central-1", "the region eu-central-1 belongs to the partition aws and the role to aws-cn"},
		"a region of GovCloud":                     {"aws", "us-gov-west-1", "the region us-gov-west-1 belongs to the partition aws-us-gov and the role to aws"},
		"a region of Europe's partition":           {"aws", "eusc-de-east-1", "belongs to the partition aws-eusc"},
		"regions with the same start":              {"aws-iso", "us-isob-east-1", "belongs to the partition aws-iso-b"},
		"a partition that is newer than Lanyard":   {"aws-iso-z", "us-isoz-east-1", ""},
		"such a partition without a region":        {"aws-iso-z", "", "the partition aws-iso-z, which has no endpoint"},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			values := map[string]string{annotations.AWSRoleARN: "arn:" + tt.partition + ":iam::111122223333:role/app"}
			if tt.region != "" {
				values[annotations.AWSRegion] = tt.region
			}
			account, errs := s.ParseServiceAccount("team", "app", values)
			if len(errs) > 0 {
				t.Fatal(errs)
			}
			got := strings.Join(account.Doubts(), "\n")
			if (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// The region is the same for all profiles.
func TestTheRegionOfAProfileCounts(t *testing.T) {
	t.Parallel()
	s, err := annotations.NewSettings(provider.Builtin())
	if err != nil {
		t.Fatal(err)
	}
	account, errs := s.ParseServiceAccount("team", "app", map[string]string{
		annotations.AWSRoleARN: "arn:aws:iam::111122223333:role/app", annotations.AWSRegion: "eu-central-1",
		annotations.AWSRoleARN + ".audit": "arn:aws:iam::111122223333:role/audit", annotations.AWSRoleARN + ".china": "arn:aws-cn:iam::111122223333:role/app",
	})
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	want := []string{"lanyard.dev/aws-role-arn.china: the region eu-central-1 belongs to the partition aws and the role to aws-cn, so SDKs cannot exchange the token: set a region of the role's partition"}
	if diff := cmp.Diff(want, account.Doubts()); diff != "" {
		t.Errorf("doubts (-want +got):\n%s", diff)
	}
}

// The defaults of the cluster count, and a token without a role belongs to no partition.
func TestTheRegionOfTheClusterCounts(t *testing.T) {
	t.Parallel()
	s, err := annotations.NewSettings(provider.Builtin())
	if err != nil {
		t.Fatal(err)
	}
	s.Parameters = map[string]string{"aws-region": "cn-north-1"}
	for role, doubts := range map[string]int{"arn:aws-cn:iam::111122223333:role/app": 0, "arn:aws:iam::111122223333:role/app": 1} {
		account, errs := s.ParseServiceAccount("team", "app", map[string]string{annotations.AWSRoleARN: role})
		if len(errs) > 0 || len(account.Doubts()) != doubts {
			t.Errorf("%s: got %q and errors %v, want %d doubts", role, account.Doubts(), errs, doubts)
		}
	}
	account, errs := s.ParseServiceAccount("team", "app", map[string]string{annotations.Tokens: "aws"})
	if len(errs) > 0 || len(account.Doubts()) != 0 {
		t.Errorf("a token: got %q and errors %v, want none", account.Doubts(), errs)
	}
}
