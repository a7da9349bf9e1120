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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// showPod creates an example's pod, shows what it was given, and holds it to
// what it has to have.
func (d *demo) showPod(ctx context.Context, e *example, r *result) error {
	pod, err := d.cluster.CoreV1().Pods(namespace).Create(ctx, e.pod, metav1.CreateOptions{})
	if err != nil {
		r.fail("the pod was refused: %v", err)
		return ctx.Err()
	}
	difference, err := d.showAdditions(e.without, pod, r)
	if err != nil {
		return err
	}
	r.providers = pod.Annotations[injectedKey]
	r.check(r.providers == e.providers(), "annotation %s: got %q, want %q", injectedKey, r.providers, e.providers())
	if len(e.grants) == 0 {
		r.check(len(difference) == 0, "got a pod with additions, want none")
		d.printf("  nothing was added\n")
		r.containers, r.outcome = "left alone", "(nothing added)"
		return nil
	}
	checkContainers(pod, e.grants, r)
	return d.showTokens(ctx, pod, e, r)
}

// showAdditions shows what one pod has over the other, and gives it.
func (d *demo) showAdditions(before, after *corev1.Pod, r *result) ([]line, error) {
	old, err := scrub(before)
	if err != nil {
		return nil, err
	}
	stored, err := scrub(after)
	if err != nil {
		return nil, err
	}
	c := compare(old, stored)
	for _, l := range c.lines {
		if l.added {
			d.printf("%s\n", d.green("+ "+l.String()))
		} else {
			d.printf("%s\n", d.dim("  "+l.String()))
		}
	}
	r.failures = append(r.failures, c.violations...)
	return c.lines, nil
}

// checkContainers holds every container to the grants.
func checkContainers(pod *corev1.Pod, grants []grant, r *result) {
	all := slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers)
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

// containerProblems says what a container lacks of the grants.
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

// projections are the tokens that Lanyard's volume projects.
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
// shows and checks who it says that the pod is.
func (d *demo) showTokens(ctx context.Context, pod *corev1.Pod, e *example, r *result) error {
	tokens := projections(pod)
	r.check(len(tokens) == len(e.grants), "got %d tokens, want %d", len(tokens), len(e.grants))
	for i, token := range tokens {
		wanted := slices.ContainsFunc(e.grants, func(g grant) bool { return g.path == token.Path && g.audience == token.Audience })
		r.check(wanted, "got a token %s for the audience %q, want none such", token.Path, token.Audience)
		r.check(*token.ExpirationSeconds == e.lifetime, "token %s: got a lifetime of %d s, want %d s", token.Path, *token.ExpirationSeconds, e.lifetime)
		c, err := d.requestToken(ctx, pod, token)
		if err != nil {
			r.fail("%v", err)
			continue
		}
		r.tokens++
		r.failures = append(r.failures, c.check(pod, token)...)
		if i == 0 { // the rest have the same, or fail the check
			d.printf("  %s iss %s, sub %s, pod %s\n", d.bold("real tokens:"), c.Issuer, c.Subject, c.Kubernetes.Pod.Name)
		}
		d.printf("    %s: exp %s, aud %s\n", d.bold(token.Path), c.expires(), strings.Join(c.Audience, ", "))
	}
	return ctx.Err()
}

// showRefusal creates a pod that has to be refused, and writes its account,
// which has to be refused as well. Each message has to name the mistake.
func (d *demo) showRefusal(ctx context.Context, e *example, r *result) error {
	value := e.account.Annotations[roleARNKey]
	_, err := d.cluster.CoreV1().Pods(namespace).Create(ctx, e.pod, metav1.CreateOptions{})
	d.showMessage("creating the pod", err, value, r)

	account, err := d.cluster.CoreV1().ServiceAccounts(namespace).Get(ctx, e.account.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	value += "s" // another role, in the same account that does not exist
	account.Annotations[roleARNKey] = value
	_, err = d.cluster.CoreV1().ServiceAccounts(namespace).Update(ctx, account, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
	d.showMessage("writing the account with another malformed role", err, value, r)
	r.containers, r.outcome = "refused", "(mistake named)"
	return ctx.Err()
}

// showMessage shows a refusal. It has to name account, key and value.
func (d *demo) showMessage(what string, err error, value string, r *result) {
	if err == nil {
		r.fail("%s: got no refusal, want one", what)
		return
	}
	d.printf("  %s %s\n", what, d.red("was refused:"))
	for text := range wrap(err.Error(), maxWidth-4) {
		d.printf("    %s\n", text)
	}
	for _, part := range []string{namespace + "/malformed", roleARNKey, value} {
		r.check(strings.Contains(err.Error(), part), "%s: want a refusal that names %s", what, part)
	}
}

// showDebug adds a container to a pod that exists, as kubectl debug does. It
// has to have the identity of the pod's own.
func (d *demo) showDebug(ctx context.Context, e *example) (*result, error) {
	r := &result{example: "kubectl debug " + e.name}
	d.headline(r.example, "a container that joins later gets the same identity")
	defer d.problems(r)
	pod, err := d.cluster.CoreV1().Pods(namespace).Get(ctx, e.pod.Name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	pod.Spec.EphemeralContainers = append(pod.Spec.EphemeralContainers, corev1.EphemeralContainer{
		EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debugger", Image: "busybox"},
	})
	stored, err := d.cluster.CoreV1().Pods(namespace).UpdateEphemeralContainers(ctx, pod.Name, pod, metav1.UpdateOptions{})
	if err != nil {
		r.fail("the container was refused: %v", err)
		return r, ctx.Err()
	}
	container := corev1.Container(stored.Spec.EphemeralContainers[0].EphemeralContainerCommon)
	app := stored.Spec.Containers[0]
	problems := containerProblems(&container, e.grants)
	r.failures = append(r.failures, problems...)
	r.check(reflect.DeepEqual(container.Env, app.Env), "got another environment than the container %s has, want the same", app.Name)
	if len(r.failures) == 0 {
		d.printf("%s\n", d.green(fmt.Sprintf("+ container %s: the %d variables and the tokens of container %s", container.Name, len(container.Env), app.Name)))
	}
	r.providers, r.containers, r.outcome = stored.Annotations[injectedKey], fmt.Sprintf("%d of 1", 1-min(1, len(problems))), "(as the pod's own)"
	return r, nil
}
