// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package metadatacache

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
)

const (
	prefix  = "lanyard.dev/"
	roleARN = prefix + "aws-role-arn"
	expiry  = prefix + "token-expiration-seconds"
	label   = prefix + "identity"
)

var serviceAccounts = schema.GroupVersionResource{Version: "v1", Resource: "serviceaccounts"}

// account returns what the API server says of a service account; pairs are
// annotation keys and values, but for the label, which becomes one.
func account(namespace, name string, pairs ...string) *metav1.PartialObjectMetadata {
	meta := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i] == label {
			metav1.SetMetaDataLabel(&meta.ObjectMeta, pairs[i], pairs[i+1])
			continue
		}
		metav1.SetMetaDataAnnotation(&meta.ObjectMeta, pairs[i], pairs[i+1])
	}
	return meta
}

// reader is a client that can only get, with the function that it is.
type reader func(ctx context.Context, namespace, name string) (*metav1.PartialObjectMetadata, error)

type getter struct {
	metadata.Getter
	read      reader
	namespace string
}

func (r reader) Resource(schema.GroupVersionResource) metadata.Getter { return getter{read: r} }

func (g getter) Namespace(namespace string) metadata.ResourceInterface {
	return getter{read: g.read, namespace: namespace}
}

func (g getter) Get(ctx context.Context, name string, opts metav1.GetOptions, _ ...string) (*metav1.PartialObjectMetadata, error) {
	if opts.ResourceVersion != "" {
		return nil, fmt.Errorf("got a read with resource version %q, want a quorum read", opts.ResourceVersion)
	}
	return g.read(ctx, g.namespace, name)
}

func notFound(name string) error {
	return apierrors.NewNotFound(serviceAccounts.GroupResource(), name)
}

func noReads(t *testing.T) reader {
	return func(_ context.Context, namespace, name string) (*metav1.PartialObjectMetadata, error) {
		t.Errorf("got a live read of %s/%s, want none", namespace, name)
		return nil, notFound(name)
	}
}

// recorder counts by "source result".
type recorder struct {
	mu   sync.Mutex
	seen map[string]int
}

func (r *recorder) RecordLookup(source, result string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.seen == nil {
		r.seen = map[string]int{}
	}
	r.seen[source+" "+result]++
}

func newLookup(t *testing.T, read reader, change ...func(*Options)) *Lookup {
	t.Helper()
	opts := Options{Client: read, Resource: serviceAccounts, Prefix: prefix}
	for _, c := range change {
		c(&opts)
	}
	l, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// fill makes the objects the whole content of the store.
func fill(t *testing.T, l *Lookup, metas ...*metav1.PartialObjectMetadata) {
	t.Helper()
	objs := make([]any, len(metas))
	for i := range metas {
		objs[i] = metas[i]
	}
	if err := (feed{l}).Replace(objs, "1"); err != nil {
		t.Fatal(err)
	}
}

func TestNewRefusesOptionsThatCannotWork(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(*Options)
		want   string
	}{
		"there must be a client":                    {func(o *Options) { o.Client = nil }, "no client"},
		"there must be a resource":                  {func(o *Options) { o.Resource = schema.GroupVersionResource{} }, "no resource"},
		"an empty prefix would keep every key":      {func(o *Options) { o.Prefix = "" }, `prefix ""`},
		"a prefix without slash would keep others'": {func(o *Options) { o.Prefix = "lanyard.dev" }, `prefix "lanyard.dev"`},
		"a negative timeout would fail every read":  {func(o *Options) { o.ReadTimeout = -1 }, "read timeout -1ns"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			opts := Options{Client: reader(nil), Resource: serviceAccounts, Prefix: prefix}
			tc.change(&opts)
			if _, err := New(opts); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got error %v, want one with %q", err, tc.want)
			}
		})
	}
}

