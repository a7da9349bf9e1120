// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package decisions

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// Added returns the fields that the webhooks have added to a pod. It fails if the notation cannot describe
// it, that is, if AddTo does not return the same pod.
func Added(before, after []byte) (*Additions, error) {
	was, is := decode(before), decode(after)
	a := &Additions{}
	a.Annotations = addedValues(get(was, "metadata"), get(is, "metadata"), "annotations")
	a.Injected = a.Annotations[injectedAnnotation]
	delete(a.Annotations, injectedAnnotation)
	a.Labels = addedValues(get(was, "metadata"), get(is, "metadata"), "labels")
	switch {
	case a.Injected != "" && reflect.DeepEqual(a.Labels, usualLabels), a.Injected == "" && len(a.Labels) == 0:
		a.Labels = nil
	}
	a.Volumes = shortVolumes(addedItems(was, is, "volumes"))
	a.InitContainers = addedContainers(was, is)
	a.addContainers(was, is)
	result, err := a.AddTo(before)
	if err == nil && !reflect.DeepEqual(decode(result), decode(after)) {
		err = fmt.Errorf("the notation cannot describe what was added to\n%s\nin\n%s", before, after)
	}
	return a, err
}

func addedValues(was, is object, field string) map[string]string {
	added := map[string]string{}
	for key, value := range get(is, field) {
		if text, ok := value.(string); ok && get(was, field)[key] != value {
			added[key] = text
		}
	}
	return added
}

// addedItems returns the new items of a list of the spec, and the names of the own ones if
// these do not come first.
func addedItems(was, is object, field string) []any {
	own, all := list(get(was, "spec"), field), list(get(is, "spec"), field)
	if len(all) >= len(own) && slices.EqualFunc(own, all[:len(own)], func(a, b any) bool { return reflect.DeepEqual(a, b) }) {
		return all[len(own):]
	}
	all = slices.Clone(all)
	for i := range all {
		if slices.ContainsFunc(own, func(item any) bool { return reflect.DeepEqual(item, all[i]) }) {
			all[i] = nameOf(all[i])
		}
	}
	return all
}

// addedContainers returns the init containers that are new, and the names of the own ones.
func addedContainers(was, is object) []any {
	own, all := list(get(was, "spec"), kinds[0]), list(get(is, "spec"), kinds[0])
	if len(own) == len(all) {
		return nil
	}
	all = slices.Clone(all)
	for i := range all {
		if slices.ContainsFunc(own, func(item any) bool { return nameOf(item) == nameOf(all[i]) }) {
			all[i] = nameOf(all[i])
		}
	}
	return all
}

// shortVolumes replaces volumes with their short forms, if they have one.
func shortVolumes(volumes []any) []any {
	var all []any
	for _, volume := range volumes {
		lines := []any{volume}
		if o, ok := volume.(object); ok {
			if short := shortVolume(o); len(short) > 0 && reflect.DeepEqual(expandVolumes(short), lines) {
				lines = short
			}
		}
		all = append(all, lines...)
	}
	return all
}

func shortVolume(volume object) (lines []any) {
	for _, source := range list(get(volume, "projected"), "sources") {
		line := ""
		if token, ok := source.(object)["serviceAccountToken"].(object); ok {
			line = fmt.Sprintf("%s/%v=%v,%.0f", nameOf(volume), token["path"], token["audience"], token["expirationSeconds"])
		} else if items := list(get(source.(object), "downwardAPI"), "items"); len(items) == 1 {
			item := items[0].(object)
			line = fmt.Sprintf("%s/%v=%v", nameOf(volume), item["path"], get(item, "fieldRef")["fieldPath"])
		}
		lines = append(lines, line)
	}
	return lines
}

// addContainers groups the containers with the same additions.
func (a *Additions) addContainers(was, is object) {
	type group struct {
		names []string
		lines []any
	}
	var groups []*group
	containers := 0
	for _, kind := range kinds {
		for _, before := range list(get(was, "spec"), kind) {
			containers++
			all := list(get(is, "spec"), kind)
			i := slices.IndexFunc(all, func(c any) bool { return nameOf(c) == nameOf(before) })
			if i < 0 || reflect.DeepEqual(before, all[i]) {
				continue
			}
			lines := shortContainer(before.(object), all[i].(object))
			at := slices.IndexFunc(groups, func(g *group) bool { return reflect.DeepEqual(g.lines, lines) })
			if at < 0 {
				at = len(groups)
				groups = append(groups, &group{lines: lines})
			}
			groups[at].names = append(groups[at].names, nameOf(before))
		}
	}
	for _, g := range groups {
		names := strings.Join(g.names, ", ")
		if len(g.names) == containers {
			names = every
		}
		if a.Containers == nil {
			a.Containers = map[string][]any{}
		}
		a.Containers[names] = g.lines
	}
}

