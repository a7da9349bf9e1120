// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lanyard-dev/lanyard/internal/cli/cluster"
	"github.com/lanyard-dev/lanyard/internal/cli/command"
	"github.com/lanyard-dev/lanyard/internal/peer"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/pkg/mutate"
	"github.com/lanyard-dev/lanyard/pkg/mutate/injected"
)

// Row is the pods of one workload that use one ServiceAccount. A ServiceAccount
// without pods has one row without a workload.
type Row struct {
	Namespace      string        `json:"namespace"`
	ServiceAccount string        `json:"serviceAccount"`
	Providers      []string      `json:"providers"`
	Guard          cluster.Guard `json:"guard"`
	// GuardProblem is the problem with the guard, or empty if the ServiceAccount lacks the label or the
	// guard is in place.
	GuardProblem string `json:"-"`
	// Workload is the owner of the pods, such as deployment/cart.
	Workload string `json:"workload,omitempty"`
	// Pods is the number of pods that have not ended, and States contains the numbers by state.
	Pods   int                    `json:"pods"`
	States map[injected.State]int `json:"states,omitempty"`
	// Differences is set for pods that another webhook injected.
	Differences []injected.Difference `json:"differences,omitempty"`
	// Local says why differing pods were compared with a pod that was evaluated here, and not
	// by the cluster. It is empty if the cluster was asked, or if no pod differs.
	Local string `json:"-"`
	// Problem contains the reasons why the credentials of new pods are unknown.
	Problem string `json:"-"`
	// Shadows contains the findings about variables that make SDKs ignore the credentials.
	Shadows []mutate.Finding `json:"-"`
	owner   topOwner
}

// Outdated returns how many pods must be replaced to get the credentials that their
// ServiceAccount asks for.
func (r *Row) Outdated() int { return Outdated(r.States) }

// Namespace collects the objects of one namespace.
type Namespace struct {
	metav1.ObjectMeta
	*annotations.Settings
	guard
	// called reports whether the API server calls Lanyard for the namespace.
	called bool
	// unread reports whether the settings are only the built-in defaults, or the namespace was not
	// read.
	unread bool
	// registration is the webhook configuration, or nil if it was not read.
	registration *admissionregistrationv1.MutatingWebhookConfiguration
	accounts     map[string]*account
	// owners are the objects of the kinds in read.
	owners map[types.UID]owner
	read   map[string]bool
	pods   []*pod
	// injected reports whether injected pods were found, if they were looked for.
	injected bool
	// compiled reports whether policies contain the identities, so ServiceAccounts need not ask for
	// them.
	compiled bool
	// variables are the relevant variables in ConfigMaps that containers use.
	variables configMaps
	// comparers compare the pods of a ServiceAccount, while the pods are read.
	comparers map[string]*injected.Comparer
}

// account contains the parts of a ServiceAccount that are kept, because a large cluster has
// very many.
type account struct {
	// asks reports whether it asks for an identity, or will when Lanyard has adopted it.
	asks      bool
	providers []string
	guard     cluster.Guard // empty if it asks for nothing
	problem   string        // with the guard
	label     string        // that the guard selects by
	values    []string      // the annotations of Lanyard: keys and values in turn
	// unchanged is the result of cluster.UnchangedSince.
	unchanged time.Time
}

// owner is an object that owns pods, or their owners.
type owner struct {
	kind string
	name string // as users write it
	// above is the owner of this owner, if it is a ReplicaSet or a Job.
	above *metav1.OwnerReference
}

// NewNamespace returns a namespace without objects. registration is the webhook configuration, or nil
// if it was not read.
func NewNamespace(s *annotations.Settings, meta *metav1.ObjectMeta, registration *admissionregistrationv1.MutatingWebhookConfiguration) *Namespace {
	return &Namespace{
		ObjectMeta: *meta, Settings: s, called: cluster.CalledFor(registration, s, meta), registration: registration,
		variables: configMaps{}, accounts: map[string]*account{}, owners: map[types.UID]owner{}, read: map[string]bool{}, comparers: map[string]*injected.Comparer{},
	}
}

// calls reports whether the API server calls Lanyard for a pod with these labels, judging by the
// webhook configuration, and whether that is certain.
func (n *Namespace) calls(labels map[string]string) (called, certain bool) {
	selected, certain := cluster.Selects(n.registration, labels)
	return n.called && selected, certain
}

