// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/lanyard-dev/lanyard/internal/yamledit"
)

// Manifest is a file with objects.
type Manifest struct {
	// Name is that of the file.
	Name string
	// Objects are those that matter.
	Objects []*Object

	file    *yamledit.File
	objects map[*Object]*yamledit.Object
}

// ReadManifest reads a file in YAML or JSON.
func ReadManifest(peers []*Peer, name string, text []byte) (*Manifest, error) {
	file, err := yamledit.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	m := &Manifest{Name: name, file: file, objects: map[*Object]*yamledit.Object{}}
	for _, found := range file.Objects {
		if o := Read(peers, &unstructured.Unstructured{Object: found.Fields}); o != nil {
			o.Source = name
			m.Objects = append(m.Objects, o)
			m.objects[o] = found
		}
	}
	return m, nil
}

// Rewritten is a changed file.
type Rewritten struct {
	Name string
	Text []byte
	// Diff is a unified diff.
	Diff string
}

// Rewrite makes the changes of the plan in the manifests. It returns the files that
// change. What cannot be changed without changing the format of a file becomes an item
// to do by hand.
func (p *Plan) Rewrite(manifests []*Manifest) []Rewritten {
	var result []Rewritten
	for _, m := range manifests {
		var edits []yamledit.Edit
		var changes []*Change
		for i := range p.Changes {
			c := &p.Changes[i]
			if found := m.objects[c.Object]; found != nil {
				edits = append(edits, yamledit.Edit{Object: found, Path: c.Path, Set: c.Set, Remove: c.Remove})
				changes = append(changes, c)
			}
		}
		if len(edits) == 0 {
			continue
		}
		edited := m.file.Edit(m.Name, edits)
		for i, c := range changes {
			if err := edited.Skipped[i]; err != nil {
				p.skipped(c, err)
			}
		}
		if edited.Diff != "" {
			result = append(result, Rewritten{Name: m.Name, Text: edited.Text, Diff: edited.Diff})
		}
	}
	return result
}

// skipped turns what was translated on an object into something to do by hand.
func (p *Plan) skipped(c *Change, err error) {
	for i := range p.Items {
		if item := &p.Items[i]; item.Result == Translated && item.Object == c.Object.Reference() && item.Source == c.Object.Source {
			item.Result, item.Why = Manual, strings.TrimSpace(fmt.Sprintf("Set it yourself: %v. %s", err, item.Why))
		}
	}
	item := Item{Object: c.Object.Reference(), Namespace: c.Object.Namespace, Source: c.Object.Source, Found: "its manifest", Result: Manual}
	item.Why = fmt.Sprintf("It was not changed: %v.", err)
	if keys := slices.Sorted(maps.Keys(c.Set)); len(keys) > 0 {
		item.Why += " Set " + strings.Join(keys, ", ") + "."
	}
	if len(c.Remove) > 0 {
		item.Why += " Remove " + strings.Join(c.Remove, ", ") + "."
	}
	p.Items = append(p.Items, item)
}
