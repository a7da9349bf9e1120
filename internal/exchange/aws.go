// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"cmp"
	"context"
	"encoding/xml"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/lanyard-dev/lanyard/internal/provider"
)

// Identities returns the Request, and a copy for each profile in the shared config file of
// AWS, if any.
func (r *Request) Identities() []*Request {
	all := []*Request{r}
	for _, section := range strings.Split(r.File, "[profile ")[1:] {
		name, text, _ := strings.Cut(section, "]\n")
		profile := *r
		profile.Profile, profile.Variables = name, maps.Clone(r.Variables)
		for line := range strings.Lines(text) {
			switch key, value, _ := strings.Cut(strings.TrimSpace(line), " = "); key {
			case "role_arn":
				profile.Variables["AWS_ROLE_ARN"] = value
			case "source_profile":
				profile.Source = value
			}
		}
		all = append(all, &profile)
	}
	return all
}

// aws calls AssumeRoleWithWebIdentity.
func (r *Request) aws(ctx context.Context, client *http.Client) (*Answer, error) {
	role := r.Variables["AWS_ROLE_ARN"]
	target, err := r.awsURL(role)
	if err != nil {
		return nil, err
	}
	const operation = "AssumeRoleWithWebIdentity"
	return r.send(ctx, client, form(operation, target, url.Values{
		"Action":           {operation},
		"Version":          {"2011-06-15"},
		"RoleArn":          {role},
		"RoleSessionName":  {cmp.Or(r.Variables["AWS_ROLE_SESSION_NAME"], "lanyard")}, // a pod's name is not known
		"WebIdentityToken": {r.Token},
	}), func(body []byte) (reply, error) {
		var response struct {
			ARN        string    `xml:"AssumeRoleWithWebIdentityResult>AssumedRoleUser>Arn"`
			Expiration time.Time `xml:"AssumeRoleWithWebIdentityResult>Credentials>Expiration"`
			Code       string    `xml:"Error>Code"`
			Message    string    `xml:"Error>Message"`
		}
		err := xml.Unmarshal(body, &response)
		return reply{response.ARN != "", response.ARN, response.Expiration, response.Code, response.Message}, err
	})
}

// awsURL returns the URL of STS in the pod's region, or the global one.
func (r *Request) awsURL(role string) (string, error) {
	parts := strings.SplitN(role, ":", 3)
	if len(parts) != 3 {
		return "", fmt.Errorf("AWS_ROLE_ARN %q is not the ARN of a role", role)
	}
	partition, region := parts[1], r.Variables["AWS_REGION"]
	i := slices.IndexFunc(provider.AWSPartitions(), func(p provider.AWSPartition) bool { return p.Name == partition })
	switch {
	case r.Endpoint != "":
		return "https://endpoint/", nil // the host is replaced
	case region == "" && partition == "aws":
		return "https://sts.amazonaws.com/", nil
	case region == "" || i < 0:
		return "", fmt.Errorf("partition %q has no global endpoint, and region %q has no known endpoint; set the annotation aws-region", partition, region)
	}
	return "https://sts." + region + "." + provider.AWSPartitions()[i].Domain + "/", nil
}
