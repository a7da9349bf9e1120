// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package entra

import (
	"fmt"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/lanyard-dev/lanyard/test/e2e/clouds/journal"
)

// failure is an error response of the service. Codes and messages:
// https://learn.microsoft.com/entra/identity-platform/reference-error-codes
type failure struct {
	status int
	// name is the OAuth error, such as invalid_client.
	name    string
	code    int
	message string
	// err is set for errors of the emulator itself.
	err error
}

// text returns the message with its code.
func (f failure) text() string {
	return fmt.Sprintf("AADSTS%d: %s", f.code, f.message)
}

func (f failure) body() map[string]any {
	trace, correlation := string(uuid.NewUUID()), string(uuid.NewUUID())
	timestamp := time.Now().UTC().Format("2006-01-02 15:04:05Z")
	return map[string]any{
		"error":             f.name,
		"error_description": fmt.Sprintf("%s Trace ID: %s Correlation ID: %s Timestamp: %s", f.text(), trace, correlation, timestamp),
		"error_codes":       []int{f.code},
		"timestamp":         timestamp,
		"trace_id":          trace,
		"correlation_id":    correlation,
		"error_uri":         fmt.Sprintf("https://%s/error?code=%d", Host, f.code),
	}
}

// granted returns the response with an access token.
func granted(entry journal.Entry, accessToken string) journal.Response {
	entry.Status = http.StatusOK
	entry.Credential = journal.Digest(accessToken)
	return response(entry, map[string]any{
		"token_type":     "Bearer",
		"expires_in":     lifetime,
		"ext_expires_in": lifetime,
		"access_token":   accessToken,
	})
}

// failed returns the response with an error.
func failed(entry journal.Entry, f *failure) journal.Response {
	entry.Status, entry.Code, entry.Message = f.status, fmt.Sprintf("AADSTS%d", f.code), f.message
	a := response(entry, f.body())
	a.Err = f.err
	return a
}

func response(entry journal.Entry, body map[string]any) journal.Response {
	a := journal.JSON(entry, body)
	a.Header = http.Header{
		"Content-Type":  {"application/json; charset=utf-8"},
		"Cache-Control": {"no-store, no-cache"},
		"Pragma":        {"no-cache"},
	}
	return a
}
