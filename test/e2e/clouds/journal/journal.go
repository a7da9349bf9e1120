// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package journal writes down what the emulated clouds decided: one JSON line
// for each request of a credential, granted or refused.
package journal

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"sync"
	"time"

	"github.com/lanyard-dev/lanyard/test/e2e/clouds/issuer"
)

// The clouds.
const (
	AWS   = "aws"
	Azure = "azure"
	GCP   = "gcp"
)

// The operations, as each cloud names its own.
const (
	AssumeRoleWithWebIdentity = "AssumeRoleWithWebIdentity"
	ClientCredentials         = "client_credentials"
	TokenExchange             = "token-exchange"
	GenerateAccessToken       = "generateAccessToken"
)

// Entry is one decision. It holds no token and no secret, and what it says of
// the asker is what the token claimed, which is certain only if it was granted.
type Entry struct {
	Time      time.Time `json:"time"`
	Cloud     string    `json:"cloud"`
	Operation string    `json:"operation"`
	// Status is the answer's HTTP status.
	Status int `json:"status"`
	// Code is the cloud's own code of the refusal, as AccessDenied,
	// AADSTS700212, invalid_grant or PERMISSION_DENIED; empty when granted.
	Code string `json:"code"`
	// Message is the text that went with the code.
	Message string `json:"message,omitempty"`
	// Identity is who was asked for: a role's ARN, appId@tenantId, a
	// principal:// or a service account's e-mail address.
	Identity string `json:"identity,omitempty"`

	// The rest is from the Kubernetes token: for generateAccessToken, from the
	// one that was exchanged for the federated token.
	Subject  string   `json:"subject,omitempty"`
	Audience []string `json:"audience,omitempty"`
	Pod      string   `json:"pod,omitempty"`
	PodUID   string   `json:"podUID,omitempty"`
	TokenID  string   `json:"tokenID,omitempty"`
	// IssuedAt and Expires are in seconds since 1970.
	IssuedAt int64 `json:"issuedAt,omitempty"`
	Expires  int64 `json:"expires,omitempty"`

	UserAgent string `json:"userAgent,omitempty"`
	// Credential is the Digest of the credential that was handed out: AWS's
	// session token, or the access token.
	Credential string `json:"credential,omitempty"`
}

// Describe sets what the entry says of the Kubernetes token.
func (e *Entry) Describe(token issuer.Token) {
	e.Subject = token.Subject
	e.Audience = token.Audience
	e.Pod = token.Pod.Name
	e.PodUID = token.Pod.UID
	e.TokenID = token.ID
	e.IssuedAt = seconds(token.IssuedAt)
	e.Expires = seconds(token.Expires)
}

func seconds(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.Unix()
}

// Digest is how a credential is named where it must not be seen: the SHA-256 of
// its bytes, in lower case hexadecimal.
func Digest(credential string) string {
	sum := sha256.Sum256([]byte(credential))
	return hex.EncodeToString(sum[:])
}

// Answer is what a cloud answers, and the entry for it.
type Answer struct {
	// Entry needs neither Time nor UserAgent.
	Entry
	// Header is the answer's.
	Header http.Header
	Body   []byte
	// Err is what went wrong on the emulator's own side.
	Err error
}

// Journal writes entries. It may be used by several goroutines at once.
type Journal struct {
	mu     sync.Mutex
	out    io.Writer
	errors *slog.Logger
}

// New returns a journal that writes to out, each entry in one call. What goes
// wrong in the emulator itself goes to errors.
func New(out io.Writer, errors *slog.Logger) *Journal {
	return &Journal{out: out, errors: errors}
}

// Send writes an answer's entry, and then the answer: nobody has a credential
// that is not written down.
func (j *Journal) Send(w http.ResponseWriter, r *http.Request, answer Answer) {
	answer.Time = time.Now().UTC()
	answer.UserAgent = r.UserAgent()
	if answer.Err != nil {
		j.errors.ErrorContext(r.Context(), "request failed", "cloud", answer.Cloud, "operation", answer.Operation, "error", answer.Err)
	}
	if err := j.record(answer.Entry); err != nil {
		j.errors.ErrorContext(r.Context(), "request failed", "cloud", answer.Cloud, "operation", answer.Operation, "error", err)
		http.Error(w, "the journal cannot be written", http.StatusInternalServerError)
		return
	}
	maps.Copy(w.Header(), answer.Header)
	w.WriteHeader(answer.Status)
	// A caller that has gone away is no failure of the emulator's.
	_, _ = w.Write(answer.Body)
}

// record writes an entry, as a line.
func (j *Journal) record(entry Entry) error {
	line, err := json.Marshal(entry)
	if err != nil {
		return fmt.Errorf("journal entry: %w", err)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if _, err := j.out.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("writing the journal: %w", err)
	}
	return nil
}
