// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package annotations_test

import (
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

const (
	roleARN  = "arn:aws:iam::111122223333:role/logs"
	clientID = "01234567-89ab-cdef-0123-456789abcdef"
	tenantID = "fedcba98-7654-3210-fedc-ba9876543210"
	email    = "reader@my-project.iam.gserviceaccount.com"

	// wantLifetime is what is said of every lifetime out of its bounds.
	wantLifetime = "must be a whole number of seconds from 600 to 86400, and at least 3600 where Azure takes part"
)

// messages gives the errors as a person reads them.
func messages(errs field.ErrorList) []string {
	var messages []string
	for _, err := range errs {
		messages = append(messages, err.Error())
	}
	return messages
}

// prefixed puts the prefix before short keys.
func prefixed(short map[string]string) map[string]string {
	full := map[string]string{}
	for key, value := range short {
		full["lanyard.dev/"+key] = value
	}
	return full
}

// clusterDefaults are those of a cluster that makes every setting.
func clusterDefaults() *annotations.Defaults {
	return &annotations.Defaults{
		TokenExpirationSeconds:      3600,
		AWSRegion:                   "eu-west-1",
		AzureTenantID:               "contoso.onmicrosoft.com",
		GCPWorkloadIdentityProvider: providerName,
		AWSAudience:                 "aws.cluster",
		AzureAudience:               "azure.cluster",
		GCPAudience:                 "gcp.cluster",
		ReservedAudiences:           []string{"https://kubernetes.default.svc"},
	}
}

func TestParseServiceAccountGivesTheIdentity(t *testing.T) {
	t.Parallel()
	bare := &annotations.Defaults{TokenExpirationSeconds: 3600}
	tests := map[string]struct {
		annotations map[string]string // without the prefix
		defaults    *annotations.Defaults
		want        *annotations.Identity
	}{
		"no annotations, no identity": {defaults: clusterDefaults()},
		"a role alone gets no region and AWS's audience": {
			annotations: map[string]string{"aws-role-arn": roleARN},
			defaults:    bare,
			want:        &annotations.Identity{AWS: &annotations.AWS{RoleARN: roleARN, Audience: "sts.amazonaws.com"}},
		},
		"a role takes the cluster's region and audience": {
			annotations: map[string]string{"aws-role-arn": roleARN},
			defaults:    clusterDefaults(),
			want:        &annotations.Identity{AWS: &annotations.AWS{RoleARN: roleARN, Region: "eu-west-1", Audience: "aws.cluster"}},
		},
		"an account's region and audience are over the cluster's": {
			annotations: map[string]string{"aws-role-arn": roleARN, "aws-region": "us-gov-west-1", "aws-audience": "mine"},
			defaults:    clusterDefaults(),
			want:        &annotations.Identity{AWS: &annotations.AWS{RoleARN: roleARN, Region: "us-gov-west-1", Audience: "mine"}},
		},
		"a client with its tenant gets Azure's audience": {
			annotations: map[string]string{"azure-client-id": strings.ToUpper(clientID), "azure-tenant-id": strings.ToUpper(tenantID)},
			defaults:    bare,
			want:        &annotations.Identity{Azure: &annotations.Azure{ClientID: clientID, TenantID: tenantID, Audience: "api://AzureADTokenExchange"}},
		},
		"a client takes the cluster's tenant and audience": {
			annotations: map[string]string{"azure-client-id": clientID},
			defaults:    clusterDefaults(),
			want:        &annotations.Identity{Azure: &annotations.Azure{ClientID: clientID, TenantID: "contoso.onmicrosoft.com", Audience: "azure.cluster"}},
		},
		"an account's tenant and audience are over the cluster's": {
			annotations: map[string]string{"azure-client-id": clientID, "azure-tenant-id": tenantID, "azure-audience": "mine"},
			defaults:    clusterDefaults(),
			want:        &annotations.Identity{Azure: &annotations.Azure{ClientID: clientID, TenantID: tenantID, Audience: "mine"}},
		},
		"a provider alone is direct federation with its own name as the audience": {
			annotations: map[string]string{"gcp-workload-identity-provider": "//iam.googleapis.com/" + providerName},
			defaults:    bare,
			want: &annotations.Identity{GCP: &annotations.GCP{
				WorkloadIdentityProvider: providerName, Audience: "https://iam.googleapis.com/" + providerName,
			}},
		},
		"the word default stands for the cluster's provider": {
			annotations: map[string]string{"gcp-workload-identity-provider": "default"},
			defaults:    clusterDefaults(),
			want:        &annotations.Identity{GCP: &annotations.GCP{WorkloadIdentityProvider: providerName, Audience: "gcp.cluster"}},
		},
		"a service account alone takes the cluster's provider, and tells its project": {
			annotations: map[string]string{"gcp-service-account": email},
			defaults:    clusterDefaults(),
			want: &annotations.Identity{GCP: &annotations.GCP{
				WorkloadIdentityProvider: providerName, ServiceAccount: email, Project: "my-project", Audience: "gcp.cluster",
			}},
		},
		"an account's provider, project and audience are over all else": {
			annotations: map[string]string{
				"gcp-workload-identity-provider": "projects/1/locations/global/workloadIdentityPools/pool/providers/k8s1",
				"gcp-service-account":            email, "gcp-project": "other-project", "gcp-audience": "mine",
			},
			defaults: clusterDefaults(),
			want: &annotations.Identity{GCP: &annotations.GCP{
				WorkloadIdentityProvider: "projects/1/locations/global/workloadIdentityPools/pool/providers/k8s1",
				ServiceAccount:           email, Project: "other-project", Audience: "mine",
			}},
		},
		"direct federation with a project": {
			annotations: map[string]string{"gcp-workload-identity-provider": "default", "gcp-project": "example.com:my-project"},
			defaults:    clusterDefaults(),
			want: &annotations.Identity{GCP: &annotations.GCP{
				WorkloadIdentityProvider: providerName, Project: "example.com:my-project", Audience: "gcp.cluster",
			}},
		},
		"an audience on its own is a plain token": {
			annotations: map[string]string{"audience": "openshift"},
			defaults:    clusterDefaults(),
			want:        &annotations.Identity{Plain: &annotations.Plain{Audience: "openshift"}},
		},
		"an audience beside providers is that of all their tokens, and no plain one": {
			annotations: map[string]string{
				"aws-role-arn": roleARN, "azure-client-id": clientID, "gcp-workload-identity-provider": "default", "audience": "openshift",
			},
			defaults: clusterDefaults(),
			want: &annotations.Identity{
				AWS:   &annotations.AWS{RoleARN: roleARN, Region: "eu-west-1", Audience: "openshift"},
				Azure: &annotations.Azure{ClientID: clientID, TenantID: "contoso.onmicrosoft.com", Audience: "openshift"},
				GCP:   &annotations.GCP{WorkloadIdentityProvider: providerName, Audience: "openshift"},
			},
		},
		"one provider's audience is over the account's": {
			annotations: map[string]string{
				"aws-role-arn": roleARN, "azure-client-id": clientID, "gcp-workload-identity-provider": "default",
				"audience": "openshift", "azure-audience": "mine",
			},
			defaults: clusterDefaults(),
			want: &annotations.Identity{
				AWS:   &annotations.AWS{RoleARN: roleARN, Region: "eu-west-1", Audience: "openshift"},
				Azure: &annotations.Azure{ClientID: clientID, TenantID: "contoso.onmicrosoft.com", Audience: "mine"},
				GCP:   &annotations.GCP{WorkloadIdentityProvider: providerName, Audience: "openshift"},
			},
		},
		"three clouds at once": {
			annotations: map[string]string{
				"aws-role-arn": roleARN, "azure-client-id": clientID, "azure-tenant-id": tenantID,
				"gcp-workload-identity-provider": providerName, "token-expiration-seconds": "3600",
			},
			defaults: bare,
			want: &annotations.Identity{
				AWS:                    &annotations.AWS{RoleARN: roleARN, Audience: "sts.amazonaws.com"},
				Azure:                  &annotations.Azure{ClientID: clientID, TenantID: tenantID, Audience: "api://AzureADTokenExchange"},
				GCP:                    &annotations.GCP{WorkloadIdentityProvider: providerName, Audience: "https://iam.googleapis.com/" + providerName},
				TokenExpirationSeconds: 3600,
			},
		},
		"the shortest lifetime without Azure": {
			annotations: map[string]string{"aws-role-arn": roleARN, "token-expiration-seconds": "600"},
			defaults:    bare,
			want: &annotations.Identity{
				AWS: &annotations.AWS{RoleARN: roleARN, Audience: "sts.amazonaws.com"}, TokenExpirationSeconds: 600,
			},
		},
		"the longest lifetime with Azure": {
			annotations: map[string]string{"azure-client-id": clientID, "azure-tenant-id": tenantID, "token-expiration-seconds": "86400"},
			defaults:    bare,
			want: &annotations.Identity{
				Azure:                  &annotations.Azure{ClientID: clientID, TenantID: tenantID, Audience: "api://AzureADTokenExchange"},
				TokenExpirationSeconds: 86400,
			},
		},
		"the longest audience that AWS registers": {
			annotations: map[string]string{"aws-role-arn": roleARN, "aws-audience": strings.Repeat("a", 255)},
			defaults:    bare,
			want:        &annotations.Identity{AWS: &annotations.AWS{RoleARN: roleARN, Audience: strings.Repeat("a", 255)}},
		},
		"the longest audience that Azure registers": {
			annotations: map[string]string{"azure-client-id": clientID, "azure-tenant-id": tenantID, "azure-audience": strings.Repeat("a", 600)},
			defaults:    bare,
			want:        &annotations.Identity{Azure: &annotations.Azure{ClientID: clientID, TenantID: tenantID, Audience: strings.Repeat("a", 600)}},
		},
		"the longest audience that Google registers": {
			annotations: map[string]string{"gcp-workload-identity-provider": providerName, "gcp-audience": strings.Repeat("a", 256)},
			defaults:    bare,
			want:        &annotations.Identity{GCP: &annotations.GCP{WorkloadIdentityProvider: providerName, Audience: strings.Repeat("a", 256)}},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			given := prefixed(tt.annotations)
			given["example.com/aws-role-arn"] = "not Lanyard's"
			before := maps.Clone(given)
			identity, errs := annotations.ParseServiceAccount(newKeys(t), given, tt.defaults)
			if len(errs) > 0 {
				t.Fatalf("got %v, want no error", errs.ToAggregate())
			}
			if diff := cmp.Diff(tt.want, identity); diff != "" {
				t.Errorf("identity (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(before, given); diff != "" {
				t.Errorf("the annotations were changed (-before +after):\n%s", diff)
			}
		})
	}
}

func TestParseServiceAccountRefuses(t *testing.T) {
	t.Parallel()
	const known = " and is no annotation of a service account; known are " +
		"lanyard.dev/aws-role-arn, lanyard.dev/aws-region, lanyard.dev/aws-audience, " +
		"lanyard.dev/azure-client-id, lanyard.dev/azure-tenant-id, lanyard.dev/azure-audience, " +
		"lanyard.dev/gcp-workload-identity-provider, lanyard.dev/gcp-service-account, lanyard.dev/gcp-project, lanyard.dev/gcp-audience, " +
		"lanyard.dev/audience, lanyard.dev/token-expiration-seconds"
	const reserved = "is an audience of the Kubernetes API server; a token with it would give its receiver access to the cluster"
	bare := &annotations.Defaults{TokenExpirationSeconds: 3600}
	tests := map[string]struct {
		annotations map[string]string // without the prefix
		defaults    *annotations.Defaults
		want        []string
	}{
		"an empty role": {
			annotations: map[string]string{"aws-role-arn": ""},
			want:        []string{`metadata.annotations[lanyard.dev/aws-role-arn]: Invalid value: "": must be the ARN of an IAM role, such as arn:aws:iam::111122223333:role/name`},
		},
		"a malformed region": {
			annotations: map[string]string{"aws-role-arn": roleARN, "aws-region": "EU"},
			want:        []string{`metadata.annotations[lanyard.dev/aws-region]: Invalid value: "EU": must be an AWS region, such as eu-central-1`},
		},
		"an empty region, even where the cluster has one": {
			annotations: map[string]string{"aws-role-arn": roleARN, "aws-region": ""},
			defaults:    clusterDefaults(),
			want:        []string{`metadata.annotations[lanyard.dev/aws-region]: Invalid value: "": must be an AWS region, such as eu-central-1`},
		},
		"a region without a role": {
			annotations: map[string]string{"aws-region": "eu-west-1"},
			want:        []string{`metadata.annotations[lanyard.dev/aws-region]: Forbidden: has value "eu-west-1" but no effect without lanyard.dev/aws-role-arn`},
		},
		"an AWS audience without a role, beside another provider": {
			annotations: map[string]string{"azure-client-id": clientID, "aws-audience": "x"},
			defaults:    clusterDefaults(),
			want:        []string{`metadata.annotations[lanyard.dev/aws-audience]: Forbidden: has value "x" but no effect without lanyard.dev/aws-role-arn`},
		},
		"a malformed client": {
			annotations: map[string]string{"azure-client-id": "my-app", "azure-tenant-id": tenantID},
			want:        []string{`metadata.annotations[lanyard.dev/azure-client-id]: Invalid value: "my-app": must be a client ID (GUID), such as 00000000-0000-0000-0000-000000000000`},
		},
		"a tenant that stands for any": {
			annotations: map[string]string{"azure-client-id": clientID, "azure-tenant-id": "common"},
			defaults:    clusterDefaults(),
			want:        []string{`metadata.annotations[lanyard.dev/azure-tenant-id]: Invalid value: "common": must be a tenant ID (GUID) or a domain of the tenant such as contoso.onmicrosoft.com; common, organizations, consumers and adfs name no tenant`},
		},
		"a client without any tenant": {
			annotations: map[string]string{"azure-client-id": clientID},
			want:        []string{`metadata.annotations[lanyard.dev/azure-tenant-id]: Required value: lanyard.dev/azure-client-id is set, and the cluster has no --azure-default-tenant-id`},
		},
		"a tenant and an audience without a client": {
			annotations: map[string]string{"azure-tenant-id": tenantID, "azure-audience": "x"},
			want: []string{
				`metadata.annotations[lanyard.dev/azure-tenant-id]: Forbidden: has value "` + tenantID + `" but no effect without lanyard.dev/azure-client-id`,
				`metadata.annotations[lanyard.dev/azure-audience]: Forbidden: has value "x" but no effect without lanyard.dev/azure-client-id`,
			},
		},
		"a malformed provider": {
			annotations: map[string]string{"gcp-workload-identity-provider": "my-pool"},
			want:        []string{`metadata.annotations[lanyard.dev/gcp-workload-identity-provider]: Invalid value: "my-pool": must be projects/NUMBER/locations/global/workloadIdentityPools/POOL/providers/PROVIDER, with or without //iam.googleapis.com/ or https://iam.googleapis.com/ in front; pool and provider have 4 to 32 of a-z, 0-9 and "-" and do not begin with "gcp-"`},
		},
		"the cluster's provider where there is none": {
			annotations: map[string]string{"gcp-workload-identity-provider": "default"},
			want:        []string{`metadata.annotations[lanyard.dev/gcp-workload-identity-provider]: Required value: the cluster has no --gcp-default-workload-identity-provider`},
		},
		"a Google service account where there is no provider": {
			annotations: map[string]string{"gcp-service-account": email},
			want:        []string{`metadata.annotations[lanyard.dev/gcp-workload-identity-provider]: Required value: the cluster has no --gcp-default-workload-identity-provider`},
		},
		"a malformed Google service account": {
			annotations: map[string]string{"gcp-service-account": "someone@example.com"},
			defaults:    clusterDefaults(),
			want:        []string{`metadata.annotations[lanyard.dev/gcp-service-account]: Invalid value: "someone@example.com": must be the e-mail of a service account, such as name@project.iam.gserviceaccount.com`},
		},
		"an empty Google service account does not mean direct federation": {
			annotations: map[string]string{"gcp-workload-identity-provider": "default", "gcp-service-account": ""},
			defaults:    clusterDefaults(),
			want:        []string{`metadata.annotations[lanyard.dev/gcp-service-account]: Invalid value: "": must be the e-mail of a service account, such as name@project.iam.gserviceaccount.com`},
		},
		"a project's number": {
			annotations: map[string]string{"gcp-workload-identity-provider": "default", "gcp-project": "123456789012"},
			defaults:    clusterDefaults(),
			want:        []string{`metadata.annotations[lanyard.dev/gcp-project]: Invalid value: "123456789012": must be a project ID of 6 to 30 characters, such as my-project-123`},
		},
		"a project and an audience without a provider, even where the cluster has one": {
			annotations: map[string]string{"gcp-project": "my-project", "gcp-audience": "x"},
			defaults:    clusterDefaults(),
			want: []string{
				`metadata.annotations[lanyard.dev/gcp-project]: Forbidden: has value "my-project" but no effect without lanyard.dev/gcp-workload-identity-provider`,
				`metadata.annotations[lanyard.dev/gcp-audience]: Forbidden: has value "x" but no effect without lanyard.dev/gcp-workload-identity-provider`,
			},
		},
		"an empty audience, which would be the apiserver's": {
			annotations: map[string]string{"audience": ""},
			want:        []string{`metadata.annotations[lanyard.dev/audience]: Invalid value: "": must be 1 to 1024 visible ASCII characters without a space`},
		},
		"an empty audience beside a provider is told once": {
			annotations: map[string]string{"aws-role-arn": roleARN, "azure-client-id": clientID, "audience": ""},
			defaults:    clusterDefaults(),
			want:        []string{`metadata.annotations[lanyard.dev/audience]: Invalid value: "": must be 1 to 255 visible ASCII characters without a space`},
		},
		"an audience that no provider uses is held to its grammar as well": {
			annotations: map[string]string{"aws-role-arn": roleARN, "aws-audience": "mine", "audience": "a b"},
			defaults:    clusterDefaults(),
			want:        []string{`metadata.annotations[lanyard.dev/audience]: Invalid value: "a b": must be 1 to 1024 visible ASCII characters without a space`},
		},
		"the apiserver's audience for a plain token": {
			annotations: map[string]string{"audience": "https://kubernetes.default.svc"},
			defaults:    clusterDefaults(),
			want:        []string{`metadata.annotations[lanyard.dev/audience]: Invalid value: "https://kubernetes.default.svc": ` + reserved},
		},
		"the apiserver's audience for each provider": {
			annotations: map[string]string{
				"aws-role-arn": roleARN, "aws-audience": "https://kubernetes.default.svc",
				"azure-client-id": clientID, "azure-audience": "https://kubernetes.default.svc",
				"gcp-workload-identity-provider": "default", "gcp-audience": "https://kubernetes.default.svc",
			},
			defaults: clusterDefaults(),
			want: []string{
				`metadata.annotations[lanyard.dev/aws-audience]: Invalid value: "https://kubernetes.default.svc": ` + reserved,
				`metadata.annotations[lanyard.dev/azure-audience]: Invalid value: "https://kubernetes.default.svc": ` + reserved,
				`metadata.annotations[lanyard.dev/gcp-audience]: Invalid value: "https://kubernetes.default.svc": ` + reserved,
			},
		},
		"an audience longer than AWS registers": {
			annotations: map[string]string{"aws-role-arn": roleARN, "aws-audience": strings.Repeat("a", 256)},
			want:        []string{`metadata.annotations[lanyard.dev/aws-audience]: Invalid value: "` + strings.Repeat("a", 256) + `": must be 1 to 255 visible ASCII characters without a space`},
		},
		"an audience longer than Azure registers": {
			annotations: map[string]string{"azure-client-id": clientID, "azure-audience": strings.Repeat("a", 601)},
			defaults:    clusterDefaults(),
			want:        []string{`metadata.annotations[lanyard.dev/azure-audience]: Invalid value: "` + strings.Repeat("a", 601) + `": must be 1 to 600 visible ASCII characters without a space`},
		},
		"an audience longer than Google registers": {
			annotations: map[string]string{"gcp-workload-identity-provider": providerName, "gcp-audience": strings.Repeat("a", 257)},
			want:        []string{`metadata.annotations[lanyard.dev/gcp-audience]: Invalid value: "` + strings.Repeat("a", 257) + `": must be 1 to 256 visible ASCII characters without a space`},
		},
		"a common audience longer than one of its clouds registers": {
			annotations: map[string]string{"azure-client-id": clientID, "gcp-workload-identity-provider": "default", "audience": strings.Repeat("a", 300)},
			defaults:    clusterDefaults(),
			want:        []string{`metadata.annotations[lanyard.dev/audience]: Invalid value: "` + strings.Repeat("a", 300) + `": must be 1 to 256 visible ASCII characters without a space`},
		},
		"a lifetime that is none": {
			annotations: map[string]string{"aws-role-arn": roleARN, "token-expiration-seconds": "1h"},
			want:        []string{`metadata.annotations[lanyard.dev/token-expiration-seconds]: Invalid value: "1h": ` + wantLifetime},
		},
		"a lifetime that is too short for Azure by a second": {
			annotations: map[string]string{"aws-role-arn": roleARN, "azure-client-id": clientID, "token-expiration-seconds": "3599"},
			defaults:    clusterDefaults(),
			want:        []string{`metadata.annotations[lanyard.dev/token-expiration-seconds]: Invalid value: "3599": ` + wantLifetime},
		},
		"a lifetime of nothing": {
			annotations: map[string]string{"token-expiration-seconds": "3600"},
			want:        []string{`metadata.annotations[lanyard.dev/token-expiration-seconds]: Forbidden: has value "3600" but no effect without an identity`},
		},
		"a slip of the pen": {
			annotations: map[string]string{"aws-role": roleARN},
			want:        []string{`metadata.annotations[lanyard.dev/aws-role]: Forbidden: has value "` + roleARN + `"` + known},
		},
		"a slip of the pen beside a good identity": {
			annotations: map[string]string{"aws-role-arn": roleARN, "aws-default-region": "eu-west-1"},
			want:        []string{`metadata.annotations[lanyard.dev/aws-default-region]: Forbidden: has value "eu-west-1"` + known},
		},
		"what belongs on a pod": {
			annotations: map[string]string{"aws-role-arn": roleARN, "inject": "false"},
			want:        []string{`metadata.annotations[lanyard.dev/inject]: Forbidden: has value "false"` + known},
		},
		"the identity label as an annotation": {
			annotations: map[string]string{"identity": "enabled"},
			want:        []string{`metadata.annotations[lanyard.dev/identity]: Forbidden: has value "enabled"` + known},
		},
		"a key with capital letters": {
			annotations: map[string]string{"AWS-Role-ARN": roleARN},
			want:        []string{`metadata.annotations[lanyard.dev/AWS-Role-ARN]: Forbidden: has value "` + roleARN + `"` + known},
		},
		"everything at once, in one order": {
			annotations: map[string]string{
				"b": "2", "a": "1", "aws-role-arn": "x", "aws-region": "x", "azure-client-id": "x",
				"gcp-service-account": "x", "gcp-project": "x", "audience": "\n", "token-expiration-seconds": "x",
			},
			want: []string{
				`metadata.annotations[lanyard.dev/a]: Forbidden: has value "1"` + known,
				`metadata.annotations[lanyard.dev/b]: Forbidden: has value "2" and is no annotation of a service account`,
				`metadata.annotations[lanyard.dev/aws-role-arn]: Invalid value: "x": must be the ARN of an IAM role, such as arn:aws:iam::111122223333:role/name`,
				`metadata.annotations[lanyard.dev/aws-region]: Invalid value: "x": must be an AWS region, such as eu-central-1`,
				`metadata.annotations[lanyard.dev/audience]: Invalid value: "\n": must be 1 to 255 visible ASCII characters without a space`,
				`metadata.annotations[lanyard.dev/azure-client-id]: Invalid value: "x": must be a client ID (GUID), such as 00000000-0000-0000-0000-000000000000`,
				`metadata.annotations[lanyard.dev/azure-tenant-id]: Required value: lanyard.dev/azure-client-id is set, and the cluster has no --azure-default-tenant-id`,
				`metadata.annotations[lanyard.dev/gcp-workload-identity-provider]: Required value: the cluster has no --gcp-default-workload-identity-provider`,
				`metadata.annotations[lanyard.dev/gcp-service-account]: Invalid value: "x": must be the e-mail of a service account, such as name@project.iam.gserviceaccount.com`,
				`metadata.annotations[lanyard.dev/gcp-project]: Invalid value: "x": must be a project ID of 6 to 30 characters, such as my-project-123`,
				`metadata.annotations[lanyard.dev/token-expiration-seconds]: Invalid value: "x": ` + wantLifetime,
			},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			defaults := tt.defaults
			if defaults == nil {
				defaults = bare
			}
			identity, errs := annotations.ParseServiceAccount(newKeys(t), prefixed(tt.annotations), defaults)
			if diff := cmp.Diff(tt.want, messages(errs)); diff != "" {
				t.Errorf("errors (-want +got):\n%s", diff)
			}
			if identity != nil {
				t.Errorf("got the identity %+v beside the errors", identity)
			}
		})
	}
}

