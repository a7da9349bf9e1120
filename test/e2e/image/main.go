// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Command image writes a container image without a container engine or
// registry:
//
//	image --tag NAME:TAG --output ARCHIVE BINARY
//	image --tag NAME:TAG --output ARCHIVE --entrypoint ARG... DIR...
//
// The first form packs a static binary, as the final stage of the Dockerfile
// does. The second form creates one layer for each DIR, in the given order;
// repeat --entrypoint for each word of the command.
//
// The archive has the format of docker save, which docker, podman, kind and
// containerd can read. It is reproducible: its bytes depend only on the names
// and contents of the files and on their executable bits. The image is for the
// host's architecture, and its process runs as user and group 65532.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// options holds the command line.
type options struct {
	Tag, Output string
	Entrypoint  []string
	// Paths is one binary, or the directories if there is an entrypoint.
	Paths []string
}

func main() {
	opts, err := parseOptions(os.Args[1:], os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err == nil {
		err = run(opts)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "image: %v\n", err)
		os.Exit(1)
	}
}

// parseOptions parses the arguments after the program's name. It writes the
// usage to out.
func parseOptions(args []string, out io.Writer) (options, error) {
	var opts options
	flags := flag.NewFlagSet("image", flag.ContinueOnError)
	flags.SetOutput(out)
	flags.Usage = func() {
		_, _ = fmt.Fprintln(out, "usage: image --tag NAME:TAG --output ARCHIVE [--entrypoint ARG]... BINARY | DIR...")
		flags.PrintDefaults()
	}
	flags.StringVar(&opts.Tag, "tag", "", "image `name`, such as lanyard-webhook:e2e")
	flags.StringVar(&opts.Output, "output", "", "output `file`")
	flags.Func("entrypoint", "`word` of the command to run; can be repeated", func(word string) error {
		opts.Entrypoint = append(opts.Entrypoint, word)
		return nil
	})
	if err := flags.Parse(args); err != nil {
		return options{}, err
	}
	opts.Paths = flags.Args()
	switch {
	case opts.Tag == "" || opts.Output == "":
		return options{}, errors.New("--tag or --output is missing, want both")
	case len(opts.Paths) == 0:
		return options{}, errors.New("no path given, want a binary or directories")
	case len(opts.Entrypoint) == 0 && len(opts.Paths) > 1:
		return options{}, fmt.Errorf("got %d paths without an --entrypoint, want one binary", len(opts.Paths))
	}
	return opts, nil
}

// run writes the image.
func run(opts options) error {
	var img v1.Image
	var err error
	if len(opts.Entrypoint) == 0 {
		img, err = fromBinary(opts.Paths[0])
	} else {
		img, err = fromTrees(opts.Entrypoint, opts.Paths...)
	}
	if err != nil {
		return fmt.Errorf("create the image %s: %w", opts.Tag, err)
	}
	if err := writeArchive(opts.Output, opts.Tag, img); err != nil {
		return fmt.Errorf("write the image %s: %w", opts.Tag, err)
	}
	return nil
}
