// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package peer knows the other webhooks whose annotations Lanyard takes over.
//
//	peers.yaml    the table: the keys, paths and names of each peer
//	peer.go       the type of the table, and questions about it
//	adopt.go      makes Lanyard's annotations follow those of the peers
//	translate.go  the annotations of one peer in Lanyard's words
package peer

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"sync"

	"sigs.k8s.io/yaml"

	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

// Place is where a peer reads an input.
type Place string

// The places that Lanyard reads. The table contains more.
const (
	OnServiceAccount      Place = "ServiceAccount annotation"
	OnServiceAccountLabel Place = "ServiceAccount label"
	OnPod                 Place = "pod annotation"
	OnPodLabel            Place = "pod label"
	OnPodField            Place = "pod field"
	InContainer           Place = "variable of a container"
	InRunningPod          Place = "variable of a running pod"
	AsFlag                Place = "flag of the program"
	AsVariable            Place = "variable of the program"
)

// Result is the outcome for one input of a peer.
type Result string

// The results.
const (
	// Translated means that an annotation of Lanyard is added.
	Translated Result = "translated"
	// NothingToDo means that Lanyard does it already, or that it has no effect.
	NothingToDo Result = "nothing to do"
	// Setting means that the input becomes a setting of the cluster.
	Setting Result = "setting"
	// Manual means that a person must decide, or make the change elsewhere.
	Manual Result = "by hand"
	// Unsupported means that Lanyard has no equivalent.
	Unsupported Result = "not supported"
)

// Input is one thing that a peer reads, or does.
type Input struct {
	Place Place `json:"place"`
	// Key is the full key or name. A trailing star matches any characters.
	Key string `json:"key"`
	// Result is the usual outcome.
	Result Result `json:"result"`
	// Becomes is Lanyard's annotation without the prefix, or "config." and the name of a
	// setting.
	Becomes string `json:"becomes"`
	// Values maps the input's values, in lower case, to those of the setting where they
	// differ.
	Values map[string]string `json:"values"`
	// Note contains details, in whole sentences.
	Note string `json:"note"`
	// Ignored is the warning that the annotation is ignored: always if the input becomes
	// nothing, else if the value is empty. With OnlyFalse, only "false" causes a warning.
	Ignored   string `json:"ignored"`
	OnlyFalse bool   `json:"onlyFalse"`
	// Half completes the warning about an identity without its second key.
	Half string `json:"half"`
}

// SettingOf returns the name of the setting that the input becomes, or "".
func (in *Input) SettingOf() string {
	if name, found := strings.CutPrefix(in.Becomes, "config."); found {
		return name
	}
	return ""
}

// Order is what happens to a pod that Lanyard and a peer change.
type Order struct {
	// Called says whether the API server calls the peer before or after Lanyard. Reinvocation
	// is the peer's reinvocationPolicy, or empty for any.
	Called       string `json:"called"`
	Reinvocation string `json:"reinvocation"`
	// Note describes the outcome, in whole sentences.
	Note string `json:"note"`
}

// Lifetime contains the rules of a peer for the lifetime of its tokens, in seconds.
type Lifetime struct {
	// Least is the minimum, and Unset the lifetime without an annotation.
	Least int64 `json:"least"`
	Unset int64 `json:"unset"`
	// Denies reports whether the peer denies pods with a lifetime outside its limits.
	Denies bool `json:"denies"`
	// IgnoresWords reports whether the peer ignores a lifetime that is not a number.
	IgnoresWords bool `json:"ignoresWords"`
}

