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

	"github.com/lanyard-dev/lanyard/internal/annotations"
	"github.com/lanyard-dev/lanyard/internal/cli/cluster"
	"github.com/lanyard-dev/lanyard/internal/injected"
	"github.com/lanyard-dev/lanyard/internal/mutate"
	"github.com/lanyard-dev/lanyard/internal/peer"
	"github.com/lanyard-dev/lanyard/internal/settings"
)

// Guard is whether the guard knows a ServiceAccount.
type Guard string

const (
	// Guarded means that the ServiceAccount has the label that the guard selects by.
	Guarded Guard = "guarded"
	// Unguarded means that it lacks the label, or that an identity is not adopted from
	// another webhook's annotations yet.
	Unguarded Guard = "unguarded"
	// Excluded means that Lanyard is not called for its namespace.
	Excluded Guard = "excluded"
)

// Row is the pods of one workload that use one ServiceAccount. A ServiceAccount
// without pods has one row without a workload.
type Row struct {
	Namespace      string   `json:"namespace"`
	ServiceAccount string   `json:"serviceAccount"`
	Providers      []string `json:"providers"`
	Guard          Guard    `json:"guard"`
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
func (r *Row) Outdated() bool { return r.Guard != Excluded && r.Stale+r.Without > 0 }

// Question identifies the pods of a namespace that get the same credentials.
type Question struct {
	ServiceAccount string
	// Expiration is the pod's annotation token-expiration-seconds.
	Expiration string
	Windows    bool
}

// Answer is the contents of a new pod, or the reason why they are unknown.
type Answer struct {
	// Injected is nil if a new pod gets no credentials.
	Injected *injected.Pod
	Problem  string
}

// Namespace collects the objects of one namespace.
type Namespace struct {
	Name string

	settings *settings.Settings
	keys     *annotations.Keys // the keys of settings
	called   bool
	accounts map[string]*account
	// owners has the owner of each ReplicaSet and Job that has one.
	owners map[string]string
}

type account struct {
	providers []string
	unguarded bool
	pods      []pod
}

// pod holds the parts of a pod that are kept.
type pod struct {
	owner    string
	injected *injected.Pod // nil if the pod has no credentials
	question Question
	optedOut bool
}

// NewNamespace returns an empty namespace. called reports whether Lanyard is called for
// the namespace.
func NewNamespace(s *settings.Settings, name string, called bool) *Namespace {
	return &Namespace{Name: name, settings: s, keys: s.Keys, called: called, accounts: map[string]*account{}, owners: map[string]string{}}
}

// AddServiceAccount adds a ServiceAccount if it asks for an identity.
func (n *Namespace) AddServiceAccount(object *metav1.PartialObjectMetadata) {
	unguarded := cluster.Unguarded(n.settings, object)
	if !unguarded && !n.keys.AskForIdentity(object.Annotations) {
		return
	}
	a := &account{unguarded: unguarded}
	values := object.Annotations
	if unguarded {
		values = maps.Clone(values)
		maps.Copy(values, peer.Adopt(n.keys, n.settings.Peers, object.Annotations, n.settings.Defaults).Set)
	}
	for _, d := range n.keys.Asked(values) {
		a.providers = append(a.providers, d.Name)
	}
	n.accounts[object.Name] = a
}

// Empty reports whether no ServiceAccount asks for an identity, so that nothing else
// of the namespace matters.
func (n *Namespace) Empty() bool { return len(n.accounts) == 0 }

// AddOwner adds an object that owns pods and may itself be owned: a ReplicaSet or a
// Job.
func (n *Namespace) AddOwner(kind *cluster.Kind, object *metav1.PartialObjectMetadata) {
	if owner := metav1.GetControllerOf(object); owner != nil {
		n.owners[kind.Name(object.Name)] = ownerName(owner)
	}
}

// ownerName returns how users write an owner.
func ownerName(owner *metav1.OwnerReference) string {
	return strings.ToLower(owner.Kind) + "/" + owner.Name
}

// AddPod adds a pod if it runs, or will, and its ServiceAccount asks for an identity.
func (n *Namespace) AddPod(object *corev1.Pod) {
	name := cmp.Or(object.Spec.ServiceAccountName, cluster.DefaultServiceAccount)
	a := n.accounts[name]
	_, mirror := object.Annotations[annotations.MirrorPodKey]
	if a == nil || mirror || object.Status.Phase == corev1.PodSucceeded || object.Status.Phase == corev1.PodFailed {
		return
	}
	os := ""
	if object.Spec.OS != nil {
		os = string(object.Spec.OS.Name)
	}
	p := pod{
		owner:    "pod/" + object.Name,
		optedOut: object.Annotations[n.keys.Inject] == annotations.OptOut || object.Labels[n.keys.Inject] == annotations.OptOut,
		question: Question{
			ServiceAccount: name,
			Expiration:     object.Annotations[n.keys.TokenExpirationSeconds],
			Windows:        mutate.IsWindows(os, object.Spec.NodeSelector),
		},
	}
	if object.Annotations[n.keys.Injected] != "" {
		read, err := injected.Read(object, n.keys)
		if err != nil {
			panic(err) // a typed pod can be encoded, and decoded
		}
		p.injected = read
	}
	if owner := metav1.GetControllerOf(object); owner != nil {
		p.owner = ownerName(owner)
		if above, found := n.owners[p.owner]; found {
			p.owner = above
		}
	}
	a.pods = append(a.pods, p)
}

// Questions returns the questions that judge the pods, in a fixed order.
func (n *Namespace) Questions() []Question {
	if !n.called {
		return nil
	}
	seen := map[Question]bool{}
	for _, a := range n.accounts {
		for i := range a.pods {
			if !a.pods[i].optedOut {
				seen[a.pods[i].question] = true
			}
		}
	}
	questions := make([]Question, 0, len(seen))
	for q := range seen {
		questions = append(questions, q)
	}
	slices.SortFunc(questions, func(a, b Question) int {
		return cmp.Or(strings.Compare(a.ServiceAccount, b.ServiceAccount), strings.Compare(a.Expiration, b.Expiration))
	})
	return questions
}

// Rows returns the rows, by the names of the ServiceAccounts and the workloads.
func (n *Namespace) Rows(answers map[Question]Answer) []Row {
	var rows []Row
	for name, a := range n.accounts {
		row := Row{Namespace: n.Name, ServiceAccount: name, Providers: a.providers, Guard: n.guard(a)}
		if len(a.pods) == 0 {
			rows = append(rows, row)
			continue
		}
		byOwner := map[string]*Row{}
		for i := range a.pods {
			p := &a.pods[i]
			if byOwner[p.owner] == nil {
				byOwner[p.owner] = new(Row)
				*byOwner[p.owner] = row
				byOwner[p.owner].Workload = p.owner
			}
			n.count(byOwner[p.owner], p, answers)
		}
		for _, r := range byOwner {
			rows = append(rows, *r)
		}
	}
	slices.SortFunc(rows, func(a, b Row) int {
		return cmp.Or(strings.Compare(a.ServiceAccount, b.ServiceAccount), strings.Compare(a.Workload, b.Workload))
	})
	return rows
}

func (n *Namespace) guard(a *account) Guard {
	switch {
	case !n.called:
		return Excluded
	case a.unguarded:
		return Unguarded
	}
	return Guarded
}

// count adds one pod to its row.
func (n *Namespace) count(row *Row, p *pod, answers map[Question]Answer) {
	row.Pods++
	answer := answers[p.question]
	switch {
	case p.optedOut:
		row.OptedOut++
	case !n.called && p.injected == nil:
		row.Without++
	case !n.called:
		row.Current++ // from before the namespace was excluded
	case answer.Problem != "":
		row.Unknown++
		if row.Problem == "" {
			row.Problem = answer.Problem
		} else if !strings.Contains(row.Problem, answer.Problem) {
			row.Problem += "; " + answer.Problem
		}
	case p.injected == nil && answer.Injected == nil:
		row.Current++
	case p.injected == nil:
		row.Without++
	case answer.Injected != nil && p.injected.Current(answer.Injected, n.keys):
		row.Current++
	default:
		row.Stale++
	}
}
