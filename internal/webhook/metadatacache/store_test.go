// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package metadatacache

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lanyard-dev/lanyard/internal/webhook/bounds"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

// bounded returns a cache for this many bytes, whose live reads return a
// ServiceAccount with a role.
func bounded(t *testing.T, limit int64) *Cache {
	t.Helper()
	return newCache(t, func(_ context.Context, namespace, name string) (*metav1.PartialObjectMetadata, error) {
		return serviceAccount(namespace, name, roleARN, "live"), nil
	}, func(o *Options) { o.MaxTotalBytes = limit })
}

func role(t *testing.T, c *Cache, name string) string {
	t.Helper()
	object, err := c.Get(t.Context(), "ns", name)
	if err != nil {
		t.Fatal(err)
	}
	return object.Annotations[roleARN]
}

func TestAnObjectWithoutSpaceIsReadLive(t *testing.T) {
	t.Parallel()
	c := bounded(t, 2000)
	s := reflectorStore{c}
	add := func(name, value string) {
		if err := s.Add(serviceAccount("ns", name, roleARN, value)); err != nil {
			t.Fatal(err)
		}
	}
	add("small", "cached")
	add("large", strings.Repeat("x", 3000))
	if got := role(t, c, "small"); got != "cached" {
		t.Errorf("got role %q of an object that fits, want it from the cache", got)
	}
	if got := role(t, c, "large"); got != "live" {
		t.Errorf("got role %.20q of an object that does not fit, want it live", got)
	}
	// Its previous state must no longer be returned.
	add("small", strings.Repeat("x", 3000))
	if got := role(t, c, "small"); got != "live" {
		t.Errorf("got role %.20q of an object that has become too large, want it live", got)
	}
	if used, limit := c.Bytes(); used != 0 || limit != 2000 {
		t.Errorf("got %d of %d bytes used, want 0 of 2000", used, limit)
	}
	// Freed space is reused.
	add("small", "cached again")
	if got := role(t, c, "small"); got != "cached again" {
		t.Errorf("got role %.20q of an object that fits again, want it from the cache", got)
	}
	if err := s.Delete(serviceAccount("ns", "small")); err != nil {
		t.Fatal(err)
	}
	if used, _ := c.Bytes(); used != 0 {
		t.Errorf("got %d bytes used of an empty cache, want 0", used)
	}
}

func TestAListThatDoesNotFitIsKeptInPart(t *testing.T) {
	t.Parallel()
	c := bounded(t, 10_000)
	transform := reflectorStore{c}.Transformer()
	list := func() []any {
		c.incoming.Store(&store{limit: 10_000}) // as list and watch do
		var items []any
		for i := range 1000 {
			it, err := transform(serviceAccount("ns", fmt.Sprintf("app-%d", i), roleARN, "cached"))
			if err != nil {
				t.Fatal(err)
			}
			items = append(items, it)
		}
		return items
	}
	for _, when := range []string{"first", "second"} {
		items := list()
		if kept := len(c.incoming.Load().objects); kept > 30 {
			t.Errorf("%s list: got the annotations of %d objects in memory at once, want no more than fit", when, kept)
		}
		if err := (reflectorStore{c}).Replace(items, ""); err != nil {
			t.Fatal(err)
		}
		if used, limit := c.Bytes(); used > limit || used < limit/2 {
			t.Errorf("%s list: got %d of %d bytes used, want it nearly full", when, used, limit)
		}
		if first, last := role(t, c, "app-0"), role(t, c, "app-999"); first != "cached" || last != "live" {
			t.Errorf("%s list: got roles %q and %q, want the first cached and the last live", when, first, last)
		}
	}
	if err := (reflectorStore{c}).Delete(serviceAccount("ns", "app-999")); err != nil {
		t.Errorf("delete an object that was not kept: %v", err)
	}
}

