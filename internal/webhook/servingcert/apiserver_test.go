// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package servingcert

import (
	"context"
	"encoding/json"
	"reflect"
	"strconv"
	"sync"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
)

// apiServer is a small API server with at most one object of each resource. It implements
// what SelfManaged relies on: resource versions, conflicts, JSON patches, and watches that
// continue from a version.
type apiServer struct {
	mu      sync.Mutex
	objects map[schema.GroupVersionResource]*unstructured.Unstructured
	events  []storedEvent // the one at i has the resource version i+1
	changed chan struct{} // closed at each event
}

type storedEvent struct {
	watch.Event

	resource schema.GroupVersionResource
	at       time.Time
}

func newAPIServer() *apiServer {
	return &apiServer{objects: map[schema.GroupVersionResource]*unstructured.Unstructured{}, changed: make(chan struct{})}
}

// get returns the object, or nil if it does not exist.
func (a *apiServer) get(resource schema.GroupVersionResource) *unstructured.Unstructured {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.objects[resource].DeepCopy()
}

// set stores the object, or deletes it if it is nil.
func (a *apiServer) set(resource schema.GroupVersionResource, object *unstructured.Unstructured) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.store(resource, object)
}

// store is like set for a caller that holds the lock. It returns the stored object.
func (a *apiServer) store(resource schema.GroupVersionResource, object *unstructured.Unstructured) *unstructured.Unstructured {
	old := a.objects[resource]
	kind := watch.Modified
	switch {
	case old == nil && object == nil:
		return nil
	case object == nil:
		kind, object = watch.Deleted, old
	case old == nil:
		kind = watch.Added
	}
	object = object.DeepCopy()
	object.SetResourceVersion(strconv.Itoa(len(a.events) + 1))
	if kind == watch.Deleted {
		delete(a.objects, resource)
	} else {
		a.objects[resource] = object
	}
	a.events = append(a.events, storedEvent{watch.Event{Type: kind, Object: object}, resource, time.Now()})
	close(a.changed)
	a.changed = make(chan struct{})
	return object.DeepCopy()
}

// version returns the resource version of the last event.
func (a *apiServer) version() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.events)
}

// after returns the events after a version, and a channel that is closed when there
// are more.
func (a *apiServer) after(version int) ([]storedEvent, <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.events[version:], a.changed
}

// apiClient is the client of one replica.
type apiClient struct {
	dynamic.Interface

	server *apiServer
	// latency is the time that each request takes.
	latency time.Duration

	mu        sync.Mutex
	answer    time.Duration                             // from the effect of a write to its response
	stalled   map[schema.GroupVersionResource]time.Time // until when no event arrives
	forbidden map[string]bool                           // VERB RESOURCE
	silent    string                                    // VERB RESOURCE: such requests get no response
}

func newAPIClient(server *apiServer, latency time.Duration) *apiClient {
	return &apiClient{
		server: server, latency: latency,
		stalled: map[schema.GroupVersionResource]time.Time{}, forbidden: map[string]bool{},
	}
}

// stall delays all events of the watches of the resources until a time.
func (c *apiClient) stall(until time.Time, resources ...schema.GroupVersionResource) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, resource := range resources {
		c.stalled[resource] = until
	}
}

// answerAfter delays the responses to writes. The watches deliver the changes without this delay.
func (c *apiClient) answerAfter(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answer = d
}

func (c *apiClient) forbid(rights ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.forbidden)
	for _, right := range rights {
		c.forbidden[right] = true
	}
}

// silence makes the requests with this verb and resource get no response.
func (c *apiClient) silence(request string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.silent = request
}

// wait returns the time until an event that happens now arrives.
func (c *apiClient) wait(resource schema.GroupVersionResource) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Until(c.stalled[resource])
}

func (c *apiClient) Resource(resource schema.GroupVersionResource) dynamic.NamespaceableResourceInterface {
	return &apiResource{client: c, server: c.server, resource: resource}
}

// apiResource implements the methods that SelfManaged calls.
type apiResource struct {
	dynamic.NamespaceableResourceInterface

	client   *apiClient
	server   *apiServer
	resource schema.GroupVersionResource
}

func (r *apiResource) Namespace(string) dynamic.ResourceInterface { return r }

// begin waits for the latency of a request, and returns an error if the client may not make it.
func (r *apiResource) begin(ctx context.Context, verb string) error {
	time.Sleep(r.client.latency)
	r.client.mu.Lock()
	defer r.client.mu.Unlock()
	if r.client.silent == verb+" "+r.resource.Resource {
		r.client.mu.Unlock()
		<-ctx.Done()
		r.client.mu.Lock()
		return ctx.Err()
	}
	if r.client.forbidden[verb+" "+r.resource.Resource] {
		return apierrors.NewForbidden(r.resource.GroupResource(), "", nil)
	}
	return nil
}

