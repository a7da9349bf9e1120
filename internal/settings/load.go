// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/lanyard-dev/lanyard/internal/peer"
	"github.com/lanyard-dev/lanyard/internal/provider"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

// Load returns the settings in a configuration file, for a program without the flags of
// lanyard-webhook. It ignores settings about the server, such as ports. reserved lists
// audiences of the API server besides the common ones.
func Load(config []byte, reserved []string) (*annotations.Settings, error) {
	var written *annotations.Settings
	file, err := Parse(config)
	if err == nil {
		written, err = file.Written()
	}
	if err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	written.ReservedAudiences = append(written.ReservedAudiences, reserved...)
	s, errs := New(written, file)
	return s, errors.Join(errs...)
}

// Written returns the settings in the file, for New. It reserves the common audiences of API
// servers.
func (f *File) Written() (*annotations.Settings, error) {
	written := Default()
	written.ReservedAudiences = annotations.CommonAPIServerAudiences()
	fields := Fields(written)
	return written, f.Apply(func(name string) (string, func(string) error, error) {
		i := slices.IndexFunc(fields, func(f Field) bool { return f.Name == name })
		switch {
		case i >= 0:
			return fields[i].Value.kind, fields[i].Value.set, nil
		case slices.Contains(ServingNames(), name):
			return "", nil, nil
		}
		return "", nil, errors.New("unknown setting; settings have the names of the flags of lanyard-webhook")
	})
}

// ServingNames returns the names of the settings about the server of lanyard-webhook.
func ServingNames() []string {
	return []string{
		"bind-address", "secure-port", "metrics-bind-address", "metrics-secure", "health-probe-bind-address", "shutdown-delay",
		"certificate-source", "certificate-secret-namespace", "certificate-secret-name", "certificate-dns-names", "webhook-configuration-name",
		"ca-duration", "certificate-duration", "tls-cert-file", "tls-private-key-file", "client-ca-file", "client-allowed-names",
		"tls-min-version", "tls-cipher-suites", "kubeconfig", "log-format", "v",
	}
}

// Field is a setting. Its name is the same on the command line and in the file.
type Field struct {
	Name, Usage string
	Value       Value
	// OfProvider reports whether the flag sets the default of a provider's parameter.
	OfProvider bool
}

// Value reads and writes one of the settings. It is a pflag.Value.
type Value struct {
	kind string
	get  func() string
	set  func(text string) error
}

// String returns the setting.
func (v Value) String() string { return v.get() }

// Set changes the setting.
func (v Value) Set(text string) error { return v.set(text) }

// Type implements pflag.Value.
func (v Value) Type() string { return v.kind }

// listType is pflag's name for the type of a list.
const listType = "stringSlice"

// Apply sets the settings of the file, in the order of their names. find returns the type of a
// setting and a function that sets it, or nil if the setting has no effect.
func (f *File) Apply(find func(name string) (kind string, set func(text string) error, err error)) error {
	for _, name := range slices.Sorted(maps.Keys(f.Settings)) {
		kind, set, err := find(name)
		switch setting := f.Settings[name]; {
		case err != nil || set == nil:
		case setting.List && kind != listType:
			err = errors.New("got a list, want a text")
		default:
			err = set(setting.Value)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// Fields returns the fields of s, in the order of --help. Their values change s.
func Fields(s *annotations.Settings) []Field {
	fields := []Field{
		{Name: "token-mount-path", Value: textValue(&s.TokenMountPath), Usage: "Path at which the token volume is mounted in containers."},
		{Name: "token-path-prefixes", Value: listValue(&s.TokenPathPrefixes),
			Usage: "Directories, each with a trailing slash, below which the annotations *-token-path and token-path may put a copy of a token. The copy's volume hides other files in the same directory."},
		{Name: "token-expiration-seconds", Value: numberValue(&s.TokenExpirationSeconds),
			Usage: fmt.Sprintf("Default lifetime of tokens in seconds, %d to %d. Tokens for Azure live for at least 3600.", annotations.MinTokenExpirationSeconds, annotations.MaxTokenExpirationSeconds)},
		{Name: "default-allowed-identities", Value: globsValue(&s.AllowedIdentities),
			Usage: "Comma-separated globs of the identities that may be used in namespaces without the annotation allowed-identities. " +
				annotations.NamespaceVariable + " stands for the name of the namespace, " + annotations.AllowNothing + " allows nothing. If empty, everything is allowed."},
		{Name: "verify-image", Value: textValue(&s.VerifyImage),
			Usage: "Image of the init container that the annotation verify adds to pods: an image of lanyard-webhook. If empty, the annotation is denied."},
		{Name: "adopt", Value: listValue(&s.Peers),
			Usage: "Other webhooks whose ServiceAccount annotations are translated: " + strings.Join(peer.Names(), ", ") + ". See docs/migrate/adoption.md."},
		{Name: "excluded-namespaces", Value: listValue(&s.ExcludedNamespaces),
			Usage: "Namespaces that the webhook configurations exclude. Only metrics use this flag: they count the ServiceAccounts of these namespaces as excluded, not as unguarded."},
	}
	for _, p := range Parameters(provider.Builtin()) {
		fields = append(fields, Field{Name: p.Flag, Usage: p.Usage, Value: parameterValue(s.Parameters, p.Key), OfProvider: true})
	}
	return fields
}

func textValue(p *string) Value {
	return Value{"string", func() string { return *p }, func(text string) error {
		*p = text
		return nil
	}}
}

func numberValue(p *int64) Value {
	return Value{"int64", func() string { return strconv.FormatInt(*p, 10) }, func(text string) (err error) {
		*p, err = strconv.ParseInt(text, 0, 64)
		return err
	}}
}

// globsValue is a list written as one string, which New splits.
func globsValue(p *[]string) Value {
	return Value{"string", func() string { return strings.Join(*p, ",") }, func(text string) error {
		if *p = nil; text != "" {
			*p = []string{text}
		}
		return nil
	}}
}

// listValue is a list of strings. The first Set replaces the default, and later calls append, so a
// flag can be repeated.
func listValue(p *[]string) Value {
	set := false
	return Value{listType, func() string {
		if len(*p) == 0 {
			return "" // pflag then shows no default
		}
		return "[" + strings.Join(*p, ",") + "]"
	}, func(text string) error {
		if !set {
			*p, set = nil, true
		}
		if text != "" {
			*p = slices.Concat(*p, strings.Split(text, ","))
		}
		return nil
	}}
}

// parameterValue is the default of a provider's parameter: an element of Settings.Parameters.
func parameterValue(values map[string]string, key string) Value {
	return Value{"string", func() string { return values[key] }, func(text string) error {
		values[key] = text
		return nil
	}}
}