// Peer is another program that gives pods identities by the annotations of
// ServiceAccounts.
type Peer struct {
	// Name is the peer's name in flags, and Program its usual name.
	Name    string `json:"name"`
	Program string `json:"program"`
	// Provider is the name of the provider of its identities.
	Provider string `json:"provider"`
	// Prefix is the prefix of its keys. OwnsPrefix reports whether only this peer uses it.
	Prefix     string `json:"prefix"`
	OwnsPrefix bool   `json:"ownsPrefix"`
	// Identity lists the annotations that ask for an identity. All must have a value.
	Identity []string `json:"identity"`
	// Requires is the key, without the prefix, of an annotation for which the cluster must
	// set a default, or empty.
	Requires string `json:"requires"`
	// Audience is the audience without an annotation, or empty for the cluster's default.
	Audience string `json:"audience"`
	// Lifetime is nil if the peer has no such rules.
	Lifetime *Lifetime `json:"lifetime"`
	// TokenPath is the path of the token. Programs may hard-code it.
	TokenPath string `json:"tokenPath"`
	// MovingPath is a directory of the token that differs between versions of the peer, so
	// that no program relies on it, or empty.
	MovingPath string `json:"movingPath"`
	// Credentials is the annotation of pods that contains the credential file, or empty.
	Credentials string `json:"credentials"`
	// Volumes and Containers are the names of the volumes and containers that it adds.
	Volumes    []string `json:"volumes"`
	Containers []string `json:"containers"`
	// Sidecar is the annotation of pods whose Containers serve the other containers, or empty
	// if Containers only prepare the credentials.
	Sidecar string `json:"sidecar"`
	// Replaces lists the containers that it overwrites on each call.
	Replaces []string `json:"replaces"`
	// Binding is the prefix of annotations that, if true, give a pod a token for another
	// audience, or empty.
	Binding string `json:"binding"`
	// Version is the version that this table describes. Reinvocation is the
	// reinvocationPolicy in its manifests.
	Version      string `json:"version"`
	Reinvocation string `json:"reinvocation"`
	// Orders describes what happens while both webhooks run.
	Orders []Order `json:"orders"`
	// Paths are the other directories that it mounts.
	Paths []string `json:"paths"`
	// Separator separates the names of excluded containers.
	Separator string `json:"separator"`
	// Programs are parts of the names of its images and commands. Webhooks are the names of
	// its webhooks, Configurations are parts of the names of their configurations.
	Programs       []string `json:"programs"`
	Webhooks       []string `json:"webhooks"`
	Configurations []string `json:"configurations"`
	// App is the label app.kubernetes.io/name of its webhook configurations, which may have
	// any name, or empty if there is none.
	App string `json:"app"`
	// ConfigMap is the name of its ConfigMap, or empty.
	ConfigMap string `json:"configMap"`
	// Defaults are values of its flags and variables that need no migration.
	Defaults map[string]string `json:"defaults"`
	// Inputs lists everything that it reads.
	Inputs []Input `json:"inputs"`
}

//go:embed peers.yaml
var table []byte

// All returns all peers, in the order of their precedence. The caller must not change them.
func All() []*Peer { return slices.Clone(all()) }

// all reads the table only once, because some callers need it for each container of a cluster.
var all = sync.OnceValue(func() (peers []*Peer) {
	if err := yaml.UnmarshalStrict(table, &peers); err != nil {
		panic(fmt.Sprintf("peers.yaml: %v", err)) // a test reads the same bytes
	}
	return peers
})

// Names lists the names of all peers.
func Names() []string {
	var names []string
	for _, p := range All() {
		names = append(names, p.Name)
	}
	return names
}

// Named returns the peers of these names, in the order of their precedence.
func Named(names []string) ([]*Peer, error) {
	known := Names()
	for _, name := range names {
		if !slices.Contains(known, name) {
			return nil, fmt.Errorf("got %q, want one or more of %s", name, strings.Join(known, ", "))
		}
	}
	return named(names), nil
}

func named(names []string) []*Peer {
	return slices.DeleteFunc(All(), func(p *Peer) bool { return !slices.Contains(names, p.Name) })
}

// Of returns the peers whose annotations the settings adopt, in the order of their
// precedence.
func Of(s *annotations.Settings) []*Peer { return named(s.Peers) }

// Rules returns the rules for pods while the peers are adopted, for the fields
// PeerContainers and PeerTokens of annotations.Settings.
func Rules(peers []*Peer) (containers []string, tokens map[string]string) {
	for _, p := range peers {
		containers = append(containers, p.Replaces...)
		if p.Binding == "" {
			continue
		}
		if tokens == nil {
			tokens = map[string]string{}
		}
		tokens[p.Binding] = p.Provider
	}
	return containers, tokens
}

