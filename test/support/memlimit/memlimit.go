// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package memlimit runs programs of tests under a memory limit.
package memlimit

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// goPercent is the part of the limit that Go's GOMEMLIMIT is set to.
const goPercent = 90

// removeTimeout limits the removal of a control group. For a moment after its
// last process has ended, the kernel returns an error.
const removeTimeout = 10 * time.Second

// Limit is a memory limit for one program, like that of a container: a control group
// (version 1 or 2), if this process may create one. Otherwise, the caller can only
// compare the peak with the limit. Make it with New, and remove it after the program
// has ended.
type Limit struct {
	// Bytes is the most memory that the program may use.
	Bytes int64
	dir   string // of the control group, or empty if there is none
	files files
}

// files are the names of a control group's files in one version.
type files struct {
	limit, peak string
	// kills holds the line "oom_kill N".
	kills string
	// swap limits the memory and the swap together in version 1, and the swap alone in
	// version 2.
	swap string
}

var (
	version1 = files{limit: "memory.limit_in_bytes", peak: "memory.max_usage_in_bytes", kills: "memory.oom_control", swap: "memory.memsw.limit_in_bytes"}
	version2 = files{limit: "memory.max", peak: "memory.peak", kills: "memory.events", swap: "memory.swap.max"}
)

// New returns a limit of this many bytes. If no control group can be created,
// the limit is not enforced.
func New(bytes int64) (*Limit, error) {
	l := &Limit{Bytes: bytes}
	// The path of version 1 comes first: where both are mounted, the memory
	// controller belongs to version 1.
	for _, hierarchy := range []struct {
		root  string
		files files
		swap  int64
	}{{"/sys/fs/cgroup/memory", version1, bytes}, {"/sys/fs/cgroup", version2, 0}} {
		dir, err := os.MkdirTemp(hierarchy.root, "lanyard-memlimit-")
		if err != nil {
			continue // not mounted, or without the right to create a group
		}
		if write(dir, hierarchy.files.limit, bytes) == nil {
			l.dir, l.files = dir, hierarchy.files
			// A program that may swap is not killed. Without this file, nothing is swapped.
			if err := write(dir, hierarchy.files.swap, hierarchy.swap); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, errors.Join(fmt.Errorf("limit the swap of a control group: %w", err), l.Remove())
			}
			return l, nil
		}
		if err := os.Remove(dir); err != nil {
			return nil, fmt.Errorf("remove a control group without a memory limit: %w", err)
		}
	}
	return l, nil
}

// write writes a number to a file of a control group. The kernel has made the file, or does not
// know it.
func write(dir, name string, number int64) error {
	file, err := os.OpenFile(filepath.Join(dir, name), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = file.WriteString(strconv.FormatInt(number, 10))
	return errors.Join(err, file.Close())
}

// Enforced reports whether the kernel enforces the limit.
func (l *Limit) Enforced() bool { return l.dir != "" }

// Apply changes the command so that it runs under the limit, with a GOMEMLIMIT of
// 90 % of it. It must be called before the command is started.
func (l *Limit) Apply(cmd *exec.Cmd) {
	cmd.Env = append(cmd.Environ(), "GOMEMLIMIT="+strconv.FormatInt(l.Bytes*goPercent/100, 10))
	if !l.Enforced() {
		return
	}
	// The shell joins the group before it becomes the program, so that all of the
	// program's memory counts.
	cmd.Args = append([]string{"sh", "-c", `echo $$ >"$0" && exec "$@"`, filepath.Join(l.dir, "cgroup.procs"), cmd.Path}, cmd.Args[1:]...)
	cmd.Path = "/bin/sh"
}

// Kills returns the number of processes that the kernel has killed because of the limit. It
// returns 0 if the limit is not enforced.
func (l *Limit) Kills() (int64, error) {
	if !l.Enforced() {
		return 0, nil
	}
	return readField(filepath.Join(l.dir, l.files.kills), "oom_kill")
}

// Peak returns the most memory that the process has used, in bytes. If the limit
// is enforced, that includes the kernel's memory for the process; it returns 0 if the
// system does not report it.
func (l *Limit) Peak(pid int) (int64, error) {
	if l.Enforced() {
		text, err := os.ReadFile(filepath.Join(l.dir, l.files.peak))
		if err == nil {
			return strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
		}
		// Older kernels have no memory.peak.
		if !errors.Is(err, fs.ErrNotExist) {
			return 0, fmt.Errorf("read the peak of the control group: %w", err)
		}
	}
	kib, err := readField(fmt.Sprintf("/proc/%d/status", pid), "VmHWM:")
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	return kib << 10, err
}

// readField returns the number after a name at the beginning of a line.
func readField(file, name string) (int64, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if words := strings.Fields(line); len(words) > 1 && words[0] == name {
			return strconv.ParseInt(words[1], 10, 64)
		}
	}
	return 0, fmt.Errorf("%s: got no line %s", file, name)
}

// Remove removes the control group, whose program must have ended.
func (l *Limit) Remove() error {
	if !l.Enforced() {
		return nil
	}
	deadline := time.Now().Add(removeTimeout)
	for {
		err := os.Remove(l.dir)
		if err == nil || time.Now().After(deadline) {
			return err
		}
		time.Sleep(10 * time.Millisecond)
	}
}
