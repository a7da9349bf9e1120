// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rawjson reads JSON (RFC 8259) where it lies. A caller walks to the
// few values that it needs and is told where in the text they stand; all the
// rest is checked for well-formedness and passed over, neither decoded nor
// copied. It accepts what encoding/json accepts and nothing else.
package jsonscan

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/bits"
)

// maxDepth is encoding/json's own limit of nesting.
const maxDepth = 10000

// Kind is the kind of a value.
type Kind byte

// Kinds of values; Invalid where there is none.
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

// Scanner stands at a place in a JSON text and moves forward only. The zero
// value is an empty text; set it up with New.
type Scanner struct {
	data  []byte
	pos   int
	depth int
}

// New gives a Scanner at the start of data, which must not change while what
// the Scanner gave out is in use.
func New(data []byte) *Scanner { return &Scanner{data: data} }

// Offset is the number of bytes before the scanner's place.
func (s *Scanner) Offset() int { return s.pos }

// Since gives the text from an earlier Offset up to the scanner's place.
func (s *Scanner) Since(offset int) []byte { return s.data[offset:s.pos] }

// Mark is a place in the text to come back to.
type Mark struct{ pos, depth int }

// Mark gives the scanner's place.
func (s *Scanner) Mark() Mark { return Mark{s.pos, s.depth} }

// Return goes back to a place, as if nothing had been read since.
func (s *Scanner) Return(m Mark) { s.pos, s.depth = m.pos, m.depth }

// Kind tells what value comes next, without moving past it.
func (s *Scanner) Kind() Kind {
	s.space()
	if s.pos == len(s.data) {
		return Invalid
	}
	return kinds[s.data[s.pos]]
}

// kinds tells a value by its first byte.
var kinds = [256]Kind{
	'{': Object, '[': Array, '"': String, 't': Bool, 'f': Bool, 'n': Null, '-': Number,
	'0': Number, '1': Number, '2': Number, '3': Number, '4': Number,
	'5': Number, '6': Number, '7': Number, '8': Number, '9': Number,
}

