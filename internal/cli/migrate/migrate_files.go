// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
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

// readManifests reads the files of --filename, each once. Another file in a directory, such
// as a template, is noted.
func (k *migrateCommand) readManifests() (manifests []*Manifest, err error) {
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
		var m *Manifest
		text, err := io.ReadAll(io.LimitReader(in, maxManifestBytes+1))
		switch {
		case err != nil:
			err = fmt.Errorf("%s: %w", name, err)
		case len(text) > maxManifestBytes:
			err = fmt.Errorf("%s: got more than %d bytes", name, maxManifestBytes)
		default:
			m, err = ReadManifest(name, text)
		}
		if err != nil && !given {
			k.Note("not read: %v", err)
			return nil
		}
		manifests = append(manifests, m)
		return err
	})
	return manifests, err
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
