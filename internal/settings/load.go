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
func Load(config []byte, reserved []string) (*Settings, error) {
	values := Default()
	var err error
	if values.File, err = Parse(config); err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	fields := values.Fields()
	for _, name := range slices.Sorted(maps.Keys(values.File.Settings)) {
		if slices.Contains(ServingNames(), name) {
			continue
		}
		i := slices.IndexFunc(fields, func(f Field) bool { return f.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("config: %s: unknown setting; settings have the names of the flags of lanyard-webhook", name)
		}
		value := fields[i].Value
		text, err := values.File.Settings[name].TextFor(value.Type())
		if err == nil {
			err = value.Set(text)
		}
		if err != nil {
			return nil, fmt.Errorf("config: %s: %w", name, err)
		}
	}
	values.Defaults.ReservedAudiences = slices.Concat(annotations.CommonAPIServerAudiences(), reserved)
	s, errs := New(&values)
	return s, errors.Join(errs...)
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

// Field is one of the Values by the name of its flag, which is its name in the file, too.
type Field struct {
	Name, Usage string
	Value       Value
	// OfProvider reports whether the flag sets the default of a provider's parameter.
	OfProvider bool
}

// Value reads and writes one of the Values. It is a pflag.Value.
type Value interface {
	String() string
	Set(text string) error
	Type() string
}

// listType is the Type of a list, as pflag calls it.
const listType = "stringSlice"

// TextFor returns the text that sets a flag of this type to the setting. It returns an error
// for a list, if the flag has a text.
func (s Setting) TextFor(flagType string) (string, error) {
	if s.List && flagType != listType {
		return "", errors.New("got a list, want a text")
	}
	return s.Value, nil
}

// Fields returns the fields of the values, in the order of --help.
func (v *Values) Fields() []Field {
	fields := []Field{
		{Name: "token-mount-path", Value: (*text)(&v.Defaults.TokenMountPath), Usage: "Absolute mount path of the token volume."},
		{Name: "token-path-prefixes", Value: &list{elements: &v.Defaults.TokenPathPrefixes},
			Usage: "Directories, each with a slash at the end, below which aws-token-path, azure-token-path, gcp-token-path and token-path may be. A copy of a token hides its directory in every container."},
		{Name: "token-expiration-seconds", Value: (*number)(&v.Defaults.TokenExpirationSeconds),
			Usage: fmt.Sprintf("Default lifetime of the tokens, from %d to %d. For azure, it is at least 3600.", annotations.MinTokenExpirationSeconds, annotations.MaxTokenExpirationSeconds)},
		{Name: "default-allowed-identities", Value: (*text)(&v.DefaultAllowedIdentities),
			Usage: "Globs, separated by commas, of the identities that namespaces without the annotation allowed-identities may use. " +
				annotations.NamespaceVariable + " stands for the name of the namespace, " + annotations.AllowNothing + " allows nothing. If empty, everything is allowed."},
		{Name: "adopt", Value: &list{elements: &v.Adopt},
			Usage: "Webhooks whose annotations on ServiceAccounts are translated: " + strings.Join(peer.Names(), ", ") + ". See docs/migrate/adoption.md."},
		{Name: "excluded-namespaces", Value: &list{elements: &v.Defaults.ExcludedNamespaces},
			Usage: "Namespaces that the webhook configurations exclude. This flag only affects metrics: their ServiceAccounts are counted as excluded, not as unguarded."},
	}
	for _, p := range Parameters(provider.Builtin()) {
		fields = append(fields, Field{Name: p.Flag, Usage: p.Usage, Value: parameter{v.Defaults.Parameters, p.Key}, OfProvider: true})
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
