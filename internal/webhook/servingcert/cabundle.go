// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package servingcert

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/lanyard-dev/lanyard/internal/jsonpatch"
	"github.com/lanyard-dev/lanyard/internal/jsonscan"
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

// webhooksOf returns the webhooks of a configuration, nil for a nil
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

// registrationPatch returns the patch that sets the caBundle of every webhook. It is
// empty if all webhooks have the bundle. It only applies if the webhooks are still in
// this order.
func registrationPatch(webhooks []webhook, bundle []byte) jsonpatch.Patch {
	encoded := jsonscan.AppendString(nil, base64.StdEncoding.EncodeToString(bundle))
	var patch jsonpatch.Patch
	for i, w := range webhooks {
		if bytes.Equal(w.caBundle, bundle) {
			continue
		}
		at := fmt.Sprintf("/webhooks/%d", i)
		patch.Test(at+"/name", jsonscan.AppendString(nil, w.name))
		patch.Add(at+"/clientConfig/caBundle", encoded)
	}
	return patch
}

// patchRegistration sets the caBundle of every webhook of the configuration. It
// reports whether the configuration was changed.
func patchRegistration(ctx context.Context, client dynamic.ResourceInterface, configuration *unstructured.Unstructured, bundle []byte) (changed bool, err error) {
	patch := registrationPatch(webhooksOf(configuration), bundle)
	if patch.Empty() {
		return false, nil
	}
	_, err = client.Patch(ctx, configuration.GetName(), types.JSONPatchType, patch.Bytes(), metav1.PatchOptions{FieldManager: fieldManager})
	return err == nil, err
}
