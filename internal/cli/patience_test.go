// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// hanging is an API server that responds only after a while. It notes the requests.
type hanging struct {
	http.Handler
	mu       sync.Mutex
	requests []string
}

// ServeHTTP implements http.Handler.
func (h *hanging) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	h.requests = append(h.requests, r.Method+" "+r.URL.Path)
	h.mu.Unlock()
	time.Sleep(15 * time.Second)
	h.Handler.ServeHTTP(w, r)
}

// waiting matches the lines in which a command says what it waits for.
var waiting = regexp.MustCompile(`(?m)^waiting for the API server(?: and the webhooks that it calls)?: (.*) \.\.\.\n`)

// No command goes on waiting without a word, also where there is no terminal. A webhook that hangs is a
// dry run that hangs.
func TestCommandsSayWhatTheyWaitFor(t *testing.T) {
	t.Parallel()
	of := " account-000 --namespace namespace-000"
	const nobody = "https://127.0.0.1:1" // refuses connections: a name would be looked up in the network
	for _, line := range []string{
		"check", "check --pre", "check --output json", "check --issuer " + nobody, "explain sa" + of, "inject --cluster -f -", "label sa --all-namespaces",
		"migrate --from eks --all-namespaces", "policies --diff", "status --all-namespaces", "status --all-namespaces --output name",
		"token --for vault sa/" + strings.TrimSpace(of), "trust aws" + of, "trust issuer", "version",
	} {
		t.Run(line, func(t *testing.T) {
			t.Parallel()
			mux := http.NewServeMux()
			mux.Handle("/", smallCluster(t))
			mux.HandleFunc("/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
				reply(w, `{"issuer":"https://kubernetes.default.svc","jwks_uri":"https://kubernetes.default.svc/jwks"}`) // which is not public
			})
			synctest.Test(t, func(t *testing.T) {
				server := &hanging{Handler: mux}
				_, _, errOut := runSlowly(t, server, annotated, strings.Fields(line)...)
				var told []string
				for _, match := range waiting.FindAllStringSubmatch(errOut, -1) {
					told = append(told, match[1])
				}
				slices.Sort(told)
				slices.Sort(server.requests)
				if diff := cmp.Diff(slices.Compact(server.requests), told); diff != "" || len(told) == 0 {
					t.Errorf("the requests that hang, each once, and those that the user was told about (-want +got):\n%s%s", diff, errOut)
				}
			})
		})
	}
}
