// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package lookup answers which Lanyard annotations an API object carries: from
// a store that a watch feeds, and with a live read of the object on a miss.
//
// The store keeps of an object only what an identity needs. An object without
// any Lanyard annotation costs it one 64-bit hash.
package metadatacache

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/singleflight"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
)

// Source tells where an answer came from.
type Source string

const (
	// SourceCache is the store that the watch feeds.
	SourceCache Source = "cache"
	// SourceLive is a read of the object from the API server.
	SourceLive Source = "live"
)

// The results of a lookup, as the Recorder gets them.
const (
	// ResultFound says that the object exists.
	ResultFound = "found"
	// ResultNotFound says that the API server does not know the object.
	ResultNotFound = "not_found"
	// ResultError says that the object could not be read.
	ResultError = "error"
)

// DefaultReadTimeout bounds one live read unless Options says otherwise. Two of
// them, the most that one Get waits for, stay within the 10 seconds which the
// API server gives a webhook by default.
const DefaultReadTimeout = 5 * time.Second

// Recorder counts lookups.
type Recorder interface {
	// RecordLookup is called once for each Get, with one of the sources and one
	// of the results above.
	RecordLookup(source, result string)
}

// Object is what the store keeps of one API object.
type Object struct {
	// Annotations are the kept annotations by their full keys, prefix included;
	// nil when there are none. They are shared: callers must not change them.
	Annotations map[string]string
	// TooLarge is the size of the annotations, keys and values, where that is
	// over Options.MaxBytes; Annotations is then empty, and not nil.
	TooLarge int
	// Labeled says whether the object carries the label <prefix>identity=enabled.
	Labeled bool
}

// Options configure a Lookup. Client, Resource and Prefix are required.
type Options struct {
	// Client lists, watches and reads the objects. It asks for their metadata
	// alone. Live reads are subject to its rate limits.
	Client metadata.Interface
	// Resource is what is watched, in all namespaces.
	Resource schema.GroupVersionResource
	// Prefix starts the key of every Lanyard annotation and label, as in
	// "lanyard.dev/".
	Prefix string
	// Keep says which of the annotations that start with Prefix are kept, by
	// their full keys. Nil keeps them all.
	Keep func(key string) bool
	// Identity says which of the kept annotations ask for an identity, so that
	// their object should be labelled; see Counts.Unguarded. Nil means each does.
	Identity func(key string) bool
	// MaxBytes bounds what is kept of one object's annotations, keys and values
	// together: users write them, and there is one memory for all. Zero means no
	// bound. See Object.TooLarge.
	MaxBytes int
	// ReadTimeout bounds one live read. Zero means DefaultReadTimeout.
	ReadTimeout time.Duration
	// Recorder counts the lookups. Nil counts nothing.
	Recorder Recorder
	// Logger gets what the watch has to tell. The zero value discards it.
	Logger logr.Logger
}

// Lookup finds the Lanyard annotations of the objects of one resource. Start
// feeds it; its other methods may be called at any time and concurrently.
type Lookup struct {
	opts     Options
	singular string
	extract  *extractor
	store    *store
	expected expectations
	reads    singleflight.Group
	synced   atomic.Bool
	received atomic.Uint64
}

// New returns a Lookup that knows nothing yet: until Start has listed the
// objects each Get is a live read.
func New(opts Options) (*Lookup, error) {
	switch {
	case opts.Client == nil:
		return nil, errors.New("lookup: no client")
	case opts.Resource.Empty():
		return nil, errors.New("lookup: no resource")
	case !strings.HasSuffix(opts.Prefix, "/"):
		return nil, fmt.Errorf("lookup: annotation prefix %q: want one that ends with a slash", opts.Prefix)
	case opts.ReadTimeout < 0:
		return nil, fmt.Errorf("lookup: read timeout %v: want a positive duration", opts.ReadTimeout)
	case opts.ReadTimeout == 0:
		opts.ReadTimeout = DefaultReadTimeout
	}
	return &Lookup{
		opts:     opts,
		singular: strings.TrimSuffix(opts.Resource.Resource, "s"),
		extract:  newExtractor(opts.Prefix, opts.Keep, opts.MaxBytes),
		store:    newStore(opts.Identity),
	}, nil
}

// HasSynced reports whether the store has held all objects once.
func (l *Lookup) HasSynced() bool { return l.synced.Load() }

