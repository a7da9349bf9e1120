// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package annotations_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/lanyard-dev/lanyard/internal/annotations"
	"github.com/lanyard-dev/lanyard/internal/provider"
)

const (
	roleARN  = "arn:aws:iam::111122223333:role/logs"
	clientID = "01234567-89ab-cdef-0123-456789abcdef"
	tenantID = "fedcba98-7654-3210-fedc-ba9876543210"
	email    = "reader@my-project.iam.gserviceaccount.com"

	providerName = "projects/123456789012/locations/global/workloadIdentityPools/my-pool/providers/my-k8s"

	// What is reported for a lifetime out of bounds, without Azure and with it.
	wantLifetime      = "must be a whole number of seconds from 600 to 86400"
	wantAzureLifetime = "must be a whole number of seconds from 3600 to 86400: SDKs of a provider of this ServiceAccount cannot use shorter ones"
)

// messages returns the errors as users read them.
func messages(errs field.ErrorList) []string {
	var messages []string
	for _, err := range errs {
		messages = append(messages, err.Error())
	}
	return messages
}

// prefixed adds the prefix to short keys.
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
		TokenExpirationSeconds: 3600,
		Parameters: map[string]string{
			"aws-region":                     "eu-west-1",
			"azure-tenant-id":                "contoso.onmicrosoft.com",
			"azure-authority-host":           "https://login.microsoftonline.us/",
			"gcp-workload-identity-provider": providerName,
			"aws-audience":                   "aws.cluster",
			"azure-audience":                 "azure.cluster",
			"gcp-audience":                   "gcp.cluster",
		},
		ReservedAudiences: []string{"https://kubernetes.default.svc"},
	}
}

// sameDefinition compares definitions by name: they hold functions.
var sameDefinition = cmp.Comparer(func(a, b *provider.Definition) bool { return a.Name == b.Name })

// newIdentity returns an identity with the values, which are given as a name and
// a value each.
func newIdentity(name, audience string, values ...string) provider.Identity {
	i := slices.IndexFunc(provider.Builtin(), func(d *provider.Definition) bool { return d.Name == name })
	identity := provider.Identity{Definition: provider.Builtin()[i], Audience: audience, Values: provider.Values{}}
	for pair := range slices.Chunk(values, 2) {
		identity.Values[pair[0]] = pair[1]
	}
	return identity
}

func identityOf(providers ...provider.Identity) *annotations.Identity {
	return &annotations.Identity{Providers: providers}
}

type identityTest struct {
	annotations map[string]string // without the prefix
	defaults    *annotations.Defaults
	want        *annotations.Identity
}

// withDefaults returns defaults of a cluster for the ServiceAccount team/loki.
func withDefaults(parameters ...string) *annotations.Defaults {
	d := annotations.Defaults{TokenExpirationSeconds: 3600, Parameters: map[string]string{}}
	for pair := range slices.Chunk(parameters, 2) {
		d.Parameters[pair[0]] = pair[1]
	}
	return d.For("team", "loki")
}

// shortForms are annotations that are the same in every cluster.
func shortForms() map[string]identityTest {
	const prefix = "arn:aws:iam::111122223333:role/"
	aws := func(role string, more ...string) *annotations.Identity {
		return identityOf(newIdentity("aws", "sts.amazonaws.com", append([]string{"role-arn", role}, more...)...))
	}
	gcp := func(email, project string) *annotations.Identity {
		return identityOf(newIdentity("gcp", "https://iam.googleapis.com/"+providerName,
			"workload-identity-provider", providerName, "service-account", email, "default-project", project))
	}
	return map[string]identityTest{
		"a role's name follows the cluster's prefix": {
			annotations: map[string]string{"aws-role-arn": "logs"},
			defaults:    withDefaults("aws-role-arn-prefix", prefix),
			want:        aws(roleARN, "role-arn-prefix", prefix),
		},
		"a role's path follows the cluster's path": {
			annotations: map[string]string{"aws-role-arn": "logs/loki"},
			defaults:    withDefaults("aws-role-arn-prefix", prefix+"team/"),
			want:        aws(prefix+"team/logs/loki", "role-arn-prefix", prefix+"team/"),
		},
		"an ARN does not follow the prefix": {
			annotations: map[string]string{"aws-role-arn": roleARN},
			defaults:    withDefaults("aws-role-arn-prefix", "arn:aws-cn:iam::444455556666:role/"),
			want:        aws(roleARN, "role-arn-prefix", "arn:aws-cn:iam::444455556666:role/"),
		},
		"the word default stands for the cluster's role": {
			annotations: map[string]string{"aws-role-arn": "default"},
			defaults:    withDefaults("aws-default-role-arn", "x", "aws-role-arn", prefix+"{namespace}/{serviceaccount}"),
			want:        aws(prefix + "team/loki"),
		},
		"the word default is not the name of a role": {
			annotations: map[string]string{"aws-role-arn": "default"},
			defaults:    withDefaults("aws-role-arn-prefix", prefix, "aws-role-arn", prefix+"{namespace}_{serviceaccount}"),
			want:        aws(prefix+"team_loki", "role-arn-prefix", prefix),
		},
		"the name of a Google service account has the cluster's project": {
			annotations: map[string]string{"gcp-service-account": "reader"},
			defaults:    withDefaults("gcp-default-project", "my-project", "gcp-workload-identity-provider", providerName),
			want:        gcp(email, "my-project"),
		},
		"a project in a domain is the other way around in an e-mail": {
			annotations: map[string]string{"gcp-service-account": "reader"},
			defaults:    withDefaults("gcp-default-project", "example.com:my-project", "gcp-workload-identity-provider", providerName),
			want:        gcp("reader@my-project.example.com.iam.gserviceaccount.com", "example.com:my-project"),
		},
		"an e-mail keeps its project": {
			annotations: map[string]string{"gcp-service-account": email},
			defaults:    withDefaults("gcp-default-project", "other-project", "gcp-workload-identity-provider", providerName),
			want:        gcp(email, "other-project"),
		},
	}
}

