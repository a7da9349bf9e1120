// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package annotations

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/lanyard-dev/lanyard/internal/texts"
)

// Limits of the text that a message repeats: messages are logged, and the annotations of
// an object may have 256 KiB.
const (
	maxShownKeys = 8
	maxListBytes = 1024 // of the names of profiles
)

// shown truncates a value for a message.
func shown(value string) string { return texts.Cut(value, texts.MaxShown) }

// at returns the path of an annotation for a message.
func at(key string) *field.Path { return annotationsPath.Key(texts.Cut(key, texts.MaxKey)) }

var (
	annotationsPath = field.NewPath("metadata", "annotations")
	labelsPath      = field.NewPath("metadata", "labels")
)

// parser reads the annotations of one object and collects the errors.
type parser struct {
	*Settings

	annotations map[string]string
	errs        field.ErrorList
}

// add adds the error at a key.
func (p *parser) add(key string, err *field.Error) { p.errs = append(p.errs, err.WithOrigin(key)) }

// KeyOf returns the annotation key that an error of a Parse function is about, or "" if it is
// not about a single annotation.
func KeyOf(err *field.Error) string { return err.Origin }

// invalid adds an error about the value of key, only once because several providers may read it.
func (p *parser) invalid(key string, err error) {
	if slices.ContainsFunc(p.errs, func(e *field.Error) bool { return KeyOf(e) == key }) {
		return
	}
	p.add(key, field.Invalid(at(key), shown(p.annotations[key]), err.Error()))
}

// parse reads the value of key with grammar. It returns "" if the key is not set.
func (p *parser) parse(key string, grammar func(string) (string, error)) string {
	value, found := p.annotations[key]
	if !found {
		return ""
	}
	parsed, err := grammar(value)
	if err != nil {
		p.invalid(key, err)
	}
	return parsed
}

// expiration reads the lifetime of the tokens. It returns 0 if none is set.
func (p *parser) expiration(least int64) int64 {
	value, found := p.annotations[TokenExpirationSeconds]
	if !found {
		return 0
	}
	seconds, err := ParseTokenExpirationSeconds(value, least)
	if err != nil {
		p.invalid(TokenExpirationSeconds, err)
	}
	return seconds
}

// denyUnknown adds an error for each unknown key under the prefix, with the nearest known
// one. Otherwise, a typo would pass silently, and the pod would run without its identity.
func (p *parser) denyUnknown(unknown, known []string, hint string) {
	for i, key := range unknown {
		if i == maxShownKeys {
			p.errs = append(p.errs, field.TooMany(annotationsPath, len(unknown), 0))
			break
		}
		detail := fmt.Sprintf("has value %q and %s", shown(p.annotations[key]), hint)
		if slices.Contains(p.files(), key) {
			detail = hint // a credential file is not repeated
		}
		if nearest := nearestKey(key, known); nearest != "" {
			detail += "; the nearest key is " + nearest
		}
		if i == 0 {
			detail += "; known keys are " + strings.Join(known, ", ")
		}
		p.add(key, field.Forbidden(at(key), detail))
	}
}

// nearestKey returns the key that was probably meant, or "".
func nearestKey(mistyped string, known []string) string {
	names := make([]string, len(known))
	for i, key := range known {
		names[i] = strings.TrimPrefix(key, Prefix)
	}
	nearest := texts.Nearest(strings.TrimPrefix(mistyped, Prefix), names)
	if nearest == "" {
		return ""
	}
	return Prefix + nearest
}
