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

	"github.com/lanyard-dev/lanyard/internal/cli/cluster"
	"github.com/lanyard-dev/lanyard/internal/cli/command"
	"github.com/lanyard-dev/lanyard/internal/peer"
)

// maxStock is how many objects are kept of a cluster.
const maxStock = 500_000

// clusterStock holds the objects that were read in a cluster.
type clusterStock struct {
	objects []*Object
	// versions are the resource versions of the ServiceAccounts.
	versions map[*Object]string
}

// cluster plans for a cluster, and writes the ServiceAccounts if that is wanted.
func (k *migrateCommand) cluster(ctx context.Context, o *Options) (*migration, error) {
	namespace, err := k.Scope(k.all)
	if err != nil {
		return nil, err
	}
	_, client, err := k.Clients()
	if err != nil {
		return nil, err
	}
	stock, err := k.stock(ctx, client, o.From, namespace)
	if err != nil {
		return nil, err
	}
	result := &migration{Plan: New(stock.objects, o), what: "ServiceAccounts"}
	result.Changes = len(result.Plan.Changes)
	if k.write {
		k.writeServiceAccounts(ctx, client, stock, result)
	}
	return result, nil
}

// stock reads the objects that matter in a cluster, a page at a time. Cluster-scoped
// objects are left out if the user may not read them.
func (k *migrateCommand) stock(ctx context.Context, client dynamic.Interface, peers []*peer.Peer, namespace string) (*clusterStock, error) {
	lists := []listing{{resource: command.CoreResource("serviceaccounts"), kind: "ServiceAccount", namespace: namespace}}
	for _, kind := range cluster.Kinds() {
		lists = append(lists, listing{resource: kind.Resource, kind: kind.Kind, namespace: namespace})
	}
	for _, name := range ConfigMaps() {
		lists = append(lists, listing{resource: command.CoreResource("configmaps"), kind: "ConfigMap", namespace: namespace, name: name})
	}
	lists = append(lists, listing{resource: webhookConfigurations, kind: "MutatingWebhookConfiguration", optional: true})
	stock := &clusterStock{versions: map[*Object]string{}}
	for i := range lists {
		if err := k.list(ctx, client, peers, &lists[i], stock); err != nil && !(lists[i].optional && apierrors.IsForbidden(err)) {
			return nil, fmt.Errorf("list %s: %w", lists[i].resource.Resource, err)
		}
	}
	return stock, nil
}

// listing is a list to read.
type listing struct {
	resource schema.GroupVersionResource
	kind     string
	// namespace and name select objects; empty for all.
	namespace, name string
	// optional reports whether the user need not have the right to read it.
	optional bool
}

// list adds the objects that matter in a list to the stock.
func (k *migrateCommand) list(ctx context.Context, client dynamic.Interface, peers []*peer.Peer, l *listing, stock *clusterStock) error {
	defer k.Progress("reading " + l.resource.Resource)()
	list := func(ctx context.Context, options metav1.ListOptions) (*unstructured.UnstructuredList, error) {
		if l.name != "" {
			options.FieldSelector = "metadata.name=" + l.name
		}
		return client.Resource(l.resource).Namespace(l.namespace).List(ctx, options)
	}
	return command.EachPage(ctx, list, func(page *unstructured.UnstructuredList) error {
		for i := range page.Items {
			u := &page.Items[i]
			u.SetGroupVersionKind(l.resource.GroupVersion().WithKind(l.kind))
			if o := Read(peers, u); o != nil {
				stock.objects = append(stock.objects, o)
				stock.versions[o] = u.GetResourceVersion()
			}
		}
		if len(stock.objects) > maxStock {
			return fmt.Errorf("got more than %d objects: migrate one namespace after the other", maxStock)
		}
		return nil
	})
}

// writeServiceAccounts writes the changes: all of them as a dry run first, so that
// nothing is written if one would be denied.
func (k *migrateCommand) writeServiceAccounts(ctx context.Context, client dynamic.Interface, stock *clusterStock, result *migration) {
	for _, dryRun := range [][]string{{metav1.DryRunAll}, nil} {
		what := "writing"
		if len(dryRun) > 0 {
			what = "trying"
		}
		for i := range result.Plan.Changes {
			c := &result.Plan.Changes[i]
			k.count(what, i, result.Changes)
			err := patchServiceAccount(ctx, client, c, stock.versions[c.Object], dryRun)
			switch {
			case err != nil:
				result.Errors = append(result.Errors, fmt.Sprintf("%s in the namespace %s: %v", c.Object.Reference(), c.Object.Namespace, err))
			case len(dryRun) == 0:
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

// countEvery is the interval in which a long step reports its progress.
const countEvery = 100

// count tells the user how far a step is, if it is a long one. Unlike progress, it
// also does so where there is no terminal: the step changes the cluster.
func (k *migrateCommand) count(what string, done, all int) {
	if all >= countEvery && done%countEvery == 0 {
		k.Note("%s %d of %d ServiceAccounts ...", what, done, all)
	}
}

// patchTimeout is how long a write may take: the webhook may not respond.
const patchTimeout = 30 * time.Second

// patchServiceAccount makes a change.
func patchServiceAccount(ctx context.Context, client dynamic.Interface, c *Change, version string, dryRun []string) error {
	patch, err := annotationPatch(c, version)
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
func annotationPatch(c *Change, version string) ([]byte, error) {
	values := map[string]any{}
	for key, value := range c.Set {
		values[key] = value
	}
	for _, key := range c.Remove {
		values[key] = nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"resourceVersion": version, "annotations": values}})
	if err != nil {
		return nil, fmt.Errorf("encode the patch: %w", err)
	}
	return patch, nil
}
