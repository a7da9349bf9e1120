// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	dynamicfake "k8s.io/client-go/dynamic/fake"

	"github.com/lanyard-dev/lanyard/internal/cli/command"
	"github.com/lanyard-dev/lanyard/internal/provider"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

func TestMigrateChangesAServiceAccountAsItWasRead(t *testing.T) {
	t.Parallel()
	patch, err := annotationPatch(&Change{Object: &Object{version: "7"}, Set: map[string]string{"a": "b"}, Remove: []string{"c"}})
	if want := `{"metadata":{"annotations":{"a":"b","c":null},"resourceVersion":"7"}}`; err != nil || string(patch) != want {
		t.Errorf("got %s and %v, want %s", patch, err, want)
	}
}

// Findings must not ask users to remove Lanyard's own additions.
func TestPodsOfAClusterAreReadWithoutTheAdditionsOfLanyard(t *testing.T) {
	t.Parallel()
	s, err := annotations.NewSettings(provider.Builtin())
	if err != nil {
		t.Fatal(err)
	}
	const directory = "/var/run/secrets/lanyard.dev/serviceaccount"
	variable := func(name, value string) any { return map[string]any{"name": name, "value": value} }
	pod := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": map[string]any{"name": "cart", "namespace": "shop", "annotations": map[string]any{"lanyard.dev/injected": "gcp"}},
		"spec": map[string]any{
			"containers": []any{map[string]any{
				"name":         "main",
				"env":          []any{variable("GOOGLE_APPLICATION_CREDENTIALS", directory+"/gcp/credentials.json"), variable("CLOUDSDK_AUTH_CREDENTIAL_FILE_OVERRIDE", directory+"/gcp/credentials.json")},
				"volumeMounts": []any{map[string]any{"name": "bound-sa-token", "mountPath": directory, "readOnly": true}},
			}},
			"volumes": []any{map[string]any{"name": "bound-sa-token", "projected": map[string]any{"sources": []any{
				map[string]any{"serviceAccountToken": map[string]any{"audience": "a", "expirationSeconds": int64(3600), "path": "gcp/token"}},
			}}}},
		},
	}}
	pods := command.CoreResource("pods")
	client := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{pods: "PodList"}, pod)
	k := &migrateCommand{CLI: command.NewCLI("lanyard", genericiooptions.NewTestIOStreamsDiscard()), settings: s, client: client, namespace: "shop"}
	stock, err := k.list(t.Context(), listing{GroupVersionResource: pods})
	if err != nil || len(stock) != 1 {
		t.Fatalf("got %d objects and %v, want a pod", len(stock), err)
	}
	if got := stock[0].Pod.Containers; len(got) > 0 {
		t.Errorf("got %v, want no container with a variable", got)
	}
}
