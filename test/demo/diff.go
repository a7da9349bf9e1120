// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

const (
	// maxWidth is the maximum length of a printed line.
	maxWidth = 124
	// maxString is the length up to which a string is shown in full.
	maxString = 100
)

// line is a line of the printed difference.
type line struct {
	added bool
	// A heading holds the path of the object or list that grew.
	heading bool
	path    string
	text    string
}

// String returns the printed form without the marker of an added line.
func (l line) String() string {
	if l.heading {
		return strings.TrimPrefix(l.path, ".") + ":" + l.text
	}
	return l.text
}

// comparison holds what was added to an object, as YAML under the path of each
// addition.
type comparison struct {
	lines []line
	// violations lists changes other than additions.
	violations []string
	// seen maps the additions to a list element to the name of the first
	// element with these additions.
	seen map[string]string
}

// compare compares two JSON objects.
func compare(before, after map[string]any) comparison {
	c := comparison{seen: map[string]string{}}
	c.compareMaps("", before, after)
	for i := range c.violations {
		c.violations[i] = strings.TrimPrefix(c.violations[i], ".")
	}
	return c
}

func (c *comparison) compareMaps(path string, before, after map[string]any) {
	var added []string
	for key, value := range sorted(after) {
		if _, found := before[key]; !found {
			added = append(added, entry(2, scalar(key)+":", value)...)
		}
	}
	c.add(path, added)
	for key, old := range sorted(before) {
		value, found := after[key]
		switch {
		case !found:
			c.violate(path+"."+key, "was removed")
		case !reflect.DeepEqual(old, value):
			c.compareValues(path+"."+key, old, value)
		}
	}
}

// compareValues compares two values that differ.
func (c *comparison) compareValues(path string, before, after any) {
	oldMap, wasMap := before.(map[string]any)
	newMap, isMap := after.(map[string]any)
	oldList, wasList := before.([]any)
	newList, isList := after.([]any)
	switch {
	case wasMap && isMap:
		c.compareMaps(path, oldMap, newMap)
	case wasList && isList:
		c.compareLists(path, oldList, newList)
	default:
		c.violate(path, fmt.Sprintf("was changed from %v to %v", before, after))
	}
}

// compareLists compares lists element by element. A list may only grow at its
// end.
func (c *comparison) compareLists(path string, before, after []any) {
	if len(after) < len(before) {
		c.violate(path, fmt.Sprintf("got %d elements, want at least the previous %d", len(after), len(before)))
		return
	}
	for i, old := range before {
		if !reflect.DeepEqual(old, after[i]) {
			c.compareElements(path, i, old, after[i])
		}
	}
	var added []string
	for _, element := range after[len(before):] {
		added = append(added, item(2, element)...)
	}
	c.add(path, added)
}

// compareElements compares two list elements that differ. If the additions
// equal those of an earlier element, it only refers to that element.
func (c *comparison) compareElements(path string, index int, before, after any) {
	name := strconv.Itoa(index)
	if object, ok := after.(map[string]any); ok && object["name"] != nil {
		name = fmt.Sprint(object["name"])
	}
	path += "[" + name + "]"
	inner := comparison{seen: map[string]string{}}
	inner.compareValues("", before, after)
	for _, violation := range inner.violations {
		c.violations = append(c.violations, path+violation)
	}
	content := fmt.Sprint(inner.lines)
	if first, found := c.seen[content]; found {
		c.lines = append(c.lines, line{added: true, heading: true, path: path, text: " # same as " + first})
		return
	}
	c.seen[content] = name
	for _, l := range inner.lines {
		l.path = path + l.path
		c.lines = append(c.lines, l)
	}
}

// add appends the lines under the path to which they were added.
func (c *comparison) add(path string, lines []string) {
	if len(lines) == 0 {
		return
	}
	c.lines = append(c.lines, line{heading: true, path: path})
	for _, text := range lines {
		c.lines = append(c.lines, line{added: true, text: "  " + text})
	}
}

func (c *comparison) violate(path, what string) {
	c.violations = append(c.violations, path+" "+what)
}

// entry formats a map key with its value: on one line if it fits, else as a
// block. Lines are relative to indent.
func entry(indent int, key string, value any) []string {
	if short, ok := flow(value); ok && indent+len(key)+1+len(short) <= maxWidth {
		return []string{key + " " + short}
	}
	lines := []string{key}
	switch v := value.(type) {
	case map[string]any:
		for _, text := range block(indent+2, v) {
			lines = append(lines, "  "+text)
		}
	case []any:
		for _, element := range v {
			lines = append(lines, item(indent, element)...)
		}
	default:
		lines[0] += " " + scalar(v)
	}
	return lines
}

// item formats a list element.
func item(indent int, value any) []string {
	if short, ok := flow(value); ok && indent+2+len(short) <= maxWidth {
		return []string{"- " + short}
	}
	object, ok := value.(map[string]any)
	if !ok {
		return []string{"- " + scalar(value)}
	}
	lines := block(indent+2, object)
	for i := range lines {
		lines[i] = "  " + lines[i]
	}
	lines[0] = "-" + lines[0][1:]
	return lines
}

func block(indent int, object map[string]any) (lines []string) {
	for key, value := range nameFirst(object) {
		lines = append(lines, entry(indent, scalar(key)+":", value)...)
	}
	return lines
}

// flow formats a scalar, or an object that holds only scalars, for one line.
func flow(value any) (string, bool) {
	object, isMap := value.(map[string]any)
	if !isMap {
		_, isList := value.([]any)
		return scalar(value), !isList
	}
	var parts []string
	for key, value := range nameFirst(object) {
		switch value.(type) {
		case map[string]any, []any:
			return "", false
		}
		parts = append(parts, scalar(key)+": "+scalar(value))
	}
	return "{" + strings.Join(parts, ", ") + "}", true
}

// scalar formats a value like quote, but cuts the middle of very long strings.
func scalar(value any) string {
	if s, ok := value.(string); ok && len(s) > maxString {
		value = strings.ToValidUTF8(s[:maxString/5]+"…"+s[len(s)-maxString/6:], "")
	}
	return quote(value)
}

// quote formats a value so that it is valid in YAML's block and flow styles.
func quote(value any) string {
	text, err := yaml.Marshal(value)
	plain := strings.TrimSpace(string(text))
	if s, ok := value.(string); ok && (err != nil || strings.Contains(plain, "\n") || plain == s && strings.ContainsAny(s, ",[]{}")) {
		return strconv.Quote(s)
	}
	return plain
}

// sorted iterates over a map in the order of its keys.
func sorted[V any](m map[string]V) iter.Seq2[string, V] {
	return ordered(m, slices.Sorted(maps.Keys(m)))
}

// nameFirst is like sorted, but starts with the key "name".
func nameFirst(m map[string]any) iter.Seq2[string, any] {
	keys := slices.Sorted(maps.Keys(m))
	if i := slices.Index(keys, "name"); i > 0 {
		keys = slices.Insert(slices.Delete(keys, i, i+1), 0, "name")
	}
	return ordered(m, keys)
}

func ordered[V any](m map[string]V, keys []string) iter.Seq2[string, V] {
	return func(yield func(string, V) bool) {
		for _, key := range keys {
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
