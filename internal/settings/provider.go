// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"unicode"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/lanyard-dev/lanyard/internal/provider"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

// Bounds of one provider.
const (
	maxNameBytes      = 24
	maxParameters     = 16
	maxVariables      = 32
	maxShadows        = 32
	maxPatternBytes   = 1024
	maxMessageBytes   = 256
	maxAudienceBytes  = 256
	maxTemplateBytes  = 1024
	maxParameterBytes = 2048
	maxTrustBytes     = 4096
	// defaultParameterBytes is the limit of a parameter without maxBytes.
	defaultParameterBytes = 256
)

// providerEntry is a custom provider in the file.
type providerEntry struct {
	Name                      string           `yaml:"name"`
	Audience                  string           `yaml:"audience"`
	MinTokenExpirationSeconds int64            `yaml:"minTokenExpirationSeconds"`
	Parameters                []parameterEntry `yaml:"parameters"`
	Environment               []variableEntry  `yaml:"environment"`
	Shadows                   []string         `yaml:"shadows"`
	Trust                     string           `yaml:"trust"`
}

// parameterEntry is a parameter. A ServiceAccount asks for the provider's identity by setting
// a required one.
type parameterEntry struct {
	Name        string `yaml:"name"`
	Required    bool   `yaml:"required"`
	ClusterOnly bool   `yaml:"clusterOnly"`
	Allowed     bool   `yaml:"allowed"`
	Pattern     string `yaml:"pattern"`
	Message     string `yaml:"message"`
	Example     string `yaml:"example"`
	MaxBytes    int    `yaml:"maxBytes"`
	Default     string `yaml:"default"`
}

// variableEntry is an environment variable.
type variableEntry struct {
	Name       string `yaml:"name"`
	Value      string `yaml:"value"`
	Credential bool   `yaml:"credential"`
	Group      string `yaml:"group"`
}

var (
	name         = regexp.MustCompile(`^[a-z][a-z0-9]*(-[a-z0-9]+)*$`)
	variableName = regexp.MustCompile(`^[A-Z_][A-Z0-9_]*$`)
	visible      = regexp.MustCompile(`^[!-~]+$`)
	placeholder  = regexp.MustCompile(`\{[a-z0-9-]+\}`)
	// loadsCode matches variables that change how a program loads code or which server it
	// reaches. A provider must not set them, because a value may come from a ServiceAccount.
	loadsCode = regexp.MustCompile(`^(LD_.*|DYLD_.*|KUBERNETES_.*|.*_PROXY|PATH|NODE_OPTIONS|PYTHONPATH|PYTHONSTARTUP|` +
		`JAVA_TOOL_OPTIONS|JDK_JAVA_OPTIONS|RUBYOPT|PERL5OPT|BASH_ENV|ENV)$`)
)

// parser reads a file, and collects its mistakes.
type parser struct {
	*File

	errs []error
}

// add adds a mistake.
func (p *parser) add(at place, err *field.Error) { p.errs = append(p.errs, at.error(err)) }

// require adds a mistake unless the value is valid.
func (p *parser) require(valid bool, at place, value any, want string) {
	if !valid {
		p.add(at, field.Invalid(at.path, value, want))
	}
}

// accept adds err as a mistake about the value, unless it is nil.
func (p *parser) accept(err error, at place, value any) {
	if err != nil {
		p.require(false, at, value, err.Error())
	}
}

// missing adds a mistake about a missing value.
func (p *parser) missing(at place, want string) { p.add(at, field.Required(at.path, want)) }

// limit adds a mistake if there are too many elements.
func (p *parser) limit(got, most int, at place) {
	if got > most {
		p.add(at, field.TooMany(at.path, got, most))
	}
}

// limitBytes adds a mistake if a text is too long.
func (p *parser) limitBytes(text string, most int, at place) {
	if len(text) > most {
		p.add(at, field.TooLong(at.path, "", most))
	}
}

