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
	"k8s.io/client-go/tools/cache"
)

func asksForIdentity(key string) bool { return key == roleARN }

func TestCountsFollowWhatTheWatchTells(t *testing.T) {
	t.Parallel()
	bare := account("ns", "app")
	annotated := account("ns", "app", roleARN, "r")
	guarded := account("ns", "app", roleARN, "r", label, "enabled")
	for name, tc := range map[string]struct {
		feed func(feed) error
		want Counts
	}{
		"nothing is nothing":                            {func(feed) error { return nil }, Counts{}},
		"an account without annotations is unannotated": {func(f feed) error { return f.Add(bare) }, Counts{Unannotated: 1}},
		"an account with the label alone is unannotated": {
			func(f feed) error { return f.Add(account("ns", "app", label, "enabled")) },
			Counts{Unannotated: 1},
		},
		"an account without the label is unguarded": {
			func(f feed) error { return f.Add(annotated) },
			Counts{Annotated: 1, Unguarded: 1},
		},
		"an account with the label is not": {func(f feed) error { return f.Add(guarded) }, Counts{Annotated: 1}},
		"an account that asks for nothing needs no label": {
			func(f feed) error { return f.Add(account("ns", "app", expiry, "3600")) },
			Counts{Annotated: 1},
		},
		"an account that gets the label stops being unguarded": {
			func(f feed) error { return all(f.Add(annotated), f.Update(guarded)) },
			Counts{Annotated: 1},
		},
		"an account that gets annotations moves": {
			func(f feed) error { return all(f.Add(bare), f.Update(guarded)) },
			Counts{Annotated: 1},
		},
		"an account that loses its annotations moves back": {
			func(f feed) error { return all(f.Add(annotated), f.Update(bare)) },
			Counts{Unannotated: 1},
		},
		"an account that is told twice counts once": {
			func(f feed) error { return all(f.Add(annotated), f.Add(annotated), f.Update(bare), f.Add(bare)) },
			Counts{Unannotated: 1},
		},
		"an account that is deleted is gone": {
			func(f feed) error { return all(f.Add(annotated), f.Delete(bare), f.Delete(annotated)) },
			Counts{},
		},
		"an account whose deletion was missed is gone": {
			func(f feed) error {
				return all(f.Add(annotated), f.Delete(cache.DeletedFinalStateUnknown{Key: "ns/app", Obj: annotated}))
			},
			Counts{},
		},
		"a new list takes the place of all": {
			func(f feed) error {
				return all(f.Add(account("ns", "old")), f.Add(annotated), f.Replace([]any{account("ns", "new"), guarded, bare}, "2"))
			},
			Counts{Unannotated: 2},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLookup(t, noReads(t), func(o *Options) { o.Identity = asksForIdentity })
			if err := tc.feed(feed{l}); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, l.Counts()); diff != "" {
				t.Errorf("counts (-want +got):\n%s", diff)
			}
		})
	}
}

func all(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func TestWhatCannotBeUnderstoodLeavesTheStoreAsItWas(t *testing.T) {
	t.Parallel()
	for name, do := range map[string]func(feed) error{
		"an addition of another type":          func(f feed) error { return f.Add("x") },
		"an update of another type":            func(f feed) error { return f.Update(&metav1.Status{}) },
		"a deletion of another type":           func(f feed) error { return f.Delete(nil) },
		"a missed deletion of no object's key": func(f feed) error { return f.Delete(cache.DeletedFinalStateUnknown{Key: "a/b/c"}) },
		"a list with another type in it":       func(f feed) error { return f.Replace([]any{account("ns", "b"), 1}, "2") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLookup(t, noReads(t))
			if err := (feed{l}).Add(account("ns", "app", roleARN, "r")); err != nil {
				t.Fatal(err)
			}
			if err := do(feed{l}); err == nil {
				t.Error("got no error")
			}
			if diff := cmp.Diff(Counts{Annotated: 1, Unguarded: 1}, l.Counts()); diff != "" {
				t.Errorf("counts (-want +got):\n%s", diff)
			}
			if l.HasSynced() {
				t.Error("got synced before a whole list came")
			}
		})
	}
}

