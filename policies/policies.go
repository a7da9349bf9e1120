// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package policies generates the policies with which an API server injects by itself,
// without lanyard-webhook, on Kubernetes 1.36 or later. The package is pure: the same
// settings result in the same YAML.
//
// The rules are expressions of the Common Expression Language (CEL). Each is written once:
//
//	templates/policies.yaml    the policies, and the pods and objects they match
//	templates/compiled.yaml    those with compiled identities, and what only these can do
//	templates/fences.yaml      two more, generated from the fences of the chart
//	templates/account.yaml     reads the annotations of a ServiceAccount
//	templates/namespace.yaml   reads the annotations of a Namespace
//	templates/pod.yaml         reads a pod, and makes the additions to it
//	templates/mistakes.yaml    the words of a denial
//	view.go                    turns a provider into expressions for them
//	cel.go                     has the functions of the built-in providers as expressions
//
// A test in test/policies compares the policies with the webhook on a real API server.
package policies

import (
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"text/template"

	"github.com/lanyard-dev/lanyard/internal/texts"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/pkg/mutate"
)

// DefaultName begins the names of the policies.
const DefaultName = "lanyard"

// InjectPods returns the name of the policy that injects, which is also the name of its
// binding.
func InjectPods(name string) string { return name + "-inject-pods" }

// DenyPods returns the name of the policy that denies pods that InjectPods could not inject.
func DenyPods(name string) string { return name + "-deny-pods" }

// KeepMarks returns the name of the fence that protects Lanyard's annotations and label on a pod.
func KeepMarks(name string) string { return name + "-keep-marks" }

// LimitServiceAccounts returns the name of the fence for the size of labelled ServiceAccounts.
func LimitServiceAccounts(name string) string { return name + "-limit-serviceaccounts" }

// Source is the input of the command line from which policies were generated. The policy that
// injects contains it in the annotation annotations.PoliciesSource, so that commands know the
// settings.
type Source struct {
	// Config is the configuration file as JSON, or empty for the defaults.
	Config json.RawMessage `json:"config,omitempty"`
	// Providers are the names of the included providers, or empty for all.
	Providers []string `json:"providers,omitempty"`
	// ReservedAudiences are audiences of the API server, next to the common ones.
	ReservedAudiences []string `json:"reservedAudiences,omitempty"`
	// Compiled reports whether the policies contain the identities, instead of the ServiceAccounts.
	Compiled bool `json:"compiled,omitempty"`
}

// unavailable ends a denial of something that only the webhook supports.
const unavailable = "is not available with policies: remove it, or run lanyard-webhook"

// plainPath matches a token mount path that needs no escaping in JSON and CEL.
var plainPath = regexp.MustCompile(`^(/[A-Za-z0-9._-]+)+$`)

//go:embed templates
var files embed.FS

// Generate returns the policies for the settings, as YAML documents. The source is only
// recorded, for Choose and the command line. Generate returns an error for a setting that
// policies do not support.
func Generate(s *annotations.Settings, name string, source *Source) (string, error) {
	err := check(s)
	if len(s.Mappings) > 0 {
		err = errors.Join(err, errors.New("identities: policies cannot annotate ServiceAccounts: remove the setting, compile the identities, or run lanyard-webhook"))
	}
	if err != nil {
		return "", err
	}
	v := newView(s, false)
	v.Name = name
	return v.execute(v, source, "policies.yaml")
}

// execute executes a template with the data, which contains the view.
func (v *view) execute(data any, source *Source, template string) (string, error) {
	record, err := json.Marshal(source)
	if err != nil {
		return "", fmt.Errorf("record the source of the policies: %w", err)
	}
	v.Source = string(record)
	var text strings.Builder
	if err := parse(v).ExecuteTemplate(&text, template, data); err != nil {
		return "", fmt.Errorf("write the policies: %w", err)
	}
	return strings.TrimLeft(text.String(), "\n"), nil
}

// Choose returns the settings with only the providers of these names; without names, with all
// of them.
func Choose(s *annotations.Settings, names []string) (*annotations.Settings, error) {
	var known []string
	for _, d := range s.Providers {
		known = append(known, d.Name)
	}
	for _, name := range names {
		if !slices.Contains(known, name) {
			return nil, fmt.Errorf("there is no provider %q: choose from %s", name, strings.Join(known, ", "))
		}
	}
	chosen := *s
	chosen.Providers = slices.DeleteFunc(slices.Clone(s.Providers), func(d *annotations.Provider) bool {
		return len(names) > 0 && !slices.Contains(names, d.Name)
	})
	return &chosen, nil
}

