// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package annotations

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Bounds of a token's lifetime in seconds.
const (
	// MinTokenExpirationSeconds is the apiserver's own minimum for a projected
	// token.
	MinTokenExpirationSeconds = 600
	// MinAzureTokenExpirationSeconds: Azure's SDKs keep an assertion in memory
	// for up to ten minutes, and the kubelet renews a token when a fifth of
	// its life is left; a shorter token would be sent after it has expired.
	MinAzureTokenExpirationSeconds = 3600
	// MaxTokenExpirationSeconds: AWS and Google refuse longer-lived ones.
	MaxTokenExpirationSeconds = 86400
	// DefaultTokenExpirationSeconds is the Kubernetes default as well.
	DefaultTokenExpirationSeconds = 3600
)

// Longest values, in bytes. Those of audiences are what the clouds register.
const (
	maxRoleARN     = 2048
	maxRegion      = 64
	maxDomain      = 253
	maxGCPName     = 256 // a provider's resource name, in its longest form
	maxGCPIdentity = 320 // an e-mail, or a project ID

	maxAWSAudience   = 255
	maxAzureAudience = 600
	maxGCPAudience   = 256
	maxAudience      = 1024
)

var (
	// The partitions are those of the AWS SDKs' endpoint data; the path and
	// the name are those of IAM's CreateRole.
	awsRoleARN = regexp.MustCompile(`^arn:(aws|aws-cn|aws-us-gov|aws-eusc|aws-iso|aws-iso-[a-z]):iam::[0-9]{12}:role/([\x21-\x7E]{1,510}/)?[\w+=,.@-]{1,64}$`)
	awsRegion  = regexp.MustCompile(`^[a-z]{2,4}(-[a-z0-9]+)+-[0-9]+$`)

	guid        = regexp.MustCompile(`^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`)
	azureDomain = regexp.MustCompile(`^[0-9A-Za-z]([0-9A-Za-z-]*[0-9A-Za-z])?(\.[0-9A-Za-z]([0-9A-Za-z-]*[0-9A-Za-z])?)+$`)

	gcpProvider = regexp.MustCompile(`^projects/[0-9]{1,20}/locations/global/workloadIdentityPools/([a-z0-9-]{4,32})/providers/([a-z0-9-]{4,32})$`)
	gcpProject  = regexp.MustCompile(`^([a-z0-9-]+(\.[a-z0-9-]+)+:)?[a-z][a-z0-9-]{4,28}[a-z0-9]$`)

	// A user's own account, in a project of an organization's domain or not.
	gcpUserServiceAccount = regexp.MustCompile(`^[a-z][a-z0-9-]{4,28}[a-z0-9]@([a-z][a-z0-9-]{4,28}[a-z0-9])((?:\.[a-z0-9-]+)*)\.iam\.gserviceaccount\.com$`)
	gcpAppEngine          = regexp.MustCompile(`^([a-z][a-z0-9-]{4,28}[a-z0-9])@appspot\.gserviceaccount\.com$`)
	gcpComputeEngine      = regexp.MustCompile(`^[0-9]{1,20}-compute@developer\.gserviceaccount\.com$`)
)

// ParseAWSRoleARN accepts the ARN of an IAM role in any partition.
func ParseAWSRoleARN(value string) (string, error) {
	if len(value) > maxRoleARN || !awsRoleARN.MatchString(value) {
		return "", errors.New("must be the ARN of an IAM role, such as arn:aws:iam::111122223333:role/name")
	}
	return value, nil
}

// ParseAWSRegion accepts the name of a region, known to Lanyard or not.
func ParseAWSRegion(value string) (string, error) {
	if len(value) > maxRegion || !awsRegion.MatchString(value) {
		return "", errors.New("must be an AWS region, such as eu-central-1")
	}
	return value, nil
}

// ParseAzureClientID accepts a GUID and gives it in lower case, so that one
// identity has one spelling.
func ParseAzureClientID(value string) (string, error) {
	if !guid.MatchString(value) {
		return "", errors.New("must be a client ID (GUID), such as 00000000-0000-0000-0000-000000000000")
	}
	return strings.ToLower(value), nil
}

// ParseAzureTenantID accepts a tenant's GUID or one of its domains. The words
// that stand for "any tenant" name none, and no token is issued for them.
func ParseAzureTenantID(value string) (string, error) {
	if guid.MatchString(value) {
		return strings.ToLower(value), nil
	}
	if len(value) > maxDomain || !azureDomain.MatchString(value) {
		return "", errors.New("must be a tenant ID (GUID) or a domain of the tenant such as contoso.onmicrosoft.com; common, organizations, consumers and adfs name no tenant")
	}
	return value, nil
}

