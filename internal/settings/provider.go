// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/lanyard-dev/lanyard/internal/annotations"
	"github.com/lanyard-dev/lanyard/internal/provider"
	"github.com/lanyard-dev/lanyard/internal/texts"
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
	// defaultParameterBytes is the limit of a parameter without maxBytes.
	defaultParameterBytes = 256
)

// providerEntry is a custom provider, as the file has it.
type providerEntry struct {
	Name                      string           `yaml:"name"`
	Audience                  string           `yaml:"audience"`
	MinTokenExpirationSeconds int64            `yaml:"minTokenExpirationSeconds"`
	Parameters                []parameterEntry `yaml:"parameters"`
	Environment               []variableEntry  `yaml:"environment"`
	Shadows                   []string         `yaml:"shadows"`
}

// parameterEntry is a parameter. A ServiceAccount asks for the provider's identity by
// a required one.
type parameterEntry struct {
	Name     string `yaml:"name"`
	Required bool   `yaml:"required"`
	Pattern  string `yaml:"pattern"`
	Message  string `yaml:"message"`
	Example  string `yaml:"example"`
	MaxBytes int    `yaml:"maxBytes"`
	Default  string `yaml:"default"`
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
	placeholder  = regexp.MustCompile(`\{[a-z0-9-]+\}`)
)

// definition returns the provider, and adds the defaults and examples of its
// parameters to the file.
func (p *providerEntry) definition(path *field.Path, file *File) (*provider.Definition, field.ErrorList) {
	d := provider.Definition{
		Name:                 p.Name,
		DefaultAudience:      p.Audience,
		MaxAudienceBytes:     maxAudienceBytes,
		MinExpirationSeconds: p.MinTokenExpirationSeconds,
		TokenPath:            p.Name + "/token",
		Shadows:              p.Shadows,
	}
	errs := p.check(path)
	parameters := path.Child("parameters")
	for i := range p.Parameters {
		parameter, value, wrong := p.Parameters[i].parameter(parameters.Index(i))
		errs = append(errs, wrong...)
		d.Parameters = append(d.Parameters, parameter)
		if value != "" {
			file.Parameters[d.Key(parameter.Name)] = value
		}
		if example := p.Parameters[i].Example; example != "" {
			file.Examples[d.Key(parameter.Name)] = example
		}
		if parameter.Required {
			d.PrincipalParameters = append(d.PrincipalParameters, parameter.Name)
		}
	}
	if len(d.PrincipalParameters) == 0 {
		errs = append(errs, field.Required(parameters, "must have a parameter with required: true, by which a ServiceAccount asks for the identity"))
	}
	environment := path.Child("environment")
	for i := range p.Environment {
		entry := &p.Environment[i]
		variable := provider.Variable{Name: entry.Name, Value: entry.Value, Credential: entry.Credential, Group: entry.Group}
		errs = append(errs, checkVariable(&variable, &d, environment.Index(i))...)
		d.Variables = append(d.Variables, variable)
	}
	return &d, errs
}

// check checks the rules for the provider as a whole.
func (p *providerEntry) check(path *field.Path) field.ErrorList {
	errs := checkName(p.Name, path.Child("name"))
	if _, err := annotations.ParseAudience(p.Audience, maxAudienceBytes, nil); err != nil {
		errs = append(errs, field.Invalid(path.Child("audience"), p.Audience, err.Error()))
	}
	if p.MinTokenExpirationSeconds != 0 {
		if err := annotations.ValidateTokenExpirationSeconds(p.MinTokenExpirationSeconds, 0); err != nil {
			errs = append(errs, field.Invalid(path.Child("minTokenExpirationSeconds"), p.MinTokenExpirationSeconds, err.Error()))
		}
	}
	for _, list := range []struct {
		name      string
		got, most int
	}{
		{"parameters", len(p.Parameters), maxParameters},
		{"environment", len(p.Environment), maxVariables},
		{"shadows", len(p.Shadows), maxShadows},
	} {
		if list.got > list.most {
			errs = append(errs, field.TooMany(path.Child(list.name), list.got, list.most))
		}
	}
	for i, shadow := range p.Shadows {
		errs = append(errs, checkVariableName(shadow, path.Child("shadows").Index(i))...)
	}
	return errs
}

// parameter returns the parameter and the cluster's default of it, "" for none.
func (p *parameterEntry) parameter(path *field.Path) (provider.Parameter, string, field.ErrorList) {
	errs := checkName(p.Name, path.Child("name"))
	// Every provider has these keys, and every template these values.
	if taken := slices.Concat([]string{"audience", "token-path"}, provider.SubjectValues(), []string{"credential-file"}); slices.Contains(taken, p.Name) {
		errs = append(errs, field.Invalid(path.Child("name"), p.Name, "must not be one of "+strings.Join(taken, ", ")))
	}
	limit := p.MaxBytes
	if limit == 0 {
		limit = defaultParameterBytes
	}
	if limit < 0 || limit > maxParameterBytes {
		errs = append(errs, field.Invalid(path.Child("maxBytes"), p.MaxBytes, fmt.Sprintf("must be 1 to %d", maxParameterBytes)))
	}
	parse, wrong := p.grammar(path)
	errs = append(errs, wrong...)
	result := provider.Parameter{
		Name: p.Name, Identity: p.Required, Required: p.Required, MaxBytes: limit,
		Parse: parse, Template: true,
	}
	if len(errs) > 0 {
		return result, "", errs
	}
	if p.Pattern != "" && p.Example == "" {
		errs = append(errs, field.Required(path.Child("example"), "must have a value that the pattern matches"))
	}
	if _, err := result.Read(p.Example); p.Example != "" && err != nil {
		errs = append(errs, field.Invalid(path.Child("example"), p.Example, err.Error()))
	}
	if p.Default == "" {
		return result, "", errs
	}
	value, err := result.ReadTemplate(p.Default)
	if err != nil {
		errs = append(errs, field.Invalid(path.Child("default"), p.Default, err.Error()))
	}
	return result, value, errs
}

