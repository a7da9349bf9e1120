// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Command generate writes a template of the chart from the providers' definitions, the
// descriptions of the chart's schema from the comments of its values, and the files of
// deploy/ that are generated from the chart: generate CHART DEPLOY.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/lanyard-dev/lanyard/test/charts/manifests"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 2 {
		return fmt.Errorf("got %d arguments, want the directories of the chart and of the manifests", len(args))
	}
	helpers, err := manifests.Helpers()
	if err != nil {
		return err
	}
	// The other files are rendered with it.
	if err := os.WriteFile(filepath.Join(args[0], manifests.HelpersFile), []byte(helpers), 0o644); err != nil {
		return err
	}
	schema, err := manifests.Schema(args[0])
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(args[0], manifests.SchemaFile), []byte(schema), 0o644); err != nil {
		return err
	}
	files, err := manifests.Generate(args[0])
	if err != nil {
		return err
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(args[1], name), []byte(text), 0o644); err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
	}
	return nil
}
