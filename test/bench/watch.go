// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lanyard-dev/lanyard/test/support/process"
)

// change is a write that a replica learns of only from its watch: of a Namespace, for which
// no webhook is called, or of a ServiceAccount that another replica reviewed.
type change struct {
	name string
	// write and undo change the annotations of the ServiceAccount, or of the Namespace.
	write, undo map[string]any
	namespace   bool
	// known reports whether a pod was created with the new annotations.
	known func(pod *corev1.Pod, err error) bool
}

const (
	watched     = "watched"
	roleKey     = "lanyard.dev/aws-role-arn"
	allowedKey  = "lanyard.dev/allowed-identities"
	earlierRole = "arn:aws:iam::111122223333:role/earlier"
	laterRole   = "arn:aws:iam::111122223333:role/later"
)

func changes() []change {
	hasRole := func(role string) func(*corev1.Pod, error) bool {
		return func(pod *corev1.Pod, err error) bool { return err == nil && roleOf(pod) == role }
	}
	return []change{
		{"another role", map[string]any{roleKey: laterRole}, map[string]any{roleKey: earlierRole}, false, hasRole(laterRole)},
		{"no role any more", map[string]any{roleKey: nil}, map[string]any{roleKey: earlierRole}, false, hasRole("")},
		{"`allowed-identities: \"-\"`", map[string]any{allowedKey: "-"}, map[string]any{allowedKey: nil}, true,
			func(_ *corev1.Pod, err error) bool { return apierrors.IsForbidden(err) }},
	}
}

// roleOf returns the role that the first container of the pod got.
func roleOf(pod *corev1.Pod) string {
	for _, variable := range pod.Spec.Containers[0].Env {
		if variable.Name == "AWS_ROLE_ARN" {
			return variable.Value
		}
	}
	return ""
}

// watch measures how long a replica still uses the previous annotations if it learns of
// a write only from its watch. It writes, and immediately creates pods, one after the
// other.
func (b *bench) watch(ctx context.Context) (*outcome, error) {
	c, lanyard, err := b.startBoth(ctx)
	if err != nil {
		return nil, err
	}
	if err := c.createNamespace(ctx, watched); err != nil {
		return nil, err
	}
	if err := c.createAccount(ctx, watched, "app", map[string]string{roleKey: earlierRole}); err != nil {
		return nil, err
	}
	// Only the pods' webhook is registered, as if another replica got the other reviews.
	if err := c.register(ctx, lanyard.url+podPath, lanyard.ca, isInjected, watched); err != nil {
		return nil, err
	}
	turns := either(b, 1000, 100)
	result := b.outcome(c, "%d writes of each kind, each followed by pods one after the other", turns)
	t := result.table("watch", "Write", "pods in the next request", "as before the write", "until the last such pod, p50, ms", "p99, ms", "most, ms")
	for _, change := range changes() {
		var late []float64
		behind := 0
		for range turns {
			after, err := c.notice(ctx, &change)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", change.name, err)
			}
			if late = append(late, after.Seconds()*1000); after > 0 {
				behind++
			}
		}
		t.add(change.name, turns, behind, quantile(late, 0.5), quantile(late, 0.99), quantile(late, 1))
	}
	return result, nil
}

// notice makes the change, and returns how long afterwards a pod was last created with the previous
// annotations, or 0 if none was. Then it undoes the change.
func (c *cluster) notice(ctx context.Context, change *change) (time.Duration, error) {
	if err := c.annotate(ctx, change.namespace, change.write); err != nil {
		return 0, err
	}
	written, after := time.Now(), time.Duration(0)
	for {
		pod, err := c.dryRun(ctx, watched, newPod("app", 1))
		if change.known(pod, err) {
			break
		}
		if after = time.Since(written); after > patience {
			return 0, errors.Join(fmt.Errorf("the write is not known after %v", patience), err)
		}
	}
	if err := c.annotate(ctx, change.namespace, change.undo); err != nil {
		return 0, err
	}
	return after, process.Until(ctx, "the replica to notice the write", patience, func(ctx context.Context) (bool, error) {
		pod, err := c.dryRun(ctx, watched, newPod("app", 1))
		return err == nil && roleOf(pod) == earlierRole, nil
	})
}

// annotate patches the annotations of the namespace, or of its ServiceAccount.
func (c *cluster) annotate(ctx context.Context, namespace bool, values map[string]any) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": values}})
	if err != nil {
		return err
	}
	if namespace {
		_, err = c.CoreV1().Namespaces().Patch(ctx, watched, types.MergePatchType, patch, metav1.PatchOptions{})
	} else {
		_, err = c.CoreV1().ServiceAccounts(watched).Patch(ctx, "app", types.MergePatchType, patch, metav1.PatchOptions{})
	}
	return err
}
