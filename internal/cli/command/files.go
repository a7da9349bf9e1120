// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/cli-runtime/pkg/resource"
	"sigs.k8s.io/yaml"
)

// StandardInput is the name of the standard input in errors and results.
const StandardInput = "standard input"

// MaxManifestBytes limits the manifests of a command, which are in memory with their objects.
const MaxManifestBytes = 16 << 20

// EachText calls do with the text of each file of --filename. A directory stands for its files with
// kubectl's extensions, except those in hidden directories. All files together may have limit bytes.
func (s *Selection) EachText(stdin io.Reader, limit int64, do func(name string, text []byte) error) error {
	left := limit
	return s.eachFile(stdin, func(name string, r io.Reader) error {
		text, err := io.ReadAll(io.LimitReader(r, left+1))
		if left -= int64(len(text)); err == nil && left < 0 {
			err = fmt.Errorf("the files have more than %d bytes; pass fewer files", limit)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		return do(name, text)
	})
}

// eachFile calls read for each file of --filename.
func (s *Selection) eachFile(stdin io.Reader, read func(name string, r io.Reader) error) error {
	for _, name := range s.Files.Filenames {
		if name == "-" {
			if err := read(StandardInput, stdin); err != nil {
				return err
			}
			continue
		}
		visitors, err := resource.ExpandPathsToFileVisitors(nil, name, s.Files.Recursive, resource.FileExtensions, nil)
		if err != nil {
			return err
		}
		for _, visitor := range visitors {
			file, _ := visitor.(*resource.FileVisitor)
			if isHidden(name, file.Path) {
				continue
			}
			text, err := os.Open(file.Path)
			if err != nil {
				return err
			}
			if err := errors.Join(read(file.Path, text), text.Close()); err != nil {
				return err
			}
		}
	}
	return nil
}

// isHidden reports whether a file is in a hidden directory below dir, such as .git.
func isHidden(dir, file string) bool {
	below, err := filepath.Rel(dir, filepath.Dir(file))
	return err == nil && slices.ContainsFunc(strings.Split(below, string(filepath.Separator)), func(part string) bool {
		return strings.HasPrefix(part, ".") && part != "." && part != ".."
	})
}

// EachDocument calls do with each YAML document of a text, and with the document as JSON. Errors
// contain the name of the text, and the number of the document.
func EachDocument(name string, text []byte, do func(text, json []byte) error) error {
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	for n := 1; ; n++ {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		var object []byte
		if err == nil {
			object, err = yaml.YAMLToJSONStrict(document)
		}
		if err == nil {
			err = do(document, object)
		}
		if err != nil {
			return fmt.Errorf("%s: document %d: %w", name, n, err)
		}
	}
}

// File is a file to write.
type File struct{ Path, Text string }

// ReplaceFiles writes files, and creates their directories. A reader sees either the previous content
// of a file or the new one, as a whole. If a file cannot be written, none is replaced. The files are
// replaced in their order.
func ReplaceFiles(files []File, mode, directoryMode fs.FileMode) error {
	const temporary = ".new"
	for _, file := range files {
		err := errors.Join(os.MkdirAll(filepath.Dir(file.Path), directoryMode), os.WriteFile(file.Path+temporary, []byte(file.Text), mode))
		if err != nil {
			return err
		}
	}
	for _, file := range files {
		if err := os.Rename(file.Path+temporary, file.Path); err != nil {
			return err
		}
	}
	return nil
}
