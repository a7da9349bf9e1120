// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/lanyard-dev/lanyard/internal/provider"
	"github.com/lanyard-dev/lanyard/internal/texts"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/pkg/mutate"
)

// view contains what the templates read. The strings in the types of this file are
// expressions, except for names and keys.
type view struct {
	*annotations.Settings

	// Object is the ServiceAccount: the object of a policy, or its parameter.
	Object    string
	Providers []providerView
	// OtherMountPath is TokenMountPath with /run for /var/run, or the other way around, or empty for
	// neither. Above are the paths above TokenMountPath.
	OtherMountPath string
	Above          []string
	// ReadOnlyKinds are the kinds of volumes that are always mounted read-only, and
	// KindsWithReadOnly those that may be.
	ReadOnlyKinds, KindsWithReadOnly []string
	// Name begins the names of the policies, and Suffix ends them. Source is the input that they
	// were generated from.
	Name, Suffix, Source string
	// Compiled reports whether ServiceAccounts are rows of tables, and not parameters.
	Compiled bool
	// Known are the keys that a ServiceAccount may have, without the prefix. KnownNames are
	// the full keys, for messages.
	Known, KnownNames []string
	// ProfileKeys are the beginnings of the keys of profiles, without the prefix.
	ProfileKeys []string
	// Identity are the full keys that ask for an identity.
	Identity []string
	// Files are the keys of credential files, without the prefix.
	Files []string
	// Allowed are the cluster's default globs; Restricted reports whether there are any.
	Allowed    []string
	Restricted bool
	// MinExpiration and MaxExpiration limit the lifetime of tokens.
	MinExpiration, MaxExpiration int64
}

// providerView contains the expressions of one provider. The name of each of its variables
// in a policy begins with ID.
type providerView struct {
	*annotations.Provider

	// ID is the provider's name as an identifier.
	ID         string
	Parameters []parameterView
	// Audience is the audience without an annotation, and InAudience are the parameters in it. A
	// mistake in one of them is the only one to report.
	Audience   string
	InAudience []parameterView
	// Principal is the name of the identity, and Allowed are further names.
	Principal string
	Allowed   []string
	Derived   []derivedView
	Wants     []wantView
	// File is the content of the credential file, or empty if there is none. HasFile is true if the
	// ServiceAccount has one, or empty if every ServiceAccount has one.
	File, HasFile string
	// ProfilePrincipals are the identities of the profiles, or empty if there are no profiles.
	ProfilePrincipals string
}

// parameterView contains the expressions of a parameter that a ServiceAccount may set.
type parameterView struct {
	*annotations.Parameter

	// Key is the key without the prefix. Variable is the name of the policy's variable with
	// the value.
	Key, Variable string
	// HasDefault reports whether the value "default" stands for the cluster's.
	HasDefault bool
	// Default is the cluster's value; Templated reports whether it contains names.
	Default   string
	Templated bool
	// Missing is the message for a required parameter without a value, or empty if the cluster
	// has a value.
	Missing string
	// Expand is the full form of a short value, with the values of the cluster filled in, or
	// empty if the value stays as it is. Canonical is the canonical spelling of a valid value.
	Expand, Canonical string
	// Checks result in the message about an invalid value, or in ''.
	Checks string
	// NeedsIdentity reports whether the value only counts with an identity, and not with
	// the token only.
	NeedsIdentity bool
}

type derivedView struct {
	Name, Variable, Value, Valid, Want string
}

// wantView is an environment variable of a container.
type wantView struct {
	Name, Group, Value string
	// Synonyms are variables that SDKs read instead of the group.
	Synonyms []string
	// Complete is true if Value has all of its values, or empty if it always has.
	Complete string
	// Is is either "credential" or empty.
	Is string
	// PodName is true if the variable contains the name of the pod, or empty if it never does.
	PodName string
	// Extra contains the members of the map that only compiled identities need.
	Extra string
}

func newView(s *annotations.Settings, compiled bool) *view {
	v := &view{
		Settings: s, Compiled: compiled, OtherMountPath: otherPath(s.TokenMountPath),
		KnownNames: slices.Concat(s.ServiceAccountKeys(), s.ProfileKeys()), Restricted: s.AllowedIdentities != nil,
		MinExpiration: annotations.MinTokenExpirationSeconds, MaxExpiration: annotations.MaxTokenExpirationSeconds,
		Identity: []string{annotations.Tokens},
	}
	for _, path := range pathsAbove(s.TokenMountPath) {
		v.Above = append(v.Above, path, path+"/")
	}
	v.ReadOnlyKinds, v.KindsWithReadOnly = mutate.ReadOnlyKinds()
	for _, key := range append(s.ServiceAccountKeys(), annotations.Adopted) {
		v.Known = append(v.Known, strings.TrimPrefix(key, annotations.Prefix))
	}
	for _, glob := range s.AllowedIdentities {
		v.Allowed = append(v.Allowed, withNames(glob))
	}
	for _, d := range s.Providers {
		v.Providers = append(v.Providers, newProviderView(d, s, compiled))
		v.ProfileKeys = append(v.ProfileKeys, d.ProfileKeys()...)
		for _, key := range d.IdentityKeys() {
			v.Identity = append(v.Identity, annotations.Prefix+key)
		}
		if d.CredentialFile != nil {
			v.Files = append(v.Files, d.CredentialFile.Annotation)
		}
	}
	return v
}

