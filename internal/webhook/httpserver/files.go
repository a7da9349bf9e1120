// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package httpserver

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/util/wait"
)

// defaultInterval is how often the files are read. A kubelet takes a minute or two to update
// a mounted Secret, so ten more seconds do not matter.
const defaultInterval = 10 * time.Second

// Files are files that belong together, such as a certificate and its key. Start reads
// them again when they change.
//
// controller-runtime's certwatcher is not used: it ignores a change of the
// intermediate certificates, logs broken files every ten seconds, and adds metrics to a
// global registry. If the node has no inotify watches left, it gives up after ten
// seconds, and the files are never read again.
type Files struct {
	// Interval is the time between reads. It must not be changed after Start.
	Interval time.Duration
	// Report, if set, gets the result of each read. It must not be changed after Start.
	Report func(error)

	names    []string
	use      func(contents [][]byte) error
	log      logr.Logger
	contents [][]byte // as last used
}

// NewFiles returns files that are not read yet. use gets their contents, in the order of the
// names, whenever they have changed. If it returns an error, it must not keep any of them.
func NewFiles(use func(contents [][]byte) error, log logr.Logger, names ...string) *Files {
	return &Files{Interval: defaultInterval, names: names, use: use, log: log}
}

// Load reads the files, and uses them if they have changed.
func (f *Files) Load() error {
	contents := make([][]byte, len(f.names))
	for i, name := range f.names {
		var err error
		if contents[i], err = os.ReadFile(name); err != nil {
			return err
		}
	}
	if slices.EqualFunc(contents, f.contents, bytes.Equal) {
		return nil
	}
	if err := f.use(contents); err != nil {
		return err
	}
	f.contents = contents
	return nil
}

// Start loads changed files until ctx is done. If the files cannot be used, it
// logs the error once, and the previous content stays in use.
func (f *Files) Start(ctx context.Context) error {
	last := ""
	_ = wait.PollUntilContextCancel(ctx, f.Interval, false, func(context.Context) (bool, error) {
		err := f.Load()
		if f.Report != nil {
			f.Report(err)
		}
		if err != nil && err.Error() != last {
			f.log.Error(err, "Failed to load changed files, keeping the previous content", "files", f.names)
		}
		last = fmt.Sprint(err)
		return false, nil
	})
	return nil
}

// CheckPEM returns an error if a PEM file ends within a block: a program may still be writing
// it, and package pem ignores such a block.
func CheckPEM(text []byte) error {
	if begun, ended := bytes.Count(text, []byte("-----BEGIN ")), bytes.Count(text, []byte("-----END ")); begun != ended {
		return fmt.Errorf("got %d beginnings and %d ends of PEM blocks, want as many of both", begun, ended)
	}
	return nil
}
