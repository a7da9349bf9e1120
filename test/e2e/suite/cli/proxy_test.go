// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/lanyard-dev/lanyard/test/support/controlplane"
)

// internet is a proxy that leads to the emulated clouds and to a web server for the
// issuer, under their real names. Other hosts cannot be reached.
type internet struct {
	// hosts are the functions that connect to the hosts.
	hosts map[string]dialer
	// url is that of the proxy, for HTTPS_PROXY.
	url string
	// ca contains the certificates of all CAs, for SSL_CERT_FILE.
	ca []byte
}

type dialer func(ctx context.Context) (net.Conn, error)

// newInternet starts the proxy.
func newInternet() *internet {
	n := &internet{hosts: map[string]dialer{}}
	server := httptest.NewServer(http.HandlerFunc(n.connect))
	DeferCleanup(server.Close)
	n.url = server.URL
	return n
}

// connect handles the method CONNECT, and tunnels the connection to the host.
func (n *internet) connect(w http.ResponseWriter, r *http.Request) {
	host, _, _ := net.SplitHostPort(r.Host)
	dial, found := n.hosts[host]
	if r.Method != http.MethodConnect || !found {
		http.Error(w, "not a host of this test", http.StatusForbidden)
		return
	}
	server, err := dial(r.Context())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer server.Close()
	client, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer client.Close()
	if _, err := io.WriteString(client, "HTTP/1.1 200 OK\r\n\r\n"); err != nil {
		return
	}
	go func() {
		_, _ = io.Copy(server, client) // the end of either side ends both
		_ = server.Close()
	}()
	_, _ = io.Copy(client, server)
}

// addClouds connects the emulated clouds.
func (n *internet) addClouds(hosts []string, ca []byte) {
	for _, host := range hosts {
		n.hosts[host] = dialClouds
	}
	n.ca = append(n.ca, ca...)
}

// dialClouds connects to the emulated clouds. Each connection has a port of its own that is
// forwarded: an error of one connection ends the others of the same port.
func dialClouds(ctx context.Context) (net.Conn, error) {
	address, stop, err := clouds.Forward(ctx)
	if err != nil {
		return nil, err
	}
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		stop()
		return nil, err
	}
	return forwarded{conn, stop}, nil
}

// forwarded is a connection that also ends the forwarding of its port.
type forwarded struct {
	net.Conn
	stop func()
}

// Close implements net.Conn.
func (f forwarded) Close() error {
	defer f.stop()
	return f.Conn.Close()
}

// addSite connects a web server that serves the files of a directory below a path.
func (n *internet) addSite(host, path, directory string) {
	GinkgoHelper()
	n.addServer(host, http.StripPrefix(path, http.FileServer(http.Dir(directory))))
}

// addServer connects a web server.
func (n *internet) addServer(host string, handler http.Handler) {
	GinkgoHelper()
	serving, err := controlplane.NewServingPEM(host)
	Expect(err).NotTo(HaveOccurred())
	certificate, err := tls.X509KeyPair(serving.Cert, serving.Key)
	Expect(err).NotTo(HaveOccurred())
	server := httptest.NewUnstartedServer(handler)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}
	server.StartTLS()
	DeferCleanup(server.Close)
	n.hosts[host] = func(ctx context.Context) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", server.Listener.Addr().String())
	}
	n.ca = append(n.ca, serving.CA...)
}
