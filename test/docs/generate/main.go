// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Command generate updates the tables of docs/reference that are generated from
// the code: generate DIRECTORY.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/lanyard-dev/lanyard/test/docs/reference"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("got %d arguments, want the directory of the pages", len(args))
	}
	for _, name := range reference.Pages() {
		file := filepath.Join(args[0], name)
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		updated, err := reference.Update(name, string(text))
		if err != nil {
			return fmt.Errorf("update %s: %w", file, err)
		}
		if err := os.WriteFile(file, []byte(updated), 0o644); err != nil {
			return err
		}
	}
	return nil
}
