// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"slices"
	"strings"

	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

// aws is IAM's AssumeRoleWithWebIdentity.
func aws() *annotations.Provider {
	return &annotations.Provider{
		Name: "aws",
		Parameters: []annotations.Parameter{
			awsRole(),
			{
				Name: "role-arn-prefix", ClusterOnly: true, MaxBytes: 1024,
				Grammar: annotations.Matching(awsRolePrefix, "must be the start of the ARN of an IAM role, up to a slash, such as arn:aws:iam::111122223333:role/"),
				Flag:    "aws-role-arn-prefix", Usage: "ARN prefix for role names, such as arn:aws:iam::111122223333:role/. If empty, annotations must contain whole ARNs.",
			},
			{
				Name: "region", MaxBytes: 64, Grammar: annotations.Matching(awsRegion, "must be an AWS region, such as eu-central-1"),
				Flag: "aws-default-region", Usage: "AWS region of ServiceAccounts without the annotation aws-region.",
			},
			{
				Name: "session-name", MaxBytes: 64,
				Grammar: annotations.Matching(awsSessionName, `must be "pod", for the name of the pod; without the annotation, the session name is SERVICEACCOUNT@NAMESPACE`),
			},
			annotations.TokenPath(),
		},
		PrincipalParameters: []string{"role-arn"},
		DefaultAudience:     "sts.amazonaws.com",
		MaxAudienceBytes:    255, // of an IAM OpenID Connect provider's client ID
		TokenPath:           "aws/token",
		CopyVolume:          "aws-iam-token", // of amazon-eks-pod-identity-webhook
		TokenAlone:          true,
		// "role ARN is not set" (aws-sdk-go-v2/config/resolve_credentials.go), InvalidConfigError
		// (botocore/credentials.py).
		TokenAloneNeeds: "AWS_ROLE_ARN",
		CredentialFile:  &annotations.CredentialFile{Annotation: "aws-config", Path: "aws/config", Content: awsConfig},
		Profiles:        &annotations.Profiles{Parameter: "role-arn", Source: "source-profile", Selectors: []string{"AWS_PROFILE", "AWS_DEFAULT_PROFILE"}},
		Variables: []annotations.Variable{
			// Go, Java and Python prefer these to the profile of AWS_PROFILE.
			{Name: "AWS_ROLE_ARN", Value: "{role-arn}", Needed: true, Direct: true},
			{Name: "AWS_WEB_IDENTITY_TOKEN_FILE", Value: "{token-file}", Credential: true, Direct: true},
			{Name: "AWS_ROLE_SESSION_NAME", Value: "{default-session-name}", PodName: "session-name", Direct: true},
			// Without it, botocore before mid-2025, the Go SDK v1, Java v1 and others
			// of that age call the global endpoint in us-east-1.
			{Name: "AWS_STS_REGIONAL_ENDPOINTS", Value: "regional"},
			// boto3 reads AWS_DEFAULT_REGION, JavaScript and Java read AWS_REGION.
			{Name: "AWS_REGION", Value: "{region}", Group: "region"},
			{Name: "AWS_DEFAULT_REGION", Value: "{region}", Group: "region"},
			{Name: "AWS_CONFIG_FILE", Value: "{credential-file}", Profiles: true},
		},
		// Static keys come first in every SDK's chain, and an empty key counts as none.
		// JavaScript prefers a profile and its files, and boto3 a profile, even an empty one.
		// Container credentials come after the token in every chain, so they shadow nothing.
		// Sources: aws-sdk-go-v2, config/env_config.go; botocore, configprovider.py and
		// credentials.py;
		// @aws-sdk/credential-provider-node, defaultProvider.ts; aws-sdk-ruby,
		// credential_provider_chain.rb.
		Shadows: slices.Concat(
			unlessEmpty("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY", "AWS_SECRET_KEY", "AMAZON_ACCESS_KEY_ID", "AMAZON_SECRET_ACCESS_KEY"),
			[]annotations.Shadow{{Name: "AWS_PROFILE"}, {Name: "AWS_DEFAULT_PROFILE"}, {Name: "AWS_SHARED_CREDENTIALS_FILE"}, {Name: "AWS_CONFIG_FILE"}},
		),
		// Ruby reads AWS_REGION first. Source: aws-sdk-ruby, regional_endpoint.rb.
		Synonyms: map[string][]string{"region": {"AMAZON_REGION"}},
		Doubt:    awsDoubt,
		Derive: func(v annotations.Values) {
			v["default-session-name"] = sessionName(v["namespace"], v["serviceaccount"])
		},
	}
}

