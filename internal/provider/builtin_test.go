// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

// each runs a test for every provider.
func each(t *testing.T, test func(*testing.T, *annotations.Provider)) {
	t.Helper()
	for _, d := range Builtin() {
		t.Run(d.Name, func(t *testing.T) {
			t.Parallel()
			test(t, d)
		})
	}
}

func names(d *annotations.Provider) []string {
	var names []string
	for i := range d.Parameters {
		names = append(names, d.Parameters[i].Name)
	}
	return names
}

// given contains the values that each template may use.
var given = []string{"namespace", "serviceaccount", "token-file", "credential-file"}

func TestBuiltinIsSortedAndUniqueByName(t *testing.T) {
	t.Parallel()
	var names []string
	for _, d := range Builtin() {
		names = append(names, d.Name)
	}
	if len(names) == 0 || !slices.IsSorted(names) || len(slices.Compact(slices.Clone(names))) != len(names) {
		t.Errorf("got %q, want names that are sorted and unique", names)
	}
}

func TestVariablesTokensAndFlagsAreUniqueAcrossProviders(t *testing.T) {
	t.Parallel()
	whose := map[string]string{}
	add := func(provider, kind, name string) {
		if other, found := whose[kind+" "+name]; found {
			t.Errorf("%s %s is of %s and of %s", kind, name, other, provider)
		}
		whose[kind+" "+name] = provider
	}
	for _, d := range Builtin() {
		add(d.Name, "path", d.TokenPath)
		if d.CredentialFile != nil {
			add(d.Name, "path", d.CredentialFile.Path)
			add(d.Name, "annotation", d.CredentialFile.Annotation)
		}
		for _, v := range d.Variables {
			add(d.Name, "variable", v.Name)
		}
		for _, synonyms := range d.Synonyms {
			for _, name := range synonyms {
				add(d.Name, "variable", name)
			}
		}
		for _, shadow := range d.Shadows {
			// The variable of the profiles may point to the container's own file.
			if !slices.ContainsFunc(d.Variables, func(v annotations.Variable) bool { return v.Profiles && v.Name == shadow.Name }) {
				add(d.Name, "variable", shadow.Name)
			}
		}
		for i := range d.Parameters {
			add(d.Name, "parameter", d.Name+"-"+d.Parameters[i].Name)
			if flag := d.Parameters[i].Flag; flag != "" {
				add(d.Name, "flag", flag)
			}
		}
	}
}

func TestProvidersAreComplete(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d *annotations.Provider) {
		if d.MaxAudienceBytes <= 0 || !filepath.IsLocal(d.TokenPath) {
			t.Errorf("got MaxAudienceBytes %d and TokenPath %q, want a limit and a relative path", d.MaxAudienceBytes, d.TokenPath)
		}
		if d.Plain() {
			if d.DefaultAudience != "" || len(d.PrincipalParameters) > 0 {
				t.Error("a plain provider has no default audience, and its audience is the principal")
			}
			return
		}
		if d.DefaultAudience == "" || len(d.PrincipalParameters) == 0 {
			t.Error("got no default audience or no principal")
		}
		for _, name := range d.PrincipalParameters {
			if !slices.Contains(names(d), name) {
				t.Errorf("principal %s is not a parameter", name)
			}
		}
		if !slices.ContainsFunc(d.Parameters, func(p annotations.Parameter) bool { return p.Identity }) {
			t.Error("no parameter asks for an identity")
		}
	})
}

// A ServiceAccount that sets one of the identity's keys must be able to get the
// others: from its own annotations, or from the cluster.
func TestARequiredParameterAlwaysHasASource(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d *annotations.Provider) {
		asking := 0
		for i := range d.Parameters {
			if d.Parameters[i].Identity {
				asking++
			}
		}
		for i := range d.Parameters {
			p := &d.Parameters[i]
			if !p.Required || p.Flag != "" || p.Default != "" {
				continue
			}
			if !p.Identity || asking > 1 {
				t.Errorf("%s is required but may be left out, and has neither a flag nor a default", p.Name)
			}
		}
	})
}

