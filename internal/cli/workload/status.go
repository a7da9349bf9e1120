// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"cmp"
	"encoding/json"
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
	// NoGuard is the problem with the guard if Guard is cluster.GuardOff despite the label.
	NoGuard string `json:"-"`
	// Workload is the owner of the pods, such as deployment/cart.
	Workload string `json:"workload,omitempty"`
	// Pods is the number of pods that have not ended, and States has the numbers by state.
	Pods   int                    `json:"pods"`
	States map[injected.State]int `json:"states,omitempty"`
	// Differences is set for pods that another webhook injected.
	Differences []injected.Difference `json:"differences,omitempty"`
	// Local says why differing pods were compared with a pod that was evaluated here, and not
	// by the cluster. It is empty if the cluster was asked, or if no pod differs.
	Local string `json:"-"`
	// Problem contains the reasons why the credentials of new pods are unknown.
	Problem string `json:"-"`
	// Shadows are the findings about variables because of which SDKs ignore the credentials.
	Shadows []mutate.Finding `json:"-"`
}

// Outdated returns how many pods must be replaced to get the credentials that their
// ServiceAccount asks for.
func (r *Row) Outdated() int { return Outdated(r.States) }

// Namespace collects the objects of one namespace.
type Namespace struct {
	metav1.ObjectMeta
	*annotations.Settings
	called bool
	// unread reports whether the settings are only the built-in defaults, or the namespace was not
	// read.
	unread       bool
	registration *admissionregistrationv1.MutatingWebhookConfiguration
	accounts     map[string]*account
	// owners are the objects of the kinds in read.
	owners map[types.UID]owner
	read   map[string]bool
	pods   []*pod
	// variables are the relevant variables in ConfigMaps that containers use.
	variables ConfigMaps
	// comparers compare the pods of a ServiceAccount, while the pods are read.
	comparers map[string]*injected.Comparer
}

