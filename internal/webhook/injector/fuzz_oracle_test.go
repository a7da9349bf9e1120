// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package injector_test

import (
	"math/rand/v2"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"

	"github.com/lanyard-dev/lanyard/internal/provider"
	"github.com/lanyard-dev/lanyard/internal/webhook/admission"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/pkg/mutate"
	"github.com/lanyard-dev/lanyard/pkg/mutate/reason"
	"github.com/lanyard-dev/lanyard/test/support/randpod"
)

// verifyImage is the image of the init container that verifies.
const verifyImage = "registry.example.com/lanyard-webhook:v0.1.0"

// plainly adds an injection to a decoded pod in the obvious way, with a verified start if verified is
// true. The patch of the webhook must result in the same pod.
func plainly(pod map[string]any, injection *provider.Injection, verified bool) {
	spec := pod["spec"].(map[string]any)
	volumes, _ := spec["volumes"].([]any)
	name := "bound-sa-token"
	for _, volume := range volumes {
		if volume.(map[string]any)["name"] == name {
			name = "lanyard-bound-sa-token" // randpod's own never contains what is needed
		}
	}
	given := false
	for _, kind := range []string{"initContainers", "containers"} {
		containers, _ := spec[kind].([]any)
		for _, container := range containers {
			c := container.(map[string]any)
			given = !isBelowReadOnly(c, volumes) && addToContainer(c, injection, name, pod["metadata"].(map[string]any)["name"]) || given
		}
	}
	if !given {
		return
	}
	if init, _ := spec["initContainers"].([]any); verified && !slices.ContainsFunc(init, func(c any) bool { return c.(map[string]any)["name"] == mutate.VerifyContainer }) {
		verifier := plainVerifier()
		addToContainer(verifier, injection, name, pod["metadata"].(map[string]any)["name"])
		spec["initContainers"] = append(init, verifier)
	}
	spec["volumes"] = append(volumes, plainVolume(injection, name))
	addMarks(pod["metadata"].(map[string]any), injection)
}

// plainVerifier returns the init container that verifies, without the injection.
func plainVerifier() map[string]any {
	resources := map[string]any{"cpu": "100m", "memory": "32Mi"}
	return map[string]any{
		"name": mutate.VerifyContainer, "image": verifyImage, "args": []any{"verify"}, "imagePullPolicy": "IfNotPresent", "env": []any{},
		"resources":              map[string]any{"limits": resources, "requests": resources},
		"terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
		"securityContext": map[string]any{
			"runAsNonRoot": true, "readOnlyRootFilesystem": true, "allowPrivilegeEscalation": false,
			"capabilities": map[string]any{"drop": []any{"ALL"}}, "seccompProfile": map[string]any{"type": "RuntimeDefault"},
		},
	}
}

// isBelowReadOnly reports whether a read-only mount of the container is above the token mount
// path.
func isBelowReadOnly(container map[string]any, volumes []any) bool {
	mounts, _ := container["volumeMounts"].([]any)
	return slices.ContainsFunc(mounts, func(mount any) bool {
		m := mount.(map[string]any)
		if !slices.Contains(randpod.AbovePaths, m["mountPath"].(string)) {
			return false
		}
		return m["readOnly"] == true || slices.ContainsFunc(volumes, func(volume any) bool {
			v := volume.(map[string]any)
			csi, _ := v["csi"].(map[string]any)
			return v["name"] == m["name"] && (v["secret"] != nil || v["configMap"] != nil || v["projected"] != nil || csi["readOnly"] == true)
		})
	})
}

// addToContainer reports whether the container takes part.
func addToContainer(container map[string]any, injection *provider.Injection, volume string, name any) bool {
	env, _ := container["env"].([]any)
	sets := func(name string) bool {
		return slices.ContainsFunc(env, func(v any) bool { return v.(map[string]any)["name"] == name })
	}
	mounts, _ := container["volumeMounts"].([]any)
	for _, mount := range mounts {
		at := mount.(map[string]any)["mountPath"].(string)
		if at == injection.MountPath || strings.HasPrefix(at, injection.MountPath+"/") {
			return false
		}
	}
	var add []any
	for _, p := range injection.Providers {
		if slices.ContainsFunc(p.Variables, func(v annotations.Variable) bool { return v.Credential && sets(v.Name) }) {
			continue // the values of randpod never are Lanyard's
		}
		if p.Needs != "" && !selects(env, p.Needs) {
			continue
		}
		for _, v := range p.Variables {
			together := func(other annotations.Variable) bool {
				return other.Name == v.Name || v.Group != "" && other.Group == v.Group
			}
			selects := slices.ContainsFunc(p.Selectors, func(name string) bool { return selects(env, name) }) && !sets("AWS_CONFIG_FILE")
			if v.Direct && selects || v.Profiles && !selects && slices.ContainsFunc(p.Variables, func(v annotations.Variable) bool { return v.Direct && differs(env, plainVariable(v, name)) }) {
				continue
			}
			if !slices.ContainsFunc(p.Variables, func(other annotations.Variable) bool { return together(other) && sets(other.Name) }) && !slices.ContainsFunc(p.Synonyms[v.Group], sets) {
				add = append(add, plainVariable(v, name))
			}
		}
	}
	container["volumeMounts"] = append(mounts, map[string]any{"name": volume, "readOnly": true, "mountPath": injection.MountPath})
	if len(add) > 0 {
		container["env"] = append(env, add...)
	}
	return true
}