// Counts returns how many objects of each kind the store holds.
func (l *Lookup) Counts() Counts { return l.store.counts() }

// Received returns how many objects the API server has sent so far, changes of
// the same one included. Each leaves garbage behind.
func (l *Lookup) Received() uint64 { return l.received.Load() }

// Expect tells that the object is just being written, as an admission webhook
// for it sees before the write is stored. The watch lags behind the write, so
// for a short while Get reads the object live even if the store knows it. A
// cluster-scoped object has no namespace.
//
// The watch of another replica is not helped by this; there the API server's
// own policy is what catches a pod that got too little.
func (l *Lookup) Expect(namespace, name string) {
	l.expected.add(types.NamespacedName{Namespace: namespace, Name: name})
}

// Get returns what is known of the object, and from where: from the store, or
// on a miss from the API server. A cluster-scoped object has no namespace.
//
// A live read is shared by all who wait for the same object. One caller's
// cancellation ends that caller's wait alone. The error of an object that does
// not exist satisfies apierrors.IsNotFound; with any other error nothing is
// known of the object, and the caller may try again.
func (l *Lookup) Get(ctx context.Context, namespace, name string) (Object, Source, error) {
	id := types.NamespacedName{Namespace: namespace, Name: name}
	expected := l.expected.has(id)
	if !expected {
		if obj, ok := l.store.get(id); ok {
			l.record(SourceCache, ResultFound)
			return obj, SourceCache, nil
		}
	}
	// Also when the read fails the store's word on an expected object is not
	// used: it may be from before the write.
	obj, err := l.read(ctx, id, expected)
	switch {
	case err == nil:
		l.record(SourceLive, ResultFound)
	case apierrors.IsNotFound(err):
		l.record(SourceLive, ResultNotFound)
	default:
		l.record(SourceLive, ResultError)
	}
	if err != nil {
		return Object{}, SourceLive, fmt.Errorf("read %s %s: %w", l.singular, strings.TrimPrefix(id.String(), "/"), err)
	}
	return obj, SourceLive, nil
}

func (l *Lookup) record(source Source, result string) {
	if l.opts.Recorder != nil {
		l.opts.Recorder.RecordLookup(string(source), result)
	}
}

// read returns the object from the API server.
//
// A read that was under way when this caller came may have been answered before
// the object was created or changed, which this caller may know to have
// happened. Where that matters, when the object is not there or was expected to
// change, a second read is asked for. It begins after the first has ended, so it
// is fresh for all who came during the first and now share the second.
func (l *Lookup) read(ctx context.Context, id types.NamespacedName, expected bool) (Object, error) {
	// The client joins a path from these, and the name is a user's, not yet
	// validated: "../x" must not reach an object of another namespace.
	for _, segment := range []string{id.Namespace, id.Name} {
		if len(content.IsPathSegmentName(segment)) > 0 {
			return Object{}, apierrors.NewNotFound(l.opts.Resource.GroupResource(), id.Name)
		}
	}
	obj, joined, err := l.share(ctx, id)
	if joined && (apierrors.IsNotFound(err) || expected && err == nil) {
		obj, _, err = l.share(ctx, id)
	}
	return obj, err
}

// share starts a live read, or joins the one that is under way.
//
// What was read is not put in the store. The watch is its only writer, so that
// nothing older ever overwrites something newer.
func (l *Lookup) share(ctx context.Context, id types.NamespacedName) (obj Object, joined bool, err error) {
	// The function runs for the caller that starts the read, and then before the
	// result is sent; nobody looks at this before that.
	started := false
	results := l.reads.DoChan(id.String(), func() (any, error) {
		started = true
		// Others wait for this read too: it ends by its own deadline alone.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.opts.ReadTimeout)
		defer cancel()
		return l.readLive(ctx, id)
	})
	select {
	case <-ctx.Done():
		return Object{}, false, ctx.Err()
	case result := <-results:
		if result.Err != nil {
			return Object{}, !started, result.Err
		}
		return result.Val.(Object), !started, nil
	}
}

// readLive reads without a resource version, which makes it a quorum read.
func (l *Lookup) readLive(ctx context.Context, id types.NamespacedName) (Object, error) {
	meta, err := l.opts.Client.Resource(l.opts.Resource).Namespace(id.Namespace).Get(ctx, id.Name, metav1.GetOptions{})
	if err != nil {
		return Object{}, err
	}
	return l.extract.object(meta), nil
}
