// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bufio"
	"flag"
	"fmt"
	"io"
	"net/http/httptest"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"
)

// A pattern that is compiled at the start takes its memory in each command, also in those that never
// match it: lengths such as {0,255} copy the part before them so often.
func TestTheStartOfACommandTakesLittleMemory(t *testing.T) {
	t.Parallel()
	const limit = 2 << 20
	command := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^$") // with the packages of lanyard
	command.Env = append(os.Environ(), "GODEBUG=inittrace=1")
	trace, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, trace)
	}
	packages := 0
	for line := range strings.Lines(string(trace)) { // init PACKAGE @TIME ms, CLOCK ms clock, N bytes, N allocs
		fields := strings.Fields(line)
		if len(fields) != 11 || fields[8] != "bytes," {
			continue
		}
		packages++
		if bytes, err := strconv.Atoi(fields[7]); err != nil || bytes > limit {
			t.Errorf("%s: got %s bytes at the start and %v, want at most %d", fields[1], fields[7], err, limit)
		}
	}
	if packages < 100 {
		t.Errorf("got the memory of %d packages: %s", packages, trace)
	}
}

var lanyard = flag.String("lanyard", "", "`path` of lanyard")

// BenchmarkLargeCluster measures the commands that read a whole cluster: their memory, and the time
// to the first line and to the end. The cluster is a server of canned responses in this process,
// so only the command is measured. test/bench/README.md has the figures and their limits.
//
//	go build -o bin/lanyard ./cmd/lanyard &&
//	go test -run '^$' -bench LargeCluster -benchtime 5x ./internal/cli -args -lanyard ../../bin/lanyard
func BenchmarkLargeCluster(b *testing.B) {
	if *lanyard == "" {
		b.Skip("takes long; set -lanyard to run it")
	}
	for _, size := range []struct {
		name    string
		cluster *largeCluster
		lines   []string
	}{
		{"1 ServiceAccount", &largeCluster{namespaces: 1, serviceAccounts: 1, podsEach: 1, variables: 30}, []string{"status -A", "check", "migrate --from eks -A", "explain sa/account-000 -n namespace-000"}},
		{"5,000 ServiceAccounts and 2,500 pods", &largeCluster{namespaces: 50, serviceAccounts: 100, podsEach: 50, variables: 30}, []string{"status -A", "check", "migrate --from eks -A"}},
		{"20,000 ServiceAccounts and 50,000 pods", &largeCluster{namespaces: 400, serviceAccounts: 50, podsEach: 125, variables: 30}, []string{"status -A"}},
	} {
		server := httptest.NewServer(withSingles(size.cluster.start(b)))
		for _, line := range size.lines {
			b.Run(strings.Fields(line)[0]+" with "+size.name, func(b *testing.B) {
				measure(b, append([]string{"--kubeconfig", os.DevNull, "--server", server.URL}, strings.Fields(line)...))
			})
		}
		server.Close()
	}
}

// measure runs lanyard, and reports the highest figures of its runs.
func measure(b *testing.B, args []string) {
	b.Helper()
	var first time.Duration
	var own, resident float64
	for b.Loop() {
		command := exec.CommandContext(b.Context(), *lanyard, args...)
		command.Stderr = os.Stderr
		output, err := command.StdoutPipe()
		if err != nil {
			b.Fatal(err)
		}
		start := time.Now()
		if err := command.Start(); err != nil {
			b.Fatal(err)
		}
		ended, measured := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(measured)
			a, b := peakMiB(command.Process.Pid, ended)
			own, resident = max(own, a), max(resident, b)
		}()
		lines := bufio.NewReader(output)
		if _, err := lines.ReadString('\n'); err != nil {
			b.Fatalf("first line: %v", err)
		}
		first = max(first, time.Since(start))
		if _, err := io.Copy(io.Discard, lines); err != nil {
			b.Fatal(err)
		}
		close(ended)
		<-measured
		_ = command.Wait() // check finds that parts of the cluster are missing
	}
	b.ReportMetric(first.Seconds(), "first-line-sec")
	b.ReportMetric(own, "own-MiB")
	b.ReportMetric(resident, "resident-MiB")
}

// peakMiB returns the highest memory of a process until it ends: its own, and all that is
// resident, including the pages of the program's file. The rusage of a process is useless here,
// because it starts with the memory of its parent.
func peakMiB(pid int, ended <-chan struct{}) (own, resident float64) {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		if text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid)); err == nil {
			own, resident = max(own, mib(string(text), "RssAnon:")), max(resident, mib(string(text), "VmHWM:"))
		}
		select {
		case <-tick.C:
		case <-ended:
			return own, resident
		}
	}
}

// mib returns the value of a line of /proc/PID/status, or 0 if the process has ended.
func mib(status, name string) float64 {
	_, rest, _ := strings.Cut(status, name)
	fields := strings.Fields(rest)
	if len(fields) == 0 {
		return 0
	}
	kib, _ := strconv.Atoi(fields[0]) // 0 if it is no number
	return float64(kib) / 1024
}
