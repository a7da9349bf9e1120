// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package bounds

import (
	"os"
	"regexp"
	"strconv"
	"testing"
)

// Estimates of memory that the pools do not count.
const (
	// idleBytes is the memory without any caller, mostly the program itself.
	idleBytes = 15 << 20
	// usedBytes is the memory of a connection afterwards, for buffers, stacks and goroutines.
	// plainBytes is that without TLS.
	usedBytes, plainBytes = 40 << 10, 24 << 10
	// preparedBytes is the limit of a mutate.Cache.
	preparedBytes = 2 << 20
	// readBytes is the memory of a live read: a goroutine and a request to the API server.
	readBytes = 8 << 10
	// decodedTimes is the ratio of the memory for decoding metadata to its size: the smallest
	// owner references take 4.6 times their encoding, and a growing slice exists twice.
	decodedTimes = 10
)

// stage is a stage of a request, or memory that is used without one.
type stage struct {
	// heldBy names the code that enforces the limit.
	name, heldBy string
	// count is the maximum number at a time.
	count int
	// bytes is the memory of each.
	bytes int64
}

// stages returns all stages of a program with this GOMEMLIMIT. A request is in one stage at a
// time, so their sum is an upper bound of the program's memory.
func stages(memory int64) []stage {
	const connection = usedBytes + UsualBody
	accounts, namespaces := CacheBytes(memory)
	return []stage{
		{"without a caller", "", 1, idleBytes},
		{"ServiceAccounts", "metadatacache.Options.MaxTotalBytes", 1, accounts},
		{"Namespaces", "metadatacache.Options.MaxTotalBytes", 1, namespaces},
		{"additions to pods that are kept", "mutate.Cache", 1, preparedBytes},
		{"before the first request: the handshake and a header", "Connections.Fresh, FirstBytes, HandshakeTimeout", Reviews.Fresh, FreshBytes},
		{"between requests, and with a usual body", "Connections.Open", Reviews.Open - Reviews.Fresh, connection},
		{"after the connection was closed", "Connections.Ending, the request's context", Reviews.Ending, connection},
		{"while a larger body arrives", "Pool of LargeBodies, bodyTimeout", 1, LargeBodies},
		{"while a usual decision waits", "Pool of UsualDecisions, ?timeout=", 1, UsualDecisions},
		{"while a larger decision waits", "Pool of LargeDecisions, ?timeout=", 1, LargeDecisions},
		{"while a live read waits", "a handler waits for one; readTimeout", Reviews.Open + Reviews.Ending, readBytes},
		{"while a ServiceAccount or Namespace is read", "Pool of Reads, UsualMetadata, readTimeout", 2 * Reads, readBytes + decodedTimes*UsualMetadata},
		{"while large metadata is read", "a Pool of one turn, LargeMetadata, readTimeout", 2, decodedTimes * LargeMetadata},
		{"while a response is written", "Pool of Responses, writeTimeout", 1, Responses},
		{"before the first request of the metrics, if they have TLS", "as above", Others.Fresh, FreshBytes - plainBytes},
		{"on the ports of metrics and probes", "Connections", 2 * (Others.Open + Others.Ending), plainBytes},
	}
}

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
	for _, stage := range stages(memory) {
		all := int64(stage.count) * stage.bytes
		t.Logf("%5.1f MiB  %s: %d of %d KiB (%s)", float64(all)/(1<<20), stage.name, stage.count, stage.bytes>>10, stage.heldBy)
		sum += all
	}
	t.Logf("%5.1f MiB in total, of %d", float64(sum)/(1<<20), limit>>20)
	if sum > limit {
		t.Errorf("got stages of %d bytes together, want at most %d, the limit of the chart", sum, limit)
	}
}
