// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"syscall"
	"time"
	"unsafe"
)

// cpuTime returns the CPU time of a process, user and system, for all threads
// including those that have ended. It reads the process's CPU clock
// (clock_getcpuclockid(3)) in nanoseconds, because /proc/PID/stat counts in
// ticks of 10 ms.
func cpuTime(pid int) (time.Duration, error) {
	const sched = 2 // CPUCLOCK_SCHED of Linux's posix-timers.h
	var ts syscall.Timespec
	//nolint:gosec // the kernel fills the struct and keeps no pointer to it
	if _, _, errno := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, uintptr(^pid<<3|sched), uintptr(unsafe.Pointer(&ts)), 0); errno != 0 {
		return 0, fmt.Errorf("read the CPU clock of process %d: %w", pid, errno)
	}
	return time.Duration(ts.Nano()), nil
}
