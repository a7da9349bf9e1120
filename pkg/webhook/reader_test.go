// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/internal/webhook/metadatacache"
	"github.com/lanyard-dev/lanyard/test/support/metadataapi"
)

// cached is a manager's cache with one object, or none.
type cached struct {
	client.Reader
	meta *metav1.PartialObjectMetadata
}

func (c *cached) Get(_ context.Context, _ client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	if c.meta == nil {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "serviceaccounts"}, "app")
	}
	c.meta.DeepCopyInto(object.(*metav1.PartialObjectMetadata))
	return nil
}

func TestTheManagersCacheIsUsedOnceItHasTheWrite(t *testing.T) {
	t.Parallel()
	const key = "lanyard.dev/aws-role-arn"
	app := func(value, version string) *metav1.PartialObjectMetadata {
		return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
			Namespace: "team", Name: "app", Annotations: map[string]string{key: value}, ResourceVersion: version,
		}}
	}
	synctest.Test(t, func(t *testing.T) {
		server := metadataapi.New(t, true)
		server.Send(watch.Added, app("live", ""))
		manager := &cached{}
		r, err := newReader(manager, "ServiceAccount", metadatacache.Options{
			Client: server.ClientInBubble(), Resource: schema.GroupVersionResource{Version: "v1", Resource: "serviceaccounts"}, Prefix: "lanyard.dev/",
		})
		if err != nil {
			t.Fatal(err)
		}
		want := func(when, want string) {
			t.Helper()
			object, err := r.Get(t.Context(), "team", "app")
			if err != nil || object.Annotations[key] != want {
				t.Errorf("%s: got %v and error %v, want %q", when, object, err, want)
			}
		}
		want("not in the cache", "live")
		manager.meta = app("cached", "7")
		want("in the cache", "cached")
		r.Invalidate("team", "app", "7")
		want("a write was admitted", "live")
		manager.meta = app("delivered", "8")
		want("the write is in the cache", "delivered")
		r.Invalidate("team", "app", "8")
		server.SetBroken(true)
		if object, err := r.Get(t.Context(), "team", "app"); err == nil {
			t.Errorf("got %v of an object that cannot be read after a write, want an error", object)
		}
		server.SetBroken(false)
		time.Sleep(forgetAfter)
		want("the write is old", "live") // the last time
		want("the write is forgotten", "delivered")
	})
}
