// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package status is the commands status and restart. It counts which pods have the
// credentials that their ServiceAccounts ask for, one namespace at a time, so that the
// memory it needs does not grow with the cluster.
//
//	status.go   counts the pods of a namespace; pure
//	lister.go   reads the objects, and asks for the credentials of new pods
//	command.go  the command status
//	restart.go  the command restart
package status

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lanyard-dev/lanyard/internal/cli/ask"
	"github.com/lanyard-dev/lanyard/internal/cli/cluster"
	"github.com/lanyard-dev/lanyard/internal/injected"
	"github.com/lanyard-dev/lanyard/internal/mutate"
	"github.com/lanyard-dev/lanyard/internal/peer"
	"github.com/lanyard-dev/lanyard/internal/settings"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

// Row is the pods of one workload that use one ServiceAccount. A ServiceAccount
// without pods has one row without a workload.
type Row struct {
	Namespace      string        `json:"namespace"`
	ServiceAccount string        `json:"serviceAccount"`
	Providers      []string      `json:"providers"`
	Guard          cluster.Guard `json:"guard"`
	// Workload is the owner of the pods, such as deployment/cart.
	Workload string `json:"workload,omitempty"`
	// Pods is the number of pods that have not ended, and States has the numbers by state.
	Pods   int                    `json:"pods"`
	States map[injected.State]int `json:"states,omitempty"`
	// Local is why differing pods were compared with a pod that was evaluated here, and not
	// by the cluster; empty if the cluster was asked, or if no pod differs.
	Local string `json:"local,omitempty"`
	// Problem has the reasons why new pods are unknown.
	Problem string `json:"problem,omitempty"`
}

// Outdated returns how many pods must be replaced to get the credentials that their
// ServiceAccount asks for.
func (r *Row) Outdated() int { return r.States[injected.Stale] + r.States[injected.Without] }

// Question identifies the pods of a namespace that get the same credentials.
type Question struct {
	ServiceAccount string
	// Expiration is the pod's annotation token-expiration-seconds.
	Expiration string
	Windows    bool
}

// Answer is the contents of a new pod, or the reason why they are unknown.
type Answer struct {
	// Pod is nil if it is unknown, and Problem is the reason.
	Pod     *injected.Pod
	Problem string
	// Local is the reason why the cluster was not asked, if it should be.
	Local string
	// denial is why no new pod would be created.
	denial *ask.Denial
}

// Namespace collects the objects of one namespace.
type Namespace struct {
	metav1.ObjectMeta
	*settings.Settings
	called   bool
	accounts map[string]*account
	// owners are the objects of the kinds in read.
	owners map[types.UID]owner
	read   map[string]bool
	pods   map[Question][]*pod
}

// account holds the parts of a ServiceAccount that asks for an identity. A large cluster has
// very many.
type account struct {
	providers []string
	guard     cluster.Guard
	label     string   // that the guard selects by
	values    []string // the annotations of Lanyard: keys and values in turn
}

// owner is an object that owns pods, or their owners.
type owner struct {
	name string // as users write it
	// above is the owner of a ReplicaSet or a Job, if any.
	above *metav1.OwnerReference
}

// pod holds the parts of a pod that are kept.
type pod struct {
	name     string
	owner    *metav1.OwnerReference
	injected *injected.Pod
	optedOut bool
}

// NewNamespace returns a namespace without objects. called reports whether Lanyard is
// called for the namespace.
func NewNamespace(s *settings.Settings, meta *metav1.ObjectMeta, called bool) *Namespace {
	return &Namespace{
		ObjectMeta: *meta, Settings: s, called: called,
		accounts: map[string]*account{}, owners: map[types.UID]owner{}, read: map[string]bool{}, pods: map[Question][]*pod{},
	}
}