// For returns the view for the ServiceAccount in the variable object of a policy.
func (v *view) For(object string) *view {
	result := *v
	result.Object = object
	return &result
}

func newProviderView(d *annotations.Provider, s *annotations.Settings, compiled bool) providerView {
	p := providerView{Provider: d, ID: identifier(d.Name)}
	values := map[string]string{
		"namespace": "request.namespace", "serviceaccount": "variables.account", "token-file": onEitherSystem(s.TokenMountPath + "/" + d.TokenPath),
	}
	for i := range d.Parameters {
		parameter := &d.Parameters[i]
		value := withNames(cmp.Or(s.Parameters[d.Key(parameter.Name)], parameter.Default))
		if !parameter.ClusterOnly {
			value = "variables." + p.ID + "_" + identifier(parameter.Name)
		}
		values[parameter.Name] = value
	}
	fill := filler(values)
	for i := range d.Parameters {
		if parameter := &d.Parameters[i]; !parameter.ClusterOnly {
			p.Parameters = append(p.Parameters, p.parameter(parameter, fill, s.Parameters[d.Key(parameter.Name)]))
		}
	}
	var used []string
	p.Audience, used = expand(cmp.Or(s.Parameters[d.Key("audience")], d.DefaultAudience), values, "")
	for _, parameter := range p.Parameters {
		if slices.Contains(used, parameter.Name) {
			p.InAudience = append(p.InAudience, parameter)
		}
	}
	for _, derived := range FunctionsOf(d).Derived {
		variable := p.ID + "_Derived_" + identifier(derived.Name)
		p.Derived = append(p.Derived, derivedView{derived.Name, variable, fill(derived.Value), fill(derived.Valid), derived.Want})
		values[derived.Name] = "variables." + variable
	}
	p.principals(values)
	if file := FunctionsOf(d).File; file != "" {
		p.File = fill(file)
		values["credential-file"] = onEitherSystem(s.TokenMountPath + "/" + d.CredentialFile.Path)
	}
	if compiled && d.Profiles != nil {
		p.withProfiles()
		values["credential-file"] = onEitherSystem(s.TokenMountPath + "/" + d.CredentialFile.Path)
	}
	for i := range d.Variables {
		v := &d.Variables[i]
		want, found := newWantView(d, v, values)
		if !found || v.Profiles && !compiled {
			continue
		}
		if compiled {
			p.addChoice(&want, v)
		}
		p.Wants = append(p.Wants, want)
	}
	return p
}

// withProfiles sets the expressions of a file with profiles, which Compile has written.
func (p *providerView) withProfiles() {
	file := p.CredentialFile.Annotation
	p.HasFile = fmt.Sprintf("'%s' in variables.row", file)
	p.File = fmt.Sprintf("variables.row[variables.windows && '%[1]s-%[2]s' in variables.row ? '%[1]s-%[2]s' : '%[1]s']", file, onWindows)
	p.ProfilePrincipals = fmt.Sprintf("variables.row[?'%s'].optMap(names, names.split(' ')).orValue([])", p.Key(profilePrincipals))
}

// addChoice adds to a variable the expressions for a container that chooses between profiles and
// the ServiceAccount's own identity, or uses the copy of the token.
func (p *providerView) addChoice(w *wantView, v *annotations.Variable) {
	choice := ""
	switch {
	case v.Profiles:
		choice = "profiles"
		w.Complete = p.HasFile
	case v.Direct:
		choice = "direct"
	}
	w.Extra = fmt.Sprintf("'choice': '%s', ", choice)
	if p.Provider.Profiles != nil {
		w.Extra += fmt.Sprintf("'selectors': %s ? %s : '', ", p.HasFile, texts.QuoteCEL(strings.Join(p.Provider.Profiles.Selectors, ",")))
	}
	if path := "variables." + p.ID + "_" + identifier(annotations.TokenPathParameter); v.Credential && p.CopyVolume != "" {
		w.Extra += fmt.Sprintf("'copy': %[1]s == '' ? %[2]s : variables.windows ? 'C:' + %[1]s.replace('/', '\\\\') : %[1]s, ", path, w.Value)
	}
}

