// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"bytes"
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lanyard-dev/lanyard/internal/cli/cluster"
	"github.com/lanyard-dev/lanyard/internal/cli/command"
	"github.com/lanyard-dev/lanyard/pkg/mutate/injected"
)

func TestStatusFitsTheTerminal(t *testing.T) {
	t.Parallel()
	rows := []Row{
		{Namespace: "shop", ServiceAccount: "cart", Guard: cluster.GuardOn, Workload: "deployment/cart", Pods: 2, States: map[injected.State]int{injected.Current: 2}},
		{
			Namespace: "shop", ServiceAccount: "cart", Guard: cluster.GuardOn, Workload: "statefulset/a-name-of-more-characters-than-the-column-has",
			Pods: 10, States: map[injected.State]int{injected.Stale: 9, injected.OptedOut: 1}, Differences: []injected.Difference{{Container: "main", Field: "aws-role-arn", Got: "a", Want: "b"}},
		},
		{Namespace: "shop", ServiceAccount: "mail", Guard: cluster.GuardOff},
	}
	for width, want := range map[int]string{
		0: "NAMESPACE  SERVICEACCOUNT  GUARD      WORKLOAD                                               PODS  CURRENT  STALE  WITHOUT  OTHER\n" +
			"shop       cart            guarded    deployment/cart                                        2     2        0      0\n" +
			"shop       cart            guarded    statefulset/a-name-of-more-characters-than-the-column-has  10    0        9      0        1 opted-out\n" +
			"shop       mail            unguarded  -                                                      0     0        0      0\n" +
			"  shop: statefulset/a-name-of-more-characters-than-the-column-has: main: aws-role-arn: running pod a, new pod b\n",
		80: "  WORKLOAD                           PODS  CURRENT  STALE  WITHOUT  OTHER\n" +
			"shop/cart (guarded)\n" +
			"  deployment/cart                    2     2        0      0\n" +
			"  statefulset/a-name-of-more-        10    0        9      0        1 opted-out\n" +
			"  characters-than-the-column-has\n" +
			"shop/mail (unguarded)\n" +
			"  -                                  0     0        0      0\n" +
			"  shop: statefulset/a-name-of-more-characters-than-the-column-has: main:\n" +
			"  aws-role-arn: running pod a, new pod b\n",
	} {
		var out bytes.Buffer
		p := &command.Page{W: &out, Width: width}
		(&statusResult{Workloads: rows, query: new(query)}).Print(p)
		spaces := regexp.MustCompile(" +")
		got := out.String()
		if width == 0 { // except for the number of spaces: see TestTables
			got, want = spaces.ReplaceAllString(got, " "), spaces.ReplaceAllString(want, " ")
		}
		if diff := cmp.Diff(want, got); diff != "" || p.Err != nil {
			t.Errorf("width %d (-want +got):\n%s%v", width, diff, p.Err)
		}
	}
}
