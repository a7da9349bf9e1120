// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"net/http"
	"sync"
	"time"

	"github.com/lanyard-dev/lanyard/test/e2e/clouds/issuer"
	"github.com/lanyard-dev/lanyard/test/e2e/clouds/journal"
)

// sessions contains the issued sessions, by their access key IDs.
type sessions struct {
	mu  sync.Mutex
	all map[string]issued
}

// issued is a session that can sign requests.
type issued struct {
	secretAccessKey, sessionToken string
	role                          string // ARN
	user                          string // ARN of the assumed role user
	expires                       time.Time
	// token is the Kubernetes token that the first role was assumed with.
	token issuer.Token
}

func (s *sessions) add(result *session, role string, token issuer.Token, expires time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[string]issued{}
	}
	s.all[result.Credentials.AccessKeyID] = issued{
		secretAccessKey: result.Credentials.SecretAccessKey, sessionToken: result.Credentials.SessionToken,
		role: role, user: result.AssumedRoleUser.Arn, expires: expires, token: token,
	}
}

func (s *sessions) get(accessKeyID string) (issued, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	found, ok := s.all[accessKeyID]
	return found, ok
}

// maxChained is the limit of DurationSeconds for a role that assumes another.
const maxChained = 3600

// assumeRole decides about a call of AssumeRole and completes the journal entry.
func (s *STS) assumeRole(r *http.Request, body []byte, entry *journal.Entry) (session, *journal.Failure) {
	now := time.Now()
	caller, refusal := s.signer(r, body, now)
	if refusal != nil {
		return session{}, refusal
	}
	entry.Describe(caller.token)
	request, refusal := parse(r.PostForm)
	if refusal != nil {
		return session{}, refusal
	}
	role, ok := s.roles[request.roleARN]
	if !ok || !role.policy.allows(askedByRole(caller.role)) {
		return session{}, forbidden("AccessDenied", "User: "+caller.user+" is not authorized to perform: sts:AssumeRole on resource: "+request.roleARN)
	}
	if request.duration > maxChained {
		return session{}, invalid("The requested DurationSeconds exceeds the 1 hour session limit for roles assumed by role chaining")
	}
	result := newSession(request, now)
	s.sessions.add(&result, request.roleARN, caller.token, now.Add(time.Duration(request.duration)*time.Second))
	return result, nil
}
