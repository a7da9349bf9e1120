// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package migrate plans how Lanyard takes over from another webhook, with the commands migrate and
// label. The plan is a pure function of the objects of a cluster or of files. Package peer has the
// table of the inputs of each webhook.
//
//	stock.go           the part of an object that a peer reads
//	migrate.go         the plan
//	serviceaccount.go  translates ServiceAccounts
//	pod.go             translates pod templates
//	program.go         the peer's own objects: flags, ConfigMaps, webhooks
//	manifest.go        reads files
//	label.go           the command label, which makes the webhook adopt annotations
//
// peer.Adopt translates the annotations of ServiceAccounts, as in the webhook with
// --adopt, so that the two never disagree.
package migrate

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/lanyard-dev/lanyard/internal/cli/cluster"
	"github.com/lanyard-dev/lanyard/internal/peer"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

// Options change a plan, in addition to the stock.
type Options struct {
	*annotations.Settings
	// From are the peers, in the order of their precedence.
	From []*peer.Peer
	// Remove reports whether the annotations of the peers are removed.
	Remove bool
	// Cluster reports whether the stock was read from a cluster. For files, the plan lists
	// what users must change.
	Cluster bool
	// Namespace is the namespace of objects that name none.
	Namespace string
}

// Item is one thing that was found.
type Item struct {
	// Object names it: deployment/cart. It is empty for the cluster as a whole.
	Object    string `json:"object,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	Source    string `json:"source,omitempty"`
	// Found is the key, or the name of a flag.
	Found  string      `json:"found"`
	Result peer.Result `json:"result"`
	// Becomes is the annotation of Lanyard, or "config." and the name of a setting.
	Becomes string `json:"becomes,omitempty"`
	// Why contains details for people.
	Why string `json:"why,omitempty"`
}

// Change is a change of the annotations of a ServiceAccount.
type Change struct {
	Object *Object
	// Set contains annotations to add or to change.
	Set map[string]string
	// Remove lists annotations to remove, sorted.
	Remove []string
}

// Plan is the outcome for a stock.
type Plan struct {
	Items   []Item   `json:"items"`
	Changes []Change `json:"-"`
	// Config contains settings of Lanyard, by their names in the configuration file.
	Config map[string]any `json:"config,omitempty"`
}

// Count returns how many items have the result.
func (p *Plan) Count(result peer.Result) int {
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
	// The plan must not depend on the defaults of the cluster.
	known, options := *o.Settings, *o
	known.Parameters, known.ReservedAudiences = map[string]string{}, annotations.CommonAPIServerAudiences()
	if options.Settings = &known; !o.Cluster {
		known.Peers = nil // users edit the files, and do not write the record of adoption
	}
	p := &planner{
		Options: &options, plan: &Plan{Items: []Item{}, Config: map[string]any{}},
		lanyard:    "lanyard", // the name that the manifests and the chart have
		accounts:   map[string][]*Object{},
		agents:     map[string][]string{},
		needTokens: map[string]bool{}, mapped: map[string]map[string]string{}, lacking: map[string]int{},
		homes: homes(stock, o.From),
	}
	if o.Cluster {
		slices.SortStableFunc(stock, func(a, b *Object) int {
			return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
		})
	}
	for _, object := range stock {
		if object.Namespace == "" && object.Kind != kindWebhooks.Kind {
			object.Namespace = o.Namespace
		}
	}
	for _, object := range stock {
		p.index(object)
	}
	for _, object := range stock {
		p.object(object)
	}
	for _, key := range slices.Sorted(maps.Keys(p.lacking)) {
		why := fmt.Sprintf("The cluster must have a default. ServiceAccounts without a value of their own: %d.", p.lacking[key])
		p.item(nil, annotations.Prefix+key, peer.Setting, "config."+settingOf[key], why)
	}
	return p.plan
}

// homes returns the namespaces that the peers' webhook configurations name, by the names of the peers.
func homes(stock []*Object, peers []*peer.Peer) map[string][]string {
	all := map[string][]string{}
	for _, object := range stock {
		for _, from := range peers {
			if from.Registers(object.Registration) {
				all[from.Name] = append(all[from.Name], object.Registration.Namespaces...)
			}
		}
	}
	return all
}

// object plans for one object.
func (p *planner) object(o *Object) {
	switch o.Kind {
	case kindServiceAccount.Kind:
		p.serviceAccount(o)
	case kindWebhooks.Kind:
		p.webhooks(o)
	case kindConfigMap.Kind:
		if eks := p.from("eks"); eks != nil {
			p.mappings(o, eks)
		}
	default:
		p.pod(o)
	}
	for _, from := range p.From {
		p.settings(o, from)
	}
}

// settingOf maps annotations that a ServiceAccount may omit to the settings with their
// defaults.
var settingOf = map[string]string{
	"azure-tenant-id":                "azure-default-tenant-id",
	"gcp-workload-identity-provider": "gcp-default-workload-identity-provider",
}

// planner is the state of one New.
type planner struct {
	*Options
	plan *Plan
	// lanyard is the name of Lanyard's webhook configuration.
	lanyard string
	// accounts are the ServiceAccounts by namespace and name.
	accounts map[string][]*Object
	// needTokens are the ServiceAccounts whose pods have Azure's label.
	needTokens map[string]bool
	// agents are the pods of a ServiceAccount that get their credentials from an agent on the node.
	agents map[string][]string
	// mapped are the entries of EKS's ConfigMap, as annotations, by namespace and name.
	mapped map[string]map[string]string
	// composesRoles reports whether EKS's program turns the names of roles into ARNs.
	composesRoles bool
	// lacking counts the ServiceAccounts that need a default of the cluster, by annotation.
	lacking map[string]int
	// homes are the namespaces that the peers run in, by the names of the peers.
	homes map[string][]string
}

// configures reports whether an object configures the peer. In a cluster, it must be in a namespace
// that the peer's webhook configuration names, because users of other namespaces can create objects
// there that look like the peer's.
func (p *planner) configures(o *Object, from *peer.Peer) bool {
	return !p.Cluster || slices.Contains(p.homes[from.Name], o.Namespace)
}

// Keys of the peers that need special rules.
const (
	eksRole     = "eks.amazonaws.com/role-arn"
	azureUse    = "azure.workload.identity/use"
	azureClient = "azure.workload.identity/client-id"
)

// from returns the peer of this name if it is one of those to migrate from, or else nil.
func (p *planner) from(name string) *peer.Peer {
	at := slices.IndexFunc(p.From, func(from *peer.Peer) bool { return from.Name == name })
	if at < 0 {
		return nil
	}
	return p.From[at]
}

// accountOf returns the namespace and name of a pod's ServiceAccount.
func accountOf(o *Object) string {
	return o.Namespace + "/" + o.Pod.ServiceAccount
}

// index notes the facts that other objects depend on.
func (p *planner) index(o *Object) {
	switch {
	case o.Kind == kindServiceAccount.Kind:
		key := o.Namespace + "/" + o.Name
		p.accounts[key] = append(p.accounts[key], o)
	case o.Kind == kindConfigMap.Kind && p.from("eks") != nil:
		mapped, _ := peer.Mapped(o.Data) // the plan for the ConfigMap has the error
		configures := p.configures(o, p.from("eks"))
		maps.DeleteFunc(mapped, func(name string, _ map[string]string) bool {
			return !configures && !strings.HasPrefix(name, o.Namespace+"/")
		})
		maps.Copy(p.mapped, mapped)
	case slices.Contains(o.Registration.Webhooks, cluster.PodWebhook):
		p.lanyard = o.Name
	}
	for _, from := range p.From {
		if o.Pod != nil && o.usesAgent(from) {
			p.agents[accountOf(o)] = append(p.agents[accountOf(o)], o.Name)
		}
		if o.Pod != nil && from.Name == "azure" && o.Pod.Labels[azureUse] == "true" && !o.Pod.bound(from) {
			p.needTokens[accountOf(o)] = true
		}
		if !p.configures(o, from) {
			continue
		}
		values := o.settings(from)
		p.composesRoles = p.composesRoles || values["--compose-role-arn"] == "true"
		if tenant := values["AZURE_TENANT_ID"]; tenant != "" {
			p.Parameters["azure-tenant-id"] = tenant
		}
		if audience := values["--token-audience"]; from.Name == "gcp" && audience != "" && audience != from.Defaults["--token-audience"] {
			p.Parameters["gcp-audience"] = audience
		}
	}
}

// item adds an item about an object, nil for the cluster.
func (p *planner) item(o *Object, found string, result peer.Result, becomes, why string) {
	item := Item{Found: found, Result: result, Becomes: becomes, Why: strings.TrimSpace(strings.ReplaceAll(why, "`", ""))}
	if o != nil {
		item.Object, item.Namespace, item.Source = o.Reference(), o.Namespace, o.Source
	}
	p.plan.Items = append(p.plan.Items, item)
}

