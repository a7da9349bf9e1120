// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package metadatacache

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

// counts contains the numbers of objects in a cache.
type counts struct{ all, annotated, labeled int }

func countsOf(c *Cache) counts {
	var n counts
	for object := range c.All() {
		n.all++
		if object.Bytes() > 0 {
			n.annotated++
		}
		if object.Label != "" {
			n.labeled++
		}
	}
	return n
}

func TestTheCacheFollowsTheEvents(t *testing.T) {
	t.Parallel()
	unannotated := serviceAccount("ns", "app")
	annotated := serviceAccount("ns", "app", roleARN, "r")
	labeled := serviceAccount("ns", "app", roleARN, "r", label, "enabled")
	for name, tc := range map[string]struct {
		feed func(reflectorStore) error
		want counts
	}{
		"an empty cache has no objects":              {func(reflectorStore) error { return nil }, counts{}},
		"an object without annotations is an object": {func(s reflectorStore) error { return s.Add(unannotated) }, counts{all: 1}},
		"the label is not an annotation": {
			func(s reflectorStore) error { return s.Add(serviceAccount("ns", "app", label, "enabled")) },
			counts{all: 1, labeled: 1},
		},
		"annotations count without the label": {
			func(s reflectorStore) error { return s.Add(annotated) },
			counts{all: 1, annotated: 1},
		},
		"an object can get the label": {
			func(s reflectorStore) error { return firstError(s.Add(annotated), s.Update(labeled)) },
			counts{all: 1, annotated: 1, labeled: 1},
		},
		"an object can get annotations": {
			func(s reflectorStore) error { return firstError(s.Add(unannotated), s.Update(labeled)) },
			counts{all: 1, annotated: 1, labeled: 1},
		},
		"an object can lose its annotations": {
			func(s reflectorStore) error { return firstError(s.Add(annotated), s.Update(unannotated)) },
			counts{all: 1},
		},
		"an object that is added twice counts once": {
			func(s reflectorStore) error {
				return firstError(s.Add(annotated), s.Add(annotated), s.Update(unannotated), s.Add(unannotated))
			},
			counts{all: 1},
		},
		"a deleted object is gone": {
			func(s reflectorStore) error {
				return firstError(s.Add(annotated), s.Delete(unannotated), s.Delete(annotated))
			},
			counts{},
		},
		"a new list replaces all objects, and the last state in it counts": {
			func(s reflectorStore) error {
				return firstError(s.Add(serviceAccount("ns", "old")), s.Add(annotated), s.Replace([]any{serviceAccount("ns", "new"), labeled, unannotated}, "2"))
			},
			counts{all: 2},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCache(t, noReads(t))
			if err := tc.feed(reflectorStore{c}); err != nil {
				t.Fatal(err)
			}
			if got := countsOf(c); got != tc.want {
				t.Errorf("got counts %+v, want %+v", got, tc.want)
			}
		})
	}
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func TestAnInvalidEventDoesNotChangeTheCache(t *testing.T) {
	t.Parallel()
	for name, do := range map[string]func(reflectorStore) error{
		"an addition of another type": func(s reflectorStore) error { return s.Add("x") },
		"an update of another type":   func(s reflectorStore) error { return s.Update(&metav1.Status{}) },
		"a deletion of another type":  func(s reflectorStore) error { return s.Delete(nil) },
		"a list with another type in it": func(s reflectorStore) error {
			return s.Replace([]any{serviceAccount("ns", "b"), 1}, "2")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCache(t, noReads(t))
			if err := (reflectorStore{c}).Add(serviceAccount("ns", "app", roleARN, "r")); err != nil {
				t.Fatal(err)
			}
			if err := do(reflectorStore{c}); err == nil {
				t.Error("got no error")
			}
			if got, want := countsOf(c), (counts{all: 1, annotated: 1}); got != want {
				t.Errorf("got counts %+v, want %+v", got, want)
			}
			if c.HasSynced() {
				t.Error("got synced before a whole list arrived")
			}
		})
	}
}

