// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package injector_test

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"

	"github.com/lanyard-dev/lanyard/internal/admission"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/pkg/provider"
	"github.com/lanyard-dev/lanyard/test/support/randpod"
)

// plainly adds an injection to a decoded pod: the obvious way, with no regard
// to what it costs. It is what the fast way is held to.
func plainly(pod map[string]any, injection *provider.Injection) {
	spec := pod["spec"].(map[string]any)
	volumes, _ := spec["volumes"].([]any)
	name := "bound-sa-token"
	for _, volume := range volumes {
		if volume.(map[string]any)["name"] == name {
			name = "lanyard-bound-sa-token" // randpod's own never holds what is needed
		}
	}
	windows := false
	if selector, ok := spec["nodeSelector"].(map[string]any); ok {
		windows = selector["kubernetes.io/os"] == "windows"
	}
	given := false
	for _, kind := range []string{"initContainers", "containers"} {
		containers, _ := spec[kind].([]any)
		for _, container := range containers {
			given = addToContainer(container.(map[string]any), injection, name, windows) || given
		}
	}
	if !given {
		return
	}
	spec["volumes"] = append(volumes, plainVolume(injection, name))
	addAnnotations(pod["metadata"].(map[string]any), injection)
}

// addToContainer says whether the container takes part.
func addToContainer(container map[string]any, injection *provider.Injection, volume string, windows bool) bool {
	env, _ := container["env"].([]any)
	has := func(name string) bool {
		return slices.ContainsFunc(env, func(v any) bool { return v.(map[string]any)["name"] == name })
	}
	var add []any
	takesPart := false
	for _, p := range injection.Providers {
		if slices.ContainsFunc(p.Credentials, func(v provider.Variable) bool { return has(v.Name) }) {
			continue // randpod's values are never Lanyard's
		}
		takesPart = true
		for _, group := range append([][]provider.Variable{p.Credentials}, p.Settings...) {
			if slices.ContainsFunc(group, func(v provider.Variable) bool { return has(v.Name) }) {
				continue
			}
			for _, v := range group {
				add = append(add, map[string]any{"name": v.Name, "value": v.Value})
			}
		}
	}
	mounts, _ := container["volumeMounts"].([]any)
	for _, mount := range mounts {
		at := path.Clean(mount.(map[string]any)["mountPath"].(string))
		if windows {
			at = strings.ToLower(at)
		}
		if at == injection.MountPath || strings.HasPrefix(at, injection.MountPath+"/") {
			return false
		}
	}
	if !takesPart {
		return false
	}
	container["volumeMounts"] = append(mounts, map[string]any{"name": volume, "readOnly": true, "mountPath": injection.MountPath})
	container["env"] = append(env, add...)
	return true
}

func plainVolume(injection *provider.Injection, name string) map[string]any {
	var sources []any
	for _, p := range injection.Providers {
		sources = append(sources, map[string]any{"serviceAccountToken": map[string]any{
			"audience": p.Token.Audience, "expirationSeconds": float64(p.Token.ExpirationSeconds), "path": p.Token.Path,
		}})
		if p.CredentialFile.Path != "" {
			sources = append(sources, map[string]any{"downwardAPI": map[string]any{"items": []any{map[string]any{
				"path":     p.CredentialFile.Path,
				"fieldRef": map[string]any{"apiVersion": "v1", "fieldPath": "metadata.annotations['lanyard.dev/gcp-credentials']"},
			}}}})
		}
	}
	return map[string]any{"name": name, "projected": map[string]any{"defaultMode": float64(420), "sources": sources}}
}

func addAnnotations(metadata map[string]any, injection *provider.Injection) {
	values, _ := metadata["annotations"].(map[string]any)
	if values == nil {
		values = map[string]any{}
	}
	var names []string
	for _, p := range injection.Providers {
		names = append(names, p.Name)
		if p.CredentialFile.Path != "" {
			values["lanyard.dev/gcp-credentials"] = p.CredentialFile.Content
		}
	}
	values["lanyard.dev/injected"] = strings.Join(names, ",")
	values["lanyard.dev/identity-hash"] = injection.Hash
	metadata["annotations"] = values
}

// FuzzDifferential: the patched pod is what the plain way makes of it, asked
// directly, and over HTTP with the memory of the pods before it.
func FuzzDifferential(f *testing.F) {
	var handlers [256]http.Handler
	for seed := range uint64(500) {
		f.Add(seed, uint8(seed%16))
	}
	f.Fuzz(func(t *testing.T, seed uint64, bits uint8) {
		pod := marshal(t, randpod.New(rand.New(rand.NewPCG(seed, uint64(bits)))))
		pods, _ := newPods(t, accountOf(bits))
		identity, errs := annotations.ParseServiceAccount(pods.Keys, accountOf(bits), pods.Defaults)
		if len(errs) > 0 {
			t.Fatal(errs.ToAggregate())
		}
		want := unmarshal(t, pod)
		_, windows := want["spec"].(map[string]any)["nodeSelector"]
		plainly(want, provider.New(pods.Settings, identity, &provider.Subject{
			Namespace: "team", ServiceAccount: "app", TokenExpirationSeconds: 3600, Windows: windows,
		}))
		got := unmarshal(t, apply(t, pod, pods.Decide(t.Context(), create(pod)).Patch))
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("pod (-plain +patched):\n%s", diff)
		}
		if handlers[bits] == nil {
			handlers[bits] = admission.NewHandler(pods, uncounted{}, logr.Discard())
		}
		got = unmarshal(t, apply(t, pod, patchOverHTTP(t, handlers[bits], pod)))
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("pod over HTTP (-plain +patched):\n%s", diff)
		}
	})
}

func patchOverHTTP(t *testing.T, handler http.Handler, pod []byte) []byte {
	t.Helper()
	request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/mutate-v1-pod", bytes.NewReader(realReview(t, pod)))
	request.Header.Set("Content-Type", "application/json")
	answer := httptest.NewRecorder()
	handler.ServeHTTP(answer, request)
	var review admissionv1.AdmissionReview
	if err := json.Unmarshal(answer.Body.Bytes(), &review); err != nil {
		t.Fatalf("%s: %v", answer.Body, err)
	}
	if !review.Response.Allowed {
		t.Fatalf("refused: %s", review.Response.Result.Message)
	}
	return review.Response.Patch
}