// account contains the parts of a ServiceAccount that are kept, because a large cluster has
// very many.
type account struct {
	providers []string
	guard     cluster.Guard
	label     string   // that the guard selects by
	values    []string // the annotations of Lanyard: keys and values in turn
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

// pod contains the parts of a pod that are kept.
type pod struct {
	name           string
	serviceAccount string
	owner          *metav1.OwnerReference
	state          injected.State
	// problem says why the state is Unknown, and local why the API server was not asked about
	// a pod that differs.
	problem, local string
	// differences is set for a pod that another webhook injected.
	differences []injected.Difference
	shadows     []mutate.Finding
	// sources is set if the state depends on ConfigMaps that have not been read yet.
	sources *running
	// running is the pod, and original is the JSON of the pod as it was created. They are kept only
	// until the API server has been asked.
	running  *injected.Pod
	original []byte
}

// NewNamespace returns a namespace without objects. called reports whether Lanyard is called for
// the namespace, and registration is the webhook configuration, or nil if it was not read.
func NewNamespace(s *annotations.Settings, meta *metav1.ObjectMeta, registration *admissionregistrationv1.MutatingWebhookConfiguration, called bool) *Namespace {
	return &Namespace{
		ObjectMeta: *meta, Settings: s, called: called, registration: registration,
		accounts: map[string]*account{}, owners: map[types.UID]owner{}, read: map[string]bool{}, comparers: map[string]*injected.Comparer{},
	}
}

// AddServiceAccount adds a ServiceAccount if it asks for an identity.
func (n *Namespace) AddServiceAccount(object *metav1.PartialObjectMetadata) {
	values := object.Annotations
	switch {
	case cluster.Unguarded(n.Settings, object):
		values = maps.Clone(values)
		maps.Copy(values, peer.Adopt(n.Settings, peer.Of(n.Settings), object.Annotations).Set)
	case !n.AskForIdentity(values):
		return
	}
	found := &account{
		guard: cluster.GuardOf(n.Settings, object, n.called), label: object.Labels[annotations.IdentityLabel],
		unchanged: cluster.UnchangedSince(&object.ObjectMeta),
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

// AddPod adds a pod that has not ended, if its ServiceAccount asks for an identity, and works out
// its state.
func (n *Namespace) AddPod(object *corev1.Pod) {
	name := cmp.Or(object.Spec.ServiceAccountName, cluster.DefaultServiceAccount)
	found, asks := n.accounts[name]
	_, mirror := object.Annotations[annotations.MirrorPod]
	if !asks || mirror || object.Status.Phase == corev1.PodSucceeded || object.Status.Phase == corev1.PodFailed {
		return
	}
	p := &pod{name: object.Name, serviceAccount: name, owner: cluster.ControllerOf("Pod", object)}
	n.pods = append(n.pods, p)
	object.ManagedFields = nil // which can be large
	if n.comparers[name] == nil {
		n.comparers[name] = n.comparer(n.ServiceAccount(name))
	}
	r, err := n.running(object, n.comparers[name], found.unchanged)
	if err == nil {
		err = n.judge(p, r)
	}
	if err != nil {
		panic(err) // a typed pod can be encoded, and decoded
	}
}

// comparer returns a Comparer for the pods of a ServiceAccount.
func (n *Namespace) comparer(serviceAccount *metav1.ObjectMeta) *injected.Comparer {
	return injected.NewComparer(n.Settings, Account(&n.ObjectMeta, serviceAccount), annotations.NamespaceObject(&n.ObjectMeta))
}

// running returns a running pod. since is the result of cluster.UnchangedSince.
func (n *Namespace) running(object metav1.Object, comparer *injected.Comparer, since time.Time) (*running, error) {
	text, err := json.Marshal(object)
	return &running{n, comparer, text, object.GetLabels(), object.GetAnnotations(), cluster.IsUnchanged(object, since)}, err
}

// judge sets the state of a pod. It keeps the pod itself if the API server must be asked about it,
// or if it takes variables from ConfigMaps.
func (n *Namespace) judge(p *pod, r *running) error {
	verdict, err := r.judge()
	if err != nil {
		return err
	}
	p.state, p.differences, p.problem, p.shadows, p.sources = verdict.State, verdict.Differences, verdict.Problem, verdict.Shadows, nil
	if p.state == injected.Current && !verdict.Ask && n.variables == nil {
		if configMaps, _, err := sourcesOf(r.pod); err == nil && len(configMaps) > 0 {
			p.sources = r
		}
	}
	if !verdict.Ask {
		return nil
	}
	original, err := Original(r.pod, n.Settings, r.unchanged, verdict.Decision)
	if err != nil {
		return err
	}
	if p.running, err = injected.Read(json.RawMessage(r.pod), n.Settings); err == nil {
		p.original, err = json.Marshal(original.Object)
	}
	return err
}

// ConfigMaps returns the names of the ConfigMaps that the states of pods depend on.
func (n *Namespace) ConfigMaps() []string {
	var names []string
	for _, p := range n.pods {
		if p.sources == nil {
			continue
		}
		configMaps, _, _ := sourcesOf(p.sources.pod) // judge has read them
		names = append(names, configMaps...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// SetConfigMaps works out the states that depend on ConfigMaps.
func (n *Namespace) SetConfigMaps(variables ConfigMaps) error {
	if n.variables = variables; variables == nil {
		n.variables = ConfigMaps{}
	}
	for _, p := range n.pods {
		if p.sources == nil {
			continue
		}
		if err := n.judge(p, p.sources); err != nil {
			return err
		}
	}
	return nil
}

// Select keeps only the pods of the named objects: pods, their owners, workloads and
// ServiceAccounts, such as deployment/cart.
func (n *Namespace) Select(names []string) {
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
	for _, p := range n.pods {
		add(p.owner)
		if p.owner != nil {
			add(n.owners[p.owner.UID].above)
		}
	}
	return kinds
}

// AddOwner adds an object that owns pods, or their owners.
func (n *Namespace) AddOwner(kind *cluster.Kind, object *metav1.PartialObjectMetadata) {
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

// Question is a dry run that is needed to find out what a new pod would get. It covers the
// pods of one owner and ServiceAccount that seem to differ from a new pod, or that another
// webhook injected.
type Question struct {
	namespace *Namespace
	pods      []*pod
	template  *unstructured.Unstructured
}

// Owner returns the owner of the pods, or nil if they have none. Its template shows what the
// containers set themselves, which a running pod may hide.
func (q *Question) Owner() *metav1.OwnerReference { return q.pods[0].owner }

// SetTemplate sets the pod of the owner's template, which Ask then sends.
func (q *Question) SetTemplate(pod *unstructured.Unstructured) { q.template = pod }

// Questions returns the questions that only the API server can answer.
func (n *Namespace) Questions() []*Question {
	type id struct {
		serviceAccount, pod string
		owner               types.UID
	}
	byOwner := map[id]*Question{}
	var questions []*Question
	for _, p := range n.pods {
		if p.original == nil {
			continue
		}
		key := id{serviceAccount: p.serviceAccount, pod: p.name}
		if p.owner != nil {
			key.pod, key.owner = "", p.owner.UID
		}
		if byOwner[key] == nil {
			byOwner[key] = &Question{namespace: n}
			questions = append(questions, byOwner[key])
		}
		byOwner[key].pods = append(byOwner[key].pods, p)
	}
	return questions
}

// Ask sends the pod of the template, or else the first of the pods as it was created, and
// sets the states of all pods by the answer. If another program denies the pod, or the API
// server cannot be asked, the states do not change. asker is the method of an Asker.
func (q *Question) Ask(asker func(namespace, serviceAccount *metav1.ObjectMeta, pod *unstructured.Unstructured) Answer) error {
	n := q.namespace
	original := q.template
	if original == nil {
		original = &unstructured.Unstructured{}
		if err := json.Unmarshal(q.pods[0].original, &original.Object); err != nil {
			return err
		}
	}
	answer := asker(&n.ObjectMeta, n.ServiceAccount(q.pods[0].serviceAccount), original)
	var fresh *injected.Pod
	if answer.Pod != nil && (answer.Local == "" || q.template != nil) {
		var err error
		if fresh, err = injected.Read(answer.Pod.Object, n.Settings); err != nil {
			return err
		}
	}
	for _, p := range q.pods {
		switch denial := answer.Denial; {
		case answer.Err != nil:
			p.state, p.problem = injected.Unknown, "the credentials of a new pod are unknown: "+answer.Err.Error()
		case denial != nil && denial.By == ByOther && answer.Local == "" && !n.unread:
			p.local = "the pod of the dry run was denied, but not by Lanyard: " + denial.Error()
		case denial != nil:
			p.state, p.problem = injected.Unknown, "a new pod is denied: "+denial.Error()
		case answer.Local != "" && fresh == nil:
			p.local = answer.Local
		default:
			verdict := verdict{Shadows: p.shadows}
			verdict.settle(p.running.Against(fresh))
			p.local, p.differences = answer.Local, verdict.Differences
			if p.state, p.problem = verdict.State, ""; p.state == injected.Unknown {
				p.problem = "a new pod has no credentials from Lanyard, as if it were not called: see lanyard explain"
			}
		}
		p.running, p.original = nil, nil
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
			row.Workload, row.States = id[1], map[injected.State]int{}
			byWorkload[id] = &row
		}
		byWorkload[id].count(p)
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

// count adds one pod.
func (r *Row) count(p *pod) {
	r.Pods++
	r.States[p.state]++
	for _, f := range p.shadows {
		if p.state == Shadowed && !slices.Contains(r.Shadows, f) {
			r.Shadows = append(r.Shadows, f)
		}
	}
	for _, d := range p.differences {
		if !slices.Contains(r.Differences, d) {
			r.Differences = append(r.Differences, d)
		}
	}
	switch {
	case p.state == injected.Unknown && !strings.Contains(r.Problem, p.problem):
		r.Problem = strings.TrimPrefix(r.Problem+"; "+p.problem, "; ")
	case p.state == injected.Stale || p.state == injected.Without:
		r.Local = cmp.Or(r.Local, p.local)
	}
}
