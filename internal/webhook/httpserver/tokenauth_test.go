// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package httpserver

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"
)

// newClient returns a client of an API server that knows the token "prometheus" of a
// user who may get /metrics, and the token "stranger" of a user who may not. It does
// not respond to the token "lost".
func newClient() *fake.FakeDynamicClient {
	client := fake.NewSimpleDynamicClient(runtime.NewScheme())
	client.PrependReactor("create", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		review := action.(clienttesting.CreateAction).GetObject().(*unstructured.Unstructured).DeepCopy()
		status := map[string]any{}
		switch action.GetResource().Resource {
		case "tokenreviews":
			token, _, _ := unstructured.NestedString(review.Object, "spec", "token")
			if token == "lost" {
				return true, nil, errors.New("connection refused")
			}
			status["authenticated"] = token == "prometheus" || token == "stranger"
			status["user"] = map[string]any{"username": token, "groups": []any{"monitoring"}}
		case "subjectaccessreviews":
			spec, _, _ := unstructured.NestedMap(review.Object, "spec")
			asked, _, _ := unstructured.NestedStringMap(spec, "nonResourceAttributes")
			groups, _, _ := unstructured.NestedStringSlice(spec, "groups")
			status["allowed"] = spec["user"] == "prometheus" && strings.Join(groups, ",") == "monitoring" &&
				asked["path"] == "/metrics" && asked["verb"] == "get"
		}
		review.Object["status"] = status
		return true, review, nil
	})
	return client
}

func get(t *testing.T, handler http.Handler, method, authorization string) *httptest.ResponseRecorder {
	t.Helper()
	return getFrom(t, handler, "192.0.2.1", method, authorization)
}

func getFrom(t *testing.T, handler http.Handler, address, method, authorization string) *httptest.ResponseRecorder {
	t.Helper()
	request := httptest.NewRequestWithContext(t.Context(), method, "/metrics", nil)
	request.RemoteAddr = net.JoinHostPort(address, "1234")
	if authorization != "" {
		request.Header.Set("Authorization", authorization)
	}
	response := httptest.NewRecorder()
	handler.ServeHTTP(response, request)
	return response
}

var metrics = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("up 1")) })

func TestOnlyUsersWithPermissionAreLetIn(t *testing.T) {
	t.Parallel()
	handler := Authorize(newClient(), "/metrics", metrics, logr.Discard())
	for name, test := range map[string]struct {
		method, authorization string
		want                  int
	}{
		"a user with permission":    {http.MethodGet, "Bearer prometheus", http.StatusOK},
		"with another method":       {http.MethodPost, "Bearer prometheus", http.StatusForbidden},
		"a user without permission": {http.MethodGet, "Bearer stranger", http.StatusForbidden},
		"an unknown token":          {http.MethodGet, "Bearer forged", http.StatusUnauthorized},
		"no token":                  {http.MethodGet, "", http.StatusUnauthorized},
		"an empty token":            {http.MethodGet, "Bearer ", http.StatusUnauthorized},
		"another scheme":            {http.MethodGet, "Basic prometheus", http.StatusUnauthorized},
		"an API server that is down": {
			http.MethodGet, "Bearer lost", http.StatusInternalServerError,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			response := get(t, handler, test.method, test.authorization)
			if response.Code != test.want {
				t.Errorf("got status %d, want %d", response.Code, test.want)
			}
			if served := response.Body.String() == "up 1"; served != (test.want == http.StatusOK) {
				t.Errorf("got %q", response.Body)
			}
		})
	}
}

func TestAFailureIsLoggedOnceASecondWithoutTheToken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var lines []string
		log := funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{})
		handler := Authorize(newClient(), "/metrics", metrics, log)
		for range 3 {
			get(t, handler, http.MethodGet, "Bearer lost")
		}
		if len(lines) != 1 || !strings.Contains(lines[0], "create a TokenReview: connection refused") || strings.Contains(lines[0], "lost") {
			t.Errorf("got %q, want one line about the API server", lines)
		}
		time.Sleep(time.Second)
		get(t, handler, http.MethodGet, "Bearer lost")
		if len(lines) != 2 {
			t.Errorf("got %q, want another line after a second", lines)
		}
	})
}

func TestTokenReviewsAreLimited(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := newClient()
		handler := Authorize(client, "/metrics", metrics, logr.Discard())
		get(t, handler, http.MethodGet, "Bearer forged")
		// Without this, a caller would give up at the very moment when it gets its turn.
		time.Sleep(100 * time.Millisecond)
		const callers = 100
		statuses := make(chan int)
		for range callers {
			go func() { statuses <- get(t, handler, http.MethodGet, "Bearer forged").Code }()
		}
		got := map[int]int{}
		for range callers {
			got[<-statuses]++
		}
		asked := tokensBurst - 1 + int(tokensPerSecond*tokenTimeout.Seconds()) // the rest of the burst, and those that do not wait for too long
		want := map[int]int{http.StatusUnauthorized: asked, http.StatusTooManyRequests: callers - asked}
		if !maps.Equal(got, want) || len(client.Actions()) != 1+asked {
			t.Errorf("got statuses %v and %d tokens asked about, want %v and %d", got, len(client.Actions()), want, 1+asked)
		}
	})
}

// Otherwise, an attack on the metrics port would make the metrics unavailable.
func TestBadTokensOfAnAddressDoNotTakeTheTurnsOfAnother(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		handler := Authorize(newClient(), "/metrics", metrics, logr.Discard())
		ctx, cancel := context.WithCancel(t.Context())
		var attackers sync.WaitGroup
		for i := range 28 {
			attackers.Go(func() {
				for ctx.Err() == nil {
					getFrom(t, handler, fmt.Sprintf("10.0.0.%d", 2+i%2), http.MethodGet, "Bearer forged")
					time.Sleep(10 * time.Millisecond)
				}
			})
		}
		for range 6 {
			time.Sleep(15 * time.Second)
			start := time.Now()
			got := getFrom(t, handler, "10.0.0.1", http.MethodGet, "Bearer prometheus").Code
			if took := time.Since(start); got != http.StatusOK || took > 2*time.Second {
				t.Errorf("got status %d after %s, want 200 after at most 2 seconds", got, took)
			}
		}
		cancel()
		attackers.Wait()
	})
}
