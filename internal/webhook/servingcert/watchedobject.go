// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package servingcert

import (
	"context"
	"fmt"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
)

// watchedObject is one API object, kept current by a watch of only its name, so
// that RBAC can limit the rights to that name.
//
// It is unstructured: the types of all Kubernetes objects would take more memory
// than everything else in the program.
type watchedObject struct {
	resource   dynamic.ResourceInterface
	store      cache.Store
	controller cache.Controller
	name       string
	kind       string // for messages
}

// watchObject returns an object that run watches. changed is called after each
// change.
func watchObject(client dynamic.ResourceInterface, kind, name string, changed func(), log logr.Logger) *watchedObject {
	selector := fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
	o := &watchedObject{resource: client, name: name, kind: kind}
	o.store, o.controller = cache.NewInformerWithOptions(cache.InformerOptions{
		Logger: &log,
		ListerWatcher: &cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
				opts.FieldSelector = selector
				return client.List(ctx, opts)
			},
			WatchFuncWithContext: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
				opts.FieldSelector = selector
				return client.Watch(ctx, opts)
			},
		},
		ObjectType: &unstructured.Unstructured{},
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    func(any) { changed() },
			UpdateFunc: func(any, any) { changed() },
			DeleteFunc: func(any) { changed() },
		},
	})
	return o
}

// run watches until ctx is done.
func (o *watchedObject) run(ctx context.Context) { o.controller.RunWithContext(ctx) }

// synced reports whether the first list has been received: get is then valid.
func (o *watchedObject) synced() bool { return o.controller.HasSynced() }

// get returns the last known state of the object, or nil if it does not exist. The
// caller must not change it.
func (o *watchedObject) get() *unstructured.Unstructured {
	for _, item := range o.store.List() {
		if object, ok := item.(*unstructured.Unstructured); ok {
			return object
		}
	}
	return nil
}

func (o *watchedObject) String() string { return fmt.Sprintf("%s %s", o.kind, o.name) }
