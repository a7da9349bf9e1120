// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package metadatacache

import (
	"context"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// pageSize is the number of objects decoded at a time if the API server cannot stream the
// list. Each may have 256 KiB of annotations.
const pageSize = 100

// Decoding a long list takes many times the memory that is kept. That memory would stay resident
// for minutes, so it is returned to the operating system after freeDelay: some of it is still
// referenced when the list has just arrived.
const (
	longList  = 1000
	freeDelay = 2 * time.Second
)

// settleInterval is how often the cache looks for writes that were never stored.
const settleInterval = 30 * time.Second

// Start lists and watches the objects until ctx is done. It retries after failures and always
// returns nil. It must be called only once.
func (c *Cache) Start(ctx context.Context) error {
	ctx = logr.NewContext(ctx, c.opts.Logger)
	var group wait.Group
	group.StartWithContext(ctx, func(ctx context.Context) { wait.UntilWithContext(ctx, c.settle, settleInterval) })
	group.StartWithContext(ctx, c.reflector.RunWithContext)
	group.Wait()
	return nil
}

func (c *Cache) newReflector() *cache.Reflector {
	reflector := cache.NewReflectorWithOptions(
		cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
			ListWithContextFunc:  c.list,
			WatchFuncWithContext: c.watch,
		}, c.opts.Client),
		&metav1.PartialObjectMetadata{},
		reflectorStore{c},
		cache.ReflectorOptions{
			Name:            "metadatacache",
			TypeDescription: c.opts.Resource.String(),
			Logger:          &c.opts.Logger,
		},
	)
	reflector.WatchListPageSize = pageSize
	return reflector
}

// settle ends the invalidations of writes that cause no event, because another webhook denied
// them or they were dry runs. A list that begins after they could be stored includes all
// writes. The watch reports the version of that list, with a bookmark if not with an event.
func (c *Cache) settle(ctx context.Context) {
	until := time.Now().Add(-storedAfter)
	if !c.invalidated.hasUntil(until) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	// Without a resource version, this is a quorum read. The first object is enough.
	page, err := c.opts.Client.Resource(c.opts.Resource).List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return // the objects are read live meanwhile, which reports the failure
	}
	c.invalidated.settle(until, page.ResourceVersion, c.reflector.LastSyncResourceVersion())
}

func (c *Cache) watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	c.incoming.Store(&store{limit: c.store.limit})
	return c.opts.Client.Resource(c.opts.Resource).Watch(ctx, opts)
}

// list returns one page as items, so that little memory is held until the last
// page has arrived.
func (c *Cache) list(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	if opts.ResourceVersion == "0" {
		// The reflector's first list asks for the API server's watch cache, which may be
		// outdated and ignores the limit.
		opts.ResourceVersion = ""
	}
	if opts.Limit == 0 {
		// The reflector asks for all objects at once if the API server has forgotten the version
		// of the pages so far. After this error it begins with the first page again.
		c.opts.Logger.Info("The pages of a list took too long, listing again", "resource", c.opts.Resource.Resource)
		return nil, apierrors.NewResourceExpired("the pages of the list took too long")
	}
	if opts.Continue == "" {
		c.incoming.Store(&store{limit: c.store.limit})
	}
	page, err := c.opts.Client.Resource(c.opts.Resource).List(ctx, opts)
	if err != nil {
		return nil, err
	}
	list := &internalversion.List{ListMeta: page.ListMeta, Items: make([]runtime.Object, len(page.Items))}
	for i := range page.Items {
		if list.Items[i], err = c.item(&page.Items[i]); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// reflectorStore is the side of a Cache that the reflector writes to.
type reflectorStore struct{ *Cache }

var _ cache.TransformingStore = reflectorStore{}

// Transformer implements cache.TransformingStore, so that the reflector collects a streamed
// list as items.
func (s reflectorStore) Transformer() cache.TransformFunc {
	return func(obj any) (any, error) { return s.item(obj) }
}

// Add implements cache.ReflectorStore.
func (s reflectorStore) Add(obj any) error { return s.Update(obj) }

// Update implements cache.ReflectorStore.
func (s reflectorStore) Update(obj any) error {
	meta, err := metadataOf(obj)
	if err != nil {
		return err
	}
	object := s.object(meta)
	s.store.set(object)
	s.invalidated.deliver(nameOf(&object), meta.ResourceVersion)
	return nil
}

// Delete implements cache.ReflectorStore.
func (s reflectorStore) Delete(obj any) error {
	meta, err := metadataOf(obj)
	if err != nil {
		return err
	}
	id := types.NamespacedName{Namespace: meta.Namespace, Name: meta.Name}
	s.store.delete(id)
	s.invalidated.deliver(id, meta.ResourceVersion)
	return nil
}

// Replace implements cache.ReflectorStore. If one element is not an object, the
// cache is not changed.
func (s reflectorStore) Replace(objs []any, _ string) error {
	items := make([]*item, len(objs))
	for i, obj := range objs {
		var err error
		if items[i], err = s.item(obj); err != nil {
			return err
		}
	}
	s.store.replace(s.incoming.Swap(&store{limit: s.store.limit}), items)
	s.synced.Store(true)
	if len(items) >= longList {
		time.AfterFunc(freeDelay, s.freeMemory)
	}
	return nil
}

// Resync implements cache.ReflectorStore. It does nothing.
func (s reflectorStore) Resync() error { return nil }
