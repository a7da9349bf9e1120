// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package image wraps a static binary into a container image, without a
// container engine and without a registry.
package image

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// User is the user and group that the image's process runs as: the one of the
// Dockerfile.
const User = "65532:65532"

// New returns an image with the one file /NAME, NAME being the base name of the
// static binary at path, which is its entrypoint. It is what the Dockerfile's
// final stage makes of lanyard-webhook, for the platform that this runs on.
//
// The image depends on the binary's content and name alone. It is read into
// memory. Errors are of reading the binary.
func New(path string) (v1.Image, error) {
	file := "/" + filepath.Base(path)
	content, err := layer(path, file)
	if err != nil {
		return nil, fmt.Errorf("making an image of %s: %w", path, err)
	}
	img, err := mutate.AppendLayers(empty.Image, content)
	if err != nil {
		return nil, fmt.Errorf("making an image of %s: %w", path, err)
	}
	config, err := img.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("making an image of %s: %w", path, err)
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", runtime.GOARCH
	config.Config = v1.Config{User: User, Entrypoint: []string{file}}
	img, err = mutate.ConfigFile(img, config)
	if err != nil {
		return nil, fmt.Errorf("making an image of %s: %w", path, err)
	}
	return img, nil
}

// layer returns a layer that holds the file at path, executable, as file.
func layer(path, file string) (v1.Layer, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var archive bytes.Buffer
	writer := tar.NewWriter(&archive)
	header := &tar.Header{Name: file[1:], Mode: 0o755, Size: int64(len(content)), Typeflag: tar.TypeReg}
	if err := writer.WriteHeader(header); err != nil {
		return nil, err
	}
	if _, err := writer.Write(content); err != nil {
		return nil, err
	}
	if err := writer.Close(); err != nil {
		return nil, err
	}
	// Compressed as little as possible: it is unpacked on the same machine.
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(archive.Bytes())), nil
	}, tarball.WithCompressionLevel(1))
}

// WriteArchive writes the image under the tag, as in lanyard-webhook:e2e, to
// path, in the format of docker save, which containerd imports.
func WriteArchive(path, tag string, img v1.Image) error {
	ref, err := name.NewTag(tag)
	if err != nil {
		return fmt.Errorf("writing the archive of an image: %w", err)
	}
	if err := tarball.WriteToFile(path, ref, img); err != nil {
		return fmt.Errorf("writing the archive of the image %s: %w", tag, err)
	}
	return nil
}
