// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
)

// The log of the libraries is global, so this test is not parallel.
func TestTheLogHasRequestsButNoCredentials(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"kind":"Secret","apiVersion":"v1","metadata":{"name":"s"},"data":{"password":"aHVudGVyMg=="}}`))
	}))
	t.Cleanup(server.Close)
	t.Cleanup(klog.CaptureState().Restore)
	for level, want := range map[int]string{0: "", 6: "/api/v1/namespaces/shop/secrets/s", 7: "masked", 10: "masked"} {
		restore := klog.CaptureState()
		var log bytes.Buffer
		klog.SetSlogLogger(slog.New(slog.DiscardHandler)) // as main does
		if err := LogTo(&log, level); err != nil {
			t.Fatal(err)
		}
		client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL, BearerToken: "hunter1"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := client.CoreV1().Secrets("shop").Get(t.Context(), "s", metav1.GetOptions{}); err != nil {
			t.Fatal(err)
		}
		restore.Restore()
		if !strings.Contains(log.String(), want) || want == "" && log.Len() > 0 {
			t.Errorf("-v=%d: got %s, want it to contain %q", level, &log, want)
		}
		for _, secret := range []string{"hunter1", "aHVudGVyMg", "password"} {
			if strings.Contains(log.String(), secret) {
				t.Errorf("-v=%d: got %s, want no credential", level, &log)
			}
		}
	}
}

// A library that logs an error returns it as well, and the command prints it.
func TestTheLogHasNoErrorsUnlessTheUserAsksForIt(t *testing.T) {
	t.Cleanup(klog.CaptureState().Restore)
	for level, want := range map[int]string{0: "", 1: "level=ERROR msg=again"} {
		restore := klog.CaptureState()
		var log bytes.Buffer
		klog.SetSlogLogger(slog.New(slog.DiscardHandler)) // as main does
		if err := LogTo(&log, level); err != nil {
			t.Fatal(err)
		}
		klog.Background().WithName("discovery").WithValues("group", "apps").Error(nil, "again")
		restore.Restore()
		if !strings.Contains(log.String(), want) || want == "" && log.Len() > 0 {
			t.Errorf("-v=%d: got %q, want it to contain %q", level, &log, want)
		}
	}
}
