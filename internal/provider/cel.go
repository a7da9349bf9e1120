// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"regexp"

	"github.com/lanyard-dev/lanyard/internal/texts"
)

// Policies of the API server cannot call the functions of a definition. The types of this
// file have the functions as expressions of the Common Expression Language (CEL), next to
// the functions. A test in test/policies compares each pair.
//
// In an expression, {NAME} is a value, as in Values and in templates.

// Grammar has Parameter.Parse and Parameter.Expand as expressions. In all of them,
// "value" is the value.
type Grammar struct {
	// Checks are made in order. The first one that is false denies the value.
	Checks []Check
	// Canonical is the canonical spelling of a valid value; empty for the value as it is.
	// It never fails.
	Canonical string
	// Expand is the full form of a short value; empty without Parameter.Expand. A {NAME}
	// is the cluster's value of a parameter.
	Expand string
}

// Check is one condition for a value.
type Check struct {
	// Valid is true for a valid value.
	Valid string
	// Want completes the sentence "VALUE ...", as an error of Parameter.Parse does.
	Want string
}

// Derived is a value of Definition.Derive.
type Derived struct {
	// Name is the name of the value. Value is the expression.
	Name, Value string
	// Valid is false if the expression cannot have the value; empty for always true. Want
	// then completes the sentence "the ServiceAccount ...".
	Valid, Want string
}

// PodNameFitsCEL is PodNameFits as an expression. "value" is the name.
const PodNameFitsCEL = `value == '' || value.size() >= 2 && value.size() <= 64`

// MatchesCEL is true for the values that match the pattern.
func MatchesCEL(pattern *regexp.Regexp) string {
	return "value.matches(" + texts.QuoteCEL(pattern.String()) + ")"
}

// LowerGUID is the canonical spelling of a value that may be a GUID.
func LowerGUID() string { return isGUID() + " ? value.lowerAscii() : value" }

func isGUID() string { return "value.matches(" + texts.QuoteCEL(texts.GUIDPattern) + ")" }
