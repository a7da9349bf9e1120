// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
)

// showPod creates an example's pod, prints the additions and compares them with
// the expected result.
func (d *demo) showPod(ctx context.Context, e *example, r *result) error {
	pod, err := d.cluster.CoreV1().Pods(namespace).Create(ctx, e.pod, metav1.CreateOptions{})
	if err != nil {
		r.fail("the pod was denied: %v", err)
		return ctx.Err()
	}
	added, err := d.showAdditions(e.without, pod, r)
	if err != nil {
		return err
	}
	r.providers = pod.Annotations[injectedKey]
	r.check(r.providers == e.providers(), "annotation %s: got %q, want %q", injectedKey, r.providers, e.providers())
	if len(e.grants) == 0 {
		r.check(len(added) == 0, "got additions to the pod, want none")
		d.printf("  nothing was added\n")
		r.containers, r.outcome = "unchanged", "(nothing added)"
		return nil
	}
	checkContainers(pod, e.grants, r)
	return d.showTokens(ctx, pod, e, r)
}

// showAdditions prints and returns the parts of the second pod that the first pod
// lacks. Nothing else may differ.
func (d *demo) showAdditions(before, after *corev1.Pod, r *result) ([]string, error) {
	old, err := scrub(before)
	if err != nil {
		return nil, err
	}
	stored, err := scrub(after)
	if err != nil {
		return nil, err
	}
	r.failures = append(r.failures, changes("", old, stored)...)
	lines := additions(before, after)
	for _, line := range lines {
		d.printf("%s\n", d.green("+ "+line))
	}
	return lines, nil
}

// checkContainers compares every container with the grants.
func checkContainers(pod *corev1.Pod, grants []grant, r *result) {
	all := containers(pod)
	good := 0
	for i := range all {
		problems := containerProblems(&all[i], grants)
		if len(problems) == 0 {
			good++
		}
		r.failures = append(r.failures, problems...)
	}
	r.containers = fmt.Sprintf("%d of %d", good, len(all))
}

// containerProblems returns the parts of the grants that a container lacks.
func containerProblems(c *corev1.Container, grants []grant) (problems []string) {
	mounted := slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool {
		return m.Name == volumeName && m.MountPath == mountPath && m.ReadOnly && m.SubPath == ""
	})
	if !mounted {
		problems = append(problems, fmt.Sprintf("container %s: want the volume %s, read-only, at %s", c.Name, volumeName, mountPath))
	}
	values := map[string]string{}
	for _, variable := range c.Env {
		values[variable.Name] = variable.Value
	}
	for _, g := range grants {
		for name, want := range sorted(g.variables) {
			if got := values[name]; got != want {
				problems = append(problems, fmt.Sprintf("container %s: %s: got %q, want %q", c.Name, name, got, want))
			}
		}
	}
	return problems
}

// projections returns the token sources of Lanyard's volume.
func projections(pod *corev1.Pod) (tokens []*corev1.ServiceAccountTokenProjection) {
	for _, volume := range pod.Spec.Volumes {
		if volume.Name != volumeName || volume.Projected == nil {
			continue
		}
		for _, source := range volume.Projected.Sources {
			if source.ServiceAccountToken != nil {
				tokens = append(tokens, source.ServiceAccountToken)
			}
		}
	}
	return tokens
}

// showTokens requests every token of the pod's volume as a kubelet would, and
// prints and checks its claims.
func (d *demo) showTokens(ctx context.Context, pod *corev1.Pod, e *example, r *result) error {
	tokens := projections(pod)
	r.check(len(tokens) == len(e.grants), "got %d tokens, want %d", len(tokens), len(e.grants))
	for i, token := range tokens {
		wanted := slices.ContainsFunc(e.grants, func(g grant) bool { return g.path == token.Path && g.audience == token.Audience })
		r.check(wanted, "got an unexpected token %s for the audience %q", token.Path, token.Audience)
		r.check(*token.ExpirationSeconds == e.lifetime, "token %s: got a lifetime of %d s, want %d s", token.Path, *token.ExpirationSeconds, e.lifetime)
		c, err := d.requestToken(ctx, pod, token)
		if err != nil {
			r.fail("%v", err)
			continue
		}
		r.tokens++
		r.failures = append(r.failures, compare(c, pod, token)...)
		if i == 0 { // equal in all tokens, or the check fails
			d.printf("  %s iss %s, sub %s, pod %s\n", d.bold("real tokens:"), c.Issuer, c.Subject, c.Kubernetes.Pod.Name)
		}
		d.printf("    %s: exp %s, aud %s\n", d.bold(token.Path), expires(c), strings.Join(c.Audience, ", "))
	}
	return ctx.Err()
}