// check returns an error for each setting that policies do not support.
func check(s *annotations.Settings) error {
	var errs []error
	if len(s.Peers) > 0 {
		errs = append(errs, errors.New("adopt: policies cannot adopt the annotations of other programs: remove the setting, or run lanyard-webhook"))
	}
	if path := s.TokenMountPath; !plainPath.MatchString(path) {
		errs = append(errs, fmt.Errorf("token-mount-path: got %q, want only a-z, A-Z, 0-9, \".\", \"_\" and \"-\" between slashes", path))
	}
	return errors.Join(errs...)
}

// parse returns the templates for a view. They are part of the program, so an error is a mistake
// of the program.
func parse(v *view) *template.Template {
	words := map[string]string{}
	say := func(name string, arguments ...string) string { return sentence(words[name], arguments) }
	mistake := func(key, kind, text string) string {
		return fmt.Sprintf("[{'key': %s, 'kind': '%s', 'text': %s}]", key, kind, text)
	}
	t := template.Must(template.New("").Funcs(template.FuncMap{
		"str": texts.QuoteCEL, "list": list, "join": strings.Join, "dict": dict, "cut": cut, "shown": shown, "lower": strings.ToLower,
		"lowerGUIDGlob": func() string { return lower(texts.GUIDGlobPattern) }, "say": say, "mistake": mistake,
		"wrong": func(key string) string {
			return ".filter(want, want != '').map(want, " + mistake(key, "Invalid value", "want") + "[0])"
		},
		"lifetime": func(least string) string {
			return fmt.Sprintf("%s + (%s > %d ? %s : '')", say("lifetime", "string("+least+")"), least, v.MinExpiration, say("lifetime-sdks"))
		},
		"field": func(path string) string {
			return "dyn({'apiVersion': dyn('v1'), 'fieldPath': dyn(" + texts.QuoteCEL(path) + ")})"
		},
		"unavailable": func() string { return texts.QuoteCEL(unavailable) },
		"plus":        func() string { return " +\n        " },
		"yaml":        func(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" },
		"volumes":     func() []string { return []string{mutate.VolumeName, mutate.FallbackVolumeName} },
	}).ParseFS(files, "templates/*"))
	var text strings.Builder
	if err := t.ExecuteTemplate(&text, "words.txt", v); err != nil {
		panic(err) // the text is constant
	}
	for line := range strings.SplitSeq(strings.TrimSpace(text.String()), "\n") {
		name, text, _ := strings.Cut(line, ": ")
		words[name] = text
	}
	return t
}

// sentence returns the expression for a sentence of words.txt with its arguments.
func sentence(words string, arguments []string) string {
	var parts []string
	for i, part := range verb.Split(words, -1) {
		if i > 0 {
			parts = append(parts, map[string]func(string) string{"%s": inner, "%q": quoted, "%v": shown}[verb.FindAllString(words, -1)[i-1]](arguments[i-1]))
		}
		if part != "" {
			parts = append(parts, texts.QuoteCEL(part))
		}
	}
	return strings.Join(parts, " + ")
}

// verb stands for an argument of a sentence.
var verb = regexp.MustCompile("%[sqv]")

func inner(value string) string  { return "(" + value + ")" }
func quoted(value string) string { return "strings.quote(" + value + ")" }
func shown(value string) string  { return quoted(cut(value)) }

// cut returns the expression for a text that is truncated as in a message.
func cut(value string) string {
	return fmt.Sprintf("[%s].map(cut, cut.size() > %d ? cut.substring(0, %[2]d) + '...' : cut)[0]", value, texts.MaxShown)
}

// list returns a list of strings in CEL.
func list(values []string) string {
	quoted := make([]string, len(values))
	for i, value := range values {
		quoted[i] = texts.QuoteCEL(value)
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}

// dict returns the arguments of a template: names and values in turn.
func dict(pairs ...any) map[string]any {
	result := map[string]any{}
	for i := 0; i+1 < len(pairs); i += 2 {
		result[fmt.Sprint(pairs[i])] = pairs[i+1]
	}
	return result
}
