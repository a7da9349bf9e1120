// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package metadatacache

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"

	"github.com/lanyard-dev/lanyard/test/support/metadataapi"
)

// version returns the object with a resource version.
func version(meta *metav1.PartialObjectMetadata, version string) *metav1.PartialObjectMetadata {
	meta.ResourceVersion = version
	return meta
}

func TestAnInvalidationEndsWhenTheWatchHasDeliveredTheWrite(t *testing.T) {
	t.Parallel()
	app := func(v string) *metav1.PartialObjectMetadata {
		return version(serviceAccount("ns", "app", roleARN, "version "+v), v)
	}
	for sentence, test := range map[string]struct {
		replaced []string // by the writes
		events   func(s reflectorStore) error
		valid    bool
	}{
		"an event of a later version is the write":         {[]string{"5"}, func(s reflectorStore) error { return s.Update(app("6")) }, true},
		"versions are numbers":                             {[]string{"9"}, func(s reflectorStore) error { return s.Update(app("10")) }, true},
		"an addition may be the write":                     {[]string{"5"}, func(s reflectorStore) error { return s.Add(app("6")) }, true},
		"after a deletion, the object is not in the cache": {[]string{"5"}, func(s reflectorStore) error { return firstError(s.Delete(app("6")), s.Add(app("7"))) }, true},
		"an event of the version before is not the write":  {[]string{"5"}, func(s reflectorStore) error { return s.Update(app("5")) }, false},
		"an event of an earlier write is not the write":    {[]string{"5", "6"}, func(s reflectorStore) error { return s.Update(app("6")) }, false},
		"the last of two writes ends both":                 {[]string{"5", "6"}, func(s reflectorStore) error { return s.Update(app("7")) }, true},
		"admissions may come in any order":                 {[]string{"6", "5"}, func(s reflectorStore) error { return s.Update(app("6")) }, false},
		"an event of another object is not the write": {[]string{"5"}, func(s reflectorStore) error {
			return s.Update(version(serviceAccount("ns", "other"), "6"))
		}, false},
		"a list says nothing of writes that are not stored yet": {[]string{"5"}, func(s reflectorStore) error { return s.Replace([]any{app("5")}, "9") }, false},
		"a forged version is never delivered":                   {[]string{"x"}, func(s reflectorStore) error { return s.Update(app("6")) }, false},
		"an event without a version is not the write":           {[]string{"5"}, func(s reflectorStore) error { return s.Update(app("")) }, false},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			reads := 0
			c := newCache(t, func(context.Context, string, string) (*metav1.PartialObjectMetadata, error) {
				reads++
				return serviceAccount("ns", "app", roleARN, "live"), nil
			})
			fill(t, c, app("5"))
			for _, replaced := range test.replaced {
				c.Invalidate("ns", "app", replaced)
			}
			if got := role(t, c, "app"); got != "live" {
				t.Errorf("got role %q before the event, want it live", got)
			}
			if err := test.events(reflectorStore{c}); err != nil {
				t.Fatal(err)
			}
			if got := role(t, c, "app"); (got != "live") != test.valid {
				t.Errorf("got role %q after the event, want it from the cache: %t", got, test.valid)
			}
		})
	}
}

func TestAFailedReadOfAnInvalidObjectIsAnError(t *testing.T) {
	t.Parallel()
	var rec recorder
	failure := apierrors.NewServiceUnavailable("down")
	c := newCache(t, func(context.Context, string, string) (*metav1.PartialObjectMetadata, error) { return nil, failure },
		func(o *Options) { o.Recorder = &rec })
	fill(t, c, serviceAccount("ns", "app", roleARN, "old"), serviceAccount("ns", "unannotated"))
	for _, name := range []string{"app", "unannotated"} {
		c.Invalidate("ns", name, "1")
		if object, err := c.Get(t.Context(), "ns", name); !apierrors.IsServiceUnavailable(err) || object.Bytes() > 0 {
			t.Errorf("got %v and error %v for %s, want only the error", object, err, name)
		}
	}
	if got := rec.seen["live error"]; got != 2 {
		t.Errorf("got %d reads recorded as errors, want 2", got)
	}
}

// followed returns a cache of the server that has synced, and a function that reports
// whether Get reads an object live.
func followed(t *testing.T, a *metadataapi.Server) (*Cache, func(name string) bool) {
	t.Helper()
	return follow(t, a.ClientInBubble())
}

func follow(t *testing.T, client metadata.Interface) (*Cache, func(name string) bool) {
	t.Helper()
	var rec recorder
	c := New(Options{Client: client, Resource: serviceAccounts, Recorder: &rec})
	go func() { _ = c.Start(t.Context()) }()
	synctest.Wait()
	return c, func(name string) bool {
		t.Helper()
		before := rec.seen["live found"]
		if _, err := c.Get(t.Context(), "ns", name); err != nil {
			t.Error(err)
		}
		return rec.seen["live found"] > before
	}
}

// A write that was admitted may fail, or be a dry run.
func TestTheInvalidationByAWriteThatIsNeverStoredEnds(t *testing.T) {
	t.Parallel()
	for sentence, test := range map[string]struct {
		meanwhile func(a *metadataapi.Server)
		after     time.Duration
		live      bool
	}{
		"not while the write may still be stored":     {nil, storedAfter - time.Second, true},
		"once the write can no longer be stored":      {nil, storedAfter + 2*settleInterval, false},
		"not while the watch may be behind":           {func(a *metadataapi.Server) { a.Stall(); a.Send(watch.Added, serviceAccount("ns", "other")) }, time.Hour, true},
		"not while the versions cannot be read":       {func(a *metadataapi.Server) { a.SetBroken(true) }, time.Hour, true},
		"whatever happens to other objects meanwhile": {func(a *metadataapi.Server) { a.Send(watch.Added, serviceAccount("ns", "other")) }, storedAfter + 2*settleInterval, false},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				a := metadataapi.New(t, true, serviceAccount("ns", "app", roleARN, "r"))
				c, isLive := followed(t, a)
				c.Invalidate("ns", "app", a.Version("ns", "app"))
				if test.meanwhile != nil {
					test.meanwhile(a)
				}
				time.Sleep(test.after)
				a.SetBroken(false)
				if got := isLive("app"); got != test.live {
					t.Errorf("got a live read: %t, want %t", got, test.live)
				}
			})
		})
	}
}

