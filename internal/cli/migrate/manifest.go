// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/lanyard-dev/lanyard/internal/cli/yamledit"
	"github.com/lanyard-dev/lanyard/internal/peer"
)

// Manifest is a file with objects.
type Manifest struct {
	// Name is the name of the file.
	Name string
	// Objects are those that matter.
	Objects []*Object

	file    *yamledit.File
	objects map[*Object]*yamledit.Object
}

// ReadManifest reads a file in YAML or JSON.
func ReadManifest(peers []*peer.Peer, name string, text []byte) (*Manifest, error) {
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
// change. A change that does not consist of whole lines becomes an item to do by hand.
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
		edited := m.file.Edit(m.Name, edits)
		for _, i := range slices.Sorted(maps.Keys(edited.Skipped)) {
			p.skipped(changes[i], edited.Skipped[i])
		}
		if edited.Diff != "" {
			result = append(result, Rewritten{Name: m.Name, Text: edited.Text, Diff: edited.Diff})
		}
	}
	return result
}

// skipped turns the translated items of an object into something to do by hand.
func (p *Plan) skipped(c *Change, err error) {
	namespace := c.Object.Namespace
	for i := range p.Items {
		if item := &p.Items[i]; item.Object == c.Object.Reference() && item.Source == c.Object.Source {
			namespace = item.Namespace
			if item.Result == peer.Translated {
				item.Result, item.Why = peer.Manual, strings.TrimSpace("Its manifest must be edited by hand. "+item.Why)
			}
		}
	}
	var todo strings.Builder
	fmt.Fprintf(&todo, "Edit %s by hand: %v.", c.Object.Source, err)
	for _, key := range slices.Sorted(maps.Keys(c.Set)) {
		fmt.Fprintf(&todo, " Set %s: %q.", key, c.Set[key])
	}
	if len(c.Remove) > 0 {
		fmt.Fprintf(&todo, " Remove %s.", strings.Join(c.Remove, ", "))
	}
	p.Items = append(p.Items, Item{
		Object: c.Object.Reference(), Namespace: namespace, Source: c.Object.Source,
		Found: "its manifest", Result: peer.Manual, Why: todo.String(),
	})
}
