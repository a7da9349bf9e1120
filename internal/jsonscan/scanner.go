// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package jsonscan reads JSON (RFC 8259) in place. Callers walk to the few values
// that they need. The rest is checked and skipped, neither decoded nor copied. It
// accepts the same input as encoding/json.
//
//	scanner.go   reads: objects, arrays and strings
//	skip.go      skips
//	append.go    writes strings
//
// It can go when encoding/json/jsontext is stable and as fast.
package jsonscan

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"unicode/utf8"

	"github.com/lanyard-dev/lanyard/internal/texts"
)

// Kind is the kind of a value.
type Kind byte

// Kinds of values. Invalid means that no value comes next.
const (
	Invalid Kind = iota
	Object
	Array
	String
	Number
	Bool
	Null
)

// String names the kind as an error message shows it.
func (k Kind) String() string {
	return [...]string{"no value", "object", "array", "string", "number", "boolean", "null"}[k]
}

// Scanner is a position in a JSON text. It moves forward. The zero value is an
// empty text; make others with New.
type Scanner struct {
	data []byte
	pos  int
}

// New returns a Scanner at the start of data. data must not change while results
// of the Scanner are in use.
func New(data []byte) *Scanner { return &Scanner{data: data} }

// Pos returns the position in the text, in bytes.
func (s *Scanner) Pos() int { return s.pos }

// Rest returns the text behind the position. A caller that reads a value there itself moves on
// with Advance.
func (s *Scanner) Rest() []byte { return s.data[s.pos:] }

// Advance moves n bytes on.
func (s *Scanner) Advance(n int) { s.pos += n }

// Kind returns the kind of the value that comes next, without moving past it.
func (s *Scanner) Kind() Kind {
	s.space()
	if s.pos == len(s.data) {
		return Invalid
	}
	return kinds[s.data[s.pos]]
}

// kinds is the kind of a value by its first byte.
var kinds = [256]Kind{
	'{': Object, '[': Array, '"': String, 't': Bool, 'f': Bool, 'n': Null, '-': Number,
	'0': Number, '1': Number, '2': Number, '3': Number, '4': Number,
	'5': Number, '6': Number, '7': Number, '8': Number, '9': Number,
}

// maxNameBytes is more than the length of any name that callers know.
const maxNameBytes = 512

// Object calls member for each member of the object that comes next; a null has
// none. The callback may read the value with the Scanner, or leave it. The key is
// only valid until the next call. A key may be very long, and a long key with escape
// sequences may lose its end.
func (s *Scanner) Object(member func(key []byte) error) error {
	if done, err := s.open(Object); done || err != nil {
		return err
	}
	for first := true; ; first = false {
		closed, err := s.next('}', first)
		if closed || err != nil {
			return err
		}
		key, err := s.name()
		if err != nil {
			return err
		}
		s.space()
		start := s.pos
		if err := member(key); err != nil {
			return err
		}
		if err := s.skipUnread(start); err != nil {
			return err
		}
	}
}

// name reads a member's name and its colon.
func (s *Scanner) name() ([]byte, error) {
	if s.Kind() != String {
		return nil, s.want("the name of a member")
	}
	name, err := s.StringUpTo(maxNameBytes)
	if err != nil {
		return nil, err
	}
	if s.space(); s.pos == len(s.data) || s.data[s.pos] != ':' {
		return nil, s.want(`":"`)
	}
	s.pos++
	return name, nil
}

// Array calls element for each element of the array that comes next, as Object
// does for members.
func (s *Scanner) Array(element func(index int) error) error {
	if done, err := s.open(Array); done || err != nil {
		return err
	}
	for i := 0; ; i++ {
		if closed, err := s.next(']', i == 0); closed || err != nil {
			return err
		}
		s.space()
		start := s.pos
		if err := element(i); err != nil {
			return err
		}
		if err := s.skipUnread(start); err != nil {
			return err
		}
	}
}

// String reads the string that comes next; a null is the empty string. If nothing
// in it is escaped, the result is a part of the text.
func (s *Scanner) String() ([]byte, error) { return s.StringUpTo(math.MaxInt / longestEscape) }

