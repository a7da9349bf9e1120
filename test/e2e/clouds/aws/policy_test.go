// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package aws_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/lanyard-dev/lanyard/test/e2e/clouds/aws"
	"github.com/lanyard-dev/lanyard/test/e2e/clouds/issuer/issuertest"
	"github.com/lanyard-dev/lanyard/test/e2e/clouds/journal/journaltest"
	"github.com/lanyard-dev/lanyard/test/e2e/clouds/trust"
)

// parse returns a trust file with one role of the given policy. SUB and AUD
// stand for the condition keys, PROVIDER and OTHER for the providers.
func parse(policy string) (trust.AWS, error) {
	policy = strings.NewReplacer("SUB", providerURL+":sub", "AUD", providerURL+":aud", "PROVIDER", providerARN, "OTHER", otherARN, "ELSE", otherURL+":sub").Replace(policy)
	file := fmt.Sprintf(`{"aws": {
		"openIDConnectProviders": [
			{"arn": %q, "url": %q, "clientIDList": ["sts.amazonaws.com"]},
			{"arn": %q, "url": %q, "clientIDList": ["sts.amazonaws.com"]}],
		"roles": [{"arn": %q, "assumeRolePolicyDocument": %s}]}}`,
		providerARN, providerURL, otherARN, otherURL, reader, policy)
	parsed, err := trust.Parse([]byte(file))
	return parsed.AWS, err
}

// allow returns a policy of one statement with the condition.
func allow(condition string) string {
	return `{"Version": "2012-10-17", "Statement": [` + statement("Allow", condition) + `]}`
}

func statement(effect, condition string) string {
	return `{"Effect": "` + effect + `", "Principal": {"Federated": "PROVIDER"}, "Action": "sts:AssumeRoleWithWebIdentity", "Condition": ` + condition + `}`
}

