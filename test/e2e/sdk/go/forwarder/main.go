// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Command forwarder stands in for a log forwarder that writes to Azure Monitor,
// such as Vector. It has several targets with their own clients and tenants, and gets a
// token for each, with workload identity or else with a client secret. It does not
// forward anything. Its output and exit codes follow the contract of all SDK programs
// in ../../README.md.
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
	config := flags.String("config", "", "`file` with the targets")
	if err := flags.Parse(args); err != nil {
		return options, nil, err
	}
	if err := options.Validate(flags); err != nil {
		return options, nil, err
	}
	if *config == "" {
		return options, nil, errors.New("--config is missing, want the file with the targets")
	}
	if flags.NArg() > 0 {
		return options, nil, fmt.Errorf("unexpected argument %q", flags.Arg(0))
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
