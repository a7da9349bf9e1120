// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"context"
	"encoding/json"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/resource"

	"github.com/lanyard-dev/lanyard/internal/cli/cluster"
	"github.com/lanyard-dev/lanyard/internal/cli/command"
	"github.com/lanyard-dev/lanyard/internal/finding"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

// explainer reads the objects of an explanation and asks for new pods.
type explainer struct {
	*reader
	mapper meta.RESTMapper
	// info is the object that the user asked about.
	info *resource.Info
}

// explainObject reads the objects, sends the dry runs, and explains the results.
func explainObject(ctx context.Context, c *command.CLI, args []string) (*Explanation, error) {
	// The user may have no right to read the object.
	info, err := c.Object(args)
	if err != nil {
		return nil, err
	}
	if info.Namespace == "" {
		return nil, command.Usagef("%s has no namespace: name a ServiceAccount, a pod or a workload", command.NameOf(info))
	}
	x := &explainer{info: info}
	if x.mapper, err = c.Flags.ToRESTMapper(); err != nil {
		return nil, err
	}
	if x.reader, err = newReader(ctx, c, &query{scope: info.Namespace, names: []string{command.NameOf(info)}}); err != nil {
		return nil, err
	}
	in, err := x.read(ctx)
	if err != nil {
		return nil, err
	}
	x.askFor(ctx, in)
	e := explain(in)
	if e.event, err = x.event(ctx, in, &e.New); err != nil {
		return nil, err
	}
	if e.event != nil {
		e.Findings = append(e.Findings, *e.event)
	}
	if in.Live == nil {
		x.pods(ctx, in, e)
	}
	e.Findings = append(e.Findings, x.missing...)
	return e, nil
}

// read reads the object that the user asked about, and what its pods depend on.
func (x *explainer) read(ctx context.Context) (*input, error) {
	in := &input{Namespace: x.namespaces[x.info.Namespace], Object: command.NameOf(x.info), Installation: x.installation, Named: true}
	isServiceAccount := x.info.Mapping.Resource == command.CoreResource("serviceaccounts")
	if isServiceAccount {
		in.ServiceAccountName, in.Sent = x.info.Name, x.ProbePod(x.info.Name)
		unstructured.RemoveNestedField(in.Sent.Object, "metadata", "labels", annotations.Probe) // as any other pod
	} else if err := x.template(ctx, in); err != nil {
		return nil, err
	}
	if err := x.serviceAccount(ctx, in, isServiceAccount); err != nil {
		return nil, err
	}
	if in.Sent == nil { // a pod is its own template
		live, err := in.live()
		if err != nil {
			return nil, err
		}
		if in.Sent, err = live.original(); err != nil {
			return nil, err
		}
	}
	in.Sent.SetNamespace("")
	if err := x.variables(ctx, in); err != nil {
		return nil, err
	}
	if in.ServiceAccount != nil && !in.asks() {
		x.askers(ctx, in)
	}
	return in, nil
}

// template reads an object that makes pods.
func (x *explainer) template(ctx context.Context, in *input) error {
	object, err := x.get(ctx, x.info.Mapping.Resource, x.info.Namespace, x.info.Name)
	if err != nil {
		return fmt.Errorf("%s in the namespace %s: %w", in.Object, x.info.Namespace, err)
	}
	path, found := cluster.TemplatePath(object)
	if !found {
		return command.Usagef("%s makes no pods: name a ServiceAccount, a pod or a workload such as a deployment", in.Object)
	}
	in.ServiceAccountName = cluster.ServiceAccountOf(object)
	in.Named = in.ServiceAccountName != cluster.DefaultServiceAccount
	template := object
	if len(path) > 0 {
		x.known = &known{object.GetUID(), &in.Answer}
		if in.Owner = topOwnerOf(in.Object, object); !in.Owner.Kind.Restarts {
			var top topOwner
			if _, top, err = x.owner(ctx, object); top.Name != "" {
				in.Owner = top
			}
		}
	} else {
		in.Live = object
		template, in.Owner, err = x.owner(ctx, object)
	}
	if err == nil && template != nil {
		in.Template, err = cluster.PodOf(template)
		in.Sent = in.Template
	}
	return err
}

// serviceAccount reads the ServiceAccount. It must exist if the user asked about it.
func (x *explainer) serviceAccount(ctx context.Context, in *input, asked bool) error {
	object, err := x.typed.CoreV1().ServiceAccounts(x.info.Namespace).Get(ctx, in.ServiceAccountName, metav1.GetOptions{})
	switch {
	case err == nil:
		in.ServiceAccount = &object.ObjectMeta
		x.NoteUnknown(object)
	case apierrors.IsNotFound(err) && !asked:
		in.Absent = true
	case !x.lacks(err, "the identities of the ServiceAccount"):
		return fmt.Errorf("serviceaccount %s/%s: %w", x.info.Namespace, in.ServiceAccountName, err)
	}
	return nil
}

// owner returns the owner of a pod or a workload that has a template, and the owner at the top, if
// there are any. A pod without such an owner is its own template.
func (x *explainer) owner(ctx context.Context, owned *unstructured.Unstructured) (template *unstructured.Unstructured, top topOwner, err error) {
	reference := cluster.ControllerOf(owned.GetKind(), owned)
	for n := 0; reference != nil && n < maxOwners; n++ { // users can write references in a circle
		object, err := x.ownerOf(ctx, reference)
		name := cluster.OwnerName(reference)
		if name == "" || apierrors.IsNotFound(err) || err == nil && object != nil && object.GetUID() != reference.UID {
			break // the reference is wrong, so the owner below is at the top
		}
		if err != nil {
			return nil, top, fmt.Errorf("%s, an owner of %s: %w", name, command.NameOf(x.info), err)
		}
		if object == nil {
			top = topOwner{Name: name}
			top.Kind, _ = cluster.ByOwner(reference)
			break
		}
		top = topOwnerOf(name, object)
		if _, found := cluster.TemplatePath(object); found && template == nil {
			template = object
		}
		reference = cluster.ControllerOf(object.GetKind(), object)
	}
	return template, top, nil
}

