// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"context"
	"encoding/xml"
	"fmt"
	"net/url"
	"strings"
	"time"
)

// awsSuffixes are the domains of AWS' partitions, as in the endpoint data of the
// SDKs.
var awsSuffixes = map[string]string{
	"aws": "amazonaws.com", "aws-us-gov": "amazonaws.com", "aws-cn": "amazonaws.com.cn", "aws-eusc": "amazonaws.eu",
	"aws-iso": "c2s.ic.gov", "aws-iso-b": "sc2s.sgov.gov", "aws-iso-e": "cloud.adc-e.uk", "aws-iso-f": "csp.hci.ic.gov",
}

// aws calls AssumeRoleWithWebIdentity.
func (e *exchange) aws(ctx context.Context) (*Answer, error) {
	role := e.variable("AWS_ROLE_ARN")
	target, err := e.awsURL(role)
	if err != nil {
		return nil, err
	}
	answer, body, err := e.post(ctx, AssumeRoleWithWebIdentity, target, url.Values{
		"Action":           {AssumeRoleWithWebIdentity},
		"Version":          {"2011-06-15"},
		"RoleArn":          {role},
		"RoleSessionName":  {e.variable("AWS_ROLE_SESSION_NAME")},
		"WebIdentityToken": {e.Token},
	})
	if err != nil {
		return nil, err
	}
	if !answer.ok() {
		var failure struct {
			XMLName xml.Name `xml:"ErrorResponse"`
			Code    string   `xml:"Error>Code"`
			Message string   `xml:"Error>Message"`
		}
		if xml.Unmarshal(body, &failure) != nil || failure.Code == "" {
			return nil, answer.unexpected()
		}
		return answer.denied(failure.Code, failure.Message, e.Token), nil
	}
	var success struct {
		XMLName    xml.Name  `xml:"AssumeRoleWithWebIdentityResponse"`
		ARN        string    `xml:"AssumeRoleWithWebIdentityResult>AssumedRoleUser>Arn"`
		Expiration time.Time `xml:"AssumeRoleWithWebIdentityResult>Credentials>Expiration"`
	}
	if xml.Unmarshal(body, &success) != nil || success.ARN == "" {
		return nil, answer.unexpected()
	}
	return answer.granted(success.ARN, success.Expiration), nil
}

// awsURL returns the URL of STS in the pod's region, or the global one.
func (e *exchange) awsURL(role string) (string, error) {
	parts := strings.SplitN(role, ":", 3)
	if len(parts) != 3 {
		return "", fmt.Errorf("AWS_ROLE_ARN: got %q, want the ARN of a role", role)
	}
	partition, region := parts[1], e.variable("AWS_REGION")
	switch {
	case e.Endpoint != "":
		return "https://endpoint/", nil // the host is replaced
	case region == "" && partition == "aws":
		return "https://sts.amazonaws.com/", nil
	case region == "" || awsSuffixes[partition] == "":
		return "", fmt.Errorf("partition %q: got region %q and no endpoint; only the partition aws has a global endpoint", partition, region)
	}
	return "https://sts." + region + "." + awsSuffixes[partition] + "/", nil
}
