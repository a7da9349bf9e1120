// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package provider_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/pkg/provider"
)

func TestAVariableCanBeTheNameOfThePod(t *testing.T) {
	t.Parallel()
	renderer, err := provider.New(annotations.Options{})
	if err != nil {
		t.Fatal(err)
	}
	injections, errs := renderer.Render(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "app", Annotations: map[string]string{
		annotations.AWSRoleARN: "arn:aws:iam::111122223333:role/app", annotations.AWSSessionName: "pod",
	}}}, false)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	want := corev1.EnvVar{Name: "AWS_ROLE_SESSION_NAME", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.name"}}}
	if diff := cmp.Diff(want, injections[0].Variables[2]); diff != "" {
		t.Errorf("variable (-want +got):\n%s", diff)
	}
}
