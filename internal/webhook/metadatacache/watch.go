// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package metadatacache

import (
	"context"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// pageSize is how many objects are decoded at a time if the API server cannot
// stream the list. Each may have 256 KiB of annotations.
const pageSize = 100

// Start lists and watches the objects until ctx is done. It retries after each
// failure and always returns nil. It must be called once.
func (c *Cache) Start(ctx context.Context) error {
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
	reflector.RunWithContext(logr.NewContext(ctx, c.opts.Logger))
	return nil
}

func (c *Cache) watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	c.pending.Store(0)
	return c.opts.Client.Resource(c.opts.Resource).Watch(ctx, opts)
}

// list returns one page as items, so that little memory is held until the last
// page has arrived.
func (c *Cache) list(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	if opts.ResourceVersion == "0" {
		// The reflector's first list asks for the state of the API server's watch
		// cache, which may be old and ignores the limit.
		opts.ResourceVersion = ""
	}
	if opts.Continue == "" {
		c.pending.Store(0)
	}
	page, err := c.opts.Client.Resource(c.opts.Resource).List(ctx, opts)
	if err != nil {
		return nil, err
	}
	list := &internalversion.List{ListMeta: page.ListMeta, Items: make([]runtime.Object, len(page.Items))}
	for i := range page.Items {
		list.Items[i] = c.item(&page.Items[i])
	}
	return list, nil
}

// reflectorStore is the side of a Cache that the reflector writes to.
type reflectorStore struct{ *Cache }

var _ cache.TransformingStore = reflectorStore{}

// Transformer makes the reflector collect a streamed list as items.
func (s reflectorStore) Transformer() cache.TransformFunc {
	return func(obj any) (any, error) { return s.itemOf(obj) }
}

// Add implements cache.ReflectorStore.
func (s reflectorStore) Add(obj any) error { return s.Update(obj) }

// Update implements cache.ReflectorStore.
func (s reflectorStore) Update(obj any) error {
	it, err := s.itemOf(obj)
	if err != nil {
		return err
	}
	s.received.Add(1)
	s.pending.Store(0)
	s.store.set(it)
	return nil
}

// Delete implements cache.ReflectorStore.
func (s reflectorStore) Delete(obj any) error {
	it, err := s.itemOf(obj)
	if err != nil {
		return err
	}
	s.received.Add(1)
	s.pending.Store(0)
	s.store.delete(it.id)
	return nil
}

// Replace implements cache.ReflectorStore. If one element is not an object, the
// cache is not changed.
func (s reflectorStore) Replace(objs []any, _ string) error {
	items := make([]*item, len(objs))
	for i, obj := range objs {
		var err error
		if items[i], err = s.itemOf(obj); err != nil {
			return err
		}
	}
	s.received.Add(uint64(len(objs)))
	s.pending.Store(0)
	s.store.replace(items)
	s.synced.Store(true)
	return nil
}

// Resync implements cache.ReflectorStore. There is nobody to notify again.
func (s reflectorStore) Resync() error { return nil }
