// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package migrate plans how Lanyard takes over from another webhook. It is pure: the
// objects of a cluster or of files in, a plan out.
//
//	table.go           what each peer reads, and what becomes of it
//	stock.go           what is kept of an object
//	migrate.go         the plan
//	serviceaccount.go  translates ServiceAccounts
//	pod.go             translates pod templates
//	program.go         the peer's own objects: flags, ConfigMaps, webhooks
//	cwii.go            the translation of cwii's annotations
//	record.go          the record of adopted annotations
//	manifest.go        makes the changes in files
//	verify.go          compares what running pods have with what new ones get
//	docs.go            the tables for the documentation
//
// The annotations of ServiceAccounts are translated by annotations.Keys.Adopt, as the
// webhook does with --adopt, so that the two never disagree.
package migrate

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

// Options are what a plan depends on, in addition to the stock.
type Options struct {
	Keys *annotations.Keys
	// From are the peers, in the order of Peers.
	From []*Peer
	// Remove reports whether the annotations of the peers are removed.
	Remove bool
	// Cluster reports whether the stock is that of a cluster. Pod templates are not
	// changed there: that would restart the pods.
	Cluster bool
	// Namespace is that of objects that name none.
	Namespace string
}

// Item is one thing that was found.
type Item struct {
	// Object names it: deployment/cart. It is empty for the cluster as a whole.
	Object    string `json:"object,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	Source    string `json:"source,omitempty"`
	// Found is the key, or the name of a flag.
	Found  string `json:"found"`
	Result Result `json:"result"`
	// Becomes is the annotation of Lanyard, or the value of the chart.
	Becomes string `json:"becomes,omitempty"`
	// Why says more, for people.
	Why string `json:"why,omitempty"`
}

// Change is what changes in the annotations of an object, or of its pod template.
type Change struct {
	Object *Object `json:"-"`
	// Path is where the metadata is in the object.
	Path []string `json:"-"`
	// Set has annotations to add, or to give another value.
	Set map[string]string `json:"set,omitempty"`
	// Remove lists annotations to remove, sorted.
	Remove []string `json:"remove,omitempty"`
}

// Plan is what becomes of a stock.
type Plan struct {
	Items   []Item   `json:"items"`
	Changes []Change `json:"-"`
	// Values are those of the chart, by their path: config.aws-default-region.
	Values map[string]any `json:"values,omitempty"`
}

// Count returns how many items have the result.
func (p *Plan) Count(result Result) int {
	n := 0
	for i := range p.Items {
		if p.Items[i].Result == result {
			n++
		}
	}
	return n
}

// New returns the plan for a stock.
func New(stock []*Object, o *Options) *Plan {
	p := newPlanner(o)
	if o.Cluster {
		slices.SortStableFunc(stock, func(a, b *Object) int {
			return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
		})
	}
	for _, object := range stock {
		p.index(object)
	}
	for _, object := range stock {
		switch object.Kind {
		case kindServiceAccount:
			p.serviceAccount(object)
		case kindNamespace:
			p.namespace(object)
		case kindConfigMap:
			p.configMap(object)
		case kindWebhooks:
			p.webhooks(object)
		default:
			p.pod(object)
			p.program(object)
		}
	}
	p.finish()
	return p.plan
}

// planner is the state of one New.
type planner struct {
	*Options
	plan *Plan
	// adoptable are the peers that the webhook can adopt from.
	adoptable []*annotations.Peer
	defaults  *annotations.Defaults
	// accounts and namespaces are the ServiceAccounts and Namespaces by their names.
	accounts, namespaces map[string][]*Object
	// needTokens are the ServiceAccounts whose pods have Azure's label.
	needTokens map[string]bool
	// mapped are the entries of EKS's ConfigMap, as annotations, by namespace and name.
	mapped map[string]map[string]string
	// lacking counts the ServiceAccounts that need a default of the cluster.
	lacking map[string]int
}

func newPlanner(o *Options) *planner {
	p := &planner{
		Options: o, plan: &Plan{Items: []Item{}, Values: map[string]any{}},
		defaults:   &annotations.Defaults{Parameters: map[string]string{}, ReservedAudiences: annotations.CommonAPIServerAudiences()},
		accounts:   map[string][]*Object{},
		namespaces: map[string][]*Object{},
		needTokens: map[string]bool{}, mapped: map[string]map[string]string{}, lacking: map[string]int{},
	}
	for _, peer := range o.From {
		if peer.adopted != nil {
			p.adoptable = append(p.adoptable, peer.adopted)
		}
	}
	return p
}

// has reports whether the peer of this name is one of those to migrate from.
func (p *planner) has(name string) bool {
	return slices.ContainsFunc(p.From, func(peer *Peer) bool { return peer.Name == name })
}

// namespaceOf returns the namespace of an object.
func (p *planner) namespaceOf(o *Object) string { return cmp.Or(o.Namespace, p.Namespace) }

// index notes what other objects need to know of this one.
func (p *planner) index(o *Object) {
	namespace := p.namespaceOf(o)
	switch {
	case o.Kind == kindServiceAccount:
		key := namespace + "/" + o.Name
		p.accounts[key] = append(p.accounts[key], o)
	case o.Kind == kindNamespace:
		p.namespaces[o.Name] = append(p.namespaces[o.Name], o)
	case o.Kind == kindConfigMap && o.Name == eksConfigMap && p.has("eks"):
		maps.Copy(p.mapped, entries(o))
	case o.Pod != nil:
		if p.has("azure") && o.Pod.Labels[azureUse] == "true" {
			p.needTokens[namespace+"/"+o.Pod.ServiceAccount] = true
		}
		p.programDefaults(o)
	}
	if o.Kind == kindConfigMap && o.Name == azureConfigMap {
		p.setDefault("azure-tenant-id", o.Data["AZURE_TENANT_ID"])
	}
}

func (p *planner) setDefault(name, value string) {
	if value != "" {
		p.defaults.Parameters[name] = value
	}
}

// item adds an item about an object, nil for the cluster.
func (p *planner) item(o *Object, found string, result Result, becomes, why string) {
	item := Item{Found: found, Result: result, Becomes: becomes, Why: strings.ReplaceAll(why, "`", "")}
	if o != nil {
		item.Object, item.Source = o.Reference(), o.Source
		if o.Kind != kindNamespace && o.Kind != kindWebhooks {
			item.Namespace = p.namespaceOf(o)
		}
	}
	p.plan.Items = append(p.plan.Items, item)
}

