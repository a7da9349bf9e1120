// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/lanyard-dev/lanyard/internal/cli/command"
	"github.com/lanyard-dev/lanyard/internal/provider"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

// A ServiceAccount that changed in the meantime must not be written: the API server rejects a patch
// of another version. The label of a user stays.
func TestAServiceAccountIsChangedAsItWasRead(t *testing.T) {
	t.Parallel()
	client := dynamicfake.NewSimpleDynamicClient(runtime.NewScheme())
	got := ""
	client.PrependReactor("patch", "serviceaccounts", func(action clienttesting.Action) (bool, runtime.Object, error) {
		got = string(action.(clienttesting.PatchAction).GetPatch())
		return true, &unstructured.Unstructured{}, nil
	})
	if _, err := patch(t.Context(), client, "shop", "cart", "7", "annotations", map[string]any{"a": "b", "c": nil}, nil); err != nil {
		t.Fatal(err)
	}
	if want := `{"metadata":{"annotations":{"a":"b","c":null},"resourceVersion":"7"}}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	for label, want := range map[string]string{"": "enabled", "required": "required", "enabled": "enabled", "Required": "enabled"} {
		account := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "7", Labels: map[string]string{"lanyard.dev/identity": label}}}
		if err := new(labeller).write(t.Context(), client, newSettings(t), account); err != nil {
			t.Fatal(err)
		}
		if want := `{"metadata":{"labels":{"lanyard.dev/identity":"` + want + `"},"resourceVersion":"7"}}`; got != want {
			t.Errorf("%s: got %s, want %s", label, got, want)
		}
	}
}

func newSettings(t *testing.T) *annotations.Settings {
	t.Helper()
	s, err := annotations.NewSettings(provider.Builtin())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Findings must not ask users to remove Lanyard's own additions.
func TestPodsOfAClusterAreReadWithoutTheAdditionsOfLanyard(t *testing.T) {
	t.Parallel()
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
	stock, err := readObjects(t.Context(), client.Resource(pods).Namespace("shop"), "", newSettings(t))
	if err != nil || len(stock) != 1 {
		t.Fatalf("got %d objects and %v, want a pod", len(stock), err)
	}
	if got := stock[0].Pod.Containers; len(got) > 0 {
		t.Errorf("got %v, want no container with a variable", got)
	}
}
