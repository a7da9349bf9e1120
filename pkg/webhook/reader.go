// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/internal/webhook/metadatacache"
)

// reader reads objects from the manager's cache, or live if the cache does not contain them
// or they are being written.
type reader struct {
	*metadatacache.Reader
	cached client.Reader
	kind   schema.GroupVersionKind
}

func newReader(cached client.Reader, kind string, options metadatacache.Options) (*reader, error) {
	live, err := metadatacache.NewReader(options)
	if err != nil {
		return nil, err
	}
	return &reader{Reader: live, cached: cached, kind: schema.GroupVersionKind{Version: "v1", Kind: kind}}, nil
}

// forgetAfter is the time after which a write is assumed to be in the manager's cache, which
// does not report the progress of its watch.
const forgetAfter = 10 * time.Minute

// Get implements injector.Getter.
func (r *reader) Get(ctx context.Context, namespace, name string) (metadatacache.Object, error) {
	// The order matters: an invalidation ends after the cache has received the write.
	invalid := r.Invalidated(namespace, name)
	if invalid {
		r.Forget(forgetAfter)
	}
	meta := &metav1.PartialObjectMetadata{}
	meta.SetGroupVersionKind(r.kind)
	err := r.cached.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, meta)
	if apierrors.IsNotFound(err) || invalid && !(err == nil && r.Delivered(namespace, name, meta.ResourceVersion)) {
		return r.Reader.Get(ctx, namespace, name)
	}
	return r.Object(meta), err
}
