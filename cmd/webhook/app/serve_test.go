// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	metadatafake "k8s.io/client-go/metadata/fake"

	"github.com/lanyard-dev/lanyard/internal/webhook/httpserver"
	"github.com/lanyard-dev/lanyard/internal/webhook/injector"
	"github.com/lanyard-dev/lanyard/internal/webhook/metadatacache"
	"github.com/lanyard-dev/lanyard/test/support/memnet"
)

// fakeCertificate is a certificate source whose readiness a test sets.
type fakeCertificate struct {
	certificateSource
	ready bool
}

func (c fakeCertificate) Ready() bool { return c.ready }

// newTestCache returns the cache of an empty cluster, synced or not.
func newTestCache(t *testing.T, synced bool) *metadatacache.Cache {
	t.Helper()
	scheme := metadatafake.NewTestScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c := metadatacache.New(metadatacache.Options{
		Client:   metadatafake.NewSimpleMetadataClient(scheme),
		Resource: schema.GroupVersionResource{Version: "v1", Resource: "namespaces"},
		Logger:   logr.Discard(),
	})
	if synced {
		// It must end with the test: other tests set the loggers that it writes to.
		ended := make(chan error, 1)
		go func() { ended <- c.Start(t.Context()) }()
		t.Cleanup(func() {
			if err := <-ended; err != nil {
				t.Errorf("the cache ended with %v, want no error", err)
			}
		})
		for start := time.Now(); !c.HasSynced(); time.Sleep(time.Millisecond) {
			if time.Since(start) > time.Minute {
				t.Fatal("the cache did not sync")
			}
		}
	}
	return c
}

func TestServingWaitsForCertificateAndCaches(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		certificate, serviceAccounts, namespaces bool
		waited                                   time.Duration
		want                                     bool
	}{
		"everything is ready":                              {true, true, true, 0, true},
		"no certificate yet":                               {false, true, true, 0, false},
		"no certificate after a long time":                 {false, true, true, time.Hour, false},
		"the ServiceAccounts are not synced":               {true, false, true, syncPatience - 1, false},
		"the namespaces are not synced":                    {true, true, false, syncPatience - 1, false},
		"the ServiceAccounts are not synced after a while": {true, false, true, syncPatience, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			caches := injector.Caches{ServiceAccounts: newTestCache(t, test.serviceAccounts), Namespaces: newTestCache(t, test.namespaces)}
			p := program{certificate: fakeCertificate{ready: test.certificate}, webhooks: &injector.Webhooks{Caches: caches}}
			if got := p.canServe(test.waited); got != test.want {
				t.Errorf("got %t, want %t", got, test.want)
			}
		})
	}
}

// Such a request would keep its connection, and a replica that stops, for half a minute.
func TestARequestForAnotherPathIsNotReadToItsEnd(t *testing.T) {
	t.Parallel()
	for _, line := range []string{"POST //mutate-v1-pod HTTP/1.1", "OPTIONS * HTTP/1.1"} {
		t.Run(line, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var p program
				p.injection.Store(&injection{})
				listener := memnet.Serve(t, httpserver.NewReviews("", http.HandlerFunc(p.serveReview), nil, logr.Discard()), 1<<10)
				conn := memnet.Dial(t, listener, "10.0.0.2")
				if _, err := io.WriteString(conn, line+"\r\nHost: x\r\nContent-Length: 1000\r\n\r\n"); err != nil {
					t.Fatal(err)
				}
				start := time.Now()
				text, err := io.ReadAll(conn)
				if took := time.Since(start); err != nil || !strings.HasPrefix(string(text), "HTTP/1.1 404 ") || took > time.Second {
					t.Errorf("got %q, error %v after %s, want status 404 and the end at once", text, err, took)
				}
			})
		})
	}
}
