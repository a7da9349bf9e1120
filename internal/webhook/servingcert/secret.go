// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package servingcert

import (
	"context"
	"encoding/base64"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
)

var secrets = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}

// fieldManager is the owner of the fields that the program writes.
const fieldManager = "lanyard-webhook"

// secretData returns the data of a Secret, nil if the Secret is nil or its data
// is malformed.
func secretData(secret *unstructured.Unstructured) map[string][]byte {
	var fields struct {
		Data map[string][]byte `json:"data"`
	}
	if secret == nil || runtime.DefaultUnstructuredConverter.FromUnstructured(secret.Object, &fields) != nil {
		return nil
	}
	return fields.Data
}

// writeSecret adds data to the Secret, which it changes only from the given state:
// if it was written since, writeSecret returns a conflict. Other data stays.
func writeSecret(ctx context.Context, client dynamic.ResourceInterface, secret *unstructured.Unstructured, data map[string][]byte) error {
	secret = secret.DeepCopy()
	for key, value := range data {
		if err := unstructured.SetNestedField(secret.Object, base64.StdEncoding.EncodeToString(value), "data", key); err != nil {
			return fmt.Errorf("set data of the Secret: %w", err)
		}
	}
	_, err := client.Update(ctx, secret, metav1.UpdateOptions{FieldManager: fieldManager})
	return err
}

// createSecret applies a Secret. All replicas apply the same, so it does not matter
// which of them is first. RBAC can allow apply, unlike create, for one name.
func createSecret(ctx context.Context, client dynamic.ResourceInterface, secret *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	return client.Apply(ctx, secret.GetName(), secret, metav1.ApplyOptions{FieldManager: fieldManager})
}
