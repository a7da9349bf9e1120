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

// object is one API object, known by a watch of it alone: the right to it can
// be given by its name.
//
// It is untyped. The types of all of Kubernetes' objects would take more memory
// than everything else that the program holds.
type object struct {
	resource   dynamic.ResourceInterface
	store      cache.Store
	controller cache.Controller
	name       string
	title      string // for messages
}

// watchObject prepares the watch; run starts it. changed is called after each
// change, and once all is known.
func watchObject(client dynamic.ResourceInterface, title, name string, changed func(), log logr.Logger) *object {
	selector := fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
	o := &object{resource: client, name: name, title: title}
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

// run watches until ctx ends.
func (o *object) run(ctx context.Context) { o.controller.RunWithContext(ctx) }

// synced says whether it is known what the object is, or that it is not there.
func (o *object) synced() bool { return o.controller.HasSynced() }

// get gives the object as the watch last brought it, nil where there is none.
// It must not be changed.
func (o *object) get() *unstructured.Unstructured {
	for _, got := range o.store.List() {
		if u, ok := got.(*unstructured.Unstructured); ok {
			return u
		}
	}
	return nil
}

func (o *object) String() string { return fmt.Sprintf("%s %s", o.title, o.name) }
