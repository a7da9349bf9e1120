// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
)

// client returns an HTTP client that trusts the server and keeps one connection to it.
// It uses HTTP/1.1, as kube-apiserver does for a webhook behind a Service.
func (s *server) client() *http.Client {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(s.ca)
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	return &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS13},
		Protocols:       &protocols,
		MaxConnsPerHost: 1,
	}}
}

// post sends a request as the API server does and returns the response body.
func post(ctx context.Context, client *http.Client, url string, review []byte) ([]byte, error) {
	response, err := send(ctx, client, url, review)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	return io.ReadAll(response.Body)
}

func send(ctx context.Context, client *http.Client, url string, review []byte) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"?timeout=10s", bytes.NewReader(review))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", "application/json, */*")
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("User-Agent", "kube-apiserver-admission")
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		defer response.Body.Close()
		text, _ := io.ReadAll(io.LimitReader(response.Body, 1000))
		return nil, fmt.Errorf("got %s from %s: %s", response.Status, url, text)
	}
	return response, nil
}

// callers send the request of one case, each over its own connection.
type callers struct {
	c       *loadCase
	clients []*http.Client
	length  atomic.Int64 // of the response, which is always the same; 0 if not known
}

func newCallers(c *loadCase, connections int) *callers {
	cs := &callers{c: c}
	for range connections {
		cs.clients = append(cs.clients, c.server.client())
	}
	return cs
}

func (cs *callers) close() {
	for _, client := range cs.clients {
		client.CloseIdleConnections()
	}
}

// run sends n requests.
func (cs *callers) run(ctx context.Context, n int) error {
	var next atomic.Int64
	group, ctx := errgroup.WithContext(ctx)
	for _, client := range cs.clients {
		group.Go(func() error {
			for next.Add(1) <= int64(n) {
				if err := cs.call(ctx, client); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return group.Wait()
}

// call sends one request and checks the length of the response.
func (cs *callers) call(ctx context.Context, client *http.Client) error {
	response, err := send(ctx, client, cs.c.server.url+cs.c.path, cs.c.review)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	length, err := io.Copy(io.Discard, response.Body)
	if err != nil {
		return err
	}
	if !cs.length.CompareAndSwap(0, length) && length != cs.length.Load() {
		return fmt.Errorf("got a response of %d bytes, want %d", length, cs.length.Load())
	}
	return nil
}
