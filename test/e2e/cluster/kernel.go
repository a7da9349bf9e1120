// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

const (
	// cgroupMount is where control groups are mounted, of either version.
	cgroupMount = "/sys/fs/cgroup"
	// cgroupTimeout is how long the removal of a control group may take. The
	// kernel refuses it for a moment after the last process in it ended.
	cgroupTimeout = 10 * time.Second
)

// kubeletSettings are the settings of the whole kernel that a kubelet changes
// (setupKernelTunables of its container manager).
var kubeletSettings = []string{
	"/proc/sys/vm/overcommit_memory",
	"/proc/sys/vm/panic_on_oom",
	"/proc/sys/kernel/panic",
	"/proc/sys/kernel/panic_on_oops",
	"/proc/sys/kernel/keys/root_maxkeys",
	"/proc/sys/kernel/keys/root_maxbytes",
}

// shieldKernelSettings puts a copy in dir in the place of each of the kernel's
// settings, so that what a kubelet writes there changes nothing outside.
func shieldKernelSettings(dir string) error {
	for _, path := range kubeletSettings {
		value, err := os.ReadFile(path)
		if err != nil {
			return fmt.Errorf("shielding the kernel's settings: %w", err)
		}
		replacement := filepath.Join(dir, strings.ReplaceAll(path[1:], "/", "-"))
		if err := os.WriteFile(replacement, value, 0o600); err != nil {
			return fmt.Errorf("shielding the kernel's settings: %w", err)
		}
		if err := syscall.Mount(replacement, path, "", syscall.MS_BIND, ""); err != nil {
			return fmt.Errorf("shielding the kernel's setting %s: %w", path, err)
		}
	}
	return nil
}

// makeCgroup makes the control group in each hierarchy.
func makeCgroup(name string) error {
	if err := enableControllers(); err != nil {
		return err
	}
	roots, err := cgroupRoots()
	if err != nil {
		return err
	}
	for _, root := range roots {
		if err := os.Mkdir(filepath.Join(root, name), 0o755); err != nil {
			return fmt.Errorf("making the control group of the pods: %w", err)
		}
	}
	return nil
}

// enableControllers sees to it that under version 2 a child of the root can
// limit what a kubelet wants to. Under version 1 there is nothing to do.
func enableControllers() error {
	available, err := os.ReadFile(filepath.Join(cgroupMount, "cgroup.controllers"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading the controllers of control groups: %w", err)
	}
	wanted := []string{"cpu", "cpuset", "hugetlb", "memory", "pids"}
	for controller := range strings.FieldsSeq(string(available)) {
		if !slices.Contains(wanted, controller) {
			continue
		}
		file := filepath.Join(cgroupMount, "cgroup.subtree_control")
		if err := os.WriteFile(file, []byte("+"+controller), 0); err != nil {
			return fmt.Errorf("enabling the controller %s of control groups: %w", controller, err)
		}
	}
	return nil
}

// cgroupRoots returns where control groups are mounted: once for each hierarchy
// of version 1, once for version 2, or both where a machine has both.
func cgroupRoots() ([]string, error) {
	file, err := os.Open("/proc/self/mounts")
	if err != nil {
		return nil, fmt.Errorf("reading the control groups: %w", err)
	}
	defer file.Close()
	var roots []string
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		// Source, mount point, type, options.
		fields := strings.Fields(lines.Text())
		if len(fields) > 2 && strings.HasPrefix(fields[1], cgroupMount) && (fields[2] == "cgroup" || fields[2] == "cgroup2") {
			roots = append(roots, fields[1])
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("reading the control groups: %w", err)
	}
	if len(roots) == 0 {
		return nil, fmt.Errorf("got no control groups below %s, want those of version 1 or 2", cgroupMount)
	}
	return roots, nil
}

// removeCgroup removes what makeCgroup made and all that is below it.
func removeCgroup(name string) error {
	roots, err := cgroupRoots()
	if err != nil {
		return err
	}
	deadline := time.Now().Add(cgroupTimeout)
	var errs []error
	for _, root := range roots {
		dir := filepath.Join(root, name)
		err := removeTree(dir)
		for err != nil && time.Now().Before(deadline) {
			time.Sleep(20 * time.Millisecond)
			err = removeTree(dir)
		}
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("removing the control group of the pods: %w", err)
	}
	return nil
}

// removeTree removes a directory of a control group. Its files are no obstacle
// and cannot be removed.
func removeTree(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if entry.IsDir() {
			if err := removeTree(filepath.Join(dir, entry.Name())); err != nil {
				return err
			}
		}
	}
	return os.Remove(dir)
}
