// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	_ "embed" // the causes
	"fmt"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/lanyard-dev/lanyard/internal/token"
)

//go:embed causes.yaml
var causesText []byte

// cause is why a cloud denies a token.
type cause struct {
	Code    string `json:"code"`
	Message string `json:"message"` // is in the cloud's message
	Text    string `json:"cause"`
	// Repair is the name of a template, and Terraform reports whether lanyard trust writes
	// the repair as Terraform, too.
	Repair    string `json:"repair"`
	Terraform bool   `json:"terraform"`
}

// causes returns the known causes of the denials of a provider.
func causes(provider string) ([]cause, error) {
	var all map[string][]cause
	if err := yaml.UnmarshalStrict(causesText, &all); err != nil {
		return nil, fmt.Errorf("causes of denials: %w", err)
	}
	return all[provider], nil
}

// explain adds the cause and the repair of a denial to the Answer.
func (a *Answer) explain(r *Request) error {
	known, err := causes(r.Provider)
	if err != nil {
		return err
	}
	for i := range known {
		if c := &known[i]; c.Code == a.Code && strings.Contains(a.Message, c.Message) {
			a.Cause, a.Repair = c.Text, c.repair(r)
			break
		}
	}
	return nil
}

// repair returns the commands that repair the cause of a denial; empty if there are none, or
// if the cloud can never accept the token.
func (c *cause) repair(r *Request) string {
	trust, err := r.trust()
	if err != nil || c.Repair == "" {
		return ""
	}
	text := trust.Text("repair", c.Repair)
	if c.Terraform && r.Profile == "" {
		text += "# As Terraform: lanyard trust " + r.Provider + " " + Quote(r.ServiceAccount) + " --namespace " + Quote(r.Namespace) + " --output terraform\n"
	}
	return text
}

// trust returns the trust configuration with which the cloud would accept the token.
func (r *Request) trust() (*Trust, error) {
	claims, err := token.Parse(r.Token)
	if err != nil {
		return nil, err
	}
	return apis()[r.Provider].trust(Token{Issuer: claims.Issuer, Namespace: r.Namespace, ServiceAccount: r.ServiceAccount, Audience: r.Audience, Prefix: r.Prefix}, r)
}
