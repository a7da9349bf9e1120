// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package alibaba emulates the action AssumeRoleWithOIDC of Alibaba Cloud's STS for
// Kubernetes tokens.
//
// API: https://www.alibabacloud.com/help/en/ram/api-assumerolewithoidc
// Errors: https://help.aliyun.com/zh/ram/developer-reference/api-sts-2015-04-01-errorcodes
package alibaba

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/lanyard-dev/lanyard/test/e2e/clouds/issuer"
	"github.com/lanyard-dev/lanyard/test/e2e/clouds/journal"
	"github.com/lanyard-dev/lanyard/test/e2e/clouds/trust"
)

const (
	// operation is the action, of the version of the API.
	operation, version = "AssumeRoleWithOIDC", "2015-04-01"
	// lifetime is the lifetime of a session if the caller does not request one.
	lifetime = time.Hour
)

var (
	providerARN = regexp.MustCompile(`^acs:ram::[0-9]+:oidc-provider/[^/]+$`)
	roleARN     = regexp.MustCompile(`^acs:ram::[0-9]+:role/[^/]+$`)
)

// STS is the service in all regions.
type STS struct {
	tokens    *issuer.Issuer
	journal   *journal.Journal
	providers map[string]trust.AlibabaOIDCProvider
	roles     map[string][]trust.Statement
}

// New returns an STS with the configured trust. It returns an error if it cannot
// evaluate a trust policy exactly as RAM does.
func New(config trust.Alibaba, tokens *issuer.Issuer, log *journal.Journal) (*STS, error) {
	sts := &STS{tokens: tokens, journal: log, providers: map[string]trust.AlibabaOIDCProvider{}, roles: map[string][]trust.Statement{}}
	for _, p := range config.OIDCProviders {
		if !providerARN.MatchString(p.ARN) || !strings.HasPrefix(p.IssuerURL, "https://") {
			return nil, fmt.Errorf("alibaba: got OIDC provider %q with issuer %q, want acs:ram::ACCOUNT:oidc-provider/NAME and a URL with https://", p.ARN, p.IssuerURL)
		}
		sts.providers[p.ARN] = p
	}
	for _, role := range config.Roles {
		if !roleARN.MatchString(role.ARN) {
			return nil, fmt.Errorf("alibaba: got role %q, want acs:ram::ACCOUNT:role/NAME", role.ARN)
		}
		for n, s := range role.AssumeRolePolicyDocument.Statement {
			if err := sts.check(&s); err != nil {
				return nil, fmt.Errorf("alibaba: role %s: statement %d: %w", role.ARN, n, err)
			}
		}
		sts.roles[role.ARN] = role.AssumeRolePolicyDocument.Statement
	}
	return sts, nil
}

// check returns an error for a statement that is not supported.
func (s *STS) check(statement *trust.Statement) error {
	if statement.Effect != "Allow" || !slices.Equal(statement.Action, []string{"sts:AssumeRole"}) {
		return fmt.Errorf("got effect %q and actions %q, want Allow and sts:AssumeRole: others are not supported", statement.Effect, statement.Action)
	}
	for _, arn := range statement.Principal.Federated {
		if _, found := s.providers[arn]; !found {
			return fmt.Errorf("got principal %q, want a configured OIDC provider", arn)
		}
	}
	for operator, conditions := range statement.Condition {
		for key := range conditions {
			if operator != "StringEquals" || !slices.Contains([]string{"oidc:iss", "oidc:aud", "oidc:sub"}, key) {
				return fmt.Errorf("got condition %s of %s, want StringEquals of oidc:iss, oidc:aud or oidc:sub: others are not supported", operator, key)
			}
		}
	}
	return nil
}