// AddServiceAccount adds a ServiceAccount if it asks for an identity.
func (n *Namespace) AddServiceAccount(object *metav1.PartialObjectMetadata) {
	values := object.Annotations
	switch {
	case cluster.Unguarded(n.Settings, object):
		values = maps.Clone(values)
		maps.Copy(values, peer.Adopt(n.Settings.Settings, n.Peers, object.Annotations).Set)
	case !n.AskForIdentity(values):
		return
	}
	found := &account{guard: cluster.GuardOf(n.Settings, object, n.called), label: object.Labels[annotations.IdentityLabel]}
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

// ServiceAccount returns the parts of a ServiceAccount that Lanyard reads.
func (n *Namespace) ServiceAccount(name string) *metav1.ObjectMeta {
	found, meta := n.accounts[name], &metav1.ObjectMeta{Name: name, Annotations: map[string]string{}}
	for i := 0; i < len(found.values); i += 2 {
		meta.Annotations[found.values[i]] = found.values[i+1]
	}
	meta.Labels = map[string]string{annotations.IdentityLabel: found.label}
	return meta
}

// Empty reports whether no ServiceAccount asks for an identity, so that nothing else
// of the namespace matters.
func (n *Namespace) Empty() bool { return len(n.accounts) == 0 }

// AddPod adds a pod if it runs, or will, and its ServiceAccount asks for an identity.
func (n *Namespace) AddPod(object *corev1.Pod) {
	name := cmp.Or(object.Spec.ServiceAccountName, cluster.DefaultServiceAccount)
	_, asks := n.accounts[name]
	_, mirror := object.Annotations[annotations.MirrorPod]
	if !asks || mirror || object.Status.Phase == corev1.PodSucceeded || object.Status.Phase == corev1.PodFailed {
		return
	}
	selection, _ := n.ParsePod(object.Annotations, object.Labels[annotations.Inject])
	p := &pod{
		name: object.Name, owner: metav1.GetControllerOf(object), injected: new(injected.Pod),
		optedOut: selection.OptOut || selection.LeftToPeer != "",
	}
	if object.Annotations[annotations.Injected] != "" || len(n.Peers) > 0 {
		var err error
		if p.injected, err = injected.Read(object, n.Settings.Settings); err != nil {
			panic(err) // a typed pod can be encoded, and decoded
		}
	}
	question := Question{
		ServiceAccount: name,
		Expiration:     object.Annotations[annotations.TokenExpirationSeconds],
		Windows:        mutate.IsWindows(string(cmp.Or(object.Spec.OS, new(corev1.PodOS)).Name), object.Spec.NodeSelector),
	}
	n.pods[question] = append(n.pods[question], p)
}

// UnreadOwners returns the kinds of Kubernetes that own the pods, or their owners, and were
// not returned before. The caller adds their objects, and calls UnreadOwners again until it
// returns none.
func (n *Namespace) UnreadOwners() []cluster.Kind {
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
	for _, pods := range n.pods {
		for _, p := range pods {
			add(p.owner)
			if p.owner != nil {
				add(n.owners[p.owner.UID].above)
			}
		}
	}
	return kinds
}

// AddOwner adds an object that owns pods, or their owners.
func (n *Namespace) AddOwner(kind *cluster.Kind, object *metav1.PartialObjectMetadata) {
	o := owner{name: kind.Name(object.Name)}
	if kind.Kind == "ReplicaSet" || kind.Kind == "Job" {
		o.above = metav1.GetControllerOf(object)
	}
	n.owners[object.UID] = o
}

// ownerName returns how users write an owner; empty if it does not exist. Who creates a
// pod writes its references, so a reference to a kind of Kubernetes counts only if an
// object has its UID.
func (n *Namespace) ownerName(reference *metav1.OwnerReference) string {
	if reference == nil {
		return ""
	}
	if found, exists := n.owners[reference.UID]; exists {
		return found.name
	}
	if _, known := cluster.ByName(reference.Kind); known {
		return ""
	}
	return strings.ToLower(reference.Kind) + "/" + reference.Name
}

// workload returns how users write the workload of a pod.
func (n *Namespace) workload(p *pod) string {
	if p.owner == nil {
		return "pod/" + p.name
	}
	return cmp.Or(n.ownerName(n.owners[p.owner.UID].above), n.ownerName(p.owner), "pod/"+p.name)
}

// Questions returns the questions that judge the pods.
func (n *Namespace) Questions() []Question {
	var questions []Question
	for q, pods := range n.pods {
		if n.called && slices.ContainsFunc(pods, func(p *pod) bool { return !p.optedOut }) {
			questions = append(questions, q)
		}
	}
	return questions
}

// Confirms reports whether every pod of a question has the credentials in the answer. The
// pods were made by the webhook, so they confirm an answer that was evaluated here.
func (n *Namespace) Confirms(q Question, answer *Answer) bool {
	return !slices.ContainsFunc(n.pods[q], func(p *pod) bool { return !p.optedOut && n.judge(p, answer) != injected.Current })
}

// judge returns the state of a pod.
func (n *Namespace) judge(p *pod, answer *Answer) injected.State {
	return injected.Judge(p.injected, answer.Pod, n.called, p.optedOut, n.Settings.Settings)
}

// Rows returns the rows, by the names of the ServiceAccounts and the workloads.
func (n *Namespace) Rows(answers map[Question]*Answer) []Row {
	byWorkload := map[[2]string]*Row{}
	unused := maps.Clone(n.accounts)
	for question, pods := range n.pods {
		delete(unused, question.ServiceAccount)
		for _, p := range pods {
			id := [2]string{question.ServiceAccount, n.workload(p)}
			if byWorkload[id] == nil {
				row := n.row(question.ServiceAccount)
				row.Workload, row.States = id[1], map[injected.State]int{}
				byWorkload[id] = &row
			}
			n.count(byWorkload[id], p, cmp.Or(answers[question], new(Answer)))
		}
	}
	var rows []Row
	for name := range unused {
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
	return Row{Namespace: n.Name, ServiceAccount: serviceAccount, Providers: found.providers, Guard: found.guard}
}

// count adds one pod to its row.
func (n *Namespace) count(row *Row, p *pod, answer *Answer) {
	state := n.judge(p, answer)
	row.Pods++
	row.States[state]++
	switch {
	case state == injected.Unknown && !strings.Contains(row.Problem, answer.Problem):
		row.Problem = strings.TrimPrefix(row.Problem+"; "+answer.Problem, "; ")
	case state == injected.Stale || state == injected.Without:
		row.Local = cmp.Or(row.Local, answer.Local)
	}
}
