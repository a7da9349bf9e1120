// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package randpod generates random pods for tests. The pods are valid, have the
// form in which the API server sends them to a webhook, and contain everything
// that Lanyard's rules depend on, as well as fields that no Kubernetes version
// has.
package randpod

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// MountPath is the token mount path. Some containers have a mount there, below it, above it,
// or at OtherPath, which is the same place in most images.
const (
	MountPath = "/var/run/secrets/lanyard.dev/serviceaccount"
	OtherPath = "/run/secrets/lanyard.dev/serviceaccount"
)

// AbovePaths are above MountPath.
var AbovePaths = []string{"/var/run/secrets/lanyard.dev", "/run/secrets/lanyard.dev/", "/var/run/secrets", "/run"}

// variables are names that the rules depend on, and some others.
var variables = []string{
	"AWS_ROLE_ARN", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ACCESS_KEY_ID", "AWS_ROLE_SESSION_NAME", "AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_CONFIG_FILE",
	"AZURE_CLIENT_ID", "AZURE_TENANT_ID", "AZURE_CLIENT_SECRET", "AZURE_TOKEN_CREDENTIALS", "AZURE_AUTHORITY_HOST",
	"GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_CLOUD_PROJECT", "GCLOUD_PROJECT", "LANYARD_TOKEN_FILE",
	"HOME", "PATH_TO", "LOG_LEVEL",
}

// New returns a pod as a JSON object. The same source always results in the
// same pod.
func New(r *rand.Rand) map[string]any {
	g := generator{r}
	pod := map[string]any{
		"apiVersion": "v1", "kind": "Pod",
		"metadata":  g.metadata(),
		"futureTop": map[string]any{"level": r.IntN(100)},
	}
	spec := map[string]any{
		"serviceAccountName": "app", "restartPolicy": "Always", "dnsPolicy": "ClusterFirst",
		"terminationGracePeriodSeconds": 30,
		"securityContext":               map[string]any{},
		"futureSpec":                    []any{"a", r.IntN(9), nil},
	}
	volumes := g.volumes()
	if len(volumes) > 0 || g.maybe() {
		spec["volumes"] = volumes
	}
	n := 0
	container := func(kind string) map[string]any {
		n++
		return g.container(fmt.Sprintf("%s-%d", kind, n), volumes)
	}
	spec["containers"] = times(1+r.IntN(4), func() any { return container("main") })
	if g.maybe() {
		spec["initContainers"] = times(1+r.IntN(3), func() any {
			c := container("init")
			if g.maybe() {
				c["restartPolicy"] = "Always" // a native sidecar
			}
			return c
		})
	}
	if r.IntN(8) == 0 {
		spec["nodeSelector"] = map[string]any{"kubernetes.io/os": "windows"}
	}
	pod["spec"] = spec
	return pod
}

type generator struct{ r *rand.Rand }

func (g generator) maybe() bool { return g.r.IntN(2) == 0 }

func times(n int, element func() any) []any {
	list := []any{}
	for range n {
		list = append(list, element())
	}
	return list
}

func (g generator) metadata() map[string]any {
	metadata := map[string]any{"namespace": "team", "futureMeta": true}
	if g.maybe() {
		metadata["name"] = []string{"pod", "pod", "p", strings.Repeat("p", 64), strings.Repeat("p", 65)}[g.r.IntN(5)]
	} else {
		metadata["generateName"] = "pod-"
	}
	switch g.r.IntN(3) {
	case 0:
		metadata["annotations"] = map[string]any{}
	case 1:
		metadata["annotations"] = map[string]any{"example.com/note": "keep \"me\"\n\u2028", "example.com/other": ""}
	}
	return metadata
}

// volumes returns the API server's volume, the user's, and sometimes one with
// Lanyard's volume name.
func (g generator) volumes() []any {
	volumes := []any{}
	add := func(name, source string, value any) {
		volumes = append(volumes, map[string]any{"name": name, source: value, "futureVolume": "x"})
	}
	if g.maybe() {
		add("data", "emptyDir", map[string]any{})
	}
	if g.maybe() {
		add("kube-api-access-x", "projected", map[string]any{"defaultMode": 420, "sources": []any{
			map[string]any{"serviceAccountToken": map[string]any{"expirationSeconds": 3607, "path": "token"}},
		}})
	}
	if g.r.IntN(4) == 0 {
		switch g.r.IntN(4) {
		case 0:
			add("config", "secret", map[string]any{"secretName": "config"})
		case 1:
			add("config", "configMap", map[string]any{"name": "config"})
		case 2:
			add("config", "csi", map[string]any{"driver": "config.example.com", "readOnly": g.maybe()})
		default:
			add("config", "hostPath", map[string]any{"path": "/config"})
		}
	}
	if g.r.IntN(4) == 0 {
		add("bound-sa-token", "projected", map[string]any{"defaultMode": 420, "sources": []any{
			map[string]any{"serviceAccountToken": map[string]any{"audience": "openshift", "expirationSeconds": 3600, "path": "token"}},
		}})
	}
	return volumes
}

func (g generator) container(name string, volumes []any) map[string]any {
	c := map[string]any{
		"name": name, "image": "image", "imagePullPolicy": "IfNotPresent",
		"terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
		"resources":       map[string]any{},
		"futureContainer": map[string]any{"deep": []any{map[string]any{"x": 1.5e300}}},
	}
	switch g.r.IntN(3) {
	case 0:
		c["env"] = []any{}
	case 1:
		c["env"] = times(1+g.r.IntN(4), g.variable)
	}
	if len(volumes) == 0 || g.maybe() {
		return c
	}
	mounts := []any{}
	others := slices.Concat(AbovePaths, []string{OtherPath}) // each one once
	for i, volume := range volumes {
		path := fmt.Sprintf("/mnt/%d", i)
		if i == len(volumes)-1 && g.r.IntN(4) == 0 {
			path = MountPath + []string{"", "/", "/below"}[g.r.IntN(3)]
		} else if g.r.IntN(8) == 0 {
			at := g.r.IntN(len(others))
			path = others[at]
			others = slices.Delete(others, at, at+1)
		}
		mount := map[string]any{"name": volume.(map[string]any)["name"], "mountPath": path, "futureMount": 1}
		if g.r.IntN(8) == 0 {
			mount["readOnly"] = g.maybe()
		}
		mounts = append(mounts, mount)
	}
	c["volumeMounts"] = mounts
	return c
}

func (g generator) variable() any {
	v := map[string]any{"name": variables[g.r.IntN(len(variables))], "futureVariable": nil}
	switch g.r.IntN(4) {
	case 0:
		v["valueFrom"] = map[string]any{"fieldRef": map[string]any{"apiVersion": "v1", "fieldPath": "metadata.name"}}
	case 1: // a missing value means an empty one
	default:
		v["value"] = "the user's"
	}
	return v
}
