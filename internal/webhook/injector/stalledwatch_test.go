// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package injector_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/lanyard-dev/lanyard/internal/webhook/injector"
	"github.com/lanyard-dev/lanyard/internal/webhook/metadatacache"
	"github.com/lanyard-dev/lanyard/pkg/mutate/reason"
	"github.com/lanyard-dev/lanyard/test/support/metadataapi"
)

const (
	// stalledPods is how many pods are created while the watch is stalled.
	stalledPods = 1000
	// stalledFor is how long it is stalled: longer than a client of client-go takes to
	// notice that its connection is dead, 45 seconds.
	stalledFor = time.Minute

	otherRole = "arn:aws:iam::111122223333:role/other"
)

// stalled is the webhook with a cache of ServiceAccounts whose watch a test can stall.
type stalled struct {
	*injector.PodMutator
	*metadataapi.Server
	cache *metadatacache.Cache
}

// newStalled returns the webhook in a cluster with the ServiceAccount team/app.
func newStalled(t *testing.T, values, labels map[string]string) *stalled {
	t.Helper()
	server := metadataapi.New(t, true, meta(values, labels))
	pods, _ := newPods(t, nil)
	client := server.ClientInBubble()
	cache := injector.NewCaches(client, client, nil, logr.Discard()).ServiceAccounts
	go func() { _ = cache.Start(t.Context()) }()
	synctest.Wait()
	if !cache.HasSynced() {
		t.Fatal("the cache has not synced")
	}
	pods.ServiceAccounts = cache
	return &stalled{pods, server, cache}
}

// meta returns the ServiceAccount team/app.
func meta(values, labels map[string]string) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Namespace: "team", Name: "app", Annotations: values, Labels: labels,
	}}
}

// admit sends the write of team/app for admission, as the API server does before it stores it.
func (s *stalled) admit(t *testing.T, values map[string]string) {
	t.Helper()
	object := func(values map[string]string) []byte {
		return fmt.Appendf(nil, `{"metadata":{"name":"app","namespace":"team","resourceVersion":%q,"annotations":%s}}`, s.Version("team", "app"), marshal(t, values))
	}
	validator := &injector.ServiceAccountValidator{Config: s.Config, Invalidator: s.cache}
	// The old object only needs to differ.
	response := ask(t, validator, write(object(values), object(map[string]string{"lanyard.dev/audience": "before"})))
	if response.Code != 0 {
		t.Fatalf("the ServiceAccount is denied: %s", response.Message)
	}
}

// outcomes creates stalledPods pods while the watch is stalled, and counts the injected roles
// and the reasons.
func (s *stalled) outcomes(t *testing.T) map[string]int {
	t.Helper()
	outcomes := map[string]int{}
	for range stalledPods {
		outcomes[s.outcome(t)]++
		time.Sleep(stalledFor / stalledPods)
	}
	return outcomes
}

func (s *stalled) outcome(t *testing.T) string {
	t.Helper()
	response := ask(t, s.PodMutator, create([]byte(plainPod)))
	for _, arn := range []string{role, otherRole} {
		if strings.Contains(string(response.Patch), `"`+arn+`"`) {
			return arn
		}
	}
	return string(response.Reason)
}