// shortContainer returns the additions to a container, variables first.
func shortContainer(before, after object) []any {
	lines := []any{}
	for i, v := range list(after, "env") {
		if own := list(before, "env"); i >= len(own) || !reflect.DeepEqual(own[i], v) {
			lines = append(lines, short(v, func(o object) string {
				if value, ok := o["value"].(string); ok {
					return nameOf(o) + "=" + value
				}
				if field, ok := get(get(o, "valueFrom"), "fieldRef")["fieldPath"].(string); ok {
					return nameOf(o) + from + field
				}
				return nameOf(o)
			}))
		}
	}
	mounts := list(after, "volumeMounts")
	mounts = mounts[min(len(list(before, "volumeMounts")), len(mounts)):]
	if len(mounts) > 0 && reflect.DeepEqual(mounts[0], any(usualMount)) {
		mounts = mounts[1:]
	}
	for _, m := range mounts {
		lines = append(lines, short(m, func(o object) string { return fmt.Sprintf("%v=%s", o["mountPath"], nameOf(o)) }))
	}
	return lines
}

// short returns the short form of a variable or mount, or the object itself if it has none.
func short(item any, form func(object) string) any {
	text := form(item.(object))
	mounts, env := expandContainer([]any{text})
	if both := append(mounts, env...); reflect.DeepEqual(both, []any{item}) {
		return text
	}
	return item
}

// Comment returns the expected decision as the last document of a file.
func (w *Want) Comment() string {
	var p printer
	if w.Reason != "" {
		p.field("reason", w.Reason)
	}
	if w.Code != 0 {
		p.field("code", w.Code)
		p.field("message", w.Message)
	}
	p.items("findings", w.Findings)
	p.items("warnings", w.Warnings)
	p.values("serviceAccount", w.ServiceAccount)
	p.additions(&w.Additions)
	for _, stored := range []struct {
		name string
		*Stored
	}{{"peer-first", w.PeerFirst}, {"lanyard-first", w.LanyardFirst}} {
		if stored.Stored != nil {
			p.line(stored.name + ":")
			p.indent = "  "
			p.items("reasons", stored.Reasons)
			p.items("findings", stored.Findings)
			p.additions(&stored.Additions)
			p.indent = ""
		}
	}
	return p.text.String()
}

// printer writes YAML as comments. It keeps the order of the fields, and writes one line for
// each variable.
type printer struct {
	text   strings.Builder
	indent string
}

func (p *printer) line(text string) {
	for line := range strings.SplitSeq(text, "\n") {
		p.text.WriteString(strings.TrimRight("# "+p.indent+line, " ") + "\n")
	}
}

// value returns the value as YAML, for a field or an item at the indentation.
func value(v any) string {
	if text, ok := v.(string); ok {
		out, err := yaml.Marshal(text)
		if err == nil {
			return strings.ReplaceAll(strings.TrimSuffix(string(out), "\n"), "\n", "\n  ")
		}
	}
	if o, ok := v.(object); ok {
		return string(encode(o)) // JSON is YAML
	}
	return fmt.Sprint(v)
}

func (p *printer) field(name string, v any) { p.line(name + ": " + value(v)) }

func (p *printer) items(name string, items []string) {
	if len(items) > 0 {
		p.line(name + ":")
	}
	for _, item := range items {
		p.line("- " + value(item))
	}
}

func (p *printer) values(name string, values map[string]string) {
	if len(values) > 0 {
		p.line(name + ":")
	}
	for _, key := range slices.Sorted(maps.Keys(values)) {
		p.line("  " + key + ": " + value(values[key]))
	}
}

func (p *printer) lines(indent string, lines []any) {
	for _, line := range lines {
		p.line(indent + "- " + strings.ReplaceAll(value(line), "\n", "\n"+indent))
	}
}

func (p *printer) additions(a *Additions) {
	if a.Injected != "" {
		p.field("injected", a.Injected)
	}
	p.values("annotations", a.Annotations)
	switch {
	case len(a.Labels) > 0:
		p.values("labels", a.Labels)
	case a.Labels != nil:
		p.line("labels: {}")
	}
	for _, field := range []struct {
		name  string
		items []any
	}{{"volumes", a.Volumes}, {"initContainers", a.InitContainers}} {
		if len(field.items) > 0 {
			p.line(field.name + ":")
			p.lines("", field.items)
		}
	}
	if len(a.Containers) > 0 {
		p.line("containers:")
	}
	for _, names := range slices.Sorted(maps.Keys(a.Containers)) {
		if len(a.Containers[names]) == 0 {
			p.line("  " + names + ": []")
			continue
		}
		p.line("  " + names + ":")
		p.lines("  ", a.Containers[names])
	}
}
