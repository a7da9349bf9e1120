// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// The permissions of files in an image. As in git, only the executable bit of a
// file counts; the umask of the build and setuid bits do not.
const (
	modeFile       = 0o644
	modeExecutable = 0o755
)

// fileLayer returns a layer with the file at path as the executable name.
func fileLayer(path, name string) (v1.Layer, error) {
	var content bytes.Buffer
	archive := tar.NewWriter(&content)
	if err := addFile(archive, path, name, modeExecutable); err != nil {
		return nil, err
	}
	return finish(archive, &content)
}

// treeLayer returns a layer with the files, directories and symbolic links in
// the directory. Other kinds of files are an error.
func treeLayer(dir string) (v1.Layer, error) {
	var content bytes.Buffer
	archive := tar.NewWriter(&content)
	// WalkDir walks in the order of names, so the order is always the same.
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		return addEntry(archive, path, name, entry)
	})
	if err != nil {
		return nil, err
	}
	return finish(archive, &content)
}

// addEntry adds one directory entry without its children.
func addEntry(archive *tar.Writer, path, name string, entry fs.DirEntry) error {
	switch entry.Type() {
	case fs.ModeDir:
		return archive.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: modeExecutable})
	case fs.ModeSymlink:
		target, err := os.Readlink(path)
		if err != nil {
			return err
		}
		return archive.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: target, Mode: 0o777})
	case 0:
		info, err := entry.Info()
		if err != nil {
			return err
		}
		if info.Mode()&0o111 != 0 {
			return addFile(archive, path, name, modeExecutable)
		}
		return addFile(archive, path, name, modeFile)
	default:
		return fmt.Errorf("unsupported type %[2]v of %[1]s, want files, directories and symbolic links", path, entry.Type())
	}
}

// addFile adds a file with its content.
func addFile(archive *tar.Writer, path, name string, mode int64) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	header := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(content))}
	if err := archive.WriteHeader(header); err != nil {
		return err
	}
	_, err = archive.Write(content)
	return err
}

// finish returns the layer. It is not compressed, because the archive never
// leaves the host.
func finish(archive *tar.Writer, content *bytes.Buffer) (v1.Layer, error) {
	if err := archive.Close(); err != nil {
		return nil, err
	}
	return static.NewLayer(content.Bytes(), types.DockerUncompressedLayer), nil
}
