// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !race

package abuse_test

import (
	"context"
	"io"
	"net"
	"net/url"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/rest"
)

// link is a connection between the webhook and the API server that can be cut.
type link struct {
	listener net.Listener
	backend  string

	mu    sync.Mutex
	conns []net.Conn
	isCut bool

	stalled sync.RWMutex // is locked while nothing is relayed
}

// newLink relays connections to the API server at this URL until it is cut, or
// until the spec ends.
func newLink(ctx context.Context, apiserver string) *link {
	GinkgoHelper()
	backend, err := url.Parse(apiserver)
	Expect(err).NotTo(HaveOccurred())
	l := &link{backend: backend.Host}
	if backend.Host == "" {
		l.backend = apiserver // a host without a scheme
	}
	l.listener, err = new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(l.cut)
	go l.serve(context.WithoutCancel(ctx))
	return l
}

// user returns the user's configuration through the link.
func (l *link) user(user *rest.Config) *rest.Config {
	user = rest.CopyConfig(user)
	user.Host = "https://" + l.listener.Addr().String()
	return user
}

func (l *link) serve(ctx context.Context) {
	for {
		front, err := l.listener.Accept()
		if err != nil {
			return // it is cut
		}
		go l.relay(ctx, front)
	}
}

func (l *link) relay(ctx context.Context, front net.Conn) {
	back, err := new(net.Dialer).DialContext(ctx, "tcp", l.backend)
	if err != nil {
		_ = front.Close()
		return
	}
	if !l.keep(front, back) {
		return
	}
	go func() { _, _ = io.Copy(stalling{back, l}, front); _ = back.Close() }()
	_, _ = io.Copy(front, back)
	_ = front.Close()
}

// stalling is a connection that receives nothing while the link is stalled.
type stalling struct {
	net.Conn
	link *link
}

func (s stalling) Write(text []byte) (int, error) {
	s.link.stalled.RLock()
	defer s.link.stalled.RUnlock()
	return s.Conn.Write(text)
}

// keep reports whether the connections may live.
func (l *link) keep(conns ...net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conns = append(l.conns, conns...)
	if l.isCut {
		l.close()
	}
	return !l.isCut
}

// cut ends all connections and refuses others.
func (l *link) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.isCut = true
	l.close()
}

func (l *link) close() {
	_ = l.listener.Close()
	for _, conn := range l.conns {
		_ = conn.Close()
	}
	l.conns = nil
}