// ServeHTTP handles one call of the API.
func (s *STS) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost || r.URL.Path != "/" {
		http.NotFound(w, r)
		return
	}
	entry := journal.Entry{Cloud: journal.Alibaba, Operation: operation}
	failure := &journal.Failure{Status: http.StatusBadRequest, Code: "InvalidParameter", Message: "The request body is malformed."}
	if err := r.ParseForm(); err == nil {
		entry.Identity = r.PostForm.Get("RoleArn")
		failure = s.assumeRole(r.Context(), r.URL.Query(), r.PostForm, &entry)
	}
	requestID := strings.ToUpper(string(uuid.NewUUID()))
	if failure != nil {
		body := map[string]string{"RequestId": requestID, "HostId": r.Host, "Code": failure.Code, "Message": failure.Message}
		s.journal.Send(w, r, entry.Refused(failure, body))
		return
	}
	token := rand.Text() + rand.Text() + rand.Text()
	s.journal.Send(w, r, entry.Granted(token, map[string]any{
		"RequestId": requestID,
		"AssumedRoleUser": map[string]string{
			"Arn":           entry.Identity + "/" + r.PostForm.Get("RoleSessionName"),
			"AssumedRoleId": "300000000000000001:" + r.PostForm.Get("RoleSessionName"),
		},
		"Credentials": map[string]string{
			"AccessKeyId": "STS." + rand.Text(), "AccessKeySecret": rand.Text(), "SecurityToken": token,
			"Expiration": time.Now().Add(lifetime).UTC().Format(time.RFC3339),
		},
	}))
}

func denied(code, message string) *journal.Failure {
	return &journal.Failure{Status: http.StatusUnauthorized, Code: "AuthenticationFail." + code, Message: message}
}

// assumeRole decides about a call and completes the journal entry.
func (s *STS) assumeRole(ctx context.Context, query, form url.Values, entry *journal.Entry) *journal.Failure {
	if query.Get("Action") != operation || query.Get("Version") != version {
		return &journal.Failure{Status: http.StatusNotFound, Code: "InvalidAction.NotFound", Message: "Specified api is not found, please check your url and method."}
	}
	if form.Get("OIDCToken") == "" {
		return denied("OIDCToken.Invalid", "The OIDCToken can not empty.")
	}
	token, err := s.tokens.Verify(ctx, form.Get("OIDCToken"), time.Now())
	entry.Describe(token)
	if errors.Is(err, issuer.ErrMalformed) {
		return denied("OIDCToken.Invalid", "The Jwt content is invalid that cannot be recognized.")
	}
	provider, found := s.providers[form.Get("OIDCProviderArn")]
	switch {
	case !found || provider.IssuerURL != token.Issuer:
		return denied("NoPermission", "No such OIDC Provider registered.")
	case errors.Is(err, issuer.ErrExpired):
		return denied("OIDCToken.Expired", "This JsonWebToken is expired.")
	case errors.Is(err, issuer.ErrUnavailable):
		return &journal.Failure{Status: http.StatusInternalServerError, Code: "InternalError", Message: "The request processing has failed due to some unknown error.", Err: err}
	case err != nil:
		return denied("OIDCToken.InvalidSignature", "OIDC token validate failed: invalid signature.")
	case !token.IsFor(provider.ClientIDs...):
		return denied("OIDCToken.AudienceNotMatch", "Invalid audience.")
	case !s.allows(form.Get("RoleArn"), provider.ARN, token):
		return denied("NoPermission", "There is no permission")
	}
	return nil
}

// allows reports whether a statement of the role's trust policy allows the token.
func (s *STS) allows(role, provider string, token issuer.Token) bool {
	values := map[string][]string{"oidc:iss": {token.Issuer}, "oidc:aud": token.Audience, "oidc:sub": {token.Subject}}
	return slices.ContainsFunc(s.roles[role], func(statement trust.Statement) bool {
		for key, allowed := range statement.Condition["StringEquals"] {
			if !slices.ContainsFunc(values[key], func(value string) bool { return slices.Contains(allowed, value) }) {
				return false
			}
		}
		return slices.Contains(statement.Principal.Federated, provider)
	})
}