// The apiserver's audiences are refused wherever an audience comes from: a
// default that turns out to be one of them is no way around.
func TestParseServiceAccountGivesNoReservedAudienceByDefault(t *testing.T) {
	t.Parallel()
	const reserved = "https://kubernetes.default.svc"
	tests := map[string]struct {
		annotations map[string]string // without the prefix
		defaults    annotations.Defaults
	}{
		"the cluster's audience for AWS": {
			map[string]string{"aws-role-arn": roleARN},
			annotations.Defaults{AWSAudience: reserved, ReservedAudiences: []string{reserved}},
		},
		"the cluster's audience for Azure": {
			map[string]string{"azure-client-id": clientID, "azure-tenant-id": tenantID},
			annotations.Defaults{AzureAudience: reserved, ReservedAudiences: []string{reserved}},
		},
		"the cluster's audience for Google": {
			map[string]string{"gcp-workload-identity-provider": providerName},
			annotations.Defaults{GCPAudience: reserved, ReservedAudiences: []string{reserved}},
		},
		"AWS's own audience, in a cluster whose apiserver has it as well": {
			map[string]string{"aws-role-arn": roleARN},
			annotations.Defaults{ReservedAudiences: []string{"sts.amazonaws.com"}},
		},
		"the provider's name, in a cluster whose apiserver has it as well": {
			map[string]string{"gcp-workload-identity-provider": providerName},
			annotations.Defaults{ReservedAudiences: []string{"https://iam.googleapis.com/" + providerName}},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			identity, errs := annotations.ParseServiceAccount(newKeys(t), prefixed(tt.annotations), &tt.defaults)
			if identity != nil || len(errs) == 0 {
				t.Errorf("got an identity with a token for the apiserver, want an error")
			}
		})
	}
}

