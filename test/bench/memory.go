// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// settle is the time from readiness, or from the last update, until the memory is
	// read. Temporary memory is released by then.
	settle = 10 * time.Second
	// accountsPerNamespace is the same for all sizes, as in a growing cluster.
	accountsPerNamespace = 50
	// annotatedEvery is the interval of ServiceAccounts with annotations for
	// three clouds.
	annotatedEvery = 10
	// updatedAccounts is the size of the cluster whose ServiceAccounts are updated.
	updatedAccounts = 20_000
	// writers is the number of concurrent requests to the API server.
	writers = 32
)

// memoryLimits are the targets in MiB by the number of ServiceAccounts.
func memoryLimits() map[int]float64 { return map[int]float64{20_000: 29, 100_000: 60} }

// memory measures the webhook's memory in clusters of different sizes.
func (b *bench) memory(ctx context.Context) (*outcome, error) {
	c, err := b.startCluster(ctx)
	if err != nil {
		return nil, err
	}
	result := b.outcome(c, "%d updates with %d ServiceAccounts", b.updates(), updatedAccounts)
	t := result.table("memory", "ServiceAccounts", "ready after, s", "CPU until then, s",
		"resident", "anonymous", "peak", "resident after updates")
	existing := 0
	for _, accounts := range []int{1_000, 20_000, 100_000} {
		if accounts > min(b.maxAccounts, either(b, 100_000, 20_000)) {
			break
		}
		err := b.each(ctx, (accounts-existing)/accountsPerNamespace, "namespaces created", func(ctx context.Context, i int) error {
			return c.createTeam(ctx, existing/accountsPerNamespace+i)
		})
		if err == nil {
			err = b.each(ctx, accounts-existing, "ServiceAccounts created", func(ctx context.Context, i int) error {
				return c.createNumbered(ctx, existing+i)
			})
		}
		if err != nil {
			return nil, err
		}
		existing = accounts
		if err := b.memoryOf(ctx, c, accounts, result, t); err != nil {
			return nil, err
		}
	}
	return result, nil
}

// memoryOf measures a webhook that starts after the ServiceAccounts were created, and
// adds a row to the table.
func (b *bench) memoryOf(ctx context.Context, c *cluster, accounts int, result *outcome, t *table) error {
	before := len(b.ends)
	s, err := b.startLanyard(ctx, c)
	if err != nil {
		return err
	}
	cpu, err := cpuTime(s.pid)
	if err != nil {
		return err
	}
	idle, err := b.settled(ctx, s)
	if err != nil {
		return err
	}
	row := []any{accounts, s.ready.Seconds(), cpu.Seconds(), mebibytes(idle.RSS), mebibytes(idle.Anon), mebibytes(idle.Peak)}
	if limit, found := memoryLimits()[accounts]; found {
		result.Checks = append(result.Checks, check{
			What: fmt.Sprintf("resident memory, %d ServiceAccounts", accounts),
			Got:  float64(idle.RSS) / 1024, Limit: limit, Format: "%.1f MiB", Detail: mebibytes(idle.Anon) + " anonymous",
		})
	}
	afterwards := ""
	if accounts == updatedAccounts {
		err = b.each(ctx, b.updates(), "updates", func(ctx context.Context, i int) error {
			return c.update(ctx, i%accounts, i/accounts+1)
		})
		if err != nil {
			return err
		}
		updated, err := b.settled(ctx, s)
		if err != nil {
			return err
		}
		afterwards = mebibytes(updated.RSS)
	}
	t.add(append(row, afterwards)...)
	return errors.Join(checkAnnotated(ctx, s, accounts/annotatedEvery), b.end(before))
}

// updates is the number of updates of ServiceAccounts.
func (b *bench) updates() int { return either(b, 50_000, 10_000) }

// checkAnnotated checks that the webhook knows all annotated ServiceAccounts.
func checkAnnotated(ctx context.Context, s *server, want int) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.metrics, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("read metrics: %w", err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return fmt.Errorf("read metrics: %w", err)
	}
	if got := sum(string(text), "lanyard_serviceaccounts", `state="annotated"`); int(got) != want {
		return fmt.Errorf("got %v annotated ServiceAccounts in the webhook's cache, want %d", got, want)
	}
	return nil
}

// settled waits and then reads the memory.
func (b *bench) settled(ctx context.Context, s *server) (memoryUse, error) {
	select {
	case <-ctx.Done():
		return memoryUse{}, ctx.Err()
	case <-time.After(settle):
		return readMemory(s.pid)
	}
}

// each calls do n times, several at once, and prints the progress.
func (b *bench) each(ctx context.Context, n int, what string, do func(ctx context.Context, i int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(writers)
	last := time.Now()
	for i := range n {
		if ctx.Err() != nil {
			break
		}
		if time.Since(last) > 5*time.Second {
			b.printf("memory: %d of %d %s", i, n, what)
			last = time.Now()
		}
		group.Go(func() error { return do(ctx, i) })
	}
	return group.Wait()
}

// numbered returns the namespace and the name of the ServiceAccount with a
// number.
func numbered(i int) (namespace, name string) {
	return fmt.Sprintf("team-%05d", i/accountsPerNamespace), fmt.Sprintf("application-%06d", i)
}

// createNumbered creates the ServiceAccount with a number.
func (c *cluster) createNumbered(ctx context.Context, i int) error {
	namespace, name := numbered(i)
	var annotations map[string]string
	if i%annotatedEvery == 0 {
		annotations = identity(i)
	}
	return c.createAccount(ctx, namespace, name, annotations)
}

// createTeam creates the namespace with a number.
func (c *cluster) createTeam(ctx context.Context, i int) error {
	namespace, _ := numbered(i * accountsPerNamespace)
	_, err := c.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	return err
}

// update changes a ServiceAccount: the identity of an annotated one, and an
// unrelated annotation of all others.
func (c *cluster) update(ctx context.Context, i, revision int) error {
	namespace, name := numbered(i)
	annotations := map[string]string{"example.com/revision": fmt.Sprint(revision)}
	if i%annotatedEvery == 0 {
		annotations = identity(i + revision*1_000_000)
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": annotations}})
	if err != nil {
		return err
	}
	_, err = c.CoreV1().ServiceAccounts(namespace).Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

func mebibytes(kib int) string { return fmt.Sprintf("%.1f MiB", float64(kib)/1024) }