// showDenial creates a pod and updates its ServiceAccount. Both must be denied,
// with messages that name the mistake. If Lanyard was installed first, there is no
// such ServiceAccount, and creating it must be denied.
func (d *demo) showDenial(ctx context.Context, e *example, r *result) error {
	r.containers, r.outcome = "denied", "(mistake named)"
	value := e.account.Annotations[roleARNKey]
	account, err := d.cluster.CoreV1().ServiceAccounts(namespace).Get(ctx, e.account.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		_, err = d.cluster.CoreV1().ServiceAccounts(namespace).Create(ctx, e.account, metav1.CreateOptions{})
		d.showMessage("creating the ServiceAccount", err, value, r)
		return ctx.Err()
	}
	if err != nil {
		return err
	}
	_, err = d.cluster.CoreV1().Pods(namespace).Create(ctx, e.pod, metav1.CreateOptions{})
	d.showMessage("creating the pod", err, value, r)
	value += "s" // another role, which is malformed too
	account.Annotations[roleARNKey] = value
	_, err = d.cluster.CoreV1().ServiceAccounts(namespace).Update(ctx, account, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
	d.showMessage("updating the ServiceAccount with another malformed role", err, value, r)
	return ctx.Err()
}

// showMessage prints a denial. It must name the ServiceAccount, the key and the
// value.
func (d *demo) showMessage(what string, err error, value string, r *result) {
	if err == nil {
		r.fail("%s: got no error, want a denial", what)
		return
	}
	d.printf("  %s %s\n", what, d.red("was denied:"))
	for text := range wrap(err.Error(), maxWidth-4) {
		d.printf("    %s\n", text)
	}
	for _, part := range []string{namespace + "/malformed", roleARNKey, value} {
		r.check(strings.Contains(err.Error(), part), "%s: want an error that names %s", what, part)
	}
}

// showDebug adds a container to an existing pod, as kubectl debug does. It must
// get the same identity as the pod's own containers.
func (d *demo) showDebug(ctx context.Context, e *example) (*result, error) {
	r := &result{example: "kubectl debug " + e.name}
	d.headline(r.example, "a container that is added later gets the same identity")
	defer d.problems(r)
	stored, err := d.addDebugger(ctx, e.pod.Name)
	if err != nil {
		r.fail("the container was denied: %v", err)
		return r, ctx.Err()
	}
	container := corev1.Container(stored.Spec.EphemeralContainers[0].EphemeralContainerCommon)
	app := stored.Spec.Containers[0]
	problems := containerProblems(&container, e.grants)
	r.failures = append(r.failures, problems...)
	r.check(reflect.DeepEqual(container.Env, app.Env), "got an environment that differs from container %s, want the same", app.Name)
	if len(r.failures) == 0 {
		d.printf("%s\n", d.green(fmt.Sprintf("+ container %s: the %d variables and the tokens of container %s", container.Name, len(container.Env), app.Name)))
	}
	r.providers, r.containers, r.outcome = stored.Annotations[injectedKey], fmt.Sprintf("%d of 1", 1-min(1, len(problems))), "(same as the app's)"
	return r, nil
}

// addDebugger adds an ephemeral container to a pod and returns the pod. It tries
// again if the kubelet updates the pod at the same time.
func (d *demo) addDebugger(ctx context.Context, name string) (stored *corev1.Pod, err error) {
	pods := d.cluster.CoreV1().Pods(namespace)
	err = retry.RetryOnConflict(retry.DefaultRetry, func() error {
		pod, err := pods.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		pod.Spec.EphemeralContainers = append(pod.Spec.EphemeralContainers, corev1.EphemeralContainer{
			EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debugger", Image: "busybox"},
		})
		stored, err = pods.UpdateEphemeralContainers(ctx, name, pod, metav1.UpdateOptions{})
		return err
	})
	return stored, err
}
