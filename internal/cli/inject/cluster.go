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

// Others returns objects that are not in the manifests. A result is nil if the object does not exist.
type Others interface {
	Namespace(name string) (*metav1.ObjectMeta, error)
	ServiceAccount(namespace, name string) (*metav1.ObjectMeta, error)
}

// inCluster are the objects in the cluster.
type inCluster struct {
	context.Context
	client kubernetes.Interface
}

// Namespace implements Others.
func (c inCluster) Namespace(name string) (*metav1.ObjectMeta, error) {
	found, err := c.client.CoreV1().Namespaces().Get(c, name, metav1.GetOptions{})
	return metadata(&found.ObjectMeta, "namespace "+name, err)
}

// ServiceAccount implements Others.
func (c inCluster) ServiceAccount(namespace, name string) (*metav1.ObjectMeta, error) {
	found, err := c.client.CoreV1().ServiceAccounts(namespace).Get(c, name, metav1.GetOptions{})
	return metadata(&found.ObjectMeta, "serviceaccount "+namespace+"/"+name, err)
}

// metadata returns the result of a request for the metadata of an object.
func metadata(object *metav1.ObjectMeta, name string, err error) (*metav1.ObjectMeta, error) {
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return object, nil
}

// addOthers adds the Namespaces and the ServiceAccounts that the manifests need and do not have.
func (run *injection) addOthers(objects []*object) error {
	for _, o := range objects {
		_, isWorkload := cluster.TemplatePath(&o.whole)
		if !isWorkload && !o.is("ServiceAccount") {
			continue
		}
		if run.namespaces[o.Namespace] == nil {
			found, err := run.others.Namespace(o.Namespace)
			if err != nil {
				return err
			}
			run.namespaces[o.Namespace] = run.namespace(o.Namespace)
			if found != nil {
				run.namespaces[o.Namespace] = annotations.NamespaceObject(found)
			}
		}
		if !isWorkload || run.Excludes(o.Namespace, run.namespace(o.Namespace).Label) {
			continue
		}
		if err := run.addAccount(o.Namespace, cluster.ServiceAccountOf(&o.whole)); err != nil {
			return err
		}
	}
	return nil
}

// addAccount adds a ServiceAccount. Every namespace gets one with the name default.
func (run *injection) addAccount(namespace, name string) error {
	key := types.NamespacedName{Namespace: namespace, Name: name}
	if run.serviceAccounts[key] != nil {
		return nil
	}
	found, err := run.others.ServiceAccount(namespace, name)
	if found == nil && name == "default" {
		found = &metav1.ObjectMeta{Name: name}
	}
	if err == nil && found != nil {
		run.serviceAccounts[key] = annotations.ServiceAccountObject(found)
		run.serviceAccounts[key].Namespace = namespace
	}
	return err
}
