// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package reference

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lanyard-dev/lanyard/internal/provider"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

// meaning is one meaning of a key.
type meaning struct{ value, text string }

// Meanings of the keys, without the prefix, by the object that they are on.
var (
	onServiceAccount = map[string][]meaning{
		"aws-role-arn": {
			{"ARN of an IAM role", "The pods assume this role. Asks for an AWS identity."},
			{"name of an IAM role", "The ARN is `--aws-role-arn-prefix` followed by this name."},
			{"`default`", "The ARN is `--aws-default-role-arn`."},
		},
		"aws-role-arn.PROFILE":           {{"as `lanyard.dev/aws-role-arn`, which must be set too", "An [additional role](../clouds/aws.md#more-than-one-role), which a program selects by the name `PROFILE`. At most 16."}},
		"aws-source-profile.PROFILE":     {{"another profile, or `default`", "Assume the role of `PROFILE` with the credentials of this profile."}},
		"aws-region":                     {{"AWS region", "`AWS_REGION` and `AWS_DEFAULT_REGION`."}},
		"aws-session-name":               {{"`pod`", "The [session](../clouds/aws.md#the-name-of-the-session) is named after the pod, not `SERVICEACCOUNT@NAMESPACE`."}},
		"azure-client-id":                {{"GUID", "The pods act as this application or managed identity. Asks for an Azure identity."}},
		"azure-tenant-id":                {{"GUID or domain", "The tenant of the client."}},
		"gcp-workload-identity-provider": {{"`projects/NUMBER/locations/global/workloadIdentityPools/POOL/providers/PROVIDER`, or `default`", "The pods are principals of this pool. Asks for a Google identity."}},
		"gcp-service-account":            {{"e-mail, or name in the project `--gcp-default-project`", "The pods impersonate this service account. Asks for a Google identity."}},
		"gcp-project":                    {{"project ID", "`GOOGLE_CLOUD_PROJECT`. By default, the project of the service account, or `--gcp-default-project`."}},
		"aws-audience":                   {audienceOfProvider},
		"azure-audience":                 {audienceOfProvider},
		"gcp-audience":                   {audienceOfProvider},
		"audience": {
			{"string, **without** a key of a cloud", "The pods get a plain token with this audience, for any service that trusts the cluster's issuer."},
			{"string, **with** a key of a cloud", "The audience of all tokens, instead of the defaults."},
		},
		"aws-token-path":           {pathOfCopy},
		"azure-token-path":         {pathOfCopy},
		"gcp-token-path":           {pathOfCopy},
		"token-path":               {pathOfCopy},
		"tokens":                   {{"`aws`, `azure`, or both", "The pods get only tokens. Programs configure the role or client ID themselves."}},
		"token-expiration-seconds": {{"600 to 86400", "The lifetime of the tokens. At least 3600 for Azure."}},
		"verify": {
			{"`wait`", "The pods start when [the clouds accept their tokens](../verify.md)."},
			{"`warn`", "Like `wait`, but they start after two minutes anyway."},
		},
	}
	onPod = map[string][]meaning{
		"inject": {{"`\"false\"`", "The pod is not injected. Also works as a label."},
			{"`\"true\"`", "The pod is denied [if it is not injected](../concepts/guard.md#pods-that-insist). Also works as a label."}},
		"containers":               {{"names, separated by commas", "Only these containers get the identity. Includes init, sidecar and ephemeral containers."}},
		"skip-containers":          {{"names, separated by commas", "These containers get neither identity nor token. If none is left, [the guard](../concepts/guard.md) denies the pod."}},
		"token-expiration-seconds": {{"600 to 86400", "Overrides the value of the ServiceAccount."}},
	}
	onNamespace = map[string][]meaning{
		"inject":             {{"label: `disabled` or `\"false\"`", "The pods of the namespace are not injected."}},
		"allowed-identities": {{"annotation: globs, separated by commas; `-` for none", "The identities that ServiceAccounts may ask for: role ARN, client ID, e-mail, name of a workload identity provider, audience of a plain token, `tokens:aws`, `tokens:azure`. Overrides `--default-allowed-identities`."}},
	}
	written = map[string][]meaning{
		"injected":        {{"pod", "The providers whose tokens are in its volume."}},
		"aws-config":      {{"pod", "The AWS config file, if there are profiles."}},
		"gcp-credentials": {{"pod", "The Google credentials file."}},
		"denied":          {{"pod", "Why [policies](../cli/policies.md) deny the pod."}},
		"adopted":         {{"ServiceAccount", "The keys that were [adopted from another webhook](../migrate/adoption.md)."}},
		"identity": {{"ServiceAccount, label", "`enabled` if it asks for an identity: the [guard](../concepts/guard.md) looks for it. If you write `required`, its pods are denied [until it asks for an identity](../identity-later.md)."},
			{"pod, label", "`injected`. The guard checks the mounts of the pod."}},
	}

	// Keys with the same meaning share a row.
	audienceOfProvider = meaning{"string", "The audience of this cloud's token. Overrides `lanyard.dev/audience`."}
	pathOfCopy         = meaning{"absolute path of a file", "Path of a copy of the token (`token-path`: of the plain token). The copy's volume hides the directory, which must be below one of `--token-path-prefixes`."}
)

