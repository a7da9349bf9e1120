// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rawjson reads JSON in place, and writes JSON Patches (RFC 6902).
//
// A Scanner walks through JSON with jsontext. Callers read the few values that they need. The rest
// is checked and skipped, neither decoded nor copied. It accepts the same input as encoding/json:
// names may occur twice, and invalid UTF-8 becomes U+FFFD.
package rawjson

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/lanyard-dev/lanyard/internal/texts"
)

// Kinds of values.
const (
	Object = jsontext.KindBeginObject
	Array  = jsontext.KindBeginArray
	String = jsontext.KindString
	Null   = jsontext.KindNull
)

// KindName returns the name of a kind for an error message.
func KindName(kind jsontext.Kind) string {
	switch kind {
	case Object:
		return "object"
	case Array:
		return "array"
	case jsontext.KindTrue, jsontext.KindFalse:
		return "boolean"
	case String, Null, jsontext.KindNumber:
		return kind.String()
	}
	return "no value"
}

// Scanner reads a JSON text from its start to its end. Make it with NewScanner.
type Scanner struct {
	text    []byte
	source  bytes.Buffer // of the text
	decoder *jsontext.Decoder
}

// options make jsontext accept what encoding/json accepts.
var options = []jsontext.Options{jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)}

// NewScanner returns a Scanner at the start of text. text must not change while results
// of the Scanner are in use.
func NewScanner(text []byte) *Scanner {
	s := new(Scanner)
	s.Reset(text)
	return s
}

// Reset moves the Scanner to the start of another text.
func (s *Scanner) Reset(text []byte) {
	if s.decoder == nil {
		s.decoder = new(jsontext.Decoder)
	}
	s.text, s.source = text, *bytes.NewBuffer(text)
	s.decoder.Reset(&s.source, options...)
}

// State returns the text and the decoder that reads it, for Continue.
func (s *Scanner) State() ([]byte, *jsontext.Decoder) { return s.text, s.decoder }

// Continue returns a Scanner that reads on from the position of another one. Both move together.
func Continue(text []byte, decoder *jsontext.Decoder) *Scanner {
	return &Scanner{text: text, decoder: decoder}
}

// Kind returns the kind of the value that comes next, without moving past it.
func (s *Scanner) Kind() jsontext.Kind { return s.decoder.PeekKind() }

// maxNameBytes is more than the length of any name that callers know.
const maxNameBytes = 512

// Object calls member for each member of the next value, an object or null. The callback may
// read the value with the Scanner, or skip it. The key is valid only until the next call. A
// very long key with escape sequences may be truncated.
func (s *Scanner) Object(member func(key []byte) error) error {
	if done, err := s.open(Object); done || err != nil {
		return err
	}
	for {
		if closed, err := s.close(); closed || err != nil {
			return err
		}
		quoted, err := s.read()
		if err != nil {
			return err
		}
		before := s.decoder.InputOffset()
		if err := member(unquote(quoted, maxNameBytes)); err != nil {
			return err
		}
		if err := s.skipUnread(before); err != nil {
			return err
		}
	}
}

// Array calls element for each element of the next value, an array or null. See Object.
func (s *Scanner) Array(element func(index int) error) error {
	if done, err := s.open(Array); done || err != nil {
		return err
	}
	for i := 0; ; i++ {
		if closed, err := s.close(); closed || err != nil {
			return err
		}
		before := s.decoder.InputOffset()
		if err := element(i); err != nil {
			return err
		}
		if err := s.skipUnread(before); err != nil {
			return err
		}
	}
}

// open enters an object or array. It reports true for a null, which has no members.
func (s *Scanner) open(kind jsontext.Kind) (done bool, err error) {
	switch s.Kind() {
	case Null:
		return true, s.Skip()
	case kind:
		_, err := s.decoder.ReadToken()
		return false, malformed(err)
	}
	return true, s.want(KindName(kind))
}

