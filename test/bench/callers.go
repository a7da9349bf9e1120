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

// post sends a request as the API server does, and copies the response body. It returns
// the length of the body.
func post(ctx context.Context, client *http.Client, url string, review []byte, into io.Writer) (int64, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"?timeout=10s", bytes.NewReader(review))
	if err != nil {
		return 0, err
	}
	request.Header.Set("Accept", "application/json, */*")
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("User-Agent", "kube-apiserver-admission")
	response, err := client.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(response.Body, 1000))
		return 0, fmt.Errorf("got %s from %s: %s", response.Status, url, text)
	}
	return io.Copy(into, response.Body)
}

// sendAll sends the request of the case n times. Each client sends one at a time. All
// responses must have the same length.
func (c *loadCase) sendAll(ctx context.Context, clients []*http.Client, n int) error {
	var next, length atomic.Int64
	group, ctx := errgroup.WithContext(ctx)
	for _, client := range clients {
		group.Go(func() error {
			for next.Add(1) <= int64(n) {
				body, err := post(ctx, client, c.server.url+c.path, c.review, io.Discard)
				if err != nil {
					return err
				}
				if !length.CompareAndSwap(0, body) && body != length.Load() {
					return fmt.Errorf("got a response of %d bytes, want %d", body, length.Load())
				}
			}
			return nil
		})
	}
	return group.Wait()
}
