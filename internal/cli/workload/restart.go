// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/lanyard-dev/lanyard/internal/cli/cluster"
)

// topOwner is the workload that a pod belongs to.
type topOwner struct {
	// Name is the workload, for example deployment/cart, or empty if the pod has none.
	Name string
	// Kind is the kind of the workload. Kind.Kind is empty for a custom kind.
	Kind cluster.Kind
	// ByHand says why a restart would not replace the pods. It is empty if a restart would, or if the
	// workload was not read.
	ByHand string
}

// restarts reports whether kubectl rollout restart replaces the pods.
func (o *topOwner) restarts() bool { return o.Kind.Restarts && o.ByHand == "" }

// topOwnerOf returns the named workload, as the owner of its pods.
func topOwnerOf(name string, object *unstructured.Unstructured) topOwner {
	kind, _ := cluster.ByGroupKind(object.GroupVersionKind().GroupKind())
	return topOwner{Name: name, Kind: kind, ByHand: kind.ByHand(object)}
}

// recreated is the fix for a pod that its controller replaces.
const recreated = "Delete the pod, and its controller creates a new one: "

// replace returns the next step that replaces the pods of the workload, and of no other workload. pod is
// the name of a pod, or empty for those of the workload.
func (o *topOwner) replace(namespace, pod string) string {
	_, name, _ := strings.Cut(o.Name, "/")
	namespace = " --namespace " + namespace
	if pod == "" {
		pod = "POD"
	}
	remove := "kubectl delete pod " + pod + namespace
	switch {
	case o.Name == "":
		return "No controller replaces this pod. Delete it, and create it again from its manifest: " + remove
	case o.restarts():
		return "Restart its workload: kubectl rollout restart " + o.Name + namespace
	case o.Kind.Restarts:
		return fmt.Sprintf("A restart of %s does not replace the pod: %s. %s%s", o.Name, o.ByHand, recreated, remove)
	case o.Kind.Kind == "CronJob":
		return fmt.Sprintf("The next Job of %s gets the credentials. To start a Job now: kubectl create job %s-again --from=%s%s", o.Name, name, o.Name, namespace)
	case o.Kind.Kind == "Job":
		return fmt.Sprintf("A Job cannot be restarted. Delete it, and create it again from its manifest: kubectl delete %s%s", o.Name, namespace)
	case o.Kind.Kind == "":
		return fmt.Sprintf("Restart %s with the program that manages it, or delete the pod, if its controller creates a new one: %s", o.Name, remove)
	}
	return recreated + remove
}
