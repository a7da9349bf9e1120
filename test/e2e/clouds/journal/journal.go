// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package journal records the decisions of the emulated clouds: one JSON line
// for each request for a credential.
package journal

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"sync"
	"time"

	"github.com/lanyard-dev/lanyard/test/e2e/clouds/issuer"
)

// The clouds, as the programs of the SDKs name them.
const (
	AWS   = "aws"
	Azure = "azure"
	GCP   = "gcp"

	Alibaba = "alibaba"
	IBM     = "ibm"
	Vault   = "vault"

	Anthropic = "anthropic"
	OpenAI    = "openai"
	Snowflake = "snowflake"
)

// Entry is one decision. It contains no tokens and no secrets. The values of
// the Kubernetes token are only verified if the credential was granted.
type Entry struct {
	Time  time.Time `json:"time"`
	Cloud string    `json:"cloud"`
	// Operation is the cloud's name for the operation.
	Operation string `json:"operation"`
	// Status is the HTTP status of the response.
	Status int `json:"status"`
	// Code is the cloud's error code, such as AccessDenied, AADSTS700212,
	// invalid_grant or PERMISSION_DENIED. It is empty if the credential was
	// granted.
	Code string `json:"code"`
	// Message is the text of the error.
	Message string `json:"message,omitempty"`
	// Identity is the requested identity: a role ARN, appId@tenantId, a
	// principal://, the e-mail address of a service account, the ID of a trusted
	// profile, the path of a Vault role, the ID of a federation rule, the ID of a service
	// account, or the name of a user.
	Identity string `json:"identity,omitempty"`

	// The following fields are from the Kubernetes token. For
	// generateAccessToken and AssumeRole, that is the token that was exchanged
	// for the credential of the request.
	Subject  string   `json:"subject,omitempty"`
	Audience []string `json:"audience,omitempty"`
	Pod      string   `json:"pod,omitempty"`
	PodUID   string   `json:"podUID,omitempty"`
	TokenID  string   `json:"tokenID,omitempty"`
	// IssuedAt and Expires are Unix times in seconds.
	IssuedAt int64 `json:"issuedAt,omitempty"`
	Expires  int64 `json:"expires,omitempty"`

	UserAgent string `json:"userAgent,omitempty"`
	// Credential is the Digest of the issued credential: the session token for
	// AWS, else the access token.
	Credential string `json:"credential,omitempty"`
}

// Describe sets the fields of the Kubernetes token.
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

// Digest returns the SHA-256 of a credential in lower-case hexadecimal. It
// identifies the credential without revealing it.
func Digest(credential string) string {
	sum := sha256.Sum256([]byte(credential))
	return hex.EncodeToString(sum[:])
}

// Failure is a cloud's decision against a request.
type Failure struct {
	Status        int
	Code, Message string
	// Err is set for errors of the emulator itself.
	Err error
}

// Response is a cloud's response with its journal entry.
type Response struct {
	// Entry is the journal entry. Send sets its Time and UserAgent.
	Entry
	// Header is the header of the response.
	Header http.Header
	Body   []byte
	// Err is an error of the emulator itself.
	Err error
}

// Granted returns a response with a credential in a JSON body.
func (e Entry) Granted(credential string, body any) Response {
	e.Status, e.Credential = http.StatusOK, Digest(credential)
	return e.respond(body, nil)
}

// Refused returns a response with an error in a JSON body.
func (e Entry) Refused(f *Failure, body any) Response {
	e.Status, e.Code, e.Message = f.Status, f.Code, f.Message
	return e.respond(body, f.Err)
}

func (e Entry) respond(body any, failed error) Response {
	text, err := json.MarshalIndent(body, "", "  ")
	if err != nil {
		e.Status = http.StatusInternalServerError
	}
	return Response{
		Entry: e, Header: http.Header{"Content-Type": {"application/json"}}, Body: append(text, '\n'), Err: errors.Join(failed, err),
	}
}

// Journal writes entries and keeps them. It is safe for concurrent use.
type Journal struct {
	mu   sync.Mutex
	out  io.Writer
	kept []byte
	log  *slog.Logger
}

// New returns a journal that writes each entry to out with a single Write.
// Errors of the emulator itself go to log.
func New(out io.Writer, log *slog.Logger) *Journal { return &Journal{out: out, log: log} }

// Send writes the entry before the response, so that every issued credential is
// in the journal.
func (j *Journal) Send(w http.ResponseWriter, r *http.Request, response Response) {
	response.Time = time.Now().UTC()
	response.UserAgent = r.UserAgent()
	err := j.record(response.Entry)
	if failed := errors.Join(response.Err, err); failed != nil {
		j.log.ErrorContext(r.Context(), "request failed", "cloud", response.Cloud, "operation", response.Operation, "error", failed)
	}
	if err != nil {
		http.Error(w, "failed to write the journal", http.StatusInternalServerError)
		return
	}
	maps.Copy(w.Header(), response.Header)
	w.WriteHeader(response.Status)
	// Ignore the error: the client may have closed the connection.
	_, _ = w.Write(response.Body)
}

// ServeHTTP returns the lines of all entries so far. A client that has received
// a response of a cloud finds its entry here. The log of the container is
// written later.
func (j *Journal) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	j.mu.Lock()
	lines := bytes.Clone(j.kept)
	j.mu.Unlock()
	w.Header().Set("Content-Type", "application/jsonl")
	// Ignore the error: the client may have closed the connection.
	_, _ = w.Write(lines)
}

// record writes an entry as one line.
func (j *Journal) record(entry Entry) error {
	line, err := json.Marshal(entry)
	if err != nil {
		return fmt.Errorf("encode the journal entry: %w", err)
	}
	line = append(line, '\n')
	j.mu.Lock()
	defer j.mu.Unlock()
	if _, err := j.out.Write(line); err != nil {
		return fmt.Errorf("write the journal: %w", err)
	}
	j.kept = append(j.kept, line...)
	return nil
}
