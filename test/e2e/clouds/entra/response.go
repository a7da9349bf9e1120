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

func (f *failure) body() map[string]any {
	trace, correlation := string(uuid.NewUUID()), string(uuid.NewUUID())
	timestamp := time.Now().UTC().Format("2006-01-02 15:04:05Z")
	return map[string]any{
		"error":             f.name,
		"error_description": fmt.Sprintf("AADSTS%d: %s Trace ID: %s Correlation ID: %s Timestamp: %s", f.code, f.message, trace, correlation, timestamp),
		"error_codes":       []int{f.code},
		"timestamp":         timestamp,
		"trace_id":          trace,
		"correlation_id":    correlation,
		"error_uri":         fmt.Sprintf("https://%s/error?code=%d", Host, f.code),
	}
}

// send sends a response with the header of the service.
func (e *entra) send(w http.ResponseWriter, r *http.Request, response journal.Response) {
	response.Header = http.Header{
		"Content-Type":  {"application/json; charset=utf-8"},
		"Cache-Control": {"no-store, no-cache"},
		"Pragma":        {"no-cache"},
	}
	e.journal.Send(w, r, response)
}