// TestCacheAgainstAModel applies random events to the cache and to a plain map.
func TestCacheAgainstAModel(t *testing.T) {
	t.Parallel()
	for seed := range uint64(50) {
		t.Run(fmt.Sprintf("the two agree with seed %d", seed), func(t *testing.T) {
			t.Parallel()
			rnd := rand.New(rand.NewPCG(seed, 0))
			c := newCache(t, noReads(t))
			model := map[types.NamespacedName]*metav1.PartialObjectMetadata{}
			for step := range 300 {
				if err := randomEvent(rnd, reflectorStore{c}, model); err != nil {
					t.Fatalf("step %d: %v", step, err)
				}
				compare(t, c, model)
				if t.Failed() {
					t.Fatalf("first difference after step %d", step)
				}
			}
		})
	}
}

func randomAccount(rnd *rand.Rand) *metav1.PartialObjectMetadata {
	var pairs []string
	for _, pair := range [][2]string{
		{roleARN, fmt.Sprint(rnd.IntN(3))},
		{expiry, "3600"},
		{label, []string{"enabled", "disabled"}[rnd.IntN(2)]},
		{"other", "x"},
	} {
		if rnd.IntN(3) == 0 {
			pairs = append(pairs, pair[:]...)
		}
	}
	return serviceAccount(string(rune('a'+rnd.IntN(2))), string(rune('a'+rnd.IntN(5))), pairs...)
}

func randomEvent(rnd *rand.Rand, s reflectorStore, model map[types.NamespacedName]*metav1.PartialObjectMetadata) error {
	meta := randomAccount(rnd)
	id := types.NamespacedName{Namespace: meta.Namespace, Name: meta.Name}
	switch rnd.IntN(10) {
	case 0:
		clear(model)
		var objs []any
		for range rnd.IntN(8) {
			meta := randomAccount(rnd)
			model[types.NamespacedName{Namespace: meta.Namespace, Name: meta.Name}] = meta
			objs = append(objs, meta)
		}
		return s.Replace(objs, "1")
	case 1, 2, 3:
		delete(model, id)
		return s.Delete(meta) // its last state does not matter
	case 4, 5, 6:
		model[id] = meta
		return s.Add(meta)
	default:
		model[id] = meta
		return s.Update(meta)
	}
}

func compare(t *testing.T, c *Cache, model map[types.NamespacedName]*metav1.PartialObjectMetadata) {
	t.Helper()
	want := map[types.NamespacedName]annotations.Object{}
	for id, meta := range model {
		want[id] = wantObject(meta)
	}
	got := map[types.NamespacedName]annotations.Object{}
	for object := range c.All() {
		got[nameOf(&object)] = object
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("all objects (-want +got):\n%s", diff)
	}
	for id := range want {
		if _, ok := c.store.get(id); !ok {
			t.Errorf("got no object %s, want one", id)
		}
	}
	if id := (types.NamespacedName{Namespace: "a", Name: "none"}); len(want) > 0 {
		if object, ok := c.store.get(id); ok {
			t.Errorf("got object %v for a name that was never added", object)
		}
	}
}

func wantObject(meta *metav1.PartialObjectMetadata) annotations.Object {
	object := annotations.Object{Namespace: meta.Namespace, Name: meta.Name, Label: meta.Labels[label]}
	for _, key := range []string{roleARN, expiry} {
		if value, ok := meta.Annotations[key]; ok {
			if object.Annotations == nil {
				object.Annotations = map[string]string{}
			}
			object.Annotations[key] = value
		}
	}
	return object
}

// A substring would keep the whole string in memory.
func TestTheCacheKeepsCopies(t *testing.T) {
	t.Parallel()
	response := strings.Repeat("x", 1000) + "ns" + "app" + roleARN + "role" + "enabled"
	cut := func(s string) string {
		i := strings.LastIndex(response, s)
		return response[i : i+len(s)]
	}
	c := newCache(t, noReads(t))
	fill(t, c, serviceAccount(cut("ns"), cut("app"), cut(roleARN), cut("role"), label, cut("enabled")))
	for object := range c.All() {
		for _, s := range []string{object.Namespace, object.Name, object.Label} {
			wantCopy(t, response, s)
		}
		for key, value := range object.Annotations {
			wantCopy(t, response, key)
			wantCopy(t, response, value)
		}
	}
}

