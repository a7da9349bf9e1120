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

// snowflake is the login of a Snowflake account. Snowflake finds the user by the claims
// of the token, because the driver sends no name.
//
// API: https://docs.snowflake.com/en/user-guide/workload-identity-federation
type snowflake struct {
	*verifier

	config trust.Snowflake
}

// NewSnowflake returns an account with the configured trust.
func NewSnowflake(config trust.Snowflake, tokens *issuer.Issuer, log *journal.Journal) (http.Handler, error) {
	for i, user := range config.Users {
		if user.WorkloadIdentity.OIDCAudienceList == nil {
			config.Users[i].WorkloadIdentity.OIDCAudienceList = []string{snowflakeAudience}
		}
		if user.Name == "" || user.WorkloadIdentity.Type != "OIDC" || !claimsOfUser(&config.Users[i]).complete() {
			return nil, fmt.Errorf("snowflake: user %q: want a name, TYPE OIDC, ISSUER and SUBJECT", user.Name)
		}
	}
	s := &snowflake{newVerifier(tokens, log), config}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /session/v1/login-request", s.login)
	// The end of a session.
	mux.HandleFunc("POST /session", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"success": true}`)) })
	return mux, nil
}

func claimsOfUser(user *trust.SnowflakeUser) *expected {
	return &expected{user.WorkloadIdentity.Issuer, user.WorkloadIdentity.Subject, user.WorkloadIdentity.OIDCAudienceList}
}

func (s *snowflake) login(w http.ResponseWriter, r *http.Request) {
	entry := journal.Entry{Cloud: journal.Snowflake, Operation: "login-request"}
	var body struct {
		Data login `json:"data"`
	}
	failure := refuse("the body is malformed")
	if err := json.NewDecoder(r.Body).Decode(&body); err == nil {
		failure = s.decide(r, &body.Data, &entry)
	}
	if failure != nil {
		s.journal.Send(w, r, entry.Refused(failure, map[string]any{"success": false, "code": failure.Code, "message": failure.Message, "data": map[string]any{}}))
		return
	}
	token := s.issue("")
	s.journal.Send(w, r, entry.Granted(token, map[string]any{
		"success": true, "code": nil, "message": nil,
		"data": map[string]any{
			"token": token, "validityInSeconds": int(lifetime.Seconds()), "masterToken": "master", "masterValidityInSeconds": int(lifetime.Seconds()),
			"sessionId": 1, "displayUserName": entry.Identity, "parameters": []any{}, "sessionInfo": map[string]any{},
		},
	}))
}

// login is the data that the driver sends.
type login struct {
	Account       string `json:"ACCOUNT_NAME"`
	Authenticator string `json:"AUTHENTICATOR"`
	Provider      string `json:"PROVIDER"`
	Token         string `json:"TOKEN"`
}

// refuse returns an error. Its HTTP status is 200, as Snowflake's is.
func refuse(message string) *journal.Failure {
	return &journal.Failure{Status: http.StatusOK, Code: loginFailed, Message: message}
}

// decide finds the user that trusts the claims of the token, and completes the journal entry.
func (s *snowflake) decide(r *http.Request, d *login, entry *journal.Entry) *journal.Failure {
	if !strings.EqualFold(d.Account, s.config.Account) || d.Authenticator != "WORKLOAD_IDENTITY" || d.Provider != "OIDC" || d.Token == "" {
		return refuse("the login is not complete: want the account, and a token of the provider OIDC")
	}
	// An account without users trusts nobody.
	distrusted := s.verify(r.Context(), d.Token, &expected{}, entry)
	for i := range s.config.Users {
		user := &s.config.Users[i]
		if distrusted = s.verify(r.Context(), d.Token, claimsOfUser(user), entry); distrusted == nil {
			entry.Identity = user.Name
			return nil
		}
	}
	return distrusted.failure(http.StatusOK, loginFailed)
}
