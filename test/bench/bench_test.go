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
	for _, containers := range loadContainers {
		for _, connections := range loadConnections {
			for _, p := range loadPairs {
				// The machine became twice as slow after the first round.
				trials[loadKey{p.floor, containers, connections}] = []trial{{CPU: 10}, {CPU: 20}, {CPU: 20}}
				trials[loadKey{p.lanyard, containers, connections}] = []trial{{CPU: 11}, {CPU: 22}, {CPU: 26}}
			}
		}
	}
	var result loadResult
	result.summarize(trials)
	got, found := result.ratio(loadPairs[threeClouds], 20)
	want := loadRatio{caseThree, caseThreeFloor, 20, targetConnections, 1.1, 1.1, 1.3}
	if !found {
		t.Fatal("got no ratio")
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("ratio (-want +got):\n%s", diff)
	}
	if got, want := len(result.Rows), 2*len(loadPairs)*len(loadContainers)*len(loadConnections); got != want {
		t.Errorf("got %d rows, want %d: a floor and a Lanyard case for each pair", got, want)
	}
	for _, c := range result.checks() {
		if want := c.limit > 1.1; c.met() != want {
			t.Errorf("%s: got met = %v, want %v", c.what, c.met(), want)
		}
	}
}

func TestParseBenchmarks(t *testing.T) {
	t.Parallel()
	got := parseBenchmarks([]byte(`goos: linux
pkg: example.com/x
BenchmarkReview/clouds=3/containers=2-2   	   10000	     30 ns/op	 200.5 MB/s	  7678 answer-bytes	  12 B/op	  3 allocs/op
BenchmarkReview/clouds=3/containers=2-2   	   10000	     10 ns/op	 200.5 MB/s	  7678 answer-bytes	  12 B/op	  3 allocs/op
BenchmarkReview/clouds=3/containers=2-2   	   10000	     20 ns/op	 200.5 MB/s	  7678 answer-bytes	  12 B/op	  3 allocs/op
BenchmarkDecode-16 	 5 	 1 ns/op
PASS
ok  	example.com/x	1.2s
`))
	want := []microRow{
		{"Review/clouds=3/containers=2", map[string]float64{"ns/op": 20, "MB/s": 200.5, "answer-bytes": 7678, "B/op": 12, "allocs/op": 3}},
		{"Decode", map[string]float64{"ns/op": 1}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
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
	text, err := os.ReadFile("../../" + docsFile)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"machine", "targets", "answers", "load", "memory", "apiserver", "micro"} {
		if _, err := replaceSection(string(text), name, ""); err != nil {
			t.Error(err)
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
		"all parts by default": {"", parts, ""},
		"none":                 {"none", nil, ""},
		"two parts, in the order in which they run": {"micro,load", []string{"load", "micro"}, ""},
		"a part that does not exist":                {"load,disk", nil, `got "disk"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := (&settings{only: test.only, protocol: "h1"}).parts()
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
