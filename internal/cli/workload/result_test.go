// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/lanyard-dev/lanyard/internal/cli/cluster"
	"github.com/lanyard-dev/lanyard/internal/cli/command"
	"github.com/lanyard-dev/lanyard/internal/finding"
	"github.com/lanyard-dev/lanyard/pkg/mutate"
	"github.com/lanyard-dev/lanyard/pkg/mutate/injected"
	"github.com/lanyard-dev/lanyard/pkg/mutate/reason"
)

// ofStates returns a row with one pod of each state.
func ofStates(workload string, states ...injected.State) Row {
	row := Row{Namespace: "shop", ServiceAccount: "cart", Pods: len(states), States: map[injected.State]int{}}
	row.setWorkload(workload)
	for _, state := range states {
		row.States[state] = 1
	}
	return row
}

func TestARowHasEachFactOfItsPodsOnce(t *testing.T) {
	t.Parallel()
	shadow := mutate.Finding{Reason: reason.EnvironmentShadowed, Container: "main"}
	difference := injected.Difference{Container: "main", Field: "aws-region"}
	of := func(state injected.State, v verdict) *pod {
		v.State = state
		return &pod{verdict: v}
	}
	row := Row{States: map[injected.State]int{}}
	for _, p := range []*pod{
		of(Shadowed, verdict{Shadows: []mutate.Finding{shadow}}), of(Shadowed, verdict{Shadows: []mutate.Finding{shadow}}),
		of(injected.Stale, verdict{Shadows: []mutate.Finding{{Container: "stale"}}, Local: "no right"}),
		of(injected.Without, verdict{Local: "no right to dry runs"}),
		of(injected.Unknown, verdict{Problem: "a"}), of(injected.Unknown, verdict{Problem: "b", Local: "no"}), of(injected.Unknown, verdict{Problem: "a"}),
		of(injected.Current, verdict{Problem: "current", Local: "current", Comparison: injected.Comparison{Differences: []injected.Difference{difference}}}),
		of(injected.Current, verdict{Comparison: injected.Comparison{Differences: []injected.Difference{difference}}}),
	} {
		row.count(p)
	}
	want := Row{
		Pods: 9, States: map[injected.State]int{Shadowed: 2, injected.Stale: 1, injected.Without: 1, injected.Unknown: 3, injected.Current: 2},
		Shadows: []mutate.Finding{shadow}, Differences: []injected.Difference{difference}, Problem: "a; b", Local: "no right",
	}
	if diff := cmp.Diff(want, row, cmpopts.IgnoreUnexported(Row{})); diff != "" {
		t.Errorf("row (-want +got):\n%s", diff)
	}
}