// tokensAlone are annotations that ask for tokens without an identity.
func tokensAlone() map[string]identityTest {
	alone := func(name, audience string, values ...string) provider.Identity {
		identity := newIdentity(name, audience, values...)
		identity.TokenAlone = true
		return identity
	}
	const authority = "https://login.microsoftonline.com/"
	return map[string]identityTest{
		"the tokens of two providers, without an identity": {
			annotations: map[string]string{"tokens": "azure, aws"},
			defaults:    withDefaults(),
			want:        identityOf(alone("aws", "sts.amazonaws.com"), alone("azure", "api://AzureADTokenExchange", "authority-host", authority)),
		},
		"a token alone has the region, the tenant and the audiences of the cluster": {
			annotations: map[string]string{"tokens": "aws,azure"},
			defaults:    clusterDefaults(),
			want: identityOf(
				alone("aws", "aws.cluster", "region", "eu-west-1"),
				alone("azure", "azure.cluster", "tenant-id", "contoso.onmicrosoft.com", "authority-host", "https://login.microsoftonline.us/"),
			),
		},
		"a token alone has the region, the tenant and the audiences of the ServiceAccount": {
			annotations: map[string]string{"tokens": "aws,azure", "aws-region": "us-east-1", "azure-tenant-id": tenantID, "audience": "mine"},
			defaults:    withDefaults(),
			want: identityOf(
				alone("aws", "mine", "region", "us-east-1"),
				alone("azure", "mine", "tenant-id", tenantID, "authority-host", authority),
			),
		},
		"a token alone does not have the default role of the cluster": {
			annotations: map[string]string{"tokens": "aws"},
			defaults:    withDefaults("aws-role-arn", roleARN),
			want:        identityOf(alone("aws", "sts.amazonaws.com")),
		},
		"a token alone beside the identity of another provider": {
			annotations: map[string]string{"tokens": "azure", "aws-role-arn": roleARN},
			defaults:    withDefaults(),
			want: identityOf(
				newIdentity("aws", "sts.amazonaws.com", "role-arn", roleARN),
				alone("azure", "api://AzureADTokenExchange", "authority-host", authority),
			),
		},
	}
}

