// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"fmt"
	"maps"
	"strings"

	"github.com/lanyard-dev/lanyard/internal/provider"
)

// noTrust is the text of a custom provider whose file has none.
const noTrust = `# The configuration file of the webhook has no text "trust" for this provider.
# The provider must accept tokens with these claims:
#   iss: {issuer}
#   sub: {subject}
#   aud: {audience}
`

// NewCustom returns the trust configuration of a custom provider: the text in the
// configuration file, with the values. A line with a value that is not set is left out.
// jwks are the public keys of the cluster if the provider cannot read the issuer: a
// command in front of the text writes them into a file.
func NewCustom(token Token, d *provider.Definition, values provider.Values, jwks string) (*Trust, error) {
	if err := token.check(); err != nil {
		return nil, err
	}
	all := provider.Values{}
	maps.Copy(all, values)
	maps.Copy(all, provider.Values{
		"issuer": token.Issuer, "subject": token.Subject(), "audience": token.Audience,
		"namespace": token.Namespace, "serviceaccount": token.ServiceAccount,
	})
	var text strings.Builder
	if jwks != "" && d.TrustHas(provider.TrustKeysFile) {
		const file = "jwks.json"
		all[provider.TrustKeysFile] = file
		text.WriteString("# The public keys of the cluster:\n" + File(file, jwks) + "\n")
	}
	template := d.Trust
	if template == "" {
		template = noTrust
	}
	// Lanyard does not know where in a command a value is, so it cannot quote the value.
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
	// A value that the text does not have may be an example.
	used := maps.Clone(values)
	maps.DeleteFunc(used, func(name, _ string) bool { return d.Trust != "" && !d.TrustHas(name) })
	return newTrust("custom", struct {
		*Token
		Provider, Commands, JWKS string
		Values                   provider.Values
	}{&token, d.Name, text.String(), jwks, used})
}
