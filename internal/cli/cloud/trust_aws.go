// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"fmt"
	"strings"
)

// AWS is the trust configuration of IAM.
type AWS struct {
	// OpenIDConnectProvider knows the cluster.
	OpenIDConnectProvider OpenIDConnectProvider `json:"openIDConnectProvider"`
	// Role trusts the ServiceAccount.
	Role Role `json:"role"`

	token      Token
	path, name string // of the role
}

// OpenIDConnectProvider is an IAM OpenID Connect provider.
type OpenIDConnectProvider struct {
	ARN string `json:"arn"`
	// URL is the issuer without https://, as IAM returns it.
	URL string `json:"url"`
	// ClientIDList has the audiences.
	ClientIDList []string `json:"clientIDList"`
}

// Role is an IAM role.
type Role struct {
	ARN string `json:"arn"`
	// AssumeRolePolicyDocument is the trust policy.
	AssumeRolePolicyDocument Policy `json:"assumeRolePolicyDocument"`
}

// Policy is a trust policy in the language of IAM.
type Policy struct {
	Version   string
	Statement []Statement
}

// Statement is a statement of a Policy.
type Statement struct {
	Effect    string
	Principal Principal
	Action    string
	Condition Condition
}

// Principal is who may assume the role.
type Principal struct {
	// Federated is the ARN of an OpenIDConnectProvider.
	Federated string
}

// Condition limits the tokens.
type Condition struct {
	// StringEquals has the claims by their keys: the URL of the provider, and the
	// claim after a colon.
	StringEquals map[string]string
}

// NewAWS returns the configuration with which the ServiceAccount can assume the
// role.
func NewAWS(token Token, roleARN string) (*AWS, error) {
	if err := token.check(); err != nil {
		return nil, err
	}
	if strings.Contains(token.Audience, "${") {
		return nil, fmt.Errorf("audience: got %q, want one without ${, which starts a variable in a trust policy", token.Audience)
	}
	// arn:PARTITION:iam::ACCOUNT:role/PATH/NAME
	parts := strings.SplitN(roleARN, ":", 6)
	if len(parts) != 6 || parts[2] != "iam" || !strings.HasPrefix(parts[5], "role/") {
		return nil, fmt.Errorf("role ARN: got %q, want arn:PARTITION:iam::ACCOUNT:role/NAME", roleARN)
	}
	full := strings.TrimPrefix(parts[5], "role")
	cut := strings.LastIndexByte(full, '/') + 1
	host := strings.TrimPrefix(token.Issuer, "https://")
	provider := fmt.Sprintf("arn:%s:iam::%s:oidc-provider/%s", parts[1], parts[4], host)
	return &AWS{
		OpenIDConnectProvider: OpenIDConnectProvider{ARN: provider, URL: host, ClientIDList: []string{token.Audience}},
		Role: Role{ARN: roleARN, AssumeRolePolicyDocument: Policy{Version: "2012-10-17", Statement: []Statement{{
			Effect:    "Allow",
			Principal: Principal{Federated: provider},
			Action:    "sts:AssumeRoleWithWebIdentity",
			Condition: Condition{StringEquals: map[string]string{host + ":aud": token.Audience, host + ":sub": token.Subject()}},
		}}}},
		token: token, path: full[:cut], name: full[cut:],
	}, nil
}

// Shell returns the commands of the AWS CLI.
func (a *AWS) Shell() Script {
	account := strings.Split(a.Role.ARN, ":")[4]
	create := "aws iam create-role --role-name " + Quote(a.name)
	if a.path != "/" {
		create += " --path " + Quote(a.path)
	}
	return Script{
		Cluster: fmt.Sprintf("# Once per cluster, in the AWS account %s:\naws iam create-open-id-connect-provider --url %s --client-id-list %s\n",
			account, Quote(a.token.Issuer), Quote(a.token.Audience)),
		ServiceAccount: fmt.Sprintf("# Once per ServiceAccount, in the AWS account %s:\n", account) +
			File("trust.json", indented(a.Role.AssumeRolePolicyDocument)) +
			create + " --assume-role-policy-document file://trust.json\n" +
			"# If the role exists already:\n" +
			"# aws iam update-assume-role-policy --role-name " + Quote(a.name) + " --policy-document file://trust.json\n",
	}
}

// Terraform returns the resources of the provider hashicorp/aws.
func (a *AWS) Terraform() Script {
	path := ""
	if a.path != "/" {
		path = "\n  path = " + literal(a.path)
	}
	return Script{
		Cluster: fmt.Sprintf(`# Once per cluster:
resource "aws_iam_openid_connect_provider" "cluster" {
  url            = %s
  client_id_list = [%s]
}
`, literal(a.token.Issuer), literal(a.token.Audience)),
		ServiceAccount: fmt.Sprintf(`# Once per ServiceAccount:
resource "aws_iam_role" %q {
  name = %s%s
  assume_role_policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Effect    = "Allow"
      Principal = { Federated = aws_iam_openid_connect_provider.cluster.arn }
      Action    = "sts:AssumeRoleWithWebIdentity"
      Condition = {
        StringEquals = {
          %s = %s
          %s = %s
        }
      }
    }]
  })
}
`, a.token.label(), literal(a.name), path,
			literal(a.OpenIDConnectProvider.URL+":aud"), literal(a.token.Audience),
			literal(a.OpenIDConnectProvider.URL+":sub"), literal(a.token.Subject())),
	}
}
