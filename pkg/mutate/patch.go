// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mutate

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/lanyard-dev/lanyard/internal/base64parts"
	"github.com/lanyard-dev/lanyard/internal/jsonscan"
)

// patch is a JSON Patch as it is written.
type patch struct {
	buf   []byte
	parts []base64parts.Part
}

// bytes gives the patch, nil where it has no operation.
func (p *patch) bytes() []byte {
	if len(p.buf) == 0 {
		return nil
	}
	return append(p.buf, ']')
}

// The parts of an operation around its path and its value.
const (
	opStart  = `{"op":"add","path":"`
	opMiddle = `","value":`
	opEnd    = `}`

	opOverhead = len(opStart) + len(opMiddle) + len(opEnd) + len(",")
)

// begin writes an operation up to its value. Its path is put together from two.
func (p *patch) begin(path []byte, last string) {
	if len(p.buf) == 0 {
		p.buf = append(p.buf, '[')
	} else {
		p.buf = append(p.buf, ',')
	}
	p.buf = append(p.buf, opStart...)
	p.buf = append(append(p.buf, path...), last...)
	p.buf = append(p.buf, opMiddle...)
}

func (p *patch) end() { p.buf = append(p.buf, opEnd...) }

// grow adds elements to the end of the list at path: one by one, or with the
// list added whole, whichever is shorter.
func (p *patch) grow(path []byte, l list, add elements) {
	n := len(add.each)
	if n == 0 {
		return
	}
	oneByOne := n * (opOverhead + len(path) + len("/-"))
	whole := opOverhead + len(path) + len("[]") + len(l.elements) + n
	if l.present && oneByOne < whole {
		for _, element := range add.each {
			p.begin(path, "/-")
			if n == 1 {
				p.append(add)
			} else {
				p.buf = append(p.buf, element...)
			}
			p.end()
		}
		return
	}
	p.begin(path, "")
	p.buf = append(p.buf, '[')
	if l.count > 0 {
		p.buf = append(append(p.buf, l.elements...), ',')
	}
	p.append(add)
	p.buf = append(p.buf, ']')
	p.end()
}

// append writes all elements.
func (p *patch) append(add elements) {
	if add.constant != nil {
		p.parts = append(p.parts, base64parts.Part{At: len(p.buf), Constant: add.constant})
	}
	p.buf = append(p.buf, add.all...)
}

// annotate begins the patch with the annotations that the pod lacks.
func (m *mutation) annotate(p *patch, missing []annotation) {
	if m.pod.hasMetadata && len(missing) == len(m.annotations) {
		p.append(m.annotated[m.pod.hasAnnotations])
		return
	}
	p.annotations(m.pod, missing)
}

// annotations adds annotations to the pod.
func (p *patch) annotations(pod *Pod, add []annotation) {
	if len(add) == 0 {
		return
	}
	if pod.hasAnnotations {
		for _, a := range add {
			// "/" in a key is "~1" in a JSON Pointer (RFC 6901); a key has no "~".
			p.begin([]byte("/metadata/annotations/"), strings.ReplaceAll(a.key, "/", "~1"))
			p.buf = jsonscan.AppendString(p.buf, a.value)
			p.end()
		}
		return
	}
	if pod.hasMetadata {
		p.begin([]byte("/metadata/annotations"), "")
	} else {
		p.begin([]byte("/metadata"), "")
		p.buf = append(p.buf, `{"annotations":`...)
	}
	separator := byte('{')
	for _, a := range add {
		p.buf = append(p.buf, separator)
		p.buf = jsonscan.AppendString(p.buf, a.key)
		p.buf = append(p.buf, ':')
		p.buf = jsonscan.AppendString(p.buf, a.value)
		separator = ','
	}
	p.buf = append(p.buf, '}')
	if !pod.hasMetadata {
		p.buf = append(p.buf, '}')
	}
	p.end()
}

// apply writes what each plan gives its container.
func (m *mutation) apply(p *patch, plans []plan) error {
	mount := m.mountElements(m.tokens)
	need := len(plans) * (len(m.environment.all) + len(mount.all) + 4*opOverhead)
	if need > maxPatchBytes {
		return fmt.Errorf("%w: the patch for its %d containers needs more than %d bytes", ErrTooLarge, len(plans), maxPatchBytes)
	}
	p.buf = slices.Grow(p.buf, need+len(m.environment.all))
	path := make([]byte, 0, 64)
	for i := range plans {
		plan := &plans[i]
		c := plan.container
		path = append(append(append(path[:0], "/spec/"...), c.field...), '/')
		path = strconv.AppendInt(path, int64(c.index), 10)
		if plan.mount {
			p.grow(append(path, "/volumeMounts"...), c.mounts, mount)
		}
		if plan.environment.all != nil {
			p.grow(append(path, "/env"...), c.env, plan.environment)
		}
		if len(p.buf) > maxPatchBytes {
			return fmt.Errorf("%w: what its containers would be given is over %d bytes", ErrTooLarge, maxPatchBytes)
		}
	}
	return nil
}
