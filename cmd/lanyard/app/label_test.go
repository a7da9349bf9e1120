// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/pkg/provider"
)

// A ServiceAccount that lost its annotation in the meantime must not be labelled:
// the API server denies a patch of another version.
func TestTheLabelDependsOnTheVersionThatWasRead(t *testing.T) {
	t.Parallel()
	keys, err := annotations.NewKeys("example.com/", provider.Builtin())
	if err != nil {
		t.Fatal(err)
	}
	patch, err := labelPatch(&keys, &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "a", ResourceVersion: "7"}})
	if want := `{"metadata":{"labels":{"example.com/identity":"enabled"},"resourceVersion":"7"}}`; err != nil || string(patch) != want {
		t.Errorf("got %s and %v, want %s", patch, err, want)
	}
}

func TestUnguardedServiceAccounts(t *testing.T) {
	t.Parallel()
	keys, err := annotations.NewKeys(annotations.DefaultPrefix, provider.Builtin())
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		annotations, labels map[string]string
		want                bool
	}{
		"an identity without the label":  {map[string]string{"lanyard.dev/aws-role-arn": "x"}, nil, true},
		"an identity with another value": {map[string]string{"lanyard.dev/aws-role-arn": "x"}, map[string]string{"lanyard.dev/identity": "true"}, true},
		"an identity with the label":     {map[string]string{"lanyard.dev/aws-role-arn": "x"}, map[string]string{"lanyard.dev/identity": "enabled"}, false},
		"no identity":                    {map[string]string{"lanyard.dev/aws-region": "x"}, nil, false},
		"nothing":                        {nil, nil, false},
	} {
		object := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Annotations: test.annotations, Labels: test.labels}}
		if got := unguarded(&keys, object); got != test.want {
			t.Errorf("%s: got %t, want %t", name, got, test.want)
		}
	}
}
