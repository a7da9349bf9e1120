// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package provider is the command "provider test". For each custom provider of a
// configuration file, it injects into an example pod as the webhook does.
package provider

import (
	"cmp"
	_ "embed" // the help text
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"github.com/lanyard-dev/lanyard/internal/cli/command"
	"github.com/lanyard-dev/lanyard/internal/settings"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/pkg/mutate"
	"github.com/lanyard-dev/lanyard/pkg/mutate/injected"
)

//go:embed help.txt
var help string

// NewCommand returns the command provider.
func NewCommand(c *command.CLI) *cobra.Command {
	var o command.Output
	var given map[string]string
	test := command.New(help, cobra.ExactArgs(1), func(_ *cobra.Command, args []string) error {
		text, err := os.ReadFile(args[0])
		if err != nil {
			return err
		}
		result, err := testProviders(text, given)
		if err != nil {
			return c.Found("%s: %v", args[0], err)
		}
		return o.Write(c, result)
	})
	o.AddFlag(test, "ProviderTest")
	test.Flags().StringToStringVar(&given, "annotation", nil, "Annotation of the ServiceAccount, as NAME-PARAMETER=VALUE without the prefix. Can be repeated.")
	cmd := &cobra.Command{Use: "provider", Short: "Try custom providers.", Long: "provider is about the custom providers of a configuration file."}
	cmd.AddCommand(test)
	return cmd
}

// testProviders tries the providers of a file with this text.
func testProviders(text []byte, given map[string]string) (*providersResult, error) {
	file, err := settings.Parse(text)
	if err != nil {
		return nil, err
	}
	written, err := file.Written()
	if err != nil {
		return nil, err
	}
	written.AllowedIdentities = nil // the identities are examples, so no policy allows them
	s, errs := settings.New(written, file)
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	results, err := Run(s, file, given)
	return &providersResult{results}, err
}

type providersResult struct {
	Providers []Result `json:"providers"`
}

func (r *providersResult) Print(p *command.Page) {
	for i := range r.Providers {
		if i > 0 {
			p.Line("")
		}
		r.Providers[i].print(p)
	}
}

func (r *Result) print(p *command.Page) {
	section := func(name string, rows [][]string) {
		p.Line("  %s", name)
		p.Columns = nil // the columns of the sections do not line up
		p.Table(4, rows)
	}
	p.Line("%s", p.Style(command.Title, r.Provider))
	var rows [][]string
	for _, key := range slices.Sorted(maps.Keys(r.Annotations)) {
		rows = append(rows, []string{key, r.Annotations[key]})
	}
	section("annotations of the ServiceAccount", rows)
	section("token of its pods", [][]string{
		{"audience", r.Token.Audience},
		{"lifetime", (time.Duration(r.Token.ExpirationSeconds) * time.Second).String()},
		{"file", r.Token.File},
		{"volume", r.Volume.Name + ", at " + r.Volume.MountPath},
	})
	rows = nil
	for _, v := range r.Environment {
		rows = append(rows, []string{v.Name, v.Value})
	}
	section("variables of their containers", rows)
	for _, warning := range r.Warnings {
		p.Text(2, command.Warn, "warning: "+warning)
	}
}

// Result holds the additions of one provider to a ServiceAccount and its pods.
type Result struct {
	Provider string `json:"provider"`
	// Annotations are the annotations of the ServiceAccount.
	Annotations map[string]string `json:"annotations"`
	// Environment has the variables of each container of the pod, in its order.
	Environment []corev1.EnvVar `json:"environment"`
	Token       Token           `json:"token"`
	Volume      Volume          `json:"volume"`
	// Warnings are the warnings of the webhook.
	Warnings []string `json:"warnings,omitempty"`
}

// Token is the token of a pod.
type Token struct {
	Audience          string `json:"audience"`
	ExpirationSeconds int64  `json:"expirationSeconds"`
	// File is the path in a container.
	File string `json:"file"`
}

// Volume is the volume with the token.
type Volume struct {
	Name      string `json:"name"`
	MountPath string `json:"mountPath"`
}

// Run returns a Result for each custom provider of the file, in its order. s are the
// settings of a webhook that has the file. given are annotations by their keys without
// the prefix, in place of the defaults and examples of the file.
func Run(s *annotations.Settings, file *settings.File, given map[string]string) ([]Result, error) {
	if file == nil || len(file.Providers) == 0 {
		return nil, errors.New("the file has no providers")
	}
	var known []string
	results := make([]Result, len(file.Providers))
	for i, d := range file.Providers {
		examples, keys := exampleAnnotations(d, file, given)
		results[i] = Result{Provider: d.Name, Annotations: map[string]string{}}
		for key, value := range examples {
			results[i].Annotations[annotations.Prefix+key] = value
		}
		known = append(known, keys...)
	}
	for _, key := range slices.Sorted(maps.Keys(given)) {
		if !slices.Contains(known, key) {
			return nil, fmt.Errorf("annotation %q is unknown: the providers of the file have %s", key, strings.Join(known, ", "))
		}
	}
	for i := range results {
		if err := results[i].try(s); err != nil {
			return nil, fmt.Errorf("provider %s: %w", results[i].Provider, err)
		}
	}
	return results, nil
}

// exampleAnnotations returns annotations that ask for an identity of the provider, by
// their keys without the prefix: of the user, or else of the file, where a default comes
// before an example. known are the keys that the user may give.
func exampleAnnotations(d *annotations.Provider, file *settings.File, given map[string]string) (values map[string]string, known []string) {
	values = map[string]string{}
	for i := range d.Parameters {
		p := &d.Parameters[i]
		if p.ClusterOnly {
			continue
		}
		key := d.Key(p.Name)
		known = append(known, key)
		switch hasDefault := file.Parameters[key] != ""; {
		case !hasDefault:
			values[key] = cmp.Or(p.Example, "example")
		case p.Required:
			values[key] = annotations.ClusterDefault
		}
	}
	known = append(known, d.Key("audience"))
	for _, key := range known {
		if value, isGiven := given[key]; isGiven {
			values[key] = value
		}
	}
	return values, known
}

// pod is a pod of the ServiceAccount app in the namespace team.
const pod = `{"apiVersion":"v1","kind":"Pod","metadata":{"namespace":"team","name":"pod"},
"spec":{"serviceAccountName":"app","containers":[{"name":"main","image":"image"}]}}`

// try fills in the additions to a pod of a ServiceAccount with the annotations.
func (r *Result) try(s *annotations.Settings) error {
	read, err := mutate.ReadPod([]byte(pod), s)
	if err != nil {
		return err
	}
	decision, err := mutate.Decide(s, &annotations.Object{Namespace: "team", Name: "app", Annotations: r.Annotations}, nil, read)
	if err != nil {
		return err
	}
	raw, err := decision.Apply([]byte(pod))
	if err != nil {
		return err
	}
	with, err := injected.Read(json.RawMessage(raw), s)
	if err != nil {
		return err
	}
	if len(with.Tokens) != 1 || with.MountPath == "" {
		return fmt.Errorf("the pod has %d tokens and the mount path %q: one token and a path must be there", len(with.Tokens), with.MountPath)
	}
	for _, v := range with.Containers[0].Variables {
		r.Environment = append(r.Environment, corev1.EnvVar{Name: v.Name, Value: v.Value})
	}
	token := &with.Tokens[0]
	r.Token = Token{Audience: token.Audience, ExpirationSeconds: token.ExpirationSeconds, File: token.File}
	r.Volume = Volume{Name: with.Volume, MountPath: with.MountPath}
	_, r.Warnings = decision.Texts()
	return nil
}
