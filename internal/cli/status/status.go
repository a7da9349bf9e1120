// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package status counts which pods have the credentials that their ServiceAccounts
// ask for. It is pure, and works on one namespace at a time, so that the memory it
// needs does not grow with the cluster.
package status

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lanyard-dev/lanyard/internal/annotations"
	"github.com/lanyard-dev/lanyard/internal/cli/cluster"
	"github.com/lanyard-dev/lanyard/internal/injected"
	"github.com/lanyard-dev/lanyard/internal/mutate"
	"github.com/lanyard-dev/lanyard/internal/peer"
	"github.com/lanyard-dev/lanyard/internal/settings"
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
	Counts
	// Problem has the reasons why new pods are unknown.
	Problem string `json:"problem,omitempty"`
}

// Counts are numbers of running pods.
type Counts struct {
	Pods int `json:"pods"`
	// Current have the credentials that a new pod gets.
	Current int `json:"current"`
	// Stale have an identity that their ServiceAccount had before.
	Stale int `json:"stale"`
	// Without have no credentials, and a new pod gets some.
	Without int `json:"withoutCredentials"`
	// OptedOut ask for no credentials.
	OptedOut int `json:"optedOut"`
	// Unknown cannot be compared with a new pod.
	Unknown int `json:"unknown"`
}

// Outdated reports whether pods must be replaced to get the credentials that their
// ServiceAccount asks for.
func (r *Row) Outdated() bool { return r.Guard != cluster.GuardExcluded && r.Stale+r.Without > 0 }

// Question identifies the pods of a namespace that get the same credentials.
type Question struct {
	ServiceAccount string
	// Expiration is the pod's annotation token-expiration-seconds.
	Expiration string
	Windows    bool
}

// Answer is the contents of a new pod, or the reason why they are unknown.
type Answer struct {
	Pod     injected.Pod
	Problem string
}

// Namespace collects the objects of one namespace.
type Namespace struct {
	Name string

	*settings.Settings
	called bool
	// accounts has a row without a workload for each ServiceAccount that asks for an
	// identity.
	accounts map[string]Row
	owners   map[types.UID]owner
	pods     []pod
}

// owner is an object that owns pods, or their owners.
type owner struct {
	name string // as users write it
	// above is the owner of a ReplicaSet or a Job, if any.
	above *metav1.OwnerReference
}

// pod holds the parts of a pod that are kept.
type pod struct {
	owner    string
	injected *injected.Pod
	question Question
	optedOut bool
}

// NewNamespace returns an empty namespace. called reports whether Lanyard is called for
// the namespace.
func NewNamespace(s *settings.Settings, name string, called bool) *Namespace {
	return &Namespace{Name: name, Settings: s, called: called, accounts: map[string]Row{}, owners: map[types.UID]owner{}}
}

// AddServiceAccount adds a ServiceAccount if it asks for an identity.
func (n *Namespace) AddServiceAccount(object *metav1.PartialObjectMetadata) {
	row := Row{Namespace: n.Name, ServiceAccount: object.Name, Guard: cluster.GuardOf(n.Settings, object, n.called)}
	values := object.Annotations
	switch {
	case cluster.Unguarded(n.Settings, object):
		values = maps.Clone(values)
		maps.Copy(values, peer.Adopt(n.Keys, n.Peers, object.Annotations, n.Defaults).Set)
	case !n.Keys.AskForIdentity(values):
		return
	}
	for _, d := range n.Keys.Asked(values) {
		row.Providers = append(row.Providers, d.Name)
	}
	n.accounts[object.Name] = row
}

// Empty reports whether no ServiceAccount asks for an identity, so that nothing else
// of the namespace matters.
func (n *Namespace) Empty() bool { return len(n.accounts) == 0 }

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

// AddPod adds a pod if it runs, or will, and its ServiceAccount asks for an identity.
func (n *Namespace) AddPod(object *corev1.Pod) {
	name := cmp.Or(object.Spec.ServiceAccountName, cluster.DefaultServiceAccount)
	_, asks := n.accounts[name]
	_, mirror := object.Annotations[annotations.MirrorPodKey]
	if !asks || mirror || object.Status.Phase == corev1.PodSucceeded || object.Status.Phase == corev1.PodFailed {
		return
	}
	p := pod{
		owner:    "pod/" + object.Name,
		injected: new(injected.Pod),
		optedOut: object.Annotations[n.Keys.Inject] == annotations.OptOut || object.Labels[n.Keys.Inject] == annotations.OptOut,
		question: Question{
			ServiceAccount: name,
			Expiration:     object.Annotations[n.Keys.TokenExpirationSeconds],
			Windows:        mutate.IsWindows(string(cmp.Or(object.Spec.OS, new(corev1.PodOS)).Name), object.Spec.NodeSelector),
		},
	}
	if object.Annotations[n.Keys.Injected] != "" {
		var err error
		if p.injected, err = injected.Read(object, n.Keys); err != nil {
			panic(err) // a typed pod can be encoded, and decoded
		}
	}
	if reference := metav1.GetControllerOf(object); reference != nil {
		p.owner = cmp.Or(n.ownerName(n.owners[reference.UID].above), n.ownerName(reference), p.owner)
	}
	n.pods = append(n.pods, p)
}

// Questions returns the questions that judge the pods, with empty answers.
func (n *Namespace) Questions() map[Question]*Answer {
	questions := map[Question]*Answer{}
	for i := range n.pods {
		if p := &n.pods[i]; n.called && !p.optedOut {
			questions[p.question] = new(Answer)
		}
	}
	return questions
}

// Rows returns the rows, by the names of the ServiceAccounts and the workloads.
func (n *Namespace) Rows(answers map[Question]*Answer) []Row {
	byWorkload := map[[2]string]*Row{}
	unused := maps.Clone(n.accounts)
	for i := range n.pods {
		p := &n.pods[i]
		name := p.question.ServiceAccount
		delete(unused, name)
		row := byWorkload[[2]string{name, p.owner}]
		if row == nil {
			row = new(n.accounts[name])
			row.Workload = p.owner
			byWorkload[[2]string{name, p.owner}] = row
		}
		n.count(row, p, cmp.Or(answers[p.question], new(Answer)))
	}
	rows := slices.Collect(maps.Values(unused))
	for _, row := range byWorkload {
		rows = append(rows, *row)
	}
	slices.SortFunc(rows, func(a, b Row) int {
		return cmp.Or(strings.Compare(a.ServiceAccount, b.ServiceAccount), strings.Compare(a.Workload, b.Workload))
	})
	return rows
}

// count adds one pod to its row.
func (n *Namespace) count(row *Row, p *pod, answer *Answer) {
	row.Pods++
	switch {
	case p.optedOut:
		row.OptedOut++
	case !n.called && len(p.injected.Providers) == 0:
		row.Without++
	case !n.called:
		row.Current++ // from before the namespace was excluded
	case answer.Problem != "":
		row.Unknown++
		if !strings.Contains(row.Problem, answer.Problem) {
			row.Problem = strings.TrimPrefix(row.Problem+"; "+answer.Problem, "; ")
		}
	default:
		number := map[injected.State]*int{injected.Current: &row.Current, injected.Stale: &row.Stale, injected.Without: &row.Without}
		*number[p.injected.State(&answer.Pod, n.Keys)]++
	}
}
