// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/lanyard-dev/lanyard/internal/texts"
	"github.com/lanyard-dev/lanyard/pkg/mutate/reason"
)

// Limits of the log lines about requests: a burst, then a rate per second. With lines of 1
// KiB, a replica logs less than 1 MiB a minute.
const (
	linesAtOnce, linesPerSecond = 10, 1 // for one namespace and reason
	allAtOnce, allPerSecond     = 256, 8
	// maxTopics limits the namespaces and reasons that are remembered.
	maxTopics = 1024
	// Limits of the parts of a line in bytes. A line has less than 1 KiB, even if every
	// character is escaped.
	maxLoggedID, maxLoggedName, maxLoggedText = 40, 80, 256
)

// topic identifies similar log lines. In a forged request, the namespace can be any text.
type topic struct {
	namespace string
	reason    reason.Reason
}

// lineLimiter limits the log lines about requests.
type lineLimiter struct {
	mu     sync.Mutex
	all    *rate.Limiter
	topics map[topic]*topicLines
}

type topicLines struct {
	limiter *rate.Limiter
	leftOut int // lines since the last one
}

func newLineLimiter() *lineLimiter {
	return &lineLimiter{all: rate.NewLimiter(allPerSecond, allAtOnce), topics: map[topic]*topicLines{}}
}

// allow reports whether to write a line about the topic, and how many lines were left
// out before it.
func (l *lineLimiter) allow(t topic) (leftOut int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	lines := l.topics[t]
	if lines == nil {
		if len(l.topics) >= maxTopics {
			// The limit for all lines still holds.
			clear(l.topics)
		}
		lines = &topicLines{limiter: rate.NewLimiter(linesPerSecond, linesAtOnce)}
		l.topics[t] = lines
	}
	// A topic that has used up its lines does not use those of others.
	if now := time.Now(); !lines.limiter.AllowN(now, 1) || !l.all.AllowN(now, 1) {
		lines.leftOut++
		return 0, false
	}
	leftOut, lines.leftOut = lines.leftOut, 0
	return leftOut, true
}

// loggedName truncates a name for a log line, and replaces invalid characters. In a forged
// request, a name can be any text, and escaping would make it longer.
func loggedName(name string, limit int) string { return printable(texts.Cut(name, limit), `"\`) }

// loggedText is like loggedName for a message, which may have quotes.
func loggedText(text string) string { return printable(texts.Cut(text, maxLoggedText), "") }

// printable replaces these characters, and all but visible ASCII characters and spaces.
func printable(text, replaced string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' || strings.ContainsRune(replaced, r) {
			return '?'
		}
		return r
	}, text)
}
