// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mutate_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lanyard-dev/lanyard/internal/provider"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/pkg/mutate"
	"github.com/lanyard-dev/lanyard/pkg/mutate/reason"
)

const gcpProvider = "projects/1/locations/global/workloadIdentityPools/pool/providers/prov"

// builtin returns the injection of every provider of Lanyard.
func builtin() *provider.Injection {
	values := map[string]annotations.Values{
		"aws":   {"role-arn": "arn:aws:iam::111122223333:role/r", "region": "eu-central-1"},
		"azure": {"client-id": "c", "tenant-id": "t", "authority-host": "https://login/"},
		"gcp":   {"workload-identity-provider": gcpProvider, "project": "project"},
	}
	var identities []annotations.Identity
	for _, d := range provider.Builtin() {
		identities = append(identities, annotations.Identity{Provider: d, Values: values[d.Name], Audience: "aud"})
	}
	return provider.NewInjection(identities, &provider.Subject{Namespace: "ns", ServiceAccount: "sa", MountPath: mountPath, TokenExpirationSeconds: 3600})
}

// variables are the variables, by provider, for a container that sets none itself.
var variables = map[string][]variableSpec{
	"aws": {
		{Name: "AWS_ROLE_ARN", Value: "arn:aws:iam::111122223333:role/r"},
		{Name: "AWS_WEB_IDENTITY_TOKEN_FILE", Value: "/lanyard/aws/token"},
		{Name: "AWS_ROLE_SESSION_NAME", Value: "sa@ns"},
		{Name: "AWS_STS_REGIONAL_ENDPOINTS", Value: "regional"},
		{Name: "AWS_REGION", Value: "eu-central-1"},
		{Name: "AWS_DEFAULT_REGION", Value: "eu-central-1"},
	},
	"azure": {
		{Name: "AZURE_CLIENT_ID", Value: "c"},
		{Name: "AZURE_TENANT_ID", Value: "t"},
		{Name: "AZURE_FEDERATED_TOKEN_FILE", Value: "/lanyard/azure/token"},
		{Name: "AZURE_AUTHORITY_HOST", Value: "https://login/"},
	},
	"gcp": {
		{Name: "GOOGLE_APPLICATION_CREDENTIALS", Value: "/lanyard/gcp/credentials.json"},
		{Name: "CLOUDSDK_AUTH_CREDENTIAL_FILE_OVERRIDE", Value: "/lanyard/gcp/credentials.json"},
		{Name: "GOOGLE_CLOUD_PROJECT", Value: "project"},
		{Name: "CLOUDSDK_CORE_PROJECT", Value: "project"},
	},
	"token": {{Name: "LANYARD_TOKEN_FILE", Value: "/lanyard/token"}},
}

// without returns the variables of all providers, except those whose name or
// provider is in the list.
func without(names ...string) (rest []variableSpec) {
	for _, p := range []string{"aws", "azure", "gcp", "token"} {
		for _, v := range variables[p] {
			if !slices.Contains(names, p) && !slices.Contains(names, v.Name) {
				rest = append(rest, v)
			}
		}
	}
	return rest
}

// set returns a variable's JSON.
func set(name, value string) string { return `{"name":"` + name + `","value":"` + value + `"}` }

// from returns the JSON of a variable whose value comes from another object.
func from(name string) string {
	return `{"name":"` + name + `","valueFrom":{"secretKeyRef":{"name":"s","key":"k"}}}`
}

// Values that must not be shown.
const own = "s3cr3t"

