// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package rawjson

import (
	"bytes"
	"slices"
	"strings"
)

// Patch is a JSON Patch: a list of operations, as text. Values are JSON that the caller has
// encoded. The zero value is an empty patch.
type Patch struct {
	text []byte // without the closing bracket
}

// The text that surrounds the path and the value of an operation.
const (
	opAdd    = `{"op":"add","path":"`
	opRemove = `{"op":"remove","path":"`
	opTest   = `{"op":"test","path":"`
	opValue  = `","value":`

	overhead = len(opAdd) + len(opValue) + len(`},`)
)

// Reset removes all operations. It keeps the memory.
func (p *Patch) Reset() { p.text = p.text[:0] }

// Empty reports whether the patch has no operation.
func (p *Patch) Empty() bool { return len(p.text) == 0 }

// Bytes returns the patch as a JSON array, or nil if it is empty. The result is
// valid until the next operation is added.
func (p *Patch) Bytes() []byte {
	if p.Empty() {
		return nil
	}
	return append(p.text, ']')
}

// Size returns the length of the patch in bytes.
func (p *Patch) Size() int {
	if p.Empty() {
		return 0
	}
	return len(p.text) + len("]")
}

// Grow allocates memory for n more bytes.
func (p *Patch) Grow(n int) { p.text = slices.Grow(p.text, n+len("]")) }

// Add adds value at path: a member of an object, or an element of a list. The
// path is a JSON Pointer (RFC 6901), its parts escaped.
func (p *Patch) Add(path string, value []byte) { p.write(opAdd, path, value) }

// Test makes the patch fail unless the value at path equals value.
func (p *Patch) Test(path string, value []byte) { p.write(opTest, path, value) }

func (p *Patch) write(operation, path string, value []byte) {
	p.begin(operation, []byte(path))
	p.text = append(p.text, opValue...)
	p.text = append(append(p.text, value...), '}')
}

// Remove removes the value at path.
func (p *Patch) Remove(path string) {
	p.begin(opRemove, []byte(path))
	p.text = append(p.text, `"}`...)
}

func (p *Patch) begin(operation string, path []byte) {
	separator := byte(',')
	if p.Empty() {
		separator = '['
	}
	p.text = append(p.text, separator)
	p.text = append(append(p.text, operation...), path...)
}

// EscapePointer returns a member's name as a part of a JSON Pointer.
func EscapePointer(name string) string {
	return strings.ReplaceAll(strings.ReplaceAll(name, "~", "~0"), "/", "~1")
}

// Extend adds JSON values to the end of the list at path. list is its JSON, or nil if the list is
// absent or null. Extend adds the values one by one or the list as a whole, whichever is shorter.
// The previous elements stay as they are, byte for byte.
func (p *Patch) Extend(path, list []byte, elements [][]byte) {
	n := len(elements)
	if n == 0 {
		return
	}
	var previous []byte
	if list != nil {
		previous = bytes.TrimSpace(list[1 : len(list)-1])
	}
	oneByOne := n * (overhead + len(path) + len("/-"))
	whole := overhead + len(path) + len("[]") + len(previous) + n
	if list != nil && oneByOne < whole {
		for _, element := range elements {
			p.begin(opAdd, path)
			p.text = append(p.text, "/-"+opValue...)
			p.text = append(append(p.text, element...), '}')
		}
		return
	}
	p.begin(opAdd, path)
	p.text = append(p.text, opValue+"["...)
	if len(previous) > 0 {
		p.text = append(append(p.text, previous...), ',')
	}
	for i, element := range elements {
		if i > 0 {
			p.text = append(p.text, ',')
		}
		p.text = append(p.text, element...)
	}
	p.text = append(p.text, `]}`...)
}

// SizeOfExtend returns an upper bound of the bytes that Extend adds to a patch for a path of
// this length.
func SizeOfExtend(pathBytes int, elements [][]byte) int {
	size := len("[]") - len(",") // no comma precedes the first element
	for _, element := range elements {
		size += overhead + pathBytes + len("/-") + len(element) + len(",")
	}
	return size
}
