// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !race

package abuse_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/lanyard-dev/lanyard/test/integration/abuse"
	"github.com/lanyard-dev/lanyard/test/support/podstream"
)

var _ = It("does not speak HTTP/2, of which one connection carries 250 requests at a time", func(ctx SpecContext) {
	r := newReplica(ctx, shared, shared.user)
	dialer := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2", "http/1.1"}}} // only the protocol counts
	conn, err := dialer.DialContext(ctx, "tcp", r.target.Reviews)
	Expect(err).NotTo(HaveOccurred())
	defer conn.Close()
	Expect(conn.(*tls.Conn).ConnectionState().NegotiatedProtocol).To(Equal("http/1.1"))
})

var _ = DescribeTable("It logs less than 1 MiB, and lines of at most 1 KiB, about", func(ctx SpecContext, load abuse.Load) {
	const most, longest = 1 << 20, 1 << 10
	r := newReplica(ctx, shared, shared.user)
	size := func() int64 {
		GinkgoHelper()
		info, err := os.Stat(r.LogFile)
		Expect(err).NotTo(HaveOccurred())
		return info.Size()
	}
	before := size()
	r.survives(ctx, func(ctx context.Context) {
		r.abuseFor(ctx, loadTime, load)
		AddReportEntry("bytes of log", size()-before)
	})
	Expect(size()-before).To(BeNumerically("<", most), "bytes of log")
	log, err := os.ReadFile(r.LogFile)
	Expect(err).NotTo(HaveOccurred())
	for line := range strings.Lines(string(log)) {
		Expect(len(line)).To(BeNumerically("<=", longest), "bytes of a line: %.200s", line)
	}
},
	Entry("10,000 bad requests", abuse.BadRequests(10_000)),
	Entry("10,000 reviews with a mistake", abuse.Mistakes(10_000)),
	Entry("reviews with keys and names of 6.9 MB", abuse.LongTexts(1)),
	Entry("dry runs of pods with names of 2.9 MB and a mistake", abuse.LongTextsInDryRun(5)),
)

var _ = DescribeTable("It denies no large pod without an identity while there are", func(ctx SpecContext, connections int, load abuse.Load) {
	const pods = 20
	r := newReplica(ctx, shared, shared.user)
	large := newPod("plain")
	large.Annotations = map[string]string{"example.com/note": strings.Repeat("x", 200<<10)}
	r.survives(ctx, func(ctx context.Context) {
		r.abuseWhile(ctx, load, connections, func() {
			for i := range pods {
				// The webhook may use all of its timeoutSeconds, because no other pod waits.
				_, err := podstream.Create(ctx, r.client, r.target.Namespace, large)
				Expect(err).NotTo(HaveOccurred(), "large pod %d", i)
			}
		})
	})
},
	Entry("16 large bodies that come slowly", 16, abuse.SlowLargeBodies(16)),
	Entry("10 bodies of 7 MiB of which one byte comes", 10, abuse.DeclaredBodies(10)),
	Entry("50 bodies of 7 MiB of which one byte comes", 50, abuse.DeclaredBodies(50)),
)

// The tests of internal/webhook/admission limit the time of each review, in fake time.
var _ = It("answers ordinary reviews while 200 clients do not read and 50 do not send", func(ctx SpecContext) {
	const reviews, clients = 10, 200 + 50
	r := newReplica(ctx, shared, shared.user)
	apiserver := r.target
	apiserver.From = ""
	ask := apiserver.Ordinary()
	r.survives(ctx, func(ctx context.Context) {
		load := abuse.Together("200 clients that do not read, and 50 that do not send", abuse.UnreadAnswers(200, 36), abuse.DeclaredBodies(50))
		r.abuseWhile(ctx, load, clients, func() {
			for i := range reviews {
				// A busy machine may take longer than the webhook waits for a handshake.
				Eventually(ctx, ask).Should(Succeed(), "review %d", i)
			}
		})
	})
})

var _ = It("fails no liveness probe while empty connections flood the port", func(ctx SpecContext) {
	// On a busy machine, a probe may take longer than the webhook waits for a header. The chart's
	// livenessProbe has this failureThreshold.
	const probes, connections, failureThreshold = 30, 1000, 6
	r := newReplica(ctx, shared, shared.user)
	client := &http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}} // new connections, as the kubelet's
	probe := func() error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, r.HealthURL+"/healthz", http.NoBody)
		if err != nil {
			return err
		}
		response, err := client.Do(request)
		if err != nil {
			return err
		}
		if response.StatusCode != http.StatusOK {
			err = fmt.Errorf("got %s", response.Status)
		}
		return errors.Join(err, response.Body.Close())
	}
	r.abuseWhile(ctx, abuse.ConnectionFlood(2), connections, func() {
		for i := range probes {
			err := probe()
			for tries := 1; err != nil && tries < failureThreshold; tries++ {
				err = probe()
			}
			Expect(err).NotTo(HaveOccurred(), "probe %d", i)
		}
	})
	r.expectAlive()
})