var environmentCases = map[string]struct {
	env   string
	added []variableSpec
	finds []string // the start of each finding
}{
	"a container that sets nothing gets everything":      {``, without(), nil},
	"a container that sets something else, too":          {set("A", own), without(), nil},
	"a name that only starts the same does not matter":   {set("AWS_ROLE_ARNS", own) + "," + set("LANYARD_TOKEN_FIL", own), without(), nil},
	"its own AWS token file":                             {set("AWS_WEB_IDENTITY_TOKEN_FILE", own), without("aws"), []string{`environment_taken: container "main": it sets AWS_WEB_IDENTITY_TOKEN_FILE itself and keeps its own aws credentials`}},
	"its own Azure token file":                           {set("AZURE_FEDERATED_TOKEN_FILE", own), without("azure"), []string{`environment_taken: container "main": it sets AZURE_FEDERATED_TOKEN_FILE itself`}},
	"its own Google credential file":                     {set("GOOGLE_APPLICATION_CREDENTIALS", own), without("gcp"), []string{`environment_taken: container "main": it sets GOOGLE_APPLICATION_CREDENTIALS itself`}},
	"its own gcloud credential file":                     {set("CLOUDSDK_AUTH_CREDENTIAL_FILE_OVERRIDE", own), without("gcp"), []string{`environment_taken: container "main": it sets CLOUDSDK_AUTH_CREDENTIAL_FILE_OVERRIDE itself`}},
	"its own plain token file":                           {set("LANYARD_TOKEN_FILE", own), without("token"), []string{`environment_taken: container "main": it sets LANYARD_TOKEN_FILE itself and keeps its own token credentials`}},
	"both of its own Google files are one finding":       {set("CLOUDSDK_AUTH_CREDENTIAL_FILE_OVERRIDE", own) + "," + set("GOOGLE_APPLICATION_CREDENTIALS", own), without("gcp"), []string{`environment_taken: container "main": it sets GOOGLE_APPLICATION_CREDENTIALS, CLOUDSDK_AUTH_CREDENTIAL_FILE_OVERRIDE itself`}},
	"Lanyard's Google file and its own for gcloud":       {set("GOOGLE_APPLICATION_CREDENTIALS", "/lanyard/gcp/credentials.json") + "," + set("CLOUDSDK_AUTH_CREDENTIAL_FILE_OVERRIDE", own), without("gcp"), []string{`environment_taken: container "main": it sets CLOUDSDK_AUTH_CREDENTIAL_FILE_OVERRIDE itself`}},
	"its own files of two providers are two findings":    {set("LANYARD_TOKEN_FILE", own) + "," + set("AWS_WEB_IDENTITY_TOKEN_FILE", own), without("aws", "token"), []string{"environment_taken", "environment_taken"}},
	"an empty token file is its own":                     {`{"name":"AZURE_FEDERATED_TOKEN_FILE"}`, without("azure"), []string{"environment_taken"}},
	"a token file from a Secret is its own":              {from("LANYARD_TOKEN_FILE"), without("token"), []string{"environment_taken"}},
	"Lanyard's value and a source is its own":            {`{"name":"LANYARD_TOKEN_FILE","value":"/lanyard/token","valueFrom":{"fieldRef":{}}}`, without("token"), []string{"environment_taken"}},
	"Lanyard's value and a null source is Lanyard's":     {`{"name":"LANYARD_TOKEN_FILE","value":"/lanyard/token","valueFrom":null}`, without("LANYARD_TOKEN_FILE"), nil},
	"an own credential needs no shadow finding":          {set("AWS_WEB_IDENTITY_TOKEN_FILE", own) + "," + set("AWS_ACCESS_KEY_ID", own), without("aws"), []string{"environment_taken"}},
	"Lanyard's own AWS token file":                       {set("AWS_WEB_IDENTITY_TOKEN_FILE", "/lanyard/aws/token"), without("AWS_WEB_IDENTITY_TOKEN_FILE"), nil},
	"Lanyard's own gcloud file":                          {set("CLOUDSDK_AUTH_CREDENTIAL_FILE_OVERRIDE", "/lanyard/gcp/credentials.json"), without("CLOUDSDK_AUTH_CREDENTIAL_FILE_OVERRIDE"), nil},
	"the last of two counts, and it is its own":          {set("LANYARD_TOKEN_FILE", "/lanyard/token") + "," + set("LANYARD_TOKEN_FILE", own), without("token"), []string{"environment_taken"}},
	"the last of two counts, and it is Lanyard's":        {set("LANYARD_TOKEN_FILE", own) + "," + set("LANYARD_TOKEN_FILE", "/lanyard/token"), without("LANYARD_TOKEN_FILE"), nil},
	"its own role with the injected token":               {set("AWS_ROLE_ARN", own), without("AWS_ROLE_ARN"), nil},
	"a role from a Secret with the injected token":       {from("AWS_ROLE_ARN"), without("AWS_ROLE_ARN"), nil},
	"its own session name":                               {set("AWS_ROLE_SESSION_NAME", own), without("AWS_ROLE_SESSION_NAME"), nil},
	"its own client and tenant with the injected token":  {set("AZURE_CLIENT_ID", own) + "," + set("AZURE_TENANT_ID", own), without("AZURE_CLIENT_ID", "AZURE_TENANT_ID"), nil},
	"an empty role":                                      {set("AWS_ROLE_ARN", ""), without("AWS_ROLE_ARN"), []string{`environment_shadowed: container "main": it sets AWS_ROLE_ARN to an empty value, so SDKs do not find the injected aws identity`}},
	"an empty client and an empty tenant":                {`{"name":"AZURE_CLIENT_ID"},` + set("AZURE_TENANT_ID", ""), without("AZURE_CLIENT_ID", "AZURE_TENANT_ID"), []string{`environment_shadowed: container "main": it sets AZURE_CLIENT_ID, AZURE_TENANT_ID to an empty value, so SDKs do not find the injected azure identity`}},
	"the last of two roles is empty":                     {set("AWS_ROLE_ARN", own) + "," + set("AWS_ROLE_ARN", ""), without("AWS_ROLE_ARN"), []string{"environment_shadowed"}},
	"an empty session name has its default":              {set("AWS_ROLE_SESSION_NAME", ""), without("AWS_ROLE_SESSION_NAME"), nil},
	"an empty static key is none":                        {set("AWS_ACCESS_KEY_ID", "") + "," + set("AMAZON_SECRET_ACCESS_KEY", ""), without(), nil},
	"an empty profile is not found":                      {set("AWS_PROFILE", ""), without(), []string{"environment_shadowed"}},
	"static keys of Ruby":                                {set("AMAZON_ACCESS_KEY_ID", own), without(), []string{`environment_shadowed: container "main": it sets AMAZON_ACCESS_KEY_ID,`}},
	"an access token of gcloud":                          {set("CLOUDSDK_AUTH_ACCESS_TOKEN_FILE", own), without(), []string{`environment_shadowed: container "main": it sets CLOUDSDK_AUTH_ACCESS_TOKEN_FILE,`}},
	"a region of Ruby leaves out both others":            {set("AMAZON_REGION", own), without("AWS_REGION", "AWS_DEFAULT_REGION"), nil},
	"its own AWS_REGION leaves out AWS_DEFAULT_REGION":   {set("AWS_REGION", own), without("AWS_REGION", "AWS_DEFAULT_REGION"), nil},
	"its own AWS_DEFAULT_REGION leaves out AWS_REGION":   {set("AWS_DEFAULT_REGION", own), without("AWS_REGION", "AWS_DEFAULT_REGION"), nil},
	"a region from a ConfigMap leaves out the other":     {from("AWS_REGION"), without("AWS_REGION", "AWS_DEFAULT_REGION"), nil},
	"Lanyard's AWS_REGION leaves out AWS_DEFAULT_REGION": {set("AWS_REGION", "eu-central-1"), without("AWS_REGION", "AWS_DEFAULT_REGION"), nil},
	"its own Google project leaves out that of gcloud":   {set("GOOGLE_CLOUD_PROJECT", own), without("GOOGLE_CLOUD_PROJECT", "CLOUDSDK_CORE_PROJECT"), nil},
	"its own gcloud project leaves out that of Google":   {set("CLOUDSDK_CORE_PROJECT", own), without("GOOGLE_CLOUD_PROJECT", "CLOUDSDK_CORE_PROJECT"), nil},
	"static AWS keys shadow the identity":                {set("AWS_ACCESS_KEY_ID", own) + "," + from("AWS_SECRET_ACCESS_KEY"), without(), []string{`environment_shadowed: container "main": it sets AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, which SDKs may prefer to the injected aws identity`}},
	"an Azure secret shadows the identity":               {set("AZURE_CLIENT_SECRET", own), without(), []string{`environment_shadowed: container "main": it sets AZURE_CLIENT_SECRET,`}},
	"one container sets something of every provider":     {set("AWS_REGION", own) + "," + set("AZURE_FEDERATED_TOKEN_FILE", own) + "," + set("CLOUDSDK_CORE_PROJECT", own) + "," + set("AWS_PROFILE", own), without("AWS_REGION", "AWS_DEFAULT_REGION", "azure", "GOOGLE_CLOUD_PROJECT", "CLOUDSDK_CORE_PROJECT"), []string{"environment_shadowed", "environment_taken"}},
	"everything is its own":                              {set("AWS_WEB_IDENTITY_TOKEN_FILE", own) + "," + set("AZURE_FEDERATED_TOKEN_FILE", own) + "," + set("GOOGLE_APPLICATION_CREDENTIALS", own) + "," + set("LANYARD_TOKEN_FILE", own), nil, []string{"environment_taken", "environment_taken", "environment_taken", "environment_taken"}},
}

