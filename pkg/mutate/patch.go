// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mutate

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/lanyard-dev/lanyard/pkg/provider"
	"github.com/lanyard-dev/lanyard/pkg/rawjson"
)

// patch is a JSON Patch as it is written.
type patch struct {
	buf []byte
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

// begin writes an operation up to its value.
func (p *patch) begin(path string) {
	if len(p.buf) == 0 {
		p.buf = append(p.buf, '[')
	} else {
		p.buf = append(p.buf, ',')
	}
	p.buf = append(p.buf, opStart...)
	p.buf = append(p.buf, path...)
	p.buf = append(p.buf, opMiddle...)
}

func (p *patch) end() { p.buf = append(p.buf, opEnd...) }

// grow adds elements, which are JSON, to the end of the list at path: one by
// one, or with the list added whole, whichever is shorter.
func (p *patch) grow(path string, l list, elements ...[]byte) {
	if len(elements) == 0 {
		return
	}
	oneByOne := len(elements) * (opOverhead + len(path) + len("/-"))
	whole := opOverhead + len(path) + len("[]") + len(l.elements) + len(elements)
	if l.present && oneByOne < whole {
		for _, element := range elements {
			p.begin(path + "/-")
			p.buf = append(p.buf, element...)
			p.end()
		}
		return
	}
	p.begin(path)
	p.buf = append(p.buf, '[')
	p.buf = append(p.buf, l.elements...)
	for i, element := range elements {
		if i > 0 || l.count > 0 {
			p.buf = append(p.buf, ',')
		}
		p.buf = append(p.buf, element...)
	}
	p.buf = append(p.buf, ']')
	p.end()
}

// annotations adds annotations to the pod.
func (p *patch) annotations(pod *Pod, add []annotation) {
	if len(add) == 0 {
		return
	}
	if pod.hasAnnotations {
		for _, a := range add {
			// "/" in a key is "~1" in a JSON Pointer (RFC 6901); a key has no "~".
			p.begin("/metadata/annotations/" + strings.ReplaceAll(a.key, "/", "~1"))
			p.buf = rawjson.AppendString(p.buf, a.value)
			p.end()
		}
		return
	}
	if pod.hasMetadata {
		p.begin("/metadata/annotations")
	} else {
		p.begin("/metadata")
		p.buf = append(p.buf, `{"annotations":`...)
	}
	separator := byte('{')
	for _, a := range add {
		p.buf = append(p.buf, separator)
		p.buf = rawjson.AppendString(p.buf, a.key)
		p.buf = append(p.buf, ':')
		p.buf = rawjson.AppendString(p.buf, a.value)
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
	mount := m.encodedMount()
	for _, plan := range plans {
		c := plan.container
		path := "/spec/" + c.field + "/" + strconv.Itoa(c.index)
		if plan.mount {
			p.grow(path+"/volumeMounts", c.mounts, mount)
		}
		variables := make([][]byte, len(plan.variables))
		for i, v := range plan.variables {
			variables[i] = encodedVariable(v)
		}
		p.grow(path+"/env", c.env, variables...)
		if len(p.buf) > maxPatchBytes {
			return fmt.Errorf("%w: what its containers would be given is over %d bytes", ErrTooLarge, maxPatchBytes)
		}
	}
	return nil
}

// The encodings below name their members in the order of the API's own, and
// hold every default that the apiserver would fill in: a pod that comes back
// for reinvocation is then just what was sent.

func encodedVariable(v provider.Variable) []byte {
	buf := append(make([]byte, 0, len(v.Name)+len(v.Value)+24), `{"name":`...)
	buf = rawjson.AppendString(buf, v.Name)
	buf = append(buf, `,"value":`...)
	buf = rawjson.AppendString(buf, v.Value)
	return append(buf, '}')
}

func (m *mutation) encodedMount() []byte {
	buf := append([]byte(nil), `{"name":`...)
	buf = rawjson.AppendString(buf, m.volume)
	buf = append(buf, `,"readOnly":true,"mountPath":`...)
	buf = rawjson.AppendString(buf, m.injection.MountPath)
	return append(buf, '}')
}

func (m *mutation) encodedVolume() []byte {
	buf := append([]byte(nil), `{"name":`...)
	buf = rawjson.AppendString(buf, m.volume)
	buf = append(buf, `,"projected":{"sources":[`...)
	for i, p := range m.injection.Providers {
		if i > 0 {
			buf = append(buf, ',')
		}
		buf = append(buf, `{"serviceAccountToken":{"audience":`...)
		buf = rawjson.AppendString(buf, p.Token.Audience)
		buf = append(buf, `,"expirationSeconds":`...)
		buf = strconv.AppendInt(buf, p.Token.ExpirationSeconds, 10)
		buf = append(buf, `,"path":`...)
		buf = rawjson.AppendString(buf, p.Token.Path)
		buf = append(buf, `}}`...)
		if p.CredentialFile.Path == "" {
			continue
		}
		buf = append(buf, `,{"downwardAPI":{"items":[{"path":`...)
		buf = rawjson.AppendString(buf, p.CredentialFile.Path)
		buf = append(buf, `,"fieldRef":{"apiVersion":"v1","fieldPath":`...)
		buf = rawjson.AppendString(buf, m.credentialFieldPath())
		buf = append(buf, `}}]}}`...)
	}
	// 420 is 0644, the API's default: any user of the container may read.
	return append(buf, `],"defaultMode":420}}`...)
}
