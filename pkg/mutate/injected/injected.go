// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package injected reads the injection back from a pod, removes it, and compares it
// with the contents of a new pod. It takes a pod in any form that
// encodes as the JSON of the API, so that lanyard-webhook need not link the types of
// the Kubernetes API.
//
//	injected.go  Read and Remove
//	variables.go distinguishes Lanyard's variables from a container's own
//	compare.go   compares a running pod with a new one
//	others.go    compares a running pod that another webhook injected
package injected

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/pkg/mutate"
	"github.com/lanyard-dev/lanyard/pkg/mutate/internal/pod"
)

// Pod describes the tokens of a pod and the containers that use them.
type Pod struct {
	// Name is the name of the pod, or empty if it has none yet.
	Name string
	// Providers are the injected providers, sorted, or empty if the pod was not injected.
	Providers []string
	// Volume is the name of the token volume, and MountPath is its path in the
	// containers, or empty if the pod has no such volume or mount.
	Volume, MountPath string
	// Tokens are the tokens in the token volume, one for each provider.
	Tokens []Token
	// Files are the contents of the credential files, by provider.
	Files map[string]string
	// Containers are all containers, in the order init, ordinary and ephemeral.
	Containers []Container

	// copies are Lanyard's copies of tokens, each in its own volume.
	copies   []Token
	settings *annotations.Settings
	// definitions are the definitions of the injected providers.
	definitions []*annotations.Provider
	read        *pod.Pod
}

// Token is a projected token.
type Token struct {
	// Provider is empty for a token that is not Lanyard's.
	Provider string
	// Volume is the name of the token's volume, and File is the path in a container,
	// with slashes and without a drive.
	Volume, File string
	// Path is the path in the volume.
	Path              string
	Audience          string
	ExpirationSeconds int64
}

// Kinds of containers.
const (
	Init      = "init"
	Ordinary  = "container"
	Ephemeral = "ephemeral"
)

// kinds are the kinds of containers by the members of the spec.
var kinds = map[pod.Kind]string{pod.InitContainers: Init, pod.Containers: Ordinary, pod.EphemeralContainers: Ephemeral}

// Container is a container of a pod.
type Container struct {
	Name string
	// Kind is Init, Ordinary or Ephemeral.
	Kind string
	// TakesPart reports whether Lanyard's token volume is mounted.
	TakesPart bool
	// Providers are the providers whose variables point to Lanyard's files.
	Providers []string
	// Variables are all variables, the container's own and Lanyard's.
	Variables []Variable
	// Tokens are all mounted tokens with an audience, Lanyard's and others.
	Tokens []Token

	read   *pod.Container
	mounts []mount
}

// Variable is an environment variable.
type Variable struct {
	Name, Value string
	// From is the JSON of valueFrom, if the value comes from elsewhere, such as a Secret.
	From json.RawMessage
	// Injected reports whether Lanyard set the variable.
	Injected bool
	// ambiguous reports whether the container itself may have set an Injected variable: it
	// is before the first one that points to the token volume.
	ambiguous bool
	read      *pod.Variable
}

// mount is a volume mount.
type mount struct {
	*pod.Mount
	injected bool
}

// Read reads a pod: a pointer to a Pod of the API, an unstructured object or JSON.
func Read(object any, s *annotations.Settings) (*Pod, error) {
	text, isText := object.(json.RawMessage)
	if !isText {
		var err error
		if text, err = json.Marshal(object); err != nil {
			return nil, fmt.Errorf("read the pod: %w", err)
		}
	}
	read, err := pod.ReadAll(text)
	if err != nil {
		return nil, err
	}
	return newPod(read, s), nil
}

