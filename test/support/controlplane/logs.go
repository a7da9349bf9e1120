// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/lanyard-dev/lanyard/test/support/process"
)

// logFile creates a log for the output of a process. envtest's wait for the end
// of a process would also wait for the end of its output if this were not a
// file.
func (c *ControlPlane) logFile(opts Options, name string) (*os.File, error) {
	dir := opts.LogDir
	if dir == "" {
		dir = c.dir
	}
	file, err := os.Create(filepath.Join(dir, name))
	if err != nil {
		return nil, fmt.Errorf("create a log of the control plane: %w", err)
	}
	c.logs = append(c.logs, file)
	return file, nil
}

// logTails returns the end of each log for the error of a failed start, because
// envtest only reports that a process took too long.
func (c *ControlPlane) logTails() string {
	var tails strings.Builder
	for _, log := range c.logs {
		tails.WriteString(process.Tail(log.Name()))
	}
	return tails.String()
}
