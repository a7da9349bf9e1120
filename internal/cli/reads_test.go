// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// A run reads each part of the cluster once, however many parts of a command need it.
func TestNoCommandReadsAPartTwice(t *testing.T) {
	t.Parallel()
	const of = " --namespace namespace-000"
	for _, line := range []string{
		"check" + of, "check --pre", "status --all-namespaces", "status --all-namespaces --stale -o name", "status --all-namespaces --no-dry-run -o json",
		"explain sa/account-000" + of, "label serviceaccounts --all-namespaces --dry-run=client", "version",
	} {
		t.Run(line, func(t *testing.T) {
			t.Parallel()
			var mu sync.Mutex
			reads := map[string]int{}
			cluster := smallCluster(t)
			server := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodGet {
					mu.Lock()
					reads[r.URL.RequestURI()]++
					mu.Unlock()
				}
				cluster.ServeHTTP(w, r)
			})
			_, _, errOut := runAgainst(t, server, "", strings.Fields(line)...)
			if len(reads) < 2 {
				t.Fatalf("got %d reads: %s", len(reads), errOut)
			}
			for uri, n := range reads {
				if n > 1 {
					t.Errorf("got %d reads of %s, want one", n, uri)
				}
			}
		})
	}
}

// Users can write the owner references of pods and of their owners.
func TestExplainReadsNoSecretAndEachOwnerOnce(t *testing.T) {
	t.Parallel()
	const in = "/api/v1/namespaces/namespace-000/"
	of := func(kind, name, owner, ownerName string) string {
		return fmt.Sprintf(`{"kind":%q,"apiVersion":"v1","metadata":{"namespace":"namespace-000","name":%q,"uid":%[2]q,`+
			`"ownerReferences":[{"apiVersion":"v1","kind":%q,"name":%q,"uid":%[4]q,"controller":true}]},"spec":{"serviceAccountName":"account-000","containers":[{"name":"c"}]}}`, kind, name, owner, ownerName)
	}
	// stop is more than any reader needs.
	const stop = 100
	for owner, most := range map[string]int{"Secret": 0, "ConfigMap": 10} {
		t.Run(owner, func(t *testing.T) {
			t.Parallel()
			reads, mux := 0, http.NewServeMux()
			mux.Handle("/", smallCluster(t))
			mux.HandleFunc("GET /api/v1", func(w http.ResponseWriter, _ *http.Request) {
				var resources []string
				for _, kind := range []string{"Pod", "Secret", "ConfigMap"} {
					resources = append(resources, fmt.Sprintf(`{"name":"%ss","kind":%q,"namespaced":true,"singularName":%q,"verbs":["get"]}`, strings.ToLower(kind), kind, strings.ToLower(kind)))
				}
				reply(w, `{"kind":"APIResourceList","groupVersion":"v1","resources":[`+strings.Join(resources, ",")+`]}`)
			})
			mux.HandleFunc("GET "+in+"events", func(w http.ResponseWriter, r *http.Request) { page(w, r, "Event", 0, nil) })
			mux.HandleFunc("GET "+in+"pods/forged", func(w http.ResponseWriter, _ *http.Request) { reply(w, of("Pod", "forged", owner, "circle")) })
			mux.HandleFunc("GET "+in+strings.ToLower(owner)+"s/circle", func(w http.ResponseWriter, _ *http.Request) {
				if reads++; reads > stop {
					w.WriteHeader(http.StatusNotFound)
					return
				}
				reply(w, of(owner, "circle", owner, "circle"))
			})
			_, out, errOut := runAgainst(t, mux, "", "explain", "pod/forged", "--namespace", "namespace-000", "--config", emptyFile(t))
			if !strings.Contains(out, "pod/forged in namespace namespace-000") || reads > most {
				t.Errorf("got %d reads of the owner, want at most %d:\n%s%s", reads, most, out, errOut)
			}
		})
	}
}

func emptyFile(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config.yaml")
	write(t, file, "")
	return file
}
