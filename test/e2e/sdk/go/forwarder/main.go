// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// forwarder stands for a log forwarder that writes to Azure Monitor, as Vector
// does: it has several targets with clients and tenants of their own, and gets a
// token for each, by workload identity where that works and by a client secret
// where it does not. It forwards nothing; what it prints and how it ends is what
// all SDK programs do: see the README beside this module.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/lanyard-dev/lanyard/test/e2e/sdk/go/internal/rounds"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	options, targets, err := parse(args)
	if err != nil {
		_, _ = fmt.Fprintf(stderr, "forwarder: %v\nusage: forwarder --config FILE [--every DURATION] [--forever]\n", err)
		return rounds.Usage
	}
	sources := make([]rounds.Source, 0, len(targets))
	for _, t := range targets {
		sources = append(sources, rounds.Source{Cloud: "azure", Target: t.Name, Get: t.credential})
	}
	return rounds.Run(ctx, stdout, options, sources)
}

func parse(args []string) (options rounds.Options, targets []target, err error) {
	flags := flag.NewFlagSet("forwarder", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // run prints the error
	options.Bind(flags)
	config := flags.String("config", "", "the file with the targets")
	if err := flags.Parse(args); err != nil {
		return options, nil, err
	}
	if err := options.Validate(flags); err != nil {
		return options, nil, err
	}
	if *config == "" {
		return options, nil, errors.New("got no --config, want the file with the targets")
	}
	if flags.NArg() > 0 {
		return options, nil, fmt.Errorf("got the argument %q, want none", flags.Arg(0))
	}
	content, err := os.ReadFile(*config)
	if err != nil {
		return options, nil, err
	}
	targets, err = parseTargets(content)
	if err != nil {
		return options, nil, fmt.Errorf("%s: %w", *config, err)
	}
	return options, targets, nil
}
