// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package httpserver runs the servers of lanyard-webhook, to which any pod of a cluster
// may connect: with limits on the number, the memory and the time of connections
// (connlimit.go, server.go, turns.go), for callers with a client certificate (clientcert.go)
// or a token (tokenauth.go), and with files that change (files.go).
package httpserver

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/lanyard-dev/lanyard/internal/webhook/bounds"
)

// shutdownTimeout is how long requests in progress may take to finish. The API
// server waits at most 30 seconds for a response.
const shutdownTimeout = 35 * time.Second

// ReadyInterval is how often Serve calls ready. It is short because pod
// creations may be waiting.
const ReadyInterval = 20 * time.Millisecond

// Limits of one connection: any pod in the cluster may open one. API servers and
// kubelets stay far below them.
const (
	// maxHeaderBytes limits the header of a request. net/http uses about 200 bytes for each
	// line, however short.
	maxHeaderBytes = 8 << 10
	// requestTimeout limits reading a request and writing its response. The API server waits
	// at most 30 seconds.
	requestTimeout = 35 * time.Second
)

// NewReviews returns a server for admission reviews.
func NewReviews(address string, handler http.Handler, tlsConfig *tls.Config, log logr.Logger) *http.Server {
	server := New(address, handler, tlsConfig, bounds.Reviews, log)
	// An API server closes an idle connection after 90 seconds. The webhook must not close it
	// first, because a request may be in flight, which the API server does not retry.
	server.IdleTimeout = 3 * time.Minute
	return server
}

// NewPort returns a server for kubelets or Prometheus, whose requests have no body.
func NewPort(address string, handler http.Handler, tlsConfig *tls.Config, log logr.Logger) *http.Server {
	return New(address, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 {
			Refuse(w, "got a body, want none", http.StatusBadRequest)
			return
		}
		handler.ServeHTTP(w, r)
	}), tlsConfig, bounds.Others, log)
}

// Refuse responds to a request without its body. net/http would wait for the body before it
// sends the response, as long as a whole request may take.
func Refuse(w http.ResponseWriter, message string, code int) {
	_ = http.NewResponseController(w).SetReadDeadline(time.Unix(0, 1))
	w.Header().Set("Connection", "close") // the deadline can end the context of the connection
	http.Error(w, message, code)
}

// New returns a server with limits on the number, the memory and the time of
// its connections.
// If tlsConfig is set, it serves HTTPS. It only speaks HTTP/1.1, as the API server
// does to a webhook behind a Service: an HTTP/2 connection could carry 250
// requests at a time.
func New(address string, handler http.Handler, tlsConfig *tls.Config, limit bounds.Connections, log logr.Logger) *http.Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	server := &http.Server{
		Addr: address, Handler: handler, TLSConfig: tlsConfig,
		Protocols:         protocols,
		MaxHeaderBytes:    maxHeaderBytes,
		ReadHeaderTimeout: bounds.HandshakeTimeout, // also of the TLS handshake
		ReadTimeout:       requestTimeout,
		WriteTimeout:      requestTimeout,
		IdleTimeout:       90 * time.Second,
		// That of net/http waits for the body of "OPTIONS *".
		DisableGeneralOptionsHandler: true,
		// These messages are about clients, such as probes that disconnect.
		ErrorLog: slog.NewLogLogger(logr.ToSlogHandler(log.V(1)), slog.LevelInfo),
	}
	Use(server, limit)
	return server
}

// ListenAndServe listens on the server's address and calls Serve.
func ListenAndServe(ctx context.Context, server *http.Server, ready func() bool) error {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", server.Addr)
	if err != nil {
		return err
	}
	return Serve(ctx, server, listener, ready)
}

// Serve waits until ready returns true, and runs the server until ctx is done and the
// requests in progress have their responses. Until the server runs, connections wait in
// the backlog of the listener. Serve closes the listener.
func Serve(ctx context.Context, server *http.Server, listener net.Listener, ready func() bool) error {
	isReady := func(context.Context) (bool, error) { return ready(), nil }
	if wait.PollUntilContextCancel(ctx, ReadyInterval, true, isReady) != nil {
		return listener.Close()
	}
	listener = guardedListener{listener}
	stopped := make(chan error, 1)
	go func() {
		<-ctx.Done()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
		defer cancel()
		stopped <- server.Shutdown(ctx)
	}()
	var err error
	if server.TLSConfig != nil {
		err = server.ServeTLS(listener, "", "")
	} else {
		err = server.Serve(listener)
	}
	if !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve on %s: %w", server.Addr, err)
	}
	if err := <-stopped; err != nil {
		return fmt.Errorf("shut down the server on %s: %w", server.Addr, err)
	}
	return nil
}

// Closing sends "Connection: close" with each response while draining, so that clients
// reconnect to another replica. A connection that is closed only at shutdown may carry a
// request, which the API server does not retry.
func Closing(draining <-chan struct{}, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-draining:
			w.Header().Set("Connection", "close")
		default:
		}
		next.ServeHTTP(w, r)
	})
}