// keyTable is a table of the given keys. Keys with the same single meaning have one row,
// the place of the first. row returns the cells of one meaning.
func keyTable(columns, keys []string, meanings map[string][]meaning, row func(keys []string, m meaning) []string) (string, error) {
	t := newTable(columns...)
	var names []string
	for _, key := range keys {
		name := strings.TrimPrefix(key, annotations.Prefix)
		names = append(names, name)
		if len(meanings[name]) == 0 {
			return "", fmt.Errorf("there is no text about %s", name)
		}
	}
	for i, name := range names {
		for _, m := range meanings[name] {
			var alike []string
			for k, other := range names {
				if k == i || slices.Contains(meanings[other], m) && len(meanings[other]) == 1 && name != other {
					alike = append(alike, keys[k])
				}
			}
			if alike[0] == keys[i] {
				t.row(row(alike, m)...)
			}
		}
	}
	return t.String(), unused(meanings, names)
}

func simpleRow(keys []string, m meaning) []string {
	return []string{code(strings.Join(keys, "`, `")), m.value, m.text}
}

func serviceAccountAnnotations() (string, error) {
	s, err := annotations.NewSettings(provider.Builtin())
	if err != nil {
		return "", err
	}
	defaults := clusterDefaults(s)
	return keyTable([]string{"Annotation", "Value", "Meaning"}, slices.Concat(s.ServiceAccountKeys(), s.ProfileKeys()), onServiceAccount,
		func(alike []string, m meaning) []string {
			cells := simpleRow(alike, m)
			var flags []string
			for _, key := range alike {
				if flag := defaults[key]; flag != "" {
					flags = append(flags, code(flag))
				}
			}
			// One of several meanings explains the default itself.
			if name := strings.TrimPrefix(alike[0], annotations.Prefix); len(flags) > 0 && len(onServiceAccount[name]) == 1 {
				cells[2] += " Default: " + strings.Join(flags, ", ") + "."
			}
			return cells
		})
}

// clusterDefaults returns the flags that set the default of a key.
func clusterDefaults(s *annotations.Settings) map[string]string {
	flags := map[string]string{annotations.TokenExpirationSeconds: "--token-expiration-seconds"}
	for _, d := range s.Providers {
		if d.Plain() {
			continue
		}
		flags[annotations.Key(d, "audience")] = "--" + d.Name + "-default-audience"
		for i := range d.Parameters {
			if p := &d.Parameters[i]; p.Flag != "" {
				flags[annotations.Key(d, p.Name)] = "--" + p.Flag
			}
		}
	}
	return flags
}

func podAnnotations() (string, error) {
	s, err := annotations.NewSettings(provider.Builtin())
	if err != nil {
		return "", err
	}
	own := s.Marks()
	users := slices.DeleteFunc(s.PodKeys(), func(key string) bool { return slices.Contains(own, key) })
	return keyTable([]string{"Annotation", "Value", "Meaning"}, users, onPod, simpleRow)
}

func namespaceAnnotations() (string, error) {
	return keyTable([]string{"Key", "Value", "Meaning"}, []string{annotations.Inject, annotations.AllowedIdentities}, onNamespace, simpleRow)
}

func writtenAnnotations() (string, error) {
	s, err := annotations.NewSettings(provider.Builtin())
	if err != nil {
		return "", err
	}
	return keyTable([]string{"Key", "On", "Meaning"}, append(s.Marks(), annotations.Adopted, annotations.Denied, annotations.IdentityLabel), written, simpleRow)
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

// variables lists the environment variables of each provider. Marks stand for the rules of
// the page.
func variables() (string, error) {
	t := newTable("Variable", "Value")
	for _, d := range provider.Builtin() {
		for _, v := range d.Variables {
			name, value := code(v.Name), code(v.Value)
			if v.Credential {
				name += "¹"
			}
			if v.Group != "" {
				name += "²"
			}
			if v.Direct && d.Profiles != nil {
				name += "³"
			}
			if v.PodName != "" {
				value += ", or the name of the pod"
			}
			t.row(name, value)
		}
	}
	return t.String(), nil
}

// shadows lists the variables that some SDKs prefer to the injected identity.
func shadows() (string, error) {
	t := newTable("Provider", "Variables")
	for _, d := range provider.Builtin() {
		var names []string
		for _, shadow := range d.Shadows {
			name := code(shadow.Name)
			if unless := strings.Join(shadow.Unless, "`, `"); unless != "" { // an empty value goes without saying
				name += " unless it is " + code(unless)
			}
			names = append(names, name)
		}
		if len(names) > 0 {
			t.row(code(d.Name), strings.Join(names, ", "))
		}
	}
	return t.String(), nil
}
