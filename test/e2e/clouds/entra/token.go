// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package entra

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/lanyard-dev/lanyard/test/e2e/clouds/issuer"
	"github.com/lanyard-dev/lanyard/test/e2e/clouds/journal"
	"github.com/lanyard-dev/lanyard/test/e2e/clouds/trust"
)

// clientCredentials is the only type of grant.
const clientCredentials = "client_credentials"

// assertionType is the type of a JWT assertion (RFC 7523).
const assertionType = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"

// lifetime is the lifetime of an access token in seconds. Real lifetimes start
// at this value.
const lifetime = 3599

// openIDScopes can be requested in addition to a resource's scope.
var openIDScopes = []string{"openid", "profile", "email", "offline_access"}

// token handles the token endpoint.
func (e *entra) token(w http.ResponseWriter, r *http.Request) {
	entry := journal.Entry{Cloud: journal.Azure, Operation: clientCredentials}
	f := malformed()
	if err := r.ParseForm(); err == nil {
		f = e.grant(r.Context(), r.PathValue("tenant"), r.PostForm, &entry)
	}
	if f != nil {
		e.send(w, r, entry.Refused(&journal.Failure{Status: f.status, Code: fmt.Sprintf("AADSTS%d", f.code), Message: f.message, Err: f.err}, f.body()))
		return
	}
	// Only the resource reads the token, so it does not have to be a JWT.
	token := rand.Text() + rand.Text() + rand.Text() + rand.Text()
	e.send(w, r, entry.Granted(token, map[string]any{
		"token_type": "Bearer", "expires_in": lifetime, "ext_expires_in": lifetime, "access_token": token,
	}))
}

func malformed() *failure {
	return &failure{http.StatusBadRequest, "invalid_request", 9002313, "Invalid request. Request is malformed or invalid.", nil}
}

// grant decides about a request and completes the journal entry. It returns nil
// if the token is granted.
func (e *entra) grant(ctx context.Context, tenant string, form url.Values, entry *journal.Entry) *failure {
	clientID := form.Get("client_id")
	entry.Identity = clientID + "@" + tenant
	if f := missing(form, "grant_type", "client_id", "scope"); f != nil {
		return f
	}
	if grantType := form.Get("grant_type"); grantType != clientCredentials {
		return &failure{http.StatusBadRequest, "unsupported_grant_type", 70003, fmt.Sprintf("The app requested an unsupported grant type '%s'.", grantType), nil}
	}
	applications, found := e.tenants[strings.ToLower(tenant)]
	if !found {
		return noTenant(tenant)
	}
	app, found := applications[strings.ToLower(clientID)]
	if !found {
		return &failure{http.StatusBadRequest, "unauthorized_client", 700016, fmt.Sprintf(
			"Application with identifier '%s' was not found in the directory '%s'. This can happen if the application has not been installed by the administrator of the tenant or consented to by any user in the tenant. You may have sent your authentication request to the wrong tenant.",
			clientID, tenant), nil}
	}
	if f := checkScope(form.Get("scope")); f != nil {
		return f
	}
	switch {
	case form.Get("client_assertion") != "":
		return e.checkAssertion(ctx, app, form, entry)
	case form.Get("client_secret") != "":
		return checkSecret(app, form.Get("client_secret"))
	}
	return &failure{http.StatusUnauthorized, "invalid_client", 7000218, "The request body must contain the following parameter: 'client_assertion' or 'client_secret'.", nil}
}

// missing returns a failure for the first missing field.
func missing(form url.Values, fields ...string) *failure {
	for _, field := range fields {
		if form.Get(field) == "" {
			return &failure{http.StatusBadRequest, "invalid_request", 900144, fmt.Sprintf("The request body must contain the following parameter: '%s'.", field), nil}
		}
	}
	return nil
}

func noTenant(tenant string) *failure {
	return &failure{http.StatusBadRequest, "invalid_request", 90002, fmt.Sprintf(
		"Tenant '%s' not found. Check to make sure you have the correct tenant ID and are signing into the correct cloud. Check with your subscription administrator, this may happen if there are no active subscriptions for the tenant.",
		tenant), nil}
}

// checkScope requires exactly one resource with the suffix /.default.
func checkScope(scope string) *failure {
	resources := slices.DeleteFunc(strings.Fields(scope), func(s string) bool { return slices.Contains(openIDScopes, s) })
	for _, resource := range resources {
		if name, ok := strings.CutSuffix(resource, "/.default"); !ok || name == "" {
			return &failure{http.StatusBadRequest, "invalid_scope", 1002012, fmt.Sprintf(
				"The provided value for scope %s is not valid. Client credential flows must have a scope value with /.default suffixed to the resource identifier (application ID URI).", scope), nil}
		}
	}
	if len(resources) != 1 {
		return &failure{http.StatusBadRequest, "invalid_scope", 70011, fmt.Sprintf(
			"The provided request must include a 'scope' input parameter. The provided value for the input parameter 'scope' is not valid. The scope %s is not valid.", scope), nil}
	}
	return nil
}