func TestParseServiceAccountReturnsTheIdentity(t *testing.T) {
	t.Parallel()
	const publicAuthority = "https://login.microsoftonline.com/"
	bare := &annotations.Defaults{TokenExpirationSeconds: 3600}
	tests := map[string]identityTest{
		"no annotations are not an identity": {defaults: clusterDefaults()},
		"only a role has no region and AWS's audience": {
			annotations: map[string]string{"aws-role-arn": roleARN},
			defaults:    bare,
			want:        identityOf(newIdentity("aws", "sts.amazonaws.com", "role-arn", roleARN)),
		},
		"a role has the cluster's region and audience": {
			annotations: map[string]string{"aws-role-arn": roleARN},
			defaults:    clusterDefaults(),
			want:        identityOf(newIdentity("aws", "aws.cluster", "role-arn", roleARN, "region", "eu-west-1")),
		},
		"a ServiceAccount's region and audience override the cluster's": {
			annotations: map[string]string{"aws-role-arn": roleARN, "aws-region": "us-gov-west-1", "aws-audience": "mine"},
			defaults:    clusterDefaults(),
			want:        identityOf(newIdentity("aws", "mine", "role-arn", roleARN, "region", "us-gov-west-1")),
		},
		"a client with its tenant has Azure's audience": {
			annotations: map[string]string{"azure-client-id": strings.ToUpper(clientID), "azure-tenant-id": strings.ToUpper(tenantID)},
			defaults:    bare,
			want:        identityOf(newIdentity("azure", "api://AzureADTokenExchange", "client-id", clientID, "tenant-id", tenantID, "authority-host", publicAuthority)),
		},
		"a client has the cluster's tenant and audience": {
			annotations: map[string]string{"azure-client-id": clientID},
			defaults:    clusterDefaults(),
			want:        identityOf(newIdentity("azure", "azure.cluster", "client-id", clientID, "tenant-id", "contoso.onmicrosoft.com", "authority-host", "https://login.microsoftonline.us/")),
		},
		"a ServiceAccount's tenant and audience override the cluster's": {
			annotations: map[string]string{"azure-client-id": clientID, "azure-tenant-id": tenantID, "azure-audience": "mine"},
			defaults:    clusterDefaults(),
			want:        identityOf(newIdentity("azure", "mine", "client-id", clientID, "tenant-id", tenantID, "authority-host", "https://login.microsoftonline.us/")),
		},
		"only a provider is direct federation, with the provider's name as the audience": {
			annotations: map[string]string{"gcp-workload-identity-provider": "//iam.googleapis.com/" + providerName},
			defaults:    bare,
			want:        identityOf(newIdentity("gcp", "https://iam.googleapis.com/"+providerName, "workload-identity-provider", providerName)),
		},
		"the word default stands for the cluster's provider": {
			annotations: map[string]string{"gcp-workload-identity-provider": "default"},
			defaults:    clusterDefaults(),
			want:        identityOf(newIdentity("gcp", "gcp.cluster", "workload-identity-provider", providerName)),
		},
		"only a Google service account has the cluster's provider": {
			annotations: map[string]string{"gcp-service-account": email},
			defaults:    clusterDefaults(),
			want:        identityOf(newIdentity("gcp", "gcp.cluster", "workload-identity-provider", providerName, "service-account", email)),
		},
		"a ServiceAccount's provider, project and audience override all others": {
			annotations: map[string]string{
				"gcp-workload-identity-provider": "projects/1/locations/global/workloadIdentityPools/pool/providers/k8s1",
				"gcp-service-account":            email, "gcp-project": "other-project", "gcp-audience": "mine",
			},
			defaults: clusterDefaults(),
			want:     identityOf(newIdentity("gcp", "mine", "workload-identity-provider", "projects/1/locations/global/workloadIdentityPools/pool/providers/k8s1", "service-account", email, "project", "other-project")),
		},
		"direct federation with a project": {
			annotations: map[string]string{"gcp-workload-identity-provider": "default", "gcp-project": "example.com:my-project"},
			defaults:    clusterDefaults(),
			want:        identityOf(newIdentity("gcp", "gcp.cluster", "workload-identity-provider", providerName, "project", "example.com:my-project")),
		},
		"only an audience is a plain token": {
			annotations: map[string]string{"audience": "openshift"},
			defaults:    clusterDefaults(),
			want:        identityOf(newIdentity("token", "openshift")),
		},
		"an audience with providers is that of all their tokens, without a plain one": {
			annotations: map[string]string{
				"aws-role-arn": roleARN, "azure-client-id": clientID, "gcp-workload-identity-provider": "default", "audience": "openshift",
			},
			defaults: clusterDefaults(),
			want: identityOf(
				newIdentity("aws", "openshift", "role-arn", roleARN, "region", "eu-west-1"),
				newIdentity("azure", "openshift", "client-id", clientID, "tenant-id", "contoso.onmicrosoft.com", "authority-host", "https://login.microsoftonline.us/"),
				newIdentity("gcp", "openshift", "workload-identity-provider", providerName),
			),
		},
		"one provider's audience overrides the ServiceAccount's": {
			annotations: map[string]string{
				"aws-role-arn": roleARN, "azure-client-id": clientID, "gcp-workload-identity-provider": "default",
				"audience": "openshift", "azure-audience": "mine",
			},
			defaults: clusterDefaults(),
			want: identityOf(
				newIdentity("aws", "openshift", "role-arn", roleARN, "region", "eu-west-1"),
				newIdentity("azure", "mine", "client-id", clientID, "tenant-id", "contoso.onmicrosoft.com", "authority-host", "https://login.microsoftonline.us/"),
				newIdentity("gcp", "openshift", "workload-identity-provider", providerName),
			),
		},
		"three clouds at once": {
			annotations: map[string]string{
				"aws-role-arn": roleARN, "azure-client-id": clientID, "azure-tenant-id": tenantID,
				"gcp-workload-identity-provider": providerName, "token-expiration-seconds": "3600",
			},
			defaults: bare,
			want: &annotations.Identity{
				Providers: []provider.Identity{
					newIdentity("aws", "sts.amazonaws.com", "role-arn", roleARN),
					newIdentity("azure", "api://AzureADTokenExchange", "client-id", clientID, "tenant-id", tenantID, "authority-host", publicAuthority),
					newIdentity("gcp", "https://iam.googleapis.com/"+providerName, "workload-identity-provider", providerName),
				},
				TokenExpirationSeconds: 3600,
			},
		},
		"the shortest lifetime without Azure": {
			annotations: map[string]string{"aws-role-arn": roleARN, "token-expiration-seconds": "600"},
			defaults:    bare,
			want: &annotations.Identity{
				Providers:              []provider.Identity{newIdentity("aws", "sts.amazonaws.com", "role-arn", roleARN)},
				TokenExpirationSeconds: 600,
			},
		},
		"the longest lifetime with Azure": {
			annotations: map[string]string{"azure-client-id": clientID, "azure-tenant-id": tenantID, "token-expiration-seconds": "86400"},
			defaults:    bare,
			want: &annotations.Identity{
				Providers:              []provider.Identity{newIdentity("azure", "api://AzureADTokenExchange", "client-id", clientID, "tenant-id", tenantID, "authority-host", publicAuthority)},
				TokenExpirationSeconds: 86400,
			},
		},
		"the longest audience that AWS accepts": {
			annotations: map[string]string{"aws-role-arn": roleARN, "aws-audience": strings.Repeat("a", 255)},
			defaults:    bare,
			want:        identityOf(newIdentity("aws", strings.Repeat("a", 255), "role-arn", roleARN)),
		},
		"the longest audience that Azure accepts": {
			annotations: map[string]string{"azure-client-id": clientID, "azure-tenant-id": tenantID, "azure-audience": strings.Repeat("a", 600)},
			defaults:    bare,
			want:        identityOf(newIdentity("azure", strings.Repeat("a", 600), "client-id", clientID, "tenant-id", tenantID, "authority-host", publicAuthority)),
		},
		"the longest audience that Google accepts": {
			annotations: map[string]string{"gcp-workload-identity-provider": providerName, "gcp-audience": strings.Repeat("a", 256)},
			defaults:    bare,
			want:        identityOf(newIdentity("gcp", strings.Repeat("a", 256), "workload-identity-provider", providerName)),
		},
	}
	maps.Copy(tests, shortForms())
	maps.Copy(tests, tokensAlone())
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
			if diff := cmp.Diff(tt.want, identity, sameDefinition); diff != "" {
				t.Errorf("identity (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(before, given); diff != "" {
				t.Errorf("the annotations were changed (-before +after):\n%s", diff)
			}
		})
	}
}

