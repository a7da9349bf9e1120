// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/lanyard-dev/lanyard/test/e2e/clouds/trust"
)

// question is the request that a policy is evaluated for.
type question struct {
	// action is the action with its service, principal is an ARN.
	action, principal string
	// values maps condition keys in lower case to their values.
	values map[string]string
}

// askedWithToken returns the question of AssumeRoleWithWebIdentity.
func askedWithToken(provider trust.OpenIDConnectProvider, subject, audience string) question {
	url := strings.ToLower(provider.URL)
	return question{
		action: "sts:" + withWebIdentity, principal: provider.ARN,
		values: map[string]string{url + ":sub": subject, url + ":aud": audience},
	}
}

// askedByRole returns the question of AssumeRole.
func askedByRole(arn string) question {
	return question{action: "sts:" + byRole, principal: arn}
}

// policy is a compiled trust policy.
type policy []statement

type statement struct {
	allow      bool
	principals []string
	actions    []*regexp.Regexp
	conditions []condition
}

// allows reports whether at least one statement allows the request and none
// denies it.
func (p policy) allows(q question) bool {
	allowed := false
	for _, s := range p {
		if !s.applies(q) {
			continue
		}
		if !s.allow {
			return false
		}
		allowed = true
	}
	return allowed
}

func (s statement) applies(q question) bool {
	return slices.Contains(s.principals, q.principal) &&
		slices.ContainsFunc(s.actions, func(pattern *regexp.Regexp) bool { return pattern.MatchString(q.action) }) &&
		!slices.ContainsFunc(s.conditions, func(c condition) bool { return !c.holds(q) })
}

// compile returns an error for everything that it cannot evaluate as IAM does.
// account is the role's.
func compile(document trust.Policy, account string, providers []trust.OpenIDConnectProvider) (policy, error) {
	if document.Version != "2012-10-17" && document.Version != "2008-10-17" {
		return nil, fmt.Errorf("trust policy: got Version %q, want 2012-10-17 or 2008-10-17", document.Version)
	}
	if len(document.Statement) == 0 {
		return nil, errors.New("trust policy: no Statement found, want at least one")
	}
	var compiled policy
	for n, s := range document.Statement {
		next, err := compileStatement(s, account, providers)
		if err != nil {
			return nil, fmt.Errorf("trust policy: statement %d (Sid %q): %w", n, s.Sid, err)
		}
		compiled = append(compiled, next)
	}
	return compiled, nil
}

func compileStatement(s trust.Statement, account string, providers []trust.OpenIDConnectProvider) (statement, error) {
	if s.Effect != "Allow" && s.Effect != "Deny" {
		return statement{}, fmt.Errorf("got Effect %q, want Allow or Deny", s.Effect)
	}
	compiled := statement{allow: s.Effect == "Allow", principals: slices.Concat(s.Principal.Federated, s.Principal.AWS)}
	if err := checkPrincipal(s.Principal, account, providers); err != nil {
		return statement{}, err
	}
	for _, pattern := range s.Action {
		if !strings.HasPrefix(strings.ToLower(pattern), "sts:") && pattern != "*" {
			return statement{}, fmt.Errorf("got Action %q, want an action of sts", pattern)
		}
		compiled.actions = append(compiled.actions, wildcards("(?i)", pattern))
	}
	if len(compiled.principals) == 0 || len(compiled.actions) == 0 {
		return statement{}, errors.New("Principal.Federated or Action is missing, want both")
	}
	for _, operator := range slices.Sorted(maps.Keys(s.Condition)) {
		keys := s.Condition[operator]
		for _, key := range slices.Sorted(maps.Keys(keys)) {
			next, err := compileCondition(operator, key, keys[key], providers)
			if err != nil {
				return statement{}, fmt.Errorf("condition %s on %q: %w", operator, key, err)
			}
			compiled.conditions = append(compiled.conditions, next)
		}
	}
	return compiled, nil
}

func checkPrincipal(principal trust.Principal, account string, providers []trust.OpenIDConnectProvider) error {
	for _, federated := range principal.Federated {
		if !slices.ContainsFunc(providers, func(p trust.OpenIDConnectProvider) bool { return p.ARN == federated }) {
			return fmt.Errorf("got Principal.Federated %q, want the ARN of a configured OIDC provider", federated)
		}
	}
	for _, arn := range principal.AWS {
		// A role of another account also needs a policy of its own account.
		if parts := roleARN.FindStringSubmatch(arn); parts == nil || parts[2] != account {
			return fmt.Errorf("got Principal.AWS %q, want the ARN of a role in the account %s", arn, account)
		}
	}
	return nil
}

// condition is one key of one operator.
type condition struct {
	key string
	// whenAbsent is the result if the request does not have the key.
	whenAbsent bool
	// negated conditions hold if no value matches, others if any value matches.
	negated bool
	matches []func(string) bool
}

func (c condition) holds(q question) bool {
	value, present := q.values[c.key]
	if !present {
		return c.whenAbsent
	}
	matched := slices.ContainsFunc(c.matches, func(match func(string) bool) bool { return match(value) })
	return matched != c.negated
}

// operators maps an operator's name without Not to its comparison.
var operators = map[string]func(value string) func(string) bool{
	"StringEquals": func(value string) func(string) bool {
		return func(got string) bool { return got == value }
	},
	"StringEqualsIgnoreCase": func(value string) func(string) bool {
		return func(got string) bool { return strings.EqualFold(got, value) }
	},
	"StringLike": func(value string) func(string) bool {
		return wildcards("", value).MatchString
	},
}

// compileCondition follows
// https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_elements_condition_operators.html
// for keys with at most one value. For these, ForAnyValue and ForAllValues
// differ only if the key is absent.
func compileCondition(operator, key string, values trust.Strings, providers []trust.OpenIDConnectProvider) (condition, error) {
	rest, anyValue := strings.CutPrefix(operator, "ForAnyValue:")
	rest, allValues := strings.CutPrefix(rest, "ForAllValues:")
	rest, ifExists := strings.CutSuffix(rest, "IfExists")
	positive := strings.Replace(rest, "StringNot", "String", 1)
	compare, known := operators[positive]
	if !known || anyValue && allValues {
		return condition{}, errors.New("the operator is not supported")
	}
	if !slices.ContainsFunc(providers, func(p trust.OpenIDConnectProvider) bool {
		return strings.EqualFold(key, p.URL+":sub") || strings.EqualFold(key, p.URL+":aud")
	}) {
		return condition{}, errors.New("the key is not supported, want a configured provider's URL with :sub or :aud")
	}
	if len(values) == 0 {
		return condition{}, errors.New("no value given")
	}
	compiled := condition{key: strings.ToLower(key), negated: positive != rest}
	compiled.whenAbsent = ifExists || allValues || compiled.negated && !anyValue
	for _, value := range values {
		if strings.Contains(value, "${") {
			return condition{}, fmt.Errorf("got %q: policy variables are not supported", value)
		}
		compiled.matches = append(compiled.matches, compare(value))
	}
	return compiled, nil
}

// wildcards returns a pattern for a complete text, with * for any number of
// characters and ? for one.
func wildcards(flags, pattern string) *regexp.Regexp {
	quoted := regexp.QuoteMeta(pattern)
	quoted = strings.ReplaceAll(quoted, `\*`, `.*`)
	quoted = strings.ReplaceAll(quoted, `\?`, `.`)
	return regexp.MustCompile(flags + `(?s)^` + quoted + `$`)
}