func wantCopy(t *testing.T, whole, part string) {
	t.Helper()
	start := uintptr(unsafe.Pointer(unsafe.StringData(whole))) //nolint:gosec // only compared
	at := uintptr(unsafe.Pointer(unsafe.StringData(part)))     //nolint:gosec // only compared
	if start <= at && at < start+uintptr(len(whole)) {
		t.Errorf("%q is a part of the response, want a copy", part)
	}
}

// BenchmarkLimitMemoryOfObjectsWithoutAnnotations fails if a ServiceAccount that asks for
// nothing takes more memory than its limit: a cluster has many of them.
func BenchmarkLimitMemoryOfObjectsWithoutAnnotations(b *testing.B) {
	const objects, most = 20_000, 130 // bytes of one
	c := New(Options{Client: reader(nil), Resource: serviceAccounts})
	before := heap()
	for i := range objects {
		if err := (reflectorStore{c}).Add(serviceAccount("namespace", fmt.Sprintf("app-%d", i), "other", "x")); err != nil {
			b.Fatal(err)
		}
	}
	each := (heap() - before) / objects
	b.ReportMetric(float64(each), "B/object")
	if each > most {
		b.Errorf("got %d bytes for one object, want at most %d", each, most)
	}
	if got, want := countsOf(c), (counts{all: objects}); got != want {
		b.Errorf("got counts %+v, want %+v", got, want)
	}
}

func heap() int64 {
	runtime.GC()
	runtime.GC() // the first collection may only mark what the second frees
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

func BenchmarkGet(b *testing.B) {
	c := New(Options{Client: reader(nil), Resource: serviceAccounts})
	for i := range 20_000 {
		var pairs []string
		if i%20 == 0 {
			pairs = []string{roleARN, "r"}
		}
		if err := (reflectorStore{c}).Add(serviceAccount("namespace", fmt.Sprintf("app-%d", i), pairs...)); err != nil {
			b.Fatal(err)
		}
	}
	for name, object := range map[string]string{"annotated": "app-40", "unannotated": "app-41"} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if _, err := c.Get(b.Context(), "namespace", object); err != nil {
						b.Error(err)
					}
				}
			})
		})
	}
}

func BenchmarkAll(b *testing.B) {
	c := New(Options{Client: reader(nil), Resource: serviceAccounts})
	for i := range 100_000 {
		if err := (reflectorStore{c}).Add(serviceAccount("namespace", fmt.Sprintf("app-%d", i))); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		if got := countsOf(c); got.all != 100_000 {
			b.Fatalf("got %+v", got)
		}
	}
}

func TestAnnotationsAboveTheLimitAreNotKept(t *testing.T) {
	t.Parallel()
	const limit = 64
	longest := strings.Repeat("x", limit-len(prefix+"a"))
	for name, tt := range map[string]struct {
		value string
		want  annotations.Object
	}{
		"annotations at the limit are kept":                  {longest, annotations.Object{Namespace: "ns", Name: "app", Annotations: map[string]string{prefix + "a": longest}}},
		"of annotations one byte above it, the size is kept": {longest + "x", annotations.Object{Namespace: "ns", Name: "app", TooLarge: limit + 1}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCache(t, noReads(t), func(o *Options) { o.MaxBytes = limit })
			fill(t, c, serviceAccount("ns", "app", prefix+"a", tt.value, "example.com/other", strings.Repeat("y", 10*limit)))
			got, err := c.Get(t.Context(), "ns", "app")
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("object (-want +got):\n%s", diff)
			}
			if got, want := countsOf(c), (counts{all: 1, annotated: 1}); got != want {
				t.Errorf("got counts %+v, want %+v", got, want)
			}
		})
	}
}