func TestVariablesOfTheContainerStay(t *testing.T) {
	t.Parallel()
	for name, test := range environmentCases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pod := `{"spec":{"containers":[{"name":"main","env":[` + test.env + `]}]}}`
			patched, result := createTwice(t, pod, builtin())
			before, after := decode(t, pod).Spec.Containers[0], decode(t, patched).Spec.Containers[0]
			if diff := cmp.Diff(slices.Concat(before.Env, test.added), after.Env); diff != "" {
				t.Errorf("env (-want +got):\n%s", diff)
			}
			// Whatever a container sets, the mount marks it as injected.
			mounts := []mountSpec{{Name: mutate.VolumeName, MountPath: mountPath, ReadOnly: true}}
			if diff := cmp.Diff(mounts, after.VolumeMounts); diff != "" || result.Reason != reason.Injected {
				t.Errorf("got %s, mounts (-want +got):\n%s", result.Reason, diff)
			}
			checkFindings(t, test.finds, result.Findings)
		})
	}
}

// checkFindings compares the start of each finding.
func checkFindings(t *testing.T, want []string, got []mutate.Finding) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("got findings %v, want %q", got, want)
	}
	for i, finding := range got {
		if !strings.HasPrefix(finding.String(), want[i]) {
			t.Errorf("got finding %q, want %q at its start", finding, want[i])
		}
		if strings.Contains(finding.String(), own) {
			t.Errorf("got finding %q, want no value in it", finding)
		}
	}
}