func TestGetFromTheCache(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		keep func(string) bool
		meta *metav1.PartialObjectMetadata
		want Object
	}{
		"an account without annotations is known": {
			meta: account("ns", "app"),
		},
		"annotations of others are not kept": {
			meta: account("ns", "app", "eks.amazonaws.com/role-arn", "x", "lanyard.dev.example/aws-role-arn", "x"),
		},
		"annotations with the prefix are kept by their full keys": {
			meta: account("ns", "app", roleARN, "r", "other", "x"),
			want: Object{Annotations: map[string]string{roleARN: "r"}},
		},
		"annotations that the caller does not want are not kept": {
			keep: func(key string) bool { return key == roleARN },
			meta: account("ns", "app", roleARN, "r", prefix+"made-up", "x"),
			want: Object{Annotations: map[string]string{roleARN: "r"}},
		},
		"an empty value is a value": {
			meta: account("ns", "app", roleARN, ""),
			want: Object{Annotations: map[string]string{roleARN: ""}},
		},
		"the label is told": {
			meta: account("ns", "app", roleARN, "r", label, "enabled"),
			want: Object{Annotations: map[string]string{roleARN: "r"}, Labeled: true},
		},
		"the label is told also where there is no annotation": {
			meta: account("ns", "app", label, "enabled"),
			want: Object{Labeled: true},
		},
		"another value of the label does not count": {
			meta: account("ns", "app", roleARN, "r", label, "true"),
			want: Object{Annotations: map[string]string{roleARN: "r"}},
		},
		"a cluster-scoped object has no namespace": {
			meta: account("", "app", prefix+"allowed-identities", "*"),
			want: Object{Annotations: map[string]string{prefix + "allowed-identities": "*"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var rec recorder
			l := newLookup(t, noReads(t), func(o *Options) { o.Keep, o.Recorder = tc.keep, &rec })
			fill(t, l, account("ns", "neighbour"), tc.meta)
			got, source, err := l.Get(t.Context(), tc.meta.Namespace, "app")
			if err != nil || source != SourceCache {
				t.Fatalf("got source %q, error %v; want %q, none", source, err, SourceCache)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("object (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(map[string]int{"cache found": 1}, rec.seen); diff != "" {
				t.Errorf("recorded (-want +got):\n%s", diff)
			}
		})
	}
}

func TestGetFromTheCacheDoesNotAllocate(t *testing.T) {
	l := newLookup(t, noReads(t))
	fill(t, l, account("ns", "annotated", roleARN, "r"), account("ns", "bare"))
	for _, name := range []string{"annotated", "bare"} {
		allocs := testing.AllocsPerRun(1000, func() {
			if _, _, err := l.Get(t.Context(), "ns", name); err != nil {
				t.Fatal(err)
			}
		})
		if allocs != 0 {
			t.Errorf("got %v allocations for %s, want 0", allocs, name)
		}
	}
}

func TestGetOnAMissReadsLive(t *testing.T) {
	t.Parallel()
	down := apierrors.NewInternalError(errors.New("etcd is down"))
	for name, tc := range map[string]struct {
		meta         *metav1.PartialObjectMetadata
		err          error
		want         Object
		wantErr      string
		wantNotFound bool
		wantRecorded string
	}{
		"an account that is there is returned as from the cache": {
			meta:         account("ns", "app", roleARN, "r", "other", "x", label, "enabled"),
			want:         Object{Annotations: map[string]string{roleARN: "r"}, Labeled: true},
			wantRecorded: "live found",
		},
		"an account that is not there is a not-found error": {
			err:          notFound("app"),
			wantErr:      `read serviceaccount ns/app: serviceaccounts "app" not found`,
			wantNotFound: true,
			wantRecorded: "live not_found",
		},
		"a failure of the server is no answer": {
			err:          down,
			wantErr:      "read serviceaccount ns/app: " + down.Error(),
			wantRecorded: "live error",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var rec recorder
			reads := 0
			l := newLookup(t, func(_ context.Context, namespace, name string) (*metav1.PartialObjectMetadata, error) {
				reads++
				if namespace != "ns" || name != "app" {
					t.Errorf("got a read of %s/%s, want ns/app", namespace, name)
				}
				return tc.meta, tc.err
			}, func(o *Options) { o.Recorder = &rec })
			// Twice, as neither an object nor an error that was read is kept.
			for range 2 {
				got, source, err := l.Get(t.Context(), "ns", "app")
				if source != SourceLive {
					t.Errorf("got source %q, want %q", source, SourceLive)
				}
				if msg := fmt.Sprint(err); err != nil && msg != tc.wantErr || err == nil && tc.wantErr != "" {
					t.Errorf("got error %q, want %q", msg, tc.wantErr)
				}
				if apierrors.IsNotFound(err) != tc.wantNotFound {
					t.Errorf("got not found %t of %v, want %t", !tc.wantNotFound, err, tc.wantNotFound)
				}
				if tc.err != nil && !errors.Is(err, tc.err) {
					t.Errorf("got error %v, want one that wraps %v", err, tc.err)
				}
				if diff := cmp.Diff(tc.want, got); diff != "" {
					t.Errorf("object (-want +got):\n%s", diff)
				}
			}
			if reads != 2 {
				t.Errorf("got %d reads, want 2", reads)
			}
			if diff := cmp.Diff(map[string]int{tc.wantRecorded: 2}, rec.seen); diff != "" {
				t.Errorf("recorded (-want +got):\n%s", diff)
			}
		})
	}
}

