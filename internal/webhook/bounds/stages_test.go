// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package bounds_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"

	"github.com/lanyard-dev/lanyard/internal/settings"
	"github.com/lanyard-dev/lanyard/internal/webhook/bounds"
	"github.com/lanyard-dev/lanyard/internal/webhook/httpserver"
	"github.com/lanyard-dev/lanyard/internal/webhook/injector"
	"github.com/lanyard-dev/lanyard/internal/webhook/metrics"
	"github.com/lanyard-dev/lanyard/test/support/hostile"
	"github.com/lanyard-dev/lanyard/test/support/memnet"
)

// limits contains a tenth of bounds.Reviews, so that the test has more hostile clients than that.
var limits = bounds.Connections{Open: 24, Fresh: 8, FreshOfOneAddress: 4, Ending: 16}

const (
	clients = 2 * 24
	// ordinaryTime is how long an ordinary caller may wait while others attack.
	ordinaryTime = time.Second
	// forgottenAfter is the time after which nothing is left of a caller that does nothing.
	// An idle connection stays the longest.
	forgottenAfter = 2 * time.Minute
)

// apiServer is the client of an API server with the ServiceAccounts "ordinary" and "wide".
// Its responses about others are slow.
type apiServer struct {
	metadata.Getter
	reads *atomic.Int64
}

func (a apiServer) Resource(schema.GroupVersionResource) metadata.Getter { return a }
func (a apiServer) Namespace(string) metadata.ResourceInterface          { return a }

func (a apiServer) Get(ctx context.Context, name string, _ metav1.GetOptions, _ ...string) (*metav1.PartialObjectMetadata, error) {
	a.reads.Add(1)
	defer a.reads.Add(-1)
	if strings.HasPrefix(name, "absent") {
		select {
		case <-ctx.Done():
		case <-time.After(300 * time.Millisecond):
		}
		return nil, errors.New("the API server is slow")
	}
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{
		"lanyard.dev/aws-role-arn": "arn:aws:iam::111122223333:role/app", "lanyard.dev/azure-client-id": "00000000-0000-0000-0000-000000000000",
		"lanyard.dev/azure-tenant-id": "00000000-0000-0000-0000-000000000000",
	}}}, nil
}

// post returns the request of a review of a pod with n containers.
func post(account string, n int) string {
	body := fmt.Sprintf(`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"1",`+
		`"resource":{"group":"","version":"v1","resource":"pods"},"operation":"CREATE","namespace":"team","name":"p",`+
		`"object":{"metadata":{"name":"p"},"spec":{"serviceAccountName":%q,"containers":[%s]}}}}`,
		account, strings.TrimSuffix(strings.Repeat(`{"name":"a"},`, n), ","))
	return head(len(body)) + body
}

func head(length int) string {
	return fmt.Sprintf("POST %s?timeout=30s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", injector.MutatePodPath, length)
}

const get = "GET / HTTP/1.1\r\nHost: x\r\n\r\n"

// port is a server of lanyard-webhook. Its stages are those that a client with a number can reach.
type port struct {
	tls      bool
	handler  func(t *testing.T, f *fleet) http.Handler
	stages   map[string]func(i int) hostile.Stage
	ordinary string // a request that is answered with status 200
}

var hello = hostile.Hello(60 << 10)

var ports = map[string]port{
	"reviews": {true, reviews, map[string]func(i int) hostile.Stage{
		"before the handshake ends": func(int) hostile.Stage { return hostile.Stage{Handshake: true, Next: hello} },
		"between requests": func(int) hostile.Stage {
			return hostile.Stage{Before: post("ordinary", 1), Answered: true, Next: post("ordinary", 1)}
		},
		"while headers arrive": func(int) hostile.Stage { return hostile.Stage{Next: head(1) + "{"} },
		"while a body arrives": func(int) hostile.Stage {
			return hostile.Stage{Before: head(6 << 20), Next: strings.Repeat(" ", 200<<10)}
		},
		"while a decision waits": func(i int) hostile.Stage {
			return hostile.Stage{Before: post(fmt.Sprintf("absent-%d", i), 1), Next: post("absent", 1)}
		},
		"while a response is written": func(int) hostile.Stage { return hostile.Stage{Before: post("wide", 200), Next: post("wide", 200)} },
	}, post("ordinary", 1)},
	"metrics and probes": {false, texts, map[string]func(i int) hostile.Stage{
		"between requests":     func(int) hostile.Stage { return hostile.Stage{Before: get, Answered: true, Next: get} },
		"while headers arrive": func(int) hostile.Stage { return hostile.Stage{Next: get} },
		"while a body arrives": func(int) hostile.Stage {
			return hostile.Stage{Before: head(6 << 20), Next: strings.Repeat(" ", 200<<10)}
		},
		"while a response is written": func(int) hostile.Stage { return hostile.Stage{Before: get, Next: get} },
	}, get},
}

