// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"errors"
	"fmt"
)

// Exit codes of every command, as of kubectl diff.
const (
	// ExitOK means that all is well.
	ExitOK = 0
	// ExitFound means that a command found something that is wrong.
	ExitFound = 1
	// ExitFailed means that a command could not look: it had an error, or the command line
	// is wrong.
	ExitFailed = 2
)

// ErrFound ends a command with ExitFound. It has no message of its own: the output
// of the command shows the findings.
var ErrFound = errors.New("found a problem, see the output")

// FoundIf returns the error of a command: ErrFound if the command found a problem and had
// no other error.
func FoundIf(found bool, err error) error {
	if found && err == nil {
		return ErrFound
	}
	return err
}

// finding is an error that is a finding, with a message.
type finding struct{ error }

// Is makes a finding an ErrFound.
func (finding) Is(target error) bool { return target == ErrFound }

// Findingf returns an ErrFound that is printed: the finding of a command that has no output
// to show it.
func Findingf(format string, args ...any) error { return finding{fmt.Errorf(format, args...)} }

// UsageError is a mistake in the command line that cobra does not find.
type UsageError struct{ error }

// Usagef returns a UsageError.
func Usagef(format string, args ...any) error { return UsageError{fmt.Errorf(format, args...)} }

// Exit prints the error of a command, if any, and returns the exit code. help is the command
// whose --help the user of a wrong command line may read.
func (c *CLI) Exit(err error, help string) int {
	_, hasMessage := errors.AsType[finding](err)
	switch isFound := errors.Is(err, ErrFound); {
	case err == nil:
		return ExitOK
	case isFound && !hasMessage:
		return ExitFound
	case isFound:
		c.Note("error: %v", err)
		return ExitFound
	}
	c.Note("error: %v", err)
	if _, isUsage := errors.AsType[UsageError](err); isUsage || !c.Started {
		c.Note("See '%s --help' for usage.", help)
	}
	return ExitFailed
}
