// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package metadataapi is a small API server for tests: it lists, watches and reads the
// metadata of ServiceAccounts or Namespaces. Its watches can stall, and its reads can fail.
package metadataapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/lanyard-dev/lanyard/test/support/memnet"
)

// Server is the API server. Make it with New.
type Server struct {
	t       testing.TB
	streams bool

	mu       sync.Mutex
	objects  map[string]*metav1.PartialObjectMetadata
	version  int
	events   []metav1.WatchEvent // the one at i made version i+1
	visible  int                 // how many events the watches may see, if they are stalled; else -1
	changed  chan struct{}       // closed when the watches may see more
	requests map[string]int
	broken   bool
}

// New returns a server with these objects. With streams, it streams lists
// (sendInitialEvents, KEP-3157), and otherwise it sends them in pages.
func New(t testing.TB, streams bool, metas ...*metav1.PartialObjectMetadata) *Server {
	t.Helper()
	a := &Server{
		t: t, streams: streams, visible: -1,
		objects:  map[string]*metav1.PartialObjectMetadata{},
		changed:  make(chan struct{}),
		requests: map[string]int{},
	}
	for _, meta := range metas {
		a.Send(watch.Added, meta)
	}
	return a
}

// Client returns a client that reaches the server over the network.
func (a *Server) Client() metadata.Interface {
	a.t.Helper()
	server := httptest.NewServer(a)
	a.t.Cleanup(server.Close)
	return a.newClient(&rest.Config{Host: server.URL})
}

// ClientInBubble is like Client in a bubble of testing/synctest.
func (a *Server) ClientInBubble() metadata.Interface {
	a.t.Helper()
	listener := memnet.Serve(a.t, &http.Server{Handler: a, ReadHeaderTimeout: time.Minute}, 64<<10)
	return a.newClient(&rest.Config{Host: "http://api", Dial: listener.DialContext("10.0.0.1")})
}

func (a *Server) newClient(config *rest.Config) metadata.Interface {
	a.t.Helper()
	config.QPS = -1
	client, err := metadata.NewForConfig(config)
	if err != nil {
		a.t.Fatal(err)
	}
	return client
}

// Send makes the change and sends it to the watches.
func (a *Server) Send(kind watch.EventType, meta *metav1.PartialObjectMetadata) {
	a.t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.version++
	meta = meta.DeepCopy()
	meta.TypeMeta = metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadata"}
	meta.ResourceVersion = strconv.Itoa(a.version)
	key := meta.Namespace + "/" + meta.Name
	if kind == watch.Deleted {
		delete(a.objects, key)
	} else {
		a.objects[key] = meta
	}
	a.events = append(a.events, metav1.WatchEvent{Type: string(kind), Object: runtime.RawExtension{Object: meta}})
	a.wake()
}

// SendError ends all watches, as the API server does when their version is too old. forget lists
// objects whose deletion the watches miss.
func (a *Server) SendError(status metav1.Status, forget ...string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.version++
	for _, key := range forget {
		delete(a.objects, key)
	}
	a.events = append(a.events, metav1.WatchEvent{Type: string(watch.Error), Object: runtime.RawExtension{Object: &status}})
	a.wake()
}

// Version returns the resource version of an object, or "" if there is no such object.
func (a *Server) Version(namespace, name string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if meta, ok := a.objects[namespace+"/"+name]; ok {
		return meta.ResourceVersion
	}
	return ""
}

// Stall stops the watches from sending changes until Resume.
func (a *Server) Stall() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.visible = len(a.events)
}

// Resume ends Stall.
func (a *Server) Resume() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.visible = -1
	a.wake()
}

// wake makes the watches look for events.
func (a *Server) wake() {
	close(a.changed)
	a.changed = make(chan struct{})
}

// SetBroken makes all reads and lists fail, or not. Watches go on.
func (a *Server) SetBroken(broken bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.broken = broken
}

// WantRequests compares the requests so far, except watches from a version.
func (a *Server) WantRequests(want map[string]int) {
	a.t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	got := maps.Clone(a.requests)
	delete(got, "watch")
	if diff := cmp.Diff(want, got); diff != "" {
		a.t.Errorf("requests (-want +got):\n%s", diff)
	}
}

