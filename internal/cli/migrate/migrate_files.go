// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lanyard-dev/lanyard/internal/peer"
)

// Limits of the input.
const (
	maxManifestBytes = 4 << 20
	maxManifests     = 10_000
)

// standardInput is the name of the standard input in a diff.
const standardInput = "stdin"

// manifests plans for files, and writes them if that is wanted.
func (k *migrateCommand) manifests(o *Options) (*migration, error) {
	manifests, err := k.readManifests(o.From)
	if err != nil {
		return nil, err
	}
	var stock []*Object
	for _, m := range manifests {
		stock = append(stock, m.Objects...)
	}
	result := &migration{Plan: New(stock, o), what: "files"}
	rewritten := result.Rewrite(manifests)
	result.Changes = len(rewritten)
	for i := range rewritten {
		r := &rewritten[i]
		result.diff += r.Diff
		if !k.write {
			continue
		}
		if err := replaceFile(r.Name, r.Text); err != nil {
			result.Errors = append(result.Errors, err.Error())
			continue
		}
		result.Written++
	}
	return result, nil
}

// input is a file to read.
type input struct {
	name string
	// found reports whether it was found in a directory. It may then be something else
	// than a manifest, such as a template.
	found bool
}

// readManifests reads the files of --filename, and those in its directories.
func (k *migrateCommand) readManifests(peers []*peer.Peer) ([]*Manifest, error) {
	inputs, err := k.inputs()
	if err != nil {
		return nil, err
	}
	var manifests []*Manifest
	for _, in := range inputs {
		m, err := k.readManifest(peers, in.name)
		switch {
		case err == nil:
			manifests = append(manifests, m)
		case in.found:
			k.Note("not read: %v", err)
		default:
			return nil, err
		}
	}
	return manifests, nil
}

// inputs returns the files to read, each once: those that are named, and those in
// directories that may be manifests.
func (k *migrateCommand) inputs() ([]input, error) {
	var inputs []input
	seen := map[string]bool{}
	add := func(in input) error {
		if !seen[filepath.Clean(in.name)] {
			inputs = append(inputs, in)
		}
		seen[filepath.Clean(in.name)] = true
		if len(inputs) > maxManifests {
			return fmt.Errorf("got more than %d files", maxManifests)
		}
		return nil
	}
	for _, name := range k.files {
		if name == "-" {
			_ = add(input{name: name}) // the limit is for directories
			continue
		}
		err := filepath.WalkDir(name, func(path string, entry fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case entry.IsDir() && path != name && strings.HasPrefix(entry.Name(), "."):
				return fs.SkipDir
			case path == name && !entry.IsDir():
				return add(input{name: path})
			case entry.Type().IsRegular() && slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(path)):
				return add(input{name: path, found: true})
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return inputs, nil
}

// readManifest reads one file.
func (k *migrateCommand) readManifest(peers []*peer.Peer, name string) (*Manifest, error) {
	in := k.In
	if name == "-" {
		name = standardInput
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
	return ReadManifest(peers, name, text)
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
