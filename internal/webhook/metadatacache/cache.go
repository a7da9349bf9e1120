// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package metadatacache caches the Lanyard annotations of API objects. A watch
// keeps the cache current; an object that the cache does not know is read from
// the API server.
package metadatacache

import (
	"context"
	"fmt"
	"iter"
	"math"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/go-logr/logr"
	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"

	"github.com/lanyard-dev/lanyard/internal/texts"
	"github.com/lanyard-dev/lanyard/internal/webhook/bounds"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

// Recorder counts calls of Cache.Get.
type Recorder interface {
	// RecordLookup is called once per Get. source is "cache" or "live", and result is
	// "found", "not_found" or "error".
	RecordLookup(source, result string)
}

// Options configure a Cache. Client and Resource are required.
type Options struct {
	// Client lists and watches the metadata of the objects.
	Client metadata.Interface
	// Reads makes the live reads, subject to its rate limits. Create it with NewReadClient,
	// which limits their memory. It defaults to Client.
	Reads metadata.Interface
	// Resource is the resource to cache, in all namespaces.
	Resource schema.GroupVersionResource
	// Label is the key of the label to keep, or empty.
	Label string
	// MaxBytes limits the size of the kept annotations of one object, keys and values
	// together. Zero means no limit. See annotations.Object.TooLarge.
	MaxBytes int

	// MaxTotalBytes limits the memory of all objects of a Cache. Objects that do not
	// fit are not kept: each Get reads them from the API server. The namespaces with the
	// most bytes lose objects first. Zero means no limit.
	MaxTotalBytes int64
	// Recorder counts calls of Cache.Get. Nil counts nothing.
	Recorder Recorder
	// Logger logs messages of the watch. The zero value discards them.
	Logger logr.Logger
}

// DefaultBytes returns the memory for ServiceAccounts and for Namespaces: parts of
// GOMEMLIMIT, which the chart sets.
func DefaultBytes() (serviceAccounts, namespaces int64) {
	if limit := debug.SetMemoryLimit(-1); limit < math.MaxInt64 {
		return bounds.CacheBytes(limit)
	}
	return bounds.CacheBytes(160 << 20)
}

// Cache returns the Lanyard annotations of the objects of one resource. Start
// fills it; the other methods may be called at any time and concurrently.
type Cache struct {
	opts        Options
	invalidated invalidations

	synced     atomic.Bool
	incoming   atomic.Pointer[store] // the objects of a list that is not complete
	store      store
	reflector  *cache.Reflector
	freeMemory func() // debug.FreeOSMemory, except in tests

	// The live reads.
	turns, large *bounds.Pool
	rate         *rate.Limiter
	mu           sync.Mutex
	reads        map[readKey]*read // that callers wait for
}

// New returns an empty Cache: until Start has listed the objects, each Get is a
// live read.
func New(opts Options) *Cache {
	if opts.Reads == nil {
		opts.Reads = opts.Client
	}
	c := &Cache{
		opts:  opts,
		store: store{limit: opts.MaxTotalBytes}, freeMemory: debug.FreeOSMemory,
		turns: bounds.NewPool(bounds.Reads, bounds.PendingReads, errNoTurn),
		large: bounds.NewPool(1, bounds.Reads, errNoTurn),
		rate:  rate.NewLimiter(readsPerSecond, readsBurst),
		reads: map[readKey]*read{},
	}
	c.incoming.Store(&store{limit: opts.MaxTotalBytes})
	c.reflector = c.newReflector()
	return c
}

// HasSynced reports whether the cache has received a full list of the objects.
func (c *Cache) HasSynced() bool { return c.synced.Load() }

// All returns all cached objects. The cache is locked while the
// caller iterates: the loop must not call methods of the same Cache.
func (c *Cache) All() iter.Seq[annotations.Object] { return c.store.all() }

// Bytes returns the memory that the objects take, and its limit, or 0 if there is none.
func (c *Cache) Bytes() (used, limit int64) { return c.store.used(), c.store.limit }

// Invalidate marks an object whose write is being admitted: the cache is out of date until it has
// received the write. An admission webhook sees a write before it is stored, and the watch sees it
// later. A cluster-scoped object has no namespace. The resource version is that of the object
// before the write; it is empty for an object that is created.
//
// Other replicas learn of the write only from their own watch.
func (c *Cache) Invalidate(namespace, name, resourceVersion string) {
	if resourceVersion == "" {
		// The object is created, so its event is later than all events so far.
		resourceVersion = c.reflector.LastSyncResourceVersion()
	}
	if id := (types.NamespacedName{Namespace: namespace, Name: name}); canExist(id) {
		c.invalidated.add(id, resourceVersion)
	}
}

// Get returns the object from the cache. If the cache does not know the object, or the object
// was invalidated, Get reads it from the API server. A cluster-scoped object has no namespace.
// The error for an object that does not exist satisfies apierrors.IsNotFound; after any other
// error, nothing is known about the object, and the caller may try again.
func (c *Cache) Get(ctx context.Context, namespace, name string) (annotations.Object, error) {
	id := types.NamespacedName{Namespace: namespace, Name: name}
	// The order matters: an invalidation ends after the store has received the write.
	invalid := c.invalidated.contains(id)
	object, known := c.store.get(id)
	if known && !invalid {
		c.record("cache", "found")
		return object, nil
	}
	object, err := c.read(ctx, id)
	switch {
	case apierrors.IsNotFound(err):
		c.record("live", "not_found")
	case err != nil:
		c.record("live", "error")
	default:
		c.record("live", "found")
		return object, nil
	}
	shown := strings.TrimPrefix(texts.Cut(namespace, texts.MaxName)+"/"+texts.Cut(name, texts.MaxName), "/")
	return annotations.Object{}, fmt.Errorf("read %s %s: %w", c.opts.Resource.Resource, shown, err)
}

func (c *Cache) record(source, result string) {
	if c.opts.Recorder != nil {
		c.opts.Recorder.RecordLookup(source, result)
	}
}
