// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/cli-runtime/pkg/resource"
	"sigs.k8s.io/yaml"
)

// StandardInput is the name of the standard input in errors and results.
const StandardInput = "standard input"

// maxDocumentBytes limits one document. A directory may have any size, because its documents are
// read one after the other.
const maxDocumentBytes = 16 << 20

// EachText calls do with the text of each file of --filename. All files together may have at most
// limit bytes.
func (s *Selection) EachText(stdin io.Reader, limit int64, do func(name string, text []byte) error) error {
	left := limit
	return s.EachFile(stdin, func(name string, r io.Reader) error {
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

// EachFile calls do with each file of --filename. A directory stands for its files with kubectl's
// extensions, except those in hidden directories.
func (s *Selection) EachFile(stdin io.Reader, do func(name string, r io.Reader) error) error {
	for _, name := range s.Files.Filenames {
		if name == "-" {
			if err := do(StandardInput, stdin); err != nil {
				return err
			}
			continue
		}
		paths, err := s.expand(name)
		if err != nil {
			return err
		}
		for _, path := range paths {
			text, err := os.Open(path)
			if err != nil {
				return err
			}
			if err := errors.Join(do(path, text), text.Close()); err != nil {
				return err
			}
		}
	}
	return nil
}

// expand returns the paths of the files that a name stands for.
func (s *Selection) expand(name string) (paths []string, err error) {
	visitors, err := resource.ExpandPathsToFileVisitors(nil, name, s.Files.Recursive, resource.FileExtensions, nil)
	if err != nil {
		return nil, err
	}
	for _, visitor := range visitors {
		if file, _ := visitor.(*resource.FileVisitor); !isHidden(name, file.Path) {
			paths = append(paths, file.Path)
		}
	}
	if len(paths) == 0 {
		hint := ""
		if !s.Files.Recursive {
			hint = "; --recursive also reads directories below it"
		}
		return nil, fmt.Errorf("%s: no file in this directory ends with %s%s", name, strings.Join(resource.FileExtensions, ", "), hint)
	}
	return paths, nil
}

// isHidden reports whether a file is in a hidden directory below dir, such as .git.
func isHidden(dir, file string) bool {
	below, err := filepath.Rel(dir, filepath.Dir(file))
	return err == nil && slices.ContainsFunc(strings.Split(below, string(filepath.Separator)), func(part string) bool {
		return strings.HasPrefix(part, ".") && part != "." && part != ".."
	})
}

// EachDocument calls do with each YAML document of a file, and with the document as JSON. It reads one
// document at a time. Errors contain the name of the file, and the number of the document.
func EachDocument(name string, r io.Reader, do func(text, json []byte) error) error {
	limited := &io.LimitedReader{R: r}
	documents := utilyaml.NewYAMLReader(bufio.NewReader(limited))
	for n := 1; ; n++ {
		limited.N = maxDocumentBytes
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if limited.N == 0 { // which documents takes for the end of the file
			err = fmt.Errorf("it has more than %d bytes: split it", maxDocumentBytes)
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

// EachManifest calls do with each object in a file, and with each item of a list. A document that is
// not an object of Kubernetes has no kind.
func EachManifest(name string, r io.Reader, do func(*unstructured.Unstructured) error) error {
	return EachDocument(name, r, func(_, document []byte) error {
		var fields any
		if err := utiljson.Unmarshal(document, &fields); err != nil || fields == nil {
			return err
		}
		return eachItem(fields, do)
	})
}

// eachItem calls do with an object, or with each item if it is a list.
func eachItem(value any, do func(*unstructured.Unstructured) error) error {
	fields, _ := value.(map[string]any)
	object := &unstructured.Unstructured{Object: fields}
	if strings.HasSuffix(object.GetKind(), "List") && object.IsList() {
		return object.EachListItem(func(item runtime.Object) error {
			return eachItem(item.(*unstructured.Unstructured).Object, do)
		})
	}
	return do(object)
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
