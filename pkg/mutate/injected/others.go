// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package injected

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/lanyard-dev/lanyard/internal/peer"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/pkg/mutate/internal/pod"
	"github.com/lanyard-dev/lanyard/pkg/mutate/reason"
)

// Difference is one way in which the credentials of a new pod differ from those that another
// webhook gave a running one.
type Difference struct {
	Container string `json:"container"`
	// Field is the name of the annotation that sets the value, without the prefix, such as
	// aws-role-arn, or the variable that points to the credentials.
	Field string `json:"field"`
	// Got is the value in the running pod, and Want the value in a new pod. They are empty if there
	// is none. For variables that users can set, they contain only identities.
	Got  string `json:"got"`
	Want string `json:"want"`
	// Minor reports whether the pod is Current despite the difference: it has the same identity,
	// but a program may notice.
	Minor bool `json:"minor,omitempty"`
}

// String returns the difference as a line for people.
func (d Difference) String() string {
	return fmt.Sprintf("%s: %s: running pod %s, new pod %s", d.Container, d.Field, cmp.Or(d.Got, "none"), cmp.Or(d.Want, "none"))
}

// OfOthers reports whether another webhook that Lanyard knows injected the pod, and Lanyard did
// not.
func (p *Pod) OfOthers() bool {
	return len(p.Providers) == 0 && slices.ContainsFunc(p.Containers, func(c Container) bool {
		return slices.ContainsFunc(p.settings.Providers, c.usesOthers)
	})
}

// usesOthers reports whether a variable of the provider points to a file of another webhook.
func (c *Container) usesOthers(d *annotations.Provider) bool {
	return slices.ContainsFunc(c.Variables, func(v Variable) bool { return c.ofOthers(&v, d) })
}

// ofOthers reports whether another webhook wrote the variable that points to the provider's
// credentials.
func (c *Container) ofOthers(v *Variable, d *annotations.Provider) bool {
	if v.From != nil {
		return false
	}
	isCredential := slices.ContainsFunc(d.Variables, func(known annotations.Variable) bool { return known.Credential && known.Name == v.Name })
	file := slashes(v.Value)
	return slices.ContainsFunc(peer.All(), func(other *peer.Peer) bool {
		return other.Provider == d.Name && (isCredential || other.Input(peer.InRunningPod, v.Name) != nil) && (other.Wrote(file) || slices.ContainsFunc(c.Tokens, func(t Token) bool {
			return t.File == file && slices.Contains(other.Volumes, t.Volume)
		}))
	})
}

// compareOthers compares a pod that another webhook injected. Decide would treat its credentials as
// the containers' own.
func (c *comparison) compareOthers(unchanged bool) (Comparison, error) {
	decision, err := c.inject(c.running.read.Clone(), nil)
	if err != nil {
		return Comparison{}, err
	}
	if decision.Reason == reason.OptedOut {
		return Comparison{State: OptedOut, Decision: decision, OfOthers: true}, nil
	}
	_, fresh, decision, err := c.again(unchanged, decision.Identities)
	if err != nil {
		return Comparison{}, err
	}
	result := c.running.byMeaning(fresh)
	result.Decision = decision
	return result, nil
}

// byMeaning compares a pod that another webhook injected with a new one. It compares identities and
// audiences, not names of volumes and paths.
func (p *Pod) byMeaning(fresh *Pod) Comparison {
	result := Comparison{State: Current, OfOthers: true, Differences: p.differences(fresh)}
	if slices.ContainsFunc(result.Differences, func(d Difference) bool { return !d.Minor }) {
		result.State = Stale
	}
	return result
}

// sidecars returns the peer that added sidecars to the pod for its other containers, or nil if there
// is none.
func (p *Pod) sidecars() *peer.Peer {
	for _, added := range peer.All() {
		if _, found := p.read.Annotations[added.Sidecar]; found && added.Sidecar != "" {
			return added
		}
	}
	return nil
}

// lost returns the sidecars of another webhook that a new pod lacks.
func (p *Pod) lost(fresh *Pod) (result []Difference) {
	added := p.sidecars()
	if added == nil {
		return nil
	}
	for c, other := range p.pairs(fresh) {
		if other == nil && slices.Contains(added.Containers, c.Name) {
			result = append(result, Difference{Container: c.Name, Field: "container", Got: "of " + added.Program})
		}
	}
	return result
}

// withoutSidecars removes the sidecars of another webhook from a copy of the pod.
func (p *Pod) withoutSidecars(read *pod.Pod) *pod.Pod {
	if added := p.sidecars(); added != nil {
		read.Containers = slices.DeleteFunc(read.Containers, func(c pod.Container) bool { return slices.Contains(added.Containers, string(c.Name)) })
	}
	return read
}

