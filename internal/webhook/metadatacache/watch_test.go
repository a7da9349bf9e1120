// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package metadatacache

import (
	"context"
	"encoding/json"
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
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
)

// api is a small API server that serves the metadata of ServiceAccounts.
type api struct {
	streams bool // it knows sendInitialEvents (KEP-3157)
	t       *testing.T

	mu       sync.Mutex
	objects  map[string]*metav1.PartialObjectMetadata
	version  int
	events   []metav1.WatchEvent // the one at i made version i+1
	changed  chan struct{}       // closed with each event
	requests map[string]int
	broken   bool
}

func newAPI(t *testing.T, streams bool, metas ...*metav1.PartialObjectMetadata) (*api, metadata.Interface) {
	t.Helper()
	a := &api{
		t: t, streams: streams,
		objects:  map[string]*metav1.PartialObjectMetadata{},
		changed:  make(chan struct{}),
		requests: map[string]int{},
	}
	for _, meta := range metas {
		a.send(watch.Added, meta)
	}
	server := httptest.NewServer(a)
	t.Cleanup(server.Close)
	client, err := metadata.NewForConfig(&rest.Config{Host: server.URL, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	return a, client
}

// send makes the change and sends it to the watches.
func (a *api) send(kind watch.EventType, meta *metav1.PartialObjectMetadata) {
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
	close(a.changed)
	a.changed = make(chan struct{})
}

// sendError ends all watches, as the API server does when it no longer has their
// version. forget are the objects whose deletion they miss.
func (a *api) sendError(status metav1.Status, forget ...string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.version++
	for _, key := range forget {
		delete(a.objects, key)
	}
	a.events = append(a.events, metav1.WatchEvent{Type: string(watch.Error), Object: runtime.RawExtension{Object: &status}})
	close(a.changed)
	a.changed = make(chan struct{})
}

func (a *api) setBroken(broken bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.broken = broken
}

// wantRequests compares the requests so far, except watches from a version.
func (a *api) wantRequests(want map[string]int) {
	a.t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	got := maps.Clone(a.requests)
	delete(got, "watch")
	if diff := cmp.Diff(want, got); diff != "" {
		a.t.Errorf("requests (-want +got):\n%s", diff)
	}
}

func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	name, single := strings.CutPrefix(r.URL.Path, "/api/v1/namespaces/")
	if !strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadata") {
		a.t.Errorf("got Accept %q, want only metadata", r.Header.Get("Accept"))
	}
	switch {
	case single:
		a.get(w, strings.Replace(name, "/serviceaccounts/", "/", 1))
	case r.URL.Path != "/api/v1/serviceaccounts":
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

func (a *api) count(request string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.requests[request]++
}

func (a *api) get(w http.ResponseWriter, key string) {
	a.count("get " + key)
	a.mu.Lock()
	defer a.mu.Unlock()
	_, name, _ := strings.Cut(key, "/")
	switch meta, ok := a.objects[key]; {
	case a.broken:
		reply(w, http.StatusInternalServerError, apierrors.NewInternalError(fmt.Errorf("etcd is down")).Status())
	case !ok:
		reply(w, http.StatusNotFound, notFound(name).(apierrors.APIStatus).Status())
	default:
		reply(w, http.StatusOK, meta)
	}
}

func (a *api) list(w http.ResponseWriter, version, limit, from string) {
	a.count(fmt.Sprintf("list version=%q limit=%s", version, limit))
	a.mu.Lock()
	defer a.mu.Unlock()
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
func (a *api) stream(w http.ResponseWriter) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, meta := range a.objects {
		reply(w, http.StatusOK, metav1.WatchEvent{Type: string(watch.Added), Object: runtime.RawExtension{Object: meta}})
	}
	end := serviceAccount("", "", metav1.InitialEventsAnnotationKey, "true")
	end.TypeMeta = metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadata"}
	end.ResourceVersion = strconv.Itoa(a.version)
	reply(w, http.StatusOK, metav1.WatchEvent{Type: string(watch.Bookmark), Object: runtime.RawExtension{Object: end}})
	return a.version
}

// follow sends the events after version until the client leaves.
func (a *api) follow(w http.ResponseWriter, r *http.Request, version int) {
	for {
		a.mu.Lock()
		events, changed := a.events[version:], a.changed
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

// run starts a cache and waits until it has synced.
func run(t *testing.T, client metadata.Interface) *Cache {
	t.Helper()
	c, err := New(Options{Client: client, Resource: serviceAccounts, Prefix: prefix, Label: label})
	if err != nil {
		t.Fatal(err)
	}
	if c.HasSynced() {
		t.Fatal("got synced before it was started")
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- c.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("got error %v from Start, want none", err)
		}
	})
	eventually(t, "the cache has synced", c.HasSynced)
	return c
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	deadline := time.After(time.Minute)
	for !is() {
		select {
		case <-deadline:
			t.Fatalf("not within a minute: %s", what)
		case <-time.After(time.Millisecond):
		}
	}
}

// modes are the two ways to get the objects.
var modes = map[string]struct {
	streams bool
	want    map[string]int // the requests for 1201 objects
	again   map[string]int // the requests for 3 objects at version 3, and again
}{
	"the API server streams lists": {true, map[string]int{"stream": 1}, map[string]int{"stream": 2}},
	"the API server pages lists": {false, map[string]int{
		"stream": 1, `list version="" limit=100`: 13,
	}, map[string]int{
		"stream": 2, `list version="" limit=100`: 1, `list version="3" limit=100`: 1,
	}},
}

func TestStartFollowsTheAPIServer(t *testing.T) {
	t.Parallel()
	for name, mode := range modes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			metas := []*metav1.PartialObjectMetadata{serviceAccount("ns", "app", roleARN, "old", label, "enabled")}
			for i := range 1200 {
				metas = append(metas, serviceAccount("many", fmt.Sprintf("app-%d", i)))
			}
			a, client := newAPI(t, mode.streams, metas...)
			c := run(t, client)
			wantCounts := func(want counts) {
				t.Helper()
				eventually(t, fmt.Sprintf("counts are %+v", want), func() bool { return countsOf(c) == want })
			}
			wantRole := func(want string) {
				t.Helper()
				obj, err := c.Get(t.Context(), "ns", "app")
				if err != nil || obj.Annotations[roleARN] != want {
					t.Errorf("got %v, error %v; want role %q", obj, err, want)
				}
			}
			wantCounts(counts{annotated: 1, labeled: 1, all: 1201})
			wantRole("old")
			a.wantRequests(mode.want)

			a.send(watch.Modified, serviceAccount("ns", "app", roleARN, "new"))
			wantCounts(counts{annotated: 1, all: 1201})
			wantRole("new")
			a.send(watch.Modified, serviceAccount("ns", "app"))
			wantCounts(counts{all: 1201})
			wantRole("")
			a.send(watch.Added, serviceAccount("ns", "second", roleARN, "r"))
			wantCounts(counts{annotated: 1, all: 1202})
			a.wantRequests(mode.want)

			a.send(watch.Deleted, serviceAccount("ns", "app"))
			wantCounts(counts{annotated: 1, all: 1201})
			if _, err := c.Get(t.Context(), "ns", "app"); !apierrors.IsNotFound(err) {
				t.Errorf("got error %v for a deleted ServiceAccount, want not found", err)
			}
			if got, want := c.received.Load(), uint64(len(metas)+4); got != want {
				t.Errorf("got %d objects received, want %d: all once, and four changes", got, want)
			}
		})
	}
}