// provider adds the provider, and the defaults of its parameters, to the file.
func (p *parser) provider(entry *providerEntry, at place) {
	d := &annotations.Provider{
		Name:                 entry.Name,
		DefaultAudience:      entry.Audience,
		MaxAudienceBytes:     maxAudienceBytes,
		MinExpirationSeconds: entry.MinTokenExpirationSeconds,
		TokenPath:            entry.Name + "/token",
		Trust:                entry.Trust,
	}
	p.Providers = append(p.Providers, d)
	p.name(entry.Name, at.child("name"))
	_, err := annotations.ParseAudience(entry.Audience, maxAudienceBytes, nil)
	p.accept(err, at.child("audience"), entry.Audience)
	if seconds := entry.MinTokenExpirationSeconds; seconds != 0 {
		p.accept(annotations.ValidateTokenExpirationSeconds(seconds, 0), at.child("minTokenExpirationSeconds"), seconds)
	}
	parameters, environment, shadows := at.child("parameters"), at.child("environment"), at.child("shadows")
	p.limit(len(entry.Parameters), maxParameters, parameters)
	p.limit(len(entry.Environment), maxVariables, environment)
	p.limit(len(entry.Shadows), maxShadows, shadows)
	for i, shadow := range entry.Shadows {
		d.Shadows = append(d.Shadows, annotations.Shadow{Name: shadow})
		p.variableName(shadow, shadows.index(i))
	}
	for i := range entry.Parameters {
		p.parameter(&entry.Parameters[i], d, parameters.index(i))
	}
	if len(d.PrincipalParameters) == 0 {
		p.missing(parameters, "must have a parameter with required: true, by which a ServiceAccount asks for the identity")
	}
	for i, v := range entry.Environment {
		d.Variables = append(d.Variables, annotations.Variable{Name: v.Name, Value: v.Value, Credential: v.Credential, Group: v.Group})
		p.variable(&d.Variables[i], d, environment.index(i))
	}
	p.trust(d, at.child("trust"))
}

// trust checks the text that lanyard trust prints. The webhook does not use it, but both
// programs must accept the same files.
func (p *parser) trust(d *annotations.Provider, at place) {
	p.limitBytes(d.Trust, maxTrustBytes, at)
	control := func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }
	p.require(!strings.ContainsFunc(d.Trust, control), at, "", "must have no control characters except line breaks; indent with spaces")
	known := d.TrustValues()
	for _, name := range placeholder.FindAllString(d.Trust, -1) {
		p.require(slices.Contains(known, strings.Trim(name, "{}")), at, name,
			fmt.Sprintf("must be one of {%s}; write the variables of a shell in capital letters", strings.Join(known, "}, {")))
	}
}

// parameter adds the parameter to the provider, and its default to the file.
func (p *parser) parameter(entry *parameterEntry, d *annotations.Provider, at place) {
	before := len(p.errs)
	p.name(entry.Name, at.child("name"))
	// Names of keys and values that every provider and template already has.
	taken := slices.Concat([]string{"audience", "token-path"}, provider.SubjectValues(), []string{"credential-file", "issuer", "subject", annotations.TrustKeysFile})
	p.require(!slices.Contains(taken, entry.Name), at.child("name"), entry.Name, "must not be one of "+strings.Join(taken, ", "))
	p.require(!entry.ClusterOnly || !entry.Required, at.child("clusterOnly"), true, "must not be true with required: true")
	p.require(!entry.ClusterOnly || !entry.Allowed, at.child("allowed"), true, "has no effect with clusterOnly: true")
	limit := cmp.Or(entry.MaxBytes, defaultParameterBytes)
	p.require(limit > 0 && limit <= maxParameterBytes, at.child("maxBytes"), entry.MaxBytes, fmt.Sprintf("must be 1 to %d", maxParameterBytes))
	parameter := annotations.Parameter{
		Name: entry.Name, Identity: entry.Required, Required: entry.Required, ClusterOnly: entry.ClusterOnly, Allowed: entry.Allowed,
		Example: entry.Example, MaxBytes: limit, Template: true,
	}
	parameter.Grammar = p.grammar(entry, at)
	d.Parameters = append(d.Parameters, parameter)
	if entry.Required {
		d.PrincipalParameters = append(d.PrincipalParameters, entry.Name)
	}
	if len(p.errs) > before {
		return
	}
	if entry.Example != "" {
		_, err := parameter.Read(entry.Example)
		p.accept(err, at.child("example"), entry.Example)
	} else if entry.Pattern != "" {
		p.missing(at.child("example"), "must have a value that the pattern matches")
	}
	if entry.Default != "" {
		value, err := parameter.ReadTemplate(entry.Default)
		p.Parameters[d.Key(entry.Name)] = value
		p.accept(err, at.child("default"), entry.Default)
	}
}

// grammar returns the grammar of the parameter's values.
func (p *parser) grammar(entry *parameterEntry, at place) annotations.Grammar {
	p.limitBytes(entry.Pattern, maxPatternBytes, at.child("pattern"))
	p.limitBytes(entry.Message, maxMessageBytes, at.child("message"))
	pattern, err := regexp.Compile(entry.Pattern) // by itself: a)|(b would escape the anchors
	if err == nil {
		pattern, err = regexp.Compile("^(?:" + entry.Pattern + ")$")
	}
	if wrong, ok := errors.AsType[*syntax.Error](err); ok {
		p.require(false, at.child("pattern"), entry.Pattern, fmt.Sprintf("must be a regular expression: %s: `%s`", wrong.Code, wrong.Expr))
	}
	p.require(entry.Pattern != "" || entry.Message == "", at.child("message"), entry.Message, "has no effect without a pattern")
	grammar := annotations.Matching(visible, wantVisible)
	grammar.LowerGUIDs = true // one identity has one spelling
	if entry.Pattern != "" && err == nil {
		message := cmp.Or(entry.Message, "must match the pattern "+entry.Pattern)
		grammar.Checks = append(grammar.Checks, annotations.Check{AnyOf: []*regexp.Regexp{pattern}, Want: message})
	}
	return grammar
}

