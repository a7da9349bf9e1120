// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package status measures "lanyard status --all-namespaces" on a large cluster: its
// memory, and the time to its first output. The cluster is a server of canned
// responses in this process, so only the command is measured.
//
//	go build -o bin/lanyard ./cmd/lanyard && go test -v ./test/bench/status -args -lanyard ../../../bin/lanyard
package status

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

	"github.com/lanyard-dev/lanyard/test/support/largecluster"
)

// The cluster.
const (
	namespaces      = 400
	serviceAccounts = 50  // in each namespace: 20,000
	pods            = 125 // in each namespace: 50,000
)

// The limits.
const (
	maxMemory = 70 << 20
	maxFirst  = 2 * time.Second
)

var lanyard = flag.String("lanyard", "", "`path` of lanyard")

func TestStatusOfALargeCluster(t *testing.T) {
	if *lanyard == "" {
		t.Skip("takes long; set -lanyard to run it")
	}
	kubeconfig := (&largecluster.Cluster{Namespaces: namespaces, ServiceAccounts: serviceAccounts, Pods: pods, Variables: 30}).Start(t)
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