// row adds an item with the result and the note in the table.
func (p *planner) row(o *Object, found string, in *peer.Input) {
	p.item(o, found, in.Result, p.becomes(in), in.Note)
}

// becomes returns the annotation with its prefix, or the setting.
func (p *planner) becomes(in *peer.Input) string {
	if in.Becomes == "" || in.SettingOf() != "" {
		return in.Becomes
	}
	return annotations.Prefix + in.Becomes
}

// unknownKeys adds an item for each key with the peer's own prefix that the peer does not read.
func (p *planner) unknownKeys(o *Object, from *peer.Peer, place peer.Place, values map[string]string) {
	for _, key := range slices.Sorted(maps.Keys(values)) {
		if from.OwnsPrefix && strings.HasPrefix(key, from.Prefix) && from.Input(place, key) == nil {
			p.item(o, key, peer.Manual, "", fmt.Sprintf("%s does not read it as a %s: it may be misspelt.", from.Program, place))
		}
	}
}

// leavesWork reports whether one of the items from first on must be done by hand, or is
// not supported. Nothing of the peer is then removed from the object.
func (p *planner) leavesWork(first int) bool {
	return slices.ContainsFunc(p.plan.Items[first:], func(item Item) bool {
		return item.Result == peer.Manual || item.Result == peer.Unsupported
	})
}

// change adds a change of the annotations of a ServiceAccount. For a file, it adds an item.
func (p *planner) change(o *Object, set map[string]string, remove []string) {
	c := Change{Object: o, Set: maps.Clone(set), Remove: slices.Sorted(slices.Values(remove))}
	maps.DeleteFunc(c.Set, func(key, value string) bool {
		got, found := o.Annotations[key]
		return found && got == value
	})
	c.Remove = slices.DeleteFunc(slices.Compact(c.Remove), func(key string) bool {
		_, found := o.Annotations[key]
		return !found
	})
	if len(c.Set)+len(c.Remove) == 0 {
		return
	}
	p.plan.Changes = append(p.plan.Changes, c)
	if !p.Cluster {
		p.item(o, "its manifest", peer.Manual, "", c.String())
	}
}

// String returns the change as an instruction.
func (c *Change) String() string {
	var steps []string
	for _, key := range slices.Sorted(maps.Keys(c.Set)) {
		steps = append(steps, fmt.Sprintf("Set %s: %q.", key, c.Set[key]))
	}
	if len(c.Remove) > 0 {
		steps = append(steps, "Remove "+strings.Join(c.Remove, ", ")+".")
	}
	return strings.Join(steps, " ")
}
