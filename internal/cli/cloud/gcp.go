// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"errors"
	"fmt"
	"strings"

	"github.com/lanyard-dev/lanyard/internal/exchange"
	"github.com/lanyard-dev/lanyard/internal/provider"
)

// maxGoogleSubject is the length of the longest subject in bytes.
const maxGoogleSubject = 127

// namespaceClaim is the namespace of a token's ServiceAccount, in Google's dialect of CEL. As the
// attribute "namespace", it allows to grant a role to all ServiceAccounts of a namespace, as a
// principalSet.
const namespaceClaim = "assertion['kubernetes.io']['namespace']"

// trustGCP returns the trust configuration of Google Cloud, with or without a service account to
// impersonate.
func trustGCP(token *Token) (Trust, error) {
	full, email := token.Values["workload-identity-provider"], token.Values["service-account"]
	number, pool, name, ok := provider.GCPProviderParts(full)
	if !ok {
		return nil, fmt.Errorf("workload identity provider %q is not of the form projects/NUMBER/locations/global/"+
			"workloadIdentityPools/POOL/providers/PROVIDER", full)
	}
	if len(token.Tags) > 0 {
		return nil, errors.New("--tag: pools, service accounts and roles of Google Cloud have no labels; name another cloud with --cloud, or leave out --tag")
	}
	var principals []string
	for _, subject := range token.Subjects() {
		principals = append(principals, exchange.Principal(full, subject))
		if len(subject) > maxGoogleSubject {
			return nil, fmt.Errorf("subject %q has %d bytes; Google Cloud accepts at most %d", subject, len(subject), maxGoogleSubject)
		}
	}
	allowed := token.Audience
	if strings.TrimPrefix(allowed, "https:") == "//iam.googleapis.com/"+full {
		allowed = "" // the audience that Google expects
	}
	emailNumber, _, _ := strings.Cut(email, "-compute@") // of Compute Engine's service account
	return fill("gcp", token, struct {
		*Token
		Provider, Email, Number, PoolID, ProviderID, AllowedAudience, EmailProject, EmailNumber, NamespaceClaim string
		Principals                                                                                              []string
	}{token, full, email, number, pool, name, allowed, provider.GCPProjectOf(email), emailNumber, namespaceClaim, principals})
}
