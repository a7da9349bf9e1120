// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"testing"
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
