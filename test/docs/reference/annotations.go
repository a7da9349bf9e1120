// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package reference

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lanyard-dev/lanyard/internal/annotations"
	"github.com/lanyard-dev/lanyard/internal/provider"
)

// meaning is one meaning of a key.
type meaning struct{ value, text string }

// Meanings of the keys, without the prefix, by the object that they are on.
var (
	onServiceAccount = map[string][]meaning{
		"aws-role-arn": {
			{"ARN of an IAM role", "The pods assume this role. Asks for an AWS identity."},
			{"name of an IAM role, with or without a path", "The ARN is `--aws-role-arn-prefix` followed by this name."},
			{"`default`", "The role of the cluster, which may have the names of the namespace and the ServiceAccount."},
		},
		"aws-role-arn.PROFILE":           {{"the same as `lanyard.dev/aws-role-arn`, which must be set too", "One [more role](../clouds/aws.md#more-than-one-role), which a program selects by the name that you write for `PROFILE`. At most 16."}},
		"aws-source-profile.PROFILE":     {{"name of another profile, or `default`", "Assume the role of `PROFILE` with the credentials of this profile, and not with the token. `default` is the role of `lanyard.dev/aws-role-arn`."}},
		"aws-region":                     {{"AWS region", "The variables `AWS_REGION` and `AWS_DEFAULT_REGION`. If neither this nor the default is set, pods get no region."}},
		"aws-session-name":               {{"`pod`", "The [name of the AWS session](../clouds/aws.md#the-name-of-the-session) is the name of the pod. By default, it is `SERVICEACCOUNT@NAMESPACE`."}},
		"azure-client-id":                {{"GUID", "The pods act as this application or managed identity. Asks for an Azure identity."}},
		"azure-tenant-id":                {{"GUID or domain", "The tenant of the client. Required if the cluster has no default."}},
		"gcp-workload-identity-provider": {{"`projects/NUMBER/locations/global/workloadIdentityPools/POOL/providers/PROVIDER`, or `default`", "The pods are principals of this pool. `default` is the cluster's default. Asks for a Google identity."}},
		"gcp-service-account":            {{"e-mail of a service account", "The pods impersonate this service account. Without it, they act as the principal itself. Asks for a Google identity."}, {"name of a service account", "The service account of this name in the project `--gcp-default-project`."}},
		"gcp-project":                    {{"project ID", "The variable `GOOGLE_CLOUD_PROJECT`. By default, the project of the service account, or `--gcp-default-project`."}},
		"aws-audience":                   {{"string", "The audience of the AWS token. Overrides `lanyard.dev/audience`."}},
		"azure-audience":                 {{"string", "The audience of the Azure token. Overrides `lanyard.dev/audience`."}},
		"gcp-audience":                   {{"string", "The audience of the Google token. Overrides `lanyard.dev/audience`."}},
		"audience": {
			{"string, **without** a key of a cloud", "The pods get a plain token with this audience, for anything that trusts the cluster's issuer. Example: `lanyard.dev/audience: vault`."},
			{"string, **with** a key of a cloud", "The audience of all tokens of this ServiceAccount, in place of the default of each cloud. Example: `lanyard.dev/audience: my-cluster`."},
		},
		"aws-token-path":           {{"absolute path of a file", "One more copy of the AWS token, for programs that have this path in their settings. Its directory is mounted as a volume of its own. The directory must be below `/var/run/secrets/` or `/run/secrets/`, or below another directory of `--token-path-prefixes`."}},
		"azure-token-path":         {{"absolute path of a file", "The same for Azure."}},
		"gcp-token-path":           {{"absolute path of a file", "The same for Google."}},
		"tokens":                   {{"`aws`, `azure`, or both with a comma", "The pods get the token, and the variables that point to it, but no role and no client ID: for programs that bring their own. `allowed-identities` must allow `tokens:aws` or `tokens:azure`."}},
		"token-expiration-seconds": {{"600 to 86400", "The lifetime of the tokens. At least 3600 with an Azure identity."}},
	}
	onPod = map[string][]meaning{
		"inject": {{"`\"false\"`", "The pod is not injected. Also works as a label."},
			{"`\"true\"`", "The pod is denied [if it is not injected](../concepts/guard.md#pods-that-insist), in every namespace. Also works as a label."}},
		"containers":               {{"names, separated by commas", "Only these containers get the identity. Any kind of container counts: init, sidecar, ephemeral."}},
		"skip-containers":          {{"names, separated by commas", "These containers do not get the identity, nor the token."}},
		"token-expiration-seconds": {{"600 to 86400", "Overrides the value of the ServiceAccount."}},
	}
	onNamespace = map[string][]meaning{
		"inject":             {{"label: `disabled` or `\"false\"`", "The pods of the namespace are not injected."}},
		"allowed-identities": {{"annotation: globs, separated by commas; `-` for none", "The identities that ServiceAccounts of the namespace may ask for: role ARN, client ID, e-mail, name of a workload identity provider, audience of a plain token, `tokens:aws`, `tokens:azure`. Overrides `--default-allowed-identities`."}},
	}
	written = map[string][]meaning{
		"injected":        {{"pod", "The providers whose tokens are in the pod's volume, such as `aws,gcp`."}},
		"aws-config":      {{"pod", "The content of the AWS config file, if the ServiceAccount has profiles."}},
		"gcp-credentials": {{"pod", "The content of the Google credentials file."}},
		"denied":          {{"pod", "Why the pod is denied. The policies of [lanyard policies](../cli/policies.md) write it, and no pod is stored with it."}},
		"adopted":         {{"ServiceAccount", "The keys that were [translated from another program's annotations](../migrate/adoption.md), and follow them."}},
		"identity": {{"ServiceAccount, as a label", "`enabled` if the ServiceAccount asks for an identity. The [guard](../concepts/guard.md) selects by it. You can write it yourself."},
			{"ServiceAccount, as a label", "`required` if you write it: pods of this ServiceAccount are denied [until it asks for an identity](../identity-later.md). Lanyard never changes it."},
			{"pod, as a label", "`injected` on an injected pod. The guard checks its mounts, and does not search for its ServiceAccount."}},
	}
)

