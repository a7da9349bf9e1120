// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/lanyard-dev/lanyard/internal/cli/cluster"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

// readCluster adds the Namespaces and the ServiceAccounts that the manifests need but do not
// contain.
func (run *injection) readCluster(ctx context.Context, client kubernetes.Interface, objects []*object) error {
	for _, o := range objects {
		_, isWorkload := cluster.TemplatePath(&o.whole)
		if !isWorkload && !o.is("ServiceAccount") {
			continue
		}
		if run.namespaces[o.Namespace] == nil {
			found, err := client.CoreV1().Namespaces().Get(ctx, o.Namespace, metav1.GetOptions{})
			switch {
			case err == nil:
				run.namespaces[o.Namespace] = annotations.NamespaceObject(found)
			case apierrors.IsNotFound(err):
				run.namespaces[o.Namespace] = run.namespace(o.Namespace)
			default:
				return fmt.Errorf("namespace %s: %w", o.Namespace, err)
			}
		}
		if !isWorkload || run.Excludes(o.Namespace, run.namespace(o.Namespace).Label) {
			continue
		}
		if err := run.readServiceAccount(ctx, client, o.Namespace, cluster.ServiceAccountOf(&o.whole)); err != nil {
			return err
		}
	}
	return nil
}

// readServiceAccount adds a ServiceAccount. Every namespace gets one with the name default.
func (run *injection) readServiceAccount(ctx context.Context, client kubernetes.Interface, namespace, name string) error {
	key := types.NamespacedName{Namespace: namespace, Name: name}
	if run.serviceAccounts[key] != nil {
		return nil
	}
	found, err := client.CoreV1().ServiceAccounts(namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err) && name == cluster.DefaultServiceAccount:
		run.serviceAccounts[key] = &annotations.Object{Namespace: namespace, Name: name}
	case err == nil:
		run.serviceAccounts[key] = annotations.ServiceAccountObject(found)
	case !apierrors.IsNotFound(err):
		return fmt.Errorf("serviceaccount %s/%s: %w", namespace, name, err)
	}
	return nil
}