func TestParseServiceAccountKnowsOnlyItsPrefix(t *testing.T) {
	t.Parallel()
	keys, err := annotations.NewKeys("identity.example.com/")
	if err != nil {
		t.Fatal(err)
	}
	given := map[string]string{
		"identity.example.com/aws-role-arn": roleARN,
		"lanyard.dev/aws-role-arn":          "of another installation",
	}
	identity, errs := annotations.ParseServiceAccount(&keys, given, clusterDefaults())
	if len(errs) > 0 || identity == nil || identity.AWS == nil || identity.AWS.RoleARN != roleARN {
		t.Errorf("got %+v and %v, want the role under the other prefix", identity, errs)
	}
}

func TestIdentityNames(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		identity annotations.Identity
		want     []string
	}{
		"a role's is its ARN":  {annotations.Identity{AWS: &annotations.AWS{RoleARN: roleARN}}, []string{roleARN}},
		"a client's is its ID": {annotations.Identity{Azure: &annotations.Azure{ClientID: clientID, TenantID: tenantID}}, []string{clientID}},
		"an impersonated account's is its e-mail": {
			annotations.Identity{GCP: &annotations.GCP{WorkloadIdentityProvider: providerName, ServiceAccount: email}}, []string{email},
		},
		"direct federation's is its provider": {
			annotations.Identity{GCP: &annotations.GCP{WorkloadIdentityProvider: providerName}}, []string{providerName},
		},
		"a plain token's is its audience": {annotations.Identity{Plain: &annotations.Plain{Audience: "vault"}}, []string{"vault"}},
		"all of them in their order": {
			annotations.Identity{
				AWS: &annotations.AWS{RoleARN: roleARN}, Azure: &annotations.Azure{ClientID: clientID},
				GCP: &annotations.GCP{ServiceAccount: email}, Plain: &annotations.Plain{Audience: "vault"},
			},
			[]string{roleARN, clientID, email, "vault"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tt.want, tt.identity.Names()); diff != "" {
				t.Errorf("names (-want +got):\n%s", diff)
			}
		})
	}
}

