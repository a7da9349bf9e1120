// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestQuantiles(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		values []int
		q      float64
		want   int
	}{
		"the median of an odd number of values is the middle one": {[]int{5, 1, 3}, 0.5, 3},
		"the median of an even number of values is the upper one": {[]int{4, 1, 3, 2}, 0.5, 3},
		"the minimum":                 {[]int{5, 1, 3}, 0, 1},
		"the maximum":                 {[]int{5, 1, 3}, 1, 5},
		"one value is every quantile": {[]int{7}, 0.99, 7},
		"of a hundred, one is above the 99th percentile's 99": {numbers(100), 0.98, 99},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := quantile(test.values, test.q); got != test.want {
				t.Errorf("got %d, want %d", got, test.want)
			}
		})
	}
}

// numbers returns 1 to n.
func numbers(n int) []int {
	var all []int
	for i := range n {
		all = append(all, i+1)
	}
	return all
}

func TestRatioOfRound(t *testing.T) {
	t.Parallel()
	trials := map[loadKey][]trial{}
	for _, containers := range loadContainers() {
		for _, connections := range loadConnections() {
			for _, p := range loadPairs() {
				// The machine became twice as slow after the first round.
				trials[loadKey{p.floor, containers, connections}] = []trial{{CPU: 10}, {CPU: 20}, {CPU: 20}}
				trials[loadKey{p.lanyard, containers, connections}] = []trial{{CPU: 11}, {CPU: 22}, {CPU: 26}}
			}
		}
	}
	checks := loadChecks(trials)
	want := check{
		What: "CPU per request, Lanyard, three clouds, 20 containers: relative to the floor, same length as three clouds",
		Got:  1.1, Limit: 2.2, Format: "%.2f×", Detail: "1.10 to 1.30",
	}
	if len(checks) != 4 || checks[3] != want {
		t.Errorf("got checks %+v, want four, the last %+v", checks, want)
	}
	table := loadTable(trials)
	if got, want := len(table.Rows), 1+2*len(loadPairs())*len(loadContainers())*len(loadConnections()); got != want {
		t.Errorf("got %d rows, want %d: the header, and a floor and a Lanyard case for each pair", got, want)
	}
	if diff := cmp.Diff([]string{"floor, minimal", "2+1", "1", "20", "0", "0", "0"}, table.Rows[1]); diff != "" {
		t.Errorf("row (-want +got):\n%s", diff)
	}
}

func TestTargets(t *testing.T) {
	t.Parallel()
	got := targets([]*outcome{{Checks: []check{{"time", 1.4, 1.5, "%.1f s", "fast"}, {"size", 1.6, 1.5, "%.1f", "large"}}}}).markdown()
	want := "| Target | limit | result |  |\n|---|---:|---:|---:|\n" +
		"| time | 1.5 s | **1.4 s** (fast) | met |\n| size | 1.5 | **1.6** (large) | NOT MET |\n"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}
}

func TestReplaceSection(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ doc, want, err string }{
		"an empty section":          {"a\n<!-- begin x -->\n<!-- end x -->\nb", "a\n<!-- begin x -->\nnew\n<!-- end x -->\nb", ""},
		"a section with text":       {"<!-- begin x -->\nold\n<!-- end x -->", "<!-- begin x -->\nnew\n<!-- end x -->", ""},
		"a section that is missing": {"a", "", `section "x" not found`},
		"a section without an end":  {"<!-- begin x -->\n", "", `section "x" not found`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := replaceSection(test.doc, "x", "new\n")
			if (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
				t.Fatalf("got error %v, want %q", err, test.err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("document (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDocumentationHasEverySection(t *testing.T) {
	t.Parallel()
	for file, sections := range map[string][]string{
		docsFile: {"machine", "targets", "answers", "load", "memory", "apiserver"}, guardDocsFile: {"cost", "fences", "sizes"},
	} {
		text, err := os.ReadFile("../../" + file)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range sections {
			if _, err := replaceSection(string(text), name, ""); err != nil {
				t.Errorf("%s: %v", file, err)
			}
		}
	}
}

func TestParts(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		only string
		want []string
		err  string
	}{
		"all parts by default": {"", []string{"load", "memory", "apiserver", "guard", "fences"}, ""},
		"none":                 {"none", nil, ""},
		"two parts, in the order in which they run": {"memory,load", []string{"load", "memory"}, ""},
		"a part that does not exist":                {"load,disk", nil, `got "disk"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run, err := (&settings{only: test.only, protocol: "h1"}).parts()
			var got []string
			for _, part := range run {
				got = append(got, part.name)
			}
			if (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
				t.Fatalf("got error %v, want %q", err, test.err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("parts (-want +got):\n%s", diff)
			}
		})
	}
}

// TestCPUTime measures a child that spins, and compares the result with what
// the kernel accounted for it after its end.
func TestCPUTime(t *testing.T) {
	t.Parallel()
	// The child spins, then waits for its input to end. Its CPU clock does not
	// advance while it waits.
	cmd := exec.CommandContext(t.Context(), "sh", "-c", `i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; echo done; read x`)
	input, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := output.Read(make([]byte, 8)); err != nil {
		t.Fatal(err)
	}
	got, err := cpuTime(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	memory, err := readMemory(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	if err := input.Close(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // read reached the end of its input
	want := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	if difference := (want - got).Abs(); got <= 0 || difference > want/4+20*time.Millisecond {
		t.Errorf("got %v of CPU time, want about %v", got, want)
	}
	if memory.RSS <= 0 || memory.Anon <= 0 || memory.RSS < memory.Anon || memory.Peak < memory.RSS {
		t.Errorf("got memory %+v, want all fields, and no part larger than the whole", memory)
	}
}
