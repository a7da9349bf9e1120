// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package metadatacache caches the Lanyard annotations of API objects. A watch
// keeps the cache current; an object that the cache does not know is read from
// the API server.
package metadatacache

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/semaphore"
	"golang.org/x/sync/singleflight"
	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilcache "k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/metadata"

	"github.com/lanyard-dev/lanyard/internal/texts"
)

// Sources and results, as the Recorder gets them.
const (
	sourceCache    = "cache"
	sourceLive     = "live"
	resultFound    = "found"
	resultNotFound = "not_found"
	resultError    = "error"
)

const (
	// invalidFor is well above the delay of a watch event, even if the API server is
	// busy.
	invalidFor = 10 * time.Second
	// maxInvalid limits the memory. Above it, the least recently used object is
	// served from the cache again.
	maxInvalid = 4096
)

// Limits of the live reads of a Cache: anybody who reaches the webhook can name
// objects that do not exist. A read above the limits waits for its turn.
const (
	maxReads       = 64 // at a time
	readsPerSecond = 200
	readsBurst     = 400
)

// DefaultReadTimeout limits one live read if Options does not set another limit.
// One Get waits for at most two of them, and no longer than its context allows.
const DefaultReadTimeout = 5 * time.Second

// Recorder counts calls of Get.
type Recorder interface {
	// RecordLookup is called once for each Get. The source is "cache" or "live";
	// the result is "found", "not_found" or "error".
	RecordLookup(source, result string)
}

// Options configure a Cache. Client, Resource and Prefix are required.
type Options struct {
	// Client lists, watches and reads the metadata of the objects. Live reads are
	// subject to its rate limits.
	Client metadata.Interface
	// Resource is the watched resource, in all namespaces.
	Resource schema.GroupVersionResource
	// Prefix is the prefix of the annotations to keep, such as "lanyard.dev/".
	Prefix string
	// Label is the key of the one label to keep. Empty keeps none.
	Label string
	// MaxBytes limits the annotations that are kept of one object, keys and values
	// together: users write them, and all objects share one memory. Zero means no
	// limit. See Object.TooLarge.
	MaxBytes int
	// MaxTotalBytes limits the memory of all objects. An object that does not
	// fit is not kept: each Get reads it from the API server. Zero means no limit.
	MaxTotalBytes int64
	// ReadTimeout limits one live read. Zero means DefaultReadTimeout.
	ReadTimeout time.Duration
	// Recorder counts calls of Get. Nil counts nothing.
	Recorder Recorder
	// Logger gets the messages of the watch. The zero value discards them.
	Logger logr.Logger
}

// Cache returns the Lanyard annotations of the objects of one resource. Start
// fills it; the other methods may be called at any time and concurrently.
type Cache struct {
	opts        Options
	singular    string
	invalidated *utilcache.LRUExpireCache // keyed by types.NamespacedName
	reads       singleflight.Group
	readSlots   *semaphore.Weighted
	readRate    *rate.Limiter
	synced      atomic.Bool
	received    atomic.Uint64 // objects that the watch received, for FreeMemory
	pending     atomic.Int64  // bytes of the items that are not in the store yet
	store       store
}

// New returns an empty Cache: until Start has listed the objects, each Get is a
// live read.
func New(opts Options) (*Cache, error) {
	switch {
	case opts.Client == nil:
		return nil, errors.New("metadata cache: no client")
	case opts.Resource.Empty():
		return nil, errors.New("metadata cache: no resource")
	case !strings.HasSuffix(opts.Prefix, "/"):
		return nil, fmt.Errorf("metadata cache: annotation prefix: got %q, want one that ends with a slash", opts.Prefix)
	case opts.ReadTimeout < 0:
		return nil, fmt.Errorf("metadata cache: read timeout: got %v, want a positive duration", opts.ReadTimeout)
	case opts.ReadTimeout == 0:
		opts.ReadTimeout = DefaultReadTimeout
	}
	return &Cache{
		opts:        opts,
		singular:    strings.TrimSuffix(opts.Resource.Resource, "s"),
		invalidated: utilcache.NewLRUExpireCache(maxInvalid),
		readSlots:   semaphore.NewWeighted(maxReads),
		readRate:    rate.NewLimiter(readsPerSecond, readsBurst),
		store:       store{limit: opts.MaxTotalBytes},
	}, nil
}

// HasSynced reports whether the cache has received a full list of the objects.
func (c *Cache) HasSynced() bool { return c.synced.Load() }

// All returns all cached objects by their names. The cache is locked while the
// caller iterates: the loop must not call methods of the same Cache.
func (c *Cache) All() iter.Seq2[types.NamespacedName, Object] { return c.store.all() }

// Bytes returns the memory that the objects take, and its limit, 0 for none.
func (c *Cache) Bytes() (used, limit int64) { return c.store.used(), c.opts.MaxTotalBytes }

