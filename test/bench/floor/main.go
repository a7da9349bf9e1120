// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Command floor is the baseline for the webhook's cost: a Go HTTPS server that
// does the minimum for admission requests. It listens like controller-runtime's
// webhook server, reads each request completely and sends a prepared response:
//
//	/minimal     an AdmissionReview that allows the request, with its uid
//	/patch       the same with the patch of -patch-file
//	/constant/N  N constant bytes, for each N of -lengths
//
// It prints its address and ends when its standard input ends, so that it
// cannot outlive its parent process.
package main

import (
	"bytes"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

func main() {
	cert := flag.String("tls-cert-file", "", "PEM `file` with the serving certificate")
	key := flag.String("tls-private-key-file", "", "PEM `file` with the private key")
	patch := flag.String("patch-file", "", "`file` with a JSON Patch")
	lengths := flag.String("lengths", "", "comma-separated lengths of constant responses")
	flag.Parse()
	if err := run(*cert, *key, *patch, *lengths); err != nil {
		fmt.Fprintln(os.Stderr, "floor:", err)
		os.Exit(1)
	}
}

func run(cert, key, patchFile, lengths string) error {
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/minimal", allow(`","allowed":true}}`))
	if patchFile != "" {
		patch, err := os.ReadFile(patchFile)
		if err != nil {
			return err
		}
		mux.HandleFunc("/patch", allow(`","allowed":true,"patchType":"JSONPatch","patch":"`+base64.StdEncoding.EncodeToString(patch)+`"}}`))
	}
	for length := range strings.SplitSeq(lengths, ",") {
		if length == "" {
			continue
		}
		n, err := strconv.Atoi(length)
		if err != nil {
			return fmt.Errorf("-lengths: %w", err)
		}
		mux.HandleFunc("/constant/"+length, constant(n))
	}
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS13, NextProtos: []string{"h2"},
	})
	if err != nil {
		return err
	}
	fmt.Println(listener.Addr())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	// The timeouts of controller-runtime's server.
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 32 * time.Second, IdleTimeout: 90 * time.Second}
	return server.Serve(listener)
}

// allow sends a response that ends with the given text after the request's uid,
// which the API server checks. The uid is at the beginning of the request.
func allow(end string) http.HandlerFunc {
	const start = `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":"`
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := read(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		_, rest, _ := bytes.Cut(body, []byte(`"uid":"`))
		uid, _, _ := bytes.Cut(rest, []byte(`"`))
		response := make([]byte, 0, len(start)+len(uid)+len(end))
		response = append(append(append(response, start...), uid...), end...)
		write(w, response)
	}
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