// newPod returns a pod that was read.
func newPod(read *pod.Pod, s *annotations.Settings) *Pod {
	p := &Pod{Name: string(read.Name), Files: map[string]string{}, settings: s, read: read}
	if value := read.Annotations[annotations.Injected]; value != "" {
		p.Providers = strings.Split(value, ",")
	}
	for _, d := range s.Providers {
		if !slices.Contains(p.Providers, d.Name) {
			continue
		}
		p.definitions = append(p.definitions, d)
		if d.CredentialFile == nil {
			continue
		}
		if content, found := read.Annotations[annotations.Prefix+d.CredentialFile.Annotation]; found {
			p.Files[d.Name] = content
		}
	}
	p.readVolumes()
	for _, kind := range []pod.Kind{pod.InitContainers, pod.Containers, pod.EphemeralContainers} {
		for i := range read.Containers {
			if c := &read.Containers[i]; c.Kind == kind {
				p.readContainer(c)
			}
		}
	}
	return p
}

// readVolumes finds the token volume and the volumes with copies. A volume with the
// name of a copy before the token volume is another webhook's: lists grow at the end.
func (p *Pod) readVolumes() {
	if len(p.Providers) == 0 {
		return
	}
	at := -1
	for _, name := range []string{mutate.FallbackVolumeName, mutate.VolumeName} {
		if i := slices.IndexFunc(p.read.Volumes, func(v pod.Volume) bool { return string(v.Name) == name }); i >= 0 && at < 0 {
			at, p.Volume = i, name
		}
	}
	if at < 0 {
		return
	}
	for _, d := range p.definitions {
		tokens := tokensOf(&p.read.Volumes[at])
		found := slices.IndexFunc(tokens, func(t Token) bool { return t.Path == d.TokenPath })
		if found < 0 {
			continue
		}
		token := tokens[found]
		token.Provider = d.Name
		p.Tokens = append(p.Tokens, token)
		for i := at + 1; i < len(p.read.Volumes); i++ {
			v := &p.read.Volumes[i]
			tokens := tokensOf(v)
			if string(v.Name) == d.CopyVolume && len(v.Sources) == 1 && len(tokens) == 1 && tokens[0].Audience == token.Audience {
				p.copies = append(p.copies, tokens[0])
			}
		}
	}
}

// tokensOf returns the tokens in a volume, except tokens for the API server.
func tokensOf(v *pod.Volume) []Token {
	var tokens []Token
	for _, s := range v.Sources {
		if s.Token && len(s.Audience) > 0 {
			seconds := cmp.Or(s.ExpirationSeconds, annotations.DefaultTokenExpirationSeconds)
			tokens = append(tokens, Token{Volume: string(v.Name), Path: string(s.Path), Audience: string(s.Audience), ExpirationSeconds: seconds})
		}
	}
	return tokens
}

// newContainer returns a container with its variables and mounts.
func newContainer(read *pod.Container) Container {
	c := Container{
		Name: string(read.Name), Kind: kinds[read.Kind], read: read,
		Variables: make([]Variable, len(read.Variables)), mounts: make([]mount, len(read.Mounts)),
	}
	for i := range read.Variables {
		v := &read.Variables[i]
		c.Variables[i] = Variable{Name: string(v.Name), Value: string(v.Value), From: v.From, read: v}
	}
	for i := range read.Mounts {
		c.mounts[i].Mount = &read.Mounts[i]
	}
	return c
}

// readContainer adds a container.
func (p *Pod) readContainer(read *pod.Container) {
	c := newContainer(read)
	p.readMounts(&c)
	if c.TakesPart {
		at := mountedAt{p.MountPath, p.read.Windows, c.Tokens, c.Variables, p.Files}
		definitions := slices.DeleteFunc(slices.Clone(p.definitions), func(d *annotations.Provider) bool { return !at.hasVariables(d) })
		at.markInjected(definitions)
		at.markAmbiguous(definitions)
		c.Providers = pointingTo(c.Variables, p.definitions, p.MountPath)
	}
	p.Containers = append(p.Containers, c)
}

