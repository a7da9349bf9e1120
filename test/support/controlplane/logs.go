// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// tailBytes is how much of a log's end goes into the error of a failed start.
const tailBytes = 2048

// logFile opens a log for the output of a process. It is a file, not a writer
// in this process, so that the wait for the process's end is a wait for that
// alone and not for the end of its output.
func (c *ControlPlane) logFile(opts Options, name string) (*os.File, error) {
	dir := opts.LogDir
	if dir == "" {
		dir = c.dir
	}
	file, err := os.Create(filepath.Join(dir, name))
	if err != nil {
		return nil, fmt.Errorf("making a log of the control plane: %w", err)
	}
	c.logs = append(c.logs, file)
	return file, nil
}

// logTails returns the end of each log, for the error of a failed start: all
// that envtest knows of one is that it took too long.
func (c *ControlPlane) logTails() string {
	var tails strings.Builder
	for _, log := range c.logs {
		// What cannot be read here is missing from a message about another
		// failure; there is nothing better to do about it.
		content, err := os.ReadFile(log.Name())
		if err != nil || len(content) == 0 {
			continue
		}
		content = bytes.TrimSpace(content[max(0, len(content)-tailBytes):])
		fmt.Fprintf(&tails, "\n%s ends with:\n%s", filepath.Base(log.Name()), content)
	}
	return tails.String()
}
