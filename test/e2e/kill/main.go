// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Command kill sends SIGKILL to the processes of containers. It finds them by
// the container or pod ID among all processes of a node, and keeps killing
// their replacements for the given duration. It runs in a pod that shares the
// node's process namespace.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

func main() {
	duration := flag.Duration("for", 0, "how long to keep killing; 0 kills once")
	flag.Parse()
	killed, err := run(flag.Args(), *duration)
	fmt.Printf("killed %d\n", killed)
	if err == nil && killed == 0 {
		err = errors.New("no process found")
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "kill: %v\n", err)
		os.Exit(1)
	}
}

// run kills all processes whose cgroup names contain one of the IDs of
// containers or pods. It returns the number of killed processes.
func run(texts []string, duration time.Duration) (killed int, err error) {
	if len(texts) == 0 {
		return 0, errors.New("no IDs given, want IDs of containers or pods")
	}
	for end := time.Now().Add(duration); ; time.Sleep(20 * time.Millisecond) {
		n, err := killAll(texts)
		if killed += n; err != nil || !time.Now().Before(end) {
			return killed, err
		}
	}
}

func killAll(texts []string) (killed int, err error) {
	files, err := filepath.Glob("/proc/[0-9]*/cgroup")
	if err != nil {
		return 0, err
	}
	for _, file := range files {
		cgroups, err := os.ReadFile(file)
		if err != nil || !containsAny(cgroups, texts) || isPause(filepath.Dir(file)) {
			continue // ended in the meantime, or not selected
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err != nil {
			return killed, err
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err == nil {
			killed++
		} else if !errors.Is(err, syscall.ESRCH) {
			return killed, fmt.Errorf("kill process %d: %w", pid, err)
		}
	}
	return killed, nil
}

// isPause reports whether the process is a pause process. These are not killed,
// because they do not crash in practice.
func isPause(directory string) bool {
	name, err := os.ReadFile(filepath.Join(directory, "comm"))
	return err == nil && string(bytes.TrimSpace(name)) == "pause"
}

func containsAny(cgroups []byte, texts []string) bool {
	for _, text := range texts {
		if bytes.Contains(cgroups, []byte(text)) {
			return true
		}
	}
	return false
}