// readMounts sets the tokens of a container, and marks Lanyard's mounts: the token volume, and the
// copies after it.
func (p *Pod) readMounts(c *Container) {
	for i, mount := range slices.Backward(c.mounts) {
		if p.Volume == "" || string(mount.Volume) != p.Volume || !mount.ReadOnly || mount.Partial {
			continue
		}
		c.TakesPart, p.MountPath = true, string(mount.Path)
		for j := range p.Tokens {
			p.Tokens[j].File = path.Join(p.MountPath, p.Tokens[j].Path)
		}
		c.mounts[i].injected = true
		for j := i + 1; j < len(c.mounts) && p.isCopy(string(c.mounts[j].Volume)); j++ {
			c.mounts[j].injected = true
		}
		break
	}
	for _, mount := range c.mounts {
		volume := p.read.Volume(string(mount.Volume))
		if volume == nil {
			continue
		}
		for _, t := range tokensOf(volume) {
			t.File = path.Join(slashes(string(mount.Path)), t.Path)
			c.Tokens = append(c.Tokens, t)
		}
	}
}

func (p *Pod) isCopy(volume string) bool {
	return slices.ContainsFunc(p.copies, func(t Token) bool { return t.Volume == volume })
}

// slashes returns the path of a file in a Windows container in the form of its mount path.
func slashes(file string) string {
	if len(file) > 2 && file[1] == ':' {
		file = file[2:]
	}
	return strings.ReplaceAll(file, `\`, "/")
}

// Remove removes Lanyard's additions from the JSON object of a pod: marks, the label,
// volumes, mounts and variables. It does not change a pod that Lanyard did not inject. A variable
// that the container itself may have set, as in Comparer.Compare, stays only if the annotations of the
// ServiceAccount are unchanged since the pod was created.
func Remove(object map[string]any, s *annotations.Settings, unchanged bool) error {
	p, err := Read(object, s)
	if err != nil || len(p.Providers) == 0 {
		return err
	}
	p.keep(object, p.withoutOwn(unchanged))
	return nil
}

// RemoveAll removes the credentials that Lanyard or another webhook injected. For Lanyard, it does
// what Remove does. For another webhook, it removes what Decide would treat as the containers' own
// credentials: the token, the variables that point to it, and the variables that Lanyard would
// write for the identities of the ServiceAccount. It also removes sidecars of the other webhook.
func RemoveAll(object map[string]any, s *annotations.Settings, unchanged bool, identities []annotations.Identity) error {
	p, err := Read(object, s)
	if err != nil {
		return err
	}
	p.keep(object, p.original(unchanged, identities))
	return nil
}

// original returns the pod without what RemoveAll removes.
func (p *Pod) original(unchanged bool, identities []annotations.Identity) *pod.Pod {
	switch {
	case len(p.Providers) > 0:
		return p.withoutSidecars(p.withoutOwn(unchanged))
	case p.OfOthers():
		return p.withoutSidecars(p.withoutOthers(identities))
	}
	return p.read.Clone()
}

// withoutOwn returns the pod without what Lanyard added.
func (p *Pod) withoutOwn(unchanged bool) *pod.Pod {
	result := p.without(func(v *Variable) bool { return unchanged && v.ambiguous }, p.isOwn)
	for _, key := range p.settings.Marks() {
		delete(result.Annotations, key)
	}
	if result.IdentityLabel == annotations.IdentityInjected {
		result.IdentityLabel = ""
	}
	if c := p.verifier(); c != nil && c.isAdded() {
		result.Containers = slices.DeleteFunc(result.Containers, func(o pod.Container) bool {
			return o.Kind == c.read.Kind && o.Index == c.read.Index
		})
	}
	return result
}

// verifier returns the container that verifies the credentials of the pod, or nil if there is none.
func (p *Pod) verifier() *Container {
	return p.container(&Container{Name: mutate.VerifyContainer, Kind: Init})
}

// isAdded reports whether Lanyard added the whole container.
func (c *Container) isAdded() bool {
	return c.TakesPart && !slices.ContainsFunc(c.Variables, func(v Variable) bool { return !v.Injected }) &&
		!slices.ContainsFunc(c.mounts, func(m mount) bool { return !m.injected })
}

// without returns the pod without the injected mounts and variables, except the container's own
// variables, and without the added volumes, except those that a mount still needs.
func (p *Pod) without(isOwn func(*Variable) bool, added func(*pod.Volume) bool) *pod.Pod {
	result, used := p.read.Clone(), map[string]bool{}
	result.Containers = result.Containers[:0]
	for i := range p.Containers {
		c := &p.Containers[i]
		kept := *c.read
		kept.Variables, kept.Mounts = nil, nil
		for j := range c.Variables {
			if v := &c.Variables[j]; !v.Injected || isOwn(v) {
				kept.Variables = append(kept.Variables, *v.read)
			}
		}
		for _, m := range c.mounts {
			if !m.injected {
				kept.Mounts = append(kept.Mounts, *m.Mount)
				used[string(m.Volume)] = true
			}
		}
		result.Containers = append(result.Containers, kept)
	}
	result.SetVolumes(slices.DeleteFunc(result.Volumes, func(v pod.Volume) bool { return !used[string(v.Name)] && added(&v) }))
	return result
}

// isOwn reports whether Lanyard added the volume, by its name and its form.
func (p *Pod) isOwn(v *pod.Volume) bool {
	switch {
	case p.isCopy(string(v.Name)):
		return true
	case string(v.Name) != p.Volume || v.DefaultMode != 420: // 0644
		return false
	}
	return !slices.ContainsFunc(v.Sources, func(s pod.Source) bool {
		switch {
		case s.Token:
			return !slices.ContainsFunc(p.Tokens, func(t Token) bool { return t.Path == string(s.Path) })
		case s.File:
			return !slices.ContainsFunc(p.settings.Providers, func(d *annotations.Provider) bool {
				return d.CredentialFile != nil && d.CredentialFile.Path == string(s.Path)
			})
		}
		return true
	})
}

// keep removes the parts of the pod's JSON object that the copy without does not contain.
func (p *Pod) keep(object map[string]any, without *pod.Pod) {
	metadata, _ := object["metadata"].(map[string]any)
	if marks, _ := metadata["annotations"].(map[string]any); len(without.Annotations) < len(p.read.Annotations) {
		maps.DeleteFunc(marks, func(key string, _ any) bool { _, kept := without.Annotations[key]; return !kept })
	}
	if labels, _ := metadata["labels"].(map[string]any); without.IdentityLabel != p.read.IdentityLabel {
		delete(labels, annotations.IdentityLabel)
	}
	spec, _ := object["spec"].(map[string]any)
	kept := map[pod.Kind][]int{}
	for i := range without.Containers {
		c := &without.Containers[i]
		kept[c.Kind] = append(kept[c.Kind], c.Index)
		list, _ := spec[string(c.Kind)].([]any)
		container, _ := list[c.Index].(map[string]any)
		keepElements(container, "env", indices(c.Variables, func(v *pod.Variable) int { return v.Index }))
		mounts := slices.DeleteFunc(slices.Clone(c.Mounts), func(m pod.Mount) bool { return m.Device })
		keepElements(container, "volumeMounts", indices(mounts, func(m *pod.Mount) int { return m.Index }))
	}
	for kind := range kinds {
		keepElements(spec, string(kind), kept[kind])
	}
	keepElements(spec, "volumes", indices(without.Volumes, func(v *pod.Volume) int { return v.Index }))
}

func indices[T any](list []T, index func(*T) int) []int {
	result := make([]int, len(list))
	for i := range list {
		result[i] = index(&list[i])
	}
	return result
}

// keepElements removes all elements of a list but those with these indices, and nulls. It removes a
// list that becomes empty.
func keepElements(object map[string]any, member string, indices []int) {
	list, _ := object[member].([]any)
	var kept []any
	for i, element := range list {
		if element == nil || slices.Contains(indices, i) {
			kept = append(kept, element)
		}
	}
	if len(kept) == 0 {
		delete(object, member)
	} else {
		object[member] = kept
	}
}
