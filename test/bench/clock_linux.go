// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"syscall"
	"time"
	"unsafe"
)

// cpuTime is the CPU time that the process has used, user and system, of all
// its threads, those that have ended among them, to the nanosecond: the
// process's CPU clock of clock_getcpuclockid(3), where /proc/PID/stat has only
// ticks of 10 ms.
func cpuTime(pid int) (time.Duration, error) {
	const sched = 2 // CPUCLOCK_SCHED of Linux's posix-timers.h
	var ts syscall.Timespec
	//nolint:gosec // the kernel fills the struct and keeps no pointer to it
	if _, _, errno := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, uintptr(^pid<<3|sched), uintptr(unsafe.Pointer(&ts)), 0); errno != 0 {
		return 0, fmt.Errorf("CPU clock of process %d: %w", pid, errno)
	}
	return time.Duration(ts.Nano()), nil
}