// The size must not be less than the memory, because operators rely on it when they set the limit.
//
//nolint:paralleltest // it measures the heap
func TestTheSizeMatchesTheHeap(t *testing.T) {
	for name, value := range map[string]int{"without annotations": 0, "with the label alone": -1, "with a role": 60, "with long annotations": 4000} {
		t.Run(name, func(t *testing.T) {
			c := bounded(t, 1<<40)
			before := heap()
			for i := range 5000 {
				var pairs []string
				switch {
				case value < 0:
					pairs = []string{label, "enabled"}
				case value > 0:
					pairs = []string{roleARN, strings.Repeat("x", value), expiry, "3600"}
				}
				if err := (reflectorStore{c}).Add(serviceAccount("namespace", fmt.Sprintf("app-%d", i), pairs...)); err != nil {
					t.Fatal(err)
				}
			}
			took := heap() - before
			used, _ := c.Bytes()
			if took > used*11/10 || used > 2*took {
				t.Errorf("got a size of %d KiB for %d KiB of memory, want it near and not less", used>>10, took>>10)
			}
			runtime.KeepAlive(c)
		})
	}
}

func TestLiveReadsAreLimitedInNumber(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var begun atomic.Int64
		leave := make(chan struct{})
		c := newCache(t, func(_ context.Context, namespace, name string) (*metav1.PartialObjectMetadata, error) {
			begun.Add(1)
			<-leave
			return serviceAccount(namespace, name), nil
		})
		var readers sync.WaitGroup
		for i := range 2 * bounds.Reads {
			readers.Go(func() {
				if _, err := c.Get(t.Context(), "ns", fmt.Sprintf("app-%d", i)); err != nil {
					t.Errorf("got error %v, want each read to have its turn", err)
				}
			})
		}
		synctest.Wait()
		if got := begun.Load(); got != bounds.Reads {
			t.Errorf("got %d reads at a time, want %d", got, bounds.Reads)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := c.Get(ctx, "ns", "impatient"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got error %v for a caller that does not wait, want %v", err, context.DeadlineExceeded)
		}
		close(leave)
		readers.Wait()
	})
}

// A client with very many reads delays the read of another client by at most one read in
// progress.
func TestClientsTakeTurnsInLiveReads(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begun, leave := make(chan string, 1000), make(chan struct{})
		c := newCache(t, func(_ context.Context, namespace, name string) (*metav1.PartialObjectMetadata, error) {
			begun <- name
			<-leave
			return serviceAccount(namespace, name), nil
		})
		attacker := bounds.WithClient(t.Context(), netip.MustParseAddr("10.0.0.2"))
		ordinary := bounds.WithClient(t.Context(), netip.MustParseAddr("10.0.0.1"))
		const clients = bounds.Reads + bounds.PendingReads + 10
		var refused atomic.Int64
		var readers sync.WaitGroup
		for i := range clients {
			readers.Go(func() {
				if _, err := c.Get(attacker, "ns", fmt.Sprintf("app-%d", i)); err != nil {
					refused.Add(1)
				}
			})
			synctest.Wait()
		}
		if got := refused.Load(); got != 10 {
			t.Errorf("got %d reads refused at once, want 10", got)
		}
		readers.Go(func() {
			if _, err := c.Get(ordinary, "ns", "app-0"); err != nil { // the attacker reads it too
				t.Errorf("got error %v for the read of another client", err)
			}
		})
		synctest.Wait()
		for len(begun) > 0 {
			<-begun
		}
		leave <- struct{}{} // one read ends
		if got := <-begun; got != "app-0" {
			t.Errorf("got a read of %s next, want that of the other client", got)
		}
		close(leave)
		readers.Wait()
	})
}

func TestLiveReadsAreLimitedInRate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCache(t, func(_ context.Context, namespace, name string) (*metav1.PartialObjectMetadata, error) {
			return serviceAccount(namespace, name), nil
		})
		start := time.Now()
		for i := range readsBurst + 10*readsPerSecond {
			if _, err := c.Get(t.Context(), "ns", fmt.Sprintf("app-%d", i)); err != nil {
				t.Fatal(err)
			}
		}
		if got := time.Since(start).Round(time.Second); got != 10*time.Second {
			t.Errorf("got %s for %d reads, want 10s", got, readsBurst+10*readsPerSecond)
		}
	})
}

func TestANameThatCannotExistIsNotInvalidated(t *testing.T) {
	t.Parallel()
	c := bounded(t, 0)
	for _, name := range []string{"", strings.Repeat("a", 254), "A", "../x", "a_b", strings.Repeat("a", 3_000_000)} {
		c.Invalidate("ns", name, "1")
		c.Invalidate(name, "app", "1")
	}
	if got := len(c.invalidated.objects); got != 1 {
		t.Errorf("got %d names kept, want only that of a cluster-scoped object", got)
	}
	_, err := c.Get(t.Context(), "ns", strings.Repeat("a", 3_000_000))
	if err == nil || len(err.Error()) > 2000 {
		t.Errorf("got an error of %d bytes, want a short one", len(fmt.Sprint(err)))
	}
}

