// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"context"
	"fmt"
	"strings"

	"github.com/pmezard/go-difflib/difflib"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/lanyard-dev/lanyard/internal/annotations"
	"github.com/lanyard-dev/lanyard/internal/cli/command"
)

// diff writes the changes that an install of the text would make in the cluster, as kubectl
// diff does, and returns command.ErrFound if there are any. The API server fills in its defaults
// in a dry run.
func diff(ctx context.Context, c *command.CLI, text string) error {
	_, client, err := c.Clients()
	if err != nil {
		return err
	}
	mapper, err := c.Flags.ToRESTMapper()
	if err != nil {
		return err
	}
	changed := false
	for document := range strings.SplitSeq(text, "\n---\n") {
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(document), &object.Object); err != nil {
			return err
		}
		kind := object.GroupVersionKind()
		name := strings.ToLower(kind.Kind) + "/" + object.GetName()
		mapping, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
		if err != nil {
			return fmt.Errorf("%s: %w: policies that inject need Kubernetes 1.36", name, err)
		}
		before, after, err := compare(ctx, client.Resource(mapping.Resource), object)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		result, err := difflib.GetUnifiedDiffString(difflib.UnifiedDiff{
			A: difflib.SplitLines(before), B: difflib.SplitLines(after), FromFile: "installed/" + name, ToFile: "generated/" + name, Context: 3,
		})
		if err == nil {
			_, err = fmt.Fprint(c.Out, result)
		}
		if err != nil {
			return err
		}
		changed = changed || result != ""
	}
	return command.FoundIf(changed, nil)
}

// compare returns an object as it is in the cluster, and as it would be. An object that is not
// there is empty.
func compare(ctx context.Context, client dynamic.ResourceInterface, object *unstructured.Unstructured) (before, after string, err error) {
	dryRun := []string{metav1.DryRunAll}
	installed, err := client.Get(ctx, object.GetName(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		created, err := client.Create(ctx, object, metav1.CreateOptions{DryRun: dryRun})
		if err == nil {
			after, err = shown(created)
		}
		return "", after, err
	}
	if err != nil {
		return "", "", err
	}
	object.SetResourceVersion(installed.GetResourceVersion())
	updated, err := client.Update(ctx, object, metav1.UpdateOptions{DryRun: dryRun})
	if err == nil {
		before, err = shown(installed)
	}
	if err == nil {
		after, err = shown(updated)
	}
	return before, after, err
}

// shown returns the parts of an object that lanyard policies writes.
func shown(object *unstructured.Unstructured) (string, error) {
	metadata := map[string]any{"name": object.GetName()}
	if source, found := object.GetAnnotations()[annotations.PoliciesSource]; found {
		metadata["annotations"] = map[string]any{annotations.PoliciesSource: source}
	}
	text, err := yaml.Marshal(map[string]any{
		"apiVersion": object.GetAPIVersion(), "kind": object.GetKind(), "metadata": metadata, "spec": object.Object["spec"],
	})
	return string(text), err
}