// longestEscape is the length of an escape sequence such as \u0061. It stands for at least
// one byte.
const longestEscape = 6

// StringUpTo is like String for a caller that needs the first limit bytes. Of a string with
// more bytes, the result is right up to the limit, and longer than the limit.
func (s *Scanner) StringUpTo(limit int) ([]byte, error) {
	switch s.Kind() {
	case Null:
		return nil, s.Skip()
	case String:
	default:
		return nil, s.want("string")
	}
	start := s.pos
	end := skipString(s.data, start+1)
	if end == 0 {
		return nil, s.Skip() // which returns the error
	}
	s.pos = end
	quoted := s.data[start:end]
	if text := quoted[1 : len(quoted)-1]; bytes.IndexByte(text, '\\') < 0 && utf8.Valid(text) {
		return text, nil
	}
	if cut := 1; len(quoted)/longestEscape > limit {
		for cut <= longestEscape*(limit+1) {
			cut += max(1, escapeLength(quoted[cut:]))
		}
		quoted = append(bytes.Clone(quoted[:cut]), '"')
	}
	var text string
	if err := json.Unmarshal(quoted, &text); err != nil {
		return nil, fmt.Errorf("at byte %d: %w", start, err)
	}
	return []byte(text), nil
}

// ReadString reads the string that comes next into a copy; see String.
func (s *Scanner) ReadString(into *string) error {
	text, err := s.String()
	*into = string(text)
	return err
}

// ReadCut reads the string that comes next into a copy of at most limit bytes; see
// texts.Cut.
func (s *Scanner) ReadCut(into *string, limit int) error {
	text, err := s.StringUpTo(limit)
	*into = texts.Cut(text, limit)
	return err
}

// Raw skips the value that comes next and returns its bytes.
func (s *Scanner) Raw() ([]byte, error) {
	s.space()
	start := s.pos
	err := s.Skip()
	return s.data[start:s.pos], err
}

// End reports an error unless only white space is left.
func (s *Scanner) End() error {
	s.space()
	if s.pos != len(s.data) {
		return s.want("the end")
	}
	return nil
}

// Skip moves past the value that comes next.
func (s *Scanner) Skip() error {
	s.space()
	if end := skip(s.data, s.pos); end != 0 {
		s.pos = end
		return nil
	}
	if s.pos == len(s.data) {
		return s.want("a value")
	}
	// encoding/json finds the error in it.
	return fmt.Errorf("value at byte %d: %w", s.pos, json.Unmarshal(s.data[s.pos:], new(json.RawMessage)))
}

// skipUnread skips the value at start, if a callback left it.
func (s *Scanner) skipUnread(start int) error {
	if s.pos != start {
		return nil
	}
	return s.Skip()
}

// open enters an object or array. For a null it is done at once.
func (s *Scanner) open(kind Kind) (done bool, err error) {
	switch s.Kind() {
	case Null:
		return true, s.Skip()
	case kind:
		s.pos++
		return false, nil
	}
	return true, s.want(kind.String())
}

// next moves to the next member or element, or past the closing bracket.
func (s *Scanner) next(closing byte, first bool) (closed bool, err error) {
	s.space()
	if s.pos == len(s.data) {
		return true, s.want(fmt.Sprintf("%q", closing))
	}
	switch c := s.data[s.pos]; {
	case c == closing:
		s.pos++
		return true, nil
	case first:
		return false, nil
	case c == ',':
		s.pos++
		return false, nil
	}
	return true, s.want(fmt.Sprintf(`"," or %q`, closing))
}

func (s *Scanner) space() { s.pos = skipSpace(s.data, s.pos) }

var errEnd = errors.New("unexpected end of JSON")

// want returns an error with the wanted token and the next bytes. It shows at most
// one character of the text: the text may have secrets.
func (s *Scanner) want(what string) error {
	if s.pos >= len(s.data) {
		return fmt.Errorf("%w: want %s", errEnd, what)
	}
	at, c := s.pos, s.data[s.pos]
	if kind := s.Kind(); kind != Invalid && s.pos == at {
		return fmt.Errorf("at byte %d: got %s, want %s", at, kind, what)
	}
	return fmt.Errorf("at byte %d: got %q, want %s", at, c, what)
}
