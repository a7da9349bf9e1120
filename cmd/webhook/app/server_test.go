// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	metadatafake "k8s.io/client-go/metadata/fake"

	"github.com/lanyard-dev/lanyard/internal/metadatacache"
)

func TestConnectionsMoveToOtherReplicasWhileDraining(t *testing.T) {
	t.Parallel()
	draining := make(chan struct{})
	server := httptest.NewServer(closing(draining, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
	defer server.Close()
	post := func() (closed, reused bool) {
		t.Helper()
		trace := &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) { reused = info.Reused }}
		request, err := http.NewRequestWithContext(httptrace.WithClientTrace(t.Context(), trace), http.MethodPost, server.URL, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		response, err := server.Client().Do(request)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		return response.Close, reused
	}
	post()
	if closed, reused := post(); closed || !reused {
		t.Errorf("got closed %t and reused %t while serving, want the connection kept", closed, reused)
	}
	close(draining)
	if closed, _ := post(); !closed {
		t.Error("the connection is kept while draining")
	}
	if _, reused := post(); reused {
		t.Error("the same connection is used again while draining")
	}
}

// startGated runs a server that serves once ready is set, and gives its TLS
// check.
func startGated(ctx context.Context, t *testing.T, ready *atomic.Bool) (address string, check func(*http.Request) error, ended <-chan error) {
	t.Helper()
	source := httptest.NewUnstartedServer(http.NotFoundHandler())
	source.StartTLS()
	certificates := source.TLS.Certificates
	source.Close()
	listener := localListener(t)
	address = listener.Addr().String()
	config := &tls.Config{MinVersion: tls.VersionTLS13, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		if !ready.Load() {
			return nil, errors.New("there is no certificate yet")
		}
		return &certificates[0], nil
	}}
	handler := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	server := newServer(address, handler, config, logr.Discard())
	var serving atomic.Bool
	done := make(chan error, 1)
	go func() { done <- serveOnce(ctx, server, listener, ready.Load, &serving) }()
	return address, onceServing(&serving, checkTLS(address)), done
}

func TestConnectionsWaitUntilTheyCanBeServed(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var ready atomic.Bool
	address, check, ended := startGated(ctx, t, &ready)
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		t.Fatalf("connect before it serves: %v", err)
	}
	defer conn.Close()
	client := tls.Client(conn, &tls.Config{InsecureSkipVerify: true})
	shaken := make(chan error, 1)
	go func() { shaken <- client.HandshakeContext(ctx) }()
	select {
	case err := <-shaken:
		t.Fatalf("before it can serve: got %v, want the connection to wait", err)
	case <-time.After(10 * readyInterval):
	}
	begun := time.Now()
	if err := check(httptest.NewRequest(http.MethodGet, "/readyz", http.NoBody)); err == nil || err.Error() != "not serving yet" {
		t.Errorf("before it serves: got %v, want that it does not yet", err)
	}
	if took := time.Since(begun); took > time.Second {
		t.Errorf("the check took %s, want it not to connect", took)
	}
	ready.Store(true)
	if err := <-shaken; err != nil {
		t.Errorf("the connection that waited: got %v, want it served", err)
	}
	if err := check(httptest.NewRequest(http.MethodGet, "/readyz", http.NoBody)); err != nil {
		t.Errorf("while it serves: got %v, want it ready", err)
	}
	_ = conn.Close()
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("the end: got %v, want no error", err)
	}
}

func TestAServerThatNeverCouldServeClosesItsSocket(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	address, _, ended := startGated(ctx, t, new(atomic.Bool))
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("got %v, want no error", err)
	}
	if _, err := new(net.Dialer).DialContext(t.Context(), "tcp", address); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("connect afterwards: got %v, want it refused", err)
	}
}

// certificateOf is a source with a certificate, or with the error that there is
// none.
type certificateOf struct{ err error }

func (c certificateOf) Start(context.Context) error { return nil }
func (c certificateOf) Check(*http.Request) error   { return nil }
func (c certificateOf) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return &tls.Certificate{}, c.err
}

// newTestLookup gives one of an empty cluster, started or not.
func newTestLookup(t *testing.T, started bool) *metadatacache.Lookup {
	t.Helper()
	scheme := metadatafake.NewTestScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	l, err := metadatacache.New(metadatacache.Options{
		Client:   metadatafake.NewSimpleMetadataClient(scheme),
		Resource: schema.GroupVersionResource{Version: "v1", Resource: "namespaces"},
		Prefix:   "lanyard.dev/",
		Logger:   logr.Discard(),
	})
	if err != nil {
		t.Fatal(err)
	}
	if started {
		// Other tests set the loggers that it writes to.
		ended := make(chan error, 1)
		go func() { ended <- l.Start(t.Context()) }()
		t.Cleanup(func() {
			if err := <-ended; err != nil {
				t.Errorf("the lookup ended with %v, want no error", err)
			}
		})
		for begun := time.Now(); !l.HasSynced(); time.Sleep(time.Millisecond) {
			if time.Since(begun) > time.Minute {
				t.Fatal("the lookup never synced")
			}
		}
	}
	return l
}

func TestWhatServingWaitsFor(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		certificate          error
		accounts, namespaces bool
		waited               time.Duration
		want                 bool
	}{
		"everything is there":      {nil, true, true, 0, true},
		"no certificate yet":       {errors.New("none yet"), true, true, 0, false},
		"never a certificate":      {errors.New("none yet"), true, true, time.Hour, false},
		"the accounts not known":   {nil, false, true, syncPatience - 1, false},
		"the namespaces not known": {nil, true, false, syncPatience - 1, false},
		"the accounts never known": {nil, false, true, syncPatience, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := program{certificate: certificateOf{test.certificate}, accounts: newTestLookup(t, test.accounts), namespaces: newTestLookup(t, test.namespaces)}
			if got := p.canServe(test.waited); got != test.want {
				t.Errorf("got %t, want %t", got, test.want)
			}
		})
	}
}
