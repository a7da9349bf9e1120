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

	"github.com/lanyard-dev/lanyard/internal/cli/cluster"
	"github.com/lanyard-dev/lanyard/internal/cli/command"
	"github.com/lanyard-dev/lanyard/internal/peer"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/pkg/mutate/injected"
)

// maxStock is how many objects are kept of a cluster.
const maxStock = 500_000

// cluster plans for a cluster, and writes the ServiceAccounts if that is wanted.
func (k *migrateCommand) cluster(ctx context.Context, o *Options) (*migration, error) {
	var err error
	if k.namespace, err = k.Scope(k.All); err != nil {
		return nil, err
	}
	if _, k.client, err = k.Clients(); err != nil {
		return nil, err
	}
	stock, err := k.stock(ctx)
	if err != nil {
		return nil, err
	}
	result := &migration{Plan: New(stock, o), inCluster: true, written: k.write, namespace: k.namespace}
	result.Changes = len(result.Plan.Changes)
	if k.write {
		k.writeServiceAccounts(ctx, result)
	}
	return result, nil
}

// listing is a list to read. name selects one object; empty for all.
type listing struct {
	schema.GroupVersionResource
	name string
}

// stock reads the objects that matter in a cluster. Webhook configurations are left out if the
// user may not read them.
func (k *migrateCommand) stock(ctx context.Context) (stock []*Object, err error) {
	lists := []listing{{GroupVersionResource: command.CoreResource("serviceaccounts")}}
	for _, kind := range cluster.Kinds() {
		lists = append(lists, listing{GroupVersionResource: kind.Resource})
	}
	for _, p := range peer.All() {
		if p.ConfigMap != "" {
			lists = append(lists, listing{command.CoreResource("configmaps"), p.ConfigMap})
		}
	}
	if stock, err = k.list(ctx, lists...); err != nil {
		return nil, err
	}
	survey, err := k.Survey()
	if err != nil {
		return nil, err
	}
	configurations, err := survey.Configurations(ctx)
	if apierrors.IsForbidden(err) {
		err = nil
	}
	for i := range configurations {
		registration := cluster.Registered(&configurations[i])
		stock = append(stock, &Object{Kind: kindWebhooks.Kind, Name: registration.Name, Registration: registration})
	}
	return stock, err
}

// list returns the objects that matter in lists. The objects have no additions of Lanyard.
func (k *migrateCommand) list(ctx context.Context, lists ...listing) (stock []*Object, err error) {
	for _, l := range lists {
		done := k.Progress("reading " + l.Resource)
		err := k.each(ctx, l, func(u *unstructured.Unstructured) error {
			if len(stock) == maxStock {
				return fmt.Errorf("got more than %d objects: migrate one namespace after the other", maxStock)
			}
			var err error
			if u.GetAnnotations()[annotations.Injected] != "" { // which a template has rarely, and most objects are templates
				err = injected.Remove(u.Object, k.settings, false)
			}
			if err != nil {
				return err
			}
			o, err := Read(u)
			if o != nil {
				stock = append(stock, o)
			}
			return err
		})
		done()
		if err != nil {
			return nil, err
		}
	}
	return stock, nil
}

// pageSize is how many objects are read at once: a whole object in this form takes about 50 KiB, and two pages are in memory.
const pageSize = 50

// each calls do for each object of a list.
func (k *migrateCommand) each(ctx context.Context, l listing, do func(*unstructured.Unstructured) error) error {
	list := func(ctx context.Context, options metav1.ListOptions) (*unstructured.UnstructuredList, error) {
		options.Limit = pageSize
		if l.name != "" {
			options.FieldSelector = "metadata.name=" + l.name
		}
		return k.client.Resource(l.GroupVersionResource).Namespace(k.namespace).List(ctx, options)
	}
	if err := command.EachObject(ctx, list, do); err != nil {
		return fmt.Errorf("list %s: %w", l.Resource, err)
	}
	return nil
}

// countEvery is the interval in which a long step reports its progress. Unlike
// Progress, it also does so where there is no terminal: the step changes the cluster.
const countEvery = 100

// writeServiceAccounts writes the changes: all of them as a dry run first, so that
// nothing is written if one would be denied.
func (k *migrateCommand) writeServiceAccounts(ctx context.Context, result *migration) {
	for _, step := range []struct {
		what   string
		dryRun []string
	}{{"trying", []string{metav1.DryRunAll}}, {"writing", nil}} {
		for i := range result.Plan.Changes {
			c := &result.Plan.Changes[i]
			if result.Changes >= countEvery && i%countEvery == 0 {
				k.Note("%s %d of %d ServiceAccounts ...", step.what, i, result.Changes)
			}
			if err := k.patch(ctx, c, step.dryRun); err != nil {
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

// patch makes a change.
func (k *migrateCommand) patch(ctx context.Context, c *Change, dryRun []string) error {
	patch, err := annotationPatch(c)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patchTimeout)
	defer cancel()
	_, err = k.client.Resource(command.CoreResource("serviceaccounts")).Namespace(c.Object.Namespace).
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
