// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Command image makes a container image without a container engine and without
// a registry:
//
//	image --tag NAME:TAG --output ARCHIVE BINARY
//	image --tag NAME:TAG --output ARCHIVE --entrypoint ARG... DIR...
//
// The first form wraps a static binary, as the Dockerfile's final stage does.
// The second makes a layer of what is in each DIR, in their order; --entrypoint
// is given once for each word of the command.
//
// The archive is in the format of docker save, which docker, podman, kind and
// containerd read. Its bytes depend on the files' names and content, and on
// whether each may be executed, on nothing else: two runs write the same. The
// image is for this machine's architecture, and its process is user and group
// 65532.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// options is what the command line says.
type options struct {
	Tag, Output string
	Entrypoint  []string
	// Paths is one binary, or the directories where there is an entrypoint.
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

// parseOptions reads a command line without the program's name. The usage goes
// to out.
func parseOptions(args []string, out io.Writer) (options, error) {
	var opts options
	flags := flag.NewFlagSet("image", flag.ContinueOnError)
	flags.SetOutput(out)
	flags.Usage = func() {
		_, _ = fmt.Fprintln(out, "usage: image --tag NAME:TAG --output ARCHIVE [--entrypoint ARG]... BINARY | DIR...")
		flags.PrintDefaults()
	}
	flags.StringVar(&opts.Tag, "tag", "", "the image's `name`, as in lanyard-webhook:e2e")
	flags.StringVar(&opts.Output, "output", "", "the `file` to write")
	flags.Func("entrypoint", "a `word` of the command in the directories; may be given several times", func(word string) error {
		opts.Entrypoint = append(opts.Entrypoint, word)
		return nil
	})
	if err := flags.Parse(args); err != nil {
		return options{}, err
	}
	opts.Paths = flags.Args()
	switch {
	case opts.Tag == "" || opts.Output == "":
		return options{}, errors.New("got no --tag or no --output, want both")
	case len(opts.Paths) == 0:
		return options{}, errors.New("got no path, want a binary or directories")
	case len(opts.Entrypoint) == 0 && len(opts.Paths) > 1:
		return options{}, fmt.Errorf("got %d paths without an --entrypoint, want one binary", len(opts.Paths))
	}
	return opts, nil
}

// run makes the image.
func run(opts options) error {
	var img v1.Image
	var err error
	if len(opts.Entrypoint) == 0 {
		img, err = fromBinary(opts.Paths[0])
	} else {
		img, err = fromTrees(opts.Entrypoint, opts.Paths...)
	}
	if err != nil {
		return fmt.Errorf("making the image %s: %w", opts.Tag, err)
	}
	if err := writeArchive(opts.Output, opts.Tag, img); err != nil {
		return fmt.Errorf("writing the image %s: %w", opts.Tag, err)
	}
	return nil
}
