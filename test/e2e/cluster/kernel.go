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
	// cgroupMount is the mount point of control groups, for both versions.
	cgroupMount = "/sys/fs/cgroup"
	// cgroupTimeout limits the removal of a control group. For a moment after
	// its last process has ended, the kernel returns an error.
	cgroupTimeout = 10 * time.Second
)

// kubeletSettings are the system-wide kernel settings that a kubelet changes
// (setupKernelTunables of its container manager).
var kubeletSettings = []string{
	"/proc/sys/vm/overcommit_memory",
	"/proc/sys/vm/panic_on_oom",
	"/proc/sys/kernel/panic",
	"/proc/sys/kernel/panic_on_oops",
	"/proc/sys/kernel/keys/root_maxkeys",
	"/proc/sys/kernel/keys/root_maxbytes",
}

// shieldKernelSettings replaces each kernel setting with a copy in dir, so that
// the kubelet changes nothing outside of the namespaces.
func shieldKernelSettings(dir string) error {
	for _, path := range kubeletSettings {
		value, err := os.ReadFile(path)
		if err != nil {
			return fmt.Errorf("shield the kernel settings: %w", err)
		}
		replacement := filepath.Join(dir, strings.ReplaceAll(path[1:], "/", "-"))
		if err := os.WriteFile(replacement, value, 0o600); err != nil {
			return fmt.Errorf("shield the kernel settings: %w", err)
		}
		if err := syscall.Mount(replacement, path, "", syscall.MS_BIND, ""); err != nil {
			return fmt.Errorf("shield the kernel setting %s: %w", path, err)
		}
	}
	return nil
}

// makeCgroup creates the control group in each hierarchy.
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
			return fmt.Errorf("create the pods' control group: %w", err)
		}
	}
	return nil
}

// enableControllers enables the controllers that a kubelet needs in children of
// the root control group. This is only necessary for version 2.
func enableControllers() error {
	available, err := os.ReadFile(filepath.Join(cgroupMount, "cgroup.controllers"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the cgroup controllers: %w", err)
	}
	wanted := []string{"cpu", "cpuset", "hugetlb", "memory", "pids"}
	for controller := range strings.FieldsSeq(string(available)) {
		if !slices.Contains(wanted, controller) {
			continue
		}
		file := filepath.Join(cgroupMount, "cgroup.subtree_control")
		if err := os.WriteFile(file, []byte("+"+controller), 0); err != nil {
			return fmt.Errorf("enable the cgroup controller %s: %w", controller, err)
		}
	}
	return nil
}

// cgroupRoots returns the mount points of control groups: one for each
// hierarchy of version 1, one for version 2, or both.
func cgroupRoots() ([]string, error) {
	file, err := os.Open("/proc/self/mounts")
	if err != nil {
		return nil, fmt.Errorf("read the cgroup mounts: %w", err)
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
		return nil, fmt.Errorf("read the cgroup mounts: %w", err)
	}
	if len(roots) == 0 {
		return nil, fmt.Errorf("no cgroup mounts found below %s, want version 1 or 2", cgroupMount)
	}
	return roots, nil
}

// removeCgroup removes the control group of makeCgroup and its children.
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
		return fmt.Errorf("remove the pods' control group: %w", err)
	}
	return nil
}

// removeTree removes a control group's directory. Only directories are removed:
// the files in it are virtual and disappear with them.
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
