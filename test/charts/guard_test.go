// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/pkg/mutate"
)

// celLists returns the lists of strings in an expression that begin with an element.
func celLists(expression, first string) [][]string {
	var lists [][]string
	for _, list := range regexp.MustCompile(`\['(`+regexp.QuoteMeta(first)+`[^\]]*)'\]`).FindAllStringSubmatch(expression, -1) {
		lists = append(lists, strings.Split(list[1], "', '"))
	}
	return lists
}

// The guard and the webhook know the same kinds of volumes below which nothing can be mounted.
func TestTheGuardKnowsTheReadOnlyVolumes(t *testing.T) {
	always, ifReadOnly := mutate.ReadOnlyKinds()
	for _, suffix := range []string{"-guard-pods", "-guard-injected"} {
		expression := guardExpression(t, suffix, "")
		for _, want := range [][]string{always, ifReadOnly} {
			if diff := cmp.Diff([][]string{want}, celLists(expression, want[0]+"'")); diff != "" {
				t.Errorf("%s: kinds of volumes (-want +got):\n%s", suffix, diff)
			}
		}
	}
}

// The guard and the webhook know the same paths above the token mount path.
func TestTheGuardKnowsThePathsAboveTheTokenMountPath(t *testing.T) {
	for mountPath, first := range map[string]string{
		"/var/run/secrets/lanyard.dev/serviceaccount": "/run",
		"/run/secrets/tokens":                         "/run",
		"/var/run/tokens":                             "/run",
		"/srv/run/tokens":                             "/srv",
		"/var/lib/tokens":                             "/var",
		"/tokens":                                     "",
	} {
		var want []string
		add := func(dir string) {
			for ; dir != "/"; dir = path.Dir(dir) {
				for _, above := range []string{dir, "/var" + dir, strings.TrimPrefix(dir, "/var")} {
					if above != "" && annotations.IsInside(mountPath, above) && !annotations.IsInside(above, mountPath) {
						want = append(want, above, above+"/")
					}
				}
			}
		}
		add(path.Dir(mountPath))
		slices.Sort(want)
		want = slices.Compact(want)
		lists := celLists(guardExpression(t, "-guard-pods", "config: {token-mount-path: "+mountPath+"}"), first)
		if mountPath == "/tokens" { // an empty list
			lists, want = [][]string{{}}, []string{}
		}
		if diff := cmp.Diff([][]string{want}, lists); diff != "" {
			t.Errorf("%s (-want +got):\n%s", mountPath, diff)
		}
	}
}
