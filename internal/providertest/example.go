// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package providertest

import (
	"regexp/syntax"
	"slices"
	"strings"

	"github.com/lanyard-dev/lanyard/pkg/provider"
)

// example returns a value of a parameter that has the pattern. It reports false if
// it cannot make one up.
func example(p *provider.Parameter, pattern string) (string, bool) {
	for _, value := range candidates(pattern) {
		if read, err := p.Read(value); err == nil {
			return read, true
		}
	}
	return "", false
}

// candidates returns texts that may match a pattern: a short one, and one with each
// optional part.
func candidates(pattern string) []string {
	if pattern == "" {
		return []string{"example"}
	}
	tree, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return nil
	}
	return []string{matching(tree, 0), matching(tree, 1)}
}

// matching returns a text that matches the expression. Optional parts are there
// optional times. A text that depends on its surroundings, as for a word boundary,
// may not match.
func matching(re *syntax.Regexp, optional int) string {
	var text strings.Builder
	switch re.Op {
	case syntax.OpLiteral:
		return string(re.Rune)
	case syntax.OpCharClass:
		return string(runeOf(re.Rune))
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		return "x"
	case syntax.OpAlternate:
		return matching(re.Sub[0], optional)
	case syntax.OpConcat, syntax.OpCapture, syntax.OpPlus:
		for _, sub := range re.Sub {
			text.WriteString(matching(sub, optional))
		}
	case syntax.OpStar, syntax.OpQuest:
		return strings.Repeat(matching(re.Sub[0], optional), optional)
	case syntax.OpRepeat:
		times := max(re.Min, optional)
		if re.Max >= 0 {
			times = min(times, re.Max)
		}
		return strings.Repeat(matching(re.Sub[0], optional), times)
	}
	return text.String()
}

// runeOf returns a character of a class, which is a list of ranges: one that is easy
// to read, if possible.
func runeOf(class []rune) rune {
	for _, preferred := range "x0aA" {
		for bounds := range slices.Chunk(class, 2) {
			if bounds[0] <= preferred && preferred <= bounds[1] {
				return preferred
			}
		}
	}
	if len(class) == 0 {
		return ' ' // no text matches
	}
	return class[0]
}
