// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package apis

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/lanyard-dev/lanyard/test/e2e/clouds/issuer"
	"github.com/lanyard-dev/lanyard/test/e2e/clouds/journal"
	"github.com/lanyard-dev/lanyard/test/e2e/clouds/trust"
)

// snowflakeAudience is the audience of a user without an OIDC_AUDIENCE_LIST.
const snowflakeAudience = "snowflakecomputing.com"

// loginFailed is the code of Snowflake for a login with wrong credentials.
const loginFailed = "390100"

// Snowflake is the login of a Snowflake account. Snowflake finds the user by the claims
// of the token: the driver sends no name.
//
// API: https://docs.snowflake.com/en/user-guide/workload-identity-federation
type Snowflake struct {
	*verifier

	config trust.Snowflake
}

// NewSnowflake returns an account with the configured trust.
func NewSnowflake(config trust.Snowflake, tokens *issuer.Issuer, log *journal.Journal) (*Snowflake, error) {
	for i, user := range config.Users {
		if user.WorkloadIdentity.OIDCAudienceList == nil {
			config.Users[i].WorkloadIdentity.OIDCAudienceList = []string{snowflakeAudience}
		}
		if user.Name == "" || user.WorkloadIdentity.Type != "OIDC" || !claimsOfUser(&config.Users[i]).complete() {
			return nil, fmt.Errorf("snowflake: user %q: want a name, TYPE OIDC, ISSUER and SUBJECT", user.Name)
		}
	}
	return &Snowflake{newVerifier(tokens, log), config}, nil
}

func claimsOfUser(user *trust.SnowflakeUser) *expected {
	return &expected{user.WorkloadIdentity.Issuer, user.WorkloadIdentity.Subject, user.WorkloadIdentity.OIDCAudienceList}
}

// ServeHTTP handles one request.
func (s *Snowflake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /session/v1/login-request", s.login)
	// The end of a session.
	mux.HandleFunc("POST /session", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"success": true}`)) })
	mux.ServeHTTP(w, r)
}

func (s *Snowflake) login(w http.ResponseWriter, r *http.Request) {
	entry := &journal.Entry{Cloud: journal.Snowflake, Operation: journal.LoginRequest, Status: http.StatusOK}
	var body struct {
		Data struct {
			Account       string `json:"ACCOUNT_NAME"`
			Authenticator string `json:"AUTHENTICATOR"`
			Provider      string `json:"PROVIDER"`
			Token         string `json:"TOKEN"`
		} `json:"data"`
	}
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		s.fail(w, r, entry, "the body is malformed", nil)
		return
	}
	d := &body.Data
	if !strings.EqualFold(d.Account, s.config.Account) || d.Authenticator != "WORKLOAD_IDENTITY" || d.Provider != "OIDC" || d.Token == "" {
		s.fail(w, r, entry, "the login is not complete: want the account, and a token of the provider OIDC", nil)
		return
	}
	user, distrusted := s.user(r, d.Token, entry)
	if distrusted != nil {
		s.fail(w, r, entry, distrusted.text(), distrusted.err)
		return
	}
	entry.Identity = user
	token := s.issue("", entry)
	s.journal.Send(w, r, journal.JSON(*entry, map[string]any{
		"success": true, "code": nil, "message": nil,
		"data": map[string]any{
			"token": token, "validityInSeconds": int(lifetime.Seconds()), "masterToken": "master", "masterValidityInSeconds": int(lifetime.Seconds()),
			"sessionId": 1, "displayUserName": user, "parameters": []any{}, "sessionInfo": map[string]any{},
		},
	}))
}

// user returns the name of the user whose claims the token has.
func (s *Snowflake) user(r *http.Request, token string, entry *journal.Entry) (string, *distrust) {
	// An account without users trusts nobody.
	result := s.verify(r.Context(), token, &expected{}, entry)
	for i := range s.config.Users {
		user := &s.config.Users[i]
		if result = s.verify(r.Context(), token, claimsOfUser(user), entry); result == nil {
			return user.Name, nil
		}
	}
	return "", result
}

// fail sends an error. Its HTTP status is 200, as Snowflake's is.
func (s *Snowflake) fail(w http.ResponseWriter, r *http.Request, entry *journal.Entry, message string, err error) {
	entry.Code, entry.Message = loginFailed, message
	response := journal.JSON(*entry, map[string]any{"success": false, "code": loginFailed, "message": message, "data": map[string]any{}})
	response.Err = err
	s.journal.Send(w, r, response)
}
