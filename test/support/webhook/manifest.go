// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ReadManifest reads the objects of a YAML file. Unknown fields are errors.
func ReadManifest(file string) ([]client.Object, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read manifest: %w", err)
	}
	return DecodeManifest(file, text)
}

// DecodeManifest is like ReadManifest for text. The name is used in errors.
func DecodeManifest(name string, text []byte) ([]client.Object, error) {
	decoder := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	documents := yaml.NewDocumentDecoder(io.NopCloser(bytes.NewReader(text)))
	defer documents.Close()
	var objects []client.Object
	buffer := make([]byte, len(text)+1)
	for {
		n, err := documents.Read(buffer)
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, fmt.Errorf("manifest %s: %w", name, err)
		}
		decoded, _, err := decoder.Decode(buffer[:n], nil, nil)
		if err != nil {
			return nil, fmt.Errorf("manifest %s: %w", name, err)
		}
		object, ok := decoded.(client.Object)
		if !ok {
			return nil, fmt.Errorf("manifest %s: got a %T, want an object with metadata", name, decoded)
		}
		objects = append(objects, object)
	}
}

// readOne reads a manifest that holds one object of type T.
func readOne[T client.Object](file string) (object T, err error) {
	objects, err := ReadManifest(file)
	if err != nil {
		return object, err
	}
	if len(objects) == 1 {
		if object, ok := objects[0].(T); ok {
			return object, nil
		}
	}
	return object, fmt.Errorf("manifest %s: got %d objects, want one object of type %T", file, len(objects), object)
}

// Manifests of deploy/ for Create. They take effect a moment later.
const (
	Guard  = "70-guard.yaml"
	Fences = "71-fences.yaml"
)

// Create creates the objects of manifests with the user of config.
func Create(ctx context.Context, config *rest.Config, directory string, files ...string) error {
	c, err := client.New(config, client.Options{Scheme: scheme.Scheme})
	if err != nil {
		return err
	}
	for _, file := range files {
		objects, err := ReadManifest(filepath.Join(directory, file))
		if err != nil {
			return err
		}
		for _, object := range objects {
			if err := c.Create(ctx, object); err != nil {
				return fmt.Errorf("manifest %s: %w", file, err)
			}
		}
	}
	return nil
}