// AddServiceAccount adds a ServiceAccount if it asks for an identity, or has annotations or the
// label of Lanyard, because its pods may have a previous identity.
func (n *Namespace) AddServiceAccount(object *metav1.PartialObjectMetadata) {
	if read := annotations.ServiceAccountObject(object); n.concerns(object) || read.Bytes() > 0 || read.Label != "" {
		n.keep(object)
	}
}

// concerns reports whether a ServiceAccount asks for an identity, or will when Lanyard has adopted it.
func (n *Namespace) concerns(object *metav1.PartialObjectMetadata) bool {
	return cluster.Unguarded(n.Settings, object) || n.AskForIdentity(object.Annotations)
}

// keep adds a ServiceAccount.
func (n *Namespace) keep(object *metav1.PartialObjectMetadata) {
	values := object.Annotations
	if cluster.Unguarded(n.Settings, object) {
		values = maps.Clone(values)
		maps.Copy(values, peer.Adopt(n.Settings, peer.Of(n.Settings), object.Annotations).Set)
	}
	found := &account{
		asks: n.concerns(object), label: object.Labels[annotations.IdentityLabel], providers: []string{},
		unchanged: cluster.UnchangedSince(&object.ObjectMeta),
	}
	if found.asks {
		found.guard, found.problem = n.guardOf(object)
	}
	for _, d := range n.Asked(values) {
		found.providers = append(found.providers, d.Name)
	}
	for key, value := range object.Annotations {
		if strings.HasPrefix(key, annotations.Prefix) {
			found.values = append(found.values, key, value)
		}
	}
	n.accounts[object.Name] = found
}

// guard is what is known about the policies of the guard.
type guard struct {
	// problem is the problem with the guard, or empty if the guard is in place.
	problem string
	// off reports whether the guard was read and denies nothing.
	off bool
	// left are the policies of a removed installation, if nothing is installed.
	left []cluster.Leftover
}

// guardOf returns whether a ServiceAccount is guarded, and the problem with the guard, if any.
func (n *Namespace) guardOf(object *metav1.PartialObjectMetadata) (guarded cluster.Guard, problem string) {
	leftover := slices.ContainsFunc(n.left, func(l cluster.Leftover) bool { return l.DeniesPods }) && cluster.CalledFor(nil, n.Settings, &n.ObjectMeta)
	switch guarded = cluster.GuardOf(n.Settings, object, n.called || leftover); {
	case guarded != cluster.GuardOn:
		return guarded, ""
	case n.off:
		return cluster.GuardOff, n.problem
	}
	return guarded, n.problem
}

// serviceAccount returns the parts of a ServiceAccount that Lanyard reads.
func (n *Namespace) serviceAccount(name string) *metav1.ObjectMeta {
	found, meta := n.accounts[name], &metav1.ObjectMeta{Name: name, Annotations: map[string]string{}}
	for i := 0; i < len(found.values); i += 2 {
		meta.Annotations[found.values[i]] = found.values[i+1]
	}
	meta.Labels = map[string]string{annotations.IdentityLabel: found.label}
	return meta
}

// Empty reports whether no ServiceAccount asks for an identity and no pod was injected, so that
// nothing else of the namespace matters.
func (n *Namespace) Empty() bool {
	for _, found := range n.accounts {
		if found.asks {
			return false
		}
	}
	return !n.injected
}

// FindInjected looks for injected pods in those namespaces of the scope in which no ServiceAccount
// asks for an identity anymore.
func FindInjected(ctx context.Context, c *command.CLI, scope string, namespaces map[string]*Namespace) error {
	unknown := func(n *Namespace) bool { return n.Empty() && !n.compiled }
	if !slices.ContainsFunc(slices.Collect(maps.Values(namespaces)), unknown) {
		return nil
	}
	return c.EachInjectedPod(ctx, scope, func(pod *metav1.PartialObjectMetadata) error {
		if n := namespaces[pod.Namespace]; n != nil {
			n.injected = true
		}
		return nil
	})
}

// addPod adds a pod that has not ended, if its ServiceAccount asks for an identity, or if the pod
// was injected when it did.
func (n *Namespace) addPod(object *corev1.Pod) error {
	name := cmp.Or(object.Spec.ServiceAccountName, cluster.DefaultServiceAccount)
	_, mirror := object.Annotations[annotations.MirrorPod]
	if mirror || object.Status.Phase == corev1.PodSucceeded || object.Status.Phase == corev1.PodFailed {
		return nil
	}
	found := n.accounts[name]
	if (found == nil || !found.asks) && (n.compiled || object.Annotations[annotations.Injected] == "") {
		return nil
	}
	if found == nil {
		n.keep(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name}}) // asks for nothing, or is gone
	}
	object.ManagedFields = nil // which can be large
	p, err := n.newPod(object, name)
	if err != nil {
		return err
	}
	n.pods = append(n.pods, p)
	if !p.Ask && (p.State != injected.Current || len(p.configMaps()) == 0) {
		p.final()
	}
	return nil
}

