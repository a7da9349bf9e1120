// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/lanyard-dev/lanyard/internal/cli/command"
)

// readManifests reads the files of --filename, each once. Another file in a directory, such
// as a template, is noted.
func (k *migrateCommand) readManifests() (stock []*Object, err error) {
	seen := map[string]bool{}
	err = k.EachText(k.In, command.MaxManifestBytes, func(name string, text []byte) error {
		given := name == command.StandardInput || slices.Contains(k.Files.Filenames, name)
		if name = filepath.Clean(name); seen[name] {
			return nil
		}
		seen[name] = true
		objects, err := ReadManifest(name, text)
		if err != nil && !given {
			k.Note("not read: %v", err)
			return nil
		}
		stock = append(stock, objects...)
		return err
	})
	return stock, err
}

// ReadManifest returns the objects that matter in a file with YAML or JSON. Documents that are not
// objects of Kubernetes are left out.
func ReadManifest(name string, text []byte) (objects []*Object, err error) {
	err = command.EachDocument(name, text, func(_, document []byte) error {
		var fields any
		if err := utiljson.Unmarshal(document, &fields); err != nil {
			return err
		}
		return add(&objects, name, fields)
	})
	return objects, err
}

// add adds an object, or the objects of a list.
func add(objects *[]*Object, name string, value any) error {
	fields, _ := value.(map[string]any)
	u := &unstructured.Unstructured{Object: fields}
	if u.GetKind() == "" || u.GetAPIVersion() == "" {
		return nil
	}
	if strings.HasSuffix(u.GetKind(), "List") && u.IsList() {
		return u.EachListItem(func(item runtime.Object) error {
			return add(objects, name, item.(*unstructured.Unstructured).Object)
		})
	}
	o, err := Read(u)
	if o != nil {
		o.Source = name
		*objects = append(*objects, o)
	}
	return err
}
