// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package google

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/lanyard-dev/lanyard/test/e2e/clouds/journal"
)

// maxAccountLifetime is the maximum lifetime of a service account's access
// token, unless an organization's policy allows more.
const maxAccountLifetime = time.Hour

const generateAccessToken = "generateAccessToken"

// denyProject denies all requests of cloudresourcemanager.googleapis.com: a library calls it
// only if it has no project setting.
func denyProject(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(http.StatusForbidden)
	// Ignore the error: the client may have closed the connection.
	_ = json.NewEncoder(w).Encode(denied("resourcemanager.projects.get", "The caller does not have permission").body())
}

// apiFailure is an error in the format of Google's APIs. Its code is the canonical code,
// such as PERMISSION_DENIED.
type apiFailure struct {
	journal.Failure
	// permission is the missing permission, if any.
	permission string
}

func (f *apiFailure) body() any {
	body := map[string]any{"code": f.Status, "message": f.Message, "status": f.Code}
	if f.permission != "" {
		body["details"] = []map[string]any{{
			"@type":    "type.googleapis.com/google.rpc.ErrorInfo",
			"reason":   "IAM_PERMISSION_DENIED",
			"domain":   "iam.googleapis.com",
			"metadata": map[string]string{"permission": f.permission},
		}}
	}
	return map[string]any{"error": body}
}

func denied(permission, message string) *apiFailure {
	return &apiFailure{journal.Failure{Status: http.StatusForbidden, Code: "PERMISSION_DENIED", Message: message}, permission}
}

func invalidArgument(message string) *apiFailure {
	return &apiFailure{journal.Failure{Status: http.StatusBadRequest, Code: "INVALID_ARGUMENT", Message: message}, ""}
}

func unauthenticated(what string) *apiFailure {
	what += " Expected OAuth 2 access token, login cookie or other valid authentication credential. See https://developers.google.com/identity/sign-in/web/devconsole-project."
	return &apiFailure{journal.Failure{Status: http.StatusUnauthorized, Code: "UNAUTHENTICATED", Message: what}, ""}
}

func (g *google) generateAccessToken(w http.ResponseWriter, r *http.Request) {
	email, ok := strings.CutSuffix(r.PathValue("call"), ":"+generateAccessToken)
	if !ok {
		http.NotFound(w, r)
		return
	}
	entry := journal.Entry{Cloud: journal.GCP, Operation: generateAccessToken, Identity: email}
	now := time.Now()
	lifetime, failure := g.impersonate(r, email, &entry, now)
	if failure != nil {
		g.send(w, r, entry.Refused(&failure.Failure, failure.body()))
		return
	}
	token := accessToken()
	g.send(w, r, entry.Granted(token, map[string]string{
		"accessToken": token,
		// Python's library cannot read fractions or other time zones.
		"expireTime": now.Add(lifetime).UTC().Format(time.RFC3339),
	}))
}

// impersonate decides about a request and completes the journal entry. It
// returns the lifetime of the token.
func (g *google) impersonate(r *http.Request, email string, entry *journal.Entry, now time.Time) (time.Duration, *apiFailure) {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") || token == "" {
		return 0, unauthenticated("Request is missing required authentication credential.")
	}
	federated, ok := g.find(token, now)
	if !ok {
		return 0, unauthenticated("Request had invalid authentication credentials.")
	}
	entry.Describe(federated.token)
	if !slices.Contains(federated.scopes, cloudPlatform) && !slices.Contains(federated.scopes, iamScope) {
		return 0, denied("", "Request had insufficient authentication scopes.")
	}
	var request struct {
		Delegates []string `json:"delegates"`
		Scope     []string `json:"scope"`
		Lifetime  string   `json:"lifetime"`
	}
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
		return 0, invalidArgument("Invalid JSON payload received.")
	}
	members := g.accounts[email]
	// Delegates would need rights that the trust file cannot express.
	if len(request.Delegates) > 0 || !federated.isOneOf(members) {
		return 0, denied("iam.serviceAccounts.getAccessToken", "Permission 'iam.serviceAccounts.getAccessToken' denied on resource (or it may not exist).")
	}
	if len(request.Scope) == 0 {
		return 0, invalidArgument("Scope required.")
	}
	return parseLifetime(request.Lifetime)
}

// parseLifetime parses a duration in seconds, such as 3600s.
func parseLifetime(text string) (time.Duration, *apiFailure) {
	if text == "" {
		return maxAccountLifetime, nil
	}
	lifetime, err := time.ParseDuration(text)
	switch {
	case err != nil, strings.Trim(text, "-.0123456789") != "s":
		return 0, invalidArgument("Invalid value at 'lifetime' (type.googleapis.com/google.protobuf.Duration)")
	case lifetime <= 0:
		return 0, invalidArgument("Lifetime of access token must be larger then zero.")
	case lifetime > maxAccountLifetime:
		return 0, invalidArgument("Service accounts can not have lifetimes of more than 1 hour. Use the Org Policy Constraint constraints/iam.allowServiceAccountCredentialLifetimeExtension to allow up to 12 hours.")
	}
	return lifetime, nil
}
