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

// Load returns the settings of a configuration file, for a program without the flags of
// lanyard-webhook. Settings about lanyard-webhook itself, such as ports, have no effect.
// reserved are audiences of the API server in addition to the common audiences.
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

// Written returns the settings of the file, for New. The common audiences of API servers are
// reserved.
func (f *File) Written() (*annotations.Settings, error) {
	written := Default()
	written.ReservedAudiences = annotations.CommonAPIServerAudiences()
	fields := Fields(written)
	return written, f.Apply(func(name string) (Value, error) {
		i := slices.IndexFunc(fields, func(f Field) bool { return f.Name == name })
		switch {
		case i >= 0:
			return fields[i].Value, nil
		case slices.Contains(ServingNames(), name):
			return nil, nil
		}
		return nil, errors.New("unknown setting; settings have the names of the flags of lanyard-webhook")
	})
}

// ServingNames returns the names of the settings about lanyard-webhook itself.
func ServingNames() []string {
	return []string{
		"bind-address", "secure-port", "metrics-bind-address", "metrics-secure", "health-probe-bind-address", "shutdown-delay",
		"certificate-source", "certificate-secret-namespace", "certificate-secret-name", "certificate-dns-names", "webhook-configuration-name",
		"ca-duration", "certificate-duration", "tls-cert-file", "tls-private-key-file", "client-ca-file", "client-allowed-names",
		"tls-min-version", "tls-cipher-suites", "kubeconfig", "log-format", "v",
	}
}

// Field is one of the settings by the name of its flag, which is its name in the file, too.
type Field struct {
	Name, Usage string
	Value       Value
	// OfProvider reports whether the flag sets the default of a provider's parameter.
	OfProvider bool
}

// Value reads and writes one of the settings. It is a pflag.Value.
type Value interface {
	String() string
	Set(text string) error
	Type() string
}

// listType is the Type of a list, as pflag calls it.
const listType = "stringSlice"

// Apply sets the settings of the file, in the order of their names, to the values that find
// returns. A setting has no effect if find returns nil.
func (f *File) Apply(find func(name string) (Value, error)) error {
	for _, name := range slices.Sorted(maps.Keys(f.Settings)) {
		value, err := find(name)
		switch setting := f.Settings[name]; {
		case err != nil || value == nil:
		case setting.List && value.Type() != listType:
			err = errors.New("got a list, want a text")
		default:
			err = value.Set(setting.Value)
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
		{Name: "token-mount-path", Value: (*text)(&s.TokenMountPath), Usage: "Absolute mount path of the token volume."},
		{Name: "token-path-prefixes", Value: &list{elements: &s.TokenPathPrefixes},
			Usage: "Directories, each with a slash at the end, below which aws-token-path, azure-token-path, gcp-token-path and token-path may be. A copy of a token hides its directory in every container."},
		{Name: "token-expiration-seconds", Value: (*number)(&s.TokenExpirationSeconds),
			Usage: fmt.Sprintf("Default lifetime of the tokens, from %d to %d. For azure, it is at least 3600.", annotations.MinTokenExpirationSeconds, annotations.MaxTokenExpirationSeconds)},
		{Name: "default-allowed-identities", Value: (*joined)(&s.AllowedIdentities),
			Usage: "Globs, separated by commas, of the identities that namespaces without the annotation allowed-identities may use. " +
				annotations.NamespaceVariable + " stands for the name of the namespace, " + annotations.AllowNothing + " allows nothing. If empty, everything is allowed."},
		{Name: "adopt", Value: &list{elements: &s.Peers},
			Usage: "Webhooks whose annotations on ServiceAccounts are translated: " + strings.Join(peer.Names(), ", ") + ". See docs/migrate/adoption.md."},
		{Name: "excluded-namespaces", Value: &list{elements: &s.ExcludedNamespaces},
			Usage: "Namespaces that the webhook configurations exclude. This flag only affects metrics: their ServiceAccounts are counted as excluded, not as unguarded."},
	}
	for _, p := range Parameters(provider.Builtin()) {
		fields = append(fields, Field{Name: p.Flag, Usage: p.Usage, Value: parameter{s.Parameters, p.Key}, OfProvider: true})
	}
	return fields
}

type text string

func (t *text) String() string { return string(*t) }

func (t *text) Set(value string) error {
	*t = text(value)
	return nil
}

func (t *text) Type() string { return "string" }

// joined is a list in one text, whose elements are not read yet.
type joined []string

func (j *joined) String() string { return strings.Join(*j, ",") }

func (j *joined) Set(value string) error {
	*j = nil
	if value != "" {
		*j = joined{value}
	}
	return nil
}

func (j *joined) Type() string { return "string" }

type number int64

func (n *number) String() string { return strconv.FormatInt(int64(*n), 10) }

func (n *number) Set(value string) error {
	parsed, err := strconv.ParseInt(value, 0, 64)
	*n = number(parsed)
	return err
}

func (n *number) Type() string { return "int64" }

// list is a list of texts. Its first Set replaces the default, and further ones add to it, so
// that a flag can be repeated.
type list struct {
	elements *[]string
	changed  bool
}

func (l *list) String() string {
	if len(*l.elements) == 0 {
		return "" // pflag then shows no default
	}
	return "[" + strings.Join(*l.elements, ",") + "]"
}

func (l *list) Set(value string) error {
	var elements []string
	if value != "" {
		elements = strings.Split(value, ",")
	}
	if l.changed {
		elements = slices.Concat(*l.elements, elements)
	}
	*l.elements, l.changed = elements, true
	return nil
}

func (l *list) Type() string { return listType }

// parameter is the default of a provider's parameter: an element of Settings.Parameters.
type parameter struct {
	values map[string]string
	key    string
}

func (p parameter) String() string { return p.values[p.key] }

func (p parameter) Set(value string) error {
	p.values[p.key] = value
	return nil
}

func (p parameter) Type() string { return "string" }
