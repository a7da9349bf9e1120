// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/lanyard-dev/lanyard/test/support/webhook"
)

// The public interface, repeated here. If the demo used the constants of the product,
// it would accept any change of them.
const (
	prefix      = "lanyard.dev/"
	roleARNKey  = prefix + "aws-role-arn"
	injectedKey = prefix + "injected"
	volumeName  = "bound-sa-token"
	mountPath   = "/var/run/secrets/lanyard.dev/serviceaccount"

	defaultLifetime = 3600 // seconds
)

// example is a file of examples/ and its expected result.
type example struct {
	name, title string
	grants      []grant // none: the pod is not changed
	lifetime    int64   // of the tokens, in seconds
	denied      bool

	account *corev1.ServiceAccount
	pod     *corev1.Pod
	without *corev1.Pod // the pod as the API server stores it without Lanyard
}

// grant is the injection that a pod must get from one provider.
type grant struct {
	provider  string
	path      string // of the token, in the volume
	audience  string
	variables map[string]string
}

func (e *example) file() string { return "examples/" + e.name + ".yaml" }

// providers returns the value of the annotation that Lanyard must set on the
// pod.
func (e *example) providers() string {
	var names []string
	for _, g := range e.grants {
		names = append(names, g.provider)
	}
	return strings.Join(names, ",")
}

func awsGrant(role string) grant {
	return grant{"aws", "aws/token", "sts.amazonaws.com", map[string]string{
		"AWS_ROLE_ARN": role, "AWS_WEB_IDENTITY_TOKEN_FILE": mountPath + "/aws/token",
	}}
}

func azureGrant(client, tenant string) grant {
	return grant{"azure", "azure/token", "api://AzureADTokenExchange", map[string]string{
		"AZURE_CLIENT_ID": client, "AZURE_TENANT_ID": tenant, "AZURE_FEDERATED_TOKEN_FILE": mountPath + "/azure/token",
		"AZURE_AUTHORITY_HOST": "https://login.microsoftonline.com/",
	}}
}

func gcpGrant() grant {
	const provider = "https://iam.googleapis.com/projects/123456789012/locations/global/workloadIdentityPools/example-pool/providers/example-cluster"
	return grant{"gcp", "gcp/token", provider, map[string]string{
		"GOOGLE_APPLICATION_CREDENTIALS": mountPath + "/gcp/credentials.json", "GOOGLE_CLOUD_PROJECT": "example-project",
	}}
}

func plainGrant(audience string) grant {
	return grant{"token", "token", audience, map[string]string{"LANYARD_TOKEN_FILE": mountPath + "/token"}}
}

// expectations lists the examples in the order in which they are shown.
func expectations() []*example {
	return []*example{
		{
			name: "aws", title: "an IAM role", lifetime: defaultLifetime,
			grants: []grant{awsGrant("arn:aws:iam::111122223333:role/app")},
		},
		{
			name: "azure", title: "an app registration", lifetime: defaultLifetime,
			grants: []grant{azureGrant("00001111-aaaa-2222-bbbb-3333cccc4444", "contoso.onmicrosoft.com")},
		},
		{
			name: "gcp", title: "workload identity federation", lifetime: defaultLifetime,
			grants: []grant{gcpGrant()},
		},
		{
			name: "three-clouds", title: "all three clouds, in every container", lifetime: defaultLifetime,
			grants: []grant{
				awsGrant("arn:aws:iam::111122223333:role/sync"),
				azureGrant("55556666-cccc-7777-dddd-8888eeee9999", "aaaabbbb-0000-cccc-1111-dddd2222eeee"),
				gcpGrant(),
			},
		},
		{
			name: "audience", title: "a token for any other service that trusts the cluster", lifetime: 7200,
			grants: []grant{plainGrant("vault")},
		},
		{name: "malformed", title: "a role ARN with a missing digit", denied: true},
		{name: "none", title: "a ServiceAccount without annotations"},
	}
}

// named returns the example with the name, which must exist.
func named(examples []*example, name string) *example {
	return examples[slices.IndexFunc(examples, func(e *example) bool { return e.name == name })]
}

// readExamples reads the expected examples from a directory.
func readExamples(dir string) ([]*example, error) {
	examples := expectations()
	for _, e := range examples {
		objects, err := webhook.ReadManifest(filepath.Join(dir, e.name+".yaml"))
		if err != nil {
			return nil, err
		}
		for _, object := range objects {
			switch o := object.(type) {
			case *corev1.ServiceAccount:
				e.account = o
			case *corev1.Pod:
				e.pod = o
			}
		}
		if e.account == nil || e.pod == nil || len(objects) != 2 {
			return nil, fmt.Errorf("%s: want a ServiceAccount and a Pod", e.file())
		}
	}
	return examples, nil
}
