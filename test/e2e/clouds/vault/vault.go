// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package vault emulates the login at the auth method jwt of Vault and OpenBao, with
// Kubernetes tokens.
//
// API: https://developer.hashicorp.com/vault/api-docs/auth/jwt
package vault

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/lanyard-dev/lanyard/test/e2e/clouds/issuer"
	"github.com/lanyard-dev/lanyard/test/e2e/clouds/journal"
	"github.com/lanyard-dev/lanyard/test/e2e/clouds/trust"
)

// lifetime is the lifetime of a Vault token.
const lifetime = 20 * time.Minute

// invalidToken is the prefix of errors about a token. Vault's errors have no codes, so the
// journal contains the start of the text.
const invalidToken = "error validating token"

// server is a server with auth methods.
type server struct {
	tokens  *issuer.Issuer
	journal *journal.Journal
	methods map[string]trust.AuthMethod
}

// New returns a server with the configured trust. A role must have an audience and a
// subject.
func New(config trust.Vault, tokens *issuer.Issuer, log *journal.Journal) (http.Handler, error) {
	s := &server{tokens: tokens, journal: log, methods: map[string]trust.AuthMethod{}}
	for _, method := range config.AuthMethods {
		if method.Path == "" || method.BoundIssuer == "" {
			return nil, fmt.Errorf("vault: got auth method %q with bound_issuer %q, want both", method.Path, method.BoundIssuer)
		}
		for _, role := range method.Roles {
			if role.Name == "" || len(role.BoundAudiences) == 0 || role.BoundSubject == "" {
				return nil, fmt.Errorf("vault: auth method %s: role %q: want bound_audiences and bound_subject", method.Path, role.Name)
			}
		}
		s.methods[method.Path] = method
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/auth/{path}/login", s.login)
	mux.HandleFunc("PUT /v1/auth/{path}/login", s.login) // as Vault's own clients do
	return mux, nil
}

// login is the body of a request.
type login struct {
	JWT  string `json:"jwt"`
	Role string `json:"role"`
}

func (s *server) login(w http.ResponseWriter, r *http.Request) {
	entry := journal.Entry{Cloud: journal.Vault, Operation: "login"}
	var body login
	failure := refuse("failed to parse JSON input", "", nil)
	var role *trust.VaultRole
	if err := json.NewDecoder(r.Body).Decode(&body); err == nil {
		entry.Identity = "auth/" + r.PathValue("path") + "/role/" + body.Role
		role, failure = s.decide(r.Context(), r.PathValue("path"), &body, &entry)
	}
	if failure != nil {
		s.journal.Send(w, r, entry.Refused(failure, map[string][]string{"errors": {failure.Message}}))
		return
	}
	token := "hvs." + rand.Text() + rand.Text() + rand.Text()
	s.journal.Send(w, r, entry.Granted(token, map[string]any{
		"request_id": string(uuid.NewUUID()), "lease_id": "", "renewable": false, "lease_duration": 0,
		"data": nil, "wrap_info": nil, "warnings": nil,
		"auth": map[string]any{
			"client_token": token, "accessor": rand.Text(), "policies": role.TokenPolicies, "token_policies": role.TokenPolicies,
			"metadata": map[string]string{"role": role.Name}, "lease_duration": int(lifetime.Seconds()), "renewable": true,
			"entity_id": string(uuid.NewUUID()), "token_type": "service", "orphan": true,
		},
	}))
}

// refuse returns an error with the text that Vault writes.
func refuse(code, detail string, err error) *journal.Failure {
	text := code
	if detail != "" {
		text += ": " + detail
	}
	return &journal.Failure{Status: http.StatusBadRequest, Code: code, Message: text, Err: err}
}

// decide decides about a login and completes the journal entry. It returns the role.
func (s *server) decide(ctx context.Context, path string, body *login, entry *journal.Entry) (*trust.VaultRole, *journal.Failure) {
	method, found := s.methods[path]
	if !found {
		return nil, refuse("permission denied", "", nil)
	}
	n := slices.IndexFunc(method.Roles, func(role trust.VaultRole) bool { return role.Name == body.Role })
	switch {
	case n < 0:
		return nil, refuse(fmt.Sprintf("role %q could not be found", body.Role), "", nil)
	case body.JWT == "":
		return nil, refuse("missing token", "", nil)
	}
	role := &method.Roles[n]
	token, err := s.tokens.Verify(ctx, body.JWT, time.Now())
	entry.Describe(token)
	switch {
	case errors.Is(err, issuer.ErrUnavailable):
		return nil, refuse(invalidToken, "error verifying token signature: fetching keys", err)
	case err != nil && !errors.Is(err, issuer.ErrExpired) && !errors.Is(err, issuer.ErrNotYetValid):
		return nil, refuse(invalidToken, "error verifying token signature: no known key successfully validated the token signature", nil)
	case token.Issuer != method.BoundIssuer:
		return nil, refuse(invalidToken+": invalid issuer (iss) claim", "", nil)
	case token.Subject != role.BoundSubject:
		return nil, refuse(invalidToken+": invalid subject (sub) claim", "", nil)
	case !token.IsFor(role.BoundAudiences...):
		return nil, refuse(invalidToken+": invalid audience (aud) claim", "audience claim does not match any expected audience", nil)
	case errors.Is(err, issuer.ErrExpired):
		return nil, refuse(invalidToken, "invalid expiration time (exp) claim: token is expired", nil)
	case err != nil:
		return nil, refuse(invalidToken, "invalid not before (nbf) claim: token not yet valid", nil)
	}
	return role, nil
}
