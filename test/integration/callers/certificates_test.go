// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package callers_test

import (
	"crypto/tls"
	"errors"
	"net"
	"net/http"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/lanyard-dev/lanyard/test/support/webhook"
)

var _ = Describe("A webhook with --client-ca-file", func() {
	It("lets the API server in, and nobody without an allowed certificate", func(ctx SpecContext) {
		process := start(ctx, webhook.Options{Port: cluster.port, Args: []string{
			"--client-ca-file", cluster.pki.caFile, "--client-allowed-names", "kube-apiserver",
		}})
		register(ctx, process)
		Eventually(ctx, createPod).Should(Succeed())

		url := process.URL + "/mutate-v1-pod"
		for who, test := range map[string]struct {
			certificates []tls.Certificate
			admitted     bool
		}{
			"without a certificate":          {nil, false},
			"with one of another CA":         {[]tls.Certificate{cluster.pki.anotherCA}, false},
			"with a name that isn't allowed": {[]tls.Certificate{cluster.pki.anotherName}, false},
			"with the API server's":          {[]tls.Certificate{cluster.pki.allowed}, true},
		} {
			// With a cache of sessions, the second connection resumes the first if it can.
			config := &tls.Config{Certificates: test.certificates, ClientSessionCache: tls.NewLRUClientSessionCache(1)}
			for range 2 {
				status, err := post(ctx, url, config)
				if test.admitted {
					Expect(err).NotTo(HaveOccurred(), who)
					Expect(status).To(Equal(http.StatusUnsupportedMediaType), who)
					continue
				}
				alert, ok := errors.AsType[*net.OpError](err)
				Expect(ok).To(BeTrue(), "%s: %v", who, err)
				Expect(alert.Op).To(Equal("remote error"), "%s: %v", who, err)
			}
		}
		Expect(createPod(ctx)).To(Succeed())
		Expect(logOf(process)).To(ContainSubstring("Denied callers"))
	})

	It("is not reached by an API server that has no certificate for it", func(ctx SpecContext) {
		process := start(ctx, webhook.Options{Args: []string{"--client-ca-file", cluster.pki.caFile}})
		register(ctx, process)
		Eventually(ctx, func() string { _ = createPod(ctx); return logOf(process) }).
			Should(ContainSubstring("got no client certificate"))
		Expect(createPod(ctx)).To(MatchError(ContainSubstring("without credentials")))
	})
})
