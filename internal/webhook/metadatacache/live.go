// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package metadatacache

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/lanyard-dev/lanyard/internal/texts"
	"github.com/lanyard-dev/lanyard/internal/webhook/bounds"
)

// Limits of the live reads, because any client of the webhook can name objects that do not
// exist. Reads above the limits wait. The client (see bounds.Client) with the fewest reads is
// next.
const (
	readsPerSecond = 200
	readsBurst     = 400
	// readTimeout limits one live read, including the wait for its turn. A Get waits for at
	// most two reads, and no longer than its context allows.
	readTimeout = 5 * time.Second
)

// Reader reads the Lanyard annotations of the objects of one resource from the API
// server. Its methods may be called concurrently.
type Reader struct {
	opts         Options
	maxBytes     atomic.Int64
	invalidated  invalidations
	turns, large *bounds.Pool
	rate         *rate.Limiter

	mu    sync.Mutex
	reads map[readKey]*read // that callers wait for
}

// readKey identifies an object and the client that reads it. Clients do not share reads,
// because one client would wait for another client's turn.
type readKey struct {
	types.NamespacedName
	client netip.Addr
}

// read is a live read that is pending or in progress.
type read struct {
	waiting int // callers; Reader.mu protects it
	cancel  context.CancelFunc
	done    chan struct{} // closed when the result is set
	object  Object
	err     error
}

// NewReader returns a Reader. It ignores the options of a Cache.
func NewReader(opts Options) (*Reader, error) {
	switch {
	case opts.Client == nil:
		return nil, errors.New("metadata cache: no client")
	case opts.Resource.Empty():
		return nil, errors.New("metadata cache: no resource")
	case !strings.HasSuffix(opts.Prefix, "/"):
		return nil, fmt.Errorf("metadata cache: annotation prefix: got %q, want one that ends with a slash", opts.Prefix)
	}
	if opts.Reads == nil {
		opts.Reads = opts.Client
	}
	r := &Reader{
		opts:  opts,
		large: bounds.NewPool(1, bounds.Reads, errors.New("no turn in time")),
		turns: bounds.NewPool(bounds.Reads, bounds.PendingReads, errors.New("no turn in time")),
		reads: map[readKey]*read{},
		rate:  rate.NewLimiter(readsPerSecond, readsBurst),
	}
	r.SetMaxBytes(opts.MaxBytes)
	return r, nil
}

// SetMaxBytes changes Options.MaxBytes for objects received from now on.
func (r *Reader) SetMaxBytes(n int) { r.maxBytes.Store(int64(n)) }

// Invalidate marks an object whose write is being admitted: a cache is out of date until it has
// received the write. An admission webhook sees a write before it is stored, and the watch sees it
// later. A cluster-scoped object has no namespace. The resource version is that of the object
// before the write; it is empty for an object that is created.
//
// Other replicas learn of the write only from their own watch.
func (r *Reader) Invalidate(namespace, name, resourceVersion string) {
	if id := (types.NamespacedName{Namespace: namespace, Name: name}); canExist(id) {
		r.invalidated.add(id, resourceVersion)
	}
}

// Invalidated reports whether the object must be read live because of Invalidate. After too
// many writes, it is true for all objects.
func (r *Reader) Invalidated(namespace, name string) bool {
	return r.invalidated.contains(types.NamespacedName{Namespace: namespace, Name: name})
}

// Delivered ends the invalidation of an object if this version includes all writes that
// Invalidate was called for. It reports whether it did. If another caller did so before, a
// version that was read from the cache earlier may still lack the write.
func (r *Reader) Delivered(namespace, name, resourceVersion string) bool {
	return r.invalidated.deliver(types.NamespacedName{Namespace: namespace, Name: name}, resourceVersion)
}

// Forget ends the invalidations that are older than age. Use it with a cache that does not
// report the progress of its watch: otherwise, the invalidation of a write that was never
// stored would not end.
func (r *Reader) Forget(age time.Duration) { r.invalidated.forget(time.Now().Add(-age)) }

// Get returns the object from the API server. A cluster-scoped object has no
// namespace.
//
// Callers of one client that wait for the same object share a read. A caller that is canceled stops
// only its own wait. A read that nobody waits for loses its place in the queue. The error for an
// object that does not exist satisfies
// apierrors.IsNotFound; after any other error nothing is known of the object, and the
// caller may try again.
func (r *Reader) Get(ctx context.Context, namespace, name string) (Object, error) {
	object, err := r.read(ctx, types.NamespacedName{Namespace: namespace, Name: name})
	if err != nil {
		id := strings.TrimPrefix(texts.Cut(namespace, texts.MaxName)+"/"+texts.Cut(name, texts.MaxName), "/")
		return Object{}, fmt.Errorf("read %s %s: %w", r.opts.Resource.Resource, id, err)
	}
	return object, nil
}