// The subject is system:serviceaccount:shop:cart, the audience is
// sts.amazonaws.com.
func TestTrustPolicies(t *testing.T) {
	t.Parallel()
	key := issuertest.RSA(t, "key-1")
	cluster := issuertest.Start(t, key)
	token := key.Sign(t, issuertest.Claims("sts.amazonaws.com", nil))
	const every = `{"Version": "2012-10-17", "Statement": [`
	tests := map[string]struct {
		policy string
		want   bool
	}{
		"the subject": {policy: allow(`{"StringEquals": {"SUB": "system:serviceaccount:shop:cart"}}`), want: true},
		"a list with the subject": {
			policy: allow(`{"StringEquals": {"SUB": ["system:serviceaccount:shop:a", "system:serviceaccount:shop:cart"]}}`), want: true},
		"another subject":               {policy: allow(`{"StringEquals": {"SUB": "system:serviceaccount:shop:car"}}`)},
		"the subject in upper case":     {policy: allow(`{"StringEquals": {"SUB": "system:serviceaccount:SHOP:cart"}}`)},
		"the subject in any case":       {policy: allow(`{"StringEqualsIgnoreCase": {"SUB": "system:serviceaccount:SHOP:cart"}}`), want: true},
		"not that subject, in any case": {policy: allow(`{"StringNotEqualsIgnoreCase": {"SUB": "system:serviceaccount:SHOP:cart"}}`)},
		"a key in upper case": {
			policy: allow(`{"StringEquals": {"KUBERNETES.default.svc.cluster.local:SuB": "system:serviceaccount:shop:cart"}}`), want: true},
		"the subject and another audience": {
			policy: allow(`{"StringEquals": {"SUB": "system:serviceaccount:shop:cart", "AUD": "x"}}`)},
		"the subject and, with another operator, the audience": {
			policy: allow(`{"StringEquals": {"SUB": "system:serviceaccount:shop:cart"}, "StringLike": {"AUD": "sts.*"}}`), want: true},
		"the subject and, with another operator, another audience": {
			policy: allow(`{"StringEquals": {"SUB": "system:serviceaccount:shop:cart"}, "StringLike": {"AUD": "api.*"}}`)},
		"a star with StringEquals":           {policy: allow(`{"StringEquals": {"SUB": "system:serviceaccount:shop:*"}}`)},
		"a star for the name":                {policy: allow(`{"StringLike": {"SUB": "system:serviceaccount:shop:*"}}`), want: true},
		"only a star":                        {policy: allow(`{"StringLike": {"SUB": "*"}}`), want: true},
		"a star in the middle":               {policy: allow(`{"StringLike": {"SUB": "system:*:cart"}}`), want: true},
		"a star in another namespace":        {policy: allow(`{"StringLike": {"SUB": "system:serviceaccount:sho:*"}}`)},
		"a star without the prefix":          {policy: allow(`{"StringLike": {"SUB": "serviceaccount:*"}}`)},
		"a question mark for one character":  {policy: allow(`{"StringLike": {"SUB": "system:serviceaccount:shop:car?"}}`), want: true},
		"a question mark for no character":   {policy: allow(`{"StringLike": {"SUB": "system:serviceaccount:shop:cart?"}}`)},
		"a point matches only a point":       {policy: allow(`{"StringLike": {"AUD": "sts.amazonaws.co."}}`)},
		"not that subject":                   {policy: allow(`{"StringNotEquals": {"SUB": "system:serviceaccount:shop:cart"}}`)},
		"none of those subjects":             {policy: allow(`{"StringNotEquals": {"SUB": ["a", "system:serviceaccount:shop:cart"]}}`)},
		"not another subject":                {policy: allow(`{"StringNotEquals": {"SUB": ["a", "b"]}}`), want: true},
		"not like that":                      {policy: allow(`{"StringNotLike": {"SUB": "*:cart"}}`)},
		"not like another":                   {policy: allow(`{"StringNotLike": {"SUB": "*:car"}}`), want: true},
		"a key of another provider":          {policy: allow(`{"StringEquals": {"ELSE": "system:serviceaccount:shop:cart"}}`)},
		"a key of another provider, negated": {policy: allow(`{"StringNotEquals": {"ELSE": "x"}}`), want: true},
		"a key of another provider, IfExists": {
			policy: allow(`{"StringEqualsIfExists": {"ELSE": "x"}}`), want: true},
		"a key that exists, IfExists":          {policy: allow(`{"StringEqualsIfExists": {"SUB": "x"}}`)},
		"any value":                            {policy: allow(`{"ForAnyValue:StringEquals": {"AUD": "sts.amazonaws.com"}}`), want: true},
		"any value, another one":               {policy: allow(`{"ForAnyValue:StringLike": {"AUD": "x*"}}`)},
		"any value of another provider":        {policy: allow(`{"ForAnyValue:StringNotEquals": {"ELSE": "x"}}`)},
		"all values":                           {policy: allow(`{"ForAllValues:StringEquals": {"AUD": "sts.amazonaws.com"}}`), want: true},
		"all values, another one":              {policy: allow(`{"ForAllValues:StringEquals": {"AUD": "x"}}`)},
		"all values of another provider":       {policy: allow(`{"ForAllValues:StringEquals": {"ELSE": "x"}}`), want: true},
		"no condition":                         {policy: every + `{"Effect": "Allow", "Principal": {"Federated": ["OTHER", "PROVIDER"]}, "Action": ["sts:TagSession", "sts:AssumeRoleWithWebIdentity"]}]}`, want: true},
		"another provider":                     {policy: every + `{"Effect": "Allow", "Principal": {"Federated": "OTHER"}, "Action": "sts:AssumeRoleWithWebIdentity"}]}`},
		"another action":                       {policy: every + `{"Effect": "Allow", "Principal": {"Federated": "PROVIDER"}, "Action": "sts:AssumeRole"}]}`},
		"an action with a star in upper case":  {policy: every + `{"Effect": "Allow", "Principal": {"Federated": "PROVIDER"}, "Action": "STS:assume*identity"}]}`, want: true},
		"all actions":                          {policy: every + `{"Effect": "Allow", "Principal": {"Federated": "PROVIDER"}, "Action": "*"}]}`, want: true},
		"the second statement allows":          {policy: every + statement("Allow", `{"StringEquals": {"SUB": "x"}}`) + "," + statement("Allow", `{"StringLike": {"SUB": "*:cart"}}`) + `]}`, want: true},
		"deny takes precedence after allow":    {policy: every + statement("Allow", `{"StringLike": {"SUB": "*"}}`) + "," + statement("Deny", `{"StringLike": {"SUB": "*:cart"}}`) + `]}`},
		"deny takes precedence before allow":   {policy: every + statement("Deny", `{"StringLike": {"SUB": "*:cart"}}`) + "," + statement("Allow", `{"StringLike": {"SUB": "*"}}`) + `]}`},
		"a deny statement for another subject": {policy: every + statement("Deny", `{"StringLike": {"SUB": "*:car"}}`) + "," + statement("Allow", `{"StringLike": {"SUB": "*"}}`) + `]}`, want: true},
		"a deny statement that does not apply": {policy: every + statement("Deny", `{"StringEquals": {"SUB": "x"}}`) + `]}`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config, err := parse(test.policy)
			if err != nil {
				t.Fatal(err)
			}
			f := fixture{key: key, cluster: cluster, journal: journaltest.New()}
			if f.sts, err = aws.New(config, cluster.Issuer, f.journal.Journal); err != nil {
				t.Fatal(err)
			}
			want := http.StatusForbidden
			if test.want {
				want = http.StatusOK
			}
			if w := f.call(t, form(token, nil)); w.Code != want {
				t.Errorf("got %d %s, want %d", w.Code, w.Body, want)
			}
		})
	}
}

