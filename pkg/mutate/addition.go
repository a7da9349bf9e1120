// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mutate

import (
	"bytes"
	"strconv"
	"strings"

	"github.com/lanyard-dev/lanyard/internal/base64parts"
	"github.com/lanyard-dev/lanyard/internal/jsonscan"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/pkg/provider"
)

// Addition is an injection made ready to be added to pods: what is the same in
// each of them is encoded once. It does not change, and may be used by many at
// a time.
type Addition struct {
	keys        *annotations.Keys
	injection   *provider.Injection
	names       []string        // the providers'
	cleanPath   map[bool]string // the mount path, by whether the pod runs on Windows
	annotations []annotation
	// groups are all providers' variables in their order: of each provider the
	// credentials, then its settings.
	groups []elements
	// environment is all groups together: what a container without variables of
	// its own is given.
	environment elements
	// volume and mount are those with the volume's usual name.
	volume, mount elements
	// annotated begins the patch of a pod that has none of the annotations, by
	// whether it has others.
	annotated map[bool]elements
	// known are the variables that the providers have something to say about.
	known map[string]struct{}

	credentialFieldPath string
}

// annotation is one that Lanyard writes.
type annotation struct{ key, value string }

// elements are encoded elements of a list: each on its own, and all of them
// with commas between.
type elements struct {
	each [][]byte
	all  []byte
	// constant is all, where that is long and in many patches.
	constant *base64parts.Constant
}

func newElements(each ...[]byte) elements {
	return elements{each: each, all: bytes.Join(each, []byte(","))}
}

// prepared is for elements that will be in many patches.
func (e elements) prepared() elements {
	e.constant = base64parts.NewConstant(e.all)
	return e
}

// NewAddition makes an injection ready. keys are those of the annotations that
// it writes.
func NewAddition(injection *provider.Injection, keys *annotations.Keys) *Addition {
	a := &Addition{
		keys: keys, injection: injection,
		// The downward API's name of the annotation.
		credentialFieldPath: "metadata.annotations['" + keys.GCPCredentials + "']",
		cleanPath:           map[bool]string{},
		annotated:           map[bool]elements{},
	}
	for _, windows := range []bool{false, true} {
		a.cleanPath[windows] = clean(injection.MountPath, windows)
	}
	credentials := ""
	var all [][]byte
	for _, p := range injection.Providers {
		a.names = append(a.names, p.Name)
		if p.CredentialFile.Path != "" {
			credentials = p.CredentialFile.Content
		}
		for _, variables := range append([][]provider.Variable{p.Credentials}, p.Settings...) {
			g := newGroup(variables)
			a.groups = append(a.groups, g)
			all = append(all, g.each...)
		}
	}
	a.environment = newElements(all...).prepared()
	a.annotations = []annotation{
		{keys.Injected, strings.Join(a.names, ",")},
		{keys.IdentityHash, injection.Hash},
	}
	if credentials != "" {
		a.annotations = append(a.annotations, annotation{keys.GCPCredentials, credentials})
	}
	a.volume = newElements(a.encodedVolume(VolumeName)).prepared()
	a.mount = newElements(a.encodedMount(VolumeName)).prepared()
	for _, others := range []bool{false, true} {
		var p patch
		p.annotations(&Pod{hasMetadata: true, hasAnnotations: others}, a.annotations)
		a.annotated[others] = newElements(p.buf).prepared()
	}
	a.known = known(injection)
	return a
}

func known(injection *provider.Injection) map[string]struct{} {
	names := map[string]struct{}{}
	for _, p := range injection.Providers {
		for _, variables := range append([][]provider.Variable{p.Credentials}, p.Settings...) {
			for _, v := range variables {
				names[v.Name] = struct{}{}
			}
		}
		for _, name := range p.Shadowing {
			names[name] = struct{}{}
		}
	}
	return names
}

// newGroup encodes variables that are added together or not at all.
func newGroup(variables []provider.Variable) elements {
	encoded := make([][]byte, len(variables))
	for i, v := range variables {
		encoded[i] = encodedVariable(v)
	}
	return newElements(encoded...)
}

// The encodings below name their members in the order of the API's own, and
// hold every default that the apiserver would fill in: a pod that comes back
// for reinvocation is then just what was sent.

func encodedVariable(v provider.Variable) []byte {
	buf := append(make([]byte, 0, len(v.Name)+len(v.Value)+24), `{"name":`...)
	buf = jsonscan.AppendString(buf, v.Name)
	buf = append(buf, `,"value":`...)
	buf = jsonscan.AppendString(buf, v.Value)
	return append(buf, '}')
}

// volumeElements is the volume under this name.
func (a *Addition) volumeElements(name string) elements {
	if name == VolumeName {
		return a.volume
	}
	return newElements(a.encodedVolume(name))
}

// mountElements is the mount of the volume of this name.
func (a *Addition) mountElements(volume string) elements {
	if volume == VolumeName {
		return a.mount
	}
	return newElements(a.encodedMount(volume))
}

// encodedMount is the mount of the volume of this name.
func (a *Addition) encodedMount(volume string) []byte {
	buf := append([]byte(nil), `{"name":`...)
	buf = jsonscan.AppendString(buf, volume)
	buf = append(buf, `,"readOnly":true,"mountPath":`...)
	buf = jsonscan.AppendString(buf, a.injection.MountPath)
	return append(buf, '}')
}

// encodedVolume is the volume under this name.
func (a *Addition) encodedVolume(name string) []byte {
	buf := append([]byte(nil), `{"name":`...)
	buf = jsonscan.AppendString(buf, name)
	buf = append(buf, `,"projected":{"sources":[`...)
	for i, p := range a.injection.Providers {
		if i > 0 {
			buf = append(buf, ',')
		}
		buf = append(buf, `{"serviceAccountToken":{"audience":`...)
		buf = jsonscan.AppendString(buf, p.Token.Audience)
		buf = append(buf, `,"expirationSeconds":`...)
		buf = strconv.AppendInt(buf, p.Token.ExpirationSeconds, 10)
		buf = append(buf, `,"path":`...)
		buf = jsonscan.AppendString(buf, p.Token.Path)
		buf = append(buf, `}}`...)
		if p.CredentialFile.Path == "" {
			continue
		}
		buf = append(buf, `,{"downwardAPI":{"items":[{"path":`...)
		buf = jsonscan.AppendString(buf, p.CredentialFile.Path)
		buf = append(buf, `,"fieldRef":{"apiVersion":"v1","fieldPath":`...)
		buf = jsonscan.AppendString(buf, a.credentialFieldPath)
		buf = append(buf, `}}]}}`...)
	}
	// 420 is 0644, the API's default: any user of the container may read.
	return append(buf, `],"defaultMode":420}}`...)
}
