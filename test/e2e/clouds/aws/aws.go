// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package aws emulates two actions of AWS STS, with the checks and responses of the
// real service: AssumeRoleWithWebIdentity, for Kubernetes tokens, and AssumeRole, for
// the credentials that it issued.
//
// API: https://docs.aws.amazon.com/STS/latest/APIReference/API_AssumeRoleWithWebIdentity.html
// and API_AssumeRole.html
package aws

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/lanyard-dev/lanyard/test/e2e/clouds/issuer"
	"github.com/lanyard-dev/lanyard/test/e2e/clouds/journal"
	"github.com/lanyard-dev/lanyard/test/e2e/clouds/trust"
)

// version is the version of the API.
const version = "2011-06-15"

// The actions.
const (
	byRole          = "AssumeRole"
	withWebIdentity = "AssumeRoleWithWebIdentity"
)

// defaultMaxSession is used for roles without MaxSessionDuration.
const defaultMaxSession = 3600

// roleARN captures the partition, the account, and the path with the name.
var roleARN = regexp.MustCompile(`^arn:(aws[a-z-]*):iam::([0-9]{12}):role/([\x21-\x7e]+)$`)

// STS is the service in all regions.
type STS struct {
	tokens    *issuer.Issuer
	journal   *journal.Journal
	providers []trust.OpenIDConnectProvider
	roles     map[string]role
	sessions  sessions
}

// role is a role that can be assumed.
type role struct {
	maxSession int
	policy     policy
}

// New returns an STS with the configured trust. It returns an error if it
// cannot evaluate a trust policy exactly as IAM does.
func New(config trust.AWS, tokens *issuer.Issuer, log *journal.Journal) (*STS, error) {
	sts := &STS{tokens: tokens, journal: log, providers: config.OpenIDConnectProviders, roles: map[string]role{}}
	for _, provider := range config.OpenIDConnectProviders {
		if !strings.HasPrefix(provider.ARN, "arn:aws:iam::") || !strings.HasSuffix(provider.ARN, ":oidc-provider/"+provider.URL) {
			return nil, fmt.Errorf("aws: got OIDC provider %q with url %q, want arn:aws:iam::ACCOUNT:oidc-provider/URL with the URL without https://", provider.ARN, provider.URL)
		}
	}
	for _, configured := range config.Roles {
		if _, twice := sts.roles[configured.ARN]; twice || !roleARN.MatchString(configured.ARN) {
			return nil, fmt.Errorf("aws: got role %q, want arn:aws:iam::ACCOUNT:role/NAME without duplicates", configured.ARN)
		}
		account := roleARN.FindStringSubmatch(configured.ARN)[2]
		compiled, err := compile(configured.AssumeRolePolicyDocument, account, config.OpenIDConnectProviders)
		if err != nil {
			return nil, fmt.Errorf("aws: role %s: %w", configured.ARN, err)
		}
		sts.roles[configured.ARN] = role{maxSession: cmp.Or(configured.MaxSessionDuration, defaultMaxSession), policy: compiled}
	}
	return sts, nil
}

// ServeHTTP handles one call of the API.
func (s *STS) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost || r.URL.Path != "/" {
		http.NotFound(w, r)
		return
	}
	// The signature covers the body.
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	r.Body = io.NopCloser(bytes.NewReader(body))
	if err != nil || r.ParseForm() != nil {
		s.journal.Send(w, r, failed(journal.Entry{Operation: withWebIdentity}, badRequest("MalformedQueryString", "The query string is malformed")))
		return
	}
	form := r.PostForm
	entry := journal.Entry{Operation: withWebIdentity, Identity: form.Get("RoleArn")}
	var session session
	var failure *journal.Failure
	if form.Get("Action") == byRole && form.Get("Version") == version {
		entry.Operation = byRole
		session, failure = s.assumeRole(r, body, &entry)
	} else {
		session, failure = s.assumeRoleWithWebIdentity(r.Context(), form, &entry)
	}
	if failure != nil {
		s.journal.Send(w, r, failed(entry, failure))
		return
	}
	s.journal.Send(w, r, granted(entry, session))
}

