// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cause_test

import (
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/lanyard-dev/lanyard/internal/cause"
)

// status makes a webhook respond with the status code and the body.
func status(code int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(code)
		_, _ = w.Write([]byte(body))
	}
}

// fault is the body of the response with which lanyard-webhook reports a fault.
func fault(message string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = fmt.Fprintf(w, `{"apiVersion":"v1","kind":"Status","metadata":{},"status":"Failure","reason":"ServiceUnavailable","code":503,"message":%q}`, "lanyard: "+message)
	}
}

// call calls a webhook as an API server does, and returns the error. change may misconfigure the
// server or the client.
func call(t *testing.T, respond http.HandlerFunc, change func(*httptest.Server, *rest.Config)) string {
	t.Helper()
	server := httptest.NewUnstartedServer(respond)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	config := &rest.Config{Timeout: time.Minute}
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	if change != nil {
		change(server, config)
	}
	if config.Dial == nil {
		server.StartTLS()
		if config.CAData == nil {
			config.CAData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
		}
		config.Host = server.URL
	}
	t.Cleanup(server.Close)
	client, err := rest.UnversionedRESTClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	err = client.Post().AbsPath("/mutate-v1-pod").Body([]byte("{}")).MaxRetries(0).Do(t.Context()).Error()
	if err == nil {
		t.Fatal("got no error")
	}
	return fmt.Sprintf("Internal error occurred: failed calling webhook %q: failed to call webhook: %v", "probe.lanyard.dev", err)
}

// dialing returns a client whose connections fail.
func dialing(err error) func(*httptest.Server, *rest.Config) {
	return func(_ *httptest.Server, c *rest.Config) {
		c.Host = "https://lanyard-webhook.lanyard-system.svc"
		c.Dial = (&failure{err}).dial
	}
}

// The errors are made by client-go and crypto/tls, as in an API server.
func TestTheErrorsOfCallsHaveTheirCauses(t *testing.T) {
	t.Parallel()
	refused := func(number syscall.Errno) error {
		return &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", number)}
	}
	for name, test := range map[string]struct {
		respond http.HandlerFunc
		change  func(*httptest.Server, *rest.Config)
		want    string // is in the cause
	}{
		"no response":                  {nil, dialing(&net.OpError{Op: "dial", Net: "tcp", Err: os.ErrDeadlineExceeded}), "NetworkPolicy"},
		"the timeout of the call":      {nil, dialing(errors.New("context deadline exceeded")), "or the replicas hang"},
		"nothing listens":              {nil, dialing(refused(syscall.ECONNREFUSED)), "no replica is ready, or the ports"},
		"a firewall rejects":           {nil, dialing(refused(syscall.EHOSTUNREACH)), "a firewall of the node rejects"},
		"no address":                   {nil, dialing(&net.DNSError{Err: "no such host", Name: "lanyard.example.com", IsNotFound: true}), "cannot resolve"},
		"no Service":                   {nil, dialing(apierrors.NewNotFound(schema.GroupResource{Resource: "services"}, "lanyard-webhook")), "the Service of the webhook does not exist"},
		"no endpoints":                 {nil, dialing(apierrors.NewServiceUnavailable(`no endpoints available for service "lanyard-webhook"`)), "no replica is ready."},
		"another port of the Service":  {nil, dialing(apierrors.NewServiceUnavailable(`no service port 8443 found for service "lanyard-webhook"`)), "lacks the port"},
		"konnectivity without agents":  {nil, dialing(errors.New("No agent available")), "konnectivity"},
		"another CA":                   {status(200, ""), func(_ *httptest.Server, c *rest.Config) { c.CAData = newCA(t) }, "the caBundle"},
		"another name":                 {status(200, ""), func(_ *httptest.Server, c *rest.Config) { c.ServerName = "lanyard-webhook.lanyard-system.svc" }, "is not valid for the name"},
		"an address that it lacks":     {status(200, ""), func(_ *httptest.Server, c *rest.Config) { c.ServerName = "10.96.0.10" }, "is not valid for the name"},
		"no client certificate":        {status(200, ""), asking(tls.RequireAnyClientCert), "client certificate"},
		"a denied caller":              {status(200, ""), asking(tls.RequestClientCert), "client certificate"},
		"an old version of TLS":        {status(200, ""), func(s *httptest.Server, _ *rest.Config) { s.TLS = &tls.Config{MaxVersion: tls.VersionTLS11} }, "share no TLS version"},
		"no TLS":                       {nil, func(_ *httptest.Server, c *rest.Config) { plain(t, c) }, "does not use TLS"},
		"a connection that ends":       {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, nil, "the connection was closed"},
		"401":                          {status(401, ""), nil, "asks for no token"},
		"403 of a mesh":                {status(403, "RBAC: access denied"), nil, "a service mesh"},
		"404":                          {status(404, ""), nil, "different versions"},
		"413":                          {status(413, ""), nil, "too large"},
		"429":                          {status(429, ""), nil, "reaches no replica"},
		"500":                          {status(500, "oops"), nil, "a proxy in front of it"},
		"503":                          {status(503, ""), nil, "reaches no replica"},
		"504":                          {status(504, ""), nil, "reaches no replica"},
		"400":                          {status(400, ""), nil, "a program other than lanyard-webhook"},
		"replicas with old tokens":     {fault("lookup_failed: read serviceaccount shop/cart: Unauthorized"), nil, "rejects the tokens of the replicas"},
		"replicas without rights":      {fault(`lookup_failed: read serviceaccount shop/cart: serviceaccounts "cart" is forbidden: User "x" cannot get resource`), nil, "lack the right"},
		"replicas without connections": {fault("lookup_failed: read serviceaccount shop/cart: context deadline exceeded"), nil, "no response from the API server"},
		"replicas without memory":      {fault("overloaded: no memory"), nil, "other requests use all memory"},
		"something new":                {nil, dialing(errors.New("quantum decoherence")), "got no valid response"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			message := call(t, test.respond, test.change)
			if got := cause.Webhook(message); !strings.Contains(got.Text, test.want) {
				t.Errorf("%s\ngot the cause %q, want %q", message, got.Text, test.want)
			}
		})
	}
}

