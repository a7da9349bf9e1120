// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package metadatacache

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/lanyard-dev/lanyard/internal/texts"
	"github.com/lanyard-dev/lanyard/internal/webhook/bounds"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
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

var errNoTurn = errors.New("no turn in time")

// readKey identifies an object and the client that reads it. Clients do not share reads,
// because one client would wait for another client's turn.
type readKey struct {
	types.NamespacedName
	client netip.Addr
}

// read is a live read that is pending or in progress.
type read struct {
	waiting int // callers; Cache.mu protects it
	cancel  context.CancelFunc
	done    chan struct{} // closed when the result is set
	object  annotations.Object
	err     error
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

// read returns the object from the API server. Callers of one client that wait for the same
// object share a read. A caller that is canceled stops only its own wait. A read that nobody
// waits for loses its place in the queue.
//
// A read that is already in progress may have been served before the object was created or
// changed, and has less time left. If it fails or the object is invalidated, the caller therefore
// reads a second time. The second read begins after the first has ended, so it is recent enough
// for all callers that joined the first.
func (c *Cache) read(ctx context.Context, id types.NamespacedName) (annotations.Object, error) {
	if !canExist(id) {
		// The client joins the names into a path: "../x" must not reach an object in another
		// namespace.
		return annotations.Object{}, apierrors.NewNotFound(c.opts.Resource.GroupResource(), texts.Cut(id.Name, texts.MaxName))
	}
	invalid := c.invalidated.contains(id)
	object, joined, err := c.share(ctx, id)
	if joined && (err != nil || invalid) {
		object, _, err = c.share(ctx, id)
	}
	return object, err
}

// share starts a live read, or joins the one that is in progress.
//
// The result is not stored in a cache. Only the watch writes to the cache, so that an older
// state never overwrites a newer one.
func (c *Cache) share(ctx context.Context, id types.NamespacedName) (object annotations.Object, joined bool, err error) {
	key := readKey{id, bounds.Client(ctx)}
	current, joined := c.join(ctx, key)
	defer c.leave(key, current)
	select {
	case <-ctx.Done():
		return annotations.Object{}, false, ctx.Err()
	case <-current.done:
		return current.object, joined, current.err
	}
}

// join adds a caller to the read, and starts it if there is none.
func (c *Cache) join(ctx context.Context, key readKey) (current *read, joined bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	current, joined = c.reads[key]
	if !joined {
		// Other callers may join, so the context of the first one does not cancel it.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readTimeout)
		current = &read{cancel: cancel, done: make(chan struct{})}
		c.reads[key] = current
		go func() {
			current.object, current.err = c.readNow(ctx, key)
			c.mu.Lock()
			defer c.mu.Unlock()
			c.endJoining(key, current)
			close(current.done)
		}()
	}
	current.waiting++
	return current, joined
}

// leave removes a caller from the read. The last one ends its wait for a turn.
func (c *Cache) leave(key readKey, current *read) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if current.waiting--; current.waiting == 0 {
		c.endJoining(key, current)
		current.cancel()
	}
}

// endJoining makes later callers start another read. The caller must hold c.mu.
func (c *Cache) endJoining(key readKey, current *read) {
	if c.reads[key] == current {
		delete(c.reads, key)
	}
}

// readNow waits for its turn and reads the object.
//
// The context can cancel the wait, but not the request to the API server, which keeps its
// turn until the response. Canceling would not free resources: with HTTP/2, the request would
// still count for its connection, so that later requests open others, and with HTTP/1.1, the
// client would close the connection.
func (c *Cache) readNow(ctx context.Context, key readKey) (annotations.Object, error) {
	turn := c.turns.Claim(key.client)
	err := turn.Take(ctx, 1)
	if err == nil {
		defer turn.Keep(0)
		err = c.rate.Wait(ctx)
	}
	if err != nil {
		return annotations.Object{}, fmt.Errorf("too many other objects are being read: %w", err)
	}
	deadline, _ := ctx.Deadline()
	ctx, cancel := context.WithDeadline(context.WithoutCancel(ctx), deadline)
	defer cancel()
	ctx = logr.NewContext(ctx, logr.Discard()) // the caller reports the error
	large := c.large.Claim(key.client)
	defer large.Keep(0)
	// Without a resource version, it is a quorum read.
	meta, err := c.opts.Reads.Resource(c.opts.Resource).Namespace(key.Namespace).Get(withLargeTurn(ctx, &large), key.Name, metav1.GetOptions{})
	if refused := (refusedError{}); errors.As(err, &refused) {
		err = refused // without the client's advice to retry
	}
	if err != nil {
		return annotations.Object{}, err
	}
	return c.object(meta), nil
}
