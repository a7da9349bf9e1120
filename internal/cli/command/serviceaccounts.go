// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"

	"github.com/lanyard-dev/lanyard/internal/cli/cluster"
)

// CoreResource returns a resource of the core group.
func CoreResource(name string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Version: "v1", Resource: name}
}

// pageSize is how many objects are read at once.
const pageSize = 500

// EachPage calls do for each page of a list.
func EachPage[L metav1.ListInterface](ctx context.Context, list func(context.Context, metav1.ListOptions) (L, error), do func(L) error) error {
	options := metav1.ListOptions{Limit: pageSize}
	for {
		page, err := list(ctx, options)
		if err != nil {
			return err
		}
		if err := do(page); err != nil {
			return err
		}
		if options.Continue = page.GetContinue(); options.Continue == "" {
			return nil
		}
	}
}

// EachObject calls do for the metadata of each object of a list.
func EachObject(ctx context.Context, list func(context.Context, metav1.ListOptions) (*metav1.PartialObjectMetadataList, error), do func(*metav1.PartialObjectMetadata) error) error {
	return EachPage(ctx, list, func(page *metav1.PartialObjectMetadataList) error {
		for i := range page.Items {
			if err := do(&page.Items[i]); err != nil {
				return err
			}
		}
		return nil
	})
}

// EachServiceAccount calls do for the metadata of each ServiceAccount of the
// namespace, or of all namespaces if it is empty.
func (c *CLI) EachServiceAccount(ctx context.Context, namespace string, do func(*metav1.PartialObjectMetadata) error) error {
	return c.eachObject(ctx, "serviceaccounts", namespace, func(object *metav1.PartialObjectMetadata) error {
		c.NoteUnknown(object)
		return do(object)
	})
}

// eachObject is eachServiceAccount for any resource of the core group.
func (c *CLI) eachObject(ctx context.Context, resource, namespace string, do func(*metav1.PartialObjectMetadata) error) error {
	client, err := c.metadata()
	if err != nil {
		return err
	}
	if err := EachObject(ctx, client.Resource(CoreResource(resource)).Namespace(namespace).List, do); err != nil {
		return fmt.Errorf("list %s: %w", resource, err)
	}
	return nil
}

// ReadNamespace returns the metadata of a namespace, which is only its name if the namespace
// cannot be read.
func ReadNamespace(ctx context.Context, client kubernetes.Interface, name string) *metav1.ObjectMeta {
	namespace, err := client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return &metav1.ObjectMeta{Name: name}
	}
	return &namespace.ObjectMeta
}

// CalledFor returns the namespaces that Lanyard is called for.
func (c *CLI) CalledFor(ctx context.Context, mutating *admissionregistrationv1.MutatingWebhookConfiguration) (map[string]bool, error) {
	selector, err := cluster.Selector(mutating)
	if err != nil {
		return nil, err
	}
	called := map[string]bool{}
	err = c.eachObject(ctx, "namespaces", "", func(namespace *metav1.PartialObjectMetadata) error {
		called[namespace.Name] = selector.Matches(labels.Set(namespace.Labels))
		return nil
	})
	return called, err
}

// EachUnguarded calls do for each ServiceAccount that needs credentials, is in a
// namespace that Lanyard is called for, and is not known to the guard.
func (c *CLI) EachUnguarded(ctx context.Context, namespace string, mutating *admissionregistrationv1.MutatingWebhookConfiguration, do func(*metav1.PartialObjectMetadata) error) error {
	s, err := c.Settings(ctx)
	if err != nil {
		return err
	}
	called, err := c.CalledFor(ctx, mutating)
	if err != nil {
		return err
	}
	return c.EachServiceAccount(ctx, namespace, func(object *metav1.PartialObjectMetadata) error {
		if !called[object.Namespace] || !cluster.Unguarded(s, object) {
			return nil
		}
		return do(object)
	})
}

// Installation returns the one installation of Lanyard.
func (c *CLI) Installation(ctx context.Context, client kubernetes.Interface) (*admissionregistrationv1.MutatingWebhookConfiguration, error) {
	all, err := client.AdmissionregistrationV1().MutatingWebhookConfigurations().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list mutatingwebhookconfigurations: %w", err)
	}
	found := cluster.Find(all.Items)
	switch len(found) {
	case 0:
		return nil, fmt.Errorf("lanyard is not installed: no MutatingWebhookConfiguration has the webhook %s: see %s check", cluster.PodWebhook, c.Name)
	case 1:
		return found[0], nil
	}
	var names []string
	for _, configuration := range found {
		names = append(names, configuration.Name)
	}
	return nil, fmt.Errorf("lanyard is installed %d times, by the MutatingWebhookConfigurations %s: see %s check", len(found), strings.Join(names, ", "), c.Name)
}

// AddAllNamespaces adds the flag --all-namespaces.
func AddAllNamespaces(cmd *cobra.Command, all *bool) {
	cmd.Flags().BoolVarP(all, "all-namespaces", "A", false, "All namespaces, instead of --namespace.")
}

// Scope returns the namespace of the flags, or all namespaces.
func (c *CLI) Scope(all bool) (string, error) {
	if all {
		return metav1.NamespaceAll, nil
	}
	return c.Namespace()
}