// reviews returns the handler of the webhooks.
func reviews(t *testing.T, f *fleet) http.Handler {
	t.Helper()
	s, err := settings.Load(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	client := apiServer{reads: &f.reads}
	recorder, err := metrics.New(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	caches := injector.NewCaches(client, client, nil, logr.Discard())
	return injector.New(caches, recorder, logr.Discard()).Handlers(s)[injector.MutatePodPath]
}

// texts returns a handler with responses as long as those of the metrics.
func texts(*testing.T, *fleet) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 64<<10)) })
}

// behaviors lists the attacks of hostile clients, and how often each connects.
var behaviors = map[string]struct {
	hostile.Behavior
	connections int
}{
	"a silent client":          {hostile.Silent, 1},
	"a slow client":            {hostile.Slow, 1},
	"an endless client":        {hostile.Endless, 1},
	"a client that is gone":    {hostile.Gone, 1},
	"a client that reconnects": {hostile.Gone, 4},
	"a client that pipelines":  {hostile.Pipelining, 1},
}

var addresses = map[string]func(i int) string{
	"of one address":    func(int) string { return "10.0.0.2" },
	"of many addresses": func(i int) string { return fmt.Sprintf("10.0.1.%d", i) },
}

// fleet counts the resources that a server uses.
type fleet struct {
	net.Listener
	open, handlers, reads atomic.Int64
	firstBytes            atomic.Int64 // the most that was read of a connection before its first request
	requested             sync.Map     // the remote addresses of connections with a request
}

func (f *fleet) hasRequested(conn net.Conn) bool {
	_, has := f.requested.Load(conn.RemoteAddr().String())
	return has
}

func (f *fleet) Accept() (net.Conn, error) {
	conn, err := f.Listener.Accept()
	if err != nil {
		return nil, err
	}
	f.open.Add(1)
	return &counted{Conn: conn, fleet: f}, nil
}

// counted is a connection of a fleet.
type counted struct {
	net.Conn
	fleet  *fleet
	read   int64
	closed atomic.Bool
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.read += int64(n); !c.fleet.hasRequested(c) && c.fleet.firstBytes.Load() < c.read {
		c.fleet.firstBytes.Store(c.read)
	}
	return n, err
}

func (c *counted) Close() error {
	if !c.closed.Swap(true) {
		c.fleet.open.Add(-1)
	}
	return c.Conn.Close()
}

// handler counts the handlers that run.
func (f *fleet) handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.requested.Store(r.RemoteAddr, true)
		f.handlers.Add(1)
		defer f.handlers.Add(-1)
		next.ServeHTTP(w, r)
	})
}

// check fails the test for each stage above its bound.
func (f *fleet) check(t *testing.T) {
	t.Helper()
	synctest.Wait()
	for _, c := range []struct {
		what string
		got  *atomic.Int64
		most int
	}{
		{"connections", &f.open, limits.Open},
		{"handlers", &f.handlers, limits.Open + limits.Ending},
		{"live reads", &f.reads, 2 * bounds.Reads},
	} {
		if got := c.got.Load(); got > int64(c.most) {
			t.Errorf("got %d %s, want at most %d", got, c.what, c.most)
		}
	}
}

// TestHostileClientsAtEachStage checks that a client at a stage never uses more than its
// bound, that an ordinary client gets responses, and that nothing is left in the end.
func TestHostileClientsAtEachStage(t *testing.T) {
	t.Parallel()
	source := httptest.NewUnstartedServer(nil)
	source.StartTLS()
	config := &tls.Config{Certificates: source.TLS.Certificates}
	source.Close()
	for portName, p := range ports {
		for stageName, stage := range p.stages {
			for behaviorName, b := range behaviors {
				for addressName, address := range addresses {
					t.Run(portName+", "+stageName+": "+behaviorName+" "+addressName, func(t *testing.T) {
						t.Parallel()
						synctest.Test(t, func(t *testing.T) {
							a := newAttack(t, p, config)
							for i := range clients {
								a.add(address(i), &hostile.Client{Stage: stage(i), Behavior: b.Behavior, Connections: b.connections})
							}
							a.run(t)
							if got := a.fleet.firstBytes.Load(); got > bounds.FirstBytes {
								t.Errorf("got %d bytes read of a connection without a request, want at most %d", got, bounds.FirstBytes)
							}
						})
					})
				}
			}
		}
	}
}