// grammar returns the check of the parameter's values.
func (p *parameterEntry) grammar(path *field.Path) (func(string) (string, error), field.ErrorList) {
	var errs field.ErrorList
	if len(p.Pattern) > maxPatternBytes {
		errs = append(errs, field.TooLong(path.Child("pattern"), "", maxPatternBytes))
	}
	if len(p.Message) > maxMessageBytes {
		errs = append(errs, field.TooLong(path.Child("message"), "", maxMessageBytes))
	}
	pattern, err := regexp.Compile("^(?:" + p.Pattern + ")$")
	if err != nil {
		errs = append(errs, field.Invalid(path.Child("pattern"), p.Pattern, "must be a regular expression: "+strings.TrimPrefix(err.Error(), "error parsing regexp: ")))
	}
	if p.Pattern == "" && p.Message != "" {
		errs = append(errs, field.Invalid(path.Child("message"), p.Message, "has no effect without a pattern"))
	}
	if len(errs) > 0 {
		return nil, errs
	}
	message := p.Message
	if message == "" {
		message = "must match the pattern " + p.Pattern
	}
	restricted := p.Pattern != ""
	return func(value string) (string, error) {
		switch {
		case value == "" || !texts.IsVisible(value):
			return "", errors.New("must be visible ASCII characters without a space")
		case restricted && !pattern.MatchString(value):
			return "", errors.New(message)
		case texts.IsGUID(value):
			return strings.ToLower(value), nil // one identity has one spelling
		}
		return value, nil
	}, nil
}

// checkVariable checks a variable of the provider.
func checkVariable(v *provider.Variable, d *provider.Definition, path *field.Path) field.ErrorList {
	errs := checkVariableName(v.Name, path.Child("name"))
	if v.Value == "" || len(v.Value) > maxTemplateBytes {
		errs = append(errs, field.Invalid(path.Child("value"), v.Value, fmt.Sprintf("must be 1 to %d bytes", maxTemplateBytes)))
	}
	known := provider.SubjectValues()
	for i := range d.Parameters {
		known = append(known, d.Parameters[i].Name)
	}
	for _, name := range placeholder.FindAllString(v.Value, -1) {
		if !slices.Contains(known, strings.Trim(name, "{}")) {
			errs = append(errs, field.Invalid(path.Child("value"), v.Value, fmt.Sprintf("has %s, which is none of {%s}", name, strings.Join(known, "}, {"))))
		}
	}
	if strings.ContainsAny(placeholder.ReplaceAllString(v.Value, ""), "{}") {
		errs = append(errs, field.Invalid(path.Child("value"), v.Value, "must have no braces except those around the name of a parameter"))
	}
	if points := strings.Contains(v.Value, "{token-file}"); v.Credential && !points {
		errs = append(errs, field.Invalid(path.Child("credential"), true, "is for variables that point to {token-file}"))
	}
	if v.Credential && v.Group != "" {
		errs = append(errs, field.Invalid(path.Child("group"), v.Group, "has no effect with credential: true"))
	}
	return errs
}

func checkName(value string, path *field.Path) field.ErrorList {
	if len(value) > maxNameBytes || !name.MatchString(value) {
		return field.ErrorList{field.Invalid(path, value, fmt.Sprintf("must be 1 to %d of a-z, 0-9 and -, and begin with a letter", maxNameBytes))}
	}
	return nil
}

func checkVariableName(value string, path *field.Path) field.ErrorList {
	if len(value) > 128 || !variableName.MatchString(value) {
		return field.ErrorList{field.Invalid(path, value, "must be 1 to 128 of A-Z, 0-9 and _, and not begin with a digit")}
	}
	return nil
}

// checkUnique checks that no two providers, built-in or custom, have the same name,
// annotation or variable.
func checkUnique(custom []*provider.Definition, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	owner := map[string]string{}
	claim := func(what, name, by string, path *field.Path) {
		if other, found := owner[what+" "+name]; found {
			errs = append(errs, field.Invalid(path, name, fmt.Sprintf("is already a %s of provider %s", what, other)))
		}
		owner[what+" "+name] = by
	}
	for i, d := range slices.Concat(provider.Builtin(), custom) {
		path := path.Index(i - len(provider.Builtin()))
		claim("name", d.Name, d.Name, path.Child("name"))
		if !d.Plain() {
			claim("annotation", d.Key("audience"), d.Name, path.Child("name"))
		}
		for j := range d.Parameters {
			claim("annotation", d.Key(d.Parameters[j].Name), d.Name, path.Child("parameters").Index(j).Child("name"))
		}
		for j, v := range d.Variables {
			claim("variable", v.Name, d.Name, path.Child("environment").Index(j).Child("name"))
		}
	}
	return errs
}
