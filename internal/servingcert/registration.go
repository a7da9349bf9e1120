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

// hook is one webhook of a configuration.
type hook struct {
	name     string
	caBundle []byte
}

// hooks reads the webhooks of a configuration; where there is no configuration
// there are none. What cannot be read of one, which the apiserver would not
// store, counts as not there.
func hooks(configuration *unstructured.Unstructured) []hook {
	if configuration == nil {
		return nil
	}
	list, _, err := unstructured.NestedSlice(configuration.Object, "webhooks")
	if err != nil {
		return nil
	}
	all := make([]hook, len(list))
	for i, element := range list {
		fields, ok := element.(map[string]any)
		if !ok {
			continue
		}
		all[i].name, _, _ = unstructured.NestedString(fields, "name")
		encoded, _, _ := unstructured.NestedString(fields, "clientConfig", "caBundle")
		if bundle, err := base64.StdEncoding.DecodeString(encoded); err == nil {
			all[i].caBundle = bundle
		}
	}
	return all
}

// operation is one of JSON Patch (RFC 6902).
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value string `json:"value"`
}

// trustPatch gives the JSON Patch that has every webhook trust the bundle, nil
// where they do. Webhooks have to be as they were seen for it to apply.
func trustPatch(all []hook, bundle []byte) ([]byte, error) {
	var patch []operation
	for i, h := range all {
		if bytes.Equal(h.caBundle, bundle) {
			continue
		}
		path := fmt.Sprintf("/webhooks/%d", i)
		patch = append(patch,
			operation{"test", path + "/name", h.name},
			operation{"add", path + "/clientConfig/caBundle", base64.StdEncoding.EncodeToString(bundle)})
	}
	if patch == nil {
		return nil, nil
	}
	return json.Marshal(patch)
}

// trust writes the bundle into every webhook of the configuration, where
// another is there, and says whether it had to.
func trust(ctx context.Context, client dynamic.ResourceInterface, configuration *unstructured.Unstructured, bundle []byte) (written bool, err error) {
	patch, err := trustPatch(hooks(configuration), bundle)
	if err != nil || patch == nil {
		return false, err
	}
	_, err = client.Patch(ctx, configuration.GetName(), types.JSONPatchType, patch, metav1.PatchOptions{FieldManager: fieldManager})
	return err == nil, err
}
