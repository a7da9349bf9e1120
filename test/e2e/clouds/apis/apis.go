// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package apis emulates APIs that are not clouds, and that accept Kubernetes tokens in
// place of keys: the APIs of Anthropic, OpenAI and Snowflake. Their errors about a token
// are public only in part: the emulator has codes that the SDKs know, and messages of its
// own.
package apis

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lanyard-dev/lanyard/test/e2e/clouds/issuer"
	"github.com/lanyard-dev/lanyard/test/e2e/clouds/journal"
)

// lifetime is the lifetime of a credential.
const lifetime = time.Hour

// expected are the claims of the tokens that an API trusts.
type expected struct {
	issuer, subject string
	audiences       []string
}

// complete reports whether all claims are set.
func (e *expected) complete() bool {
	return e.issuer != "" && e.subject != "" && len(e.audiences) > 0 && !slices.Contains(e.audiences, "")
}

// The parts of a token, as distrust names them.
const (
	ofSignature = "signature"
	ofTime      = "time"
	ofIssuer    = "issuer"
	ofAudience  = "audience"
	ofSubject   = "subject"
)

// distrust is the part of a token that an API does not accept.
type distrust struct {
	part string
	// err is set for errors of the emulator itself.
	err error
}

// text returns the message of an error.
func (d *distrust) text() string { return "the " + d.part + " of the token is not accepted" }

// verifier verifies tokens for one API, and knows the credentials that it has issued.
type verifier struct {
	tokens  *issuer.Issuer
	journal *journal.Journal

	mu     sync.Mutex
	issued map[string]bool // by digest
}

func newVerifier(tokens *issuer.Issuer, log *journal.Journal) *verifier {
	return &verifier{tokens: tokens, journal: log, issued: map[string]bool{}}
}

// verify compares a token with the claims, and completes the journal entry. It returns
// nil for a token that is trusted.
func (v *verifier) verify(ctx context.Context, raw string, want *expected, entry *journal.Entry) *distrust {
	token, err := v.tokens.Verify(ctx, raw, time.Now())
	entry.Describe(token)
	switch {
	case errors.Is(err, issuer.ErrUnavailable):
		return &distrust{ofSignature, err}
	case errors.Is(err, issuer.ErrExpired), errors.Is(err, issuer.ErrNotYetValid):
		return &distrust{ofTime, nil}
	case errors.Is(err, issuer.ErrUnknownIssuer):
		return &distrust{ofIssuer, nil}
	case err != nil:
		return &distrust{ofSignature, nil}
	case token.Issuer != want.issuer:
		return &distrust{ofIssuer, nil}
	case !slices.ContainsFunc(token.Audience, func(audience string) bool { return slices.Contains(want.audiences, audience) }):
		return &distrust{ofAudience, nil}
	case token.Subject != want.subject:
		return &distrust{ofSubject, nil}
	}
	return nil
}

// issue returns a new credential, and writes it into the journal entry.
func (v *verifier) issue(prefix string, entry *journal.Entry) string {
	credential := prefix + rand.Text() + rand.Text()
	entry.Status, entry.Credential = http.StatusOK, journal.Digest(credential)
	v.mu.Lock()
	defer v.mu.Unlock()
	v.issued[entry.Credential] = true
	return credential
}

// use returns a handler that lists models for requests with a credential that was issued.
// Other requests get the status 401.
func (v *verifier) use(models string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		credential, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		v.mu.Lock()
		known := v.issued[journal.Digest(credential)]
		v.mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		body := models
		if !known {
			body = `{"error": {"type": "authentication_error", "message": "the credential is not known"}}`
			w.WriteHeader(http.StatusUnauthorized)
		}
		// Ignore the error: the client may have closed the connection.
		_, _ = w.Write([]byte(body))
	}
}

// decode reads the body of a request for a token. It reports false after it sent an error.
func (v *verifier) decode(w http.ResponseWriter, r *http.Request, entry *journal.Entry, body any) bool {
	err := json.NewDecoder(r.Body).Decode(body)
	if err != nil {
		v.oauthError(w, r, entry, "invalid_request", "the body is malformed", nil)
	}
	return err == nil
}

// oauthError sends an error of a token endpoint.
func (v *verifier) oauthError(w http.ResponseWriter, r *http.Request, entry *journal.Entry, code, message string, err error) {
	entry.Code, entry.Message = code, message
	response := journal.JSON(*entry, map[string]string{"error": code, "error_description": message})
	response.Err = err
	v.journal.Send(w, r, response)
}