// awsRole returns the parameter for the role.
func awsRole() annotations.Parameter {
	return annotations.Parameter{
		Name: "role-arn", Identity: true, Required: true, MaxBytes: 613, Expand: expandAWSRole, Template: true,
		Grammar: annotations.Matching(awsRoleARN, "must be the ARN of an IAM role, such as arn:aws:iam::111122223333:role/name"),
		Flag:    "aws-default-role-arn", Usage: "ARN that the value \"default\" stands for. {namespace} and {serviceaccount} are replaced with the names of the ServiceAccount.",
	}
}

// awsConfig returns a shared config file with the profiles, or "" without profiles.
// The AWS SDKs' reference guide defines its format: a role is assumed either with a
// token or with the credentials of another profile, never both. No value has a space or
// a line break.
func awsConfig(v annotations.Values, profiles []annotations.Profile) string {
	if len(profiles) == 0 {
		return ""
	}
	var text strings.Builder
	section := func(name, role, source string) {
		text.WriteString("[" + name + "]\nrole_arn = " + role + "\n")
		if source == "" {
			text.WriteString("web_identity_token_file = " + v["token-file"] + "\n")
		} else {
			text.WriteString("source_profile = " + source + "\n")
		}
		// The kubelet does not expand fields of the pod in a file, so the file contains the
		// default.
		text.WriteString("role_session_name = " + v["default-session-name"] + "\n")
		if region := v["region"]; region != "" {
			text.WriteString("region = " + region + "\n")
		}
	}
	section(annotations.DefaultProfile, v["role-arn"], "")
	for _, p := range profiles {
		section("profile "+p.Name, p.Identity, p.Source)
	}
	return text.String()
}

var (
	// The partitions come from the AWS SDKs' endpoint data. The path and the
	// name follow IAM's CreateRole.
	awsRolePath    = `^arn:(aws|aws-cn|aws-us-gov|aws-eusc|aws-iso|aws-iso-[a-z]):iam::[0-9]{12}:role/([\x21-\x7E]{1,510}/)?`
	awsRolePrefix  = regexp.MustCompile(awsRolePath + `$`)
	awsRoleARN     = regexp.MustCompile(awsRolePath + `[\w+=,.@-]{1,64}$`)
	awsSessionName = regexp.MustCompile(`^pod$`)
	// A region may be newer than Lanyard.
	awsRegion = regexp.MustCompile(`^[a-z]{2,4}(-[a-z0-9]+)+-[0-9]+$`)
)

// expandAWSRole returns the ARN of a role, for its name with or without a path.
// Neither begins with "arn:".
func expandAWSRole(value string, cluster func(string) string) string {
	if value == "" || strings.HasPrefix(value, "arn:") {
		return value
	}
	return cluster("role-arn-prefix") + value
}

// The limits of STS for RoleSessionName.
const (
	MinSessionName = 2
	MaxSessionName = 64
)

// PodNameFits reports whether the name of a pod is a valid session name. The API server
// generates names of at most 63 characters, which are valid.
func PodNameFits(name string) bool {
	return name == "" || len(name) >= MinSessionName && len(name) <= MaxSessionName
}

// sessionName returns the name that CloudTrail shows. Names of Kubernetes objects contain
// neither "@" nor "=", so each session name belongs to one ServiceAccount. A longer name is
// truncated and ends with a hash of the whole.
func sessionName(namespace, serviceAccount string) string {
	name := serviceAccount + "@" + namespace
	if len(name) <= MaxSessionName {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	suffix := "=" + hex.EncodeToString(sum[:8])
	return name[:MaxSessionName-len(suffix)] + suffix
}
