// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Command bench measures the cost of Lanyard relative to a floor: a minimal
// HTTPS server on the same machine in the same run. Run it in the root of the
// repository, after building the programs (make bench). docs/evidence/performance.md
// describes the method.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"
)

// errInterrupted is the error of a run that was interrupted by a signal.
var errInterrupted = errors.New("interrupted; all processes and temporary files were removed")

// settings holds the command-line flags.
type settings struct {
	only        string
	quick       bool
	updateDocs  bool
	protocol    string
	maxAccounts int
}

// bench is one run.
type bench struct {
	settings
	out   io.Writer
	start time.Time
	dir   string // for logs, kubeconfigs and certificates; removed at the end
	ends  []func() error
}

func main() {
	var s settings
	flag.StringVar(&s.only, "only", "", "comma-separated `parts` to run: load, apiserver, guard, fences, memory, micro; or none")
	flag.BoolVar(&s.quick, "quick", false, "run shorter measurements with rough results")
	flag.BoolVar(&s.updateDocs, "update-docs", false, "update the tables and the plot of docs/evidence/performance.md from the results in "+resultsDir)
	flag.StringVar(&s.protocol, "protocol", "h1", "`protocol` of the load test: h1, which the API server uses for a webhook behind a Service, or h2")
	flag.IntVar(&s.maxAccounts, "max-accounts", 100_000, "measure memory with at most this `number` of ServiceAccounts; -quick stops at 20,000")
	flag.Parse()
	// A closed pipe or terminal stops the run in the same way as Ctrl-C.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE)
	defer stop()
	ctrl.SetLogger(logr.Discard()) // envtest's own log
	b := &bench{settings: s, out: os.Stdout, start: time.Now()}
	if err := b.run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// parts lists the parts in the order in which they run.
var parts = []string{"load", "apiserver", "guard", "fences", "memory", "micro"}

func (s *settings) parts() ([]string, error) {
	if s.protocol != "h1" && s.protocol != "h2" {
		return nil, fmt.Errorf("-protocol: got %q, want h1 or h2", s.protocol)
	}
	switch s.only {
	case "":
		return parts, nil
	case "none":
		return nil, nil
	}
	asked := strings.Split(s.only, ",")
	for _, part := range asked {
		if !slices.Contains(parts, part) {
			return nil, fmt.Errorf("-only: got %q, want any of %s, or none", part, strings.Join(parts, ", "))
		}
	}
	return slices.DeleteFunc(slices.Clone(parts), func(part string) bool { return !slices.Contains(asked, part) }), nil
}

// run runs the parts. It leaves no processes, and no files except for the
// results.
func (b *bench) run(ctx context.Context) (err error) {
	run, err := b.parts()
	if err != nil {
		return err
	}
	if b.dir, err = os.MkdirTemp("", "lanyard-bench-"); err != nil {
		return fmt.Errorf("create a directory: %w", err)
	}
	b.ends = append(b.ends, func() error { return os.RemoveAll(b.dir) })
	defer func() { err = errors.Join(err, b.end(0)) }()
	for _, part := range run {
		if err := b.part(ctx, part); err != nil {
			if ctx.Err() != nil {
				return errInterrupted
			}
			return fmt.Errorf("%s: %w", part, err)
		}
	}
	var results results
	if err := results.read(b.protocol); err != nil {
		return err
	}
	if len(run) > 0 {
		b.summarize(&results, run)
	}
	if b.updateDocs {
		return errors.Join(updateDocs(&results), results.Guard.updateDocs(), results.Fences.updateDocs())
	}
	return nil
}

// part runs one part and stores its result. It stops everything that the part
// started, so that it does not disturb the next part.
func (b *bench) part(ctx context.Context, name string) (err error) {
	before := len(b.ends)
	defer func() { err = errors.Join(err, b.end(before)) }()
	b.printf("== %s", name)
	var result any
	switch name {
	case "load":
		result, err = b.load(ctx)
	case "apiserver":
		result, err = b.apiserver(ctx)
	case "guard":
		result, err = b.guard(ctx)
	case "fences":
		result, err = b.fences(ctx)
	case "memory":
		result, err = b.memory(ctx)
	case "micro":
		result, err = b.micro(ctx)
	}
	if err != nil {
		return err
	}
	if name == "load" {
		name += "-" + b.protocol // so that the results of both protocols are kept
	}
	return store(name, result)
}

// end runs the cleanup functions after the first n, in reverse order.
func (b *bench) end(n int) error {
	var errs []error
	for _, end := range slices.Backward(b.ends[n:]) {
		errs = append(errs, end())
	}
	b.ends = b.ends[:n]
	return errors.Join(errs...)
}

// printf prints a line with the time since the start.
func (b *bench) printf(format string, args ...any) {
	elapsed := time.Since(b.start).Round(time.Second)
	_, _ = fmt.Fprintf(b.out, "%7s  %s\n", elapsed, fmt.Sprintf(format, args...))
}

// subdir creates a directory in the run's temporary directory.
func (b *bench) subdir(name string) (string, error) {
	dir := filepath.Join(b.dir, name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("create a directory: %w", err)
	}
	return dir, nil
}

// either returns quick in a quick run, and full in all others.
func either[T any](b *bench, full, quick T) T {
	if b.quick {
		return quick
	}
	return full
}
