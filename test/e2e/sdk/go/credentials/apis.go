// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"database/sql"
	"errors"
	"net/http"
	"os"
	"strings"

	"github.com/anthropics/anthropic-sdk-go"
	anthropicoption "github.com/anthropics/anthropic-sdk-go/option"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/auth"
	"github.com/openai/openai-go/v3/option"
	"github.com/snowflakedb/gosnowflake"

	"github.com/lanyard-dev/lanyard/test/e2e/sdk/go/internal/rounds"
)

// These APIs are custom providers of Lanyard, see examples/providers. The SDKs do not
// expose their credentials, so each function uses the API once, and reads the credential
// from the request.

// bearer is a middleware that keeps the credential of the last request.
type bearer struct{ token string }

func (b *bearer) keep(r *http.Request, next func(*http.Request) (*http.Response, error)) (*http.Response, error) {
	b.token = strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	return next(r)
}

func (b *bearer) credential(err error) (rounds.Credential, error) {
	if err == nil && b.token == "" {
		err = errors.New("got a response to a request without a credential")
	}
	if err != nil {
		return rounds.Credential{}, err
	}
	return rounds.Credential{Secret: b.token}, nil
}

func anthropicAPI(ctx context.Context) (rounds.Credential, error) {
	var used bearer
	client := anthropic.NewClient(anthropicoption.WithMiddleware(used.keep))
	_, err := client.Models.List(ctx, anthropic.ModelListParams{})
	return used.credential(err)
}

// openAI passes the identity to the client, as in docs/apis.md, because the SDK has no
// variables for it.
func openAI(ctx context.Context) (rounds.Credential, error) {
	var used bearer
	client := openai.NewClient(
		option.WithWorkloadIdentity(auth.WorkloadIdentity{
			IdentityProviderID: os.Getenv("LANYARD_OPENAI_IDENTITY_PROVIDER_ID"),
			ServiceAccountID:   os.Getenv("LANYARD_OPENAI_SERVICE_ACCOUNT_ID"),
			Provider:           auth.K8sServiceAccountTokenProvider(os.Getenv("LANYARD_OPENAI_TOKEN_FILE")),
		}),
		option.WithMiddleware(used.keep),
	)
	_, err := client.Models.List(ctx)
	return used.credential(err)
}

// snowflake passes the identity to the driver, as in docs/apis.md, because the driver has
// no variables for it.
func snowflake(ctx context.Context) (rounds.Credential, error) {
	session := &session{}
	database := sql.OpenDB(gosnowflake.NewConnector(gosnowflake.SnowflakeDriver{}, gosnowflake.Config{
		Account:                  os.Getenv("SNOWFLAKE_ACCOUNT"),
		Authenticator:            gosnowflake.AuthTypeWorkloadIdentityFederation,
		WorkloadIdentityProvider: os.Getenv("SNOWFLAKE_WORKLOAD_IDENTITY_PROVIDER"),
		TokenFilePath:            os.Getenv("SNOWFLAKE_TOKEN_FILE_PATH"),
		TokenAccessor:            session,
	}))
	connection, err := database.Conn(ctx) // logs in
	if err != nil {
		return rounds.Credential{}, err
	}
	credential := rounds.Credential{Secret: session.token}
	return credential, errors.Join(connection.Close(), database.Close())
}

// session keeps the tokens of a session of Snowflake.
type session struct {
	token, master string
	id            int64
}

// GetTokens implements gosnowflake.TokenAccessor.
func (s *session) GetTokens() (token, masterToken string, sessionID int64) {
	return s.token, s.master, s.id
}

// SetTokens implements gosnowflake.TokenAccessor. The driver sets empty tokens after a
// failure.
func (s *session) SetTokens(token, masterToken string, sessionID int64) {
	s.token, s.master, s.id = token, masterToken, sessionID
}

// Lock implements gosnowflake.TokenAccessor.
func (s *session) Lock() error { return nil }

// Unlock implements gosnowflake.TokenAccessor.
func (s *session) Unlock() {}
