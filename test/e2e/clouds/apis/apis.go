// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package apis emulates the APIs of Anthropic, OpenAI and Snowflake, which accept Kubernetes
// tokens instead of keys. Not all of their errors are documented: the emulator uses codes
// that the SDKs know, and its own messages.
package apis

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lanyard-dev/lanyard/test/e2e/clouds/issuer"
	"github.com/lanyard-dev/lanyard/test/e2e/clouds/journal"
)

// invalidRequest is a code of OAuth.
const invalidRequest = "invalid_request"

// lifetime is the lifetime of a credential.
const lifetime = time.Hour

// expected contains the claims of the tokens that an API trusts.
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

// failure returns the error of an API about the token.
func (d *distrust) failure(status int, code string) *journal.Failure {
	return &journal.Failure{Status: status, Code: code, Message: "the " + d.part + " of the token is not accepted", Err: d.err}
}

// verifier verifies tokens for one API, and remembers the credentials that it issued.
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
	case !token.IsFor(want.audiences...):
		return &distrust{ofAudience, nil}
	case token.Subject != want.subject:
		return &distrust{ofSubject, nil}
	}
	return nil
}

// issue returns a new credential.
func (v *verifier) issue(prefix string) string {
	credential := prefix + rand.Text() + rand.Text()
	v.mu.Lock()
	defer v.mu.Unlock()
	v.issued[journal.Digest(credential)] = true
	return credential
}

// use returns a handler that lists models for requests with an issued credential. Other
// requests get the status 401.
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

// exchange handles a request for a token at a token endpoint. decide completes the journal
// entry. The token starts with the prefix, and the response also contains the fields.
func (v *verifier) exchange(w http.ResponseWriter, r *http.Request, entry journal.Entry, body any, decide func(*journal.Entry) *journal.Failure, prefix string, fields map[string]any) {
	failure := &journal.Failure{Status: http.StatusBadRequest, Code: invalidRequest, Message: "the body is malformed"}
	if err := json.NewDecoder(r.Body).Decode(body); err == nil {
		failure = decide(&entry)
	}
	if failure != nil {
		v.journal.Send(w, r, entry.Refused(failure, map[string]string{"error": failure.Code, "error_description": failure.Message}))
		return
	}
	token := v.issue(prefix)
	response := map[string]any{"access_token": token, "token_type": "Bearer", "expires_in": int(lifetime.Seconds())}
	maps.Copy(response, fields)
	v.journal.Send(w, r, entry.Granted(token, response))
}
