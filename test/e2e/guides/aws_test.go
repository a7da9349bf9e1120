// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package guides_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/zclconf/go-cty/cty"

	"github.com/lanyard-dev/lanyard/test/e2e/clouds/aws"
	"github.com/lanyard-dev/lanyard/test/e2e/clouds/issuer/issuertest"
	"github.com/lanyard-dev/lanyard/test/e2e/clouds/journal/journaltest"
	"github.com/lanyard-dev/lanyard/test/e2e/clouds/trust"
)

// account is the AWS account of the page.
const account = "123456789012"

// awsTrust is the configuration that a page creates in AWS.
type awsTrust struct {
	url, clientID    string // of the OIDC provider
	roleName, policy string
	annotations      map[string]string
}

// check compares the page's trust with AWS.
func (a awsTrust) check(t *testing.T, c cluster) {
	t.Helper()
	identity := identityOf(t, a.annotations)
	roleARN, token := identity.Values["role-arn"], c.token(t, identity.Audience)
	granted := func() bool {
		var policy trust.Policy
		if err := json.Unmarshal([]byte(a.policy), &policy); err != nil {
			return false
		}
		name, https := strings.CutPrefix(a.url, "https://")
		sts, err := aws.New(trust.AWS{
			OpenIDConnectProviders: []trust.OpenIDConnectProvider{{
				ARN: "arn:aws:iam::" + account + ":oidc-provider/" + name, URL: name, ClientIDList: []string{a.clientID},
			}},
			Roles: []trust.Role{{ARN: "arn:aws:iam::" + account + ":role/" + a.roleName, AssumeRolePolicyDocument: policy}},
		}, c.Issuer, journaltest.New().Journal)
		return https && err == nil && post(t, sts, "https://sts.eu-central-1.amazonaws.com/", url.Values{
			"Action": {"AssumeRoleWithWebIdentity"}, "Version": {"2011-06-15"},
			"RoleArn": {roleARN}, "RoleSessionName": {"cart@shop"}, "WebIdentityToken": {token},
		}).Code == http.StatusOK
	}
	checkTrust(t, granted,
		value{"trust policy", &a.policy}, value{"URL of the provider", &a.url}, value{"client ID", &a.clientID},
		value{"name of the role", &a.roleName}, value{"role in the annotation", &roleARN})
}

func TestAWSShell(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	r := runPage(t, "clouds/aws.md", c.answers(t, map[string]string{"aws sts get-caller-identity": account}))
	oidc, role := r.one(t, "aws iam create-open-id-connect-provider"), r.one(t, "aws iam create-role")
	checkGuide(t, "clouds/aws.md", r)
	awsTrust{
		url: oidc.flag("url"), clientID: oidc.flag("client-id-list"),
		roleName:    role.flag("role-name"),
		policy:      r.file(t, strings.TrimPrefix(role.flag("assume-role-policy-document"), "file://")),
		annotations: annotated(t, r.one(t, "kubectl annotate")),
	}.check(t, c)
	if got := r.one(t, "aws iam attach-role-policy").flag("role-name"); got != role.flag("role-name") {
		t.Errorf("got a policy for role %q, want %q", got, role.flag("role-name"))
	}
}

func TestAWSTerraform(t *testing.T) {
	t.Parallel()
	page := evaluate(t, "aws", attributes{"issuer": cty.StringVal(issuertest.URL)}, func(kind string, a attributes) {
		switch kind {
		case "aws_iam_openid_connect_provider":
			a["arn"] = cty.StringVal("arn:aws:iam::" + account + ":oidc-provider/" + strings.TrimPrefix(a.text("url"), "https://"))
		case "aws_iam_role":
			a["arn"] = cty.StringVal("arn:aws:iam::" + account + ":role/" + a.text("name"))
		}
	})
	oidc, role := page.resource(t, "aws_iam_openid_connect_provider"), page.resource(t, "aws_iam_role")
	awsTrust{
		url: oidc.text("url"), clientID: oidc["client_id_list"].AsValueSlice()[0].AsString(),
		roleName: role.text("name"), policy: role.text("assume_role_policy"),
		annotations: checkAnnotationsResource(t, page),
	}.check(t, newCluster(t))
	if got := page.resource(t, "aws_iam_role_policy_attachment").text("role"); got != role.text("name") {
		t.Errorf("got a policy for role %q, want %q", got, role.text("name"))
	}
}
