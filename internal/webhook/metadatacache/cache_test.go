// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package metadatacache

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"

	"github.com/lanyard-dev/lanyard/internal/webhook/bounds"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

const (
	prefix  = "lanyard.dev/"
	roleARN = prefix + "aws-role-arn"
	expiry  = prefix + "token-expiration-seconds"
	label   = prefix + "identity"
)

var serviceAccounts = schema.GroupVersionResource{Version: "v1", Resource: "serviceaccounts"}

// serviceAccount returns the metadata of a ServiceAccount. pairs are annotation keys and
// values; the label key sets the label.
func serviceAccount(namespace, name string, pairs ...string) *metav1.PartialObjectMetadata {
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

// reader is a client that can only get, by calling the function.
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

// lists is a client that calls before for each list. An error is the response.
type lists struct {
	metadata.Interface
	before func(ctx context.Context, opts metav1.ListOptions) error
}

type lister struct {
	metadata.Getter
	lists
}

func (l lists) Resource(r schema.GroupVersionResource) metadata.Getter {
	return lister{l.Interface.Resource(r), l}
}

func (l lister) List(ctx context.Context, opts metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
	if err := l.before(ctx, opts); err != nil {
		return nil, err
	}
	return l.Getter.List(ctx, opts)
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

func newCache(t *testing.T, read reader, change ...func(*Options)) *Cache {
	t.Helper()
	opts := Options{Client: read, Resource: serviceAccounts, Label: label}
	for _, set := range change {
		set(&opts)
	}
	return New(opts)
}

// fill replaces the content of the cache with the objects.
func fill(t *testing.T, c *Cache, metas ...*metav1.PartialObjectMetadata) {
	t.Helper()
	objs := make([]any, len(metas))
	for i := range metas {
		objs[i] = metas[i]
	}
	if err := (reflectorStore{c}).Replace(objs, "1"); err != nil {
		t.Fatal(err)
	}
}

func TestGetFromTheCache(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		meta *metav1.PartialObjectMetadata
		want annotations.Object
	}{
		"a ServiceAccount without annotations is known": {
			meta: serviceAccount("ns", "app"),
		},
		"annotations of others are not kept": {
			meta: serviceAccount("ns", "app", "eks.amazonaws.com/role-arn", "x", "lanyard.dev.example/aws-role-arn", "x"),
		},
		"annotations with the prefix are kept by their full keys": {
			meta: serviceAccount("ns", "app", roleARN, "r", "other", "x"),
			want: annotations.Object{Annotations: map[string]string{roleARN: "r"}},
		},
		"an empty value is a value": {
			meta: serviceAccount("ns", "app", roleARN, ""),
			want: annotations.Object{Annotations: map[string]string{roleARN: ""}},
		},
		"the value of the label is kept": {
			meta: serviceAccount("ns", "app", roleARN, "r", label, "enabled"),
			want: annotations.Object{Annotations: map[string]string{roleARN: "r"}, Label: "enabled"},
		},
		"the label is kept without an annotation": {
			meta: serviceAccount("ns", "app", label, "enabled"),
			want: annotations.Object{Label: "enabled"},
		},
		"another label is not kept": {
			meta: &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
				Namespace: "ns", Name: "app", Labels: map[string]string{prefix + "inject": "disabled"},
			}},
		},
		"a cluster-scoped object has no namespace": {
			meta: serviceAccount("", "app", prefix+"allowed-identities", "*"),
			want: annotations.Object{Annotations: map[string]string{prefix + "allowed-identities": "*"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var rec recorder
			c := newCache(t, noReads(t), func(o *Options) { o.Recorder = &rec })
			fill(t, c, serviceAccount("ns", "neighbour"), tc.meta)
			got, err := c.Get(t.Context(), tc.meta.Namespace, "app")
			if err != nil {
				t.Fatal(err)
			}
			tc.want.Namespace, tc.want.Name = tc.meta.Namespace, "app"
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
	c := newCache(t, noReads(t))
	fill(t, c, serviceAccount("ns", "annotated", roleARN, "r"), serviceAccount("ns", "unannotated"))
	for _, name := range []string{"annotated", "unannotated"} {
		allocs := testing.AllocsPerRun(1000, func() {
			if _, err := c.Get(t.Context(), "ns", name); err != nil {
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
		want         annotations.Object
		wantErr      string
		wantNotFound bool
		wantRecorded string
	}{
		"a ServiceAccount that exists is returned as from the cache": {
			meta:         serviceAccount("ns", "app", roleARN, "r", "other", "x", label, "enabled"),
			want:         annotations.Object{Namespace: "ns", Name: "app", Annotations: map[string]string{roleARN: "r"}, Label: "enabled"},
			wantRecorded: "live found",
		},
		"a ServiceAccount that does not exist is a not-found error": {
			err:          notFound("app"),
			wantErr:      `read serviceaccounts ns/app: serviceaccounts "app" not found`,
			wantNotFound: true,
			wantRecorded: "live not_found",
		},
		"a failure of the server is an error": {
			err:          down,
			wantErr:      "read serviceaccounts ns/app: " + down.Error(),
			wantRecorded: "live error",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var rec recorder
			reads := 0
			c := newCache(t, func(_ context.Context, namespace, name string) (*metav1.PartialObjectMetadata, error) {
				reads++
				if namespace != "ns" || name != "app" {
					t.Errorf("got a read of %s/%s, want ns/app", namespace, name)
				}
				return tc.meta, tc.err
			}, func(o *Options) { o.Recorder = &rec })
			// Twice: neither the object nor the error of a live read is kept.
			for range 2 {
				got, err := c.Get(t.Context(), "ns", "app")
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

func TestAnInvalidNameDoesNotReachTheClient(t *testing.T) {
	t.Parallel()
	for name, id := range map[string]types.NamespacedName{
		"a name may not lead to another namespace":   {Namespace: "ns", Name: "../../../other/serviceaccounts/admin"},
		"a name may not be the namespace itself":     {Namespace: "ns", Name: ".."},
		"a name may not be the list":                 {Namespace: "ns", Name: "."},
		"a name may not be escaped":                  {Namespace: "ns", Name: "%2e%2e"},
		"a namespace may not lead to another either": {Namespace: "../x", Name: "app"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := newCache(t, noReads(t)).Get(t.Context(), id.Namespace, id.Name)
			if !apierrors.IsNotFound(err) {
				t.Errorf("got error %v, want not found", err)
			}
		})
	}
}

// gate is a client whose reads each wait for an answer.
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

// start calls Get for ns/app and returns the channel of its result, as soon as the
// call waits.
func start(ctx context.Context, c *Cache) <-chan getResult {
	results := make(chan getResult, 1)
	go func() {
		obj, err := c.Get(ctx, "ns", "app")
		results <- getResult{obj, err}
	}()
	synctest.Wait()
	return results
}

type getResult struct {
	obj annotations.Object
	err error
}

func (r getResult) wantRole(t *testing.T, want string) {
	t.Helper()
	if r.err != nil || r.obj.Annotations[roleARN] != want {
		t.Errorf("got role %q, error %v; want role %q", r.obj.Annotations[roleARN], r.err, want)
	}
}

func TestCallersOfTheSameObjectShareOneRead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		c := newCache(t, g.read)
		var callers []<-chan getResult
		for range 100 {
			callers = append(callers, start(t.Context(), c))
		}
		g.answers <- answer{meta: serviceAccount("ns", "app", roleARN, "r")}
		for _, caller := range callers {
			(<-caller).wantRole(t, "r")
		}
		g.wantReads(t, 1)
	})
}

func TestACanceledCallerStopsOnlyItsOwnWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		c := newCache(t, g.read)
		ctx, cancel := context.WithCancel(t.Context())
		first := start(ctx, c) // the read is made with its context
		second := start(t.Context(), c)
		cancel()
		if r := <-first; !errors.Is(r.err, context.Canceled) {
			t.Errorf("got error %v for the caller that left, want %v", r.err, context.Canceled)
		}
		g.answers <- answer{meta: serviceAccount("ns", "app", roleARN, "r")}
		(<-second).wantRole(t, "r")
		g.wantReads(t, 1)
	})
}

// When callers left after 10 ms, 15,000 reads used to wait for their turn. A read in
// progress keeps its turn, because otherwise the number of connections to the API server
// would grow.
func TestAbandonedReadsLeaveTheQueue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var begun, reads atomic.Int64
		c := newCache(t, func(ctx context.Context, _, _ string) (*metav1.PartialObjectMetadata, error) {
			begun.Add(1)
			reads.Add(1)
			defer reads.Add(-1)
			<-ctx.Done()
			return nil, ctx.Err()
		})
		ctx, leave := context.WithCancel(t.Context())
		var callers sync.WaitGroup
		for i := range bounds.Reads + 100 {
			callers.Go(func() { _, _ = c.Get(ctx, "ns", fmt.Sprintf("app-%d", i)) })
		}
		synctest.Wait()
		began := time.Now()
		leave()
		callers.Wait()
		synctest.Wait()
		if got, joinable := reads.Load(), len(c.reads); got != bounds.Reads || joinable != 0 {
			t.Errorf("got %d reads when nobody waits, and %d to join, want those in progress, %d, and none", got, joinable, bounds.Reads)
		}
		time.Sleep(time.Until(began.Add(readTimeout)))
		synctest.Wait()
		if got, all := reads.Load(), begun.Load(); got != 0 || all != bounds.Reads {
			t.Errorf("got %d reads after %s, and %d in total, want none and %d", got, readTimeout, all, bounds.Reads)
		}
	})
}

func TestAReadEndsByItsOwnDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		c := newCache(t, g.read)
		began := time.Now()
		r := <-start(t.Context(), c)
		if !errors.Is(r.err, context.DeadlineExceeded) || apierrors.IsNotFound(r.err) {
			t.Errorf("got error %v, want %v", r.err, context.DeadlineExceeded)
		}
		if took := time.Since(began); took != readTimeout {
			t.Errorf("got an answer after %v, want %v", took, readTimeout)
		}
	})
}

// A caller that arrives shortly before the deadline of a read has time for another one.
func TestACallerThatJoinedAReadDoesNotShareItsDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		c := newCache(t, g.read)
		early := start(t.Context(), c)
		time.Sleep(readTimeout - time.Millisecond)
		late := start(t.Context(), c)
		if r := <-early; !errors.Is(r.err, context.DeadlineExceeded) {
			t.Errorf("got error %v for the caller that started the read, want %v", r.err, context.DeadlineExceeded)
		}
		synctest.Wait()
		g.answers <- answer{meta: serviceAccount("ns", "app", roleARN, "new")}
		(<-late).wantRole(t, "new")
	})
}

// Callers that arrive while a read is in progress may know of a write that it does not
// show.
func TestCallersThatJoinedAReadReadAgainIfNeeded(t *testing.T) {
	t.Parallel()
	stale, fresh := serviceAccount("ns", "app", roleARN, "old"), serviceAccount("ns", "app", roleARN, "new")
	for name, tc := range map[string]struct {
		invalid     bool
		first       answer
		again       bool // a second read is wanted, which returns fresh
		wantLate    string
		wantEarlier string // "" is not found
	}{
		"a ServiceAccount that was created meanwhile is found": {first: answer{err: notFound("app")}, again: true, wantLate: "new"},
		"a ServiceAccount that was invalidated is read again":  {invalid: true, first: answer{meta: stale}, again: true, wantLate: "new", wantEarlier: "old"},
		"a ServiceAccount that is not written is read once":    {first: answer{meta: stale}, wantLate: "old", wantEarlier: "old"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				g := newGate()
				c := newCache(t, g.read)
				early := start(t.Context(), c)
				if tc.invalid {
					c.Invalidate("ns", "app", "1")
				}
				late := []<-chan getResult{start(t.Context(), c), start(t.Context(), c)}
				g.answers <- tc.first
				wantReads := 1
				if tc.again {
					synctest.Wait() // the late callers share the second read too
					g.answers <- answer{meta: fresh}
					wantReads = 2
				}
				for _, caller := range late {
					(<-caller).wantRole(t, tc.wantLate)
				}
				g.wantReads(t, wantReads)
				r := <-early
				if tc.wantEarlier != "" {
					r.wantRole(t, tc.wantEarlier)
				} else if !apierrors.IsNotFound(r.err) {
					t.Errorf("got error %v for the caller that started the read, want not found", r.err)
				}
			})
		})
	}
}

func TestAnObjectThatDoesNotExistIsReadTwice(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		c := newCache(t, g.read)
		callers := []<-chan getResult{start(t.Context(), c), start(t.Context(), c), start(t.Context(), c)}
		for range 2 {
			g.answers <- answer{err: notFound("app")}
			synctest.Wait()
		}
		for _, caller := range callers {
			if r := <-caller; !apierrors.IsNotFound(r.err) {
				t.Errorf("got error %v, want not found", r.err)
			}
		}
		g.wantReads(t, 2)
	})
}
