// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package google

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/lanyard-dev/lanyard/test/e2e/clouds/issuer"
	"github.com/lanyard-dev/lanyard/test/e2e/clouds/journal"
)

// The RFC 8693 values that the exchange supports.
const (
	grantType        = "urn:ietf:params:oauth:grant-type:token-exchange"
	accessTokenType  = "urn:ietf:params:oauth:token-type:access_token"
	jwtTokenType     = "urn:ietf:params:oauth:token-type:jwt"
	idTokenTokenType = "urn:ietf:params:oauth:token-type:id_token"
)

const (
	// maxLifetime is the maximum lifetime of a federated token. The token also
	// expires with the token that it was exchanged for.
	maxLifetime = time.Hour
	// maxAssertionLifetime is the maximum time between a token's iat and exp:
	// https://cloud.google.com/iam/docs/workload-identity-federation-with-other-providers
	maxAssertionLifetime = 48 * time.Hour
	// maxSubject is the maximum length of google.subject in bytes.
	// ServiceAccount names can be longer.
	maxSubject = 127
)

// refuse returns an error of the exchange. The status is always 400.
func refuse(code, format string, args ...any) *journal.Failure {
	return &journal.Failure{Status: http.StatusBadRequest, Code: code, Message: fmt.Sprintf(format, args...)}
}

func invalidGrant(format string, args ...any) *journal.Failure {
	return refuse("invalid_grant", format, args...)
}

func invalidRequest(format string, args ...any) *journal.Failure {
	return refuse("invalid_request", format, args...)
}

func (g *google) exchange(w http.ResponseWriter, r *http.Request) {
	entry := journal.Entry{Cloud: journal.GCP, Operation: "token-exchange"}
	failure := invalidRequest("The request body is malformed.")
	var granted grant
	now := time.Now()
	if err := r.ParseForm(); err == nil {
		granted, failure = g.federate(r.Context(), r.PostForm, &entry, now)
	}
	if failure != nil {
		g.send(w, r, entry.Refused(failure, map[string]string{"error": failure.Code, "error_description": failure.Message}))
		return
	}
	federated := accessToken()
	g.keep(federated, granted, now)
	g.send(w, r, entry.Granted(federated, map[string]any{
		"access_token":      federated,
		"issued_token_type": accessTokenType,
		"token_type":        "Bearer",
		// The libraries treat 0 as a missing value.
		"expires_in": max(1, int(granted.expires.Sub(now).Seconds())),
	}))
}

// federate decides about a request and completes the journal entry.
func (g *google) federate(ctx context.Context, form url.Values, entry *journal.Entry, now time.Time) (grant, *journal.Failure) {
	entry.Identity = form.Get("audience")
	if f := checkForm(form); f != nil {
		return grant{}, f
	}
	name, ok := strings.CutPrefix(form.Get("audience"), iam)
	if !ok || !providerName.MatchString(name) {
		return grant{}, invalidRequest(`Invalid value for "audience". This value should be the full resource name of the Identity Provider. See https://cloud.google.com/iam/docs/reference/sts/rest/v1/TopLevel/token for the list of possible formats.`)
	}
	p, ok := g.providers[name]
	if !ok {
		return grant{}, refuse("invalid_target", `The target service indicated by the "audience" parameters is invalid. This might either be because the pool or provider is disabled or deleted or because it doesn't exist.`)
	}
	token, err := p.tokens.Verify(ctx, form.Get("subject_token"), now)
	entry.Describe(token)
	if f := p.refuses(token, err); f != nil {
		return grant{}, f
	}
	subject, _ := token.Claims[p.subjectClaim].(string)
	granted := grant{pool: p.pool, subject: subject, scopes: strings.Fields(form.Get("scope")), token: token, expires: now.Add(maxLifetime)}
	if kubernetes, _ := token.Claims["kubernetes.io"].(map[string]any); p.mapsNamespace {
		granted.namespace, _ = kubernetes["namespace"].(string)
	}
	if token.Expires.Before(granted.expires) {
		granted.expires = token.Expires
	}
	entry.Identity = granted.principal()
	if subject == "" {
		return grant{}, invalidGrant("Could not obtain a value for google.subject from the given credential.")
	}
	if len(subject) > maxSubject {
		return grant{}, invalidGrant("The size of mapped attribute google.subject exceeds the %d bytes limit. Either modify your attribute mapping or the incoming assertion to produce a mapped attribute that is less than %d bytes.", maxSubject, maxSubject)
	}
	return granted, nil
}

// checkForm checks the fields that do not depend on the provider.
func checkForm(form url.Values) *journal.Failure {
	if got := form.Get("grant_type"); got != grantType {
		return refuse("unsupported_grant_type", "Unsupported grant type: %s", got)
	}
	for _, field := range []string{"audience", "subject_token", "subject_token_type", "requested_token_type"} {
		if form.Get(field) == "" {
			return invalidRequest("Missing required field %q.", field)
		}
	}
	if got := form.Get("requested_token_type"); got != accessTokenType {
		return invalidRequest("Unsupported requested token type: %s", got)
	}
	if got := form.Get("subject_token_type"); got != jwtTokenType && got != idTokenTokenType {
		return invalidRequest("Invalid subject token type: %s", got)
	}
	scopes := strings.Fields(form.Get("scope"))
	if len(scopes) == 0 || slices.ContainsFunc(scopes, func(s string) bool { return !strings.HasPrefix(s, "https://www.googleapis.com/auth/") }) {
		return refuse("invalid_scope", "Some requested scopes are missing or invalid.")
	}
	return nil
}

// refuses returns a failure if the provider does not accept the token; err is the
// result of its verification. The messages were observed at the real service.
func (p provider) refuses(token issuer.Token, err error) *journal.Failure {
	switch {
	case errors.Is(err, issuer.ErrMalformed):
		return invalidGrant("Unable to parse the ID Token.")
	case token.Issuer != p.issuer:
		return invalidGrant("The issuer in ID Token %s does not match the expected one in config: %s.", token.Issuer, p.issuer)
	case token.KeyID == "", token.Algorithm != "RS256" && token.Algorithm != "ES256",
		errors.Is(err, issuer.ErrUnknownKey), errors.Is(err, issuer.ErrUnknownIssuer):
		// No key of the issuer can match such a token.
		return invalidGrant("Error connecting to the given credential's issuer.")
	case errors.Is(err, issuer.ErrUnavailable):
		failure := invalidGrant("Error connecting to the given credential's issuer.")
		failure.Err = err
		return failure
	case errors.Is(err, issuer.ErrBadSignature):
		return invalidGrant("Unable to verify the ID Token signature.")
	case err != nil, token.IssuedAt.IsZero(), token.Expires.Sub(token.IssuedAt) > maxAssertionLifetime:
		return invalidGrant("ID Token issued at %s is stale to sign-in.", seconds(token.IssuedAt))
	case !token.IsFor(p.audiences...):
		return invalidGrant("The audience in ID Token [%s] does not match the expected audience.", strings.Join(token.Audience, ", "))
	}
	return nil
}

func seconds(t time.Time) string {
	if t.IsZero() {
		return "null"
	}
	return fmt.Sprint(t.Unix())
}
