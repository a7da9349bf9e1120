// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// EachText calls do with the text of each file of --filename, in the order of EachFile. All files
// together may have limit bytes.
func (s *Selection) EachText(stdin io.Reader, limit int64, do func(name string, text []byte) error) error {
	left := limit
	return s.EachFile(stdin, func(name string, r io.Reader) error {
		text, err := io.ReadAll(io.LimitReader(r, left+1))
		if left -= int64(len(text)); err == nil && left < 0 {
			err = fmt.Errorf("the files have more than %d bytes", limit)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		return do(name, text)
	})
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
