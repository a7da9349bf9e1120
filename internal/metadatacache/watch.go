// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package metadatacache

import (
	"context"
	"fmt"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// pageSize is how many objects are decoded at once where the API server cannot
// stream the list; it is client-go's own default.
const pageSize = 500

// Start lists and watches the objects until ctx is done. It retries by itself
// whatever fails, and returns nil. It must be called once.
func (l *Lookup) Start(ctx context.Context) error {
	reflector := cache.NewReflectorWithOptions(
		cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
			ListWithContextFunc:  l.list,
			WatchFuncWithContext: l.watch,
		}, l.opts.Client),
		&metav1.PartialObjectMetadata{},
		feed{l},
		cache.ReflectorOptions{
			Name:            "lookup",
			TypeDescription: l.opts.Resource.String(),
			Logger:          &l.opts.Logger,
		},
	)
	reflector.WatchListPageSize = pageSize
	reflector.RunWithContext(logr.NewContext(ctx, l.opts.Logger))
	return nil
}

func (l *Lookup) watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	return l.opts.Client.Resource(l.opts.Resource).Watch(ctx, opts)
}

// list returns one page, already cut down to items, so that what is held until
// the last page came is small.
func (l *Lookup) list(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	if opts.ResourceVersion == "0" {
		// The reflector's first list takes whatever the API server's cache has,
		// which may be old, and comes in one piece: that cache heeds no limit.
		opts.ResourceVersion = ""
	}
	page, err := l.opts.Client.Resource(l.opts.Resource).List(ctx, opts)
	if err != nil {
		return nil, err
	}
	list := &internalversion.List{ListMeta: page.ListMeta, Items: make([]runtime.Object, len(page.Items))}
	for i := range page.Items {
		list.Items[i] = l.extract.item(&page.Items[i])
	}
	return list, nil
}

// feed is the side of a Lookup that the reflector writes to.
type feed struct{ *Lookup }

var _ cache.TransformingStore = feed{}

// Transformer makes the reflector collect a streamed list as items.
func (f feed) Transformer() cache.TransformFunc {
	return func(obj any) (any, error) { return f.extract.from(obj) }
}

// Add implements cache.ReflectorStore.
func (f feed) Add(obj any) error { return f.Update(obj) }

// Update implements cache.ReflectorStore.
func (f feed) Update(obj any) error {
	it, err := f.extract.from(obj)
	if err != nil {
		return err
	}
	f.received.Add(1)
	f.store.put(it)
	return nil
}

// Delete implements cache.ReflectorStore.
func (f feed) Delete(obj any) error {
	if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		name, err := cache.ParseObjectName(gone.Key)
		if err != nil {
			return fmt.Errorf("delete from lookup: %w", err)
		}
		f.store.delete(name.AsNamespacedName())
		return nil
	}
	it, err := f.extract.from(obj)
	if err != nil {
		return err
	}
	f.received.Add(1)
	f.store.delete(it.id)
	return nil
}

// Replace implements cache.ReflectorStore. If one object is none that can be
// understood the store stays as it was.
func (f feed) Replace(objs []any, _ string) error {
	items := make([]*item, len(objs))
	for i, obj := range objs {
		it, err := f.extract.from(obj)
		if err != nil {
			return err
		}
		items[i] = it
	}
	f.received.Add(uint64(len(items)))
	f.store.replace(items)
	f.synced.Store(true)
	return nil
}

// Resync implements cache.ReflectorStore. There is nobody to tell again.
func (f feed) Resync() error { return nil }