// Input returns the row of the table, or nil.
func (p *Peer) Input(place Place, key string) *Input {
	for i := range p.Inputs {
		in := &p.Inputs[i]
		start, isGlob := strings.CutSuffix(in.Key, "*")
		if in.Place == place && (key == in.Key || isGlob && strings.HasPrefix(key, start)) {
			return in
		}
	}
	return nil
}

// adopted reports whether adoption reads this annotation.
func (in *Input) adopted() bool { return in.Becomes != "" || in.Ignored != "" }

// Keys lists the annotation keys of ServiceAccounts that adoption reads.
func (p *Peer) Keys() []string {
	var keys []string
	for i := range p.Inputs {
		if in := &p.Inputs[i]; in.Place == OnServiceAccount && in.adopted() {
			keys = append(keys, in.Key)
		}
	}
	return keys
}

// Reads reports whether adoption reads the annotation key of a ServiceAccount.
func (p *Peer) Reads(key string) bool {
	if !strings.HasPrefix(key, p.Prefix) {
		return false
	}
	// A ServiceAccount may have very many annotations, so no list is made for each.
	in := p.Input(OnServiceAccount, key)
	return in != nil && in.adopted()
}

// Concerns reports whether the peer reads or owns one of the keys.
func (p *Peer) Concerns(place Place, values map[string]string) bool {
	for key := range values {
		if p.Input(place, key) != nil || p.OwnsPrefix && strings.HasPrefix(key, p.Prefix) {
			return true
		}
	}
	return false
}

// Asks reports whether annotations of a ServiceAccount ask the peer for an identity.
func (p *Peer) Asks(values map[string]string) bool {
	return !slices.ContainsFunc(p.Identity, func(key string) bool { return values[key] == "" })
}

// Wrote reports whether the value of a variable is the path of a file that the peer mounts.
func (p *Peer) Wrote(value string) bool {
	return value != "" && value == p.TokenPath || slices.ContainsFunc(p.Paths, func(path string) bool { return value == path || strings.HasPrefix(value, path+"/") })
}

// Runs reports whether a container runs the peer's program.
func (p *Peer) Runs(image string, command []string) bool {
	return slices.ContainsFunc(p.Programs, func(name string) bool {
		return strings.Contains(image, name) || len(command) > 0 && strings.HasSuffix(command[0], name)
	})
}

// Registration describes the webhook configuration of another program.
type Registration struct {
	Name   string
	Labels map[string]string
	// Webhooks are the names of its webhooks. Again reports whether one of them has the
	// reinvocationPolicy IfNeeded.
	Webhooks []string
	Again    bool
	// Namespaces are the namespaces of its Services, where the program runs.
	Namespaces []string
}

// Registers reports whether a webhook configuration belongs to the peer, judging by its
// name, its label and the names of its webhooks.
func (p *Peer) Registers(r Registration) bool {
	return p.App != "" && r.Labels["app.kubernetes.io/name"] == p.App ||
		slices.ContainsFunc(p.Configurations, func(part string) bool { return strings.Contains(r.Name, part) }) ||
		slices.ContainsFunc(p.Webhooks, func(name string) bool { return slices.Contains(r.Webhooks, name) })
}

// Beside describes what happens if Lanyard, whose configuration has the given name, is
// registered as well. The API server calls configurations in the order of their names.
func (p *Peer) Beside(r Registration, lanyard string) string {
	order, policy := "after", "Never"
	if r.Name < lanyard {
		order = "before"
	}
	if r.Again {
		policy = "IfNeeded"
	}
	note := ""
	for _, o := range p.Orders {
		if o.Called == order && (o.Reinvocation == "" || o.Reinvocation == policy) {
			note = strings.ReplaceAll(o.Note, "`", "")
		}
	}
	return strings.TrimSpace(fmt.Sprintf("It is called %s Lanyard, with the reinvocationPolicy %s. %s", order, policy, note))
}