// row adds an item as the table has it.
func (p *planner) row(o *Object, found string, in *Input) {
	p.item(o, found, in.Result, p.becomes(in), in.Note)
}

// becomes returns the annotation with its prefix, or the value of the chart.
func (p *planner) becomes(in *Input) string {
	if in.Becomes == "" || strings.HasPrefix(in.Becomes, "config.") {
		return in.Becomes
	}
	return p.Keys.Prefix + in.Becomes
}

// value adds a value of the chart. It reports whether there is another one already.
func (p *planner) value(path string, value any) bool {
	previous, found := p.plan.Values[path]
	if !found {
		p.plan.Values[path] = value
	}
	return found && previous != value
}

// identity adds an entry of config.identities.
func (p *planner) identity(namespace, name string, values map[string]string) {
	const path = "config.identities"
	list, _ := p.plan.Values[path].([]any)
	short := map[string]any{}
	for key, value := range values {
		short[strings.TrimPrefix(key, p.Keys.Prefix)] = value
	}
	p.plan.Values[path] = append(list, map[string]any{"namespace": namespace, "serviceAccount": name, "annotations": short})
}

// unknownKeys adds an item for each key that only the peer can have, and does not read.
func (p *planner) unknownKeys(o *Object, peer *Peer, place Place, values map[string]string) {
	if peer.ownPrefix == "" {
		return
	}
	for _, key := range slices.Sorted(maps.Keys(values)) {
		if strings.HasPrefix(key, peer.ownPrefix) && peer.input(place, key) == nil {
			p.item(o, key, Manual, "", fmt.Sprintf("%s does not read it as a %s: it may be misspelt.", peer.Program, place))
		}
	}
}

// namespace plans for the annotations of a Namespace.
func (p *planner) namespace(o *Object) {
	for _, peer := range p.From {
		for _, key := range slices.Sorted(maps.Keys(o.Annotations)) {
			if in := peer.input(OnNamespace, key); in != nil {
				p.row(o, key, in)
			}
		}
	}
}

// leavesWork reports whether one of the items from first on must be done by hand, or
// is not supported. Then nothing of the peer is removed from the object.
func (p *planner) leavesWork(first int) bool {
	return slices.ContainsFunc(p.plan.Items[first:], func(item Item) bool { return item.Result == Manual || item.Result == Unsupported })
}

// change adds a change of the annotations that o has.
func (p *planner) change(o *Object, path []string, has, set map[string]string, remove []string) {
	c := Change{Object: o, Path: path, Set: map[string]string{}}
	for key, value := range set {
		if got, found := has[key]; !found || got != value {
			c.Set[key] = value
		}
	}
	for _, key := range slices.Compact(slices.Sorted(slices.Values(remove))) {
		if _, found := has[key]; found {
			c.Remove = append(c.Remove, key)
		}
	}
	if len(c.Set)+len(c.Remove) > 0 {
		p.plan.Changes = append(p.plan.Changes, c)
	}
}

// finish adds what is about the cluster as a whole.
func (p *planner) finish() {
	for _, key := range slices.Sorted(maps.Keys(p.lacking)) {
		p.item(nil, p.Keys.Prefix+key, Setting, settingOf[key], fmt.Sprintf("The cluster must have a default. ServiceAccounts without a value of their own: %d.", p.lacking[key]))
	}
}

// settingOf has the value of the chart for an annotation that a ServiceAccount may
// leave to the cluster.
var settingOf = map[string]string{
	"azure-tenant-id":                "config.azure-default-tenant-id",
	"gcp-workload-identity-provider": "config.gcp-default-workload-identity-provider",
}
