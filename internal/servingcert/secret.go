// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package servingcert

import (
	"context"
	"encoding/base64"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
)

var secrets = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}

// fieldManager owns what the program writes.
const fieldManager = "lanyard-webhook"

// secretData gives the data of a Secret, nil where it cannot be read or where
// there is no Secret.
func secretData(secret *unstructured.Unstructured) map[string][]byte {
	if secret == nil {
		return nil
	}
	encoded, _, err := unstructured.NestedStringMap(secret.Object, "data")
	if err != nil {
		return nil
	}
	data := make(map[string][]byte, len(encoded))
	for key, value := range encoded {
		text, err := base64.StdEncoding.DecodeString(value)
		if err != nil {
			return nil
		}
		data[key] = text
	}
	return data
}

// writeSecret puts data into the Secret as it was read. It fails with a
// conflict where somebody else has written since: what that was has to be seen
// first. Other data of the Secret stays.
func writeSecret(ctx context.Context, client dynamic.ResourceInterface, secret *unstructured.Unstructured, data map[string][]byte) error {
	secret = secret.DeepCopy()
	for key, value := range data {
		if err := unstructured.SetNestedField(secret.Object, base64.StdEncoding.EncodeToString(value), "data", key); err != nil {
			return fmt.Errorf("data of the Secret: %w", err)
		}
	}
	_, err := client.Update(ctx, secret, metav1.UpdateOptions{FieldManager: fieldManager})
	return err
}

// createSecret makes an empty Secret, unless there is one: the same for all
// replicas, so that it does not matter which of them is first. It is applied and
// not created because RBAC can allow that for one name.
func createSecret(ctx context.Context, client dynamic.ResourceInterface, namespace, name string) (*unstructured.Unstructured, error) {
	return client.Apply(ctx, name, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Secret", "type": "Opaque",
		"metadata": map[string]any{"namespace": namespace, "name": name},
	}}, metav1.ApplyOptions{FieldManager: fieldManager})
}
