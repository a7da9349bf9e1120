// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"fmt"
	"strings"
)

// awsTag is the pattern of the tags of IAM
// (https://docs.aws.amazon.com/IAM/latest/UserGuide/id_tags.html#id_tags_rules), except for those
// that the shorthand of the AWS CLI cannot express.
const awsTag = `^[\pL\pN_.:/+@-][\pL\pN _.:/+@-]{0,127}=([\pL\pN_.:/+@-][\pL\pN _.:/=+@-]{0,255})?$`

// otherStatements is a query of the AWS CLI (JMESPath) that returns a trust policy without the
// statement about a condition and the subjects, which are JSON. A policy may contain a single
// statement instead of a list.
const otherStatements = "{Version: Role.AssumeRolePolicyDocument.Version, " +
	"Statement: [Role.AssumeRolePolicyDocument.Statement][] | [?Condition.StringEquals.%s != `%s`]}"

// trustAWS returns the configuration with which the ServiceAccount can assume the role.
func trustAWS(token *Token) (Trust, error) {
	if strings.Contains(token.Audience, "${") {
		return nil, fmt.Errorf("audience %q has ${, which starts a variable in a trust policy; use another audience", token.Audience)
	}
	if err := token.checkTags(awsTag); err != nil {
		return nil, err
	}
	// arn:PARTITION:iam::ACCOUNT:role/PATH/NAME
	roleARN := token.Values["role-arn"]
	parts := strings.SplitN(roleARN, ":", 6)
	if len(parts) != 6 || parts[2] != "iam" || !strings.HasPrefix(parts[5], "role/") {
		return nil, fmt.Errorf("role ARN %q is not of the form arn:PARTITION:iam::ACCOUNT:role/NAME", roleARN)
	}
	full := strings.TrimPrefix(parts[5], "role")
	cut := strings.LastIndexByte(full, '/') + 1
	path := full[:cut]
	if path == "/" {
		path = "" // the default
	}
	host := strings.TrimPrefix(token.Issuer, "https://")
	sub := compact(token.Subjects())
	if !token.Several() {
		sub = compact(token.First().Subject())
	}
	return fill("aws", token, struct {
		*Token
		Provider, Host, Partition, Account, RoleARN, Path, Role, Sub, OtherStatements string
	}{
		token, fmt.Sprintf("arn:%s:iam::%s:oidc-provider/%s", parts[1], parts[4], host), host, parts[1], parts[4], roleARN, path, full[cut:], sub,
		fmt.Sprintf(otherStatements, compact(host+":sub"), sub),
	})
}
