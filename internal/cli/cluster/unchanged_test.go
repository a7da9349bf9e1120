// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster_test

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lanyard-dev/lanyard/internal/cli/cluster"
)

// Times in the API are in whole seconds, and a replica of the webhook may learn of a write later.
func TestPodsThatWereCreatedWithTheCurrentAnnotations(t *testing.T) {
	t.Parallel()
	const created = 1000
	for sentence, test := range map[string]struct {
		annotated, pod int64 // 0: not known
		want           bool
	}{
		"the annotations are as old as the ServiceAccount, and the pod is younger": {created, created + 1, true},
		"all in one second, in an unknown order":                                   {created, created, false},
		"the pod is older than the ServiceAccount":                                 {created, created - 1, false},
		"the annotations changed, and then the pod was created":                    {created + 100, created + 160, true},
		"the pod was created shortly after the change":                             {created + 100, created + 159, false},
		"the pod is older than the change":                                         {created + 100, created + 99, false},
		"nothing is known of the annotations":                                      {0, created + 1000, false},
	} {
		account := &metav1.ObjectMeta{CreationTimestamp: metav1.Unix(created, 0)}
		if test.annotated != 0 {
			account.ManagedFields = []metav1.ManagedFieldsEntry{
				{Time: &metav1.Time{Time: time.Unix(test.annotated, 0)}, FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:annotations":{"f:lanyard.dev/aws-role-arn":{}}}}`)},
				{Time: &metav1.Time{Time: time.Unix(test.annotated+500, 0)}, FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:annotations":{"f:other":{}}}}`)},
			}
		}
		pod := &metav1.ObjectMeta{CreationTimestamp: metav1.Unix(test.pod, 0)}
		if got := cluster.IsUnchanged(pod, cluster.UnchangedSince(account)); got != test.want {
			t.Errorf("%s: got %t, want %t", sentence, got, test.want)
		}
	}
}