func TestParseServiceAccountDenies(t *testing.T) {
	t.Parallel()
	const known = " and is not an annotation of a ServiceAccount; known keys are " +
		"lanyard.dev/aws-role-arn, lanyard.dev/aws-region, lanyard.dev/aws-token-path, lanyard.dev/aws-audience, " +
		"lanyard.dev/azure-client-id, lanyard.dev/azure-tenant-id, lanyard.dev/azure-token-path, lanyard.dev/azure-audience, " +
		"lanyard.dev/gcp-workload-identity-provider, lanyard.dev/gcp-service-account, lanyard.dev/gcp-project, lanyard.dev/gcp-token-path, lanyard.dev/gcp-audience, " +
		"lanyard.dev/audience, lanyard.dev/tokens, lanyard.dev/token-expiration-seconds, " +
		"lanyard.dev/aws-role-arn.PROFILE, lanyard.dev/aws-source-profile.PROFILE"
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
		"the token of an unknown provider": {
			annotations: map[string]string{"tokens": "aws,ibm"},
			want:        []string{`metadata.annotations[lanyard.dev/tokens]: Invalid value: "aws,ibm": must be one or more of aws, azure, separated by commas`},
		},
		"the token of Google, which needs a provider": {
			annotations: map[string]string{"tokens": "gcp"},
			want:        []string{`metadata.annotations[lanyard.dev/tokens]: Invalid value: "gcp": must be one or more of aws, azure, separated by commas`},
		},
		"no token": {
			annotations: map[string]string{"tokens": ""},
			want:        []string{`metadata.annotations[lanyard.dev/tokens]: Invalid value: "": must be one or more of aws, azure, separated by commas`},
		},
		"a token alone of a provider with an identity": {
			annotations: map[string]string{"tokens": "azure,aws", "aws-role-arn": roleARN},
			want:        []string{`metadata.annotations[lanyard.dev/tokens]: Invalid value: "azure,aws": must not name aws together with lanyard.dev/aws-role-arn`},
		},
		"a region without the token of AWS": {
			annotations: map[string]string{"tokens": "azure", "aws-region": "eu-west-1"},
			want:        []string{`metadata.annotations[lanyard.dev/aws-region]: Forbidden: has value "eu-west-1" but no effect without lanyard.dev/aws-role-arn`},
		},
		"a token alone for Azure that is too short": {
			annotations: map[string]string{"tokens": "azure", "token-expiration-seconds": "3599"},
			want:        []string{`metadata.annotations[lanyard.dev/token-expiration-seconds]: Invalid value: "3599": ` + wantAzureLifetime},
		},
		"a role's name where the cluster has no prefix": {
			annotations: map[string]string{"aws-role-arn": "logs"},
			want:        []string{`metadata.annotations[lanyard.dev/aws-role-arn]: Invalid value: "logs": must be the ARN of an IAM role, such as arn:aws:iam::111122223333:role/name`},
		},
		"an empty role where the cluster has a prefix with a name in its path": {
			annotations: map[string]string{"aws-role-arn": ""},
			defaults:    withDefaults("aws-role-arn-prefix", "arn:aws:iam::111122223333:role/team/"),
			want:        []string{`metadata.annotations[lanyard.dev/aws-role-arn]: Invalid value: "": must be the ARN of an IAM role, such as arn:aws:iam::111122223333:role/name`},
		},
		"a role's name that is too long": {
			annotations: map[string]string{"aws-role-arn": strings.Repeat("r", 65)},
			defaults:    withDefaults("aws-role-arn-prefix", "arn:aws:iam::111122223333:role/"),
			want:        []string{`metadata.annotations[lanyard.dev/aws-role-arn]: Invalid value: "` + strings.Repeat("r", 65) + `": must be the ARN of an IAM role, such as arn:aws:iam::111122223333:role/name`},
		},
		"the word default where the cluster has no role": {
			annotations: map[string]string{"aws-role-arn": "default"},
			defaults:    withDefaults("aws-role-arn-prefix", "arn:aws:iam::111122223333:role/"),
			want:        []string{`metadata.annotations[lanyard.dev/aws-role-arn]: Required value: the cluster has no default: --aws-default-role-arn is not set`},
		},
		"a name that makes the cluster's role too long": {
			annotations: map[string]string{"aws-role-arn": "default"},
			defaults:    withDefaults("aws-role-arn", "arn:aws:iam::111122223333:role/{serviceaccount}-"+strings.Repeat("r", 60)),
			want:        []string{`metadata.annotations[lanyard.dev/aws-role-arn]: Required value: the cluster's default "arn:aws:iam::111122223333:role/loki-` + strings.Repeat("r", 60) + `" must be the ARN of an IAM role, such as arn:aws:iam::111122223333:role/name`},
		},
		"a Google service account's name where the cluster has no project": {
			annotations: map[string]string{"gcp-service-account": "reader"},
			defaults:    withDefaults("gcp-workload-identity-provider", providerName),
			want:        []string{`metadata.annotations[lanyard.dev/gcp-service-account]: Invalid value: "reader": must be the e-mail of a service account, such as name@project.iam.gserviceaccount.com`},
		},
		"a malformed region": {
			annotations: map[string]string{"aws-role-arn": roleARN, "aws-region": "EU"},
			want:        []string{`metadata.annotations[lanyard.dev/aws-region]: Invalid value: "EU": must be an AWS region, such as eu-central-1`},
		},
		"an empty region, also if the cluster has one": {
			annotations: map[string]string{"aws-role-arn": roleARN, "aws-region": ""},
			defaults:    clusterDefaults(),
			want:        []string{`metadata.annotations[lanyard.dev/aws-region]: Invalid value: "": must be an AWS region, such as eu-central-1`},
		},
		"a region without a role": {
			annotations: map[string]string{"aws-region": "eu-west-1"},
			want:        []string{`metadata.annotations[lanyard.dev/aws-region]: Forbidden: has value "eu-west-1" but no effect without lanyard.dev/aws-role-arn`},
		},
		"an AWS audience without a role, with another provider": {
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
			want:        []string{`metadata.annotations[lanyard.dev/azure-tenant-id]: Invalid value: "common": must be a tenant ID (GUID) or a domain of the tenant such as contoso.onmicrosoft.com; common, organizations, consumers and adfs do not name a tenant`},
		},
		"a client without any tenant": {
			annotations: map[string]string{"azure-client-id": clientID},
			want:        []string{`metadata.annotations[lanyard.dev/azure-tenant-id]: Required value: the cluster has no default: --azure-default-tenant-id is not set`},
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
		"the cluster's provider, if it has none": {
			annotations: map[string]string{"gcp-workload-identity-provider": "default"},
			want:        []string{`metadata.annotations[lanyard.dev/gcp-workload-identity-provider]: Required value: the cluster has no default: --gcp-default-workload-identity-provider is not set`},
		},
		"a Google service account without a provider": {
			annotations: map[string]string{"gcp-service-account": email},
			want:        []string{`metadata.annotations[lanyard.dev/gcp-workload-identity-provider]: Required value: the cluster has no default: --gcp-default-workload-identity-provider is not set`},
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
		"a project and an audience without a provider, also if the cluster has one": {
			annotations: map[string]string{"gcp-project": "my-project", "gcp-audience": "x"},
			defaults:    clusterDefaults(),
			want: []string{
				`metadata.annotations[lanyard.dev/gcp-project]: Forbidden: has value "my-project" but no effect without lanyard.dev/gcp-workload-identity-provider or lanyard.dev/gcp-service-account`,
				`metadata.annotations[lanyard.dev/gcp-audience]: Forbidden: has value "x" but no effect without lanyard.dev/gcp-workload-identity-provider or lanyard.dev/gcp-service-account`,
			},
		},
		"an empty audience, which stands for that of the API server": {
			annotations: map[string]string{"audience": ""},
			want:        []string{`metadata.annotations[lanyard.dev/audience]: Invalid value: "": must be 1 to 1024 visible ASCII characters without a space`},
		},
		"an empty audience with providers is reported once": {
			annotations: map[string]string{"aws-role-arn": roleARN, "azure-client-id": clientID, "audience": ""},
			defaults:    clusterDefaults(),
			want:        []string{`metadata.annotations[lanyard.dev/audience]: Invalid value: "": must be 1 to 255 visible ASCII characters without a space`},
		},
		"an audience that no provider uses": {
			annotations: map[string]string{"aws-role-arn": roleARN, "aws-audience": "mine", "audience": "a b"},
			defaults:    clusterDefaults(),
			want:        []string{`metadata.annotations[lanyard.dev/audience]: Invalid value: "a b": must be 1 to 1024 visible ASCII characters without a space`},
		},
		"the API server's audience for a plain token": {
			annotations: map[string]string{"audience": "https://kubernetes.default.svc"},
			defaults:    clusterDefaults(),
			want:        []string{`metadata.annotations[lanyard.dev/audience]: Invalid value: "https://kubernetes.default.svc": ` + reserved},
		},
		"the API server's audience for each provider": {
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
		"an audience longer than AWS accepts": {
			annotations: map[string]string{"aws-role-arn": roleARN, "aws-audience": strings.Repeat("a", 256)},
			want:        []string{`metadata.annotations[lanyard.dev/aws-audience]: Invalid value: "` + strings.Repeat("a", 256) + `": must be 1 to 255 visible ASCII characters without a space`},
		},
		"an audience longer than Azure accepts": {
			annotations: map[string]string{"azure-client-id": clientID, "azure-audience": strings.Repeat("a", 601)},
			defaults:    clusterDefaults(),
			want:        []string{`metadata.annotations[lanyard.dev/azure-audience]: Invalid value: "` + strings.Repeat("a", 601) + `": must be 1 to 600 visible ASCII characters without a space`},
		},
		"an audience longer than Google accepts": {
			annotations: map[string]string{"gcp-workload-identity-provider": providerName, "gcp-audience": strings.Repeat("a", 257)},
			want:        []string{`metadata.annotations[lanyard.dev/gcp-audience]: Invalid value: "` + strings.Repeat("a", 257) + `": must be 1 to 256 visible ASCII characters without a space`},
		},
		"a common audience longer than one of its providers accepts": {
			annotations: map[string]string{"azure-client-id": clientID, "gcp-workload-identity-provider": "default", "audience": strings.Repeat("a", 300)},
			defaults:    clusterDefaults(),
			want:        []string{`metadata.annotations[lanyard.dev/audience]: Invalid value: "` + strings.Repeat("a", 300) + `": must be 1 to 256 visible ASCII characters without a space`},
		},
		"a lifetime that is not a number": {
			annotations: map[string]string{"aws-role-arn": roleARN, "token-expiration-seconds": "1h"},
			want:        []string{`metadata.annotations[lanyard.dev/token-expiration-seconds]: Invalid value: "1h": ` + wantLifetime},
		},
		"a lifetime that is one second too short for Azure": {
			annotations: map[string]string{"aws-role-arn": roleARN, "azure-client-id": clientID, "token-expiration-seconds": "3599"},
			defaults:    clusterDefaults(),
			want:        []string{`metadata.annotations[lanyard.dev/token-expiration-seconds]: Invalid value: "3599": ` + wantAzureLifetime},
		},
		"a lifetime without an identity": {
			annotations: map[string]string{"token-expiration-seconds": "3600"},
			want:        []string{`metadata.annotations[lanyard.dev/token-expiration-seconds]: Forbidden: has value "3600" but no effect without an identity`},
		},
		"a misspelled key": {
			annotations: map[string]string{"aws-role": roleARN},
			want:        []string{`metadata.annotations[lanyard.dev/aws-role]: Forbidden: has value "` + roleARN + `"` + known},
		},
		"a misspelled key with a valid identity": {
			annotations: map[string]string{"aws-role-arn": roleARN, "aws-default-region": "eu-west-1"},
			want:        []string{`metadata.annotations[lanyard.dev/aws-default-region]: Forbidden: has value "eu-west-1"` + known},
		},
		"a key of a pod": {
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
				`metadata.annotations[lanyard.dev/b]: Forbidden: has value "2" and is not an annotation of a ServiceAccount`,
				`metadata.annotations[lanyard.dev/aws-role-arn]: Invalid value: "x": must be the ARN of an IAM role, such as arn:aws:iam::111122223333:role/name`,
				`metadata.annotations[lanyard.dev/aws-region]: Invalid value: "x": must be an AWS region, such as eu-central-1`,
				`metadata.annotations[lanyard.dev/audience]: Invalid value: "\n": must be 1 to 255 visible ASCII characters without a space`,
				`metadata.annotations[lanyard.dev/azure-client-id]: Invalid value: "x": must be a client ID (GUID), such as 00000000-0000-0000-0000-000000000000`,
				`metadata.annotations[lanyard.dev/azure-tenant-id]: Required value: the cluster has no default: --azure-default-tenant-id is not set`,
				`metadata.annotations[lanyard.dev/gcp-workload-identity-provider]: Required value: the cluster has no default: --gcp-default-workload-identity-provider is not set`,
				`metadata.annotations[lanyard.dev/gcp-service-account]: Invalid value: "x": must be the e-mail of a service account, such as name@project.iam.gserviceaccount.com`,
				`metadata.annotations[lanyard.dev/gcp-project]: Invalid value: "x": must be a project ID of 6 to 30 characters, such as my-project-123`,
				`metadata.annotations[lanyard.dev/token-expiration-seconds]: Invalid value: "x": ` + wantAzureLifetime,
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
				t.Errorf("got the identity %+v in addition to the errors", identity)
			}
		})
	}
}

