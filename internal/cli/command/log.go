// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"flag"
	"io"
	"log/slog"
	"strconv"

	"k8s.io/klog/v2"
)

// maxVerbosity is the highest verbosity of the log. From 8 on, client-go logs the bodies of
// requests and responses: tokens, and objects with Secrets.
const maxVerbosity = 7

// NewLogHandler returns the handler of the messages that the libraries log. They contain text
// of the cluster, and slog quotes it.
func NewLogHandler(w io.Writer) slog.Handler {
	return slog.NewTextHandler(w, &slog.HandlerOptions{Level: verbosity{}})
}

// verbosity is the verbosity of klog as a level: -6 is the level of klog.V(6).
type verbosity struct{}

// Level implements slog.Leveler.
func (verbosity) Level() slog.Level {
	level := maxVerbosity
	for level > 0 && !klog.V(klog.Level(level)).Enabled() {
		level--
	}
	return slog.Level(-level)
}

// SetVerbosity sets the verbosity of the libraries' log.
func SetVerbosity(level int) error {
	if level <= 0 {
		return nil
	}
	var flags flag.FlagSet
	klog.InitFlags(&flags)
	return flags.Set("v", strconv.Itoa(min(level, maxVerbosity)))
}