func TestAnInvalidationEndsAlthoughARequestGotNoResponse(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := metadataapi.New(t, true, serviceAccount("ns", "app", roleARN, "r"))
		asked := false
		c, isLive := follow(t, lists{a.ClientInBubble(), func(ctx context.Context, _ metav1.ListOptions) error {
			if !asked {
				asked = true
				<-ctx.Done()
			}
			return ctx.Err()
		}})
		c.Invalidate("ns", "app", a.Version("ns", "app"))
		time.Sleep(storedAfter + 3*settleInterval)
		if isLive("app") {
			t.Error("got a live read, want the object from the cache once the versions could be read")
		}
	})
}

// The version of a new object is not known in advance.
func TestTheInvalidationOfANewObjectEndsWithItsEvent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := metadataapi.New(t, true, serviceAccount("ns", "app", roleARN, "old"))
		c, isLive := followed(t, a)
		// The watch has not delivered the deletion yet.
		a.Stall()
		a.Send(watch.Deleted, serviceAccount("ns", "app"))
		c.Invalidate("ns", "app", "")
		a.Send(watch.Added, serviceAccount("ns", "app", roleARN, "new"))
		if !isLive("app") {
			t.Error("got the deleted object from the cache, want the new one live")
		}
		a.Resume()
		synctest.Wait()
		if isLive("app") {
			t.Error("got a live read once the watch had delivered the new object, want it from the cache")
		}
	})
}

func TestAboveTheBoundOfInvalidationsAllObjectsAreReadLive(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := metadataapi.New(t, true, serviceAccount("ns", "app"), serviceAccount("ns", "unwritten"))
		c, isLive := followed(t, a)
		for i := range maxInvalid {
			c.Invalidate("ns", fmt.Sprint(i), "1")
		}
		if isLive("app") {
			t.Error("got a live read at the bound, want the object from the cache")
		}
		c.Invalidate("ns", "0", "1") // known already
		if isLive("app") {
			t.Error("got a live read after a second write of an invalid object, want the object from the cache")
		}
		c.Invalidate("ns", "app", a.Version("ns", "app"))
		if !isLive("app") || !isLive("unwritten") {
			t.Error("got an object from the cache above the bound, want all live")
		}
		if got := len(c.invalidated.objects); got != maxInvalid {
			t.Errorf("got %d names kept, want %d", got, maxInvalid)
		}
		a.Send(watch.Modified, serviceAccount("ns", "app"))
		synctest.Wait()
		if !isLive("app") {
			t.Error("got the object from the cache after its event, want it live: there may be more writes")
		}
		time.Sleep(storedAfter + 2*settleInterval)
		if isLive("app") || len(c.invalidated.objects) > 0 {
			t.Errorf("got a live read or %d names kept once no write can be stored any more, want none", len(c.invalidated.objects))
		}
	})
}

// A watch may be behind the newest list for a long time, in which more writes follow.
func TestAnInvalidationEndsWithTheFirstListThatIncludesItsWrite(t *testing.T) {
	t.Parallel()
	app, before, after := types.NamespacedName{Namespace: "ns", Name: "app"}, time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	type settle struct {
		until            time.Time
		listed, received string
	}
	for sentence, test := range map[string]struct {
		settles []settle
		ends    bool
	}{
		"a list that may lack the write":            {[]settle{{before, "10", "10"}, {before, "10", ""}}, false},
		"a watch that is behind the list":           {[]settle{{after, "10", "9"}}, false},
		"a watch that is at the list":               {[]settle{{after, "10", "10"}}, true},
		"a watch between the list and a newer one":  {[]settle{{after, "10", "9"}, {after, "20", "12"}}, true},
		"a watch before the list and a newer one":   {[]settle{{after, "10", "8"}, {after, "20", "9"}}, false},
		"a watch after a list that lacks the write": {[]settle{{before, "10", "9"}, {after, "20", "12"}}, false},
	} {
		var one, all invalidations
		one.add(app, "5")
		for i := range maxInvalid + 1 {
			all.add(types.NamespacedName{Name: fmt.Sprint(i)}, "5")
		}
		for _, s := range test.settles {
			one.settle(s.until, s.listed, s.received)
			all.settle(s.until, s.listed, s.received)
		}
		if got := one.contains(app); got == test.ends {
			t.Errorf("%s: got the object invalid: %t", sentence, got)
		}
		if got := all.contains(app); got == test.ends {
			t.Errorf("%s: got all objects invalid: %t", sentence, got)
		}
	}
}

// The memory of the invalidations is bounded, because the length of names is.
func TestTheInvalidationsTakeLittleMemory(t *testing.T) { //nolint:paralleltest // it measures the heap
	var i invalidations
	before := heap()
	for n := range 2 * maxInvalid {
		name := fmt.Sprintf("%0253d", n)
		i.add(types.NamespacedName{Namespace: strings.Repeat("n", 63), Name: name}, strings.Repeat("9", 64))
	}
	if took := heap() - before; took > 4<<20 {
		t.Errorf("got %d KiB for the invalidations, want at most 4 MiB", took>>10)
	}
	runtime.KeepAlive(&i)
}
