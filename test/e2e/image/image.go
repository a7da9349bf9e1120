// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// user is the user and group of the image's process. The Dockerfile uses the
// same.
const user = "65532:65532"

// fromBinary returns an image with a static binary as its only file and
// entrypoint, as the final stage of the Dockerfile does for lanyard-webhook.
func fromBinary(path string) (v1.Image, error) {
	file := filepath.Base(path)
	layer, err := fileLayer(path, file)
	if err != nil {
		return nil, err
	}
	return fromLayers([]string{"/" + file}, layer)
}

// fromTrees returns an image with one layer for each directory.
func fromTrees(entrypoint []string, dirs ...string) (v1.Image, error) {
	layers := make([]v1.Layer, 0, len(dirs))
	for _, dir := range dirs {
		layer, err := treeLayer(dir)
		if err != nil {
			return nil, err
		}
		layers = append(layers, layer)
	}
	return fromLayers(entrypoint, layers...)
}

// fromLayers returns an image for the host's architecture.
func fromLayers(entrypoint []string, layers ...v1.Layer) (v1.Image, error) {
	img, err := mutate.AppendLayers(empty.Image, layers...)
	if err != nil {
		return nil, err
	}
	config, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", runtime.GOARCH
	config.Config = v1.Config{User: user, Entrypoint: entrypoint}
	return mutate.ConfigFile(img, config)
}

// writeArchive writes the image with the tag to path, in the format of docker
// save. It replaces an existing file atomically.
func writeArchive(path, tag string, img v1.Image) error {
	ref, err := name.NewTag(tag)
	if err != nil {
		return fmt.Errorf("got the name %q, want one like lanyard-webhook:e2e: %w", tag, err)
	}
	unfinished := path + ".new"
	if err := tarball.WriteToFile(unfinished, ref, img); err != nil {
		return err
	}
	return os.Rename(unfinished, path)
}
