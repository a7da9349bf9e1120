// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cloud has the commands that deal with the clouds: trust and token.
//
//	trust*.go     generates the configuration with which a cloud trusts a ServiceAccount,
//	              as commands and as Terraform resources; pure
//	issuer.go, publish.go
//	              compare the published keys of the issuer with the cluster's keys
//	exchange*.go  present a token to a cloud, as the cloud's SDKs do in a pod; no function
//	              returns a credential
//
// The JSON of each type in trust*.go has the form that the cloud itself uses.
package cloud

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
	"strings"

	"github.com/lanyard-dev/lanyard/internal/texts"
)

// Token describes the tokens of the ServiceAccount to trust.
type Token struct {
	// Issuer is the claim iss, to the last character.
	Issuer string
	// Namespace and ServiceAccount are the names in the claim sub.
	Namespace, ServiceAccount string
	// Audience is the claim aud.
	Audience string
}

// Subject returns the claim sub.
func (t *Token) Subject() string {
	return "system:serviceaccount:" + t.Namespace + ":" + t.ServiceAccount
}

// check returns an error if no cloud could trust the tokens.
func (t *Token) check() error {
	for _, field := range [][2]string{{"namespace", t.Namespace}, {"ServiceAccount", t.ServiceAccount}, {"audience", t.Audience}} {
		if field[1] == "" {
			return fmt.Errorf("%s: got none, want one", field[0])
		}
	}
	return CheckIssuer(t.Issuer)
}

// Script is text in two parts.
type Script struct {
	// Cluster is needed once for each cluster, ServiceAccount once for each
	// ServiceAccount.
	Cluster, ServiceAccount string
}

// CheckIssuer returns an error if no cloud accepts the URL as an issuer.
func CheckIssuer(issuer string) error {
	u, err := url.Parse(issuer)
	if err != nil || u.Scheme != "https" || u.Hostname() == "" || u.User != nil || strings.ContainsAny(issuer, "?#") || !texts.IsVisible(issuer) {
		return fmt.Errorf("issuer: got %q, want an https URL without user, query and fragment", issuer)
	}
	return nil
}

// maxName is the length of the longest name of an object in a cloud.
const maxName = 64

// name returns the name of an object that belongs to the ServiceAccount, such as
// shop-cart. A name that is too long is cut and gets a hash of the whole.
func (t *Token) name() string {
	name := strings.ReplaceAll(t.Namespace+"-"+t.ServiceAccount, ".", "-")
	if len(name) <= maxName {
		return name
	}
	sum := sha256.Sum256([]byte(t.Subject()))
	suffix := "-" + hex.EncodeToString(sum[:4])
	return name[:maxName-len(suffix)] + suffix
}

var notInIdentifier = regexp.MustCompile(`[^a-z0-9]`)

// label returns the name of a Terraform resource that belongs to the
// ServiceAccount, such as shop_cart.
func (t *Token) label() string { return identifier(t.Namespace + "_" + t.ServiceAccount) }

// identifier returns a text as an identifier of Terraform.
func identifier(text string) string {
	text = notInIdentifier.ReplaceAllString(text, "_")
	if text[0] >= '0' && text[0] <= '9' {
		return "_" + text
	}
	return text
}

// literal returns a text as a string of Terraform, which expands nothing in it.
func literal(text string) string {
	return strings.NewReplacer("${", "$${", "%{", "%%{").Replace(compact(text))
}

// compact returns a value as JSON without the escapes for HTML.
func compact(value any) string {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		panic(err) // strings, and structs and maps of them, are always encoded
	}
	return strings.TrimSuffix(text.String(), "\n")
}

// indented returns a value as JSON for people.
func indented(value any) string {
	var text bytes.Buffer
	if err := json.Indent(&text, []byte(compact(value)), "", "  "); err != nil {
		panic(err) // it was just encoded
	}
	return text.String()
}