// Invalidate marks an object whose write is being admitted: for a short while
// Get reads it live. An admission webhook sees a write before it is stored, and
// the watch sees it later. A cluster-scoped object has no namespace.
//
// The caches of other replicas do not learn of the write by this. If one of them
// still takes the ServiceAccount for one without an identity, it does not inject
// the pod, and the guard denies it.
func (c *Cache) Invalidate(namespace, name string) {
	if id := (types.NamespacedName{Namespace: namespace, Name: name}); canExist(id) {
		c.invalidated.Add(id, nil, invalidFor)
	}
}

// Invalidated reports whether Get reads the object live because of Invalidate.
func (c *Cache) Invalidated(namespace, name string) bool {
	_, invalid := c.invalidated.Get(types.NamespacedName{Namespace: namespace, Name: name})
	return invalid
}

// Get returns the object from the cache or, if the cache does not know it, from
// the API server. A cluster-scoped object has no namespace.
//
// Callers that wait for the same object share a live read. A caller that is
// canceled stops only its own wait. The error for an object that does not exist
// satisfies apierrors.IsNotFound; after any other error nothing is known of the
// object, and the caller may try again.
func (c *Cache) Get(ctx context.Context, namespace, name string) (Object, error) {
	id := types.NamespacedName{Namespace: namespace, Name: name}
	invalid := c.Invalidated(namespace, name)
	if !invalid {
		if object, ok := c.store.get(id); ok {
			c.record(sourceCache, resultFound)
			return object.value(), nil
		}
	}
	object, err := c.read(ctx, id, invalid)
	if cached, _ := c.store.get(id); invalid && err != nil && !apierrors.IsNotFound(err) && cached.value().HasAnnotations() {
		// The write that was announced may be a forgery, or the API server is not
		// reachable. The state before it is better than none.
		c.record(sourceCache, resultFound)
		return cached.value(), nil
	}
	switch {
	case err == nil:
		c.record(sourceLive, resultFound)
		return object, nil
	case apierrors.IsNotFound(err):
		c.record(sourceLive, resultNotFound)
	default:
		c.record(sourceLive, resultError)
	}
	return Object{}, fmt.Errorf("read %s %s: %w", c.singular, strings.TrimPrefix(shown(id.Namespace)+"/"+shown(id.Name), "/"), err)
}

func (c *Cache) record(source, result string) {
	if c.opts.Recorder != nil {
		c.opts.Recorder.RecordLookup(source, result)
	}
}

// canExist reports whether an object may have this name. Names come from users and
// are not validated yet.
func canExist(id types.NamespacedName) bool {
	// The pattern takes long for a long text.
	if len(id.Name) > validation.DNS1123SubdomainMaxLength || len(id.Namespace) > validation.DNS1123LabelMaxLength {
		return false
	}
	return len(validation.IsDNS1123Subdomain(id.Name)) == 0 &&
		(id.Namespace == "" || len(validation.IsDNS1123Label(id.Namespace)) == 0)
}

// shown returns a name as an error repeats it.
func shown(name string) string { return texts.Cut(name, validation.DNS1123SubdomainMaxLength) }

// read returns the object from the API server.
//
// A read that was in progress when this caller came may have been served
// before the object was created or changed. If that matters, because the object
// was not found or was invalidated, a second read is made. It begins after the
// first has ended, so its result is new enough for all callers that came during
// the first and share the second.
func (c *Cache) read(ctx context.Context, id types.NamespacedName, invalid bool) (Object, error) {
	if !canExist(id) {
		// The client joins a path from the names: "../x" must not reach an object of
		// another namespace.
		return Object{}, apierrors.NewNotFound(c.opts.Resource.GroupResource(), shown(id.Name))
	}
	object, joined, err := c.share(ctx, id)
	if joined && (apierrors.IsNotFound(err) || invalid && err == nil) {
		object, _, err = c.share(ctx, id)
	}
	return object, err
}

// share starts a live read, or joins the one that is in progress.
//
// The result is not stored in the cache. Only the watch writes to it, so that
// an older state never overwrites a newer one.
func (c *Cache) share(ctx context.Context, id types.NamespacedName) (object Object, joined bool, err error) {
	// Only the caller that starts the read runs its function. started is set before
	// the result is sent, and read after the result is received.
	started := false
	results := c.reads.DoChan(id.String(), func() (any, error) {
		started = true
		// Other callers may wait for this read, so the context of the first one does
		// not cancel it.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.opts.ReadTimeout)
		defer cancel()
		if err := c.readSlots.Acquire(ctx, 1); err != nil {
			return nil, fmt.Errorf("too many other objects are being read: %w", err)
		}
		defer c.readSlots.Release(1)
		if err := c.readRate.Wait(ctx); err != nil {
			return nil, fmt.Errorf("too many other objects are being read: %w", err)
		}
		return c.readLive(ctx, id)
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
func (c *Cache) readLive(ctx context.Context, id types.NamespacedName) (Object, error) {
	meta, err := c.opts.Client.Resource(c.opts.Resource).Namespace(id.Namespace).Get(ctx, id.Name, metav1.GetOptions{})
	if err != nil {
		return Object{}, err
	}
	return c.opts.object(meta).value(), nil
}
