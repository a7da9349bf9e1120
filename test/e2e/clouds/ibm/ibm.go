// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ibm emulates the part of IBM Cloud's IAM token service that exchanges a
// Kubernetes token, called compute resource token, for an access token of a trusted
// profile.
//
// API: https://cloud.ibm.com/apidocs/iam-identity-token-api
package ibm

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"time"

	"github.com/lanyard-dev/lanyard/test/e2e/clouds/issuer"
	"github.com/lanyard-dev/lanyard/test/e2e/clouds/journal"
	"github.com/lanyard-dev/lanyard/test/e2e/clouds/trust"
)

const (
	grantType = "urn:ibm:params:oauth:grant-type:cr-token"
	// audience is the audience of a compute resource token.
	audience = "iam"
	// lifetime is the lifetime of an access token.
	lifetime = time.Hour
)

var profileID = regexp.MustCompile(`^Profile-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// IAM is the token service.
type IAM struct {
	tokens   *issuer.Issuer
	journal  *journal.Journal
	profiles map[string][]trust.Link
}

// New returns an IAM with the configured trust. It returns an error if it cannot
// evaluate a link exactly as the real service does.
func New(config trust.IBM, tokens *issuer.Issuer, log *journal.Journal) (*IAM, error) {
	iam := &IAM{tokens: tokens, journal: log, profiles: map[string][]trust.Link{}}
	for _, profile := range config.TrustedProfiles {
		if !profileID.MatchString(profile.ID) {
			return nil, fmt.Errorf("ibm: got trusted profile %q, want Profile- and a UUID", profile.ID)
		}
		for _, link := range profile.Links {
			if link.CRType != "IKS_SA" && link.CRType != "ROKS_SA" {
				return nil, fmt.Errorf("ibm: trusted profile %s: got a link with cr_type %q, want IKS_SA or ROKS_SA: others are not supported", profile.ID, link.CRType)
			}
			iam.profiles[profile.ID] = append(iam.profiles[profile.ID], link.Link)
		}
	}
	return iam, nil
}

// ServeHTTP handles one request of a token.
func (i *IAM) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost || r.URL.Path != "/identity/token" {
		http.NotFound(w, r)
		return
	}
	entry := journal.Entry{Cloud: journal.IBM, Operation: "cr-token"}
	failure := missing("The request body is malformed.", "")
	if err := r.ParseForm(); err == nil {
		entry.Identity = r.PostForm.Get("profile_id")
		failure = i.exchange(r.Context(), r.PostForm, &entry)
	}
	if failure != nil {
		body := map[string]string{"errorCode": failure.Code, "errorMessage": failure.Message, "errorDetails": failure.details}
		i.journal.Send(w, r, entry.Refused(&failure.Failure, body))
		return
	}
	token, expires := rand.Text()+rand.Text()+rand.Text(), time.Now().Add(lifetime)
	i.journal.Send(w, r, entry.Granted(token, map[string]any{
		"access_token": token, "refresh_token": "not_supported", "token_type": "Bearer",
		"expires_in": int(lifetime.Seconds()), "expiration": expires.Unix(), "scope": "ibm openid",
	}))
}

// failure is an error response. The status is always 400.
type failure struct {
	journal.Failure
	details string
}

// missing returns the failure for a request that is not complete.
func missing(message, details string) *failure {
	return &failure{journal.Failure{Status: http.StatusBadRequest, Code: "BXNIM0109E", Message: message}, details}
}

// notEligible returns the failure for a token that the profile does not trust. Only the
// text of this failure is public.
func notEligible(format string, args ...any) *failure {
	return &failure{
		journal.Failure{Status: http.StatusBadRequest, Code: "BXNIM0398E", Message: "Selected trusted profile not eligible."}, fmt.Sprintf(format, args...),
	}
}

// exchange decides about a request and completes the journal entry.
func (i *IAM) exchange(ctx context.Context, form url.Values, entry *journal.Entry) *failure {
	if form.Get("grant_type") != grantType || form.Get("cr_token") == "" || form.Get("profile_id") == "" {
		return missing("Property missing or empty", "want grant_type, cr_token and profile_id")
	}
	token, err := i.tokens.Verify(ctx, form.Get("cr_token"), time.Now())
	entry.Describe(token)
	switch {
	case errors.Is(err, issuer.ErrUnavailable):
		failure := notEligible("The keys of the issuer cannot be read.")
		failure.Err = err
		return failure
	case err != nil:
		return notEligible("The given token is not valid.")
	case !token.IsFor(audience):
		return notEligible("The given token has another audience.")
	}
	allowed := slices.ContainsFunc(i.profiles[entry.Identity], func(link trust.Link) bool {
		return link.Namespace == token.Namespace && link.Name == token.ServiceAccount.Name
	})
	if !allowed {
		return notEligible("The given token with identifier '%s' is not permitted to assume the indicated trusted profile", token.Subject)
	}
	return nil
}
