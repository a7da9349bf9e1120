// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"errors"
	"fmt"
	"maps"

	"github.com/spf13/pflag"

	"github.com/lanyard-dev/lanyard/internal/peer"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/pkg/provider"
)

// providerSetting is a flag that sets the cluster's default of a provider's
// parameter or audience.
type providerSetting struct {
	flag, usage string
	// key is the annotation key without the prefix.
	key      string
	value    string
	required bool
	parse    func(string) (string, error)
}

// newProviderSettings returns the settings of all providers. They follow from the
// providers' definitions.
func newProviderSettings(providers []*provider.Definition) []*providerSetting {
	var settings []*providerSetting
	for _, d := range providers {
		if d.Plain() {
			continue
		}
		for i := range d.Parameters {
			p := &d.Parameters[i]
			if p.Flag != "" {
				parse := p.Read
				if p.Template {
					parse = p.ReadTemplate
				}
				settings = append(settings, &providerSetting{
					flag: p.Flag, usage: p.Usage, key: d.Key(p.Name), value: p.Default,
					required: p.ClusterOnly && p.Required, parse: parse,
				})
			}
		}
		settings = append(settings, &providerSetting{
			flag: d.Name + "-default-audience", key: d.Key("audience"),
			usage: fmt.Sprintf("Audience of the tokens for %s. If empty, %s.", d.Name, d.DefaultAudience),
			parse: func(value string) (string, error) {
				return annotations.ParseAudience(value, d.MaxAudienceBytes, nil)
			},
		})
	}
	return settings
}

func (o *Options) addProviderFlags(fs *pflag.FlagSet) {
	for _, s := range o.providerSettings {
		fs.StringVar(&s.value, s.flag, s.value, s.usage)
	}
}

func (c *Completed) completeProviders(v *validation) {
	c.Defaults.Parameters = map[string]string{}
	for _, s := range c.providerSettings {
		v.check(s.flag, func() error {
			if s.value == "" {
				if s.required {
					return errors.New("must not be empty")
				}
				return nil
			}
			parsed, err := s.parse(s.value)
			if err != nil {
				return fmt.Errorf("got %q: %w", s.value, err)
			}
			c.Defaults.Parameters[s.key] = parsed
			return nil
		})
	}
	if c.file != nil {
		maps.Copy(c.Defaults.Parameters, c.file.Parameters)
		v.check("config", c.completeMappings)
	}
	v.check("adopt", c.completePeers)
}

func (c *Completed) completePeers() (err error) {
	if c.Peers, err = peer.Named(c.Adopt); err != nil {
		return err
	}
	for _, p := range c.Peers {
		if p.Requires != "" && c.Defaults.Parameters[p.Requires] == "" {
			return fmt.Errorf("%s needs the cluster's default of the annotation %s", p.Name, p.Requires)
		}
	}
	return nil
}

// completeMappings makes the mappings of the file.
func (c *Completed) completeMappings() (err error) {
	if c.Keys.Prefix == "" {
		return nil // another setting is wrong
	}
	c.Mappings, err = c.file.Mappings(&c.Keys, &c.Defaults)
	return err
}