// parameter returns the expressions of a parameter. cluster is the cluster's value.
func (p *providerView) parameter(parameter *annotations.Parameter, fill func(string) string, cluster string) parameterView {
	value := cmp.Or(cluster, parameter.Default)
	view := parameterView{
		Parameter: parameter, Key: p.Key(parameter.Name), Variable: p.ID + "_" + identifier(parameter.Name),
		HasDefault: parameter.HasDefault(cluster),
		Default:    withNames(value), Templated: annotations.ExpandNames(value, "", "") != value,
		NeedsIdentity: p.TokenAlone && (parameter.Identity || parameter.Required),
	}
	if value == "" && parameter.Required {
		view.Missing = parameter.Missing(annotations.Key(p.Provider, parameter.Name))
	}
	if parameter.Parse != nil { // policies do not support the parameter
		return view
	}
	view.Expand = fill(FunctionsOf(p.Provider).Expand[parameter.Name])
	view.Checks, view.Canonical = Checks(parameter), Canonical(parameter)
	return view
}

// principals sets the names of the identity.
func (p *providerView) principals(values map[string]string) {
	p.Principal = "variables." + p.ID + "_Audience"
	for _, name := range slices.Backward(p.PrincipalParameters) {
		p.Principal = fmt.Sprintf("%[1]s != '' ? %[1]s : %[2]s", values[name], p.Principal)
	}
	for i := range p.Provider.Parameters {
		if parameter := &p.Provider.Parameters[i]; parameter.Allowed {
			p.Allowed = append(p.Allowed, values[parameter.Name])
		}
	}
}

// newWantView returns the expressions of a variable of a container, unless it never has a value.
func newWantView(d *annotations.Provider, v *annotations.Variable, values map[string]string) (view wantView, found bool) {
	// The kubelet expands $(NAME).
	value, used := expand(strings.ReplaceAll(v.Value, "$", "$$"), values, ".replace('$', '$$')")
	view = wantView{Name: v.Name, Group: v.Group, Value: value, Synonyms: d.Synonyms[v.Group]}
	for _, name := range used {
		switch used := values[name]; {
		case used == "" || used == "''":
			return wantView{}, false
		case strings.HasPrefix(used, "variables.") && !slices.Contains(provider.SubjectValues(), name):
			view.Complete += " && " + used + " != ''"
		}
	}
	view.Complete = strings.TrimPrefix(view.Complete, " && ")
	if v.Credential {
		view.Is = "credential"
	}
	if v.PodName != "" {
		view.PodName = values[v.PodName] + " != '' && [object.metadata.?name.orValue('')].exists(value, " + PodNameFits + ")"
	}
	return view, true
}

// placeholder is the name of a value in braces.
var placeholder = regexp.MustCompile(`\{[a-z][a-z0-9-]*\}`)

// expand returns the expression for a template, and the names of the values in it. Each
// value is followed by the call.
func expand(template string, values map[string]string, call string) (expression string, names []string) {
	var parts []string
	text := func(literal string) {
		if literal != "" {
			parts = append(parts, texts.QuoteCEL(literal))
		}
	}
	start := 0
	for _, at := range placeholder.FindAllStringIndex(template, -1) {
		name := template[at[0]+1 : at[1]-1]
		text(template[start:at[0]])
		parts, names, start = append(parts, values[name]+call), append(names, name), at[1]
	}
	text(template[start:])
	if len(parts) == 0 {
		return "''", nil
	}
	return strings.Join(parts, " + "), names
}

// withNames returns the expression for a value of the cluster, which may contain the names
// of the ServiceAccount and its namespace.
func withNames(template string) string {
	expression := texts.QuoteCEL(template)
	expression = strings.ReplaceAll(expression, annotations.NamespaceVariable, "' + request.namespace + '")
	return strings.ReplaceAll(expression, annotations.ServiceAccountVariable, "' + variables.account + '")
}

// filler returns a function that fills the values into an expression of a provider.
func filler(values map[string]string) func(string) string {
	return func(expression string) string {
		return placeholder.ReplaceAllStringFunc(strings.ReplaceAll(expression, "\n", ""), func(name string) string {
			if value, found := values[strings.Trim(name, "{}")]; found {
				return "(" + value + ")"
			}
			return name
		})
	}
}

// onEitherSystem returns the path of a file as a container sees it.
func onEitherSystem(file string) string {
	return fmt.Sprintf("(variables.windows ? %s : %s)", texts.QuoteCEL(annotations.PathInContainer(file, true)), texts.QuoteCEL(file))
}

// identifier returns the name as a part of an identifier.
func identifier(name string) string { return strings.ReplaceAll(name, "-", "_") }
