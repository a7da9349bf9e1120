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
	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/pkg/mutate/injected"
)

// cluster plans for a cluster, and writes the ServiceAccounts with --write.
func (k *migrateCommand) cluster(ctx context.Context, o *Options) (*migration, error) {
	namespace, err := k.Scope(k.All)
	if err != nil {
		return nil, err
	}
	typed, client, err := k.Clients()
	if err == nil {
		err = command.Exists(ctx, typed, namespace)
	}
	if err != nil {
		return nil, err
	}
	stock, err := k.stock(ctx, client, namespace)
	if err != nil {
		return nil, err
	}
	result := &migration{Plan: New(stock, o), inCluster: true, written: k.write, namespace: namespace}
	result.Changes = len(result.Plan.Changes)
	if k.write {
		k.writeServiceAccounts(ctx, client, result)
	}
	return result, nil
}

// stock reads the objects that matter in a namespace, or in all if it is empty. Webhook configurations
// are left out if the user may not read them.
func (k *migrateCommand) stock(ctx context.Context, client dynamic.Interface, namespace string) (stock []*Object, err error) {
	type list struct {
		schema.GroupVersionResource
		name string // of one object, or empty for all
	}
	lists := []list{{command.CoreResource("serviceaccounts"), ""}}
	for _, kind := range cluster.Kinds() {
		lists = append(lists, list{kind.Resource, ""})
	}
	for _, p := range peer.All() {
		if p.ConfigMap != "" {
			lists = append(lists, list{command.CoreResource("configmaps"), p.ConfigMap})
		}
	}
	for _, l := range lists {
		objects, err := readObjects(ctx, client.Resource(l.GroupVersionResource).Namespace(namespace), l.name, k.settings)
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", l.Resource, err)
		}
		stock = append(stock, objects...)
	}
	survey, err := k.Survey()
	if err != nil {
		return nil, err
	}
	configurations, err := survey.Configurations(ctx)
	if apierrors.IsForbidden(err) {
		k.Note("warning: the settings of the other webhook are not taken over, because its webhook configuration cannot be read: %v", err)
		err = nil
	}
	for i := range configurations {
		registration := cluster.Registered(&configurations[i])
		stock = append(stock, &Object{Kind: kindWebhooks.Kind, Name: registration.Name, Registration: registration})
	}
	return stock, err
}

// pageSize is how many objects are read at once: a whole object in this form takes about 50 KiB, and two pages are in memory.
const pageSize = 50

// readObjects reads the relevant parts of the objects with this name, or of all if it is empty,
// without Lanyard's additions.
func readObjects(ctx context.Context, resource dynamic.ResourceInterface, name string, s *annotations.Settings) (objects []*Object, err error) {
	page := func(ctx context.Context, options metav1.ListOptions) (*unstructured.UnstructuredList, error) {
		options.Limit = pageSize
		if name != "" {
			options.FieldSelector = "metadata.name=" + name
		}
		return resource.List(ctx, options)
	}
	err = command.EachObject(ctx, page, func(u *unstructured.Unstructured) error {
		if u.GetAnnotations()[annotations.Injected] != "" { // which a template has rarely, and most objects are templates
			if err := injected.Remove(u.Object, s, false); err != nil {
				return err
			}
		}
		o, err := Read(u)
		if o != nil {
			objects = append(objects, o)
		}
		return err
	})
	return objects, err
}

// countEvery is the interval at which a long step reports its progress.
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
			o := c.Object
			if _, err := patch(ctx, client, o.Namespace, o.Name, o.version, "annotations", c.values(), step.dryRun); err != nil {
				result.Errors = append(result.Errors, fmt.Sprintf("%s in the namespace %s: %v", o.Reference(), o.Namespace, err))
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

// values returns the annotations of a patch: nil for those to remove.
func (c *Change) values() map[string]any {
	values := map[string]any{}
	for key, value := range c.Set {
		values[key] = value
	}
	for _, key := range c.Remove {
		values[key] = nil
	}
	return values
}

// patchTimeout is how long a write may take, because the webhook may not respond.
const patchTimeout = 30 * time.Second

// patch changes the labels or annotations of a ServiceAccount, and removes those that are nil. It
// fails if the ServiceAccount no longer has this version, because it may no longer need the change.
func patch(ctx context.Context, client dynamic.Interface, namespace, name, version, field string, values map[string]any, dryRun []string) (*unstructured.Unstructured, error) {
	text, err := json.Marshal(map[string]any{"metadata": map[string]any{"resourceVersion": version, field: values}})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, patchTimeout)
	defer cancel()
	return client.Resource(command.CoreResource("serviceaccounts")).Namespace(namespace).
		Patch(ctx, name, types.MergePatchType, text, metav1.PatchOptions{FieldManager: "lanyard", DryRun: dryRun})
}
