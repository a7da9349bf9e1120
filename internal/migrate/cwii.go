// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"strconv"
	"strings"

	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

const cwiiPrefix = "cwii.dev/"

// cwii translates the annotations of a ServiceAccount, and those of its Namespace that
// it does not have, if they turn a cloud on. Pods may also do that, each for itself:
// Lanyard's do not.
func (p *planner) cwii(o *Object) map[string]string {
	t := &cwiiTranslation{
		prefix: p.Keys.Prefix, scopes: append([]*Object{o}, p.namespaces[p.namespaceOf(o)]...),
		values: map[string]string{}, least: annotations.MinTokenExpirationSeconds,
	}
	t.aws()
	t.azure()
	t.gcp()
	if len(t.values) > 0 && t.lifetime != 0 {
		t.set("token-expiration-seconds", strconv.FormatInt(min(max(t.lifetime, t.least), annotations.MaxTokenExpirationSeconds), 10))
	}
	return t.values
}

// cwiiTranslation is what the annotations of cwii are in Lanyard's.
type cwiiTranslation struct {
	prefix string
	// scopes are the ServiceAccount and its Namespace.
	scopes []*Object
	values map[string]string
	// lifetime is the shortest of the tokens, 0 for none. least is what all clouds can
	// use.
	lifetime, least int64
}

func (t *cwiiTranslation) aws() {
	if role := t.get("aws-role-arn"); role != "" && t.on("aws") {
		t.set("aws-role-arn", role)
		t.set("aws-region", t.get("aws-region"))
		t.set("aws-audience", t.get("aws-audience"))
		t.shorten("aws-token-expiration")
	}
}

func (t *cwiiTranslation) azure() {
	if client, tenant := t.get("az-client-id"), t.get("az-tenant-id"); client != "" && tenant != "" && t.on("az") {
		t.set("azure-client-id", client)
		t.set("azure-tenant-id", tenant)
		t.set("azure-audience", t.get("az-audience"))
		t.shorten("az-token-expiration")
		t.least = 3600
	}
}

func (t *cwiiTranslation) gcp() {
	if !t.on("gcp") {
		return
	}
	email := t.get("gcp-service-account")
	if audience := t.get("gcp-audience"); audience != "" {
		t.set("gcp-workload-identity-provider", audience)
		t.set("gcp-audience", audience)
	} else if email == "" {
		t.set("gcp-workload-identity-provider", annotations.ClusterDefault)
	}
	t.set("gcp-service-account", email)
	t.shorten("gcp-token-expiration")
}

// get returns the first value that is not empty.
func (t *cwiiTranslation) get(name string) string {
	for _, scope := range t.scopes {
		if value := strings.TrimSpace(scope.Annotations[cwiiPrefix+name]); value != "" {
			return value
		}
	}
	return ""
}

func (t *cwiiTranslation) set(name, value string) {
	if value != "" {
		t.values[t.prefix+name] = value
	}
}

func (t *cwiiTranslation) shorten(name string) {
	if seconds, err := strconv.ParseInt(t.get(name), 10, 64); err == nil && (t.lifetime == 0 || seconds < t.lifetime) {
		t.lifetime = seconds
	}
}

// on reports whether the cloud is turned on. The first truth value counts.
func (t *cwiiTranslation) on(cloud string) bool {
	for _, scope := range t.scopes {
		switch strings.ToLower(strings.TrimSpace(scope.Annotations[cwiiPrefix+cloud+"-inject"])) {
		case "true":
			return true
		case "false":
			return false
		}
	}
	return false
}
