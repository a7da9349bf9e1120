// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	microPackage    = "./internal/injector"
	benchstatBinary = "bin/benchstat"
)

// microRow holds the medians of one Go benchmark, by unit.
type microRow struct {
	Name   string
	Values map[string]float64
}

type microResult struct {
	Stamp stamp
	Runs  int
	Rows  []microRow
}

// micro runs the Go benchmarks of the request path, without a network, and
// passes the output to benchstat.
func (b *bench) micro(ctx context.Context) (*microResult, error) {
	result := &microResult{Stamp: b.stamp(nil), Runs: either(b, 6, 3)}
	args := []string{"test", "-run=^$", "-bench=.", "-benchmem", "-count=" + strconv.Itoa(result.Runs), "-timeout=30m"}
	if b.quick {
		args = append(args, "-benchtime=100ms")
	}
	b.printf("micro: go %s %s", strings.Join(args, " "), microPackage)
	output, err := b.tool(ctx, "go", append(args, microPackage)...)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(resultsDir, 0o755); err != nil {
		return nil, fmt.Errorf("store results: %w", err)
	}
	raw := filepath.Join(resultsDir, "micro.txt")
	if err := os.WriteFile(raw, output, 0o644); err != nil {
		return nil, fmt.Errorf("store results: %w", err)
	}
	table, err := b.tool(ctx, benchstatBinary, raw)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(resultsDir, "benchstat.txt"), table, 0o644); err != nil {
		return nil, fmt.Errorf("store results: %w", err)
	}
	_, _ = b.out.Write(table)
	result.Rows = parseBenchmarks(output)
	if len(result.Rows) == 0 {
		return nil, fmt.Errorf("go test printed no benchmarks:\n%s", output)
	}
	return result, nil
}

// tool runs a program and returns its output. Cancelling ctx also stops the
// program's children.
func (b *bench) tool(ctx context.Context, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) }
	cmd.WaitDelay = 10 * time.Second
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", name, err, output.Bytes())
	}
	return output.Bytes(), nil
}

// parseBenchmarks reads the format of
// https://go.dev/design/14313-benchmark-format: a name, the iterations, and
// pairs of a value and a unit.
func parseBenchmarks(output []byte) []microRow {
	var names []string
	values := map[string]map[string][]float64{}
	for line := range strings.Lines(string(output)) {
		words := strings.Fields(line)
		if len(words) < 4 || !strings.HasPrefix(words[0], "Benchmark") {
			continue
		}
		name := strings.TrimPrefix(words[0], "Benchmark")
		if i := strings.LastIndexByte(name, '-'); i >= 0 {
			name = name[:i] // GOMAXPROCS
		}
		if values[name] == nil {
			names = append(names, name)
			values[name] = map[string][]float64{}
		}
		for pair := range slices.Chunk(words[2:len(words)-len(words)%2], 2) {
			if value, err := strconv.ParseFloat(pair[0], 64); err == nil {
				values[name][pair[1]] = append(values[name][pair[1]], value)
			}
		}
	}
	var rows []microRow
	for _, name := range names {
		row := microRow{name, map[string]float64{}}
		for unit, all := range values[name] {
			row.Values[unit] = median(all)
		}
		rows = append(rows, row)
	}
	return rows
}
