// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/lanyard-dev/lanyard/internal/texts"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

// Policies cannot call the Go functions of a provider, so this file contains them as
// expressions. A test in test/policies compares each pair, and needs the exported names.
//
// In an expression, {NAME} is a value, as in annotations.Values and in templates.

// Functions are the functions of one provider, as expressions.
type Functions struct {
	// Expand contains the expressions for Parameter.Expand, by the name of the parameter.
	// "value" is the value, and {NAME} is the cluster's value of a parameter.
	Expand map[string]string
	// Derived contains the values of Provider.Derive.
	Derived []Derived
	// File is the content of the credential file without profiles, or empty if there is none.
	File string
}

// Derived is a value of Provider.Derive.
type Derived struct {
	// Name is the name of the value, and Value is the expression.
	Name, Value string
	// Valid is an expression that is false if Value cannot compute the value, or empty if
	// it always can. Want completes the sentence "the ServiceAccount ..." about such a
	// value.
	Valid, Want string
}

// FunctionsOf returns the functions of a provider. A custom provider has none.
func FunctionsOf(p *annotations.Provider) Functions {
	switch p.Name {
	case "aws":
		return Functions{
			Expand: map[string]string{"role-arn": `value == '' || value.startsWith('arn:') ? value : {role-arn-prefix} + value`},
			Derived: []Derived{{
				Name: "default-session-name", Value: `{serviceaccount} + '@' + {namespace}`,
				// CEL has no hash function.
				Valid: `({serviceaccount} + '@' + {namespace}).size() <= 64`, Want: "has a session name of more than 64 characters, which policies cannot shorten",
			}},
		}
	case "gcp":
		return Functions{
			Expand: map[string]string{"service-account": `value == '' || {default-project} == '' || value.contains('@') ? value :
  value + '@' + {default-project}.split(':', 2).reverse().join('.') + '.iam.gserviceaccount.com'`},
			Derived: []Derived{{Name: "project", Value: `([{project}, ` + projectOf(p) + `, {default-project}].filter(id, id != '') + [''])[0]`}},
			File:    externalAccount,
		}
	}
	return Functions{}
}

// PodNameFits is provider.PodNameFits as an expression. "value" is the name.
const PodNameFits = `value == '' || value.size() >= 2 && value.size() <= 64`

// Checks returns the expression for the message about an invalid value; it is empty for a
// valid one. "value" is the value.
func Checks(p *annotations.Parameter) string {
	cases := []string{fmt.Sprintf("bytes(value).size() > %[1]d ? 'must have at most %[1]d bytes'", p.MaxBytes)}
	for i := range p.Grammar.Checks {
		check := &p.Grammar.Checks[i]
		cases = append(cases, "!("+accepts(check, withoutPrefix(p.Grammar.Prefixes))+") ? "+texts.QuoteCEL(check.Want))
	}
	return strings.Join(append(cases, "''"), " : ")
}

// accepts returns the expression for a check of a value.
func accepts(check *annotations.Check, value string) string {
	text := anyOf(check.AnyOf, value)
	if len(check.NoneOf) > 0 {
		text = "(" + text + ") && !(" + anyOf(check.NoneOf, value) + ")"
	}
	return text
}

func anyOf(patterns []*regexp.Regexp, value string) string {
	var matches []string
	for _, pattern := range patterns {
		matches = append(matches, value+".matches("+texts.QuoteCEL(pattern.String())+")")
	}
	return strings.Join(matches, " || ")
}

// withoutPrefix returns the expression for the value without the first of the prefixes.
func withoutPrefix(prefixes []string) string {
	if len(prefixes) == 0 {
		return "value"
	}
	var cases []string
	for _, prefix := range prefixes {
		cases = append(cases, fmt.Sprintf("value.startsWith(%s) ? value.substring(%d)", texts.QuoteCEL(prefix), len(prefix)))
	}
	return "(" + strings.Join(append(cases, "value"), " : ") + ")"
}

// Canonical returns the expression for the canonical spelling of a valid value, or "" if that
// is the value.
func Canonical(p *annotations.Parameter) string {
	switch {
	case len(p.Grammar.Prefixes) > 0:
		return withoutPrefix(p.Grammar.Prefixes)
	case p.Grammar.LowerGUIDs:
		return lower(texts.GUIDPattern)
	}
	return ""
}

// lower returns the expression for the value, in lower case if it matches the pattern.
func lower(pattern string) string {
	return "value.matches(" + texts.QuoteCEL(pattern) + ") ? value.lowerAscii() : value"
}

// Valid providers and e-mails contain no characters that JSON escapes. The path of the
// token file must not contain any, either.
const externalAccount = `'{"type":"external_account","audience":"//iam.googleapis.com/' + {workload-identity-provider} +
  '","subject_token_type":"urn:ietf:params:oauth:token-type:jwt","token_url":"https://sts.' + ` + universe + ` + '/v1/token"' +
  ',"credential_source":{"file":"' + {token-file}.replace('\\', '\\\\') + '","format":{"type":"text"}}' +
  ({service-account} == '' ? '' : ',"service_account_impersonation_url":"https://iamcredentials.' + ` + universe + ` +
  '/v1/projects/-/serviceAccounts/' + {service-account} + ':generateAccessToken"' + ({impersonation-lifetime-seconds} == '' ? '' :
  ',"service_account_impersonation":{"token_lifetime_seconds":' + {impersonation-lifetime-seconds} + '}')) +
  ({universe-domain} in ['', 'googleapis.com'] ? '' : ',"universe_domain":"' + {universe-domain} + '"') + '}'`

// universe is the domain of Google's APIs.
const universe = `({universe-domain} == '' ? 'googleapis.com' : {universe-domain})`

// projectOf returns the expression for the project in the e-mail of the identity; it is empty if
// the e-mail contains none.
func projectOf(gcp *annotations.Provider) string {
	users := gcp.Parameter("service-account").Grammar.Checks[0].AnyOf[0].String() // the service accounts of users
	return `({service-account}.matches(` + texts.QuoteCEL(users) + `) ?
  [{service-account}.split('@')[1]].map(host, host.substring(0, host.size() - 24).split('.', 2).reverse().join(':'))[0] :
  {service-account}.endsWith('@appspot.gserviceaccount.com') ? {service-account}.split('@')[0] : '')`
}
