// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package abuse

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// createInDryRun sends an object to the API server, which calls the webhook before
// it validates the object.
func (t *Target) createInDryRun(ctx context.Context, tally *Tally, resource, object string) {
	err := t.Client.CoreV1().RESTClient().Post().Namespace(t.Namespace).Resource(resource).Param("dryRun", "All").
		SetHeader("Content-Type", "application/json").Body([]byte(object)).Do(ctx).Error()
	switch {
	case ctx.Err() != nil:
	case err == nil:
		tally.add("objects created in a dry run")
	default:
		tally.add("objects denied: " + string(apierrors.ReasonForError(err)))
	}
}

// inDryRun creates count objects through the API server, atOnce at a time. object
// returns the object with a number.
func inDryRun(name, resource string, atOnce, count int, object func(target *Target, i int) string) Load {
	return Load{name, func(ctx context.Context, target *Target, tally *Tally) {
		var started atomic.Int64
		var creators sync.WaitGroup
		for range atOnce {
			creators.Go(func() {
				for i := int(started.Add(1)); i <= count && ctx.Err() == nil; i = int(started.Add(1)) {
					target.createInDryRun(ctx, tally, resource, object(target, i))
				}
			})
		}
		creators.Wait()
	}}
}

// ManyContainersInDryRun creates pods with 32,000 containers through the API server,
// three at once, and repeats this count times.
func ManyContainersInDryRun(count int) Load {
	containers := strings.TrimSuffix(strings.Repeat(`{"name":"a"},`, 32_000), ",")
	return inDryRun("pods of 32,000 containers, through the API server", "pods", 3, 3*count, func(target *Target, _ int) string {
		return fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"big"},"spec":{"serviceAccountName":%q,"automountServiceAccountToken":false,"containers":[%s]}}`,
			target.ServiceAccount, containers)
	})
}

// LongNamesInDryRun creates count ServiceAccounts with names of 2.9 MB through the
// API server, four at a time. It validates a name only after it has called the
// webhook.
func LongNamesInDryRun(count int) Load {
	// The API server denies a name that starts with an underscore without looking
	// at the rest, which would take it a second.
	name := "_" + strings.Repeat("a", 2_900_000)
	return inDryRun("ServiceAccounts with names of 2.9 MB, through the API server", "serviceaccounts", 4, count, func(_ *Target, i int) string {
		return fmt.Sprintf(`{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"%s%d","annotations":{"lanyard.dev/audience":"x"}}}`, name, i)
	})
}

// LongTextsInDryRun creates pods with a name of 2.9 MB and a mistake through the API server,
// five at once, and repeats this count times. It validates a name only after it has called
// the webhook.
func LongTextsInDryRun(count int) Load {
	pod := `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"` + strings.Repeat("\u0080", 1_450_000) + `","annotations":{"lanyard.dev/x":""}},` +
		`"spec":{"containers":[{"name":"a","image":"a"}]}}`
	return inDryRun("pods with names of 2.9 MB and a mistake, through the API server", "pods", 5, 5*count, func(*Target, int) string { return pod })
}