// canExist reports whether the name is valid. Names come from users and have not been
// validated yet.
func canExist(id types.NamespacedName) bool {
	// Matching a long text takes long.
	if len(id.Name) > validation.DNS1123SubdomainMaxLength || len(id.Namespace) > validation.DNS1123LabelMaxLength {
		return false
	}
	return len(validation.IsDNS1123Subdomain(id.Name)) == 0 &&
		(id.Namespace == "" || len(validation.IsDNS1123Label(id.Namespace)) == 0)
}

// read returns the object from the API server.
//
// A read that is already in progress may have been served before the object was created or
// changed. If the object was not found or is invalidated, the caller therefore reads a second
// time. The second read begins after the first has ended, so it is recent enough for all
// callers that joined the first.
func (r *Reader) read(ctx context.Context, id types.NamespacedName) (Object, error) {
	if !canExist(id) {
		// The client joins the names into a path: "../x" must not reach an object in another
		// namespace.
		return Object{}, apierrors.NewNotFound(r.opts.Resource.GroupResource(), texts.Cut(id.Name, texts.MaxName))
	}
	invalid := r.Invalidated(id.Namespace, id.Name)
	object, joined, err := r.share(ctx, id)
	if joined && (apierrors.IsNotFound(err) || invalid && err == nil) {
		object, _, err = r.share(ctx, id)
	}
	return object, err
}

// share starts a live read, or joins the one that is in progress.
//
// The result is not stored in a cache. Only the watch writes to the cache, so that an older
// state never overwrites a newer one.
func (r *Reader) share(ctx context.Context, id types.NamespacedName) (object Object, joined bool, err error) {
	key := readKey{id, bounds.Client(ctx)}
	current, joined := r.join(ctx, key)
	defer r.leave(key, current)
	select {
	case <-ctx.Done():
		return Object{}, false, ctx.Err()
	case <-current.done:
		return current.object, joined, current.err
	}
}

// join adds a caller to the read, and starts it if there is none.
func (r *Reader) join(ctx context.Context, key readKey) (current *read, joined bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	current, joined = r.reads[key]
	if !joined {
		// Other callers may join, so the context of the first one does not cancel it.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readTimeout)
		current = &read{cancel: cancel, done: make(chan struct{})}
		r.reads[key] = current
		go func() {
			current.object, current.err = r.readNow(ctx, key)
			r.mu.Lock()
			defer r.mu.Unlock()
			r.endJoining(key, current)
			close(current.done)
		}()
	}
	current.waiting++
	return current, joined
}

// leave removes a caller from the read. The last one ends its wait for a turn.
func (r *Reader) leave(key readKey, current *read) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if current.waiting--; current.waiting == 0 {
		r.endJoining(key, current)
		current.cancel()
	}
}

// endJoining makes later callers start another read. The caller must hold r.mu.
func (r *Reader) endJoining(key readKey, current *read) {
	if r.reads[key] == current {
		delete(r.reads, key)
	}
}

// readNow waits for its turn and reads the object.
//
// The context can cancel the wait, but not the request to the API server, which keeps its
// turn until the response. Canceling would not free resources: with HTTP/2, the request would
// still count for its connection, so that later requests open others, and with HTTP/1.1, the
// client would close the connection.
func (r *Reader) readNow(ctx context.Context, key readKey) (Object, error) {
	turn := r.turns.Claim(key.client)
	err := turn.Take(ctx, 1)
	if err == nil {
		defer turn.Keep(0)
		err = r.rate.Wait(ctx)
	}
	if err != nil {
		return Object{}, fmt.Errorf("too many other objects are being read: %w", err)
	}
	deadline, _ := ctx.Deadline()
	ctx, cancel := context.WithDeadline(context.WithoutCancel(ctx), deadline)
	defer cancel()
	ctx = logr.NewContext(ctx, logr.Discard()) // the caller reports the error
	large := r.large.Claim(key.client)
	defer large.Keep(0)
	// Without a resource version, it is a quorum read.
	meta, err := r.opts.Reads.Resource(r.opts.Resource).Namespace(key.Namespace).Get(withLargeTurn(ctx, &large), key.Name, metav1.GetOptions{})
	if refused := (refusedError{}); errors.As(err, &refused) {
		err = refused // without the client's advice to retry
	}
	if err != nil {
		return Object{}, err
	}
	return r.Object(meta), nil
}
