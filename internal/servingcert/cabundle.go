// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package servingcert

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
)

var (
	mutatingConfigurations   = schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "mutatingwebhookconfigurations"}
	validatingConfigurations = schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingwebhookconfigurations"}
)

// webhook is one webhook of a configuration.
type webhook struct {
	name     string
	caBundle []byte
}

// webhooksOf returns the webhooks of a configuration, nil if there is no
// configuration. Fields that cannot be read are empty; the API server does not
// store such objects.
func webhooksOf(configuration *unstructured.Unstructured) []webhook {
	if configuration == nil {
		return nil
	}
	list, _, err := unstructured.NestedSlice(configuration.Object, "webhooks")
	if err != nil {
		return nil
	}
	webhooks := make([]webhook, len(list))
	for i, element := range list {
		fields, ok := element.(map[string]any)
		if !ok {
			continue
		}
		webhooks[i].name, _, _ = unstructured.NestedString(fields, "name")
		encoded, _, _ := unstructured.NestedString(fields, "clientConfig", "caBundle")
		if bundle, err := base64.StdEncoding.DecodeString(encoded); err == nil {
			webhooks[i].caBundle = bundle
		}
	}
	return webhooks
}

// operation is an operation of a JSON Patch (RFC 6902).
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value string `json:"value"`
}

// caBundlePatch returns the JSON Patch that sets the caBundle of every webhook, nil
// if they all have it. It only applies if the webhooks are still in this order.
func caBundlePatch(webhooks []webhook, bundle []byte) ([]byte, error) {
	var operations []operation
	for i, w := range webhooks {
		if bytes.Equal(w.caBundle, bundle) {
			continue
		}
		path := fmt.Sprintf("/webhooks/%d", i)
		operations = append(operations,
			operation{"test", path + "/name", w.name},
			operation{"add", path + "/clientConfig/caBundle", base64.StdEncoding.EncodeToString(bundle)})
	}
	if operations == nil {
		return nil, nil
	}
	return json.Marshal(operations)
}

// patchCABundle sets the caBundle of every webhook of the configuration, and
// reports whether it had to be changed.
func patchCABundle(ctx context.Context, client dynamic.ResourceInterface, configuration *unstructured.Unstructured, bundle []byte) (changed bool, err error) {
	patch, err := caBundlePatch(webhooksOf(configuration), bundle)
	if err != nil || patch == nil {
		return false, err
	}
	_, err = client.Patch(ctx, configuration.GetName(), types.JSONPatchType, patch, metav1.PatchOptions{FieldManager: fieldManager})
	return err == nil, err
}
