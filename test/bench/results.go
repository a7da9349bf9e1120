// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// resultsDir holds the last result of each part.
const resultsDir = "bench-results"

// stamp describes the environment of a run.
type stamp struct {
	Date       string
	Quick      bool `json:",omitempty"`
	CPU        string
	Cores      int
	Kernel     string
	Go         string
	Kubernetes string `json:",omitempty"`
}

func (b *bench) stamp(c *cluster) stamp {
	s := stamp{
		Date: time.Now().UTC().Format(time.DateOnly), Quick: b.quick,
		CPU: cpuModel(), Cores: runtime.NumCPU(), Kernel: kernelVersion(), Go: runtime.Version(),
	}
	if c != nil {
		s.Kubernetes = c.Version()
	}
	return s
}

// sentence returns where and what was measured, taking turns on one API server.
func (s *stamp) sentence(measured string) string {
	text := fmt.Sprintf("Measured on %s: %d cores of %s, Linux %s, kube-apiserver %s, %s, taking turns.\n",
		s.Date, s.Cores, s.CPU, s.Kernel, s.Kubernetes, measured)
	if s.Quick {
		text += "\n**Provisional:** from a short run (`-quick`).\n"
	}
	return text
}

// cpuModel returns the kernel's name of the processor, if any.
func cpuModel() string {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(text)) {
		if name, value, found := strings.Cut(line, ":"); found && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}

// kernelVersion returns the kernel's release without the suffix of its builder.
func kernelVersion() string {
	text, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return ""
	}
	version, _, _ := strings.Cut(strings.TrimSpace(string(text)), "-")
	return version
}

// loadKey identifies the trials of a case.
type loadKey struct {
	name        string
	containers  int
	connections int
}

// trial is the result of a fixed number of requests: the server's CPU time per
// request and the latencies in microseconds, and the requests per second.
type trial struct{ CPU, P50, P99, Throughput float64 }

// responseSize holds the sizes of one request and its response in bytes. Patch is
// the JSON Patch before base64.
type responseSize struct {
	Account             string
	Containers          int
	Review, Sent, Patch int
}

// loadRow is the median of all trials of a case.
type loadRow struct {
	Case                    string
	Containers, Connections int
	Trials                  int
	trial
}

// loadRatio is the CPU time per request of Lanyard relative to the floor in the
// same round: the median of all rounds, the minimum and the maximum.
type loadRatio struct {
	Case, Floor             string
	Containers, Connections int
	Ratio, Least, Most      float64
}

type loadResult struct {
	Stamp     stamp
	Protocol  string
	Responses []responseSize
	Rows      []loadRow
	Ratios    []loadRatio
}

func (r *loadResult) summarize(trials map[loadKey][]trial) {
	for _, containers := range loadContainers {
		for _, connections := range loadConnections {
			for _, account := range loadAccounts {
				p := loadPairs[account]
				floor, lanyard := trials[loadKey{p.floor, containers, connections}], trials[loadKey{p.lanyard, containers, connections}]
				r.Rows = append(r.Rows,
					loadRow{p.floor, containers, connections, len(floor), medianTrial(floor)},
					loadRow{p.lanyard, containers, connections, len(lanyard), medianTrial(lanyard)})
				r.Ratios = append(r.Ratios, ratioOf(trials, p, containers, connections))
			}
			r.Ratios = append(r.Ratios, ratioOf(trials, pair{caseAWS, caseMinimal}, containers, connections))
		}
	}
}

func ratioOf(trials map[loadKey][]trial, p pair, containers, connections int) loadRatio {
	var ratios []float64
	floor := trials[loadKey{p.floor, containers, connections}]
	for i, lanyard := range trials[loadKey{p.lanyard, containers, connections}] {
		ratios = append(ratios, lanyard.CPU/floor[i].CPU)
	}
	return loadRatio{p.lanyard, p.floor, containers, connections, median(ratios), quantile(ratios, 0), quantile(ratios, 1)}
}

func medianTrial(trials []trial) trial {
	of := func(get func(trial) float64) float64 {
		var values []float64
		for _, t := range trials {
			values = append(values, get(t))
		}
		return median(values)
	}
	return trial{
		CPU:        of(func(t trial) float64 { return t.CPU }),
		P50:        of(func(t trial) float64 { return t.P50 }),
		P99:        of(func(t trial) float64 { return t.P99 }),
		Throughput: of(func(t trial) float64 { return t.Throughput }),
	}
}

// ratio returns the ratio at the number of connections that the targets apply
// to.
func (r *loadResult) ratio(p pair, containers int) (loadRatio, bool) {
	for _, ratio := range r.Ratios {
		if ratio.Case == p.lanyard && ratio.Floor == p.floor && ratio.Containers == containers && ratio.Connections == targetConnections {
			return ratio, true
		}
	}
	return loadRatio{}, false
}

// response returns the sizes of one response, or zero if there is none.
func (r *loadResult) response(account string, containers int) responseSize {
	for _, response := range r.Responses {
		if response.Account == account && response.Containers == containers {
			return response
		}
	}
	return responseSize{}
}

// results holds the last results of all parts; nil if a part never ran.
type results struct {
	Load      *loadResult
	APIServer *apiserverResult
	Guard     *guardResult
	Fences    *fencesResult
	Memory    *memoryResult
	Micro     *microResult
}

// store writes the result of a part.
func store(part string, result any) error {
	if err := os.MkdirAll(resultsDir, 0o755); err != nil {
		return fmt.Errorf("store results: %w", err)
	}
	text, err := json.MarshalIndent(result, "", "  ")
	if err != nil {
		return fmt.Errorf("store results: %w", err)
	}
	if err := os.WriteFile(filepath.Join(resultsDir, part+".json"), append(text, '\n'), 0o644); err != nil {
		return fmt.Errorf("store results: %w", err)
	}
	return nil
}

// read reads the stored results, those of the load test for the protocol.
func (r *results) read(protocol string) error {
	return errors.Join(
		readPart("load-"+protocol, &r.Load), readPart("apiserver", &r.APIServer), readPart("guard", &r.Guard),
		readPart("fences", &r.Fences), readPart("memory", &r.Memory), readPart("micro", &r.Micro))
}

func readPart[T any](part string, into **T) error {
	file := filepath.Join(resultsDir, part+".json")
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read results: %w", err)
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("read results: %s: %w", file, err)
	}
	return nil
}
