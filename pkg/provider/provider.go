// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package provider turns an identity into what a pod needs for it: tokens,
// files and environment variables. There is one file for each provider. All of
// it is pure: the same identity gives the same injection.
package provider

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"strconv"
	"strings"

	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

// DefaultTokenMountPath is where the volume is mounted in every container.
const DefaultTokenMountPath = "/var/run/secrets/lanyard.dev/serviceaccount"

// Names of the providers, as the injected annotation and the metrics show them.
const (
	AWS   = "aws"
	Azure = "azure"
	GCP   = "gcp"
	Plain = "token"
)

// Names lists all providers, sorted.
func Names() []string { return []string{AWS, Azure, GCP, Plain} }

// Settings are the cluster's, the same for every pod.
type Settings struct {
	// TokenMountPath is an absolute POSIX path without a trailing slash.
	TokenMountPath string
	// AzureAuthorityHost is an https URL with a trailing slash.
	AzureAuthorityHost string
}

// Subject is whose pod it is and how its tokens are to be.
type Subject struct {
	// Namespace and ServiceAccount name the account.
	Namespace, ServiceAccount string
	// TokenExpirationSeconds is the tokens' requested lifetime.
	TokenExpirationSeconds int64
	// Windows: the pod runs on a Windows node.
	Windows bool
}

// Injection is all that an identity adds to a pod.
type Injection struct {
	// MountPath is where the volume is mounted, as the API has it. On a
	// Windows node the kubelet puts the drive in front and turns the slashes.
	MountPath string
	// Providers take part, sorted by name.
	Providers []Provider
	// Hash identifies the injection: 16 hexadecimal digits.
	Hash string
}

// Provider is one provider's part of an injection.
type Provider struct {
	// Name is one of Names.
	Name string
	// Token is the provider's projected token.
	Token Token
	// CredentialFile, where its path is not empty, is a file beside the token.
	CredentialFile File
	// Credentials are the variables that make up the credential. A container
	// that sets any of them to something else keeps its own set.
	Credentials []Variable
	// Settings are groups of further variables. A group is added whole to a
	// container that sets none of it.
	Settings [][]Variable
	// Shadowing names variables that some of the provider's SDKs prefer to the
	// credential.
	Shadowing []string
}

// Token is a projected service account token.
type Token struct {
	// Audience is the one audience, never empty.
	Audience string
	// ExpirationSeconds is the requested lifetime.
	ExpirationSeconds int64
	// Path is relative to the volume.
	Path string
}

// File is a file of the volume whose content stands in a pod annotation.
type File struct {
	// Path is relative to the volume.
	Path string
	// Content is the file's text.
	Content string
}

// Variable is an environment variable, its value as the pod's spec has it:
// a "$" that the kubelet is not to expand is written twice.
type Variable struct {
	Name, Value string
}

// New gives what identity adds to a pod of subject.
func New(settings *Settings, identity *annotations.Identity, subject *Subject) *Injection {
	b := builder{Settings: settings, Subject: subject}
	injection := Injection{MountPath: settings.TokenMountPath}
	if identity.AWS != nil {
		injection.Providers = append(injection.Providers, b.aws(identity.AWS))
	}
	if identity.Azure != nil {
		injection.Providers = append(injection.Providers, b.azure(identity.Azure))
	}
	if identity.GCP != nil {
		injection.Providers = append(injection.Providers, b.gcp(identity.GCP))
	}
	if identity.Plain != nil {
		injection.Providers = append(injection.Providers, b.plain(identity.Plain))
	}
	injection.Hash = injection.hash()
	return &injection
}

// builder is what every provider's file starts from.
type builder struct {
	*Settings
	*Subject
}

func (b *builder) token(audience, path string) Token {
	return Token{Audience: audience, ExpirationSeconds: b.TokenExpirationSeconds, Path: path}
}

// file is the path under which a container sees a file of the volume. A
// Windows container sees the mount path on drive C:.
func (b *builder) file(path string) string {
	full := b.TokenMountPath + "/" + path
	if b.Windows {
		return "C:" + strings.ReplaceAll(full, "/", `\`)
	}
	return full
}

// variable makes a Variable of a literal value. The kubelet expands $(NAME)
// and turns $$ into $ (k8s.io/kubernetes/third_party/forked/golang/expansion).
func variable(name, value string) Variable {
	return Variable{Name: name, Value: strings.ReplaceAll(value, "$", "$$")}
}

// hash covers everything that the injection puts into a pod. Each field is
// preceded by its length, so that no two injections look alike.
func (i *Injection) hash() string {
	h := sha256.New()
	field := func(s string) {
		// A hash never fails to be written to.
		_, _ = io.WriteString(h, strconv.Itoa(len(s))+":"+s)
	}
	field(i.MountPath)
	for _, p := range i.Providers {
		field(p.Name)
		field(p.Token.Audience)
		field(p.Token.Path)
		field(strconv.FormatInt(p.Token.ExpirationSeconds, 10))
		field(p.CredentialFile.Path)
		field(p.CredentialFile.Content)
		for _, v := range p.Credentials {
			field(v.Name)
			field(v.Value)
		}
		for _, group := range p.Settings {
			for _, v := range group {
				field(v.Name)
				field(v.Value)
			}
		}
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}
