// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/lanyard-dev/lanyard/internal/annotations"
	"github.com/lanyard-dev/lanyard/internal/cli/check"
	"github.com/lanyard-dev/lanyard/internal/cli/cluster"
	"github.com/lanyard-dev/lanyard/internal/cli/command"
	"github.com/lanyard-dev/lanyard/internal/injected"
	"github.com/lanyard-dev/lanyard/internal/probe"
)

const explainHelp = `explain shows which credentials the pods of an object get, and why: the
ServiceAccount and its identities, each container, the policy of the namespace
and the guard. For a pod, it also shows whether the pod has the credentials
that a new pod would get.

It asks Lanyard itself: it sends the API server a dry run of the pod template.
Nothing is created. The template of a pod is the template of its ReplicaSet,
StatefulSet, DaemonSet or Job. A pod without an owner is its own template,
without Lanyard's additions.

It needs the right to create pods in the namespace. The exit code is 1 if
something must be done, and 0 otherwise, also for a pod that needs no
credentials.`

const explainExamples = `  # Why has this pod no credentials?
  lanyard explain pod cart-0 --namespace shop

  # What would the pods of a ServiceAccount get?
  lanyard explain serviceaccount cart --namespace shop

  # The same for a workload, for scripts
  lanyard explain deployment/cart --namespace shop --output json`

// NewCommand returns the command explain.
func NewCommand(c *command.CLI) *cobra.Command {
	var o command.Output
	cmd := &cobra.Command{
		Use:               "explain TYPE NAME",
		Short:             "Show why pods have credentials, or none.",
		Long:              explainHelp,
		Example:           explainExamples,
		Args:              cobra.RangeArgs(1, 2),
		ValidArgsFunction: c.CompleteReferences,
		RunE: func(cmd *cobra.Command, args []string) error {
			reference, err := command.ParseReference(args)
			if err != nil {
				return err
			}
			explanation, err := explainObject(cmd.Context(), c, reference)
			if err != nil {
				return err
			}
			return command.FoundIf(explanation.Problem(), o.Write(c, &explanationResult{explanation}))
		},
	}
	o.AddFlag(cmd, "Explanation")
	c.AddConfig(cmd)
	return cmd
}

// explainObject reads the objects, sends the dry runs, and explains the results.
func explainObject(ctx context.Context, c *command.CLI, r *command.Reference) (*Explanation, error) {
	defer c.Progress("asking Lanyard")()
	s, err := c.Settings(ctx)
	if err != nil {
		return nil, err
	}
	namespace, err := c.Namespace()
	if err != nil {
		return nil, err
	}
	typed, untyped, err := c.Clients()
	if err != nil {
		return nil, err
	}
	in := &Input{Settings: s, Object: r.String(), Called: true}
	if in.Namespace, err = typed.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{}); err != nil {
		return nil, fmt.Errorf("namespace %s: %w", namespace, err)
	}
	template, err := template(ctx, untyped, namespace, r, in)
	if err != nil {
		return nil, err
	}
	in.ServiceAccount, err = typed.CoreV1().ServiceAccounts(namespace).Get(ctx, in.ServiceAccountName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		in.ServiceAccount = nil
		if r.IsServiceAccount() {
			return nil, fmt.Errorf("serviceaccount %s/%s: %w", namespace, r.Name, err)
		}
	} else if err != nil {
		return nil, fmt.Errorf("serviceaccount %s/%s: %w", namespace, in.ServiceAccountName, err)
	}
	if in.ServiceAccount != nil {
		c.NoteUnknown(in.ServiceAccount)
	}
	if err := registration(ctx, c, typed, in); err != nil {
		return nil, err
	}
	if err := ask(ctx, c, in, template); err != nil {
		return nil, err
	}
	return Explain(in), nil
}

