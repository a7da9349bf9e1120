// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !race

package memlimit_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/lanyard-dev/lanyard/test/support/memlimit"
)

func limitOf(t *testing.T, bytes int64) *memlimit.Limit {
	t.Helper()
	limit, err := memlimit.New(bytes)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := limit.Remove(); err != nil {
			t.Error(err)
		}
	})
	return limit
}

func TestTheCommandRunsWithItsArgumentsAndGOMEMLIMIT(t *testing.T) {
	t.Parallel()
	limit := limitOf(t, 100<<20)
	cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", `echo "$GOMEMLIMIT $0 $1"`, "a b", "c")
	limit.Apply(cmd)
	out, err := cmd.CombinedOutput()
	if got, want := strings.TrimSpace(string(out)), "94371840 a b c"; err != nil || got != want {
		t.Errorf("got %q and error %v, want %q", got, err, want)
	}
	if kills, err := limit.Kills(); err != nil || kills != 0 {
		t.Errorf("got %d kills and error %v, want none", kills, err)
	}
}

func TestAProgramAboveTheLimitIsKilled(t *testing.T) {
	t.Parallel()
	const bytes = 16 << 20
	limit := limitOf(t, bytes)
	if !limit.Enforced() {
		t.Skip("no control group can be created here")
	}
	// The shell keeps what it reads in its memory.
	cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", `x=$(head -c 67108864 /dev/zero | tr '\0' x); echo ${#x}`)
	limit.Apply(cmd)
	if out, err := cmd.CombinedOutput(); err == nil {
		t.Errorf("got no error and output %q, want that the program is killed", out)
	}
	if kills, err := limit.Kills(); err != nil || kills == 0 {
		t.Errorf("got %d kills and error %v, want at least one", kills, err)
	}
	if peak, err := limit.Peak(cmd.Process.Pid); err != nil || peak < bytes/2 || peak > bytes {
		t.Errorf("got a peak of %d bytes and error %v, want nearly %d", peak, err, bytes)
	}
}