func TestGetOfANameThatCannotBeNeverReachesTheClient(t *testing.T) {
	t.Parallel()
	for name, id := range map[string]types.NamespacedName{
		"a name may not climb to another namespace":   {Namespace: "ns", Name: "../../other/serviceaccounts/admin"},
		"a name may not be the namespace itself":      {Namespace: "ns", Name: ".."},
		"a name may not be the list":                  {Namespace: "ns", Name: "."},
		"a name may not be escaped":                   {Namespace: "ns", Name: "%2e%2e"},
		"a namespace may not climb to another either": {Namespace: "../x", Name: "app"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, _, err := newLookup(t, noReads(t)).Get(t.Context(), id.Namespace, id.Name)
			if !apierrors.IsNotFound(err) {
				t.Errorf("got error %v, want not found", err)
			}
		})
	}
}

// gate is a client each of whose reads waits for an answer.
type gate struct {
	answers chan answer
	mu      sync.Mutex
	reads   int
}

type answer struct {
	meta *metav1.PartialObjectMetadata
	err  error
}

func newGate() *gate { return &gate{answers: make(chan answer)} }

func (g *gate) read(ctx context.Context, _, _ string) (*metav1.PartialObjectMetadata, error) {
	g.mu.Lock()
	g.reads++
	g.mu.Unlock()
	select {
	case a := <-g.answers:
		return a.meta, a.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (g *gate) wantReads(t *testing.T, want int) {
	t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.reads != want {
		t.Errorf("got %d reads, want %d", g.reads, want)
	}
}

// start gets ns/app and returns where the answer will be. It returns once that
// caller waits.
func start(ctx context.Context, l *Lookup) <-chan lookupResult {
	results := make(chan lookupResult, 1)
	go func() {
		obj, _, err := l.Get(ctx, "ns", "app")
		results <- lookupResult{obj, err}
	}()
	synctest.Wait()
	return results
}

type lookupResult struct {
	obj Object
	err error
}

func (r lookupResult) wantRole(t *testing.T, want string) {
	t.Helper()
	if r.err != nil || r.obj.Annotations[roleARN] != want {
		t.Errorf("got role %q, error %v; want role %q", r.obj.Annotations[roleARN], r.err, want)
	}
}

func TestCallersOfTheSameAccountShareOneRead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		l := newLookup(t, g.read)
		var callers []<-chan lookupResult
		for range 100 {
			callers = append(callers, start(t.Context(), l))
		}
		g.answers <- answer{meta: account("ns", "app", roleARN, "r")}
		for _, c := range callers {
			(<-c).wantRole(t, "r")
		}
		g.wantReads(t, 1)
	})
}

func TestACallersCancellationEndsItsOwnWaitAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		l := newLookup(t, g.read)
		ctx, cancel := context.WithCancel(t.Context())
		first := start(ctx, l) // its context is the one that the read came from
		second := start(t.Context(), l)
		cancel()
		if r := <-first; !errors.Is(r.err, context.Canceled) {
			t.Errorf("got error %v for the caller that left, want %v", r.err, context.Canceled)
		}
		g.answers <- answer{meta: account("ns", "app", roleARN, "r")}
		(<-second).wantRole(t, "r")
		g.wantReads(t, 1)
	})
}

func TestAReadEndsByItsOwnDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		l := newLookup(t, g.read, func(o *Options) { o.ReadTimeout = 3 * time.Second })
		began := time.Now()
		r := <-start(t.Context(), l)
		if !errors.Is(r.err, context.DeadlineExceeded) || apierrors.IsNotFound(r.err) {
			t.Errorf("got error %v, want %v", r.err, context.DeadlineExceeded)
		}
		if took := time.Since(began); took != 3*time.Second {
			t.Errorf("got an answer after %v, want 3s", took)
		}
	})
}

