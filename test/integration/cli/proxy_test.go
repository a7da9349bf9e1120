// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/rest"

	"github.com/lanyard-dev/lanyard/test/support/controlplane"
)

// proxied returns the kubeconfig of a proxy that has the rights of an administrator. The proxy
// calls handle for each request; next is the API server.
func proxied(handle func(w http.ResponseWriter, r *http.Request, next http.Handler)) string {
	GinkgoHelper()
	target, err := url.Parse(env.plane.Config().Host)
	Expect(err).NotTo(HaveOccurred())
	transport, err := rest.TransportFor(env.plane.Config())
	Expect(err).NotTo(HaveOccurred())
	proxy := &httputil.ReverseProxy{Transport: transport, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { handle(w, r, proxy) }))
	var connections atomic.Int32
	server.Config.ConnContext = func(ctx context.Context, _ net.Conn) context.Context {
		return context.WithValue(ctx, connectionKey{}, connections.Add(1))
	}
	server.Start()
	DeferCleanup(server.Close)
	path := filepath.Join(GinkgoT().TempDir(), "proxied")
	Expect(controlplane.WriteKubeconfig(path, &rest.Config{Host: server.URL})).To(Succeed())
	return path
}

type connectionKey struct{}

// connection returns the number of the connection on which the proxy received a request.
func connection(r *http.Request) int32 {
	number, _ := r.Context().Value(connectionKey{}).(int32)
	return number
}

// inPages returns the kubeconfig of a proxy that reduces the size of all pages, and the number of
// requests for further pages of ServiceAccounts.
func inPages(size int) (kubeconfig string, further *atomic.Int32) {
	GinkgoHelper()
	further = new(atomic.Int32)
	return proxied(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		query := r.URL.Query()
		if query.Has("limit") {
			query.Set("limit", strconv.Itoa(size))
			r.URL.RawQuery = query.Encode()
		}
		if query.Has("continue") && strings.HasSuffix(r.URL.Path, "/serviceaccounts") {
			further.Add(1)
		}
		next.ServeHTTP(w, r)
	}), further
}