// plainVariable returns a variable of a pod with this name.
func plainVariable(v annotations.Variable, pod any) map[string]any {
	if name, named := pod.(string); v.PodName != "" && (!named || len(name) > 1 && len(name) < 65) {
		return map[string]any{"name": v.Name, "valueFrom": map[string]any{"fieldRef": map[string]any{"apiVersion": "v1", "fieldPath": "metadata.name"}}}
	}
	return map[string]any{"name": v.Name, "value": v.Value}
}

// differs reports whether the last variable with this name has another value.
func differs(env []any, want map[string]any) bool {
	for _, v := range slices.Backward(env) {
		if v := v.(map[string]any); v["name"] == want["name"] {
			return !reflect.DeepEqual(v["value"], want["value"]) || !reflect.DeepEqual(v["valueFrom"], want["valueFrom"])
		}
	}
	return false
}

// selects reports whether the last variable of this name is not empty.
func selects(env []any, name string) bool {
	for _, v := range slices.Backward(env) {
		if v := v.(map[string]any); v["name"] == name {
			return v["value"] != nil || v["valueFrom"] != nil
		}
	}
	return false
}

func plainVolume(injection *provider.Injection, name string) map[string]any {
	var sources []any
	for _, p := range injection.Providers {
		sources = append(sources, map[string]any{"serviceAccountToken": map[string]any{
			"audience": p.Token.Audience, "expirationSeconds": float64(p.Token.ExpirationSeconds), "path": p.Token.Path,
		}})
		if p.File.Path != "" {
			sources = append(sources, map[string]any{"downwardAPI": map[string]any{"items": []any{map[string]any{
				"path":     p.File.Path,
				"fieldRef": map[string]any{"apiVersion": "v1", "fieldPath": "metadata.annotations['lanyard.dev/" + p.File.Annotation + "']"},
			}}}})
		}
	}
	return map[string]any{"name": name, "projected": map[string]any{"defaultMode": float64(420), "sources": sources}}
}

func addMarks(metadata map[string]any, injection *provider.Injection) {
	values, _ := metadata["annotations"].(map[string]any)
	if values == nil {
		values = map[string]any{}
	}
	var names []string
	for _, p := range injection.Providers {
		names = append(names, p.Name)
		if p.File.Path != "" {
			values["lanyard.dev/"+p.File.Annotation] = p.File.Content
		}
	}
	values["lanyard.dev/injected"] = strings.Join(names, ",")
	metadata["annotations"] = values
	labels, _ := metadata["labels"].(map[string]any)
	if labels == nil {
		labels = map[string]any{}
	}
	labels["lanyard.dev/identity"] = "injected"
	metadata["labels"] = labels
}

// FuzzDifferential compares the patched pod with the result of a simple implementation,
// including when memory of earlier pods is reused.
func FuzzDifferential(f *testing.F) {
	var handlers [256]http.Handler
	for seed := range uint64(500) {
		f.Add(seed, uint8(seed))
	}
	f.Fuzz(func(t *testing.T, seed uint64, bits uint8) {
		random := randpod.New(rand.New(rand.NewPCG(seed, uint64(bits))))
		if init, _ := random["spec"].(map[string]any)["initContainers"].([]any); seed%3 == 0 && len(init) > 0 {
			init[0].(map[string]any)["name"] = mutate.VerifyContainer
		}
		pod := marshal(t, random)
		pods, _ := newPods(t, accountOf(bits))
		pods.VerifyImage = verifyImage
		account, errs := pods.ParseServiceAccount("team", "app", accountOf(bits))
		if len(errs) > 0 {
			t.Fatal(errs.ToAggregate())
		}
		want := unmarshal(t, pod)
		_, windows := want["spec"].(map[string]any)["nodeSelector"]
		injection := provider.NewInjection(account.Identities, &provider.Subject{
			Namespace: "team", ServiceAccount: "app", MountPath: pods.TokenMountPath, TokenExpirationSeconds: 3600, Windows: windows,
		})
		plainly(want, injection, account.Verify != "" && !windows)
		if handlers[bits] == nil {
			handlers[bits] = admission.NewHandler(pods, admission.NewBudget(), uncounted{}, logr.Discard())
		}
		for name, response := range map[string]decision{
			"new memory":           ask(t, pods, create(pod)),
			"the memory of others": askHandler(t, handlers[bits], realReview(t, pod)),
		} {
			if response.Reason == reason.InvalidMountPath && misspelled(pod) {
				continue
			}
			if response.Code != 0 {
				t.Fatalf("denied: %s", response.Message)
			}
			if diff := cmp.Diff(want, unmarshal(t, apply(t, pod, response.Patch))); diff != "" {
				t.Errorf("pod, with %s (-plain +patched):\n%s", name, diff)
			}
			holdsReadable(t, pods.Settings, apply(t, pod, response.Patch), injection)
		}
	})
}
