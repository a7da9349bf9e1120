// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
)

// shutdownTimeout is how long requests in flight may take to finish. It is
// longer than the apiserver waits for any of them.
const shutdownTimeout = 35 * time.Second

// readyInterval is how often a server that cannot serve yet looks whether it
// can. Pods may be waiting.
const readyInterval = 20 * time.Millisecond

// Limits of one connection: any pod in the cluster may open one. An API server
// and a kubelet stay far below them.
const (
	// maxHeaderBytes limits the header of a request. net/http keeps about 200
	// bytes for each line of it, however short the line is.
	maxHeaderBytes = 8 << 10
	// readHeaderTimeout also limits the TLS handshake.
	readHeaderTimeout = 5 * time.Second
	// requestTimeout limits reading a request, and answering it. The API server
	// waits at most 30 seconds.
	requestTimeout = 35 * time.Second
)

// newServer returns a server that a peer can neither fill nor hold. If tlsConfig
// is set, it serves HTTPS. It speaks HTTP/1.1 only, as the API server does to a
// webhook behind a Service: a connection of HTTP/2 carries 250 requests at a time.
func newServer(address string, handler http.Handler, tlsConfig *tls.Config, log logr.Logger) *http.Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	return &http.Server{
		Addr: address, Handler: handler, TLSConfig: tlsConfig,
		Protocols:         protocols,
		MaxHeaderBytes:    maxHeaderBytes,
		ReadHeaderTimeout: readHeaderTimeout,
		ReadTimeout:       requestTimeout,
		WriteTimeout:      requestTimeout,
		IdleTimeout:       90 * time.Second,
		// What is said here is about peers, such as probes that hang up.
		ErrorLog: slog.NewLogLogger(logr.ToSlogHandler(log.V(1)), slog.LevelInfo),
	}
}

// listenAndServe is serve on the server's own address.
func listenAndServe(ctx context.Context, server *http.Server) error {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", server.Addr)
	if err != nil {
		return err
	}
	return serve(ctx, server, listener)
}

// serveOnce is serve from when ready says so, which it notes in serving. Until
// then connections wait; when ctx ends before, they are closed.
func serveOnce(ctx context.Context, server *http.Server, listener net.Listener, ready func() bool, serving *atomic.Bool) error {
	ticker := time.NewTicker(readyInterval)
	defer ticker.Stop()
	for !ready() {
		select {
		case <-ctx.Done():
			return listener.Close()
		case <-ticker.C:
		}
	}
	serving.Store(true)
	return serve(ctx, server, listener)
}

// serve runs the server until ctx ends, and then until the requests in flight
// are answered. The listener is closed then.
func serve(ctx context.Context, server *http.Server, listener net.Listener) error {
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

// closing has clients open a new connection after each answer while draining:
// the cluster brings it to another replica. Connections that are only closed at
// the end may be just then in use, and an apiserver does not repeat a review
// whose connection went away.
func closing(draining <-chan struct{}, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-draining:
			w.Header().Set("Connection", "close")
		default:
		}
		next.ServeHTTP(w, r)
	})
}

// onceServing fails before serving has begun, when a connection would have the
// check wait.
func onceServing(serving *atomic.Bool, check healthz.Checker) healthz.Checker {
	return func(r *http.Request) error {
		if !serving.Load() {
			return errors.New("not serving yet")
		}
		return check(r)
	}
}

// checkTLS is a health check that shakes hands with the server at address.
func checkTLS(address string) healthz.Checker {
	// Whether the certificate is valid is another check.
	dialer := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // see above
	return func(r *http.Request) error {
		ctx, cancel := context.WithTimeout(r.Context(), 5*time.Second)
		defer cancel()
		conn, err := dialer.DialContext(ctx, "tcp", address)
		if err != nil {
			return fmt.Errorf("reach the server: %w", err)
		}
		return conn.Close()
	}
}
