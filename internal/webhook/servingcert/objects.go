// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package servingcert

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"github.com/lanyard-dev/lanyard/internal/rawjson"
)

var (
	secrets                  = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	mutatingConfigurations   = schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "mutatingwebhookconfigurations"}
	validatingConfigurations = schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingwebhookconfigurations"}
)

// fieldManager is the owner of the fields that the program writes.
const fieldManager = "lanyard-webhook"

// watchedObject is an API object that a watch keeps current. The watch selects only its name,
// so that RBAC can limit the rights to that name.
//
// It is unstructured: a typed client links the types of all Kubernetes objects, which
// nearly doubles the size of the program (see ARCHITECTURE.md).
type watchedObject struct {
	cache.Controller

	resource dynamic.ResourceInterface
	store    cache.Store
	name     string
	kind     string // for messages
}

// watchObject returns an object that RunWithContext watches. changed is called after
// each change.
func watchObject(client dynamic.ResourceInterface, kind, name string, changed func(), log logr.Logger) *watchedObject {
	selector := fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
	o := &watchedObject{resource: client, name: name, kind: kind}
	o.store, o.Controller = cache.NewInformerWithOptions(cache.InformerOptions{
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

// get returns the last known state of the object, or nil if it does not exist. The
// caller must not change it.
func (o *watchedObject) get() *unstructured.Unstructured {
	for _, item := range o.store.List() {
		return item.(*unstructured.Unstructured)
	}
	return nil
}

func (o *watchedObject) String() string { return fmt.Sprintf("%s %s", o.kind, o.name) }

// fieldsOf decodes some fields of an object. They are zero for a nil or invalid object.
func fieldsOf[T any](object *unstructured.Unstructured) T {
	var fields, zero T
	if object == nil || runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &fields) != nil {
		return zero
	}
	return fields
}

func secretData(secret *unstructured.Unstructured) map[string][]byte {
	return fieldsOf[struct {
		Data map[string][]byte `json:"data"`
	}](secret).Data
}

// writeSecret adds data to the Secret and keeps other data. If the Secret was written since
// the given state, writeSecret returns a conflict.
func writeSecret(ctx context.Context, client dynamic.ResourceInterface, secret *unstructured.Unstructured, data map[string][]byte) error {
	secret = secret.DeepCopy()
	for key, value := range data {
		if err := unstructured.SetNestedField(secret.Object, base64.StdEncoding.EncodeToString(value), "data", key); err != nil {
			return fmt.Errorf("set data of the Secret: %w", err)
		}
	}
	_, err := client.Update(ctx, secret, metav1.UpdateOptions{FieldManager: fieldManager})
	return err
}

// webhook is one webhook of a configuration.
type webhook struct {
	Name         string `json:"name"`
	ClientConfig struct {
		CABundle []byte `json:"caBundle"`
	} `json:"clientConfig"`
}

func webhooksOf(configuration *unstructured.Unstructured) []webhook {
	return fieldsOf[struct {
		Webhooks []webhook `json:"webhooks"`
	}](configuration).Webhooks
}

// registrationPatch returns the patch that sets the caBundle of every webhook, or an empty
// one if all have it. The patch applies only if the order of the webhooks has not changed.
func registrationPatch(webhooks []webhook, bundle []byte) rawjson.Patch {
	encoded := rawjson.AppendString(nil, base64.StdEncoding.EncodeToString(bundle))
	var patch rawjson.Patch
	for i, w := range webhooks {
		if bytes.Equal(w.ClientConfig.CABundle, bundle) {
			continue
		}
		at := fmt.Sprintf("/webhooks/%d", i)
		patch.Test(at+"/name", rawjson.AppendString(nil, w.Name))
		patch.Add(at+"/clientConfig/caBundle", encoded)
	}
	return patch
}
