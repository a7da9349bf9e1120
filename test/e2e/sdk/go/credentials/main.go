// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Command credentials gets credentials with the official Go SDKs of the clouds,
// using only their default credential chains, and prints a JSON line for each. Where an
// SDK has no variables for an identity, the command passes the identity to it.
// The contract of all SDK programs is in ../../README.md.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
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
	options, sources, err := parse(args)
	if err != nil {
		_, _ = fmt.Fprintf(stderr, "credentials: %v\nusage: credentials [--every DURATION] [--forever] CLOUD...\n", err)
		return rounds.Usage
	}
	return rounds.Run(ctx, stdout, options, sources)
}

func parse(args []string) (options rounds.Options, sources []rounds.Source, err error) {
	flags := flag.NewFlagSet("credentials", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // run prints the error
	options.Bind(flags)
	if err := flags.Parse(args); err != nil {
		return options, nil, err
	}
	if err := options.Validate(flags); err != nil {
		return options, nil, err
	}
	clouds := map[string]func(context.Context) (rounds.Credential, error){
		"aws": aws, "azure": azure, "gcp": gcp,
		"alibaba": alibaba, "ibm": ibm, "vault": vaultLogin,
		"anthropic": anthropicAPI, "openai": openAI, "snowflake": snowflake,
	}
	if flags.NArg() == 0 {
		return options, nil, fmt.Errorf("no cloud given, want any of %s", strings.Join(slices.Sorted(maps.Keys(clouds)), ", "))
	}
	for _, cloud := range flags.Args() {
		source := rounds.Source{Cloud: cloud}
		if source.Get = clouds[cloud]; source.Get == nil {
			return options, nil, fmt.Errorf("unknown cloud %q, want any of %s", cloud, strings.Join(slices.Sorted(maps.Keys(clouds)), ", "))
		}
		sources = append(sources, source)
	}
	return options, sources, nil
}