// final drops what the state of a pod depends on.
func (p *pod) final() { p.running, p.Decision = nil, nil }

// configMaps returns the names of the ConfigMaps that the state of a pod may depend on.
func (p *pod) configMaps() []string {
	if p.running == nil || p.Decision == nil {
		return nil
	}
	names, _, _ := sourcesOf(p.running.text) // which is a pod
	return names
}

// configMaps returns the names of the ConfigMaps that the states of pods depend on.
func (n *Namespace) configMaps() (names []string) {
	for _, p := range n.pods {
		names = append(names, p.configMaps()...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// settle looks for the pods that the variables of ConfigMaps shadow.
func (n *Namespace) settle() error {
	for _, p := range n.pods {
		if p.running == nil {
			continue
		}
		if err := p.shadow(); err != nil {
			return err
		}
		if !p.Ask {
			p.final()
		}
	}
	return nil
}

// choose keeps only the pods of the named objects: pods, their owners, workloads and
// ServiceAccounts, such as deployment/cart.
func (n *Namespace) choose(names []string) {
	n.pods = slices.DeleteFunc(n.pods, func(p *pod) bool {
		return !slices.ContainsFunc(names, func(name string) bool {
			return name == n.workload(p) || name == "pod/"+p.name || name == n.ownerName(p.owner) || name == "serviceaccount/"+p.serviceAccount
		})
	})
	maps.DeleteFunc(n.accounts, func(name string, _ *account) bool {
		used := slices.ContainsFunc(n.pods, func(p *pod) bool { return p.serviceAccount == name })
		return !used && !slices.Contains(names, "serviceaccount/"+name)
	})
}

// unreadOwners returns the kinds of Kubernetes that own the pods, or their owners, and that
// it has not returned before. The caller adds their objects, and calls unreadOwners again
// until it returns none.
func (n *Namespace) unreadOwners() []cluster.Kind {
	var kinds []cluster.Kind
	add := func(reference *metav1.OwnerReference) {
		if reference == nil {
			return
		}
		kind, known := cluster.ByName(reference.Kind)
		if known && !n.read[kind.Kind] && kind.Kind != "Pod" && kind.Kind != "PodTemplate" { // which own no pods
			n.read[kind.Kind] = true
			kinds = append(kinds, kind)
		}
	}
	for _, p := range n.pods {
		add(p.owner)
		if p.owner != nil {
			add(n.owners[p.owner.UID].above)
		}
	}
	return kinds
}

// addOwner adds an object that owns pods, or their owners.
func (n *Namespace) addOwner(kind *cluster.Kind, object *metav1.PartialObjectMetadata) {
	o := owner{kind: kind.Kind, name: kind.Name(object.Name)}
	if kind.Kind == "ReplicaSet" || kind.Kind == "Job" {
		o.above = cluster.ControllerOf(kind.Kind, object)
	}
	n.owners[object.UID] = o
}

// ownerName formats an owner, or returns "" if it does not exist. Users can write owner
// references, so a reference to a kind of Kubernetes counts only if an object has its UID.
func (n *Namespace) ownerName(reference *metav1.OwnerReference) string {
	if reference == nil {
		return ""
	}
	if found, exists := n.owners[reference.UID]; exists && found.kind == reference.Kind {
		return found.name
	}
	if _, known := cluster.ByName(reference.Kind); known {
		return ""
	}
	return cluster.OwnerName(reference)
}

// workload formats the workload of a pod.
func (n *Namespace) workload(p *pod) string {
	if p.owner == nil {
		return "pod/" + p.name
	}
	return cmp.Or(n.ownerName(n.owners[p.owner.UID].above), n.ownerName(p.owner), "pod/"+p.name)
}

// question is a dry run that is needed to find out what a new pod would get. It covers the
// pods of one owner and ServiceAccount that seem to differ from a new pod, or that another
// webhook injected.
type question struct {
	pods []*pod
	// template is the pod of the owner's template, or nil. It shows what the containers set
	// themselves, which a running pod may hide.
	template *unstructured.Unstructured
}

// questions returns the questions that only the API server can answer. Pods whose ServiceAccount asks
// for nothing need none.
func (n *Namespace) questions() []*question {
	type id struct {
		serviceAccount, pod string
		owner               types.UID
	}
	byOwner := map[id]*question{}
	var questions []*question
	for _, p := range n.pods {
		if !p.Ask || p.State == injected.None {
			continue
		}
		key := id{serviceAccount: p.serviceAccount, pod: p.name}
		if p.owner != nil {
			key.pod, key.owner = "", p.owner.UID
		}
		if byOwner[key] == nil {
			byOwner[key] = new(question)
			questions = append(questions, byOwner[key])
		}
		byOwner[key].pods = append(byOwner[key].pods, p)
	}
	return questions
}

// pod returns the pod to send: that of the template, or else the first of the pods as it was created.
func (q *question) pod() (*unstructured.Unstructured, error) {
	if q.template != nil {
		return q.template, nil
	}
	return q.pods[0].original()
}

// answered sets the states of the pods.
func (q *question) answered(answer *Answer) error {
	var fresh *injected.Pod
	if answer.Pod != nil && (answer.Local == "" || q.template != nil) {
		var err error
		if fresh, err = injected.Read(answer.Pod.Object, q.pods[0].running.Settings); err != nil {
			return err
		}
	}
	for _, p := range q.pods {
		if err := p.answered(answer, fresh); err != nil {
			return err
		}
		p.Ask = false
		p.final()
	}
	return nil
}

// Rows returns the rows, by the names of the ServiceAccounts and the workloads.
func (n *Namespace) Rows() []Row {
	byWorkload := map[[2]string]*Row{}
	unused := maps.Clone(n.accounts)
	for _, p := range n.pods {
		delete(unused, p.serviceAccount)
		id := [2]string{p.serviceAccount, n.workload(p)}
		if byWorkload[id] == nil {
			row := n.row(p.serviceAccount)
			row.States = map[injected.State]int{}
			row.setWorkload(id[1])
			byWorkload[id] = &row
		}
		byWorkload[id].count(p)
	}
	var rows []Row
	for name := range unused {
		if !n.accounts[name].asks {
			continue
		}
		rows = append(rows, n.row(name))
	}
	for _, row := range byWorkload {
		rows = append(rows, *row)
	}
	slices.SortFunc(rows, func(a, b Row) int {
		return cmp.Or(strings.Compare(a.ServiceAccount, b.ServiceAccount), strings.Compare(a.Workload, b.Workload))
	})
	return rows
}

// row returns a row without a workload.
func (n *Namespace) row(serviceAccount string) Row {
	found := n.accounts[serviceAccount]
	return Row{Namespace: n.Name, ServiceAccount: serviceAccount, Providers: found.providers, Guard: found.guard, GuardProblem: found.problem}
}

// noGuard returns why the ServiceAccount is not guarded despite the label, or "" if it is or lacks it.
func (r *Row) noGuard() string {
	if r.Guard != cluster.GuardOff {
		return ""
	}
	return r.GuardProblem
}

// setWorkload sets the workload.
func (r *Row) setWorkload(name string) {
	typeName, _, _ := strings.Cut(name, "/")
	kind, _ := cluster.ByName(typeName)
	r.Workload, r.owner = name, topOwner{Name: name, Kind: kind}
}

// replace returns the next step that replaces the outdated pods.
func (r *Row) replace() string {
	if strings.HasPrefix(r.Workload, "pod/") { // its owner may be of a kind that was not read
		return fmt.Sprintf("See: lanyard explain %s --namespace %s", r.Workload, r.Namespace)
	}
	return r.owner.replace(r.Namespace, "")
}

// count adds one pod.
func (r *Row) count(p *pod) {
	r.Pods++
	r.States[p.State]++
	for _, f := range p.Shadows {
		if p.State == Shadowed && !slices.Contains(r.Shadows, f) {
			r.Shadows = append(r.Shadows, f)
		}
	}
	for _, d := range p.Differences {
		if !slices.Contains(r.Differences, d) {
			r.Differences = append(r.Differences, d)
		}
	}
	switch {
	case p.State == injected.Unknown && !strings.Contains(r.Problem, p.Problem):
		r.Problem = strings.TrimPrefix(r.Problem+"; "+p.Problem, "; ")
	case p.State == injected.Stale || p.State == injected.Without:
		r.Local = cmp.Or(r.Local, p.Local)
	}
}
