// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package metadatacache

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/lanyard-dev/lanyard/internal/webhook/bounds"
	"github.com/lanyard-dev/lanyard/test/support/memnet"
)

// socket is the size of a connection's buffer.
const socket = 16 << 10

// clientOf returns a read client of an API server with this handler.
func clientOf(t *testing.T, handler http.HandlerFunc) metadata.Interface {
	t.Helper()
	listener := memnet.Serve(t, &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute}, socket)
	client, err := NewReadClient(&rest.Config{Host: "http://api", QPS: -1, Dial: listener.DialContext("10.0.0.1")})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// ofSize returns the metadata of a ServiceAccount of this many bytes.
func ofSize(t *testing.T, bytes int) []byte {
	t.Helper()
	meta := serviceAccount("ns", "app", roleARN, "a", "note", "")
	meta.TypeMeta = metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadata"}
	text, err := json.Marshal(meta)
	if err != nil {
		t.Fatal(err)
	}
	meta.Annotations["note"] = strings.Repeat("x", bytes-len(text))
	if text, err = json.Marshal(meta); err != nil {
		t.Fatal(err)
	}
	return text
}

func TestMetadataOfALiveReadHasALimit(t *testing.T) {
	t.Parallel()
	for bytes, want := range map[int]string{
		bounds.UsualMetadata:     "",
		bounds.UsualMetadata + 1: "",
		bounds.LargeMetadata:     "",
		bounds.LargeMetadata + 1: "read serviceaccounts ns/app: its metadata is larger than 327680 bytes: remove labels, annotations, owners or field managers",
		8 << 20:                  "read serviceaccounts ns/app: its metadata is larger than 327680 bytes: remove labels, annotations, owners or field managers",
	} {
		t.Run(fmt.Sprint(bytes, " bytes"), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				text := ofSize(t, bytes)
				client := clientOf(t, func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("Content-Type", "application/json")
					_, _ = w.Write(text)
				})
				r := New(Options{Client: client, Resource: serviceAccounts})
				object, err := r.Get(t.Context(), "ns", "app")
				switch {
				case want == "" && (err != nil || object.Annotations[roleARN] != "a"):
					t.Errorf("got %v and the error %v, want the annotation", object.Annotations, err)
				case want != "" && (err == nil || err.Error() != want):
					t.Errorf("got the error %v, want %s", err, want)
				}
			})
		})
	}
}

func TestLargeMetadataIsReadOneResponseAtATime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		text := ofSize(t, bounds.LargeMetadata)
		var now, most atomic.Int64
		client := clientOf(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			// A client that waits for its turn reads at most this much.
			first := bounds.UsualMetadata + 2*socket
			_, _ = w.Write(text[:first])
			_ = http.NewResponseController(w).Flush()
			most.Store(max(most.Load(), now.Add(1)))
			time.Sleep(time.Second)
			now.Add(-1)
			_, _ = w.Write(text[first:])
		})
		r := New(Options{Client: client, Resource: serviceAccounts})
		var readers sync.WaitGroup
		for i := range 4 { // of readTimeout, five seconds
			readers.Go(func() {
				if _, err := r.Get(t.Context(), "ns", fmt.Sprint("app-", i)); err != nil {
					t.Error(err)
				}
			})
		}
		readers.Wait()
		if got := most.Load(); got != 1 {
			t.Errorf("got %d large responses at a time, want 1", got)
		}
	})
}

// With HTTP/2, the client would buffer data that nobody reads yet.
func TestLiveReadsUseHTTP1(t *testing.T) {
	t.Parallel()
	got := make(chan string, 1)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got <- r.Proto
		w.WriteHeader(http.StatusNotFound)
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	client, err := NewReadClient(&rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{CAData: ca}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Resource(serviceAccounts).Namespace("ns").Get(t.Context(), "app", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Fatalf("got the error %v, want not found", err)
	}
	if proto := <-got; proto != "HTTP/1.1" {
		t.Errorf("got a request of %s, want HTTP/1.1", proto)
	}
}

func TestWithoutAnAPIServerReadsAndListsFail(t *testing.T) {
	t.Parallel()
	client, err := NewReadClient(&rest.Config{Host: "http://api", Dial: func(context.Context, string, string) (net.Conn, error) {
		return nil, errors.New("no route")
	}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Resource(serviceAccounts).Namespace("ns").Get(t.Context(), "app", metav1.GetOptions{}); err == nil || !strings.Contains(err.Error(), "no route") {
		t.Errorf("get: got error %v, want that of the connection", err)
	}
	c := New(Options{Client: client, Resource: serviceAccounts})
	if _, err := c.list(t.Context(), metav1.ListOptions{Limit: pageSize}); err == nil || !strings.Contains(err.Error(), "no route") {
		t.Errorf("list: got error %v, want that of the connection", err)
	}
}
