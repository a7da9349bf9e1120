// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"errors"
	"fmt"

	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

// Parameter is a parameter or the audience of a provider that has a flag for the
// cluster's default.
type Parameter struct {
	Flag, Usage string
	// Key is the annotation key without the prefix.
	Key string
	// Default is the default value of the flag.
	Default string

	required bool
	parse    func(string) (string, error)
}

// Parameters returns the parameters of the providers that have a flag.
func Parameters(providers []*annotations.Provider) []Parameter {
	var parameters []Parameter
	for _, d := range providers {
		if d.Plain() {
			continue
		}
		for i := range d.Parameters {
			p := &d.Parameters[i]
			if p.Flag == "" {
				continue
			}
			parse := p.Read
			if p.Template {
				parse = p.ReadTemplate
			}
			parameters = append(parameters, Parameter{
				Flag: p.Flag, Usage: p.Usage, Key: d.Key(p.Name), Default: p.Default,
				required: p.ClusterOnly && p.Required, parse: parse,
			})
		}
		parameters = append(parameters, Parameter{
			Flag: d.Name + "-default-audience", Key: d.Key("audience"),
			Usage: fmt.Sprintf("Audience of tokens for %s. If empty, %s.", d.Name, d.DefaultAudience),
			parse: func(value string) (string, error) { return annotations.ParseAudience(value, d.MaxAudienceBytes, nil) },
		})
	}
	return parameters
}

// set replaces the value in values by the parsed one.
func (p *Parameter) set(values map[string]string) error {
	value, found := values[p.Key]
	if !found {
		value = p.Default
	}
	if value == "" {
		delete(values, p.Key)
		if p.required {
			return errors.New("must not be empty")
		}
		return nil
	}
	parsed, err := p.parse(value)
	if err != nil {
		return fmt.Errorf("got %q: %w", value, err)
	}
	values[p.Key] = parsed
	return nil
}
