// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package provider is the command "provider test". For each custom provider of a
// configuration file, it injects into an example pod as the webhook does.
package provider

import (
	"bytes"
	"cmp"
	"context"
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

	"github.com/lanyard-dev/lanyard/internal/annotations"
	"github.com/lanyard-dev/lanyard/internal/cli/command"
	"github.com/lanyard-dev/lanyard/internal/cli/inject"
	"github.com/lanyard-dev/lanyard/internal/injected"
	"github.com/lanyard-dev/lanyard/internal/options"
	"github.com/lanyard-dev/lanyard/internal/provider"
	"github.com/lanyard-dev/lanyard/internal/settings"
)

const providerTestHelp = `test reads a configuration file of the webhook, as strictly as the webhook, and
shows for each custom provider in it an annotated ServiceAccount and the
additions to its pods. It needs no cluster. Other settings in the file apply,
too.

The ServiceAccount is an example: app in the namespace team. Its annotations
are the defaults of the file where it has some, and otherwise its examples. To
try a value of yours, pass it with --annotation.

If something is wrong with the file or a value, test shows the error and its
place, and the exit code is 1.`

const providerTestExamples = `  # What do the providers of this file do?
  lanyard provider test examples/providers/alibaba.yaml

  # Is this value allowed?
  lanyard provider test alibaba.yaml --annotation alibaba-sts-region=eu-west-1

  # The variables, for scripts
  lanyard provider test alibaba.yaml -o json | jq .providers[].environment`

// NewCommand returns the command provider.
func NewCommand(c *command.CLI) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "provider",
		Short: "Try custom providers.",
		Long:  "provider is about the custom providers of a configuration file.",
	}
	cmd.AddCommand(newProviderTestCommand(c))
	return cmd
}

func newProviderTestCommand(c *command.CLI) *cobra.Command {
	var o command.Output
	given := map[string]string{}
	cmd := &cobra.Command{
		Use:     "test FILE",
		Short:   "Show how the custom providers of a file change pods.",
		Long:    providerTestHelp,
		Example: providerTestExamples,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			text, err := os.ReadFile(args[0])
			if err != nil {
				return err
			}
			result, err := testProviders(cmd, c, text, given)
			if err != nil {
				return command.Findingf("%s: %w", args[0], err)
			}
			return o.Write(c, result)
		},
	}
	o.AddFlag(cmd, "ProviderTest")
	cmd.Flags().StringToStringVar(&given, "annotation", nil, "Annotation of the ServiceAccount, as NAME-PARAMETER=VALUE without the prefix. Can be repeated.")
	return cmd
}

// testProviders tries the providers of a file with this text.
func testProviders(cmd *cobra.Command, c *command.CLI, text []byte, given map[string]string) (*providersResult, error) {
	o := options.New()
	if err := o.ReadConfig(text, o.FlagSet()); err != nil {
		return nil, err
	}
	o.DefaultAllowedIdentities = "" // the identities are examples, so no policy allows them
	settings, err := c.Complete(o)
	if err != nil {
		return nil, err
	}
	results, err := Run(cmd.Context(), settings, o.File, given)
	return &providersResult{results}, err
}

// providersResult lists the results of the providers of a file.
type providersResult struct {
	Providers []Result `json:"providers"`
}

func (r *providersResult) Print(p *command.Page) {
	for i := range r.Providers {
		if i > 0 {
			p.Line("")
		}
		printProvider(p, &r.Providers[i])
	}
}