// Object walks through the members of the object, or of the null, that comes
// next. The callback may read the member's value with the scanner; what it
// leaves is passed over. The key is valid until the next call only.
func (s *Scanner) Object(member func(key []byte) error) error {
	if done, err := s.open(Object); done || err != nil {
		return err
	}
	for first := true; ; first = false {
		key := s.compactName(first)
		if key == nil {
			closed, err := s.next('}', first)
			if closed || err != nil {
				return err
			}
			if key, err = s.name(); err != nil {
				return err
			}
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

// compactName reads a member's name and its colon, where they are written
// without white space and escapes: as an apiserver does it. Otherwise it gives
// nil, and has not moved.
func (s *Scanner) compactName(first bool) []byte {
	i := s.pos
	if !first {
		if i == len(s.data) || s.data[i] != ',' {
			return nil
		}
		i++
	}
	if i == len(s.data) || s.data[i] != '"' {
		return nil
	}
	i++
	end := plainEnd(s.data, i)
	if len(s.data)-end < 2 || s.data[end] != '"' || s.data[end+1] != ':' {
		return nil
	}
	s.pos = end + 2
	return s.data[i:end]
}

// name reads any member's name and its colon.
func (s *Scanner) name() ([]byte, error) {
	if s.Kind() != String {
		return nil, s.want("the name of a member")
	}
	name, err := s.String()
	if err != nil {
		return nil, err
	}
	return name, s.colon()
}

// Array walks through the elements of the array, or of the null, that comes
// next, as Object does through members.
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

// String reads the string that comes next, or the empty one for a null. Where
// nothing in it is escaped, the result is a part of the text itself.
func (s *Scanner) String() ([]byte, error) {
	s.space()
	start := s.pos
	if start < len(s.data) && s.data[start] == '"' {
		end := plainEnd(s.data, start+1)
		if end < len(s.data) && s.data[end] == '"' {
			s.pos = end + 1
			return s.data[start+1 : end], nil
		}
	}
	switch s.Kind() {
	case Null:
		return nil, s.Skip()
	case String:
	default:
		return nil, s.want("string")
	}
	if err := s.skipString(); err != nil {
		return nil, err
	}
	var text string
	if err := json.Unmarshal(s.data[start:s.pos], &text); err != nil {
		return nil, fmt.Errorf("at byte %d: %w", start, err)
	}
	return []byte(text), nil
}

// Consume passes over this very text, if it comes next, and says whether it did.
// The text has to leave the nesting as it is: whoever consumes a bracket has to
// consume the one that closes it, or Return.
func (s *Scanner) Consume(text string) bool {
	if len(s.data)-s.pos < len(text) || string(s.data[s.pos:s.pos+len(text)]) != text {
		return false
	}
	s.pos += len(text)
	return true
}

// Raw passes over the value that comes next and gives its bytes.
func (s *Scanner) Raw() ([]byte, error) {
	s.space()
	start := s.pos
	err := s.Skip()
	return s.data[start:s.pos], err
}

// End makes sure that nothing but white space is left.
func (s *Scanner) End() error {
	s.space()
	if s.pos != len(s.data) {
		return s.want("the end")
	}
	return nil
}

// Skip passes over the value that comes next.
func (s *Scanner) Skip() error {
	s.space()
	if s.depth < maxDepth-compactDepth {
		if end := compactEnd(s.data, s.pos); end != 0 {
			s.pos = end
			return nil
		}
	}
	return s.skipWithCare()
}

// skipWithCare is Skip for every value that there is, and says what is wrong
// with the others.
func (s *Scanner) skipWithCare() error {
	switch s.Kind() {
	case Object:
		return s.skipObject()
	case Array:
		return s.skipArray()
	case String:
		return s.skipString()
	case Number:
		return s.skipNumber()
	case Bool:
		if s.data[s.pos] == 't' {
			return s.literal("true")
		}
		return s.literal("false")
	case Null:
		return s.literal("null")
	}
	return s.want("a value")
}

// skipObject and skipArray are Object and Array without a callback. What is in
// them gets the same care, so that no text is gone through more than twice.
func (s *Scanner) skipObject() error {
	if err := s.enter(); err != nil {
		return err
	}
	for first := true; ; first = false {
		if closed, err := s.next('}', first); closed || err != nil {
			return err
		}
		if s.Kind() != String {
			return s.want("the name of a member")
		}
		if err := s.skipString(); err != nil {
			return err
		}
		if err := s.colon(); err != nil {
			return err
		}
		if err := s.skipWithCare(); err != nil {
			return err
		}
	}
}

func (s *Scanner) skipArray() error {
	if err := s.enter(); err != nil {
		return err
	}
	for first := true; ; first = false {
		if closed, err := s.next(']', first); closed || err != nil {
			return err
		}
		if err := s.skipWithCare(); err != nil {
			return err
		}
	}
}

// skipUnread passes over the value at start, where a callback left it.
func (s *Scanner) skipUnread(start int) error {
	if s.pos != start {
		return nil
	}
	return s.Skip()
}

// open enters an object or array; it is done at once for a null.
func (s *Scanner) open(kind Kind) (done bool, err error) {
	switch s.Kind() {
	case Null:
		return true, s.literal("null")
	case kind:
		return false, s.enter()
	}
	return true, s.want(kind.String())
}

// enter moves past an opening bracket.
func (s *Scanner) enter() error {
	s.pos++
	if s.depth++; s.depth > maxDepth {
		return fmt.Errorf("at byte %d: nested deeper than %d", s.pos, maxDepth)
	}
	return nil
}

// colon moves past the colon between a name and its value.
func (s *Scanner) colon() error {
	if s.pos < len(s.data) && s.data[s.pos] == ':' {
		s.pos++
		return nil
	}
	s.space()
	if s.pos == len(s.data) || s.data[s.pos] != ':' {
		return s.want(`":"`)
	}
	s.pos++
	return nil
}

// next moves to the next member or element, or past the closing bracket.
func (s *Scanner) next(closing byte, first bool) (closed bool, err error) {
	if !first && s.pos < len(s.data) && s.data[s.pos] == ',' {
		s.pos++
		return false, nil
	}
	s.space()
	if s.pos == len(s.data) {
		return true, s.want(fmt.Sprintf("%q", closing))
	}
	switch c := s.data[s.pos]; {
	case c == closing:
		s.pos++
		s.depth--
		return true, nil
	case first:
		return false, nil
	case c == ',':
		s.pos++
		return false, nil
	}
	return true, s.want(fmt.Sprintf(`"," or %q`, closing))
}

func (s *Scanner) space() {
	// An apiserver writes none.
	if s.pos < len(s.data) && s.data[s.pos] > ' ' {
		return
	}
	s.skipSpace()
}

func (s *Scanner) skipSpace() {
	for s.pos < len(s.data) && isSpace(s.data[s.pos]) {
		s.pos++
	}
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }

// skipString passes over a string.
func (s *Scanner) skipString() error {
	for i := s.pos + 1; i < len(s.data); i++ {
		i = plainEnd(s.data, i)
		if i == len(s.data) {
			break
		}
		switch c := s.data[i]; {
		case c == '"':
			s.pos = i + 1
			return nil
		case c == '\\':
			n := escapeLength(s.data[i:])
			if n == 0 {
				s.pos = i
				return s.want("an escape sequence")
			}
			i += n - 1
		case c < ' ':
			s.pos = i
			return s.want("a character that needs no escape")
		}
	}
	s.pos = len(s.data)
	return s.want("the end of a string")
}

// plainEnd is the place after the bytes from data[i] on that stand for themselves
// in a string: ASCII, and no quote, backslash or control character. Eight bytes
// are looked at in one step, each in its own lane of a word.
func plainEnd(data []byte, i int) int {
	for ; i >= 0 && i < len(data)-7; i += 8 {
		word := wordAt(data, i)
		// A byte from 0x80 is a hit by itself.
		if hits := stringHits(word) | word&highs; hits != 0 {
			return i + bits.TrailingZeros64(hits)/8
		}
	}
	for ; i < len(data); i++ {
		if c := data[i]; c < ' ' || c == '"' || c == '\\' || c >= 0x80 {
			break
		}
	}
	return i
}

// wordAt gives eight bytes, the first one lowest. Where i is known to be within
// the data this is one instruction, which does not wait for more than i:
// binary.LittleEndian takes a slice, and what comes before that took a seventh of
// the time of a whole review.
func wordAt(data []byte, i int) uint64 {
	_ = data[i+7]
	return uint64(data[i]) | uint64(data[i+1])<<8 | uint64(data[i+2])<<16 | uint64(data[i+3])<<24 |
		uint64(data[i+4])<<32 | uint64(data[i+5])<<40 | uint64(data[i+6])<<48 | uint64(data[i+7])<<56
}

// The lowest and the highest bit of each lane of a word.
const ones, highs = 0x0101010101010101, 0x8080808080808080

// stringHits sets the highest bit of a lane that holds a quote, a backslash or a
// control character. A lane above a hit may be set too; the lowest is right.
func stringHits(word uint64) uint64 {
	// This change of one bit brings the quote to where the space was, next to the
	// control characters, and the space and "!" out of there.
	low := word ^ 0x02*ones
	backslash := word ^ '\\'*ones
	// A lane's highest bit is set where the lane is not above the quote's place
	// (quote, control characters) or is zero (backslash).
	return ((low-(' '+1)*ones)&^low | (backslash-ones)&^backslash) & highs
}

// escapeLength is the length of the escape sequence at the start of data, or 0.
func escapeLength(data []byte) int {
	if len(data) < 2 || data[0] != '\\' {
		return 0
	}
	if data[1] != 'u' {
		if bytes.IndexByte([]byte(`"\/bfnrt`), data[1]) < 0 {
			return 0
		}
		return 2
	}
	if len(data) < 6 {
		return 0
	}
	for _, c := range data[2:6] {
		if !isHex(c) {
			return 0
		}
	}
	return 6
}

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'f'
}

func (s *Scanner) skipNumber() error {
	if s.data[s.pos] == '-' {
		s.pos++
	}
	if s.pos < len(s.data) && s.data[s.pos] == '0' {
		s.pos++
	} else if !s.digits() {
		return s.want("a digit")
	}
	if s.pos < len(s.data) && s.data[s.pos] == '.' {
		s.pos++
		if !s.digits() {
			return s.want("a digit")
		}
	}
	if s.pos < len(s.data) && s.data[s.pos]|0x20 == 'e' {
		s.pos++
		if s.pos < len(s.data) && (s.data[s.pos] == '+' || s.data[s.pos] == '-') {
			s.pos++
		}
		if !s.digits() {
			return s.want("a digit")
		}
	}
	return nil
}

// digits passes over digits and says whether there were any.
func (s *Scanner) digits() bool {
	start := s.pos
	for s.pos < len(s.data) && '0' <= s.data[s.pos] && s.data[s.pos] <= '9' {
		s.pos++
	}
	return s.pos > start
}

func (s *Scanner) literal(word string) error {
	if !s.Consume(word) {
		return fmt.Errorf("at byte %d: got something like it, want %s", s.pos, word)
	}
	return nil
}

var errEnd = errors.New("unexpected end of JSON")

// want is the error for anything but what was wanted. It shows no more of the
// text than one character: what the text holds may be a secret.
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