// ParseAzureAuthorityHost accepts an https URL and gives it with the closing
// slash that Microsoft's own documents show.
func ParseAzureAuthorityHost(value string) (string, error) {
	u, err := url.Parse(value)
	if err != nil || u.Scheme != "https" || u.Hostname() == "" || u.User != nil ||
		strings.Contains(value, "?") || strings.Contains(value, "#") || strings.ContainsFunc(value, notVisible) {
		return "", errors.New("must be an https URL without user, query and fragment, such as https://login.microsoftonline.com/")
	}
	return strings.TrimRight(value, "/") + "/", nil
}

// ParseGCPWorkloadIdentityProvider accepts the resource name of a workload
// identity pool provider, bare or with the service in front, and gives it bare.
func ParseGCPWorkloadIdentityProvider(value string) (string, error) {
	name := strings.TrimPrefix(strings.TrimPrefix(value, "https:"), "//iam.googleapis.com/")
	if strings.HasPrefix(value, "https:") && !strings.HasPrefix(value, "https://iam.googleapis.com/") {
		name = ""
	}
	match := gcpProvider.FindStringSubmatch(name)
	if match == nil || strings.HasPrefix(match[1], "gcp-") || strings.HasPrefix(match[2], "gcp-") {
		return "", errors.New(`must be projects/NUMBER/locations/global/workloadIdentityPools/POOL/providers/PROVIDER, with or without //iam.googleapis.com/ or https://iam.googleapis.com/ in front; pool and provider have 4 to 32 of a-z, 0-9 and "-" and do not begin with "gcp-"`)
	}
	return name, nil
}

// ParseGCPServiceAccount accepts the e-mail of a Google service account and
// gives with it the id of the project that it belongs to, where the e-mail
// tells it.
func ParseGCPServiceAccount(value string) (email, project string, err error) {
	if match := gcpUserServiceAccount.FindStringSubmatch(value); match != nil && len(value) <= maxGCPIdentity {
		project, domain := match[1], strings.TrimPrefix(match[2], ".")
		if domain != "" {
			// sa@project.example.com.iam... belongs to example.com:project.
			project = domain + ":" + project
		}
		return value, project, nil
	}
	if match := gcpAppEngine.FindStringSubmatch(value); match != nil {
		return value, match[1], nil
	}
	if gcpComputeEngine.MatchString(value) {
		return value, "", nil
	}
	return "", "", errors.New("must be the e-mail of a service account, such as name@project.iam.gserviceaccount.com")
}

// ParseGCPProject accepts a project id, not a number.
func ParseGCPProject(value string) (string, error) {
	if len(value) > maxGCPIdentity || !gcpProject.MatchString(value) {
		return "", errors.New("must be a project ID of 6 to 30 characters, such as my-project-123")
	}
	return value, nil
}

// parseAudience is the grammar of a token's audience: at most limit visible ASCII
// characters, and never one of the apiserver's own. A token for the apiserver
// would let the cloud that receives it act in the cluster as the pod.
func parseAudience(value string, limit int, reserved []string) (string, error) {
	if value == "" || len(value) > limit || strings.ContainsFunc(value, notVisible) {
		return "", fmt.Errorf("must be 1 to %d visible ASCII characters without a space", limit)
	}
	if slices.Contains(reserved, value) {
		return "", errors.New("is an audience of the Kubernetes API server; a token with it would give its receiver access to the cluster")
	}
	return value, nil
}

// ParseAudience accepts an audience for any receiver, except the reserved
// ones: those of the apiserver.
func ParseAudience(value string, reserved []string) (string, error) {
	return parseAudience(value, maxAudience, reserved)
}

func notVisible(r rune) bool { return r <= ' ' || r > '~' }

// ParseTokenExpirationSeconds accepts a whole number of seconds within the
// bounds, written as Kubernetes writes it.
func ParseTokenExpirationSeconds(value string) (int64, error) {
	seconds, err := strconv.ParseInt(value, 10, 64)
	if err != nil || strconv.FormatInt(seconds, 10) != value || ValidateTokenExpirationSeconds(seconds) != nil {
		return 0, errExpiration
	}
	return seconds, nil
}

// ValidateTokenExpirationSeconds holds seconds to the bounds.
func ValidateTokenExpirationSeconds(seconds int64) error {
	if seconds < MinTokenExpirationSeconds || seconds > MaxTokenExpirationSeconds {
		return errExpiration
	}
	return nil
}

var errExpiration = fmt.Errorf("must be a whole number of seconds from %d to %d, and at least %d where Azure takes part",
	MinTokenExpirationSeconds, MaxTokenExpirationSeconds, MinAzureTokenExpirationSeconds)