// close leaves the object or array if nothing else comes next in it.
func (s *Scanner) close() (closed bool, err error) {
	switch s.Kind() {
	case jsontext.KindEndObject, jsontext.KindEndArray:
		_, err := s.decoder.ReadToken()
		return true, malformed(err)
	}
	return false, nil
}

// skipUnread skips the next value if the callback did not read it.
func (s *Scanner) skipUnread(before int64) error {
	if s.decoder.InputOffset() != before {
		return nil
	}
	return s.Skip()
}

// read returns the text of the next string, number, boolean or null.
func (s *Scanner) read() ([]byte, error) {
	value, err := s.decoder.ReadValue()
	end := s.decoder.InputOffset()
	return s.text[end-int64(len(value)) : end], malformed(err)
}

// String reads the string that comes next; a null is the empty string. If nothing
// in it is escaped, the result is a part of the text.
func (s *Scanner) String() ([]byte, error) { return s.StringUpTo(math.MaxInt / longestEscape) }

// StringUpTo is like String, but reads only the start of a long string: the result is correct
// up to limit bytes, and longer than limit if the string is.
func (s *Scanner) StringUpTo(limit int) ([]byte, error) {
	switch s.Kind() {
	case Null:
		return nil, s.Skip()
	case String:
		quoted, err := s.read()
		if err != nil {
			return nil, err
		}
		return unquote(quoted, limit), nil
	}
	return nil, s.want("string")
}

// longestEscape is the length of an escape sequence such as \u0061. It stands for at least
// one byte.
const longestEscape = 6

// unquote returns the text of a valid JSON string, as StringUpTo does.
func unquote(quoted []byte, limit int) []byte {
	if text := quoted[1 : len(quoted)-1]; bytes.IndexByte(text, '\\') < 0 && utf8.Valid(text) {
		return text
	}
	if len(quoted)/longestEscape > limit {
		// A cut can break at most the two sequences of one character, which are beyond the
		// limit.
		quoted = quoted[:min(len(quoted), longestEscape*(limit+2))]
	}
	text, _ := jsontext.AppendUnquote(nil, quoted) // up to the end, or the cut
	return text
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

// Raw skips the next value and returns its text.
func (s *Scanner) Raw() ([]byte, error) { return s.Span(s.Skip) }

// Span calls the callback, which reads the next value, and returns the text of that value.
func (s *Scanner) Span(read func() error) ([]byte, error) {
	start := s.next()
	err := read()
	return s.text[start:max(start, int(s.decoder.InputOffset()))], err
}

// Skip skips the next value. It does not call ReadValue, which is recursive: a deeply nested value
// would take megabytes of stack.
func (s *Scanner) Skip() error { return malformed(s.decoder.SkipValue()) }

// End reports an error unless only white space is left.
func (s *Scanner) End() error {
	if s.Kind() != jsontext.KindInvalid {
		return s.want("the end")
	}
	if _, err := s.decoder.ReadToken(); !errors.Is(err, io.EOF) {
		return malformed(err)
	}
	return nil
}

// next returns the position of the next value.
func (s *Scanner) next() int {
	rest := s.text[s.decoder.InputOffset():]
	return len(s.text) - len(bytes.TrimLeft(rest, " \t\r\n:,"))
}

var errEnd = errors.New("unexpected end of JSON")

// want returns an error that names the wanted kind and the actual one.
func (s *Scanner) want(what string) error {
	kind := s.Kind()
	if kind != jsontext.KindInvalid {
		return fmt.Errorf("at byte %d: got %s, want %s", s.next(), KindName(kind), what)
	}
	_, err := s.decoder.ReadToken()
	return fmt.Errorf("%w, want %s", malformed(err), what)
}

// malformed returns an error of the decoder without its JSON Pointer: the names in the text
// may be secret.
func malformed(err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errEnd
	}
	if syntax, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		return fmt.Errorf("at byte %d: %w", syntax.ByteOffset, syntax.Err)
	}
	return err
}

// AppendString appends text to dst as a JSON string. Invalid UTF-8 becomes U+FFFD.
func AppendString(dst []byte, text string) []byte {
	dst, _ = jsontext.AppendQuote(dst, text)
	return dst
}
