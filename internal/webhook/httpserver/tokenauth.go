// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package httpserver

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/time/rate"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/lanyard-dev/lanyard/internal/webhook/bounds"
)

var (
	tokenReviews  = schema.GroupVersionResource{Group: "authentication.k8s.io", Version: "v1", Resource: "tokenreviews"}
	accessReviews = schema.GroupVersionResource{Group: "authorization.k8s.io", Version: "v1", Resource: "subjectaccessreviews"}
)

const (
	// tokensPerSecond and tokensBurst limit the token reviews, because any pod can send
	// tokens. Prometheus sends one for each scrape.
	tokensPerSecond, tokensBurst = 5, 20
	// maxNext limits the requests that are next. The address with the fewest of them follows,
	// so that others need not wait for all bad tokens of one client.
	maxNext = 4
	// tokenTimeout limits the wait for a turn and for the API server.
	tokenTimeout = 5 * time.Second
)

// Authorize passes a request to next if the user of its bearer token may use the request's
// method on the path, as a non-resource URL of RBAC. Others get status 401 or 403. The client
// must be allowed to create TokenReviews and SubjectAccessReviews.
func Authorize(client dynamic.Interface, path string, next http.Handler, log logr.Logger) http.Handler {
	a := &authorizer{
		client: client, path: path,
		turns: bounds.NewPool(maxNext, 0, errNoTurn), rate: rate.NewLimiter(tokensPerSecond, tokensBurst),
	}
	failures := rate.Sometimes{Interval: time.Second}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		status, err := a.authorize(r)
		if err != nil {
			failures.Do(func() { log.Error(err, "Failed to check a token", "path", path) })
		}
		if status != http.StatusOK {
			http.Error(w, http.StatusText(status), status)
			return
		}
		next.ServeHTTP(w, r)
	})
}

type authorizer struct {
	client dynamic.Interface
	path   string
	turns  *bounds.Pool
	rate   *rate.Limiter
}

// wait waits for the turn of a request from this host:port.
func (a *authorizer) wait(ctx context.Context, remote string) error {
	turn := a.turns.Claim(bounds.AddressOf(remote))
	defer turn.Keep(0)
	if err := turn.Take(ctx, 1); err != nil {
		return err
	}
	return a.rate.Wait(ctx)
}

// authorize returns the status for the request, 200 if it is allowed. The error says why the
// caller could not be checked, and does not contain the token.
func (a *authorizer) authorize(r *http.Request) (status int, err error) {
	token, found := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !found || token == "" {
		return http.StatusUnauthorized, nil
	}
	ctx, cancel := context.WithTimeout(r.Context(), tokenTimeout)
	defer cancel()
	if err := a.wait(ctx, r.RemoteAddr); err != nil {
		return http.StatusTooManyRequests, fmt.Errorf("more than %d tokens a second: %w", tokensPerSecond, err)
	}
	reviewed, err := a.review(ctx, tokenReviews, "TokenReview", map[string]any{"token": token})
	if err != nil {
		return http.StatusInternalServerError, err
	}
	if authenticated, _, _ := unstructured.NestedBool(reviewed, "authenticated"); !authenticated {
		return http.StatusUnauthorized, nil
	}
	user, _, _ := unstructured.NestedMap(reviewed, "user")
	reviewed, err = a.review(ctx, accessReviews, "SubjectAccessReview", map[string]any{
		"user": user["username"], "uid": user["uid"], "groups": user["groups"], "extra": user["extra"],
		"nonResourceAttributes": map[string]any{"path": a.path, "verb": strings.ToLower(r.Method)},
	})
	if err != nil {
		return http.StatusInternalServerError, err
	}
	if allowed, _, _ := unstructured.NestedBool(reviewed, "allowed"); !allowed {
		return http.StatusForbidden, nil
	}
	return http.StatusOK, nil
}

// review creates a review with the spec, and returns its status.
func (a *authorizer) review(ctx context.Context, resource schema.GroupVersionResource, kind string, spec map[string]any) (map[string]any, error) {
	review := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	review.SetGroupVersionKind(resource.GroupVersion().WithKind(kind))
	created, err := a.client.Resource(resource).Create(ctx, review, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("create a %s: %w", kind, err)
	}
	status, _, err := unstructured.NestedMap(created.Object, "status")
	if err != nil {
		return nil, fmt.Errorf("status of the %s: %w", kind, err)
	}
	return status, nil
}
