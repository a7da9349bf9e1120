// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cloud implements the commands trust and token.
//
//	aws, azure, gcp  one cloud each: the .go file checks the values of its trust
//	                 configuration; the .tmpl file has the configuration as JSON, as
//	                 commands and as Terraform resources
//	trust.go         is common to the trust configurations, and has the configuration of a
//	                 custom provider, from its file
//	account.go       determines the identity of ServiceAccounts, as the webhook does
//	exchange.go      presents a token with package exchange, and adds the repair of a denial
//	tokens.go        reads the tokens of the pods of ServiceAccounts, and exchanges them
//	issuer.go        reads the documents of an issuer, and compares the published keys with the
//	                 cluster's
//	publish.go       merges the keys of the clusters with one issuer, and writes the documents, or
//	                 the commands in publish.tmpl that upload them
package cloud

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
	"text/template"

	"github.com/lanyard-dev/lanyard/internal/texts"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

// Token describes the tokens of an identity: those of one ServiceAccount, or of several.
type Token struct {
	// Issuer is the claim iss, to the last character.
	Issuer string
	// ServiceAccounts are the ServiceAccounts with the identity, at least one.
	ServiceAccounts []ServiceAccount
	// Audience is the claim aud.
	Audience string
	// Values are the values of the provider's parameters.
	Values annotations.Values
	// Identity is the name of the managed identity, by default the ObjectName of the first
	// ServiceAccount. ResourceGroup is its resource group; if empty, the output asks for it.
	Identity, ResourceGroup string
	// Project is the project ID of Google's pool; if empty, the commands look it up.
	Project string
	// Tags are the tags of the identity and the issuer at the cloud.
	Tags map[string]string
	// Grant contains the permissions of the identity. It is zero if the user grants them.
	Grant Grant
	// JWKS contains the public keys to upload, or is empty if the provider reads the issuer.
	// KeepKeys is set if they include keys that the provider already has.
	JWKS     string
	KeepKeys bool
}

// ServiceAccount is a ServiceAccount with an identity.
type ServiceAccount struct {
	Namespace, Name string
	// Annotate lists the annotations that it still needs, as KEY=VALUE. ClientIDKey is the key of the
	// annotation with Azure's client ID, if it lacks the annotation.
	Annotate    []string
	ClientIDKey string
}

// First returns the first ServiceAccount. Other objects are named after it.
func (t *Token) First() ServiceAccount { return t.ServiceAccounts[0] }

// Several reports whether several ServiceAccounts have the identity.
func (t *Token) Several() bool { return len(t.ServiceAccounts) > 1 }

// Subjects returns the claims sub.
func (t *Token) Subjects() (all []string) {
	for _, a := range t.ServiceAccounts {
		all = append(all, a.Subject())
	}
	return all
}

// Subject returns the claim sub.
func (a ServiceAccount) Subject() string {
	return "system:serviceaccount:" + a.Namespace + ":" + a.Name
}

// check returns an error for tokens that no cloud could trust.
func (t *Token) check() error {
	if len(t.ServiceAccounts) == 0 || t.Audience == "" {
		return errors.New("a ServiceAccount or the audience is missing")
	}
	for _, a := range t.ServiceAccounts {
		if a.Namespace == "" || a.Name == "" || !plainWord.MatchString(a.Subject()) {
			return fmt.Errorf("subject %q: namespace and ServiceAccount must be names of Kubernetes objects", a.Subject())
		}
	}
	return CheckIssuer(t.Issuer)
}

// CheckIssuer returns an error if no cloud accepts the URL as an issuer.
func CheckIssuer(issuer string) error {
	u, err := url.Parse(issuer)
	if err != nil || u.Scheme != "https" || u.Hostname() == "" || u.User != nil || strings.ContainsAny(issuer, "?#") || !texts.IsVisible(issuer) {
		return fmt.Errorf("issuer %q is not an https URL without user, query and fragment", issuer)
	}
	return nil
}

// checkTags returns an error for a tag that the cloud does not allow: one that does not match the
// pattern. It compiles the pattern only for tags: the lengths in it take 15 MiB in each command.
func (t *Token) checkTags(pattern string) error {
	if len(t.Tags) == 0 {
		return nil
	}
	allowed := regexp.MustCompile(pattern)
	for _, key := range slices.Sorted(maps.Keys(t.Tags)) {
		if tag := key + "=" + t.Tags[key]; !allowed.MatchString(tag) {
			return fmt.Errorf("--tag %q: the cloud allows only tags that match %s", tag, allowed)
		}
	}
	return nil
}

// maxName is the length of the longest name of an object in a cloud.
const maxName = 64

// ObjectName returns the name of a cloud object for the ServiceAccount, for example shop_cart. A
// name that is too long is truncated and gets a hash of the whole.
//
// No other ServiceAccount has the name, because namespaces have neither dots nor underscores: with a
// hyphen, shop/cart-db would get the identity of shop-cart/db.
func (a ServiceAccount) ObjectName() string {
	return shorten(a.Namespace+"_"+strings.ReplaceAll(a.Name, ".", "_"), a.Subject(), maxName)
}

// shorten truncates a name to limit. A truncated name ends with a hash of whole.
func shorten(name, whole string, limit int) string {
	if len(name) <= limit {
		return name
	}
	sum := sha256.Sum256([]byte(whole))
	suffix := "-" + hex.EncodeToString(sum[:4])
	return strings.TrimRight(name[:limit-len(suffix)], "-") + suffix
}

// Label returns the name of a Terraform resource for the ServiceAccount, for example
// shop_cart.
func (a ServiceAccount) Label() string { return identifier(a.Namespace + "_" + a.Name) }

