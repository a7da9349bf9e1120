// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mutate_test

import (
	"strings"
	"testing"

	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/pkg/mutate"
	"github.com/lanyard-dev/lanyard/pkg/mutate/reason"
)

// TestThePodThatIsVerified covers what the golden cases do not: the second pass, and the limit.
func TestThePodThatIsVerified(t *testing.T) {
	t.Parallel()
	s, err := mutate.ParseSettings([]byte("verify-image: image:1"), nil)
	if err != nil {
		t.Fatal(err)
	}
	many := func(n int) string {
		return `{"metadata":{},"spec":{"serviceAccountName":"app","containers":[` + strings.TrimSuffix(strings.Repeat(`{"name":"c"},`, n), ",") + `]}}`
	}
	role := map[string]string{annotations.AWSRoleARN: "arn:aws:iam::111122223333:role/app", annotations.Verify: "wait"}
	for sentence, tt := range map[string]struct {
		annotations map[string]string
		pod         string
		verified    bool
		findings    []reason.Reason // in both passes
	}{
		"a list that does not name the container": {role, `{"metadata":{"annotations":{"lanyard.dev/containers":"main"}},"spec":{"serviceAccountName":"app","containers":[{"name":"main"}]}}`, true, nil},
		"a token without a role":                  {map[string]string{annotations.Tokens: "aws", annotations.Verify: "wait"}, many(1), true, []reason.Reason{reason.EnvironmentIncomplete}},
		"the most containers with another one":    {role, many(511), true, nil},
		"another container with the name":         {role, `{"metadata":{},"spec":{"serviceAccountName":"app","containers":[{"name":"lanyard-verify"}]}}`, true, []reason.Reason{reason.NotVerified}},
		"the most containers":                     {role, many(512), false, []reason.Reason{reason.NotVerified}},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			account := &annotations.Object{Namespace: "team", Name: "app", Annotations: tt.annotations}
			text, want := []byte(tt.pod), reason.Injected
			for range 2 {
				pod, err := mutate.ReadPod(text, s)
				if err != nil {
					t.Fatal(err)
				}
				d, err := mutate.Decide(s, account, nil, pod)
				if err != nil {
					t.Fatal(err)
				}
				var got []reason.Reason
				for _, f := range d.Findings {
					got = append(got, f.Reason)
				}
				if d.Reason != want || len(got) != len(tt.findings) || len(got) > 0 && got[0] != tt.findings[0] {
					t.Errorf("got %s with %v, want %s with %v", d.Reason, d.Findings, want, tt.findings)
				}
				if text, err = d.Apply(text); err != nil {
					t.Fatal(err)
				}
				want = reason.AlreadyInjected
				if n := strings.Count(string(text), mutate.VerifyContainer); (n == 1) != tt.verified || n > 1 {
					t.Errorf("got %d containers %s", n, mutate.VerifyContainer)
				}
			}
		})
	}
}