func TestUnsupportedPolicies(t *testing.T) {
	t.Parallel()
	one := func(s string) string { return `{"Version": "2012-10-17", "Statement": [` + s + `]}` }
	tests := map[string]struct {
		policy string
		want   []string
	}{
		"no version":                        {`{"Statement": []}`, []string{`Version ""`}},
		"no statement":                      {`{"Version": "2012-10-17"}`, []string{"no Statement"}},
		"an unknown field of the policy":    {`{"Version": "2012-10-17", "Statements": []}`, []string{`"Statements"`}},
		"an unknown field of the statement": {one(`{"Effect": "Allow", "NotAction": "x"}`), []string{"statement 0", `"NotAction"`}},
		"another principal":                 {one(`{"Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole"}`), []string{"statement 0", `"Service"`}},
		"every principal":                   {one(`{"Effect": "Allow", "Principal": "*", "Action": "sts:AssumeRole"}`), []string{"statement 0", "rincipal"}},
		"an unknown provider": {one(`{"Sid": "Mine", "Effect": "Allow", "Principal": {"Federated": "arn:aws:iam::123456789012:oidc-provider/x"}, "Action": "sts:*"}`),
			[]string{"statement 0", `Sid "Mine"`, "oidc-provider/x"}},
		"another effect":      {one(`{"Effect": "allow", "Principal": {"Federated": "PROVIDER"}, "Action": "sts:*"}`), []string{`Effect "allow"`}},
		"no action":           {one(`{"Effect": "Allow", "Principal": {"Federated": "PROVIDER"}, "Action": []}`), []string{"Action is missing"}},
		"another action":      {one(`{"Effect": "Allow", "Principal": {"Federated": "PROVIDER"}, "Action": "s3:*"}`), []string{`"s3:*"`}},
		"another operator":    {allow(`{"ArnLike": {"SUB": "x"}}`), []string{"statement 0", "ArnLike", providerURL + ":sub", "operator"}},
		"both quantifiers":    {allow(`{"ForAnyValue:ForAllValues:StringLike": {"SUB": "x"}}`), []string{"operator"}},
		"another key":         {allow(`{"StringEquals": {"aws:SourceIp": "x"}}`), []string{"statement 0", "StringEquals", `"aws:SourceIp"`, "key"}},
		"another claim":       {allow(`{"StringEquals": {"kubernetes.default.svc.cluster.local:amr": "x"}}`), []string{":amr", "key"}},
		"the key with https":  {allow(`{"StringEquals": {"https://SUB": "x"}}`), []string{"https://", "key"}},
		"a variable":          {allow(`{"StringLike": {"SUB": "${aws:username}"}}`), []string{"${aws:username}"}},
		"no value":            {allow(`{"StringLike": {"SUB": []}}`), []string{"no value"}},
		"a value of a number": {allow(`{"StringLike": {"SUB": 7}}`), []string{"statement 0", "string"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config, err := parse(test.policy)
			if err == nil {
				_, err = aws.New(config, nil, nil)
			}
			if err == nil {
				t.Fatal("got no error, want one")
			}
			for _, want := range append(test.want, reader) {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("got %q, want it to contain %q", err, want)
				}
			}
		})
	}
}

func TestInvalidProvidersAndRoles(t *testing.T) {
	t.Parallel()
	tests := map[string]func(*trust.AWS){
		"a provider's URL with https":   func(c *trust.AWS) { c.OpenIDConnectProviders[0].URL = "https://" + providerURL },
		"a provider of another service": func(c *trust.AWS) { c.OpenIDConnectProviders[0].ARN = "arn:aws:iam::123456789012:saml-provider/x" },
		"a role that is a user":         func(c *trust.AWS) { c.Roles[0].ARN = "arn:aws:iam::123456789012:user/x" },
		"a duplicate role":              func(c *trust.AWS) { c.Roles[1].ARN = c.Roles[0].ARN },
	}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := config()
			change(&c)
			if _, err := aws.New(c, nil, nil); err == nil {
				t.Error("got no error, want one")
			}
		})
	}
}