func TestNamesThatReadAlikeAreToldApart(t *testing.T) {
	t.Parallel()
	l := newLookup(t, noReads(t))
	fill(t, l, account("team", "a-app"))
	for _, id := range []types.NamespacedName{
		{Namespace: "team-a", Name: "-app"},
		{Namespace: "teama", Name: "-app"},
		{Namespace: "tea", Name: "ma-app"},
		{Name: "teama-app"},
	} {
		if _, ok := l.store.get(id); ok {
			t.Errorf("got %s, want team/a-app alone", id)
		}
	}
}

// TestStoreAgainstAModel feeds random events to the store and to a plain map.
func TestStoreAgainstAModel(t *testing.T) {
	t.Parallel()
	for seed := range uint64(50) {
		t.Run(fmt.Sprintf("the two agree with seed %d", seed), func(t *testing.T) {
			t.Parallel()
			rnd := rand.New(rand.NewPCG(seed, 0))
			l := newLookup(t, noReads(t), func(o *Options) { o.Identity = asksForIdentity })
			model := map[types.NamespacedName]*metav1.PartialObjectMetadata{}
			for step := range 300 {
				if err := randomEvent(rnd, feed{l}, model); err != nil {
					t.Fatalf("step %d: %v", step, err)
				}
				compare(t, l, model)
				if t.Failed() {
					t.Fatalf("first wrong after step %d", step)
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
	return account(string(rune('a'+rnd.IntN(2))), string(rune('a'+rnd.IntN(5))), pairs...)
}

func randomEvent(rnd *rand.Rand, f feed, model map[types.NamespacedName]*metav1.PartialObjectMetadata) error {
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
		return f.Replace(objs, "1")
	case 1, 2:
		delete(model, id)
		return f.Delete(meta) // whatever the last state was
	case 3:
		delete(model, id)
		return f.Delete(cache.DeletedFinalStateUnknown{Key: id.String()})
	case 4, 5, 6:
		model[id] = meta
		return f.Add(meta)
	default:
		model[id] = meta
		return f.Update(meta)
	}
}

func compare(t *testing.T, l *Lookup, model map[types.NamespacedName]*metav1.PartialObjectMetadata) {
	t.Helper()
	var counts Counts
	for _, id := range everyID() {
		meta, known := model[id]
		var want Object
		if known {
			want = wanted(meta)
			if want.Annotations == nil {
				counts.Unannotated++
			} else {
				counts.Annotated++
			}
			if _, asks := want.Annotations[roleARN]; asks && !want.Labeled {
				counts.Unguarded++
			}
		}
		got, ok := l.store.get(id)
		if diff := cmp.Diff(want, got); ok != known || diff != "" {
			t.Errorf("%s: got known %t, want %t; object (-want +got):\n%s", id, ok, known, diff)
		}
	}
	if diff := cmp.Diff(counts, l.Counts()); diff != "" {
		t.Errorf("counts (-want +got):\n%s", diff)
	}
	if named, hashed := len(l.store.named), len(l.store.hashes); named+hashed != len(model) {
		t.Errorf("got %d names and %d hashes, want %d in all", named, hashed, len(model))
	}
}

func everyID() []types.NamespacedName {
	var ids []types.NamespacedName
	for ns := range 2 {
		for name := range 5 {
			ids = append(ids, types.NamespacedName{Namespace: string(rune('a' + ns)), Name: string(rune('a' + name))})
		}
	}
	return ids
}

func wanted(meta *metav1.PartialObjectMetadata) Object {
	obj := Object{Labeled: meta.Labels[label] == "enabled"}
	for _, key := range []string{roleARN, expiry} {
		if value, ok := meta.Annotations[key]; ok {
			if obj.Annotations == nil {
				obj.Annotations = map[string]string{}
			}
			obj.Annotations[key] = value
		}
	}
	return obj
}

// A value that is a part of a larger string would keep all of it in memory.
func TestWhatIsKeptIsCopied(t *testing.T) {
	t.Parallel()
	response := strings.Repeat("x", 1000) + "ns" + "app" + roleARN + "role"
	cut := func(s string) string {
		i := strings.LastIndex(response, s)
		return response[i : i+len(s)]
	}
	l := newLookup(t, noReads(t))
	fill(t, l, account(cut("ns"), cut("app"), cut(roleARN), cut("role")), account("ns", "other", cut(roleARN), "r"))

	shared := map[*byte]bool{}
	for id, obj := range l.store.named {
		for _, s := range []string{id.Namespace, id.Name} {
			wantCopy(t, response, s)
		}
		for key, value := range obj.Annotations {
			wantCopy(t, response, key)
			wantCopy(t, response, value)
			shared[unsafe.StringData(key)] = true //nolint:gosec // only compared
		}
	}
	if len(shared) != 1 {
		t.Errorf("got %d copies of the one key, want 1", len(shared))
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

func TestKeysThatUsersMakeUpAreNotKeptForEver(t *testing.T) {
	t.Parallel()
	e := newExtractor(prefix, nil, 0)
	for i := range 10 * maxKeys {
		key := fmt.Sprintf("%smade-up-%d", prefix, i)
		obj := e.object(account("ns", "app", key, "x"))
		if diff := cmp.Diff(map[string]string{key: "x"}, obj.Annotations); diff != "" {
			t.Fatalf("annotations (-want +got):\n%s", diff)
		}
	}
	if len(e.keys) != maxKeys {
		t.Errorf("got %d keys, want %d", len(e.keys), maxKeys)
	}
}

// Not parallel, as it measures the heap.
func TestAnAccountWithoutAnnotationsCostsNextToNothing(t *testing.T) {
	const accounts, most = 20_000, 40 // bytes for one
	l := newLookup(t, noReads(t))
	before := heap()
	for i := range accounts {
		if err := (feed{l}).Add(account("namespace", fmt.Sprintf("account-%d", i), "other", "x")); err != nil {
			t.Fatal(err)
		}
	}
	each := (heap() - before) / accounts
	t.Logf("%d bytes for one account", each)
	if each > most {
		t.Errorf("got %d bytes for one account, want at most %d", each, most)
	}
	if got := l.Counts().Unannotated; got != accounts {
		t.Errorf("got %d accounts, want %d", got, accounts)
	}
}

func heap() int64 {
	runtime.GC()
	runtime.GC() // the first one may only have marked what the second frees
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

func BenchmarkGet(b *testing.B) {
	l, err := New(Options{Client: reader(nil), Resource: serviceAccounts, Prefix: prefix})
	if err != nil {
		b.Fatal(err)
	}
	for i := range 20_000 {
		var pairs []string
		if i%20 == 0 {
			pairs = []string{roleARN, "r"}
		}
		if err := (feed{l}).Add(account("namespace", fmt.Sprintf("account-%d", i), pairs...)); err != nil {
			b.Fatal(err)
		}
	}
	for name, account := range map[string]string{"annotated": "account-40", "unannotated": "account-41"} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if _, _, err := l.Get(b.Context(), "namespace", account); err != nil {
						b.Error(err)
					}
				}
			})
		})
	}
}

func TestAnObjectKeepsNoMoreThanItMay(t *testing.T) {
	t.Parallel()
	const limit = 64
	for name, tt := range map[string]struct {
		value string
		want  Object
	}{
		"as much as it may": {strings.Repeat("x", limit-len(prefix+"a")), Object{Annotations: map[string]string{prefix + "a": strings.Repeat("x", limit-len(prefix+"a"))}}},
		"a byte more":       {strings.Repeat("x", limit-len(prefix+"a")+1), Object{Annotations: map[string]string{}, TooLarge: limit + 1}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLookup(t, noReads(t), func(o *Options) { o.MaxBytes = limit })
			fill(t, l, account("ns", "app", prefix+"a", tt.value, "example.com/other", strings.Repeat("y", 10*limit)))
			got, source, err := l.Get(t.Context(), "ns", "app")
			if err != nil || source != SourceCache {
				t.Fatalf("got source %s and error %v", source, err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("object (-want +got):\n%s", diff)
			}
			if counts := l.Counts(); counts.Annotated != 1 {
				t.Errorf("got %+v, want 1 annotated", counts)
			}
		})
	}
}