// ownerOf reads an owner. It returns nil for an owner without a namespace, such as the node of a
// mirror pod, for a kind that the API server does not know, for a Secret, and if the user may not
// read it.
func (x *explainer) ownerOf(ctx context.Context, reference *metav1.OwnerReference) (*unstructured.Unstructured, error) {
	kind := schema.FromAPIVersionAndKind(reference.APIVersion, reference.Kind)
	mapping, err := x.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil || mapping.Scope.Name() != meta.RESTScopeNameNamespace || mapping.Resource == command.CoreResource("secrets") {
		return nil, nil //nolint:nilerr // who creates a pod writes its references
	}
	object, err := x.get(ctx, mapping.Resource, x.info.Namespace, reference.Name)
	if x.lacks(err, "the workload of the pod") {
		return nil, nil
	}
	return object, err
}

// variables reads the ConfigMaps that containers take variables from, as far as they can be read.
func (x *explainer) variables(ctx context.Context, in *input) error {
	text, err := json.Marshal(in.Sent)
	if err != nil {
		return err
	}
	names, _, _ := sourcesOf(text) // the API server reports what is wrong with the template of a custom kind
	for _, name := range names {
		if err := in.readConfigMap(ctx, x.typed, name); err != nil && !apierrors.IsNotFound(err) && !x.lacks(err, "the variables in the ConfigMap "+name) {
			return fmt.Errorf("configmap %s: %w", name, err)
		}
	}
	return nil
}

// maxAskers is how many ServiceAccounts are enough for a hint, and maxListed how many are read for it.
const (
	maxAskers = 5
	maxListed = 500
)

// askers looks for ServiceAccounts that ask for an identity, in the namespace, and with the same
// name elsewhere. A user who may not list them gets no hint.
func (x *explainer) askers(ctx context.Context, in *input) {
	accounts := x.typed.CoreV1().ServiceAccounts
	if list, err := accounts(x.info.Namespace).List(ctx, metav1.ListOptions{Limit: maxListed}); err == nil {
		for i := range list.Items {
			if len(in.Askers) < maxAskers && in.AskForIdentity(list.Items[i].Annotations) {
				in.Askers = append(in.Askers, list.Items[i].Name)
			}
		}
	}
	if in.ServiceAccountName == cluster.DefaultServiceAccount { // which every namespace has
		return
	}
	if list, err := accounts(metav1.NamespaceAll).List(ctx, metav1.ListOptions{Limit: maxListed, FieldSelector: "metadata.name=" + in.ServiceAccountName}); err == nil {
		for i := range list.Items {
			if len(in.Elsewhere) < maxAskers && in.AskForIdentity(list.Items[i].Annotations) {
				in.Elsewhere = append(in.Elsewhere, list.Items[i].Namespace)
			}
		}
	}
}

// askFor asks for the credentials of a new pod. If the answer of the cluster is inconclusive, it
// asks about a second pod, with the label of the probe.
func (x *explainer) askFor(ctx context.Context, in *input) {
	if in.Absent { // the API server denies the pod
		return
	}
	in.Answer = x.asker.Ask(ctx, &in.Namespace.ObjectMeta, in.ServiceAccount, in.Sent)
	if in.Answer.Missing != "" {
		x.missing = append(x.missing, finding.Finding{
			Status: finding.Skipped, About: aboutDryRun, Reason: finding.MissingRight, Text: aboutDryRun + ": you may not " + in.Answer.Missing,
			Fix: "Ask an administrator to bind the ClusterRole \"edit\" to you in the namespace " + x.info.Namespace + ".",
		})
	}
	if in.Answer.Pod != nil && (in.Answer.Pod.GetAnnotations()[annotations.Injected] != "" || !in.asks()) {
		return
	}
	if in.called && in.Answer.Local == "" && in.Answer.Err == nil {
		answer := x.asker.Ask(ctx, &in.Namespace.ObjectMeta, in.ServiceAccount, x.ProbePod(in.ServiceAccountName))
		in.Probe = &answer
	}
}

// aboutPods are the running pods of a workload or a ServiceAccount.
const aboutPods = "running pods"

// pods adds the running pods of a workload or a ServiceAccount, as status counts them. The rest
// of the explanation does not depend on them.
func (x *explainer) pods(ctx context.Context, in *input, e *Explanation) {
	if in.ServiceAccount == nil && !in.Absent { // there is a finding about the missing right
		return
	}
	in.AddServiceAccount(in.metadata())
	if !in.asks() { // its pods matter only if they were injected when it did
		if err := FindInjected(ctx, x.CLI, in.Name, x.namespaces); err != nil || in.Empty() {
			return
		}
	}
	if in.Absent {
		x.known = nil // no answer was asked for
	}
	rows, err := x.rows(ctx, in.Namespace)
	if err != nil {
		f := finding.Unreadable("the "+aboutPods, err)
		f.About = aboutPods
		e.Findings = append(e.Findings, f)
		return
	}
	result := newStatusResult(&x.query)
	result.add(rows, nil)
	e.addPods(result, in)
}
