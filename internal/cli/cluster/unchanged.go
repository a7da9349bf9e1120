// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

// Annotated returns when an annotation of Lanyard was last written, according to the managed
// fields, or the zero time if that is unknown.
func Annotated(serviceAccount *metav1.ObjectMeta) (last metav1.Time) {
	fields := fieldpath.MakePathOrDie("metadata", "annotations")
	for _, entry := range serviceAccount.ManagedFields {
		var set fieldpath.Set
		if entry.FieldsV1 == nil || entry.Time == nil || set.FromJSON(entry.FieldsV1.GetRawReader()) != nil {
			continue
		}
		for path := range set.WithPrefix(fields[0]).WithPrefix(fields[1]).All() {
			if name := path[0].FieldName; name != nil && strings.HasPrefix(*name, annotations.Prefix) && last.Before(entry.Time) {
				last = *entry.Time
			}
		}
	}
	return last
}

// settled is longer than a replica of the webhook takes to receive a write.
const settled = time.Minute

// UnchangedSince returns the time after which pods were created with the current annotations
// of the ServiceAccount, or the zero time if that is unknown. Pods created shortly after a
// change may still have the previous identity.
func UnchangedSince(serviceAccount *metav1.ObjectMeta) time.Time {
	last := Annotated(serviceAccount)
	switch {
	case last.IsZero():
		return time.Time{}
	case !last.After(serviceAccount.CreationTimestamp.Time): // it had others for less than a second
		return serviceAccount.CreationTimestamp.Add(time.Second)
	}
	return last.Add(settled)
}

// IsUnchanged reports whether a pod was created with the current annotations of its ServiceAccount.
// since is the result of UnchangedSince.
func IsUnchanged(pod metav1.Object, since time.Time) bool {
	return !since.IsZero() && !pod.GetCreationTimestamp().Time.Before(since)
}