// differences compares the credentials of the containers, except those that another webhook
// added.
func (p *Pod) differences(fresh *Pod) []Difference {
	result := p.lost(fresh)
	for c, other := range p.pairs(fresh) {
		if slices.ContainsFunc(peer.All(), func(added *peer.Peer) bool { return slices.Contains(added.Containers, c.Name) }) {
			continue
		}
		other = cmp.Or(other, &Container{})
		for _, d := range p.settings.Providers {
			result = append(result, differingFacts(c.Name, p.facts(c, d), fresh.facts(other, d))...)
			for _, t := range c.Tokens { // programs may have the path in their own settings
				if t.Volume == d.CopyVolume && !slices.ContainsFunc(other.Tokens, func(is Token) bool { return is.File == t.File }) {
					result = append(result, Difference{Container: c.Name, Field: d.Key(annotations.TokenPathParameter), Got: t.File, Minor: true})
				}
			}
		}
	}
	return result
}

// fact is one value of a container's credentials.
type fact struct {
	value string
	// minor is Difference.Minor. A hidden value is not shown.
	minor, hidden bool
}

// hiddenValue is shown for a hidden value.
const hiddenValue = "a value"

func (f fact) String() string {
	if f.hidden {
		return hiddenValue
	}
	return f.value
}

// differingFacts compares the facts of a container. It ignores a minor value that only the new pod
// has.
func differingFacts(container string, got, want map[string]fact) (result []Difference) {
	all := maps.Clone(want)
	maps.Copy(all, got)
	for _, field := range slices.Sorted(maps.Keys(all)) {
		was, is := got[field], want[field]
		minor := all[field].minor
		if was.value == is.value || minor && was.value == "" {
			continue
		}
		d := Difference{Container: container, Field: field, Got: was.String(), Want: is.String(), Minor: minor}
		if d.Got == hiddenValue && d.Want == hiddenValue {
			d.Want = "another value"
		}
		result = append(result, d)
	}
	return result
}

// facts returns the values of a container's credentials for one provider, by Difference.Field.
func (p *Pod) facts(c *Container, d *annotations.Provider) map[string]fact {
	result, values := map[string]fact{}, annotations.Values{}
	hidden := map[string]bool{}
	pointed := false
	for i := range d.Variables {
		known := &d.Variables[i]
		set := c.variable(known.Name)
		if set == nil {
			continue
		}
		parameter := parameterOf(known, d)
		switch {
		case known.Credential && !pointed:
			pointed = true
			p.credential(c, d, set, values, result)
		case known.Profiles:
			result[known.Name] = fact{value: set.source(p.isOwnFile(c, set.Value))}
		case parameter == nil || values[parameter.Name] != "":
		case set.From != nil:
			values[parameter.Name] = fromElsewhere
		default:
			value, err := parameter.Read(strings.ReplaceAll(set.Value, "$$", "$"))
			values[parameter.Name], hidden[parameter.Name] = cmp.Or(value, set.Value), err != nil
		}
	}
	c.unknown(d, result)
	for i := range d.Parameters {
		parameter := &d.Parameters[i]
		if value := values[parameter.Name]; value != "" {
			minor := !identifies(parameter, d)
			result[d.Key(parameter.Name)] = fact{value, minor, minor || hidden[parameter.Name]}
		}
	}
	return result
}

// unknown adds the variables of other webhooks that Lanyard does not write: one that points to a token
// for an agent on the node, or to a directory of theirs.
func (c *Container) unknown(d *annotations.Provider, result map[string]fact) {
	for i := range c.Variables {
		v := &c.Variables[i]
		at := slices.IndexFunc(c.Tokens, func(t Token) bool { return t.File == slashes(v.Value) })
		switch {
		case !c.isUnknown(v, d):
		case at >= 0:
			result[v.Name] = fact{value: "a token for " + c.Tokens[at].Audience}
		default:
			result[v.Name] = fact{value: v.Value, minor: true}
		}
	}
}

// isUnknown reports whether another webhook wrote a variable that Lanyard does not write.
func (c *Container) isUnknown(v *Variable, d *annotations.Provider) bool {
	known := slices.ContainsFunc(d.Variables, func(known annotations.Variable) bool { return known.Name == v.Name })
	return !known && (c.ofOthers(v, d) || v.From == nil && slices.ContainsFunc(peer.All(), func(other *peer.Peer) bool {
		return other.Provider == d.Name && slices.Contains(other.Paths, v.Value)
	}))
}

// fromElsewhere is shown for a value in a Secret or another object.
const fromElsewhere = "a value from elsewhere"

// source describes what a variable points to.
func (v *Variable) source(lanyard bool) string {
	switch {
	case v.From != nil:
		return fromElsewhere
	case lanyard:
		return "a file of Lanyard"
	}
	return "a file of its own"
}

// isOwnFile reports whether Lanyard mounts the file.
func (p *Pod) isOwnFile(c *Container, file string) bool {
	return c.TakesPart && strings.HasPrefix(slashes(file), slashes(p.MountPath)+"/")
}

