// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/lanyard-dev/lanyard/internal/annotations"
	"github.com/lanyard-dev/lanyard/internal/cli/cluster"
	"github.com/lanyard-dev/lanyard/internal/cli/command"
	"github.com/lanyard-dev/lanyard/internal/injected"
	"github.com/lanyard-dev/lanyard/internal/peer"
)

// maxStock is how many objects are kept of a cluster.
const maxStock = 500_000

// cluster plans for a cluster, and writes the ServiceAccounts if that is wanted.
func (k *migrateCommand) cluster(ctx context.Context, o *Options) (*migration, error) {
	namespace, err := k.Scope(k.All)
	if err != nil {
		return nil, err
	}
	_, client, err := k.Clients()
	if err != nil {
		return nil, err
	}
	stock, err := k.stock(ctx, client, o.Keys, namespace)
	if err != nil {
		return nil, err
	}
	result := &migration{Plan: New(stock, o), what: "ServiceAccounts"}
	result.Changes = len(result.Plan.Changes)
	if k.write {
		k.writeServiceAccounts(ctx, client, result)
	}
	return result, nil
}

// listing is a list to read. name selects one object; empty for all.
type listing struct {
	cluster.Kind
	name string
}

var webhookConfigurations = listing{Kind: cluster.Kind{
	Resource: schema.GroupVersionResource{Group: kindWebhooks.Group, Version: "v1", Resource: "mutatingwebhookconfigurations"}, Kind: kindWebhooks.Kind,
}}

// stock reads the objects that matter in a cluster. Cluster-scoped objects are left out if
// the user may not read them.
func (k *migrateCommand) stock(ctx context.Context, client dynamic.Interface, keys *annotations.Keys, namespace string) ([]*Object, error) {
	lists := []listing{{Kind: cluster.Kind{Resource: command.CoreResource("serviceaccounts"), Kind: kindServiceAccount.Kind}}}
	for _, kind := range cluster.Kinds() {
		lists = append(lists, listing{Kind: kind})
	}
	for _, name := range peer.ConfigMaps() {
		lists = append(lists, listing{cluster.Kind{Resource: command.CoreResource("configmaps"), Kind: kindConfigMap.Kind}, name})
	}
	var stock []*Object
	for _, l := range lists {
		found, err := k.list(ctx, client.Resource(l.Resource).Namespace(namespace), keys, l)
		if err != nil {
			return nil, err
		}
		if stock = append(stock, found...); len(stock) > maxStock {
			return nil, fmt.Errorf("got more than %d objects: migrate one namespace after the other", maxStock)
		}
	}
	found, err := k.list(ctx, client.Resource(webhookConfigurations.Resource), keys, webhookConfigurations)
	if apierrors.IsForbidden(err) {
		err = nil
	}
	return append(stock, found...), err
}

// list returns the objects that matter in a list. The objects have no additions of Lanyard.
func (k *migrateCommand) list(ctx context.Context, api dynamic.ResourceInterface, keys *annotations.Keys, l listing) (stock []*Object, err error) {
	defer k.Progress("reading " + l.Resource.Resource)()
	err = each(ctx, api, l, func(u *unstructured.Unstructured) error {
		if err := injected.Remove(u.Object, keys); err != nil {
			return err
		}
		o, err := Read(u)
		if o != nil && len(stock) <= maxStock {
			stock = append(stock, o)
		}
		return err
	})
	return stock, err
}

// each calls do for each object of a list, which is read a page at a time.
func each(ctx context.Context, api dynamic.ResourceInterface, l listing, do func(*unstructured.Unstructured) error) error {
	list := func(ctx context.Context, options metav1.ListOptions) (*unstructured.UnstructuredList, error) {
		if l.name != "" {
			options.FieldSelector = "metadata.name=" + l.name
		}
		return api.List(ctx, options)
	}
	err := command.EachObject(ctx, list, func(object *unstructured.Unstructured) error {
		object.SetGroupVersionKind(l.Resource.GroupVersion().WithKind(l.Kind.Kind))
		return do(object)
	})
	if err != nil {
		return fmt.Errorf("list %s: %w", l.Resource.Resource, err)
	}
	return nil
}

// countEvery is the interval in which a long step reports its progress. Unlike
// Progress, it also does so where there is no terminal: the step changes the cluster.
const countEvery = 100

// writeServiceAccounts writes the changes: all of them as a dry run first, so that
// nothing is written if one would be denied.
func (k *migrateCommand) writeServiceAccounts(ctx context.Context, client dynamic.Interface, result *migration) {
	for _, step := range []struct {
		what   string
		dryRun []string
	}{{"trying", []string{metav1.DryRunAll}}, {"writing", nil}} {
		for i := range result.Plan.Changes {
			c := &result.Plan.Changes[i]
			if result.Changes >= countEvery && i%countEvery == 0 {
				k.Note("%s %d of %d ServiceAccounts ...", step.what, i, result.Changes)
			}
			if err := patchServiceAccount(ctx, client, c, step.dryRun); err != nil {
				result.Errors = append(result.Errors, fmt.Sprintf("%s in the namespace %s: %v", c.Object.Reference(), c.Object.Namespace, err))
			} else if step.dryRun == nil {
				result.Written++
			}
			if ctx.Err() != nil {
				return
			}
		}
		if len(result.Errors) > 0 {
			return
		}
	}
}

// patchTimeout is how long a write may take: the webhook may not respond.
const patchTimeout = 30 * time.Second

// patchServiceAccount makes a change.
func patchServiceAccount(ctx context.Context, client dynamic.Interface, c *Change, dryRun []string) error {
	patch, err := annotationPatch(c)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patchTimeout)
	defer cancel()
	_, err = client.Resource(command.CoreResource("serviceaccounts")).Namespace(c.Object.Namespace).
		Patch(ctx, c.Object.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "lanyard", DryRun: dryRun})
	return err
}

// annotationPatch returns a merge patch that makes a change, unless the object has
// changed since it was read.
func annotationPatch(c *Change) ([]byte, error) {
	values := map[string]any{}
	for key, value := range c.Set {
		values[key] = value
	}
	for _, key := range c.Remove {
		values[key] = nil
	}
	return json.Marshal(map[string]any{"metadata": map[string]any{"resourceVersion": c.Object.version, "annotations": values}})
}