// template returns the pod to send as a dry run, and fills in the name of the
// ServiceAccount and the live pod.
func template(ctx context.Context, client dynamic.Interface, namespace string, r *command.Reference, in *Input) (*unstructured.Unstructured, error) {
	if r.IsServiceAccount() {
		in.ServiceAccountName = r.Name
		pod := probe.Pod(in.Keys, r.Name)
		pod.SetLabels(nil) // as any other pod
		return pod, nil
	}
	object, err := client.Resource(r.Kind.Resource).Namespace(namespace).Get(ctx, r.Name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("%s in the namespace %s: %w", r, namespace, err)
	}
	in.ServiceAccountName = r.Kind.ServiceAccount(object)
	if len(r.Kind.Template) > 0 {
		return r.Kind.Pod(object)
	}
	in.Live = &corev1.Pod{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, in.Live); err != nil {
		return nil, fmt.Errorf("%s: %w", r, err)
	}
	owner := cmp.Or(metav1.GetControllerOf(object), &metav1.OwnerReference{})
	kind, found := cluster.ByOwner(owner)
	if !found || len(kind.Template) == 0 {
		return original(object, in.Keys)
	}
	parent, err := client.Resource(kind.Resource).Namespace(namespace).Get(ctx, owner.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || err == nil && parent.GetUID() != owner.UID {
		return original(object, in.Keys)
	}
	if err != nil {
		return nil, fmt.Errorf("%s, the owner of %s: %w", kind.Name(owner.Name), r, err)
	}
	return kind.Pod(parent)
}

// original returns a running pod as it was before Lanyard changed it, as far as the pod
// shows that.
func original(pod *unstructured.Unstructured, keys *annotations.Keys) (*unstructured.Unstructured, error) {
	pod = pod.DeepCopy()
	if err := injected.Remove(pod.Object, keys); err != nil {
		return nil, err
	}
	name, given, values := pod.GetName(), pod.GetLabels(), pod.GetAnnotations()
	pod.Object["metadata"] = map[string]any{}
	pod.SetGenerateName(name + "-")
	pod.SetLabels(given)
	pod.SetAnnotations(values)
	delete(pod.Object, "status")
	unstructured.RemoveNestedField(pod.Object, "spec", "ephemeralContainers")
	return pod, nil
}

// registration fills in whether Lanyard is called for the namespace, and whether
// the guard is in place. A user without the right to read that gets the answer
// without it.
func registration(ctx context.Context, c *command.CLI, client kubernetes.Interface, in *Input) error {
	api := client.AdmissionregistrationV1()
	mutating, err := c.Installation(ctx, client)
	if apierrors.IsForbidden(err) {
		in.Guard = "unknown: you may not read webhook configurations"
		return nil
	}
	if err != nil {
		return err
	}
	selector, err := cluster.Selector(mutating)
	if err != nil {
		return err
	}
	in.Called = selector.Matches(labels.Set(in.Namespace.Labels))
	policies := &check.Policies{Policies: map[string]*admissionregistrationv1.ValidatingAdmissionPolicy{}}
	name := cluster.GuardPolicy(mutating)
	policy, err := api.ValidatingAdmissionPolicies().Get(ctx, name, metav1.GetOptions{})
	if err == nil {
		policies.Policies[name] = policy
		bindings, errBindings := api.ValidatingAdmissionPolicyBindings().List(ctx, metav1.ListOptions{})
		if err = errBindings; err == nil {
			policies.Bindings = bindings.Items
		}
	}
	if err != nil && !apierrors.IsNotFound(err) {
		in.Guard = "unknown: " + err.Error()
		return nil
	}
	in.Guard = policies.Denies(name)
	return nil
}

// ask sends a dry run. If the result is inconclusive, it sends a second dry run with the
// label of the probe.
func ask(ctx context.Context, c *command.CLI, in *Input, pod *unstructured.Unstructured) error {
	client, err := c.Probe()
	if err != nil {
		return err
	}
	pod.SetNamespace("")
	in.Sent, in.Got = &corev1.Pod{}, &corev1.Pod{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(pod.Object, in.Sent); err != nil {
		return fmt.Errorf("pod template of %s: %w", in.Object, err)
	}
	if in.ServiceAccount == nil {
		return nil // the API server denies the pod
	}
	answer := client.Create(ctx, in.Namespace.Name, pod)
	in.Warnings, in.Err = answer.Warnings, answer.Err
	if answer.Err == nil {
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(answer.Pod.Object, in.Got); err != nil {
			return fmt.Errorf("dry run of %s: %w", in.Object, err)
		}
		if in.Got.Annotations[in.Keys.Injected] != "" || !in.Keys.AskForIdentity(in.ServiceAccount.Annotations) {
			return nil
		}
	}
	if in.Called {
		in.ProbeErr = client.Create(ctx, in.Namespace.Name, probe.Pod(in.Keys, in.ServiceAccountName)).Err
	}
	return nil
}

// explanationResult is an explanation that can be printed.
type explanationResult struct{ *Explanation }

// Print implements command.Result.
func (r *explanationResult) Print(p *command.Page) {
	p.Line("%s in namespace %s", p.Style(command.Title, r.Object), r.Namespace)
	p.Line("")
	p.Table(2, r.rows())
	printFix(p, r.ServiceAccount.Fix)
	p.Line("")
	style := map[Outcome]string{Injected: command.Good, Without: command.Warn, Denied: command.Bad}[r.New.Outcome]
	if r.New.Outcome == Without && r.New.Fix == "" {
		style = ""
	}
	word := strings.ReplaceAll(string(r.New.Outcome), "-", " ")
	if r.New.Reason != "" && string(r.New.Reason) != word {
		word += " (" + string(r.New.Reason) + ")"
	}
	p.Line("new pods: %s", p.Style(style, word))
	printPod(p, r.New.Why, r.New.Containers, r.New.Fix)
	if l := r.Live; l != nil {
		p.Line("")
		style := map[injected.State]string{injected.Current: command.Good, injected.Stale: command.Bad, injected.Without: command.Bad}[l.State]
		p.Line("this pod: %s", p.Style(style, strings.ReplaceAll(string(l.State), "-", " ")))
		printPod(p, l.Why+"; created "+l.Created, l.Containers, l.Fix)
	}
}

// rows describes the ServiceAccount, the policy of the namespace and the guard.
func (r *explanationResult) rows() [][]string {
	account := r.Namespace + "/" + r.ServiceAccount.Name
	switch {
	case !r.ServiceAccount.Exists:
		account += ", which does not exist"
	case len(r.ServiceAccount.Identities) == 0:
		account += ", which asks for no identity"
	case !r.ServiceAccount.Guarded:
		account += ", which lacks the guard's label"
	}
	rows := [][]string{{"ServiceAccount", account}}
	for _, identity := range r.ServiceAccount.Identities {
		name := identity.Provider
		if identity.Profile != "" {
			name += ", profile " + identity.Profile
		}
		rows = append(rows, []string{"  " + name, identity.Name})
	}
	if r.ServiceAccount.Annotated != "" {
		rows = append(rows, []string{"  last annotated", r.ServiceAccount.Annotated})
	}
	policy := cmp.Or(r.AllowedIdentities, "the cluster's default")
	return append(rows, []string{"allowed identities", policy}, []string{"guard", r.Guard})
}

func printFix(p *command.Page, fix string) {
	if fix != "" {
		p.Text(2, command.Title, "-> "+fix)
	}
}

// printPod writes the outcome for a pod: the reason, the containers and the fix.
func printPod(p *command.Page, why string, containers []Container, fix string) {
	p.Text(2, "", why)
	var rows [][]string
	for _, c := range containers {
		row := []string{c.Name, c.Type, "no", cmp.Or(strings.Join(c.Providers, ", "), "none"), ""}
		if c.Token {
			row[2] = "yes"
		}
		if len(c.Reasons) > 0 {
			row[4] = string(c.Reasons[0].Reason)
		}
		rows = append(rows, row)
	}
	if len(rows) > 0 {
		p.Table(2, append([][]string{{"CONTAINER", "TYPE", "TOKEN", "CREDENTIALS", "WHY"}}, rows...))
	}
	for _, c := range containers {
		for _, r := range c.Reasons {
			p.Text(4, command.Faint, fmt.Sprintf("%s: %s: %s", c.Name, r.Reason, r.Detail))
		}
	}
	printFix(p, fix)
}