// The API server's audiences are denied wherever an audience comes from, also
// from a default.
func TestParseServiceAccountDeniesAReservedAudienceByDefault(t *testing.T) {
	t.Parallel()
	const reserved = "https://kubernetes.default.svc"
	tests := map[string]struct {
		annotations map[string]string // without the prefix
		defaults    annotations.Defaults
	}{
		"the cluster's audience for AWS": {
			map[string]string{"aws-role-arn": roleARN},
			annotations.Defaults{Parameters: map[string]string{"aws-audience": reserved}, ReservedAudiences: []string{reserved}},
		},
		"the cluster's audience for Azure": {
			map[string]string{"azure-client-id": clientID, "azure-tenant-id": tenantID},
			annotations.Defaults{Parameters: map[string]string{"azure-audience": reserved}, ReservedAudiences: []string{reserved}},
		},
		"the cluster's audience for Google": {
			map[string]string{"gcp-workload-identity-provider": providerName},
			annotations.Defaults{Parameters: map[string]string{"gcp-audience": reserved}, ReservedAudiences: []string{reserved}},
		},
		"AWS's own audience, in a cluster whose API server has it too": {
			map[string]string{"aws-role-arn": roleARN},
			annotations.Defaults{ReservedAudiences: []string{"sts.amazonaws.com"}},
		},
		"the provider's name, in a cluster whose API server has it too": {
			map[string]string{"gcp-workload-identity-provider": providerName},
			annotations.Defaults{ReservedAudiences: []string{"https://iam.googleapis.com/" + providerName}},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			identity, errs := annotations.ParseServiceAccount(newKeys(t), prefixed(tt.annotations), &tt.defaults)
			if identity != nil || len(errs) != 1 || !strings.Contains(errs[0].Detail, "is an audience of the Kubernetes API server") {
				t.Errorf("got %+v and %v, want an error that names the API server", identity, errs)
			}
		})
	}
}

