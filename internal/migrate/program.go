// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// settings returns the flags and variables of the programs of the peers in a pod, by
// the name of the peer.
func settings(pod *Pod) map[string]map[string]string {
	result := map[string]map[string]string{}
	for i := range pod.Containers {
		c := &pod.Containers[i]
		if c.Program == "" {
			continue
		}
		if result[c.Program] == nil {
			result[c.Program] = map[string]string{}
		}
		maps.Copy(result[c.Program], c.Values)
		maps.Copy(result[c.Program], flags(c.Arguments))
	}
	return result
}

// flags reads arguments: --name=value, --name value, or --name for true.
func flags(arguments []string) map[string]string {
	result := map[string]string{}
	for i, argument := range arguments {
		name, found := strings.CutPrefix(argument, "-")
		if !found {
			continue
		}
		name, value, hasValue := strings.Cut(strings.TrimPrefix(name, "-"), "=")
		switch {
		case hasValue:
		case i+1 < len(arguments) && !strings.HasPrefix(arguments[i+1], "-"):
			value = arguments[i+1]
		default:
			value = "true"
		}
		result["--"+name] = value
	}
	return result
}

// programDefaults notes the settings that the translation of ServiceAccounts depends on.
func (p *planner) programDefaults(o *Object) {
	for name, values := range settings(o.Pod) {
		switch name {
		case "eks":
			if values["--compose-role-arn"] == "true" {
				p.setDefault("aws-role-arn-prefix", "arn:aws:iam::111122223333:role/") // any: it is only for the check of the result
			}
		case "azure":
			p.setDefault("azure-tenant-id", values["AZURE_TENANT_ID"])
		case "gcp":
			if audience := values["--token-audience"]; audience != "sts.googleapis.com" {
				p.setDefault("gcp-audience", audience)
			}
		case "cwii":
			p.setDefault("gcp-workload-identity-provider", values["--gcp-default-audience"])
		}
	}
}

// program plans for the settings of a peer's program.
func (p *planner) program(o *Object) {
	found := settings(o.Pod)
	for _, peer := range p.From {
		p.settings(o, peer, found[peer.Name])
	}
}

// settings adds an item for each setting that is in the table. The others are about
// the program itself, such as its port.
func (p *planner) settings(o *Object, peer *Peer, values map[string]string) {
	for _, name := range slices.Sorted(maps.Keys(values)) {
		in := peer.input(AsFlag, name)
		if in == nil {
			in = peer.input(AsVariable, name)
		}
		if in == nil {
			continue
		}
		value := values[name]
		standard, hasStandard := peer.defaults[name]
		switch {
		case in.Result == Unsupported && value == "", in.Result != NothingToDo && hasStandard && value == standard, value == "false":
			p.item(o, name, NothingToDo, "", "It has its default.")
		case in.Result == Setting:
			p.setting(o, in, name, value)
		default:
			p.row(o, name, in)
		}
	}
}

// setting turns a setting of the peer into a value of the chart.
func (p *planner) setting(o *Object, in *Input, name, value string) {
	if value == "" {
		return // it comes from elsewhere, such as a ConfigMap
	}
	if name == azureEnvironment {
		host, known := authorities[strings.ToLower(value)]
		if !known {
			p.item(o, name, Manual, in.Becomes, fmt.Sprintf("Got %.100q. Set the URL of its authority.", value))
			return
		}
		value = host
	}
	if in.Becomes == settingOf["gcp-workload-identity-provider"] {
		p.value("config.gcp-default-audience", value)
		value = strings.TrimPrefix(strings.TrimPrefix(value, "https:"), "//iam.googleapis.com/")
	}
	if p.value(in.Becomes, value) {
		p.item(o, name, Manual, in.Becomes, "Another object has another value.")
		return
	}
	p.item(o, name, Setting, in.Becomes, in.Note)
}

// authorities are the URLs of the clouds that azure-workload-identity knows.
var authorities = map[string]string{
	"azurepubliccloud":       "https://login.microsoftonline.com/",
	"azureusgovernmentcloud": "https://login.microsoftonline.us/",
	"azureusgovernment":      "https://login.microsoftonline.us/",
	"azurechinacloud":        "https://login.chinacloudapi.cn/",
	"azuregermancloud":       "https://login.microsoftonline.de/",
}

