// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

const (
	// maxWidth is the maximum length of a printed line.
	maxWidth = 124
	// maxString is the length up to which a string is shown in full.
	maxString = 100
)

// additions returns the parts of the second pod that the first pod lacks: annotations,
// labels, variables, mounts and volumes.
func additions(before, after *corev1.Pod) (lines []string) {
	lines = append(lines, newKeys("label", before.Labels, after.Labels)...)
	lines = append(lines, newKeys("annotation", before.Annotations, after.Annotations)...)
	old, seen := containers(before), map[string]string{}
	for i, c := range containers(after) {
		added := containerAdditions(&old[i], &c)
		if len(added) == 0 {
			continue
		}
		content := strings.Join(added, "\n")
		if first, found := seen[content]; found {
			lines = append(lines, "container "+c.Name+": the same as "+first)
			continue
		}
		seen[content] = c.Name
		lines = append(append(lines, "container "+c.Name+":"), added...)
	}
	for _, v := range grown(before.Spec.Volumes, after.Spec.Volumes) {
		lines = append(append(lines, "volume "+v.Name+":"), sources(v.Projected)...)
	}
	return lines
}

func newKeys(what string, before, after map[string]string) (lines []string) {
	for key, value := range sorted(after) {
		if _, found := before[key]; !found {
			lines = append(lines, what+" "+key+": "+shorten(value))
		}
	}
	return lines
}

func containers(pod *corev1.Pod) []corev1.Container {
	return slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers)
}

func containerAdditions(before, after *corev1.Container) (lines []string) {
	for _, v := range grown(before.Env, after.Env) {
		lines = append(lines, "  "+v.Name+"="+shorten(v.Value))
	}
	for _, m := range grown(before.VolumeMounts, after.VolumeMounts) {
		lines = append(lines, fmt.Sprintf("  %s: volume %s, read-only: %t", m.MountPath, m.Name, m.ReadOnly))
	}
	return lines
}

// sources returns the files of a projected volume.
func sources(volume *corev1.ProjectedVolumeSource) (lines []string) {
	if volume == nil {
		return nil
	}
	for _, s := range volume.Sources {
		if t := s.ServiceAccountToken; t != nil {
			lines = append(lines, fmt.Sprintf("  %s: a token of %d seconds for %s", t.Path, *t.ExpirationSeconds, shorten(t.Audience)))
		}
		if s.DownwardAPI != nil {
			for _, item := range s.DownwardAPI.Items {
				lines = append(lines, "  "+item.Path+": "+item.FieldRef.FieldPath)
			}
		}
	}
	return lines
}

// grown returns the elements that the second list has in addition.
func grown[T any](before, after []T) []T { return after[min(len(before), len(after)):] }

// changes returns the paths at which the second JSON value lacks a part of the first, or has
// a different value. Additional keys and trailing list elements are allowed.
func changes(path string, before, after any) (found []string) {
	differs := func() { found = append(found, fmt.Sprintf("%s: got %v, want %v as before", path, after, before)) }
	switch old := before.(type) {
	case map[string]any:
		object, ok := after.(map[string]any)
		if !ok {
			differs()
		}
		for key, value := range sorted(old) {
			found = append(found, changes(strings.TrimPrefix(path+"."+key, "."), value, object[key])...)
		}
	case []any:
		list, _ := after.([]any)
		if len(list) < len(old) {
			differs()
			return found
		}
		for i, value := range old {
			found = append(found, changes(fmt.Sprintf("%s[%d]", path, i), value, list[i])...)
		}
	default:
		if before != after {
			differs()
		}
	}
	return found
}

// shorten cuts the middle of a very long string.
func shorten(s string) string {
	if len(s) > maxString {
		s = strings.ToValidUTF8(s[:maxString/5]+"…"+s[len(s)-maxString/6:], "")
	}
	return s
}

// sorted iterates over a map in the order of its keys.
func sorted[V any](m map[string]V) iter.Seq2[string, V] {
	return func(yield func(string, V) bool) {
		for _, key := range slices.Sorted(maps.Keys(m)) {
			if !yield(key, m[key]) {
				return
			}
		}
	}
}

// apiAccess matches the name of the volume that the API server adds.
var apiAccess = regexp.MustCompile(`kube-api-access-[a-z0-9]{5}`)

// scrub returns a pod without the fields that differ for each creation.
func scrub(pod *corev1.Pod) (map[string]any, error) {
	pod = pod.DeepCopy()
	pod.UID, pod.ResourceVersion, pod.Generation, pod.ManagedFields = "", "", 0, nil
	pod.CreationTimestamp.Reset()
	pod.Status = corev1.PodStatus{}
	text, err := json.Marshal(pod)
	if err != nil {
		return nil, fmt.Errorf("pod %s: %w", pod.Name, err)
	}
	var object map[string]any
	err = json.Unmarshal(apiAccess.ReplaceAll(text, []byte("kube-api-access")), &object)
	return object, err
}
