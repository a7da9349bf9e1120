// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"flag"
	"strings"
	"testing"

	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/test/support/golden"
	"github.com/lanyard-dev/lanyard/test/support/inject"
	"github.com/lanyard-dev/lanyard/test/support/optionstest"
)

var update = flag.Bool("update", false, "write the recording of the demo")

// The README and the website show this recording as docs/demo.svg. It has the lines that the
// demo prints without an API server.
func TestTheRecordingOfTheFirstExample(t *testing.T) {
	t.Parallel()
	examples, err := readExamples("../../examples")
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	d := &demo{printer: &printer{w: &text}}
	e, r := examples[0], &result{}
	account := &annotations.Object{Namespace: e.account.Namespace, Name: e.account.Name, Annotations: e.account.Annotations}
	d.showExample(e)
	if _, err := d.showAdditions(e.pod, inject.Pod(t, optionstest.Settings(t, ""), account, e.pod), r); err != nil || len(r.failures) > 0 {
		t.Fatalf("got error %v and failures %q, want none", err, r.failures)
	}
	golden.Compare(t, "testdata/demo.txt", "make demo", strings.TrimPrefix(text.String(), "\n"), *update)
}
