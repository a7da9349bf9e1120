// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Limits of the input.
const (
	maxManifestBytes = 4 << 20
	maxManifests     = 10_000
)

// manifests plans for files, and writes them if that is wanted.
func (k *migrateCommand) manifests(_ context.Context, o *Options) (*migration, error) {
	manifests, err := k.readManifests()
	if err != nil {
		return nil, err
	}
	var stock []*Object
	for _, m := range manifests {
		stock = append(stock, m.Objects...)
	}
	result := &migration{Plan: New(stock, o), what: "files"}
	for _, m := range manifests {
		text, diff := result.Rewrite(m)
		if diff == "" {
			continue
		}
		result.Changes++
		result.diff += diff
		if !k.write {
			continue
		}
		if err := replaceFile(m.Name, []byte(text)); err != nil {
			result.Errors = append(result.Errors, err.Error())
			continue
		}
		result.Written++
	}
	return result, nil
}

// readManifests reads the files of --filename, and the manifests in its directories, each
// once. Another file in a directory, such as a template, is noted.
func (k *migrateCommand) readManifests() ([]*Manifest, error) {
	var manifests []*Manifest
	seen := map[string]bool{}
	read := func(name string, inDirectory bool) error {
		if seen[filepath.Clean(name)] {
			return nil
		}
		if seen[filepath.Clean(name)] = true; len(seen) > maxManifests {
			return fmt.Errorf("got more than %d files", maxManifests)
		}
		m, err := k.readManifest(name)
		switch {
		case err == nil:
			manifests = append(manifests, m)
		case inDirectory:
			k.Note("not read: %v", err)
			return nil
		}
		return err
	}
	for _, name := range k.files {
		err := filepath.WalkDir(name, func(path string, entry fs.DirEntry, err error) error {
			switch {
			case name == "-":
				return read(path, false)
			case err != nil:
				return err
			case entry.IsDir() && path != name && strings.HasPrefix(entry.Name(), "."):
				return fs.SkipDir
			case path == name && !entry.IsDir():
				return read(path, false)
			case entry.Type().IsRegular() && slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(path)):
				return read(path, true)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return manifests, nil
}

// readManifest reads one file.
func (k *migrateCommand) readManifest(name string) (*Manifest, error) {
	in := k.In
	if name == "-" {
		name = "stdin"
	} else {
		name = filepath.Clean(name)
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		in = f
	}
	text, err := io.ReadAll(io.LimitReader(in, maxManifestBytes+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if len(text) > maxManifestBytes {
		return nil, fmt.Errorf("%s: got more than %d bytes", name, maxManifestBytes)
	}
	return ReadManifest(name, text)
}

// replaceFile replaces a file by a new one in one step, so that it is never half
// written. A symbolic link stays one.
func replaceFile(name string, text []byte) error {
	target, err := filepath.EvalSymlinks(name)
	if err != nil {
		return err
	}
	info, err := os.Stat(target)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(target), "."+filepath.Base(target)+"-*")
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	err = errors.Join(err, f.Chmod(info.Mode().Perm()), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), target)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}
