// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"cmp"
	"context"
	"encoding/xml"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/lanyard-dev/lanyard/internal/provider"
)

// NewAWS returns the configuration with which the ServiceAccount can assume the
// role.
func NewAWS(token Token, roleARN string) (*Trust, error) {
	if err := token.check(); err != nil {
		return nil, err
	}
	if strings.Contains(token.Audience, "${") {
		return nil, fmt.Errorf("audience %q has ${, which starts a variable in a trust policy; use another audience", token.Audience)
	}
	// arn:PARTITION:iam::ACCOUNT:role/PATH/NAME
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
	return newTrust("aws", struct {
		*Token
		Provider, Host, Partition, Account, RoleARN, Path, Role string
	}{&token, fmt.Sprintf("arn:%s:iam::%s:oidc-provider/%s", parts[1], parts[4], host), host, parts[1], parts[4], roleARN, path, full[cut:]})
}

// awsSuffixes are the domains of AWS' partitions, as in the endpoint data of the
// SDKs.
var awsSuffixes = map[string]string{
	"aws": "amazonaws.com", "aws-us-gov": "amazonaws.com", "aws-cn": "amazonaws.com.cn", "aws-eusc": "amazonaws.eu",
	"aws-iso": "c2s.ic.gov", "aws-iso-b": "sc2s.sgov.gov", "aws-iso-e": "cloud.adc-e.uk", "aws-iso-f": "csp.hci.ic.gov",
}

// profiles returns the requests for the profiles in the pod's shared config file.
func profiles(p provider.Provider, text string) []*Request {
	var all []*Request
	for line := range strings.Lines(p.File.Content) {
		line = strings.TrimSpace(line)
		if section, found := strings.CutPrefix(line, "[profile "); found {
			all = append(all, &Request{Provider: p, Token: text, Profile: strings.TrimSuffix(section, "]")})
		}
		if len(all) == 0 {
			continue // the default profile
		}
		last := all[len(all)-1]
		switch name, value, _ := strings.Cut(line, " = "); name {
		case "role_arn":
			last.Provider.Variables = slices.Clone(p.Variables)
			for i := range last.Provider.Variables {
				if v := &last.Provider.Variables[i]; v.Name == "AWS_ROLE_ARN" {
					v.Value = value
				}
			}
		case "source_profile":
			last.Source = value
		}
	}
	return all
}

// aws calls AssumeRoleWithWebIdentity.
func (e *exchange) aws(ctx context.Context) (*Answer, error) {
	role := e.variable("AWS_ROLE_ARN")
	target, err := e.awsURL(role)
	if err != nil {
		return nil, err
	}
	var response struct {
		ARN        string    `xml:"AssumeRoleWithWebIdentityResult>AssumedRoleUser>Arn"`
		Expiration time.Time `xml:"AssumeRoleWithWebIdentityResult>Credentials>Expiration"`
		Code       string    `xml:"Error>Code"`
		Message    string    `xml:"Error>Message"`
	}
	answer, err := e.post(ctx, AssumeRoleWithWebIdentity, target, url.Values{
		"Action":           {AssumeRoleWithWebIdentity},
		"Version":          {"2011-06-15"},
		"RoleArn":          {role},
		"RoleSessionName":  {cmp.Or(e.variable("AWS_ROLE_SESSION_NAME"), "lanyard")}, // a pod's name is not known
		"WebIdentityToken": {e.Token},
	}, func(body []byte) error { return xml.Unmarshal(body, &response) })
	switch {
	case err != nil:
		return nil, err
	case answer.ok() && response.ARN != "":
		return answer.granted(response.ARN, response.Expiration), nil
	}
	return answer.denied(response.Code, response.Message, e.Token)
}

// awsURL returns the URL of STS in the pod's region, or the global one.
func (e *exchange) awsURL(role string) (string, error) {
	parts := strings.SplitN(role, ":", 3)
	if len(parts) != 3 {
		return "", fmt.Errorf("AWS_ROLE_ARN %q is not the ARN of a role", role)
	}
	partition, region := parts[1], e.variable("AWS_REGION")
	switch {
	case e.Endpoint != "":
		return "https://endpoint/", nil // the host is replaced
	case region == "" && partition == "aws":
		return "https://sts.amazonaws.com/", nil
	case region == "" || awsSuffixes[partition] == "":
		return "", fmt.Errorf("partition %q has no global endpoint, and region %q has no known endpoint; set the annotation aws-region", partition, region)
	}
	return "https://sts." + region + "." + awsSuffixes[partition] + "/", nil
}