// Until the watch delivers a write that the webhook admitted, the cache has the previous identity.
// No pod gets it.
func TestNoPodGetsThePreviousIdentityWhileTheWatchIsStalled(t *testing.T) {
	t.Parallel()
	before := map[string]string{"lanyard.dev/aws-role-arn": role}
	after := map[string]string{"lanyard.dev/aws-role-arn": otherRole}
	for sentence, test := range map[string]struct {
		write  map[string]string
		labels map[string]string
		broken bool // live reads fail
		want   string
	}{
		"an identity that changes":                                   {write: after, want: otherRole},
		"an identity that is removed":                                {want: string(reason.NoIdentity)},
		"an identity that is removed from one with a required label": {labels: map[string]string{"lanyard.dev/identity": "required"}, want: string(reason.IdentityRequired)},
		"an identity that changes, and the API server cannot be read": {
			write: after, broken: true, want: string(reason.LookupFailed),
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newStalled(t, before, test.labels)
				if got := s.outcome(t); got != role {
					t.Fatalf("got %q before the write, want %q", got, role)
				}
				s.Stall()
				s.admit(t, test.write)
				s.Send(watch.Modified, meta(test.write, test.labels))
				s.SetBroken(test.broken)
				if diff := cmp.Diff(map[string]int{test.want: stalledPods}, s.outcomes(t)); diff != "" {
					t.Errorf("pods by what they get (-want +got):\n%s", diff)
				}

				// Then the write is in the cache, which needs no API server.
				s.Resume()
				synctest.Wait()
				s.SetBroken(true)
				want := test.want
				if test.broken {
					want = otherRole
				}
				if got := s.outcome(t); got != want {
					t.Errorf("got %q from the cache, want %q", got, want)
				}
			})
		})
	}
}

// The event of a write does not end the invalidation by a later one.
func TestNoPodGetsTheIdentityBetweenTwoWrites(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStalled(t, nil, nil)
		first, second := map[string]string{"lanyard.dev/aws-role-arn": role}, map[string]string{"lanyard.dev/aws-role-arn": otherRole}
		s.admit(t, first)
		s.Stall()
		s.Send(watch.Modified, meta(first, nil))
		s.admit(t, second)
		s.Resume()
		synctest.Wait() // the watch has delivered the first write
		s.Stall()
		s.Send(watch.Modified, meta(second, nil))
		if got := s.outcome(t); got != otherRole {
			t.Errorf("got %q after the second write, want %q", got, otherRole)
		}
	})
}

// The API server calls no webhook for a Namespace, so the watch is what says that it allows less.
func TestNoPodGetsAnIdentityThatItsNamespaceNoLongerAllows(t *testing.T) {
	t.Parallel()
	namespace := func(allowed string) *metav1.PartialObjectMetadata {
		return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "team", Annotations: map[string]string{"lanyard.dev/allowed-identities": allowed}}}
	}
	synctest.Test(t, func(t *testing.T) {
		s := newStalled(t, map[string]string{"lanyard.dev/aws-role-arn": role}, nil)
		server := metadataapi.New(t, true, namespace("*"))
		client := server.ClientInBubble()
		namespaces := injector.NewCaches(client, client, nil, logr.Discard()).Namespaces
		s.Namespaces = namespaces
		if got := s.outcome(t); got != role {
			t.Errorf("got %q from a live read, want %q", got, role)
		}
		server.SetBroken(true)
		if got := s.outcome(t); got != string(reason.LookupFailed) {
			t.Errorf("got %q after a live read that failed, want %q", got, reason.LookupFailed)
		}
		server.SetBroken(false)
		go func() { _ = namespaces.Start(t.Context()) }()
		synctest.Wait()
		server.SetBroken(true) // the cache is all that is left
		if got := s.outcome(t); got != role {
			t.Fatalf("got %q before the write, want %q", got, role)
		}

		server.Send(watch.Modified, namespace("-"))
		synctest.Wait() // the watch has delivered it
		want := map[string]int{string(reason.IdentityNotAllowed): stalledPods}
		if diff := cmp.Diff(want, s.outcomes(t)); diff != "" {
			t.Errorf("pods by what they get (-want +got):\n%s", diff)
		}
	})
}

// A write that was admitted and then failed has no event.
func TestAWriteThatFailsLeavesTheServiceAccountInTheCache(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStalled(t, map[string]string{"lanyard.dev/aws-role-arn": role}, nil)
		s.admit(t, map[string]string{"lanyard.dev/aws-role-arn": otherRole})
		s.SetBroken(true)
		if got := s.outcome(t); got != string(reason.LookupFailed) {
			t.Errorf("got %q directly after the admission, want a live read", got)
		}
		s.SetBroken(false)
		time.Sleep(10 * time.Minute)
		s.SetBroken(true)
		if got := s.outcome(t); got != role {
			t.Errorf("got %q once the write can no longer be stored, want %q from the cache", got, role)
		}
	})
}