// Trust is the configuration that makes a cloud trust the tokens of a ServiceAccount: the executed
// templates of the cloud, by name. A name is json, or a format and a part; templates with other
// names are only used by these.
type Trust map[string]string

//go:embed *.tmpl
var templates embed.FS

// fill returns the configuration of a cloud, from its templates.
func fill(cloud string, token *Token, values any) (Trust, error) {
	if err := token.check(); err != nil {
		return nil, err
	}
	return execute(values, "common.tmpl", cloud+".tmpl")
}

// execute executes the templates in files, and returns their texts by name.
func execute(values any, files ...string) (Trust, error) {
	functions := template.FuncMap{"sh": Quote, "file": File, "base": path.Base, "public": Public, "json": compact, "tf": literal, "tfdoc": heredoc, "tflist": list, "id": identifier, "cut": cut, "join": strings.Join}
	parsed, err := template.New("").Funcs(functions).ParseFS(templates, files...)
	if err != nil {
		return nil, err
	}
	all := Trust{}
	for _, one := range parsed.Templates() {
		if one.Name() != "json" && !strings.Contains(one.Name(), " ") {
			continue
		}
		var text strings.Builder
		if err := one.Execute(&text, values); err != nil {
			return nil, err
		}
		all[one.Name()] = strings.TrimPrefix(text.String(), "\n")
	}
	return all, nil
}

// MarshalJSON returns the configuration in the cloud's own format.
func (t Trust) MarshalJSON() ([]byte, error) { return []byte(t["json"]), nil }

// Text returns a part of the configuration for the shell or for Terraform, or a repair;
// empty if the cloud needs no such part.
func (t Trust) Text(format, part string) string { return t[format+" "+part] }

var (
	notInIdentifier = regexp.MustCompile(`[^a-z0-9]`)
	plainWord       = regexp.MustCompile(`^[A-Za-z0-9@%+=:,./_-]+$`)
)

// identifier returns a text as an identifier of Terraform.
func identifier(text string) string {
	text = notInIdentifier.ReplaceAllString(text, "_")
	if text[0] >= '0' && text[0] <= '9' {
		return "_" + text
	}
	return text
}

// literal returns a text as a Terraform string without expansion.
func literal(text string) string { return unexpanded(compact(text)) }

// unexpanded escapes a text for a Terraform string without expansion.
func unexpanded(text string) string {
	return strings.NewReplacer("${", "$${", "%{", "%%{").Replace(text)
}

// heredoc returns JSON as a Terraform heredoc.
func heredoc(json string) string { return "<<EOF\n" + unexpanded(json) + "\nEOF" }

// list returns texts as a Terraform list in an indented block.
func list(indent int, texts []string) string {
	margin := "\n" + strings.Repeat(" ", indent)
	var all strings.Builder
	for _, text := range texts {
		all.WriteString(margin + "  " + literal(text) + ",")
	}
	if len(texts) == 0 {
		return "[]"
	}
	return "[" + all.String() + margin + "]"
}

// cut splits KEY=VALUE.
func cut(annotation string) [2]string {
	key, value, _ := strings.Cut(annotation, "=")
	return [2]string{key, value}
}

// compact returns a value as JSON without the escapes for HTML.
func compact(value any) string {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		panic(err) // strings, and decoded JSON, are always encoded
	}
	return strings.TrimSuffix(text.String(), "\n")
}

// Quote quotes a text as one word for the shell.
func Quote(text string) string {
	if plainWord.MatchString(text) {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// File returns the command that writes JSON to a file. name is a shell word.
func File(name, json string) string {
	// No line of JSON is EOF.
	return "cat > " + name + " <<'EOF'\n" + strings.TrimSuffix(json, "\n") + "\nEOF\n"
}

// noTrust is the default text of a custom provider, after the license header.
//
//go:embed notrust.txt
var noTrust string

// NewCustom returns the trust configuration of a custom provider: the text in the
// configuration file with the values filled in. Lines with an unset value are omitted. If
// needed, a command before the text writes the public keys of the cluster to a file.
func NewCustom(token *Token, d *annotations.Provider) (Trust, error) {
	all := annotations.Values{}
	maps.Copy(all, token.Values)
	maps.Copy(all, annotations.Values{
		"issuer": token.Issuer, "subject": token.First().Subject(), "audience": token.Audience,
		"namespace": token.First().Namespace, "serviceaccount": token.First().Name,
	})
	var text strings.Builder
	if token.JWKS != "" && d.TrustHas(annotations.TrustKeysFile) {
		const file = "jwks.json"
		all[annotations.TrustKeysFile] = file
		text.WriteString("# The public keys of the cluster:\n" + File(file, token.JWKS) + "\n")
	}
	_, without, _ := strings.Cut(noTrust, "\n\n")
	template := cmp.Or(d.Trust, without)
	// Lanyard cannot quote the value, because it does not know its position in a command.
	for _, name := range d.TrustValues() {
		if value := all[name]; value != "" && !plainWord.MatchString(value) && strings.Contains(template, "{"+name+"}") {
			return nil, fmt.Errorf("%s %q: a shell may expand it, so it is not written into commands; use only letters, digits and @%%+=:,./_-", name, value)
		}
	}
	for line := range strings.Lines(template) {
		if expanded, complete := all.Expand(line); complete {
			text.WriteString(expanded)
		}
	}
	// Values that the text does not contain may be examples.
	used := maps.Clone(token.Values)
	maps.DeleteFunc(used, func(name, _ string) bool { return d.Trust != "" && !d.TrustHas(name) })
	return fill("custom", token, struct {
		*Token
		Provider, Commands string
		Values             annotations.Values
	}{token, d.Name, text.String(), used})
}
