// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bufio"
	"flag"
	"io"
	"net/http/httptest"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

var lanyard = flag.String("lanyard", "", "`path` of lanyard")

// BenchmarkStatusOfALargeCluster measures "lanyard status --all-namespaces" with 20,000
// ServiceAccounts and 50,000 pods: its memory, and the time to its first output. The cluster
// is a server of canned responses in this process, so only the command is measured.
//
//	go build -o bin/lanyard ./cmd/lanyard &&
//	go test -run '^$' -bench StatusOfALargeCluster -benchtime 1x ./internal/cli -args -lanyard ../../bin/lanyard
func BenchmarkStatusOfALargeCluster(b *testing.B) {
	if *lanyard == "" {
		b.Skip("takes long; set -lanyard to run it")
	}
	server := httptest.NewServer((&largeCluster{namespaces: 400, serviceAccounts: 50, podsEach: 125, variables: 30}).start(b))
	defer server.Close()
	for b.Loop() {
		command := exec.CommandContext(b.Context(), *lanyard, "--kubeconfig", os.DevNull, "--server", server.URL, "status", "--all-namespaces")
		command.Stderr = os.Stderr
		output, err := command.StdoutPipe()
		if err != nil {
			b.Fatal(err)
		}
		start := time.Now()
		if err := command.Start(); err != nil {
			b.Fatal(err)
		}
		lines := bufio.NewReader(output)
		if _, err := lines.ReadString('\n'); err != nil {
			b.Fatalf("first line: %v", err)
		}
		b.ReportMetric(time.Since(start).Seconds(), "first-line-sec")
		if _, err := io.Copy(io.Discard, lines); err != nil {
			b.Fatal(err)
		}
		if err := command.Wait(); err != nil {
			b.Fatal(err)
		}
		if usage, ok := command.ProcessState.SysUsage().(*syscall.Rusage); ok {
			b.ReportMetric(float64(usage.Maxrss)/1024, "MiB") // KiB on Linux
		}
	}
}
