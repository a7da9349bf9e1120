// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Command baseline is a bare Go HTTPS server for admission requests. No webhook in Go
// can do less work for a response. It listens as controller-runtime's webhook server
// does, reads each request completely and sends a prepared response:
//
//	/minimal     an AdmissionReview that allows the request, with its uid
//	/constant/N  N constant bytes, for each N of -lengths
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() {
	address := flag.String("address", "", "`address` to listen on")
	cert := flag.String("tls-cert-file", "", "PEM `file` with the serving certificate")
	key := flag.String("tls-private-key-file", "", "PEM `file` with the private key")
	lengths := flag.String("lengths", "", "comma-separated lengths of constant responses")
	flag.Parse()
	if err := run(*address, *cert, *key, *lengths); err != nil {
		fmt.Fprintln(os.Stderr, "baseline:", err)
		os.Exit(1)
	}
}

func run(address, cert, key, lengths string) error {
	mux := http.NewServeMux()
	mux.HandleFunc("/minimal", allow)
	for length := range strings.SplitSeq(lengths, ",") {
		n, err := strconv.Atoi(length)
		if err != nil {
			return fmt.Errorf("-lengths: %w", err)
		}
		mux.HandleFunc("/constant/"+length, constant(n))
	}
	// The timeouts of controller-runtime's server.
	server := &http.Server{Addr: address, Handler: mux, ReadHeaderTimeout: 32 * time.Second, IdleTimeout: 90 * time.Second}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, func() { _ = server.Close() })
	if err := server.ListenAndServeTLS(cert, key); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// allow allows a request. The response contains the uid of the request, which the API server
// checks, and which is near the start of the request.
func allow(w http.ResponseWriter, r *http.Request) {
	const (
		start = `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":"`
		end   = `","allowed":true}}`
	)
	body, err := read(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	_, rest, _ := bytes.Cut(body, []byte(`"uid":"`))
	uid, _, _ := bytes.Cut(rest, []byte(`"`))
	response := make([]byte, 0, len(start)+len(uid)+len(end))
	write(w, append(append(append(response, start...), uid...), end...))
}

// constant sends n bytes for every request.
func constant(n int) http.HandlerFunc {
	response := bytes.Repeat([]byte{'x'}, n)
	return func(w http.ResponseWriter, r *http.Request) {
		if _, err := read(r); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		write(w, response)
	}
}

func read(r *http.Request) ([]byte, error) {
	if r.ContentLength < 0 {
		return nil, errors.New("got no Content-Length")
	}
	body := make([]byte, r.ContentLength)
	_, err := io.ReadFull(r.Body, body)
	return body, err
}

func write(w http.ResponseWriter, response []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(response)))
	// A client that does not read the response reports an error itself.
	_, _ = w.Write(response)
}
