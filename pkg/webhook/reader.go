// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilcache "k8s.io/apimachinery/pkg/util/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/lanyard-dev/lanyard/internal/metadatacache"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

// The limits of metadatacache, for the same reasons.
const (
	invalidFor = 10 * time.Second
	maxInvalid = 4096
)

// reader reads objects from the manager's cache. It reads them live if the cache
// does not have them, or if they are being written.
type reader struct {
	cached, live client.Reader
	kind         schema.GroupVersionKind
	keys         *annotations.Keys
	maxBytes     int
	invalid      *utilcache.LRUExpireCache
}

func newReader(mgr manager.Manager, kind string, keys *annotations.Keys, maxBytes int) *reader {
	return &reader{
		cached: mgr.GetCache(), live: mgr.GetAPIReader(),
		kind: schema.GroupVersionKind{Version: "v1", Kind: kind}, keys: keys, maxBytes: maxBytes,
		invalid: utilcache.NewLRUExpireCache(maxInvalid),
	}
}

// Invalidate implements injector.Invalidator.
func (r *reader) Invalidate(namespace, name string) {
	r.invalid.Add(client.ObjectKey{Namespace: namespace, Name: name}, struct{}{}, invalidFor)
}

// Get implements injector.Getter.
func (r *reader) Get(ctx context.Context, namespace, name string) (metadatacache.Object, error) {
	// The client joins a path from these, and the name is a user's: "../x" must not
	// reach an object of another namespace.
	if len(content.IsPathSegmentName(namespace)) > 0 || len(content.IsPathSegmentName(name)) > 0 {
		return metadatacache.Object{}, apierrors.NewNotFound(schema.GroupResource{Resource: strings.ToLower(r.kind.Kind)}, name)
	}
	key := client.ObjectKey{Namespace: namespace, Name: name}
	meta := &metav1.PartialObjectMetadata{}
	meta.SetGroupVersionKind(r.kind)
	from := r.cached
	if _, invalid := r.invalid.Get(key); invalid {
		from = r.live
	}
	err := from.Get(ctx, key, meta)
	if from == r.cached && apierrors.IsNotFound(err) {
		err = r.live.Get(ctx, key, meta)
	}
	if err != nil {
		return metadatacache.Object{}, err
	}
	return metadatacache.ObjectOf(meta, r.keys.Prefix, r.keys.IdentityLabel, r.maxBytes), nil
}