func printProvider(p *command.Page, r *Result) {
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
func Run(ctx context.Context, s *settings.Settings, file *settings.File, given map[string]string) ([]Result, error) {
	if file == nil || len(file.Providers) == 0 {
		return nil, errors.New("the file has no providers")
	}
	var known []string
	for _, d := range file.Providers {
		known = append(known, keysOf(d)...)
	}
	for _, key := range slices.Sorted(maps.Keys(given)) {
		if !slices.Contains(known, key) {
			return nil, fmt.Errorf("annotation %q is unknown: the providers of the file have %s", key, strings.Join(known, ", "))
		}
	}
	var results []Result
	for _, d := range file.Providers {
		result, err := injectInto(ctx, s, d, exampleAnnotations(d, file, given))
		if err != nil {
			return nil, fmt.Errorf("provider %s: %w", d.Name, err)
		}
		results = append(results, *result)
	}
	return results, nil
}

// keysOf returns the annotations of a provider, by their keys without the prefix.
func keysOf(d *provider.Definition) []string {
	var keys []string
	for i := range d.Parameters {
		if p := &d.Parameters[i]; !p.ClusterOnly {
			keys = append(keys, d.Key(p.Name))
		}
	}
	return append(keys, d.Key("audience"))
}

// exampleAnnotations returns annotations that ask for an identity of the provider, by
// their keys without the prefix. Of the file, a default comes before an example.
func exampleAnnotations(d *provider.Definition, file *settings.File, given map[string]string) map[string]string {
	values := map[string]string{}
	for i := range d.Parameters {
		p := &d.Parameters[i]
		key := d.Key(p.Name)
		switch hasDefault := file.Parameters[key] != ""; {
		case p.ClusterOnly:
		case hasDefault && p.Required:
			values[key] = annotations.ClusterDefault
		case !hasDefault:
			values[key] = cmp.Or(file.Examples[key], "example")
		}
	}
	for _, key := range keysOf(d) {
		if value, isGiven := given[key]; isGiven {
			values[key] = value
		}
	}
	return values
}

// injectInto injects into a pod of a ServiceAccount with the annotations.
func injectInto(ctx context.Context, s *settings.Settings, d *provider.Definition, example map[string]string) (*Result, error) {
	result := &Result{Provider: d.Name, Annotations: map[string]string{}}
	for key, value := range example {
		result.Annotations[s.Keys.Prefix+key] = value
	}
	values, err := json.Marshal(result.Annotations)
	if err != nil {
		return nil, err
	}
	documents, err := inject.Read("example", strings.NewReader(fmt.Sprintf(objects, values)))
	if err != nil {
		return nil, err
	}
	decisions, err := inject.Inject(ctx, documents, s, "")
	if err != nil {
		return nil, err
	}
	for _, decision := range decisions {
		if decision.Denied {
			return nil, fmt.Errorf("%s: %s", decision.Reason, decision.Message)
		}
		result.Warnings = append(result.Warnings, decision.Warnings...)
	}
	var text bytes.Buffer
	if err := inject.Write(&text, documents[1:]); err != nil {
		return nil, err
	}
	pod, err := injected.Read(json.RawMessage(text.Bytes()), s.Keys)
	if err != nil {
		return nil, err
	}
	return result, result.read(pod)
}

// objects are a ServiceAccount and a pod that uses it.
const objects = `{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"namespace":"team","name":"app","annotations":%s}}
{"apiVersion":"v1","kind":"Pod","metadata":{"namespace":"team","name":"pod"},
"spec":{"serviceAccountName":"app","containers":[{"name":"main","image":"image"}]}}`

// read reads the injection back from a pod.
func (r *Result) read(pod *injected.Pod) error {
	if len(pod.Tokens) != 1 || pod.MountPath == "" {
		return fmt.Errorf("the pod has %d tokens and the mount path %q: one token and a path must be there", len(pod.Tokens), pod.MountPath)
	}
	for _, v := range pod.Containers[0].Variables {
		r.Environment = append(r.Environment, corev1.EnvVar{Name: v.Name, Value: v.Value})
	}
	token := &pod.Tokens[0]
	r.Token = Token{Audience: token.Audience, ExpirationSeconds: token.ExpirationSeconds, File: token.File}
	r.Volume = Volume{Name: pod.Volume, MountPath: pod.MountPath}
	return nil
}
