// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/internal/webhook/metadatacache"
)

// reader reads objects from the manager's cache. It reads them live if the cache
// does not have them, or if they are being written.
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

// Get implements injector.Getter.
func (r *reader) Get(ctx context.Context, namespace, name string) (metadatacache.Object, error) {
	meta := &metav1.PartialObjectMetadata{}
	meta.SetGroupVersionKind(r.kind)
	if !r.Invalidated(namespace, name) {
		err := r.cached.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, meta)
		if !apierrors.IsNotFound(err) {
			return r.Object(meta), err
		}
	}
	return r.Reader.Get(ctx, namespace, name)
}
