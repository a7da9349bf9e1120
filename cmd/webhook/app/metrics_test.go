// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"io"
	"net/http"
	"testing"
	"testing/synctest"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/lanyard-dev/lanyard/internal/webhook/httpserver"
	"github.com/lanyard-dev/lanyard/test/support/memnet"
)

// Any pod can scrape. One that does not read the response, or does not send its body, must not
// block Prometheus.
func TestASlowClientDoesNotStopScrapes(t *testing.T) {
	t.Parallel()
	for name, request := range map[string]string{
		"a client that does not read":      "GET /metrics HTTP/1.1\r\n",
		"a client that does not send":      "GET /metrics HTTP/1.1\r\nContent-Length: 1000\r\n",
		"a client that sends chunks later": "GET /metrics HTTP/1.1\r\nTransfer-Encoding: chunked\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { scrapeDespite(t, request+"Host: x\r\n\r\n") })
		})
	}
}

// scrapeDespite gets the metrics while another client sends these requests and does nothing else.
func scrapeDespite(t *testing.T, hostile string) {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector())
	const connBuffer = 1 << 10 // less than the metrics
	listener := memnet.Serve(t, httpserver.NewPort("", scrapes(registry), nil, logr.Discard()), connBuffer)
	for range 4 * maxScrapes {
		if _, err := io.WriteString(memnet.Dial(t, listener, "10.0.0.2"), hostile); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
	}
	client := &http.Client{Transport: &http.Transport{DialContext: listener.DialContext("10.0.0.1")}}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://lanyard/metrics", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		t.Errorf("got %s, want 200", response.Status)
	}
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		t.Error(err)
	}
}
