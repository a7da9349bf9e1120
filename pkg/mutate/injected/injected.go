// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package injected reads the injection back from a pod, removes it, and compares it
// with the contents of a new pod. It takes a pod in any form that
// encodes as the JSON of the API, so that lanyard-webhook need not link the types of
// the Kubernetes API.
//
//	injected.go  Read and Remove
//	variables.go tells Lanyard's variables from a container's own
//	compare.go   compares a running pod with a new one
//	others.go    compares a running pod that another webhook injected
package injected

import (
	"cmp"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/pkg/mutate"
)

// Pod describes the tokens of a pod and the containers that use them.
type Pod struct {
	// Name is the name of the pod; empty if it has none yet.
	Name string
	// Providers are the injected providers, sorted; empty if the pod was not injected.
	Providers []string
	// Volume is the name of the token volume, and MountPath is its path in the
	// containers; empty if the pod has no such volume or mount.
	Volume, MountPath string
	// Tokens are the tokens in the token volume, one for each provider.
	Tokens []Token
	// Files are the contents of the credential files, by provider.
	Files map[string]string
	// Containers are all containers, in the order init, ordinary and ephemeral.
	Containers []Container

	// copies are Lanyard's copies of tokens, each in its own volume.
	copies      []Token
	settings    *annotations.Settings
	annotations map[string]string
	volumes     []volume
	windows     bool
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

// lists are the kinds of containers by the members of the spec.
var lists = []struct{ kind, member string }{{Init, "initContainers"}, {Ordinary, "containers"}, {Ephemeral, "ephemeralContainers"}}

// Container is a container of a pod.
type Container struct {
	Name string
	// Kind is Init, Ordinary or Ephemeral.
	Kind string
	// TakesPart reports whether Lanyard's token volume is mounted.
	TakesPart bool
	// Providers are the providers whose variables point into the token volume.
	Providers []string
	// Variables are all variables, the container's own and Lanyard's.
	Variables []Variable
	// Tokens are all mounted tokens with an audience, Lanyard's and others.
	Tokens []Token

	mounts []mount
}

// Variable is an environment variable.
type Variable struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	// From is set if the value comes from elsewhere, such as a Secret.
	From json.RawMessage `json:"valueFrom"`
	// Injected reports whether Lanyard set the variable.
	Injected bool `json:"-"`
	// ambiguous reports whether the container itself may have set an Injected variable: it
	// is before the first one that points to the token volume.
	ambiguous bool
}

// manifest has the members of a pod that Read needs.
type manifest struct {
	Metadata struct {
		Name        string            `json:"name"`
		Annotations map[string]string `json:"annotations"`
	} `json:"metadata"`
	Spec struct {
		OS struct {
			Name string `json:"name"`
		} `json:"os"`
		NodeSelector        map[string]string `json:"nodeSelector"`
		Volumes             []volume          `json:"volumes"`
		InitContainers      []container       `json:"initContainers"`
		Containers          []container       `json:"containers"`
		EphemeralContainers []container       `json:"ephemeralContainers"`
	} `json:"spec"`
}

type container struct {
	Name   string     `json:"name"`
	Env    []Variable `json:"env"`
	Mounts []mount    `json:"volumeMounts"`
}

type mount struct {
	Volume   string `json:"name"`
	Path     string `json:"mountPath"`
	ReadOnly bool   `json:"readOnly"`
	SubPath  string `json:"subPath"`
	injected bool
}

type volume struct {
	Name      string `json:"name"`
	Projected *struct {
		DefaultMode int32    `json:"defaultMode"`
		Sources     []source `json:"sources"`
	} `json:"projected"`
}

type source struct {
	Token *struct {
		Audience          string `json:"audience"`
		ExpirationSeconds int64  `json:"expirationSeconds"`
		Path              string `json:"path"`
	} `json:"serviceAccountToken"`
	Files *struct {
		Items []struct {
			Path string `json:"path"`
		} `json:"items"`
	} `json:"downwardAPI"`
}

// Read reads a pod: a pointer to a Pod of the API, an unstructured object or JSON.
func Read(pod any, s *annotations.Settings) (*Pod, error) {
	text, isText := pod.(json.RawMessage)
	if !isText {
		var err error
		if text, err = json.Marshal(pod); err != nil {
			return nil, fmt.Errorf("read the pod: %w", err)
		}
	}
	var m manifest
	if err := json.Unmarshal(text, &m); err != nil {
		return nil, fmt.Errorf("read the pod: %w", err)
	}
	p := &Pod{
		Name: m.Metadata.Name, Files: map[string]string{}, settings: s, annotations: m.Metadata.Annotations,
		volumes: m.Spec.Volumes, windows: mutate.IsWindows(m.Spec.OS.Name, m.Spec.NodeSelector),
	}
	if value := m.Metadata.Annotations[annotations.Injected]; value != "" {
		p.Providers = strings.Split(value, ",")
	}
	definitions := p.definitions(s)
	for _, d := range definitions {
		if d.CredentialFile == nil {
			continue
		}
		if content, found := m.Metadata.Annotations[annotations.Prefix+d.CredentialFile.Annotation]; found {
			p.Files[d.Name] = content
		}
	}
	p.readVolumes(definitions)
	for i, list := range [][]container{m.Spec.InitContainers, m.Spec.Containers, m.Spec.EphemeralContainers} {
		for j := range list {
			p.readContainer(lists[i].kind, &list[j], definitions)
		}
	}
	return p, nil
}