func newKeys() (annotations.Keys, error) {
	return annotations.NewKeys(annotations.DefaultPrefix, provider.Builtin())
}

// keyTable is a table of the given keys. row returns the cells of one meaning.
func keyTable(columns, keys []string, meanings map[string][]meaning, row func(key string, m meaning) []string) (string, error) {
	t := newTable(columns...)
	var names []string
	for _, key := range keys {
		name := strings.TrimPrefix(key, annotations.DefaultPrefix)
		names = append(names, name)
		if len(meanings[name]) == 0 {
			return "", fmt.Errorf("there is no text about %s", name)
		}
		for _, m := range meanings[name] {
			t.row(row(key, m)...)
		}
	}
	return t.String(), unused(meanings, names)
}

func simpleRow(key string, m meaning) []string { return []string{code(key), m.value, m.text} }

func serviceAccountAnnotations() (string, error) {
	keys, err := newKeys()
	if err != nil {
		return "", err
	}
	defaults := clusterDefaults(&keys)
	return keyTable([]string{"Annotation", "Value", "Meaning", "Default of the cluster"}, slices.Concat(keys.ServiceAccount(), keys.Profiles()), onServiceAccount,
		func(key string, m meaning) []string {
			flag := defaults[key]
			if flag != "" {
				flag = code(flag)
			}
			return append(simpleRow(key, m), flag)
		})
}

// clusterDefaults returns the flags that set the default of a key.
func clusterDefaults(keys *annotations.Keys) map[string]string {
	flags := map[string]string{keys.TokenExpirationSeconds: "--token-expiration-seconds"}
	for _, d := range keys.Providers {
		if d.Plain() {
			continue
		}
		flags[keys.ProviderAudience(d)] = "--" + d.Name + "-default-audience"
		for i := range d.Parameters {
			if p := &d.Parameters[i]; p.Flag != "" {
				flags[keys.Parameter(d, p.Name)] = "--" + p.Flag
			}
		}
	}
	return flags
}

func podAnnotations() (string, error) {
	keys, err := newKeys()
	if err != nil {
		return "", err
	}
	own := keys.Marks()
	users := slices.DeleteFunc(keys.Pod(), func(key string) bool { return slices.Contains(own, key) })
	return keyTable([]string{"Annotation", "Value", "Meaning"}, users, onPod, simpleRow)
}

func namespaceAnnotations() (string, error) {
	keys, err := newKeys()
	if err != nil {
		return "", err
	}
	return keyTable([]string{"Key", "Value", "Meaning"}, []string{keys.Inject, keys.AllowedIdentities}, onNamespace, simpleRow)
}

func writtenAnnotations() (string, error) {
	keys, err := newKeys()
	if err != nil {
		return "", err
	}
	return keyTable([]string{"Key", "On", "Meaning"}, append(keys.Marks(), keys.Adopted, keys.Denied, keys.IdentityLabel), written, simpleRow)
}

// tokens lists the files of each provider.
func tokens() (string, error) {
	t := newTable("Provider", "Files in the volume", "Default audience", "Shortest lifetime, seconds")
	for _, d := range provider.Builtin() {
		files := code(d.TokenPath)
		if d.CredentialFile != nil {
			files += ", " + code(d.CredentialFile.Path)
		}
		if d.Profiles != nil {
			files += " with profiles"
		}
		audience := "`lanyard.dev/audience`"
		if d.DefaultAudience != "" {
			audience = code(d.DefaultAudience)
		}
		t.row(code(d.Name), files, audience, fmt.Sprint(max(d.MinExpirationSeconds, annotations.MinTokenExpirationSeconds)))
	}
	return t.String(), nil
}

// variables lists the environment variables of each provider.
func variables() (string, error) {
	t := newTable("Provider", "Variable", "Value", "If a container sets it")
	for _, d := range provider.Builtin() {
		for _, v := range d.Variables {
			rule := "its value stays"
			switch {
			case v.Credential:
				rule = "it gets none of the variables of this provider"
			case v.Group != "":
				rule = "its value stays, and it does not get the other " + v.Group + " variable"
			}
			value := code(v.Value)
			if v.PodName != "" {
				value += ", or the name of the pod with `lanyard.dev/" + d.Key(v.PodName) + ": pod`"
			}
			if v.Direct && d.Profiles != nil {
				rule += ". With profiles, a container that sets " + code(d.Profiles.Selector) + " does not get it"
			}
			t.row(code(d.Name), code(v.Name), value, rule)
		}
	}
	return t.String(), nil
}

// shadows lists the variables that some SDKs prefer to the injected identity.
func shadows() (string, error) {
	t := newTable("Provider", "Variables")
	for _, d := range provider.Builtin() {
		if len(d.Shadows) > 0 {
			t.row(code(d.Name), code(strings.Join(d.Shadows, "`, `")))
		}
	}
	return t.String(), nil
}
