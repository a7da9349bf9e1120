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

// ManyContainersInDryRun creates pods of 32,000 containers through the API server,
// count times three at once.
func ManyContainersInDryRun(count int) Load {
	containers := strings.TrimSuffix(strings.Repeat(`{"name":"a"},`, 32_000), ",")
	return Load{"pods of 32,000 containers, through the API server", func(ctx context.Context, target *Target, tally *Tally) {
		pod := fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"big"},"spec":{"serviceAccountName":%q,"automountServiceAccountToken":false,"containers":[%s]}}`,
			target.ServiceAccount, containers)
		var creators sync.WaitGroup
		for range 3 {
			creators.Go(func() {
				for range count {
					target.createInDryRun(ctx, tally, "pods", pod)
				}
			})
		}
		creators.Wait()
	}}
}

// LongNamesInDryRun creates count ServiceAccounts with names of 2.9 MB through the
// API server, four at a time. It validates a name only after it has called the
// webhook.
func LongNamesInDryRun(count int) Load {
	// The API server denies a name that starts with an underscore without looking
	// at the rest, which would take it a second.
	name := "_" + strings.Repeat("a", 2_900_000)
	return Load{"ServiceAccounts with names of 2.9 MB, through the API server", func(ctx context.Context, target *Target, tally *Tally) {
		var next atomic.Int64
		var creators sync.WaitGroup
		for range 4 {
			creators.Go(func() {
				for i := next.Add(1); i <= int64(count) && ctx.Err() == nil; i = next.Add(1) {
					target.createInDryRun(ctx, tally, "serviceaccounts",
						fmt.Sprintf(`{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"%s%d","annotations":{"lanyard.dev/audience":"x"}}}`, name, i))
				}
			})
		}
		creators.Wait()
	}}
}

// LongTextsInDryRun creates count pods with a name of 2.9 MB and a mistake through the API
// server, five at once. It validates a name only after it has called the webhook.
func LongTextsInDryRun(count int) Load {
	name := strings.Repeat("\u0080", 1_450_000)
	pod := `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"` + name + `","annotations":{"lanyard.dev/x":""}},` +
		`"spec":{"containers":[{"name":"a","image":"a"}]}}`
	return Load{"pods with names of 2.9 MB and a mistake, through the API server", func(ctx context.Context, target *Target, tally *Tally) {
		var creators sync.WaitGroup
		for range 5 {
			creators.Go(func() {
				for range count {
					target.createInDryRun(ctx, tally, "pods", pod)
				}
			})
		}
		creators.Wait()
	}}
}