// ServeHTTP implements http.Handler.
func (a *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	name, single := strings.CutPrefix(r.URL.Path, "/api/v1/namespaces/")
	if !strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadata") {
		a.t.Errorf("got Accept %q, want only metadata", r.Header.Get("Accept"))
	}
	switch {
	case single && !strings.Contains(name, "/"): // a Namespace
		a.get(w, "/"+name)
	case single:
		a.get(w, strings.Replace(name, "/serviceaccounts/", "/", 1))
	case r.URL.Path != "/api/v1/serviceaccounts" && r.URL.Path != "/api/v1/namespaces":
		a.t.Errorf("got path %q", r.URL.Path)
	case query.Get("sendInitialEvents") == "true":
		a.count("stream")
		if !a.streams {
			reply(w, http.StatusUnprocessableEntity, metav1.Status{Reason: metav1.StatusReasonInvalid, Message: "sendInitialEvents: Forbidden"})
			return
		}
		a.follow(w, r, a.stream(w))
	case query.Get("watch") == "true":
		a.count("watch")
		version, err := strconv.Atoi(query.Get("resourceVersion"))
		if err != nil {
			a.t.Errorf("got a watch at version %q: %v", query.Get("resourceVersion"), err)
		}
		a.follow(w, r, version)
	default:
		a.list(w, query.Get("resourceVersion"), query.Get("limit"), query.Get("continue"))
	}
}

func (a *Server) count(request string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.requests[request]++
}

func (a *Server) get(w http.ResponseWriter, key string) {
	a.count("get " + key)
	a.mu.Lock()
	defer a.mu.Unlock()
	_, name, _ := strings.Cut(key, "/")
	switch meta, ok := a.objects[key]; {
	case a.broken:
		reply(w, http.StatusInternalServerError, apierrors.NewInternalError(errors.New("etcd is down")).Status())
	case !ok:
		reply(w, http.StatusNotFound, apierrors.NewNotFound(schema.GroupResource{Resource: "serviceaccounts"}, name).Status())
	default:
		reply(w, http.StatusOK, meta)
	}
}

func (a *Server) list(w http.ResponseWriter, version, limit, from string) {
	a.count(fmt.Sprintf("list version=%q limit=%s", version, limit))
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.broken {
		reply(w, http.StatusInternalServerError, apierrors.NewInternalError(errors.New("etcd is down")).Status())
		return
	}
	page := metav1.PartialObjectMetadataList{
		TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadataList"},
		ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(a.version)},
	}
	size, err := strconv.Atoi(limit)
	if err != nil {
		size = len(a.objects)
	}
	for _, key := range slices.Sorted(maps.Keys(a.objects)) {
		if key < from {
			continue
		}
		if len(page.Items) == size {
			page.Continue = key
			break
		}
		page.Items = append(page.Items, *a.objects[key])
	}
	reply(w, http.StatusOK, page)
}

// stream sends all objects and the bookmark that ends them.
func (a *Server) stream(w http.ResponseWriter) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, meta := range a.objects {
		reply(w, http.StatusOK, metav1.WatchEvent{Type: string(watch.Added), Object: runtime.RawExtension{Object: meta}})
	}
	end := &metav1.PartialObjectMetadata{}
	metav1.SetMetaDataAnnotation(&end.ObjectMeta, metav1.InitialEventsAnnotationKey, "true")
	end.TypeMeta = metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadata"}
	end.ResourceVersion = strconv.Itoa(a.version)
	reply(w, http.StatusOK, metav1.WatchEvent{Type: string(watch.Bookmark), Object: runtime.RawExtension{Object: end}})
	return a.version
}

// follow sends the events after version until the client leaves.
func (a *Server) follow(w http.ResponseWriter, r *http.Request, version int) {
	for {
		a.mu.Lock()
		events, changed := a.events, a.changed
		if a.visible >= 0 {
			events = events[:a.visible]
		}
		events = events[min(version, len(events)):]
		version += len(events)
		a.mu.Unlock()
		for _, event := range events {
			reply(w, http.StatusOK, event)
			if event.Type == string(watch.Error) {
				return
			}
		}
		if err := http.NewResponseController(w).Flush(); err != nil {
			return
		}
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		}
	}
}

func reply(w http.ResponseWriter, code int, body any) {
	if status, ok := body.(metav1.Status); ok {
		status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
		status.Status, status.Code = metav1.StatusFailure, int32(code)
		body = status
	}
	if code != http.StatusOK {
		w.WriteHeader(code)
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(body) // the client may have left, which is not a failure here
}