func TestParseServiceAccountKnowsOnlyItsPrefix(t *testing.T) {
	t.Parallel()
	keys, err := annotations.NewKeys("identity.example.com/", provider.Builtin())
	if err != nil {
		t.Fatal(err)
	}
	given := map[string]string{
		"identity.example.com/aws-role-arn": roleARN,
		"lanyard.dev/aws-role-arn":          "of another installation",
	}
	identity, errs := annotations.ParseServiceAccount(&keys, given, clusterDefaults())
	if len(errs) > 0 || identity == nil || identity.Providers[0].Values["role-arn"] != roleARN {
		t.Errorf("got %+v and %v, want the role under the other prefix", identity, errs)
	}
}

func TestPrincipals(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		identity annotations.Identity
		want     []string
	}{
		"only one provider": {*identityOf(newIdentity("aws", "x", "role-arn", roleARN)), []string{roleARN}},
		"several, in their order": {
			*identityOf(
				newIdentity("aws", "x", "role-arn", roleARN), newIdentity("azure", "x", "client-id", clientID),
				newIdentity("gcp", "x", "service-account", email), newIdentity("token", "vault"),
			),
			[]string{roleARN, clientID, email, "vault"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tt.want, tt.identity.Principals()); diff != "" {
				t.Errorf("principals (-want +got):\n%s", diff)
			}
		})
	}
}