func TestParametersAreComplete(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d *annotations.Provider) {
		for i := range d.Parameters {
			p := &d.Parameters[i]
			if p.MaxBytes <= 0 || p.Parse == nil && len(p.Grammar.Checks) == 0 || slices.Contains(given, p.Name) || p.Name == "audience" {
				t.Errorf("%s: want a limit, a grammar and a name of its own", p.Name)
				continue
			}
			// The parser treats an empty value as unset.
			if value, err := p.Read(""); err == nil {
				t.Errorf("%s: an empty value is accepted as %q", p.Name, value)
			}
			if (p.Flag == "") != (p.Usage == "") || p.Flag == "" && p.Default != "" || p.Flag != "" && !strings.HasPrefix(p.Flag, d.Name+"-") {
				t.Errorf("%s: got flag %q, usage %q and default %q, want all of one flag that begins with the provider's name", p.Name, p.Flag, p.Usage, p.Default)
			}
			if p.ClusterOnly && (p.Flag == "" || p.Identity) {
				t.Errorf("%s: only the cluster sets it, so it needs a flag and cannot ask for an identity", p.Name)
			}
			if p.Default == "" {
				continue
			}
			if value, err := p.Read(p.Default); err != nil || value != p.Default {
				t.Errorf("%s: default %q: got %q and error %v, want it unchanged", p.Name, p.Default, value, err)
			}
		}
	})
}

// placeholder is the name of a value in a template.
var placeholder = regexp.MustCompile(`\{[a-z0-9-]+\}`)

func TestTemplatesUseOnlyValuesThatExist(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d *annotations.Provider) {
		parameters := names(d)
		known := slices.Concat(parameters, given)
		if d.Derive != nil {
			derived := annotations.Values{}
			d.Derive(derived)
			known = slices.AppendSeq(known, maps.Keys(derived))
		}
		if d.CredentialFile == nil {
			known = slices.DeleteFunc(known, func(name string) bool { return name == "credential-file" })
		}
		check := func(what, template string, known []string) {
			for _, name := range placeholder.FindAllString(template, -1) {
				if !slices.Contains(known, strings.Trim(name, "{}")) {
					t.Errorf("%s: %s is not one of %q", what, name, known)
				}
			}
			if rest := placeholder.ReplaceAllString(template, ""); strings.ContainsAny(rest, "{}") {
				t.Errorf("%s: %q has a brace outside of a placeholder", what, template)
			}
		}
		// The audience is known before the pod.
		check("DefaultAudience", d.DefaultAudience, parameters)
		for _, v := range d.Variables {
			check(v.Name, v.Value, known)
		}
	})
}

func TestExactlyTheVariablesThatPointToAFileAreCredentials(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d *annotations.Provider) {
		credentials := 0
		for _, v := range d.Variables {
			file := strings.Contains(v.Value, "{token-file}") || strings.Contains(v.Value, "{credential-file}")
			// The file with the profiles does not contain the ServiceAccount's own identity.
			if (v.Credential || v.Profiles) != file || v.Credential && v.Profiles {
				t.Errorf("%s=%s: got credential %t and profiles %t, want one of them to be %t", v.Name, v.Value, v.Credential, v.Profiles, file)
			}
			if v.Credential {
				credentials++
			}
			if v.Credential && v.Group != "" {
				t.Errorf("%s: a credential is not part of a group", v.Name)
			}
		}
		if credentials == 0 {
			t.Error("no variable points to the token")
		}
	})
}

func TestProfilesAreComplete(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d *annotations.Provider) {
		direct := slices.ContainsFunc(d.Variables, func(v annotations.Variable) bool { return v.Direct })
		file := slices.ContainsFunc(d.Variables, func(v annotations.Variable) bool { return v.Profiles })
		if d.Profiles == nil {
			if direct || file {
				t.Error("a variable is about profiles, and there are none")
			}
			return
		}
		i := slices.IndexFunc(d.Parameters, func(p annotations.Parameter) bool { return p.Name == d.Profiles.Parameter })
		if i < 0 || !d.Parameters[i].Identity || !slices.Contains(d.PrincipalParameters, d.Profiles.Parameter) {
			t.Errorf("%s must ask for the identity and name it", d.Profiles.Parameter)
		}
		if slices.Contains(names(d), d.Profiles.Source) {
			t.Errorf("%s has two meanings", d.Profiles.Source)
		}
		if !direct || !file || d.CredentialFile == nil || len(d.Profiles.Selectors) == 0 {
			t.Error("want a file, a variable for it, one that SDKs may prefer, and a selector")
		}
		for _, name := range d.Profiles.Selectors {
			if !slices.ContainsFunc(d.Shadows, func(s annotations.Shadow) bool { return s.Name == name }) {
				t.Errorf("the selector %s is not among the shadows", name)
			}
		}
	})
}