// definitions returns the definitions of the injected providers.
func (p *Pod) definitions(s *annotations.Settings) []*annotations.Provider {
	return slices.DeleteFunc(slices.Clone(s.Providers), func(d *annotations.Provider) bool { return !slices.Contains(p.Providers, d.Name) })
}

// readVolumes finds the token volume and the volumes with copies. A volume with the
// name of a copy before the token volume is another webhook's: lists grow at the end.
func (p *Pod) readVolumes(definitions []*annotations.Provider) {
	if len(p.Providers) == 0 {
		return
	}
	at := -1
	for _, name := range []string{mutate.FallbackVolumeName, mutate.VolumeName} {
		if i := slices.IndexFunc(p.volumes, func(v volume) bool { return v.Name == name }); i >= 0 && at < 0 {
			at, p.Volume = i, name
		}
	}
	if at < 0 {
		return
	}
	for _, d := range definitions {
		tokens := p.volumes[at].tokens()
		found := slices.IndexFunc(tokens, func(t Token) bool { return t.Path == d.TokenPath })
		if found < 0 {
			continue
		}
		token := tokens[found]
		token.Provider = d.Name
		p.Tokens = append(p.Tokens, token)
		for i := at + 1; i < len(p.volumes); i++ {
			v := &p.volumes[i]
			tokens := v.tokens()
			if v.Name == d.CopyVolume && v.Projected != nil && len(v.Projected.Sources) == 1 && len(tokens) == 1 && tokens[0].Audience == token.Audience {
				tokens[0].Provider = d.Name
				p.copies = append(p.copies, tokens[0])
			}
		}
	}
}

// tokens returns the tokens in the volume, except tokens for the API server.
func (v *volume) tokens() []Token {
	if v.Projected == nil {
		return nil
	}
	var tokens []Token
	for _, s := range v.Projected.Sources {
		if t := s.Token; t != nil && t.Audience != "" {
			seconds := cmp.Or(t.ExpirationSeconds, annotations.DefaultTokenExpirationSeconds)
			tokens = append(tokens, Token{Volume: v.Name, Path: t.Path, Audience: t.Audience, ExpirationSeconds: seconds})
		}
	}
	return tokens
}

// readContainer adds a container.
func (p *Pod) readContainer(kind string, m *container, definitions []*annotations.Provider) {
	c := Container{Name: m.Name, Kind: kind, Variables: m.Env, mounts: m.Mounts}
	var mountPath string
	for i, mount := range slices.Backward(c.mounts) {
		if p.Volume == "" || mount.Volume != p.Volume || !mount.ReadOnly || mount.SubPath != "" {
			continue
		}
		c.TakesPart, mountPath = true, mount.Path
		c.mounts[i].injected = true
		for j := i + 1; j < len(c.mounts) && p.isCopy(c.mounts[j].Volume); j++ {
			c.mounts[j].injected = true
			p.setFile(&c.mounts[j])
		}
		break
	}
	for _, mount := range c.mounts {
		for i := range p.volumes {
			if p.volumes[i].Name != mount.Volume {
				continue
			}
			for _, t := range p.volumes[i].tokens() {
				t.File = path.Join(slashes(mount.Path), t.Path)
				c.Tokens = append(c.Tokens, t)
			}
		}
	}
	if c.TakesPart {
		p.MountPath = mountPath
		for i := range p.Tokens {
			p.Tokens[i].File = path.Join(mountPath, p.Tokens[i].Path)
		}
		c.Providers = pointingTo(c.Variables, definitions, mountPath)
		at := mountedAt{mountPath, p.windows, c.Tokens, c.Variables, p.Files}
		definitions = slices.DeleteFunc(slices.Clone(definitions), func(d *annotations.Provider) bool { return !at.hasVariables(d) })
		at.markInjected(definitions)
		at.markAmbiguous(definitions)
	}
	p.Containers = append(p.Containers, c)
}

func (p *Pod) isCopy(volume string) bool {
	return slices.ContainsFunc(p.copies, func(t Token) bool { return t.Volume == volume })
}