// attack is a server, hostile clients, and an ordinary client.
type attack struct {
	port     port
	fleet    *fleet
	listener *memnet.Listener
	server   *http.Server
	stop     context.CancelFunc
	ctx      context.Context
	kept     *http.Client // the ordinary client that keeps its connection
}

func newAttack(t *testing.T, p port, config *tls.Config) *attack {
	t.Helper()
	a := &attack{port: p, listener: memnet.Listen(4 << 10)}
	a.fleet = &fleet{Listener: a.listener}
	if !p.tls {
		config = nil
	}
	a.server = httpserver.New("", a.fleet.handler(p.handler(t, a.fleet)), config, limits, logr.Discard())
	a.ctx, a.stop = context.WithCancel(t.Context())
	serving, shutDown := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- httpserver.Serve(serving, a.server, a.fleet, func() bool { return true }) }()
	t.Cleanup(func() {
		shutDown()
		_ = a.server.Close()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		time.Sleep(time.Minute) // its goroutines end
	})
	a.kept = a.client()
	a.askOrdinary(t, a.kept)
	return a
}

func (a *attack) add(from string, c *hostile.Client) {
	c.TLS = a.port.tls
	c.Dial = func(ctx context.Context) (net.Conn, error) { return a.listener.Dial(ctx, from) }
	go c.Run(a.ctx)
}

// client returns an ordinary client.
func (a *attack) client() *http.Client {
	return &http.Client{Transport: &http.Transport{
		DialContext: a.listener.DialContext("10.0.0.1"), TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
	}}
}

// askOrdinary checks that the request of an ordinary client is answered in time.
func (a *attack) askOrdinary(t *testing.T, client *http.Client) {
	t.Helper()
	start := time.Now()
	response, err := a.ask(t.Context(), client)
	for err != nil && time.Since(start) < ordinaryTime { // as an API server and a kubelet do
		time.Sleep(100 * time.Millisecond)
		response, err = a.ask(t.Context(), client)
	}
	if took := time.Since(start); err != nil || took > ordinaryTime {
		t.Errorf("an ordinary client: got %s and error %v after %s, want 200 within %s", response, err, took, ordinaryTime)
	}
}

// ask returns the response to an ordinary request, whose status must be 200.
func (a *attack) ask(ctx context.Context, client *http.Client) (string, error) {
	header, body, _ := strings.Cut(a.port.ordinary, "\r\n\r\n")
	method, rest, _ := strings.Cut(header, " ")
	path, _, _ := strings.Cut(rest, " ")
	scheme := "http"
	if a.port.tls {
		scheme = "https"
	}
	request, err := http.NewRequestWithContext(ctx, method, scheme+"://lanyard"+path, strings.NewReader(body))
	if err != nil {
		return "", err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := client.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = errors.New("want status 200")
	}
	return fmt.Sprintf("%s %.200s", response.Status, text), err
}

// run lets the clients attack for a while, then waits until the server has released their
// resources.
func (a *attack) run(t *testing.T) {
	t.Helper()
	for range 20 {
		time.Sleep(100 * time.Millisecond)
		a.fleet.check(t)
		a.askOrdinary(t, a.kept)
		fresh := a.client()
		a.askOrdinary(t, fresh)
		fresh.CloseIdleConnections()
		a.fleet.check(t)
	}
	a.kept.CloseIdleConnections()
	time.Sleep(forgottenAfter)
	a.fleet.check(t)
	a.stop()
	time.Sleep(time.Second) // a response to a client that is gone
	synctest.Wait()
	if open, handlers, reads := a.fleet.open.Load(), a.fleet.handlers.Load(), a.fleet.reads.Load(); open+handlers+reads > 0 {
		t.Errorf("got %d connections, %d handlers and %d live reads when all are gone, want none", open, handlers, reads)
	}
}
