// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bufio"
	"flag"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The limits.
const (
	maxMemory = 70 << 20
	maxFirst  = 2 * time.Second
)

var lanyard = flag.String("lanyard", "", "`path` of lanyard")

// TestStatusOfALargeCluster measures "lanyard status --all-namespaces" with 20,000
// ServiceAccounts and 50,000 pods: its memory, and the time to its first output. The cluster
// is a server of canned responses in this process, so only the command is measured.
//
//	go build -o bin/lanyard ./cmd/lanyard &&
//	go test -v -run TestStatusOfALargeCluster ./internal/cli -args -lanyard ../../bin/lanyard
func TestStatusOfALargeCluster(t *testing.T) {
	if *lanyard == "" {
		t.Skip("takes long; set -lanyard to run it")
	}
	kubeconfig := (&largeCluster{namespaces: 400, serviceAccounts: 50, podsEach: 125, variables: 30}).start(t)
	command := exec.CommandContext(t.Context(), *lanyard, "--kubeconfig", kubeconfig, "status", "--all-namespaces")
	command.Stderr = os.Stderr
	output, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(output)
	if _, err := lines.ReadString('\n'); err != nil {
		t.Fatalf("first line: %v", err)
	}
	first := time.Since(start)
	rest, err := io.ReadAll(lines)
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Wait(); err != nil {
		t.Fatal(err)
	}
	usage, ok := command.ProcessState.SysUsage().(*syscall.Rusage)
	if !ok {
		t.Fatal("got no resource usage of the process")
	}
	memory := usage.Maxrss << 10 // KiB on Linux
	rows := strings.Count(string(rest), "\n")
	t.Logf("%d rows, first after %s, all after %s, at most %d MiB resident", rows, first, time.Since(start), memory>>20)
	if memory > maxMemory || first > maxFirst {
		t.Errorf("want at most %d MiB and the first output within %s", maxMemory>>20, maxFirst)
	}
}