// write replaces the object with the result of change.
func (r *apiResource) write(ctx context.Context, verb, name string, change func(*unstructured.Unstructured) (*unstructured.Unstructured, error)) (*unstructured.Unstructured, error) {
	if err := r.begin(ctx, verb); err != nil {
		return nil, err
	}
	r.client.mu.Lock()
	answer := r.client.answer
	r.client.mu.Unlock()
	defer time.Sleep(answer) // after the server is unlocked
	r.server.mu.Lock()
	defer r.server.mu.Unlock()
	old := r.server.objects[r.resource]
	if old == nil && verb != "apply" {
		return nil, apierrors.NewNotFound(r.resource.GroupResource(), name)
	}
	changed, err := change(old)
	if err != nil {
		return nil, err
	}
	if reflect.DeepEqual(changed, old) { // the API server keeps its version
		return old.DeepCopy(), nil
	}
	return r.server.store(r.resource, changed), nil
}

// Apply creates the object if it does not exist. An existing object already has the applied
// fields, because all replicas apply the same ones.
func (r *apiResource) Apply(ctx context.Context, name string, object *unstructured.Unstructured, _ metav1.ApplyOptions, _ ...string) (*unstructured.Unstructured, error) {
	return r.write(ctx, "apply", name, func(old *unstructured.Unstructured) (*unstructured.Unstructured, error) {
		if old != nil {
			return old, nil
		}
		return object, nil
	})
}

func (r *apiResource) Update(ctx context.Context, object *unstructured.Unstructured, _ metav1.UpdateOptions, _ ...string) (*unstructured.Unstructured, error) {
	return r.write(ctx, "update", object.GetName(), func(old *unstructured.Unstructured) (*unstructured.Unstructured, error) {
		if object.GetResourceVersion() != old.GetResourceVersion() {
			return nil, apierrors.NewConflict(r.resource.GroupResource(), object.GetName(), nil)
		}
		return object, nil
	})
}

func (r *apiResource) Patch(ctx context.Context, name string, _ types.PatchType, text []byte, _ metav1.PatchOptions, _ ...string) (*unstructured.Unstructured, error) {
	return r.write(ctx, "patch", name, func(old *unstructured.Unstructured) (*unstructured.Unstructured, error) {
		patched := &unstructured.Unstructured{}
		patch, err := jsonpatch.DecodePatch(text)
		if err != nil {
			return nil, err
		}
		before, err := json.Marshal(old.Object)
		if err != nil {
			return nil, err
		}
		after, err := patch.Apply(before)
		if err != nil {
			return nil, err
		}
		return patched, json.Unmarshal(after, &patched.Object)
	})
}

func (r *apiResource) Get(ctx context.Context, name string, _ metav1.GetOptions, _ ...string) (*unstructured.Unstructured, error) {
	if err := r.begin(ctx, "get"); err != nil {
		return nil, err
	}
	if object := r.server.get(r.resource); object != nil {
		return object, nil
	}
	return nil, apierrors.NewNotFound(r.resource.GroupResource(), name)
}

func (r *apiResource) List(ctx context.Context, _ metav1.ListOptions) (*unstructured.UnstructuredList, error) {
	if err := r.begin(ctx, "list"); err != nil {
		return nil, err
	}
	r.server.mu.Lock()
	defer r.server.mu.Unlock()
	list := &unstructured.UnstructuredList{}
	list.SetResourceVersion(strconv.Itoa(len(r.server.events)))
	if object := r.server.objects[r.resource]; object != nil {
		list.Items = append(list.Items, *object.DeepCopy())
	}
	return list, nil
}

func (r *apiResource) Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	if opts.SendInitialEvents != nil { // the client lists instead
		return nil, apierrors.NewBadRequest("sendInitialEvents is not supported")
	}
	if err := r.begin(ctx, "watch"); err != nil {
		return nil, err
	}
	version, err := strconv.Atoi(opts.ResourceVersion)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	events := make(chan watch.Event)
	watcher := watch.NewProxyWatcher(events)
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		defer cancel()
		select {
		case <-ctx.Done():
		case <-watcher.StopChan():
		}
	}()
	go r.deliver(ctx, version, events)
	return watcher, nil
}

// deliver sends the events after a version.
func (r *apiResource) deliver(ctx context.Context, version int, to chan<- watch.Event) {
	defer close(to)
	for {
		events, changed := r.server.after(version)
		for _, event := range events {
			version++
			if event.resource != r.resource {
				continue
			}
			select {
			case <-time.After(r.client.wait(r.resource)):
			case <-ctx.Done():
				return
			}
			select {
			case to <- event.Event:
			case <-ctx.Done():
				return
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// writes counts the writes since a version, by resource.
func (a *apiServer) writes(since int) map[string]int {
	events, _ := a.after(since)
	counts := map[string]int{}
	for _, event := range events {
		counts[event.resource.Resource]++
	}
	return counts
}
