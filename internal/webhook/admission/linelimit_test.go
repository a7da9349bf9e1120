// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// With lines of 1 KiB, a replica writes less than 1 MiB a minute.
func TestTheLinesOfAMinuteAreLimited(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		lines := newLineLimiter()
		allowed := 0
		for i := range 60 * 200 {
			if _, ok := lines.allow(topic{namespace: fmt.Sprint("team-", i)}); ok {
				allowed++
			}
			time.Sleep(5 * time.Millisecond)
		}
		if most := 256 + 60*8; allowed > most {
			t.Errorf("got %d lines in a minute, want at most %d", allowed, most)
		}
		if got := len(lines.topics); got > maxTopics {
			t.Errorf("got %d topics that are remembered, want at most %d", got, maxTopics)
		}
	})
}