// maxBody is larger than the body of any call.
const maxBody = 1 << 20

func badRequest(code, message string) *journal.Failure {
	return &journal.Failure{Status: http.StatusBadRequest, Code: code, Message: message}
}

func forbidden(code, message string) *journal.Failure {
	return &journal.Failure{Status: http.StatusForbidden, Code: code, Message: message}
}

func invalidToken(message string) *journal.Failure {
	return badRequest("InvalidIdentityToken", message)
}

// assumeRoleWithWebIdentity decides about a call and completes the journal entry.
func (s *STS) assumeRoleWithWebIdentity(ctx context.Context, form url.Values, entry *journal.Entry) (session, *journal.Failure) {
	if action := form.Get("Action"); action != withWebIdentity || form.Get("Version") != version {
		return session{}, badRequest("InvalidAction", fmt.Sprintf("Could not find operation %s for version %s", action, form.Get("Version")))
	}
	request, failure := parse(form)
	if failure != nil {
		return session{}, failure
	}
	now := time.Now()
	token, err := s.tokens.Verify(ctx, request.token, now)
	entry.Describe(token)
	if errors.Is(err, issuer.ErrMalformed) {
		return session{}, invalidToken("The ID Token provided is not a valid JWT. (You may see this error if you sent an Access Token)")
	}
	provider, found := s.provider(request.account, token.Issuer)
	if !found {
		return session{}, invalidToken("No OpenIDConnect provider found in your account for " + token.Issuer)
	}
	if err != nil {
		return session{}, refused(err, token, now)
	}
	match := slices.IndexFunc(token.Audience, func(a string) bool { return slices.Contains(provider.ClientIDList, a) })
	if match < 0 {
		return session{}, invalidToken("Incorrect token audience")
	}
	audience := token.Audience[match]
	// The response for a missing role is the same as for one that denies the
	// call.
	role, ok := s.roles[request.roleARN]
	if !ok || !role.policy.allows(askedWithToken(provider, token.Subject, audience)) {
		return session{}, forbidden("AccessDenied", "Not authorized to perform sts:AssumeRoleWithWebIdentity")
	}
	if request.duration > role.maxSession {
		return session{}, invalid("The requested DurationSeconds exceeds the MaxSessionDuration set for this role.")
	}
	result := newSession(request, now)
	result.SubjectFromWebIdentityToken, result.Audience, result.Provider = token.Subject, audience, provider.ARN
	s.sessions.add(&result, request.roleARN, token, now.Add(time.Duration(request.duration)*time.Second))
	return result, nil
}

// provider returns the provider of the issuer in the role's account.
func (s *STS) provider(account, issuerURL string) (trust.OpenIDConnectProvider, bool) {
	for _, provider := range s.providers {
		if "https://"+provider.URL == issuerURL && strings.HasPrefix(provider.ARN, "arn:aws:iam::"+account+":") {
			return provider, true
		}
	}
	return trust.OpenIDConnectProvider{}, false
}

// refused returns the failure for a token that was not verified.
func refused(err error, token issuer.Token, now time.Time) *journal.Failure {
	switch {
	case errors.Is(err, issuer.ErrExpired):
		return badRequest("ExpiredTokenException",
			fmt.Sprintf("Token expired: current date/time %d must be before the expiration date/time %d", now.Unix(), token.Expires.Unix()))
	case errors.Is(err, issuer.ErrUnavailable):
		failure := badRequest("IDPCommunicationError", "An error occurred while communicating with the identity provider")
		failure.Err = err
		return failure
	case errors.Is(err, issuer.ErrUnknownKey), errors.Is(err, issuer.ErrUnknownIssuer):
		// The provider is configured, but the emulator has only the cluster's
		// keys.
		return invalidToken("Couldn't retrieve verification key from your identity provider,  please reference AssumeRoleWithWebIdentity documentation for requirements")
	case errors.Is(err, issuer.ErrNotYetValid):
		// The real messages of this case and the next are not public.
		return invalidToken("The ID Token provided is not valid yet")
	default:
		return invalidToken("The signature of the ID Token provided is not valid")
	}
}
