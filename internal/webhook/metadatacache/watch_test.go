// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package metadatacache

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"

	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/test/support/metadataapi"
)

// run starts a cache and waits until it has synced.
func run(t *testing.T, client metadata.Interface) *Cache {
	t.Helper()
	c := New(Options{Client: client, Resource: serviceAccounts, Label: label})
	if c.HasSynced() {
		t.Fatal("got synced before it was started")
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- c.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("got error %v from Start, want none", err)
		}
	})
	eventually(t, "the cache has synced", c.HasSynced)
	return c
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	deadline := time.After(time.Minute)
	for !is() {
		select {
		case <-deadline:
			t.Fatalf("not within a minute: %s", what)
		case <-time.After(time.Millisecond):
		}
	}
}

// modes are the two ways to get the objects.
var modes = map[string]struct {
	streams bool
	want    map[string]int // the requests for 1201 objects
	again   map[string]int // the requests for 3 objects at version 3, and again
}{
	"the API server streams lists": {true, map[string]int{"stream": 1}, map[string]int{"stream": 2}},
	"the API server pages lists": {false, map[string]int{
		"stream": 1, `list version="" limit=100`: 13,
	}, map[string]int{
		"stream": 2, `list version="" limit=100`: 1, `list version="3" limit=100`: 1,
	}},
}

func TestStartFollowsTheAPIServer(t *testing.T) {
	t.Parallel()
	for name, mode := range modes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			metas := []*metav1.PartialObjectMetadata{serviceAccount("ns", "app", roleARN, "old", label, "enabled")}
			for i := range 1200 {
				metas = append(metas, serviceAccount("many", fmt.Sprintf("app-%d", i)))
			}
			a := metadataapi.New(t, mode.streams, metas...)
			c := run(t, a.Client())
			wantCounts := func(want counts) {
				t.Helper()
				eventually(t, fmt.Sprintf("counts are %+v", want), func() bool { return countsOf(c) == want })
			}
			wantRole := func(want string) {
				t.Helper()
				obj, err := c.Get(t.Context(), "ns", "app")
				if err != nil || obj.Annotations[roleARN] != want {
					t.Errorf("got %v, error %v; want role %q", obj, err, want)
				}
			}
			wantCounts(counts{annotated: 1, labeled: 1, all: 1201})
			wantRole("old")
			a.WantRequests(mode.want)

			a.Send(watch.Modified, serviceAccount("ns", "app", roleARN, "new"))
			wantCounts(counts{annotated: 1, all: 1201})
			wantRole("new")
			a.Send(watch.Modified, serviceAccount("ns", "app"))
			wantCounts(counts{all: 1201})
			wantRole("")
			a.Send(watch.Added, serviceAccount("ns", "second", roleARN, "r"))
			wantCounts(counts{annotated: 1, all: 1202})
			a.WantRequests(mode.want)

			a.Send(watch.Deleted, serviceAccount("ns", "app"))
			wantCounts(counts{annotated: 1, all: 1201})
			if _, err := c.Get(t.Context(), "ns", "app"); !apierrors.IsNotFound(err) {
				t.Errorf("got error %v for a deleted ServiceAccount, want not found", err)
			}
		})
	}
}

func TestObjectsThatWereDeletedBetweenWatchesAreForgotten(t *testing.T) {
	t.Parallel()
	for name, mode := range modes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := metadataapi.New(t, mode.streams,
				serviceAccount("ns", "kept", roleARN, "r"), serviceAccount("ns", "deleted", roleARN, "r"), serviceAccount("ns", "unannotated"))
			c := run(t, a.Client())
			expired := apierrors.NewResourceExpired("too old resource version").Status()
			expired.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
			a.SendError(expired, "ns/deleted", "ns/unannotated")
			want := counts{annotated: 1, all: 1}
			eventually(t, fmt.Sprintf("counts are %+v", want), func() bool { return countsOf(c) == want })
			a.WantRequests(mode.again)
			if _, err := c.Get(t.Context(), "ns", "deleted"); !apierrors.IsNotFound(err) {
				t.Errorf("got error %v, want not found", err)
			}
		})
	}
}

// The API server keeps the version of a list for some minutes. The whole list could be more
// than the memory.
func TestAListThatExpiresIsNotReadAtOnce(t *testing.T) {
	t.Parallel()
	var metas []*metav1.PartialObjectMetadata
	for i := range 250 {
		metas = append(metas, serviceAccount("many", fmt.Sprintf("app-%d", i)))
	}
	a := metadataapi.New(t, false, metas...)
	var expired atomic.Bool
	c := run(t, lists{a.Client(), func(_ context.Context, opts metav1.ListOptions) error {
		if opts.Continue != "" && !expired.Swap(true) {
			return apierrors.NewResourceExpired("the continue token is too old")
		}
		return nil
	}})
	a.WantRequests(map[string]int{"stream": 1, `list version="" limit=100`: 1 + 3})
	if got := countsOf(c).all; got != 250 {
		t.Errorf("got %d objects, want 250", got)
	}
}

// The metadata client and its errors are the real ones.
func TestGetReadsLiveThroughTheClient(t *testing.T) {
	t.Parallel()
	a := metadataapi.New(t, true, serviceAccount("ns", "app", roleARN, "r", "other", "x"))
	c := New(Options{Client: a.Client(), Resource: serviceAccounts, Label: label})
	obj, err := c.Get(t.Context(), "ns", "app")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(annotations.Object{Namespace: "ns", Name: "app", Annotations: map[string]string{roleARN: "r"}}, obj); diff != "" {
		t.Errorf("object (-want +got):\n%s", diff)
	}
	if _, err := c.Get(t.Context(), "ns", "none"); !apierrors.IsNotFound(err) {
		t.Errorf("got error %v, want not found", err)
	}
	a.SetBroken(true)
	if _, err := c.Get(t.Context(), "ns", "app"); !apierrors.IsInternalError(err) || !strings.HasPrefix(err.Error(), "read serviceaccounts ns/app: ") {
		t.Errorf("got error %v, want an internal error that names the ServiceAccount", err)
	}
	a.SetBroken(false)
	if _, err := c.Get(t.Context(), "ns", "app"); err != nil {
		t.Errorf("got error %v once the server is back, want none", err)
	}
	a.WantRequests(map[string]int{"get ns/app": 3, "get ns/none": 1})
}

func TestTheMemoryOfALongListIsFreed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCache(t, noReads(t))
		var freed []time.Duration
		start := time.Now()
		c.freeMemory = func() { freed = append(freed, time.Since(start)) }
		long := make([]*metav1.PartialObjectMetadata, longList)
		for i := range long {
			long[i] = serviceAccount("ns", fmt.Sprintf("app-%d", i))
		}
		fill(t, c, long[1:]...)
		fill(t, c, long...)
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(freed) != 1 || freed[0] != freeDelay {
			t.Errorf("freed memory after %v, want once after %v", freed, freeDelay)
		}
	})
}