const wantVisible = "must be visible ASCII characters without a space"

// variable checks an environment variable.
func (p *parser) variable(v *annotations.Variable, d *annotations.Provider, at place) {
	p.variableName(v.Name, at.child("name"))
	p.require(!loadsCode.MatchString(v.Name), at.child("name"), v.Name, "changes how programs load code or reach servers; a provider must not set it")
	for i := range d.Parameters {
		parameter := &d.Parameters[i]
		p.require(parameter.ClusterOnly || !decidesHost(parameter, v), at.child("value"), v.Value, fmt.Sprintf(
			"may send tokens to a host that {%s}, an annotation, decides; set a pattern that no URL and no host with a port matches, or clusterOnly: true", parameter.Name))
	}
	value := at.child("value")
	p.require(v.Value != "" && len(v.Value) <= maxTemplateBytes, value, v.Value, fmt.Sprintf("must be 1 to %d bytes", maxTemplateBytes))
	known := provider.SubjectValues()
	for i := range d.Parameters {
		known = append(known, d.Parameters[i].Name)
	}
	for _, name := range placeholder.FindAllString(v.Value, -1) {
		p.require(slices.Contains(known, strings.Trim(name, "{}")), value, v.Value, fmt.Sprintf("has %s, which is none of {%s}", name, strings.Join(known, "}, {")))
	}
	braces := strings.ContainsAny(placeholder.ReplaceAllString(v.Value, ""), "{}")
	p.require(!braces, value, v.Value, "must have no braces except those around the name of a parameter")
	p.require(!v.Credential || strings.Contains(v.Value, "{token-file}"), at.child("credential"), true, "is for variables that point to {token-file}")
	p.require(!v.Credential || v.Group == "", at.child("group"), v.Group, "has no effect with credential: true")
}

// decidesHost reports whether the parameter could choose the server that gets the token. Any
// variable might be an address, so decidesHost tests whether the parameter's grammar accepts
// an address or the end of one. In a URL, the parameter must come after the host, whatever
// its grammar.
func decidesHost(parameter *annotations.Parameter, v *annotations.Variable) bool {
	before, after, found := strings.Cut(v.Value, "{"+parameter.Name+"}")
	if !found {
		return false
	}
	host := before
	if i := strings.LastIndex(before, "://"); i >= 0 {
		host = before[i+len("://"):]
	}
	switch {
	case strings.ContainsAny(host, "/?#"):
		return strings.Contains(after, "://")
	case host != before || strings.Contains(after, "://"):
		return true
	}
	return slices.ContainsFunc(addresses(before, after), func(address string) bool {
		_, err := parameter.Read(address)
		return err == nil
	})
}

// addresses returns values that, between before and after, form an address.
func addresses(before, after string) []string {
	all := []string{"lanyard.invalid:443"}
	if strings.HasPrefix(after, ":") {
		all = append(all, "lanyard.invalid")
	}
	if before == "" {
		return append(all, "https://lanyard.invalid")
	}
	return append(all, ".lanyard.invalid:443", "@lanyard.invalid")
}

func (p *parser) name(value string, at place) {
	valid := len(value) <= maxNameBytes && name.MatchString(value)
	p.require(valid, at, value, fmt.Sprintf("must be 1 to %d of a-z, 0-9 and -, and begin with a letter", maxNameBytes))
}

func (p *parser) variableName(value string, at place) {
	valid := len(value) <= 128 && variableName.MatchString(value)
	p.require(valid, at, value, "must be 1 to 128 of A-Z, 0-9 and _, and not begin with a digit")
}

// unique checks that no two providers, built-in or custom, have the same name,
// annotation or variable.
func (p *parser) unique(at place) {
	owner := map[string]string{}
	claim := func(kind, name, by string, at place) {
		other, found := owner[kind+" "+name]
		p.require(!found, at, name, fmt.Sprintf("is already a %s of provider %s", kind, other))
		owner[kind+" "+name] = by
	}
	for i, d := range slices.Concat(provider.Builtin(), p.Providers) {
		at := at.index(i - len(provider.Builtin()))
		claim("name", d.Name, d.Name, at.child("name"))
		if !d.Plain() {
			claim("annotation", d.Key("audience"), d.Name, at.child("name"))
		}
		for j := range d.Parameters {
			claim("annotation", d.Key(d.Parameters[j].Name), d.Name, at.child("parameters").index(j).child("name"))
		}
		for j, v := range d.Variables {
			claim("variable", v.Name, d.Name, at.child("environment").index(j).child("name"))
		}
	}
}
