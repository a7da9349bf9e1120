// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/test/support/webhook"
)

// create creates the objects of a manifest file or of a directory with a
// kustomization. The objects are not changed, except that pods are redirected
// to the emulators. It returns all created objects, also in case of an error.
func create(ctx context.Context, path string) (created []client.Object, err error) {
	objects, err := readManifests(ctx, path)
	if err != nil {
		return nil, err
	}
	writer, err := client.New(cluster.Config, client.Options{Scheme: scheme.Scheme})
	if err != nil {
		return nil, fmt.Errorf("create the client: %w", err)
	}
	for i, object := range objects {
		if spec := podSpec(object); spec != nil {
			checker.Clouds.Redirect(spec)
		}
		namespace, ok := object.(*corev1.Namespace)
		if !ok {
			err = writer.Create(ctx, object)
		} else if err = cluster.RetryWhileDeleted(ctx, namespace.Name, func() error { return writer.Create(ctx, object) }); err == nil {
			err = checker.Clouds.TrustIn(ctx, namespace.Name)
		}
		if err != nil {
			return objects[:i], err
		}
	}
	return objects, nil
}

// readManifests returns the objects in the order in which they can be created.
func readManifests(ctx context.Context, path string) ([]client.Object, error) {
	file := filepath.Join(cluster.Root, path)
	info, err := os.Stat(file)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return webhook.ReadManifest(file)
	}
	text, err := cluster.Run(ctx, "kubectl", "kustomize", path)
	if err != nil {
		return nil, err
	}
	return webhook.DecodeManifest(path, []byte(text))
}

// podSpec returns the pod template of a workload, or nil for other objects.
func podSpec(object client.Object) *corev1.PodSpec {
	switch o := object.(type) {
	case *appsv1.Deployment:
		return &o.Spec.Template.Spec
	case *appsv1.StatefulSet:
		return &o.Spec.Template.Spec
	case *appsv1.DaemonSet:
		return &o.Spec.Template.Spec
	case *batchv1.Job:
		return &o.Spec.Template.Spec
	default:
		return nil
	}
}
