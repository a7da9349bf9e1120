// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"sync/atomic"
	"testing"
)

func TestAReplicaIsReadyOnceItServes(t *testing.T) {
	t.Parallel()
	var serving atomic.Bool
	check := checkServing(&serving)
	if err := check(nil); err == nil || err.Error() != "not serving yet" {
		t.Errorf("got error %v, want that it does not serve yet", err)
	}
	serving.Store(true)
	if err := check(nil); err != nil {
		t.Errorf("got error %v while it serves, want none", err)
	}
}
