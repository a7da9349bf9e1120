// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package servingcert

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/lanyard-dev/lanyard/internal/jsonpatch"
	"github.com/lanyard-dev/lanyard/internal/jsonscan"
	"github.com/lanyard-dev/lanyard/internal/secretpath"
)

var (
	mutatingConfigurations   = schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "mutatingwebhookconfigurations"}
	validatingConfigurations = schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingwebhookconfigurations"}
)

// webhook is one webhook of a configuration.
type webhook struct {
	name     string
	caBundle []byte
	// path is what the API server calls: the path of the Service, or a URL.
	// pathField is its place in the clientConfig.
	path, pathField string
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
		webhooks[i].pathField = "url"
		if webhooks[i].path, _, _ = unstructured.NestedString(fields, "clientConfig", "url"); webhooks[i].path == "" {
			webhooks[i].pathField = "service/path"
			webhooks[i].path, _, _ = unstructured.NestedString(fields, "clientConfig", "service", "path")
		}
		encoded, _, _ := unstructured.NestedString(fields, "clientConfig", "caBundle")
		if bundle, err := base64.StdEncoding.DecodeString(encoded); err == nil {
			webhooks[i].caBundle = bundle
		}
	}
	return webhooks
}

// registrationPatch returns the patch that sets the caBundle of every webhook, and
// the secret segment of its path if there is one. It is empty if they all have
// both. It only applies if the webhooks are still in this order, and if nobody has
// changed a path that it changes.
func registrationPatch(webhooks []webhook, bundle []byte, segment string) jsonpatch.Patch {
	encoded := jsonscan.AppendString(nil, base64.StdEncoding.EncodeToString(bundle))
	var patch jsonpatch.Patch
	for i, w := range webhooks {
		path := w.path
		if segment != "" && w.path != "" {
			path = secretpath.With(w.path, segment)
		}
		trusted := bytes.Equal(w.caBundle, bundle)
		if trusted && path == w.path {
			continue
		}
		at := fmt.Sprintf("/webhooks/%d", i)
		patch.Test(at+"/name", jsonscan.AppendString(nil, w.name))
		if !trusted {
			patch.Add(at+"/clientConfig/caBundle", encoded)
		}
		if path != w.path {
			at += "/clientConfig/" + w.pathField
			patch.Test(at, jsonscan.AppendString(nil, w.path))
			patch.Add(at, jsonscan.AppendString(nil, path))
		}
	}
	return patch
}

// patchRegistration sets the caBundle of every webhook of the configuration, and
// the segment unless it is empty. It reports whether it had to change anything.
func patchRegistration(ctx context.Context, client dynamic.ResourceInterface, configuration *unstructured.Unstructured, bundle []byte, segment string) (changed bool, err error) {
	patch := registrationPatch(webhooksOf(configuration), bundle, segment)
	if patch.Empty() {
		return false, nil
	}
	_, err = client.Patch(ctx, configuration.GetName(), types.JSONPatchType, patch.Bytes(), metav1.PatchOptions{FieldManager: fieldManager})
	return err == nil, err
}

// versionOf returns a text that is another one after each change of the webhooks.
func versionOf(configuration *unstructured.Unstructured) string {
	if configuration == nil {
		return "none;"
	}
	return fmt.Sprintf("%s/%d;", configuration.GetUID(), configuration.GetGeneration())
}

// lastWritten returns when somebody last wrote the configuration: the API server
// notes it for each writer. It returns the zero time if that is unknown.
func lastWritten(configuration *unstructured.Unstructured) (last time.Time) {
	if configuration == nil {
		return last
	}
	for _, entry := range configuration.GetManagedFields() {
		if entry.Time != nil && entry.Time.After(last) {
			last = entry.Time.Time
		}
	}
	return last
}
