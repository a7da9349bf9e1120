// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package jsonscan reads JSON (RFC 8259) in place. Callers walk to the few values
// that they need. The rest is checked and skipped, neither decoded nor copied. It
// accepts what encoding/json accepts, and nothing else.
//
// It can go when encoding/json/jsontext is stable and as fast.
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
	data  []byte
	pos   int
	depth int
}

// New returns a Scanner at the start of data. data must not change while results
// of the Scanner are in use.
func New(data []byte) *Scanner { return &Scanner{data: data} }

// Offset returns the number of bytes before the position.
func (s *Scanner) Offset() int { return s.pos }

// Since returns the text from an earlier Offset to the position.
func (s *Scanner) Since(offset int) []byte { return s.data[offset:s.pos] }

// Mark is a position to come back to.
type Mark struct{ pos, depth int }

// Mark returns the position.
func (s *Scanner) Mark() Mark { return Mark{s.pos, s.depth} }

// Return moves back to a position, as if nothing had been read since.
func (s *Scanner) Return(m Mark) { s.pos, s.depth = m.pos, m.depth }

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

// Object calls member for each member of the object that comes next; a null has
// none. The callback may read the value with the Scanner, or leave it. The key is
// only valid until the next call.
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
	name, err := s.String()
	if err != nil {
		return nil, err
	}
	return name, s.colon()
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

// ReadString reads the string that comes next into a copy; see String.
func (s *Scanner) ReadString(into *string) error {
	text, err := s.String()
	*into = string(text)
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
	if s.depth < maxDepth-compactDepth {
		if end := compactEnd(s.data, s.pos); end != 0 {
			s.pos = end
			return nil
		}
	}
	return s.skipWithCare()
}

// skipWithCare is the slow path of Skip. It handles every value; its error says
// what is wrong with a malformed one.
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

// skipObject and skipArray are Object and Array without a callback. They take the
// slow path inside too, so that no text is read more than twice.
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
	// An API server writes no white space.
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

// skipString skips a string.
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

// plainEnd returns the index of the first byte, from data[i] on, that does not
// stand for itself in a string: a quote, a backslash, a control character or a byte
// that is not ASCII. It returns len(data) if there is none. It checks eight bytes in
// one step, each in its own lane of a word.
func plainEnd(data []byte, i int) int {
	for ; i >= 0 && i < len(data)-7; i += 8 {
		word := wordAt(data, i)
		// A byte of 0x80 or more is a hit too.
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

// wordAt returns eight bytes, the first one lowest. The compiler makes one
// instruction of it, without the slice that binary.LittleEndian takes.
func wordAt(data []byte, i int) uint64 {
	_ = data[i+7]
	return uint64(data[i]) | uint64(data[i+1])<<8 | uint64(data[i+2])<<16 | uint64(data[i+3])<<24 |
		uint64(data[i+4])<<32 | uint64(data[i+5])<<40 | uint64(data[i+6])<<48 | uint64(data[i+7])<<56
}

// The lowest and the highest bit of each lane of a word.
const ones, highs = 0x0101010101010101, 0x8080808080808080

// stringHits sets the highest bit of a lane with a quote, a backslash or a control
// character. Lanes above a hit may be set too; the lowest one is right.
func stringHits(word uint64) uint64 {
	// Flipping this bit exchanges quote and space: the quote is then next to the
	// control characters, and the space is not.
	low := word ^ 0x02*ones
	backslash := word ^ '\\'*ones
	// The highest bit of a lane is set if the lane is below the new quote's
	// successor (quote, control characters), or is zero (backslash).
	return ((low-(' '+1)*ones)&^low | (backslash-ones)&^backslash) & highs
}

// escapeLength returns the length of the escape sequence at the start of data, or
// 0 if there is none.
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

// digits skips digits and reports whether there were any.
func (s *Scanner) digits() bool {
	start := s.pos
	for s.pos < len(s.data) && '0' <= s.data[s.pos] && s.data[s.pos] <= '9' {
		s.pos++
	}
	return s.pos > start
}

func (s *Scanner) literal(word string) error {
	if !bytes.HasPrefix(s.data[s.pos:], []byte(word)) {
		return fmt.Errorf("at byte %d: invalid literal, want %s", s.pos, word)
	}
	s.pos += len(word)
	return nil
}

var errEnd = errors.New("unexpected end of JSON")

// want returns an error with what was wanted and what comes next. It shows at most
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