// Administrators write a policy in their own spelling. Each spelling that an
// annotation accepts must match it.
func TestPolicyAllowsAnIdentityInEverySpelling(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		annotations map[string]string // without the prefix
		allowed     string
	}{
		"a client ID in capital letters on the ServiceAccount": {map[string]string{"azure-client-id": strings.ToUpper(clientID)}, clientID},
		"a client ID in capital letters in the policy":         {map[string]string{"azure-client-id": clientID}, strings.ToUpper(clientID)},
		"a provider's full name on the ServiceAccount": {
			map[string]string{"gcp-workload-identity-provider": "//iam.googleapis.com/" + providerName}, providerName,
		},
		"the word default on the ServiceAccount": {map[string]string{"gcp-workload-identity-provider": "default"}, providerName},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			keys := newKeys(t)
			identity, errs := annotations.ParseServiceAccount(keys, prefixed(tt.annotations), clusterDefaults())
			if len(errs) > 0 {
				t.Fatal(errs.ToAggregate())
			}
			policy, errs := annotations.ParseNamespace(keys, "team", prefixed(map[string]string{"allowed-identities": tt.allowed}), clusterDefaults())
			if len(errs) > 0 {
				t.Fatal(errs.ToAggregate())
			}
			if denied, found := policy.Denied(identity.Principals()); found {
				t.Errorf("%s is denied by %q", denied, tt.allowed)
			}
		})
	}
}