// The variables of one container do not depend on another container.
func TestOneContainersEnvironmentDoesNotConcernAnother(t *testing.T) {
	t.Parallel()
	pod := `{"spec":{"initContainers":[{"name":"i","env":[` + set("AWS_WEB_IDENTITY_TOKEN_FILE", own) + `]}],` +
		`"containers":[{"name":"a"},{"name":"b","env":[` + set("AZURE_FEDERATED_TOKEN_FILE", own) + `]},{"name":"c"}]}}`
	patched, result := createTwice(t, pod, builtin())
	spec := decode(t, patched).Spec
	for i, want := range [][]variableSpec{
		append([]variableSpec{{Name: "AWS_WEB_IDENTITY_TOKEN_FILE", Value: own}}, without("aws")...),
		without(),
		append([]variableSpec{{Name: "AZURE_FEDERATED_TOKEN_FILE", Value: own}}, without("azure")...),
		without(),
	} {
		container := slices.Concat(spec.InitContainers, spec.Containers)[i]
		if diff := cmp.Diff(want, container.Env); diff != "" {
			t.Errorf("env of %s (-want +got):\n%s", container.Name, diff)
		}
	}
	checkFindings(t, []string{`environment_taken: container "i"`, `environment_taken: container "b"`}, result.Findings)
}