func TestTheResultOfStatus(t *testing.T) {
	t.Parallel()
	shadowed := ofStates("deployment/keys", Shadowed)
	shadowed.Shadows = []mutate.Finding{{Reason: reason.EnvironmentShadowed, Container: "main", Detail: "it sets X", Fix: "Remove X."}}
	unknown := ofStates("deployment/x", injected.Unknown)
	unknown.Problem = "no right"
	local := ofStates("deployment/cart", injected.Stale)
	local.Local = "you may not create pods in the namespace shop"
	paused := ofStates("deployment/held", injected.Stale)
	paused.owner.ByHand = "it is paused"
	warned := ofStates("deployment/cart", injected.Current)
	warned.Guard, warned.GuardProblem = cluster.GuardOff, "the policy only warns"
	for sentence, test := range map[string]struct {
		rows  []Row
		stale bool
		names []string // for kubectl rollout restart
		want  string   // a part of the findings and the last line
		err   error
	}{
		"nothing is wrong": {[]Row{ofStates("deployment/cart", injected.Current)}, false, []string{"deployment/cart"}, "1 pod: 1 current\n", nil},
		"kinds that a restart replaces": {
			[]Row{ofStates("deployment/a", injected.Stale), ofStates("statefulset/b", injected.Without), ofStates("daemonset/c", injected.Stale, injected.Current), ofStates("cronjob/d", injected.Stale), ofStates("pod/e", injected.Without)},
			true, []string{"deployment/a", "statefulset/b", "daemonset/c"},
			"  ‼ 3 pods must be replaced\n    Restart their workloads: kubectl rollout restart $(lanyard status --stale -o name -n shop) -n shop\n" +
				"  ‼ 2 other pods must be replaced\n    No restart does that. See: lanyard explain cronjob/d --namespace shop\n6 pods: 1 current, 3 stale, 2 without\n", command.ErrFound,
		},
		"a workload that cannot be restarted": {
			[]Row{paused}, true, nil, "  ‼ 1 pod must be replaced\n    No restart does that. See: lanyard explain deployment/held --namespace shop\n1 pod: 1 stale\n", command.ErrFound,
		},
		"only others": {
			[]Row{ofStates("job/d", injected.Stale)}, true, nil, "  ‼ 1 pod must be replaced\n    No restart does that. See: lanyard explain job/d --namespace shop\n1 pod: 1 stale\n", command.ErrFound,
		},
		"a pod with its own keys": {[]Row{shadowed}, false, []string{"deployment/keys"}, "  × shop: deployment/keys: container main: it sets X\n    Remove X.\n1 pod: 1 shadowed\n", command.ErrFound},
		"nothing is known": {
			[]Row{unknown}, false, []string{"deployment/x"}, "  ? shop/cart: unknown: no right\n    See: lanyard explain deployment/x --namespace shop\n1 pod: 1 unknown\n", errIncomplete,
		},
		"without dry runs": {[]Row{local}, false, []string{"deployment/cart"}, "  - new pods were evaluated here, not by the cluster: you may not create pods, in the namespace shop\n", nil},
		"the guard only warns": {
			[]Row{warned, warned}, false, []string{"deployment/cart"},
			"  - ServiceAccounts with the guard's label are unguarded: the policy only warns\n    See: lanyard check\n2 pods: 2 current\n", nil,
		},
		"the guard only warns, and no row is shown": {[]Row{warned}, true, nil, "every pod has the credentials that its ServiceAccount asks for\n", nil},
		"nothing is outdated":                       {[]Row{ofStates("deployment/cart", injected.Current)}, true, nil, "every pod has the credentials that its ServiceAccount asks for\n", nil},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			r := &statusResult{Summary: summary{States: map[injected.State]int{}}, query: new(query), stale: test.stale, local: map[string][]string{}}
			r.add(test.rows, nil)
			r.conclude()
			if got := r.Names(); !slices.Equal(got, test.names) {
				t.Errorf("got the names %q, want %q", got, test.names)
			}
			var out bytes.Buffer
			p := &command.Page{W: &out}
			r.Print(p)
			if r.printEnd(p); !strings.Contains(out.String(), test.want) {
				t.Errorf("got %s, want %s", out.String(), test.want)
			}
			if err := r.err(); !errors.Is(err, test.err) {
				t.Errorf("got error %v, want %v", err, test.err)
			}
			for _, f := range r.Findings {
				if f.Fix == "" && f.Status != finding.NotApplicable {
					t.Errorf("got %+v without a next step", f)
				}
			}
		})
	}
}

// A mistyped name selects nothing, and explain would report that the object does not exist.
func TestANameThatSelectsNothingHasANextStep(t *testing.T) {
	t.Parallel()
	r := &statusResult{Summary: summary{States: map[injected.State]int{}}, query: &query{scope: "shop", names: []string{"deployment/crat"}}}
	var out bytes.Buffer
	r.printEnd(&command.Page{W: &out})
	const want = "no pod of a ServiceAccount that asks for an identity is selected. To see why: lanyard explain deployment/crat --namespace shop\n"
	if out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}

func TestTheErrorOfStatusCounts(t *testing.T) {
	t.Parallel()
	r := newStatusResult(new(query))
	unknown := ofStates("deployment/x", injected.Unknown)
	unknown.Problem = "no right"
	r.add([]Row{unknown}, nil)
	if want := "the result is not complete: 1 part could not be read or compared, 1 pod unknown. The reasons are in the output"; r.err().Error() != want {
		t.Errorf("got %q, want %q", r.err(), want)
	}
}