// setFile sets the path of a copy, as its mount has it.
func (p *Pod) setFile(m *mount) {
	for i := range p.copies {
		if p.copies[i].Volume == m.Volume {
			p.copies[i].File = path.Join(m.Path, p.copies[i].Path)
		}
	}
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
// that the container itself may have set, as in Compare, stays only if the annotations of the
// ServiceAccount are unchanged since the pod was created.
func Remove(pod map[string]any, s *annotations.Settings, unchanged bool) error {
	p, err := Read(pod, s)
	if err != nil || len(p.Providers) == 0 {
		return err
	}
	p.removeOwn(pod, s, unchanged)
	return nil
}

// RemoveAll removes the credentials that Lanyard or another webhook injected. For Lanyard, it does
// what Remove does. For another webhook, it removes what Decide would take for the containers' own
// credentials: the token, the variables that point to it, and the variables that Lanyard would
// write for the identities of the ServiceAccount. It also removes the containers that another
// webhook added for the programs in the others.
func RemoveAll(pod map[string]any, s *annotations.Settings, unchanged bool, identities []annotations.Identity) error {
	p, err := Read(pod, s)
	if err == nil {
		p.removeAll(pod, s, unchanged, identities)
	}
	return err
}

// removeAll is RemoveAll for a pod that was read. p is the result of Read.
func (p *Pod) removeAll(pod map[string]any, s *annotations.Settings, unchanged bool, identities []annotations.Identity) {
	switch {
	case len(p.Providers) > 0:
		p.removeOwn(pod, s, unchanged)
	case p.OfOthers(s):
		p.removeOthers(pod, s, identities)
	default:
		return
	}
	spec, _ := pod["spec"].(map[string]any)
	p.removeSidecars(spec)
}

// removeOwn removes what Lanyard added to the pod.
func (p *Pod) removeOwn(pod map[string]any, s *annotations.Settings, unchanged bool) {
	metadata, _ := pod["metadata"].(map[string]any)
	marks, _ := metadata["annotations"].(map[string]any)
	for _, key := range s.Marks() {
		delete(marks, key)
	}
	if labels, _ := metadata["labels"].(map[string]any); labels[annotations.IdentityLabel] == annotations.IdentityInjected {
		delete(labels, annotations.IdentityLabel)
	}
	spec, _ := pod["spec"].(map[string]any)
	p.removeInjected(spec, func(v *Variable) bool { return unchanged && v.ambiguous }, func(v *volume) bool { return p.isOwn(v, s) })
}

// removeInjected removes the injected mounts and variables, except the container's own variables,
// and the added volumes, except those that a mount still needs.
func (p *Pod) removeInjected(spec map[string]any, isOwn func(*Variable) bool, added func(*volume) bool) {
	i := 0
	used := map[string]bool{}
	for _, list := range lists {
		for _, element := range elements(spec, list.member) {
			c := &p.Containers[i]
			i++
			object, _ := element.(map[string]any)
			keep(object, "env", func(i int) bool { return !c.Variables[i].Injected || isOwn(&c.Variables[i]) })
			keep(object, "volumeMounts", func(i int) bool {
				used[c.mounts[i].Volume] = used[c.mounts[i].Volume] || !c.mounts[i].injected
				return !c.mounts[i].injected
			})
		}
	}
	keep(spec, "volumes", func(i int) bool { return used[p.volumes[i].Name] || !added(&p.volumes[i]) })
}

// isOwn reports whether Lanyard added the volume, by its name and its form.
func (p *Pod) isOwn(v *volume, settings *annotations.Settings) bool {
	switch {
	case p.isCopy(v.Name):
		return true
	case v.Name != p.Volume || v.Projected == nil || v.Projected.DefaultMode != 420: // 0644
		return false
	}
	return !slices.ContainsFunc(v.Projected.Sources, func(s source) bool {
		switch {
		case s.Token != nil:
			return !slices.ContainsFunc(p.Tokens, func(t Token) bool { return t.Path == s.Token.Path })
		case s.Files != nil && len(s.Files.Items) == 1:
			return !slices.ContainsFunc(settings.Providers, func(d *annotations.Provider) bool {
				return d.CredentialFile != nil && d.CredentialFile.Path == s.Files.Items[0].Path
			})
		}
		return true
	})
}

func elements(object map[string]any, member string) []any {
	list, _ := object[member].([]any)
	return list
}

// keep removes the other elements of a list. It removes a list that becomes empty.
func keep(object map[string]any, member string, wanted func(i int) bool) {
	list := elements(object, member)
	var kept []any
	for i, element := range list {
		if wanted(i) {
			kept = append(kept, element)
		}
	}
	if len(kept) == 0 {
		delete(object, member)
	} else if len(kept) < len(list) {
		object[member] = kept
	}
}