func TestDefaultStandsForTheDefaultOfTheCluster(t *testing.T) {
	t.Parallel()
	keys := newKeys(t)
	tests := map[string]struct {
		annotations map[string]string // without the prefix
		want        string            // in the error, if any
	}{
		"an identity with a cluster's default": {annotations: map[string]string{"gcp-workload-identity-provider": "default"}},
		"an identity without a flag":           {map[string]string{"azure-client-id": "default"}, "must be a client ID"},
		"another identity without a flag":      {map[string]string{"gcp-service-account": "default"}, "must be the e-mail"},
		"a parameter that may be left out":     {map[string]string{"aws-role-arn": roleARN, "aws-region": "default"}, "must be an AWS region"},
		"another spelling":                     {map[string]string{"gcp-workload-identity-provider": "Default"}, "must be projects/NUMBER"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			identity, errs := annotations.ParseServiceAccount(keys, prefixed(tt.annotations), clusterDefaults())
			if tt.want == "" {
				if len(errs) > 0 || identity.Providers[0].Values["workload-identity-provider"] != providerName {
					t.Errorf("got %+v and %v, want the cluster's default", identity, errs)
				}
				return
			}
			if len(errs) != 1 || !strings.Contains(errs[0].Detail, tt.want) {
				t.Errorf("got %v, want one error with %q", errs, tt.want)
			}
		})
	}
}

func TestAValueOverMaxBytesIsDenied(t *testing.T) {
	t.Parallel()
	keys := newKeys(t)
	valid, _ := longestServiceAccount(t, keys)
	for _, d := range keys.Providers {
		for i := range d.Parameters {
			p, key := &d.Parameters[i], keys.Parameter(d, d.Parameters[i].Name)
			if p.ClusterOnly {
				continue
			}
			t.Run(key, func(t *testing.T) {
				t.Parallel()
				given := maps.Clone(valid)
				given[key] = strings.Repeat("a", p.MaxBytes+1)
				identity, errs := annotations.ParseServiceAccount(keys, given, clusterDefaults())
				want := field.Invalid(field.NewPath("metadata", "annotations").Key(key), "", fmt.Sprintf("must have at most %d bytes", p.MaxBytes))
				if identity != nil || len(errs) != 1 || errs[0].Field != want.Field || errs[0].Detail != want.Detail {
					t.Errorf("got %+v and %v, want the error %v", identity, errs, want)
				}
			})
		}
	}
}

// What only the cluster sets is a key that the parser does not know.
func TestASettingOfTheClusterIsNotAnAnnotation(t *testing.T) {
	t.Parallel()
	keys := newKeys(t)
	found := false
	for _, d := range keys.Providers {
		for i := range d.Parameters {
			if !d.Parameters[i].ClusterOnly {
				continue
			}
			found = true
			key := keys.Parameter(d, d.Parameters[i].Name)
			given := map[string]string{keys.Audience: "x", key: "https://login.example.com/"}
			if identity, errs := annotations.ParseServiceAccount(keys, given, clusterDefaults()); identity != nil || len(errs) != 1 || errs[0].Type != field.ErrorTypeForbidden {
				t.Errorf("%s: got %+v and %v, want one error", key, identity, errs)
			}
		}
	}
	if !found {
		t.Error("no parameter is only the cluster's, so this test is not needed")
	}
}

func TestMessagesAreShort(t *testing.T) {
	t.Parallel()
	given := map[string]string{"lanyard.dev/aws-role-arn": strings.Repeat("a", 100_000)}
	for i := range 1000 {
		given[fmt.Sprintf("lanyard.dev/unknown-%d", i)] = strings.Repeat("b", 200)
	}
	_, errs := annotations.ParseServiceAccount(newKeys(t), given, clusterDefaults())
	if size := len(errs.ToAggregate().Error()); len(errs) > 10 || size > 8192 {
		t.Errorf("got %d errors of %d bytes, want at most 10 of 8192", len(errs), size)
	}
}