// credential adds the token that a variable points to, and the identity in its credential file.
func (p *Pod) credential(c *Container, d *annotations.Provider, set *Variable, values annotations.Values, result map[string]fact) {
	file := slashes(set.Value)
	if d.CredentialFile != nil && d.CredentialFile.Read != nil && set.From == nil {
		inFile := p.inFile(c, d, file)
		maps.Copy(values, inFile)
		file = slashes(inFile[tokenFile])
	}
	i := slices.IndexFunc(c.Tokens, func(t Token) bool { return t.File == file })
	if set.From != nil || i < 0 {
		result[set.Name] = fact{value: set.source(p.isOwnFile(c, set.Value))}
		return
	}
	result[d.Key("audience")] = fact{value: c.Tokens[i].Audience}
	result[strings.TrimPrefix(annotations.TokenExpirationSeconds, annotations.Prefix)] = fact{value: fmt.Sprint(c.Tokens[i].ExpirationSeconds), minor: true}
}

// inFile returns the values in a credential file, or nil if the file is not Lanyard's or another
// webhook's: these keep its content, or the identity in it, in annotations of the pod.
func (p *Pod) inFile(c *Container, d *annotations.Provider, file string) annotations.Values {
	if p.isOwnFile(c, file) {
		return d.CredentialFile.Read(p.Files[d.Name])
	}
	for _, other := range peer.All() {
		if other.Provider != d.Name || !other.Wrote(file) {
			continue
		}
		if values := d.CredentialFile.Read(p.read.Annotations[other.Credentials]); values != nil {
			return values
		}
		if other.Asks(p.read.Annotations) { // its own container writes the file
			values := annotations.Values{tokenFile: other.TokenPath}
			identity := peer.Translate(p.settings, []*peer.Peer{other}, p.read.Annotations)
			for i := range d.Parameters {
				if parameter := &d.Parameters[i]; identifies(parameter, d) {
					values[parameter.Name] = identity[annotations.Key(d, parameter.Name)]
				}
			}
			return values
		}
	}
	return nil
}

// identifies reports whether the values of the parameter belong to an identity, such as a role,
// and not to its use, such as a region.
func identifies(p *annotations.Parameter, d *annotations.Provider) bool {
	return p.Identity || p.Required || slices.Contains(d.PrincipalParameters, p.Name)
}

// parameterOf returns the parameter whose value is the value of the variable, or nil if there is none.
func parameterOf(v *annotations.Variable, d *annotations.Provider) *annotations.Parameter {
	if name, found := onlyPlaceholder(v.Value); found {
		return d.Parameter(name)
	}
	return nil
}

// withoutOthers returns the pod without what another webhook added, and marks that in p as injected.
func (p *Pod) withoutOthers(identities []annotations.Identity) *pod.Pod {
	for i := range p.Containers {
		for _, d := range p.settings.Providers {
			if c := &p.Containers[i]; c.usesOthers(d) {
				c.markOthers(d, identities)
			}
		}
	}
	return p.without(func(*Variable) bool { return false }, func(v *pod.Volume) bool {
		return len(tokensOf(v)) > 0 && slices.ContainsFunc(p.settings.Providers, func(d *annotations.Provider) bool { return d.CopyVolume == string(v.Name) })
	})
}

// markOthers marks as injected what another webhook has added to a container for a provider.
func (c *Container) markOthers(d *annotations.Provider, identities []annotations.Identity) {
	var identity *annotations.Identity
	if at := slices.IndexFunc(identities, func(i annotations.Identity) bool { return i.Provider.Name == d.Name }); at >= 0 {
		identity = &identities[at]
	}
	for i := range c.Variables {
		v := &c.Variables[i]
		if at := slices.IndexFunc(d.Variables, func(known annotations.Variable) bool { return known.Name == v.Name }); at >= 0 && v.From == nil {
			v.Injected = c.couldBeOthers(v, &d.Variables[at], d, identity)
		} else if c.isUnknown(v, d) {
			v.Injected = true
		}
	}
	for i := range c.mounts {
		c.mounts[i].injected = c.mounts[i].injected || string(c.mounts[i].Volume) == d.CopyVolume
	}
}

// couldBeOthers reports whether another webhook could have added the variable, and Lanyard would
// write it. identity is the ServiceAccount's, or nil if it asks for none of the provider.
func (c *Container) couldBeOthers(v *Variable, known *annotations.Variable, d *annotations.Provider, identity *annotations.Identity) bool {
	parameter := parameterOf(known, d)
	switch {
	case known.Credential:
		return c.ofOthers(v, d)
	case parameter == nil, known.Group != "" && !c.hasGroup(known, d), identity != nil && identity.Values[parameter.Name] == "":
		return false
	}
	_, err := parameter.Read(v.Value)
	return err == nil
}

// hasGroup reports whether the container has all variables of a group, with the same value. Users
// usually set only one of them.
func (c *Container) hasGroup(of *annotations.Variable, d *annotations.Provider) bool {
	first := c.variable(of.Name)
	return !slices.ContainsFunc(d.Variables, func(known annotations.Variable) bool {
		v := c.variable(known.Name)
		return known.Group == of.Group && (v == nil || v.From != nil || v.Value != first.Value)
	})
}