func checkSecret(app trust.Application, secret string) *failure {
	if slices.Contains(app.PasswordCredentials, trust.PasswordCredential{SecretText: secret}) {
		return nil
	}
	return &failure{http.StatusUnauthorized, "invalid_client", 7000215, fmt.Sprintf(
		"Invalid client secret provided. Ensure the secret being sent in the request is the client secret value, not the client secret ID, for a secret added to app '%s'.", app.AppID), nil}
}

// checkAssertion compares a Kubernetes token with the application's federated
// identity credentials. The issuer, the subject and the audience of one of them
// must match exactly.
func (e *entra) checkAssertion(ctx context.Context, app trust.Application, form url.Values, entry *journal.Entry) *failure {
	if f := missing(form, "client_assertion_type"); f != nil {
		return f
	}
	if form.Get("client_assertion_type") != assertionType {
		return malformed()
	}
	now := time.Now()
	token, err := e.tokens.Verify(ctx, form.Get("client_assertion"), now)
	entry.Describe(token)
	if errors.Is(err, issuer.ErrMalformed) {
		return &failure{http.StatusBadRequest, "invalid_request", 50027, "JWT token is invalid or malformed.", nil}
	}
	if token.Algorithm != "RS256" {
		return &failure{http.StatusBadRequest, "invalid_request", 5002738, fmt.Sprintf(
			"Invalid JWT token. '%s' is not a supported signature algorithm. Supported signing algorithms are: 'RS256'", token.Algorithm), nil}
	}
	records := app.FederatedIdentityCredentials
	if len(records) == 0 {
		return &failure{http.StatusUnauthorized, "invalid_client", 70025, fmt.Sprintf(
			"The client '%s'(%s) has no configured federated identity credentials.", app.AppID, app.DisplayName), nil}
	}
	records = matching(records, func(c trust.FederatedIdentityCredential) bool { return c.Issuer == token.Issuer })
	if len(records) == 0 {
		return noRecord(700211, "issuer", token.Issuer, "")
	}
	if err != nil {
		return refused(err, token, now)
	}
	return match(records, token)
}

// match checks the subject and the audience of the credentials with a matching
// issuer.
func match(records []trust.FederatedIdentityCredential, token issuer.Token) *failure {
	ofSubject := matching(records, func(c trust.FederatedIdentityCredential) bool { return c.Subject == token.Subject })
	if len(ofSubject) == 0 {
		if slices.ContainsFunc(records, func(c trust.FederatedIdentityCredential) bool { return strings.EqualFold(c.Subject, token.Subject) }) {
			return noRecord(7002138, "subject", token.Subject, " The subject matches with case-insensitive comparison, but not with case-sensitive comparison.")
		}
		return noRecord(700213, "subject", token.Subject, "")
	}
	if !slices.ContainsFunc(ofSubject, func(c trust.FederatedIdentityCredential) bool { return slices.Equal(c.Audiences, token.Audience) }) {
		return noRecord(700212, "audience", strings.Join(token.Audience, ","), "")
	}
	return nil
}

func matching(records []trust.FederatedIdentityCredential, keep func(trust.FederatedIdentityCredential) bool) []trust.FederatedIdentityCredential {
	return slices.DeleteFunc(slices.Clone(records), func(c trust.FederatedIdentityCredential) bool { return !keep(c) })
}

func noRecord(code int, what, value, more string) *failure {
	return &failure{http.StatusUnauthorized, "invalid_client", code, fmt.Sprintf(
		"No matching federated identity record found for presented assertion %s '%s'.%s Check your federated identity credential Subject, Audience and Issuer against the presented assertion. https://learn.microsoft.com/entra/workload-id/workload-identity-federation",
		what, value, more), nil}
}

// refused returns the failure for an assertion that was not verified.
func refused(err error, token issuer.Token, now time.Time) *failure {
	// The real service writes times with seven fractional digits.
	const format = "2006-01-02T15:04:05.0000000Z"
	switch {
	case errors.Is(err, issuer.ErrExpired), errors.Is(err, issuer.ErrNotYetValid):
		return &failure{http.StatusUnauthorized, "invalid_client", 700024, fmt.Sprintf(
			"Client assertion is not within its valid time range. Current time: %s, assertion valid from %s, expiry time of assertion %s. Review the documentation at https://learn.microsoft.com/entra/identity-platform/certificate-credentials .",
			now.UTC().Format(format), token.NotBefore.UTC().Format(format), token.Expires.UTC().Format(format)), nil}
	case errors.Is(err, issuer.ErrUnavailable):
		return &failure{http.StatusBadRequest, "invalid_request", 90061, "Request to External OIDC endpoint failed.", err}
	case errors.Is(err, issuer.ErrUnknownIssuer):
		return &failure{http.StatusBadRequest, "invalid_request", 90061, "Request to External OIDC endpoint failed.", nil}
	case errors.Is(err, issuer.ErrUnknownKey):
		return &failure{http.StatusUnauthorized, "invalid_client", 7000272, fmt.Sprintf(
			"The certificate with identifier %s used to sign the federated credential could not be found in the metadata of identity provider %s. Please validate that your Identity Provider's metadata exposes the key used to sign the incoming token.",
			token.KeyID, token.Issuer), nil}
	default:
		return &failure{http.StatusUnauthorized, "invalid_client", 700027, "Client assertion contains an invalid signature.", nil}
	}
}
