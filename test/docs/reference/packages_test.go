// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package reference

import (
	"fmt"
	"go/doc"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
)

// packages returns the table of packages in ARCHITECTURE.md: the first sentence of each
// package comment.
func packages() (string, error) {
	const root = "../../.."
	t := newTable("Package", "")
	for _, top := range []string{"cmd", "internal", "pkg", "policies"} {
		err := filepath.WalkDir(filepath.Join(root, top), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || !entry.IsDir() {
				return err
			}
			name, err := filepath.Rel(root, path)
			if err != nil {
				return err
			}
			sentence, hasCode, err := synopsis(path)
			if err == nil && hasCode && sentence == "" {
				err = fmt.Errorf("package %s has no comment", name)
			}
			if sentence != "" {
				t.row(code(filepath.ToSlash(name)), sentence)
			}
			return err
		})
		if err != nil {
			return "", err
		}
	}
	return t.String(), nil
}

// synopsis returns the first sentence of the comment of the package in a directory, without
// its subject, and whether the directory contains code other than tests.
func synopsis(directory string) (sentence string, hasCode bool, err error) {
	files, err := filepath.Glob(filepath.Join(directory, "*.go"))
	if err != nil {
		return "", false, err
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		hasCode = true
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.PackageClauseOnly|parser.ParseComments)
		if err != nil {
			return "", false, err
		}
		if text := new(doc.Package).Synopsis(parsed.Doc.Text()); text != "" {
			words := strings.SplitN(text, " ", 3) // Package NAME ...
			sentence = strings.ReplaceAll(strings.TrimRight(words[len(words)-1], ".:"), "|", "\\|")
		}
	}
	return sentence, hasCode, nil
}
