// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	ctrlwebhook "sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/lanyard-dev/lanyard/pkg/webhook"
	"github.com/lanyard-dev/lanyard/test/support/controlplane"
	harness "github.com/lanyard-dev/lanyard/test/support/webhook"
)

// start runs the manager of the example until the test ends. It needs no API server: the
// manager reads from it only for reviews.
func start(t *testing.T) (metrics, probes string) {
	t.Helper()
	dir := t.TempDir()
	if _, _, _, err := controlplane.NewServingCertificate(dir, "127.0.0.1"); err != nil {
		t.Fatal(err)
	}
	ports, err := harness.FreePorts(t.Context(), 3)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(ports[0])
	if err != nil {
		t.Fatal(err)
	}
	metrics, probes = net.JoinHostPort("127.0.0.1", ports[1]), net.JoinHostPort("127.0.0.1", ports[2])
	webhooks := webhook.NewServer(ctrlwebhook.Options{Host: "127.0.0.1", Port: port, CertDir: dir})
	mgr, err := newManager(&rest.Config{}, webhooks, metrics, probes)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	isReady := func(context.Context) (bool, error) {
		status, _, err := get(t, "http://"+probes+"/readyz", 0)
		return err == nil && status == http.StatusOK, nil
	}
	if err := wait.PollUntilContextTimeout(ctx, 10*time.Millisecond, time.Minute, true, isReady); err != nil {
		t.Fatalf("the manager is not ready: %v", err)
	}
	return metrics, probes
}

// get sends a request with this many bytes in short lines of its header.
func get(t *testing.T, url string, header int) (status int, body string, err error) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	for range header / len("A: \r\n") {
		request.Header.Add("A", "")
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	return response.StatusCode, string(text), err
}

func TestTheOtherPortsServeWithLimits(t *testing.T) {
	metrics, probes := start(t)
	for _, url := range []string{"http://" + probes + "/healthz", "http://" + probes + "/readyz", "http://" + metrics + "/metrics"} {
		if status, _, err := get(t, url, 0); err != nil || status != http.StatusOK {
			t.Errorf("%s: got status %d and error %v, want 200", url, status, err)
		}
		if status, _, err := get(t, url, 32<<10); err != nil || status != http.StatusRequestHeaderFieldsTooLarge {
			t.Errorf("%s: got status %d and error %v for a header of 32 KiB, want 431", url, status, err)
		}
	}
	if _, body, err := get(t, "http://"+metrics+"/metrics", 0); err != nil || !strings.Contains(body, "\nlanyard_") {
		t.Errorf("got the error %v and metrics without lanyard's", err)
	}
}
