// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	client, err := c.metadata()
	if err != nil {
		return err
	}
	err = EachObject(ctx, client.Resource(CoreResource("serviceaccounts")).Namespace(namespace).List, func(object *metav1.PartialObjectMetadata) error {
		c.NoteUnknown(object)
		return do(object)
	})
	if err != nil {
		return fmt.Errorf("list serviceaccounts: %w", err)
	}
	return nil
}

// Namespaces returns the namespace with this name, or all namespaces if it is empty.
func Namespaces(ctx context.Context, client kubernetes.Interface, name string) (list []corev1.Namespace, err error) {
	if name != metav1.NamespaceAll {
		one, err := client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return nil, fmt.Errorf("namespace %s: %w", name, err)
		}
		return []corev1.Namespace{*one}, nil
	}
	err = EachPage(ctx, client.CoreV1().Namespaces().List, func(page *corev1.NamespaceList) error {
		list = append(list, page.Items...)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list namespaces: %w", err)
	}
	return list, nil
}

// EachUnguarded calls do for each ServiceAccount of the namespace, or of all namespaces, that
// needs credentials and is not known to the guard. It leaves out the namespaces that Lanyard is
// not called for.
func (c *CLI) EachUnguarded(ctx context.Context, client kubernetes.Interface, namespace string, mutating *admissionregistrationv1.MutatingWebhookConfiguration, do func(*metav1.PartialObjectMetadata) error) error {
	s, err := c.Settings(ctx)
	if err != nil {
		return err
	}
	list, err := Namespaces(ctx, client, namespace)
	if err != nil {
		return err
	}
	called := map[string]bool{}
	for i := range list {
		if called[list[i].Name], err = cluster.CalledFor(mutating, s, &list[i].ObjectMeta); err != nil {
			return err
		}
	}
	return c.EachServiceAccount(ctx, namespace, func(object *metav1.PartialObjectMetadata) error {
		if !called[object.Namespace] || !cluster.Unguarded(s, object) {
			return nil
		}
		return do(object)
	})
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

// Configurations returns the mutating webhook configurations of the cluster.
func Configurations(ctx context.Context, client kubernetes.Interface) ([]admissionregistrationv1.MutatingWebhookConfiguration, error) {
	all, err := client.AdmissionregistrationV1().MutatingWebhookConfigurations().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list mutatingwebhookconfigurations: %w", err)
	}
	return all.Items, nil
}

// Installation returns the one installation of Lanyard.
func (c *CLI) Installation(ctx context.Context, client kubernetes.Interface) (*admissionregistrationv1.MutatingWebhookConfiguration, error) {
	all, err := Configurations(ctx, client)
	if err != nil {
		return nil, err
	}
	found := cluster.Find(all)
	switch len(found) {
	case 0:
		return nil, fmt.Errorf("lanyard is not installed: no MutatingWebhookConfiguration has the webhook %s: see %s check", cluster.PodWebhook, c.Name)
	case 1:
		return found[0], nil
	}
	return nil, fmt.Errorf("lanyard is installed %d times, by the MutatingWebhookConfigurations %s: see %s check", len(found), cluster.Names(found), c.Name)
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
