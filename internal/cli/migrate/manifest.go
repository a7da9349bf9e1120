// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"io"
	"path/filepath"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/lanyard-dev/lanyard/internal/cli/command"
)

// readManifests reads the files of --filename, each once. It notes other files of a directory,
// such as templates.
func (k *migrateCommand) readManifests() (stock []*Object, err error) {
	seen := map[string]bool{}
	err = k.EachFile(k.In, func(name string, r io.Reader) error {
		if seen[filepath.Clean(name)] {
			return nil
		}
		seen[filepath.Clean(name)] = true
		objects, err := ReadManifest(name, r)
		if err != nil && name != command.StandardInput && !slices.Contains(k.Files.Filenames, name) {
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
func ReadManifest(name string, r io.Reader) (objects []*Object, err error) {
	err = command.EachManifest(name, r, func(u *unstructured.Unstructured) error {
		if u.GetKind() == "" || u.GetAPIVersion() == "" {
			return nil
		}
		o, err := Read(u)
		if o != nil {
			o.Source = name
			objects = append(objects, o)
		}
		return err
	})
	return objects, err
}