func TestANamespaceDoesNotEvictObjectsOfOthers(t *testing.T) {
	t.Parallel()
	const limit = 100_000
	metas := func(namespace string, n int) []any {
		var metas []any
		for i := range n {
			metas = append(metas, serviceAccount(namespace, fmt.Sprintf("app-%d", i), roleARN, strings.Repeat("x", 1000)))
		}
		return metas
	}
	for sentence, receive := range map[string]func(s reflectorStore, objs []any) error{
		"in events": func(s reflectorStore, objs []any) error {
			for _, obj := range objs {
				if err := s.Add(obj); err != nil {
					return err
				}
			}
			return nil
		},
		"in a list": func(s reflectorStore, objs []any) error { return s.Replace(objs, "1") },
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			c := bounded(t, limit)
			// A list is in the order of the namespaces.
			if err := receive(reflectorStore{c}, append(metas("aaa", 1000), metas("ns", 5)...)); err != nil {
				t.Fatal(err)
			}
			for i := range 5 {
				if got := role(t, c, fmt.Sprintf("app-%d", i)); got == "live" {
					t.Errorf("got app-%d of the small namespace live, want it from the cache", i)
				}
			}
			if used, _ := c.Bytes(); used > limit || used < limit/2 {
				t.Errorf("got %d of %d bytes used, want the cache nearly full", used, limit)
			}
		})
	}
}

func TestReplaceKeepsOnlyTheItems(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ items, want string }{
		"all objects are items":                      {"a b", "a b"},
		"an object is no item":                       {"a", "a"},
		"an object is no item, an item is no object": {"a c", "a"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			id := func(name string) types.NamespacedName { return types.NamespacedName{Namespace: "ns", Name: name} }
			var s, incoming store
			s.set(annotations.Object{Namespace: "ns", Name: "old"})
			for _, name := range []string{"a", "b"} {
				incoming.set(annotations.Object{Namespace: "ns", Name: name, Label: name})
			}
			var items []*item
			for name := range strings.FieldsSeq(test.items) {
				items = append(items, &item{id(name)})
			}
			s.replace(&incoming, items)
			var got []string
			var bytes int64
			for object := range s.all() {
				got = append(got, object.Name)
				bytes += size(nameOf(&object), &object)
			}
			slices.Sort(got)
			if strings.Join(got, " ") != test.want || s.used() != bytes {
				t.Errorf("got %v and %d bytes, want %s and %d bytes", got, s.used(), test.want, bytes)
			}
		})
	}
}

// Of 20,000 ServiceAccounts, a third has an identity in three clouds.
func TestManyServiceAccountsFit(t *testing.T) {
	t.Parallel()
	const goMemoryLimit = 128 << 20 * 9 / 10 // of the chart
	most, ofNamespaces := bounds.CacheBytes(goMemoryLimit)
	namespaces := bounded(t, ofNamespaces)
	for i := range 2_000 {
		if err := (reflectorStore{namespaces}).Add(serviceAccount("", fmt.Sprintf("namespace-%d", i), prefix+"allowed-identities", strings.Repeat("x", 200))); err != nil {
			t.Fatal(err)
		}
	}
	if got := len(namespaces.store.objects); got != 2_000 {
		t.Errorf("got %d namespaces in the cache, want 2,000", got)
	}
	c := bounded(t, most)
	for i := range 20_000 {
		var pairs []string
		if i%3 == 0 {
			pairs = []string{label, "enabled", roleARN, strings.Repeat("x", 80), prefix + "azure-client-id", strings.Repeat("x", 36),
				prefix + "gcp-workload-identity-provider", strings.Repeat("x", 140), prefix + "gcp-service-account", strings.Repeat("x", 60)}
		}
		if err := (reflectorStore{c}).Add(serviceAccount(fmt.Sprintf("namespace-%d", i%500), fmt.Sprintf("application-%d", i), pairs...)); err != nil {
			t.Fatal(err)
		}
	}
	used, limit := c.Bytes()
	t.Logf("%d of %d KiB used", used>>10, limit>>10)
	if got := len(c.store.objects); got != 20_000 {
		t.Errorf("got %d ServiceAccounts in the cache, want 20,000", got)
	}
}
