// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package bounds

import (
	"os"
	"regexp"
	"strconv"
	"testing"
)

// chartLimits returns the memory limit and GOMEMLIMIT of the chart, in bytes.
func chartLimits(t *testing.T) (memory, goMemory int64) {
	t.Helper()
	text, err := os.ReadFile("../../../deploy/base/40-deployment.yaml")
	if err != nil {
		t.Fatal(err)
	}
	number := func(pattern string) int64 {
		t.Helper()
		found := regexp.MustCompile(pattern).FindSubmatch(text)
		if found == nil {
			t.Fatalf("the Deployment has nothing like %s", pattern)
		}
		n, err := strconv.ParseInt(string(found[1]), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	return number(`limits:\s+memory: (\d+)Mi`) << 20, number(`name: GOMEMLIMIT\s+value: "?(\d+)"?`)
}

// TestManyServiceAccountsFit in internal/webhook/metadatacache checks that 20,000
// ServiceAccounts fit.
func TestAllStagesTogetherTakeLessThanTheLimitOfTheChart(t *testing.T) {
	t.Parallel()
	limit, memory := chartLimits(t)
	var sum int64
	for _, stage := range Stages(memory) {
		all := int64(stage.Count) * stage.Bytes
		t.Logf("%5.1f MiB  %s: %d of %d KiB (%s)", float64(all)/(1<<20), stage.Name, stage.Count, stage.Bytes>>10, stage.HeldBy)
		sum += all
	}
	t.Logf("%5.1f MiB in total, of %d", float64(sum)/(1<<20), limit>>20)
	if sum > limit {
		t.Errorf("got stages of %d bytes together, want at most %d, the limit of the chart", sum, limit)
	}
}