// A policy is written as a person writes the identity; each spelling that an
// annotation accepts has to be held against it alike.
func TestPolicyKnowsAnIdentityInEverySpelling(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		annotations map[string]string // without the prefix
		allowed     string
	}{
		"a client ID in capital letters on the account": {map[string]string{"azure-client-id": strings.ToUpper(clientID)}, clientID},
		"a client ID in capital letters in the policy":  {map[string]string{"azure-client-id": clientID}, strings.ToUpper(clientID)},
		"a provider's full name on the account": {
			map[string]string{"gcp-workload-identity-provider": "//iam.googleapis.com/" + providerName}, providerName,
		},
		"the word default on the account": {map[string]string{"gcp-workload-identity-provider": "default"}, providerName},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			keys := newKeys(t)
			identity, errs := annotations.ParseServiceAccount(keys, prefixed(tt.annotations), clusterDefaults())
			if len(errs) > 0 {
				t.Fatal(errs.ToAggregate())
			}
			policy, errs := annotations.ParseNamespace(keys, prefixed(map[string]string{"allowed-identities": tt.allowed}))
			if len(errs) > 0 {
				t.Fatal(errs.ToAggregate())
			}
			if refused, found := policy.Refused(identity.Names()); found {
				t.Errorf("%s is refused by %q", refused, tt.allowed)
			}
		})
	}
}
