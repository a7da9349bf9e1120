// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package metadatacache caches the Lanyard annotations of API objects. A watch
// keeps the cache current; an object that the cache does not know is read from
// the API server.
package metadatacache

import (
	"context"
	"iter"
	"sync/atomic"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
)

// Recorder counts calls of Cache.Get.
type Recorder interface {
	// RecordLookup is called once per Get. source is "cache" or "live", and result is
	// "found", "not_found" or "error".
	RecordLookup(source, result string)
}

// Options configure a Reader or a Cache. Client, Resource and Prefix are required.
type Options struct {
	// Client lists and watches the metadata of the objects.
	Client metadata.Interface
	// Reads makes the live reads, subject to its rate limits. Create it with NewReadClient,
	// which limits their memory. It defaults to Client.
	Reads metadata.Interface
	// Resource is the resource to cache, in all namespaces.
	Resource schema.GroupVersionResource
	// Prefix is the prefix of the annotations to keep, such as "lanyard.dev/".
	Prefix string
	// Label is the key of the label to keep, or empty.
	Label string
	// MaxBytes limits the size of the kept annotations of one object, keys and values
	// together. Zero means no limit. See Object.TooLarge and Reader.SetMaxBytes.
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

// Cache returns the Lanyard annotations of the objects of one resource. Start
// fills it; the other methods may be called at any time and concurrently.
type Cache struct {
	*Reader

	synced   atomic.Bool
	received atomic.Uint64         // objects that the watch received, for FreeMemory
	incoming atomic.Pointer[store] // the objects of a list that is not complete
	store    store

	reflector *cache.Reflector
}

// New returns an empty Cache: until Start has listed the objects, each Get is a
// live read.
func New(opts Options) (*Cache, error) {
	reader, err := NewReader(opts)
	if err != nil {
		return nil, err
	}
	c := &Cache{Reader: reader, store: store{limit: opts.MaxTotalBytes}}
	c.incoming.Store(&store{limit: opts.MaxTotalBytes})
	c.reflector = c.newReflector()
	return c, nil
}

// HasSynced reports whether the cache has received a full list of the objects.
func (c *Cache) HasSynced() bool { return c.synced.Load() }

// All returns all cached objects by their names. The cache is locked while the
// caller iterates: the loop must not call methods of the same Cache.
func (c *Cache) All() iter.Seq2[types.NamespacedName, Object] { return c.store.all() }

// Bytes returns the memory that the objects take, and its limit, or 0 if there is none.
func (c *Cache) Bytes() (used, limit int64) { return c.store.used(), c.store.limit }

// Invalidate is like Reader.Invalidate.
func (c *Cache) Invalidate(namespace, name, resourceVersion string) {
	if resourceVersion == "" {
		// The object is created, so its event is later than all events so far.
		resourceVersion = c.reflector.LastSyncResourceVersion()
	}
	c.Reader.Invalidate(namespace, name, resourceVersion)
}

// Get returns the object from the cache. If the cache does not know the object, or
// the object was invalidated, Get reads it like Reader.Get.
func (c *Cache) Get(ctx context.Context, namespace, name string) (object Object, err error) {
	// The order matters: an invalidation ends after the store has received the write.
	known := !c.Invalidated(namespace, name)
	cached, stored := c.store.get(types.NamespacedName{Namespace: namespace, Name: name})
	// The limit may have been raised since then.
	known = known && stored && (cached.value().TooLarge == 0 || cached.TooLarge > int(c.maxBytes.Load()))
	source, result := "cache", "found"
	if known {
		object = cached.value()
	} else {
		source = "live"
		if object, err = c.Reader.Get(ctx, namespace, name); apierrors.IsNotFound(err) {
			result = "not_found"
		} else if err != nil {
			result = "error"
		}
	}
	if c.opts.Recorder != nil {
		c.opts.Recorder.RecordLookup(source, result)
	}
	return object, err
}