func TestObjectsThatWereDeletedBetweenWatchesAreForgotten(t *testing.T) {
	t.Parallel()
	for name, mode := range modes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, client := newAPI(t, mode.streams,
				serviceAccount("ns", "kept", roleARN, "r"), serviceAccount("ns", "deleted", roleARN, "r"), serviceAccount("ns", "unannotated"))
			c := run(t, client)
			expired := apierrors.NewResourceExpired("too old resource version").Status()
			expired.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
			a.sendError(expired, "ns/deleted", "ns/unannotated")
			want := counts{annotated: 1, all: 1}
			eventually(t, fmt.Sprintf("counts are %+v", want), func() bool { return countsOf(c) == want })
			a.wantRequests(mode.again)
			if _, err := c.Get(t.Context(), "ns", "deleted"); !apierrors.IsNotFound(err) {
				t.Errorf("got error %v, want not found", err)
			}
		})
	}
}

// The metadata client and its errors are those of production.
func TestGetReadsLiveThroughTheClient(t *testing.T) {
	t.Parallel()
	a, client := newAPI(t, true, serviceAccount("ns", "app", roleARN, "r", "other", "x"))
	c, err := New(Options{Client: client, Resource: serviceAccounts, Prefix: prefix, Label: label})
	if err != nil {
		t.Fatal(err)
	}
	obj, err := c.Get(t.Context(), "ns", "app")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Object{Annotations: map[string]string{roleARN: "r"}}, obj); diff != "" {
		t.Errorf("object (-want +got):\n%s", diff)
	}
	if _, err := c.Get(t.Context(), "ns", "none"); !apierrors.IsNotFound(err) {
		t.Errorf("got error %v, want not found", err)
	}
	a.setBroken(true)
	if _, err := c.Get(t.Context(), "ns", "app"); !apierrors.IsInternalError(err) || !strings.HasPrefix(err.Error(), "read serviceaccounts ns/app: ") {
		t.Errorf("got error %v, want an internal error that names the ServiceAccount", err)
	}
	a.setBroken(false)
	if _, err := c.Get(t.Context(), "ns", "app"); err != nil {
		t.Errorf("got error %v once the server is back, want none", err)
	}
	a.wantRequests(map[string]int{"get ns/app": 3, "get ns/none": 1})
}