// An expired certificate needs another clock, so its error is a string from crypto/x509.
func TestOtherErrorsOfCallsHaveTheirCauses(t *testing.T) {
	t.Parallel()
	for message, want := range map[string]string{
		`tls: failed to verify certificate: x509: certificate has expired or is not yet valid: current time 2026-01-02T03:04:05Z is after 2026-01-01T00:00:00Z`: "was not renewed, or a clock",
		`received invalid webhook response: expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got /, Kind=`:                               "a program other than lanyard-webhook",
		`Post "https://x.example.com:443/": proxyconnect tcp: dial tcp 10.0.0.1:3128: i/o timeout`:                                                              "to its proxy",
		`Post "https://lanyard-webhook.lanyard-system.svc:443/mutate-v1-pod?timeout=5s": Proxy Authentication Required`:                                         "to its proxy",
		`Post "https://lanyard-webhook.lanyard-system.svc:443/mutate-v1-pod?timeout=5s": read tcp 10.0.0.1:1->10.96.0.1:443: read: connection reset by peer`:    "the connection was closed",
		`Post "https://lanyard-webhook.lanyard-system.svc:443/validate-v1-serviceaccount?timeout=5s": dial tcp 10.96.0.10:443: connect: connection refused`:     "no replica is ready",
	} {
		if got := cause.Webhook(`failed calling webhook "probe.lanyard.dev": failed to call webhook: ` + message); !strings.Contains(got.Text, want) {
			t.Errorf("%s: got the cause %q, want %q", message, got.Text, want)
		}
	}
}

// The errors are those of Kubernetes 1.36: of the kubelet's token manager, of the storage of
// TokenRequests, the node authorizer and the admission plugin NodeRestriction.
func TestTheErrorsOfKubeletsHaveTheirCauses(t *testing.T) {
	t.Parallel()
	const forbidden = `serviceaccounts "cart" is forbidden: `
	for message, want := range map[string]string{
		`serviceaccounts "cart" not found`: "the ServiceAccount was deleted",
		`pods "cart-0" not found`:          "was deleted and created again",
		forbidden + `User "system:node:n1" cannot create resource "serviceaccounts/token" in API group "" in the namespace "shop": no relationship found between node 'n1' and this object`: "the node authorizer",
		forbidden + "node requested token bound to a pod scheduled on a different node":                                                                                                     "was deleted and created again",
		forbidden + `audience "sts.amazonaws.com" not found in pod spec volume, system:node:n1 is not authorized to request tokens for this audience`:                                       "no volume of the pod has it",
		forbidden + `ValidatingAdmissionPolicy 'tokens' with binding 'tokens' denied request: no`:                                                                                           "a policy",
		forbidden + `User "kubelet" cannot create resource "serviceaccounts/token" in API group "" in the namespace "shop"`:                                                                 "may not request tokens",
		`admission webhook "tokens.example.com" denied the request: no`:                                                                                                                     "a policy",
		`Unauthorized`: "the client certificate of the kubelet",
		`Post "https://10.0.0.1:6443/api/v1/namespaces/shop/serviceaccounts/cart/token": dial tcp 10.0.0.1:6443: connect: connection refused`:                            "cannot reach the API server",
		`Post "https://10.0.0.1:6443/api/v1/namespaces/shop/serviceaccounts/cart/token": context deadline exceeded`:                                                      "cannot reach the API server",
		`Post "https://10.0.0.1:6443/api/v1/namespaces/shop/serviceaccounts/cart/token": tls: failed to verify certificate: x509: certificate has expired or is not yet`: "the clock of the node",
		`Internal error occurred: failed to generate token: signer is away`:                                                                                              "cannot sign",
		`wrong medium`: "cannot mount the token volume",
	} {
		message = `MountVolume.SetUp failed for volume "bound-sa-token" : failed to fetch token: ` + message
		if got := cause.Kubelet(message); !strings.Contains(got.Text, want) {
			t.Errorf("%s: got the cause %q, want %q", message, got.Text, want)
		}
	}
}

func TestEachCauseIsAnAdvice(t *testing.T) {
	t.Parallel()
	for origin, list := range read(t, "causes.yaml") {
		for _, c := range list {
			if c.Message == "" || !strings.HasSuffix(c.Text, ".") {
				t.Errorf("%s: got %+v, want a message and a sentence", origin, c)
			}
			if origin != "replica" && (c.Fix == "" || c.Link == "" || !strings.HasPrefix(c.Advice(), strings.ToUpper(c.Text[:1]))) {
				t.Errorf("%s: got %+v, want the next step and a page", origin, c)
			}
		}
	}
}
