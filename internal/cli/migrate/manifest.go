// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// Limits of the input.
const (
	maxManifestBytes = 4 << 20
	maxManifests     = 10_000
)

// readManifests reads the files of --filename, each once. Another file in a directory, such
// as a template, is noted.
func (k *migrateCommand) readManifests() (stock []*Object, err error) {
	seen := map[string]bool{}
	err = k.EachFile(k.In, func(name string, in io.Reader) error {
		given := in == k.In || slices.Contains(k.Files.Filenames, name)
		if name = filepath.Clean(name); in == k.In {
			name = "stdin"
		}
		if seen[name] {
			return nil
		}
		if seen[name] = true; len(seen) > maxManifests {
			return fmt.Errorf("got more than %d files", maxManifests)
		}
		text, err := io.ReadAll(io.LimitReader(in, maxManifestBytes+1))
		if err == nil && len(text) > maxManifestBytes {
			err = fmt.Errorf("got more than %d bytes", maxManifestBytes)
		}
		var objects []*Object
		if err == nil {
			objects, err = ReadManifest(name, text)
		}
		if err != nil && !given {
			k.Note("not read: %s: %v", name, err)
			return nil
		}
		stock = append(stock, objects...)
		if err != nil {
			err = fmt.Errorf("%s: %w", name, err)
		}
		return err
	})
	return stock, err
}

// ReadManifest returns the objects that matter in a file with YAML or JSON. Documents that are not
// objects of Kubernetes are left out.
func ReadManifest(name string, text []byte) (objects []*Object, err error) {
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err == nil {
			document, err = yaml.YAMLToJSONStrict(document)
		}
		var fields any
		if err == nil {
			err = utiljson.Unmarshal(document, &fields)
		}
		if err == nil {
			err = add(&objects, name, fields)
		}
		if err != nil {
			return nil, err
		}
	}
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
