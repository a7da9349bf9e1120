// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/xml"
	"os"
	"os/exec"
	"path/filepath"
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
		for _, p := range loadPairs() {
			// The machine became twice as slow after the first round.
			trials[loadKey{p.baseline, containers}] = []trial{{CPU: 10}, {CPU: 20}, {CPU: 20}}
			trials[loadKey{p.lanyard, containers}] = []trial{{CPU: 11}, {CPU: 22}, {CPU: 26}}
		}
	}
	checks := loadChecks(trials)
	want := check{
		What: "CPU, Lanyard, three clouds, 20 containers, to the baseline's",
		Got:  1.1, Limit: 2.2, Format: "%.2f×", Detail: "1.10 to 1.30",
	}
	if len(checks) != 4 || checks[3] != want {
		t.Errorf("got checks %+v, want four, the last %+v", checks, want)
	}
}

func TestFooter(t *testing.T) {
	t.Parallel()
	o := outcome{How: "in turns", Stamp: stamp{Date: "2026-01-02", Quick: true}, Checks: []check{{"time", 1.4, 1.5, "%.1f s", "fast"}, {"size", 1.6, 1.5, "%.1f", "large"}}}
	want := "\n2026-01-02, 0 cores of , kube-apiserver : in turns. **Provisional** (`-quick`).\n\n- size: 1.6 (large), limit 1.5: NOT MET\n"
	if diff := cmp.Diff(want, o.footer((*check).missed)); diff != "" {
		t.Errorf("footer (-want +got):\n%s", diff)
	}
	if got, want := o.Checks[0].line(), "- time: 1.4 s (fast), limit 1.5 s: met\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestSum(t *testing.T) {
	t.Parallel()
	const text = `# HELP calls x
calls_bucket{name="a",rejected="false",le="0.005"} 3
calls_bucket{name="a",rejected="true",le="0.005"} 2
calls_bucket{name="a",rejected="false",le="0.0055"} 7
calls_bucket{name="ab",rejected="false",le="0.005"} 11
calls_bucket_other{name="a",le="0.005"} 13
`
	if got := sum(text, "calls_bucket", `name="a"`, `le="0.005"`); got != 5 {
		t.Errorf("got %v, want 5", got)
	}
}

func TestPolicyTable(t *testing.T) {
	t.Parallel()
	all := []measured{{minor: "1.36"}, {minor: "1.37"}}
	all[0].medians[1][3] = [5]float64{2, 3.5, 1.5, 9, 2.25}
	all[1].medians[1][3] = [5]float64{1, 2, 3, 5, 1}
	all[0].medians[1][2] = all[0].medians[1][3]
	var o outcome
	addPolicyTable(&o, all)
	rows := o.Tables[0].Rows
	if diff := cmp.Diff([]string{"three clouds", "2000", "+1.50", "-0.50", "+7.00", "+0.25", "+1.00", "+2.00", "+4.00", "+0.00"}, rows[len(rows)-1]); diff != "" {
		t.Errorf("last row (-want +got):\n%s", diff)
	}
	plots := policyPlots(all)
	want := group{"Kubernetes 1.36, ServiceAccounts with an identity: 200", []bar{{"webhook", 1.5}, {"policies", 0}, {"both", 7}, {"compiled", 0.25}}}
	if diff := cmp.Diff(want, plots[1].Groups[2]); diff != "" {
		t.Errorf("group (-want +got):\n%s", diff)
	}
}

func TestPlot(t *testing.T) {
	t.Parallel()
	p := plot{Title: "a < b", Groups: []group{{"first", []bar{{"eks", 4}, {"Lanyard, AWS", 1}}}}}
	got := p.svg()
	if err := xml.Unmarshal([]byte(got), new(struct{})); err != nil {
		t.Errorf("not XML: %v", err)
	}
	for _, want := range []string{`class="o" x="190" y="58" width="470.0"`, `class="l" x="190" y="80" width="117.5"`, "a &lt; b", "prefers-color-scheme:dark"} {
		if !strings.Contains(got, want) {
			t.Errorf("got %s, want %q in it", got, want)
		}
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
	for _, name := range []string{"load", "peers", "memory", "policies", "feel", "burst", "watch", "cost", "fences", "sizes"} {
		if _, err := replaceSection(string(text), name, ""); err != nil {
			t.Errorf("%s: %v", docsFile, err)
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
		"all parts by default, but peers only with -peers": {"", []string{"load", "guard", "fences", "policies", "feel", "burst", "watch", "memory"}, ""},
		"two parts, in the order in which they run":        {"memory,load", []string{"load", "memory"}, ""},
		"a part that does not exist":                       {"load,disk", nil, `got "disk"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run, err := (&options{only: test.only}).parts()
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

func TestFindPeers(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		files map[string]os.FileMode // in the directory
		want  string                 // the versions, or the error
	}{
		"three programs with versions": {
			map[string]os.FileMode{"eks": 0o755, "eks.version": 0o644, "azure": 0o755, "azure.version": 0o644, "pfnet": 0o755, "pfnet.version": 0o644},
			"eks.version azure.version pfnet.version",
		},
		"a program without a version": {map[string]os.FileMode{"eks": 0o755}, "want it in the file"},
		"a missing program":           {map[string]os.FileMode{"eks": 0o755, "eks.version": 0o644}, "find the program azure"},
		"a file that does not run":    {map[string]os.FileMode{"eks": 0o644}, "build it from github.com/aws/amazon-eks-pod-identity-webhook"},
		"no directory":                {nil, "want -peers=DIR with the programs eks, azure and pfnet"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := ""
			if test.files != nil {
				dir = t.TempDir()
			}
			for file, mode := range test.files {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(file+"\n"), mode); err != nil {
					t.Fatal(err)
				}
			}
			found, err := findPeers(dir)
			var got []string
			for _, p := range found {
				got = append(got, p.version)
			}
			if text := strings.Join(got, " "); err == nil && text != test.want || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("got versions %q and error %v, want %q", text, err, test.want)
			}
		})
	}
}

// TestCPUTime measures a child that spins, and compares the result with the kernel's
// accounting after the child has ended.
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
