// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package servingcert

import (
	"bytes"
	"encoding/base64"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/lanyard-dev/lanyard/internal/jsonpatch"
	"github.com/lanyard-dev/lanyard/internal/jsonscan"
)

var (
	mutatingConfigurations   = schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "mutatingwebhookconfigurations"}
	validatingConfigurations = schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingwebhookconfigurations"}
)

// webhook is one webhook of a configuration.
type webhook struct {
	Name         string `json:"name"`
	ClientConfig struct {
		CABundle []byte `json:"caBundle"`
	} `json:"clientConfig"`
}

// webhooksOf returns the webhooks of a configuration, nil for a nil configuration or
// for one that the API server would not store.
func webhooksOf(configuration *unstructured.Unstructured) []webhook {
	var fields struct {
		Webhooks []webhook `json:"webhooks"`
	}
	if configuration == nil || runtime.DefaultUnstructuredConverter.FromUnstructured(configuration.Object, &fields) != nil {
		return nil
	}
	return fields.Webhooks
}

// registrationPatch returns the patch that sets the caBundle of every webhook. It is
// empty if all webhooks have the bundle. It only applies if the webhooks are still in
// this order.
func registrationPatch(webhooks []webhook, bundle []byte) jsonpatch.Patch {
	encoded := jsonscan.AppendString(nil, base64.StdEncoding.EncodeToString(bundle))
	var patch jsonpatch.Patch
	for i, w := range webhooks {
		if bytes.Equal(w.ClientConfig.CABundle, bundle) {
			continue
		}
		at := fmt.Sprintf("/webhooks/%d", i)
		patch.Test(at+"/name", jsonscan.AppendString(nil, w.Name))
		patch.Add(at+"/clientConfig/caBundle", encoded)
	}
	return patch
}
