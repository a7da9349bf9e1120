// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Command bench measures the cost of Lanyard by doing the same work with and without
// Lanyard, on the same machine in the same run. Run it in the root of the repository, after
// building the programs (make bench). README.md describes the method.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"
)

// errInterrupted is returned if a signal interrupted the run.
var errInterrupted = errors.New("interrupted; all processes and temporary files were removed")

// options contains the command-line flags.
type options struct {
	only          string
	quick         bool
	updateDocs    bool
	controlplanes string
	peersDir      string
	maxAccounts   int
}

// bench is one run.
type bench struct {
	options
	out   io.Writer
	start time.Time
	dir   string // for logs, kubeconfigs and certificates; removed at the end
	ends  []func() error
}

func main() {
	var s options
	flag.StringVar(&s.only, "only", "", "comma-separated `parts` to run: "+strings.Join(partNames(), ", "))
	flag.BoolVar(&s.quick, "quick", false, "run shorter measurements with rough results")
	flag.BoolVar(&s.updateDocs, "update-docs", false, "write the results into the tables and plots of the documentation")
	flag.StringVar(&s.controlplanes, "controlplanes", "bin/controlplane", "comma-separated `directories` with etcd and kube-apiserver, for the part policies")
	flag.StringVar(&s.peersDir, "peers", "", "`directory` with the programs eks, azure and pfnet, for the part peers; port 9443 must be free")
	flag.IntVar(&s.maxAccounts, "max-accounts", 100_000, "measure memory with at most this `number` of ServiceAccounts; -quick stops at 20,000")
	flag.Parse()
	// A closed pipe or terminal stops the run in the same way as Ctrl-C.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE)
	defer stop()
	ctrl.SetLogger(logr.Discard()) // envtest's own log
	b := &bench{options: s, out: os.Stdout, start: time.Now()}
	if err := b.run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// part is one measurement.
type part struct {
	name string
	run  func(*bench, context.Context) (*outcome, error)
}

// parts returns the parts in the order in which they run.
func parts() []part {
	return []part{
		{"load", (*bench).load},
		{"peers", (*bench).peers},
		{"guard", (*bench).guard},
		{"fences", (*bench).fences},
		{"policies", (*bench).policies},
		{"feel", (*bench).feel},
		{"burst", (*bench).burst},
		{"watch", (*bench).watch},
		{"memory", (*bench).memory},
	}
}

func partNames() []string {
	var names []string
	for _, p := range parts() {
		names = append(names, p.name)
	}
	return names
}

// parts returns the parts that the flags ask for. By default, the part peers runs only
// with -peers.
func (s *options) parts() ([]part, error) {
	all := parts()
	if s.only == "" {
		return slices.DeleteFunc(all, func(p part) bool { return s.peersDir == "" && p.name == "peers" }), nil
	}
	asked := strings.Split(s.only, ",")
	for _, name := range asked {
		if !slices.ContainsFunc(all, func(p part) bool { return p.name == name }) {
			return nil, fmt.Errorf("-only: got %q, want any of %s", name, strings.Join(partNames(), ", "))
		}
	}
	return slices.DeleteFunc(all, func(p part) bool { return !slices.Contains(asked, p.name) }), nil
}

// run runs the parts. It leaves no processes, and no files except for the documentation.
func (b *bench) run(ctx context.Context) (err error) {
	if b.quick && b.updateDocs {
		return errors.New("-update-docs: got it with -quick, want exact results")
	}
	run, err := b.parts()
	if err != nil {
		return err
	}
	if _, err := os.Stat(deployDir); err != nil {
		return fmt.Errorf("%w; run this in the root of the repository", err)
	}
	if b.dir, err = os.MkdirTemp("", "lanyard-bench-"); err != nil {
		return fmt.Errorf("create a directory: %w", err)
	}
	b.ends = append(b.ends, func() error { return os.RemoveAll(b.dir) })
	defer func() { err = errors.Join(err, b.end(0)) }()
	var errs []error
	for _, part := range run {
		err := b.part(ctx, part)
		if ctx.Err() != nil {
			return errInterrupted
		}
		if err != nil {
			// The other parts do not depend on this one.
			errs = append(errs, fmt.Errorf("%s: %w", part.name, err))
			b.printf("%v", errs[len(errs)-1])
		}
	}
	return errors.Join(errs...)
}

// part runs one part, prints its result, and writes it into the documentation if asked. It stops
// everything that the part started, so that it does not disturb the next part.
func (b *bench) part(ctx context.Context, p part) (err error) {
	before := len(b.ends)
	defer func() { err = errors.Join(err, b.end(before)) }()
	b.printf("== %s", p.name)
	o, err := p.run(b, ctx)
	if err != nil {
		return err
	}
	b.print(o)
	if !b.updateDocs {
		return nil
	}
	return o.write()
}

// end runs all cleanup functions except the first n, in reverse order.
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
	dir, err := os.MkdirTemp(b.dir, name+"-")
	if err != nil {
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