// Callers that come while a read is under way may know of a write that it
// does not show.
func TestCallersThatJoinedAReadReadAgainWhereItMatters(t *testing.T) {
	t.Parallel()
	stale, fresh := account("ns", "app", roleARN, "old"), account("ns", "app", roleARN, "new")
	for name, tc := range map[string]struct {
		expect      bool
		first       answer
		again       bool // a second read is to be made, which sees fresh
		wantLate    string
		wantEarlier string // "" is not found
	}{
		"an account that was created meanwhile is found":     {first: answer{err: notFound("app")}, again: true, wantLate: "new"},
		"an account that was expected to change is re-read":  {expect: true, first: answer{meta: stale}, again: true, wantLate: "new", wantEarlier: "old"},
		"an account that nobody is writing is read but once": {first: answer{meta: stale}, wantLate: "old", wantEarlier: "old"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				g := newGate()
				l := newLookup(t, g.read)
				early := start(t.Context(), l)
				if tc.expect {
					l.Expect("ns", "app")
				}
				late := []<-chan lookupResult{start(t.Context(), l), start(t.Context(), l)}
				g.answers <- tc.first
				wantReads := 1
				if tc.again {
					synctest.Wait() // the late ones share the second read too
					g.answers <- answer{meta: fresh}
					wantReads = 2
				}
				for _, c := range late {
					(<-c).wantRole(t, tc.wantLate)
				}
				g.wantReads(t, wantReads)
				r := <-early
				if tc.wantEarlier != "" {
					r.wantRole(t, tc.wantEarlier)
				} else if !apierrors.IsNotFound(r.err) {
					t.Errorf("got error %v for the caller whose read it was, want not found", r.err)
				}
			})
		})
	}
}

func TestAnAccountThatIsNotThereEndsAfterTwoReads(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		l := newLookup(t, g.read)
		callers := []<-chan lookupResult{start(t.Context(), l), start(t.Context(), l), start(t.Context(), l)}
		for range 2 {
			g.answers <- answer{err: notFound("app")}
			synctest.Wait()
		}
		for _, c := range callers {
			if r := <-c; !apierrors.IsNotFound(r.err) {
				t.Errorf("got error %v, want not found", r.err)
			}
		}
		g.wantReads(t, 2)
	})
}

func TestExpectForcesALiveReadUntilItExpires(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var reads int
		var failure error
		l := newLookup(t, func(context.Context, string, string) (*metav1.PartialObjectMetadata, error) {
			reads++
			return account("ns", "app", roleARN, "new"), failure
		})
		fill(t, l, account("ns", "app", roleARN, "old"), account("ns", "other"))
		get := func(wantRole string, wantReads int) {
			t.Helper()
			obj, _, err := l.Get(t.Context(), "ns", "app")
			lookupResult{obj, err}.wantRole(t, wantRole)
			if reads != wantReads {
				t.Errorf("got %d reads, want %d", reads, wantReads)
			}
		}
		get("old", 0)
		l.Expect("ns", "app")
		get("new", 1)
		if _, source, err := l.Get(t.Context(), "ns", "other"); err != nil || source != SourceCache {
			t.Errorf("got source %q, error %v for another account; want %q", source, err, SourceCache)
		}

		failure = apierrors.NewServiceUnavailable("down")
		if _, _, err := l.Get(t.Context(), "ns", "app"); !errors.Is(err, failure) {
			t.Errorf("got error %v, want %v and never what the cache holds", err, failure)
		}
		failure = nil

		time.Sleep(expectFor - time.Nanosecond)
		get("new", 3)
		l.Expect("ns", "app") // a second write begins anew
		time.Sleep(expectFor - time.Nanosecond)
		get("new", 4)
		time.Sleep(time.Nanosecond)
		get("old", 4)
		if n := l.expected.size.Load(); n != 0 {
			t.Errorf("got %d expectations left, want 0: each Get would take the lock", n)
		}
	})
}

func TestExpectForgetsTheOldestPastItsBound(t *testing.T) {
	t.Parallel()
	var e expectations
	id := func(i int) types.NamespacedName {
		return types.NamespacedName{Namespace: "ns", Name: fmt.Sprint(i)}
	}
	for i := range maxExpected {
		e.add(id(i))
	}
	e.add(id(0)) // now the youngest
	e.add(id(maxExpected))
	for i, want := range map[int]bool{0: true, 1: false, 2: true, maxExpected: true} {
		if got := e.has(id(i)); got != want {
			t.Errorf("got %t for number %d, want %t", got, i, want)
		}
	}
	if got := len(e.byName); got != maxExpected || e.byAge.Len() != got || e.size.Load() != int64(got) {
		t.Errorf("got %d names, %d by age, size %d; want %d of each", got, e.byAge.Len(), e.size.Load(), maxExpected)
	}
}