// entry is one of EKS's ConfigMap.
type entry struct {
	RoleARN, Audience string
	TokenExpiration   int64
	UseRegionalSTS    *bool
}

// entries reads EKS's ConfigMap, as annotations by namespace and name. Without an
// audience, the peer used an empty one: a token for the API server.
func entries(o *Object) map[string]map[string]string {
	var parsed map[string]entry
	if json.Unmarshal([]byte(o.Data["config"]), &parsed) != nil {
		return nil // configMap reports it
	}
	result := map[string]map[string]string{}
	for name, e := range parsed {
		if e.RoleARN == "" || !strings.Contains(name, "/") {
			continue
		}
		values := map[string]string{eksRole: e.RoleARN}
		if e.Audience != "" {
			values["eks.amazonaws.com/audience"] = e.Audience
		}
		if e.TokenExpiration != 0 {
			values["eks.amazonaws.com/token-expiration"] = strconv.FormatInt(e.TokenExpiration, 10)
		}
		result[name] = values
	}
	return result
}

// entryOf returns the entry for a ServiceAccount: that of its namespace, or of all.
func (p *planner) entryOf(o *Object) (map[string]string, bool) {
	if values, found := p.mapped[p.namespaceOf(o)+"/"+o.Name]; found {
		return values, true
	}
	values, found := p.mapped["*/"+o.Name]
	return values, found
}

// configMap plans for a ConfigMap of a peer.
func (p *planner) configMap(o *Object) {
	if o.Name == azureConfigMap {
		for _, peer := range p.From {
			if peer.Name == "azure" {
				p.settings(o, peer, o.Data)
			}
		}
		return
	}
	text, found := o.Data["config"]
	if !found || !p.has("eks") {
		return
	}
	if err := json.Unmarshal([]byte(text), new(map[string]entry)); err != nil {
		p.item(o, "config", Manual, "", fmt.Sprintf("It cannot be read: %v", err))
		return
	}
	mapped := entries(o)
	for _, name := range slices.Sorted(maps.Keys(mapped)) {
		p.mapping(o, name, mapped[name])
	}
}

// mapping plans for one entry of EKS's ConfigMap.
func (p *planner) mapping(o *Object, name string, values map[string]string) {
	namespace, account, _ := strings.Cut(name, "/")
	role := p.Keys.Prefix + "aws-role-arn"
	if namespace != "*" && len(p.accounts[name]) > 0 {
		_, done := p.accounts[name][0].Annotations[role]
		switch {
		case p.accounts[name][0].Annotations[eksRole] != "":
			p.item(o, name, NothingToDo, "", "The ServiceAccount has an annotation, which overrides the entry.")
		case done:
			p.item(o, name, NothingToDo, role, "The ServiceAccount has it already.")
		default:
			p.item(o, name, Translated, role, "Written onto the ServiceAccount.")
		}
		return
	}
	p.identity(namespace, account, p.translate(values))
	why := "The ServiceAccount was not found. Lanyard writes the annotations when it is created or changed."
	if namespace == "*" {
		why = "Written onto the ServiceAccounts of this name that were found. Lanyard writes the others when they are created or changed."
	}
	p.item(o, name, Setting, "config.identities", why)
}

// owns reports whether a webhook configuration is the peer's.
func (p *Peer) owns(o *Object) bool {
	return slices.ContainsFunc(p.webhooks, func(name string) bool { return strings.Contains(o.Name, name) || slices.Contains(o.Webhooks, name) })
}

// webhooks plans for a webhook configuration.
func (p *planner) webhooks(o *Object) {
	for _, peer := range p.From {
		if !peer.owns(o) {
			continue
		}
		order := "before"
		if o.Name > "lanyard" {
			order = "after"
		}
		p.item(o, "webhook of "+peer.Program, Manual, "", fmt.Sprintf("The API server calls it %s one with the name lanyard. Delete it when Lanyard has taken over.", order))
	}
}
