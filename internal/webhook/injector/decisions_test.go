// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package injector_test

import (
	"context"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lanyard-dev/lanyard/internal/webhook/injector"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/test/support/decisions"
	"github.com/lanyard-dev/lanyard/test/support/optionstest"
)

const goldenDir = "../../../test/decisions"

var update = flag.Bool("update", false, "write the golden files")

// TestDecisions decides about the pod of each golden case, and compares the decision with what
// the case expects. With a peer, it compares the stored pod for both orders of the webhooks.
func TestDecisions(t *testing.T) {
	t.Parallel()
	for _, c := range goldenCases(t) {
		t.Run(c.Theme+"/"+strings.ReplaceAll(c.Name, "-", " "), func(t *testing.T) {
			t.Parallel()
			if c.Theme == decisions.Peers {
				holdsExpected(t, c, &decisions.Want{PeerFirst: stored(t, c, true), LanyardFirst: stored(t, c, false)})
				return
			}
			holdsExpected(t, c, decide(t, c))
		})
	}
}

// goldenCases returns all golden cases. With -update, a case may have no expected decision yet.
// Only TestDecisions calls it: that test may write the files.
func goldenCases(t *testing.T) []*decisions.Case {
	t.Helper()
	cases, err := decisions.ReadInputs(goldenDir)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		if c.Want == nil && !*update {
			t.Errorf("%s: the file does not say what is expected: run make update-golden, and read what it adds", c.File)
			c.Want = &decisions.Want{}
		}
	}
	return cases
}

// There is a golden case for each file of examples/providers.
func TestEveryReadyMadeProviderHasAGoldenCase(t *testing.T) {
	t.Parallel()
	examples, err := filepath.Glob("../../../examples/providers/*.yaml")
	if err != nil || len(examples) == 0 {
		t.Fatalf("got %d examples and error %v", len(examples), err)
	}
	for _, file := range examples {
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		if _, err := os.Stat(filepath.Join(goldenDir, decisions.Providers, name+".yaml")); err != nil {
			t.Errorf("%s has no case: %v", file, err)
		}
	}
}

// decide returns the decision about the pod of a case.
func decide(t *testing.T, c *decisions.Case) *decisions.Want {
	t.Helper()
	pods, _ := newPods(t, c.Annotations)
	if c.Settings != "" {
		pods.Settings = optionstest.Settings(t, c.Settings, reservedAudience)
	}
	want := &decisions.Want{}
	if c.Theme == decisions.Adopted {
		want.ServiceAccount = adopted(t, &pods.Config, c.ServiceAccount)
		pods.ServiceAccounts = objects{"team/app": want.ServiceAccount}
	}
	if label := c.Labels[annotations.IdentityLabel]; label != "" {
		pods.ServiceAccounts = labelled{pods.ServiceAccounts, label}
	}
	pods.Namespaces = objects{"/team": c.NamespaceAnnotations}
	r := create(c.Pod)
	if old := c.OldPod(); old != nil {
		r = debug(c.Pod, old)
	}
	counted := countFindings(t, pods)
	response := ask(t, pods, r)
	counted.holds(t, response.Findings)
	want.Reason, want.Findings, want.Warnings = string(response.Reason), response.Findings, response.Warnings
	if response.Code != 0 {
		want.Code, want.Message = response.Code, response.Message
	} else {
		result := apply(t, c.Pod, response.Patch)
		want.Additions = *additions(t, c.Pod, result)
		holdsRemovable(t, pods.Settings, c.Name, c.Pod, result)
	}
	return want
}

func additions(t *testing.T, before, after []byte) *decisions.Additions {
	t.Helper()
	added, err := decisions.Added(before, after)
	if err != nil {
		t.Fatal(err)
	}
	return added
}

// holdsExpected compares a decision with what the case expects, or writes it into the file.
func holdsExpected(t *testing.T, c *decisions.Case, got *decisions.Want) {
	t.Helper()
	if *update {
		c.Want = got
		if err := c.Write(); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(c.Want.Comment(), got.Comment()); diff != "" {
		t.Errorf("%s (-want +got):\n%s", c.File, diff)
	}
}

// labelled returns the objects with a value of the label that the cache keeps.
type labelled struct {
	injector.Getter
	label string
}

// Get implements injector.Getter.
func (l labelled) Get(ctx context.Context, namespace, name string) (annotations.Object, error) {
	object, err := l.Getter.Get(ctx, namespace, name)
	object.Label = l.label
	return object, err
}
