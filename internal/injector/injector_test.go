// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package injector_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/lanyard-dev/lanyard/internal/admission"
	"github.com/lanyard-dev/lanyard/internal/injector"
	"github.com/lanyard-dev/lanyard/internal/metadatacache"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/pkg/provider"
)

const (
	role     = "arn:aws:iam::111122223333:role/app"
	clientID = "11111111-2222-3333-4444-555555555555"
	tenantID = "99999999-8888-7777-6666-555555555555"
	pool     = "projects/123456789012/locations/global/workloadIdentityPools/pool/providers/cluster"
	email    = "lanyard-app@my-project.iam.gserviceaccount.com"
)

// threeClouds asks for all three at once.
func threeClouds() map[string]string {
	return map[string]string{
		"lanyard.dev/aws-role-arn": role, "lanyard.dev/aws-region": "eu-central-1",
		"lanyard.dev/azure-client-id": clientID, "lanyard.dev/azure-tenant-id": tenantID,
		"lanyard.dev/gcp-workload-identity-provider": pool, "lanyard.dev/gcp-service-account": email,
	}
}

// objects are a cluster's annotations by namespace/name.
type objects map[string]map[string]string

func (o objects) Get(_ context.Context, namespace, name string) (metadatacache.Object, error) {
	values, found := o[namespace+"/"+name]
	if !found {
		err := apierrors.NewNotFound(schema.GroupResource{Resource: "serviceaccounts"}, name)
		return metadatacache.Object{}, fmt.Errorf("read serviceaccount %s/%s: %w", namespace, name, err)
	}
	return metadatacache.Object{Annotations: values}, nil
}

// broken answers nothing.
type broken struct{ err error }

func (b broken) Get(context.Context, string, string) (metadatacache.Object, error) {
	return metadatacache.Object{}, b.err
}

type decider interface {
	Decide(ctx context.Context, request *admission.Request) admission.Response
}

// counted records the injections.
type counted []string

func (c *counted) RecordInjection(provider string) { *c = append(*c, provider) }

// newPods gives a Pods for a cluster with the account team/app, and a recorder
// of what it injects.
func newPods(tb testing.TB, account map[string]string) (*injector.Pods, *counted) {
	tb.Helper()
	keys, err := annotations.NewKeys(annotations.DefaultPrefix)
	if err != nil {
		tb.Fatal(err)
	}
	recorder := &counted{}
	return &injector.Pods{
		Cluster: injector.Cluster{
			Keys:            &keys,
			Defaults:        &annotations.Defaults{TokenExpirationSeconds: annotations.DefaultTokenExpirationSeconds, ReservedAudiences: []string{"https://kubernetes.default.svc"}},
			Settings:        &provider.Settings{TokenMountPath: provider.DefaultTokenMountPath, AzureAuthorityHost: provider.DefaultAzureAuthorityHost},
			ServiceAccounts: objects{"team/app": account, "team/default": nil},
			Namespaces:      objects{"/team": nil},
		},
		Recorder: recorder,
	}, recorder
}

func create(pod []byte) *admission.Request {
	return &admission.Request{
		UID: "1", Version: "v1", Resource: "pods", Operation: admission.Create, Namespace: "team", Object: pod,
	}
}

func debug(pod, old []byte) *admission.Request {
	return &admission.Request{
		UID: "1", Version: "v1", Resource: "pods", SubResource: injector.EphemeralContainers,
		Operation: admission.Update, Namespace: "team", Object: pod, OldObject: old,
	}
}

// apply gives what the apiserver makes of the pod and the patch.
func apply(tb testing.TB, pod, patch []byte) []byte {
	tb.Helper()
	if patch == nil {
		return pod
	}
	decoded, err := jsonpatch.DecodePatch(patch)
	if err != nil {
		tb.Fatalf("patch %s: %v", patch, err)
	}
	patched, err := decoded.Apply(pod)
	if err != nil {
		tb.Fatalf("apply %s to %s: %v", patch, pod, err)
	}
	return patched
}

func marshal(tb testing.TB, v any) []byte {
	tb.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		tb.Fatal(err)
	}
	return text
}

func unmarshal(tb testing.TB, text []byte) map[string]any {
	tb.Helper()
	var v map[string]any
	if err := json.Unmarshal(text, &v); err != nil {
		tb.Fatalf("%s: %v", text, err)
	}
	return v
}
