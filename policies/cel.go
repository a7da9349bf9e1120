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

// Policies cannot call the functions of a provider. This file has the functions as
// expressions. A test in test/policies compares each pair.
//
// In an expression, {NAME} is a value, as in annotations.Values and in templates.

// providerFunctions are the functions of one provider.
type providerFunctions struct {
	// expand has Parameter.Expand, by the name of the parameter. "value" is the value, and a
	// {NAME} is the cluster's value of a parameter.
	expand map[string]string
	// derived has the values of Provider.Derive.
	derived []derived
	// file is the content of the credential file without profiles; empty if there is none.
	file string
}

// derived is a value of Provider.Derive.
type derived struct {
	// name is the name of the value, and value is the expression.
	name, value string
	// valid is false if the expression cannot have the value; empty for always true. want
	// then completes the sentence "the ServiceAccount ...".
	valid, want string
}

// functions returns the functions of a provider. A custom provider has none.
func functions(p *annotations.Provider) providerFunctions {
	switch p.Name {
	case "aws":
		return providerFunctions{
			expand: map[string]string{"role-arn": `value == '' || value.startsWith('arn:') ? value : {role-arn-prefix} + value`},
			derived: []derived{{
				name: "default-session-name", value: `{serviceaccount} + '@' + {namespace}`,
				// CEL has no hash.
				valid: `({serviceaccount} + '@' + {namespace}).size() <= 64`, want: "has a session name of more than 64 characters, which policies cannot shorten",
			}},
		}
	case "gcp":
		return providerFunctions{
			expand: map[string]string{"service-account": `value == '' || {default-project} == '' || value.contains('@') ? value :
  value + '@' + {default-project}.split(':', 2).reverse().join('.') + '.iam.gserviceaccount.com'`},
			derived: []derived{{name: "project", value: `([{project}, ` + projectOf(p) + `, {default-project}].filter(id, id != '') + [''])[0]`}},
			file:    externalAccount,
		}
	}
	return providerFunctions{}
}

// podNameFits is provider.PodNameFits as an expression. "value" is the name.
const podNameFits = `value == '' || value.size() >= 2 && value.size() <= 64`

// checks returns the expression for the words about a value that is not valid, or ”. "value"
// is the value.
func checks(p *annotations.Parameter) string {
	text := fmt.Sprintf("bytes(value).size() > %[1]d ? 'must have at most %[1]d bytes' : ", p.MaxBytes)
	for i := range p.Grammar.Checks {
		check := &p.Grammar.Checks[i]
		text += "!(" + accepts(check, withoutPrefix(p.Grammar.Prefixes)) + ") ? " + texts.QuoteCEL(check.Want) + " : "
	}
	return text + "''"
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
	text := ""
	for _, prefix := range prefixes {
		text += fmt.Sprintf("value.startsWith(%s) ? value.substring(%d) : ", texts.QuoteCEL(prefix), len(prefix))
	}
	return "(" + text + "value)"
}

// canonical returns the expression for the canonical spelling of a valid value, or "" if that
// is the value.
func canonical(g *annotations.Grammar) string {
	switch {
	case len(g.Prefixes) > 0:
		return withoutPrefix(g.Prefixes)
	case g.LowerGUIDs:
		return lower(texts.GUIDPattern)
	}
	return ""
}

// lower returns the expression for the value, in lower case if it matches the pattern.
func lower(pattern string) string {
	return "value.matches(" + texts.QuoteCEL(pattern) + ") ? value.lowerAscii() : value"
}

// Neither a valid provider nor a valid e-mail has a character that JSON escapes. A token
// file must not have one either.
const externalAccount = `'{"type":"external_account","audience":"//iam.googleapis.com/' + {workload-identity-provider} +
  '","subject_token_type":"urn:ietf:params:oauth:token-type:jwt","token_url":"https://sts.' + ` + universe + ` + '/v1/token"' +
  ',"credential_source":{"file":"' + {token-file}.replace('\\', '\\\\') + '","format":{"type":"text"}}' +
  ({service-account} == '' ? '' : ',"service_account_impersonation_url":"https://iamcredentials.' + ` + universe + ` +
  '/v1/projects/-/serviceAccounts/' + {service-account} + ':generateAccessToken"' + ({impersonation-lifetime-seconds} == '' ? '' :
  ',"service_account_impersonation":{"token_lifetime_seconds":' + {impersonation-lifetime-seconds} + '}')) +
  ({universe-domain} in ['', 'googleapis.com'] ? '' : ',"universe_domain":"' + {universe-domain} + '"') + '}'`

// universe is the domain of Google's APIs.
const universe = `({universe-domain} == '' ? 'googleapis.com' : {universe-domain})`

// projectOf is the project of the e-mail of the identity, or ”.
func projectOf(gcp *annotations.Provider) string {
	var users string // the pattern of the service accounts of users
	for i := range gcp.Parameters {
		if p := &gcp.Parameters[i]; p.Name == "service-account" {
			users = p.Grammar.Checks[0].AnyOf[0].String()
		}
	}
	return `({service-account}.matches(` + texts.QuoteCEL(users) + `) ?
  [{service-account}.split('@')[1]].map(host, host.substring(0, host.size() - 24).split('.', 2).reverse().join(':'))[0] :
  {service-account}.endsWith('@appspot.gserviceaccount.com') ? {service-account}.split('@')[0] : '')`
}
