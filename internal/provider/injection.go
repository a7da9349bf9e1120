// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

// Subject is the pod that an identity is injected into.
type Subject struct {
	// Namespace and ServiceAccount are the names of the pod's ServiceAccount.
	Namespace, ServiceAccount string
	// MountPath is where the volume is mounted: an absolute POSIX path without a
	// trailing slash.
	MountPath string
	// TokenExpirationSeconds is the requested lifetime of the tokens.
	TokenExpirationSeconds int64
	// Windows reports whether the pod runs on a Windows node.
	Windows bool
}

// Injection contains everything that the identities of a ServiceAccount add to a pod.
type Injection struct {
	// MountPath is where the volume is mounted: a POSIX path. On a Windows node the
	// kubelet adds the drive and replaces the slashes with backslashes.
	MountPath string
	// Providers are sorted by name.
	Providers []Provider
}

// Provider contains what one provider adds.
type Provider struct {
	// Name is the name of the provider.
	Name string
	// Token is the projected token.
	Token Token
	// File is a second file in the volume. Its Path is empty if there is none.
	File File
	// Copy is a copy of the token. Its Path is empty if there is none.
	Copy Copy
	// Variables are set in each container, in this order. Their values are expanded and
	// escaped for the pod spec: the kubelet must not expand a "$" in them, so it is doubled.
	Variables []annotations.Variable
	// Shadows are variables that SDKs may prefer to the injected identity.
	Shadows []annotations.Shadow
	// Synonyms are variables that belong to a group of Variables, by the name of the group.
	Synonyms map[string][]string
	// Selectors are the variables by which a container selects a profile in File, and
	// Profiles the names of the profiles. Both are empty without profiles.
	Selectors, Profiles []string
	// Needs is a variable that a container must set itself to get Variables, or empty.
	Needs string
}

// Token is a projected ServiceAccount token.
type Token struct {
	// Audience is the audience of the token. It is never empty.
	Audience string
	// ExpirationSeconds is the requested lifetime.
	ExpirationSeconds int64
	// Path is relative to the volume.
	Path string
}

// Copy is a copy of a token at another path, in a separate volume.
type Copy struct {
	// Volume is the usual name of the volume.
	Volume string
	// MountPath is where the volume is mounted: a POSIX path.
	MountPath string
	// Path is relative to the volume.
	Path string
	// File is the absolute path of the copy, as a container sees it.
	File string
}

// File is a file in the volume whose content is a pod annotation.
type File struct {
	// Annotation is the annotation key without the prefix.
	Annotation string
	// Path is relative to the volume.
	Path string
	// Content is the text of the file.
	Content string
}

// NewInjection returns the additions of the identities to the subject's pods.
func NewInjection(identities []annotations.Identity, subject *Subject) *Injection {
	injection := Injection{MountPath: subject.MountPath}
	for i := range identities {
		injection.Providers = append(injection.Providers, inject(&identities[i], subject))
	}
	return &injection
}

func inject(i *annotations.Identity, subject *Subject) Provider {
	d := i.Provider
	values := subject.Values(i)
	p := Provider{
		Name:    d.Name,
		Token:   Token{Audience: i.Audience, ExpirationSeconds: subject.TokenExpirationSeconds, Path: d.TokenPath},
		Shadows: d.Shadows, Synonyms: d.Synonyms,
	}
	if i.TokenAlone {
		p.Needs = d.TokenAloneNeeds
	}
	if file := i.CopyPath(); file != "" {
		p.Copy = Copy{Volume: d.CopyVolume, MountPath: path.Dir(file), Path: path.Base(file), File: annotations.PathInContainer(file, subject.Windows)}
	}
	if len(i.Profiles) > 0 {
		p.Selectors, p.Profiles = d.Profiles.Selectors, []string{annotations.DefaultProfile}
		for _, profile := range i.Profiles {
			p.Profiles = append(p.Profiles, profile.Name)
		}
	}
	if f := d.CredentialFile; f != nil {
		if content := f.Content(values, i.Profiles); content != "" {
			p.File = File{Annotation: f.Annotation, Path: f.Path, Content: content}
			values["credential-file"] = subject.inVolume(f.Path)
		}
	}
	for _, v := range d.Variables {
		if value, complete := values.Expand(v.Value); complete {
			v.Value = escape(value)
			if i.Values[v.PodName] == "" {
				v.PodName = ""
			}
			p.Variables = append(p.Variables, v)
		}
	}
	return p
}

// Values returns the values of an identity and its subject, including derived values.
func (s *Subject) Values(i *annotations.Identity) annotations.Values {
	values := annotations.Values{}
	maps.Copy(values, i.Values)
	maps.Copy(values, s.values(i.Provider))
	if i.Provider.Derive != nil {
		i.Provider.Derive(values)
	}
	return values
}

// values are the values of the subject, for the templates of the provider.
func (s *Subject) values(d *annotations.Provider) annotations.Values {
	return annotations.Values{"namespace": s.Namespace, "serviceaccount": s.ServiceAccount, "token-file": s.inVolume(d.TokenPath)}
}

// SubjectValues returns the names of the values that every template may have, in
// addition to the parameters: namespace, serviceaccount and token-file.
func SubjectValues() []string {
	return slices.Sorted(maps.Keys(new(Subject).values(new(annotations.Provider))))
}

// inVolume returns the path under which a container sees a file of the volume.
func (s *Subject) inVolume(file string) string {
	return annotations.PathInContainer(s.MountPath+"/"+file, s.Windows)
}

// escape makes a value literal. The kubelet expands $(NAME) and turns $$ into $
// (k8s.io/kubernetes/third_party/forked/golang/expansion).
func escape(value string) string { return strings.ReplaceAll(value, "$", "$$") }
