// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !race

package abuse_test

import (
	"context"
	"crypto/tls"
	"os"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/lanyard-dev/lanyard/test/support/abuse"
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

var _ = It("logs less than 1 MiB about 10,000 bad requests", func(ctx SpecContext) {
	const most = 1 << 20
	r := newReplica(ctx, shared, shared.user)
	size := func() int64 {
		GinkgoHelper()
		info, err := os.Stat(r.LogFile)
		Expect(err).NotTo(HaveOccurred())
		return info.Size()
	}
	before := size()
	r.survives(ctx, func(ctx context.Context) {
		r.abuseFor(ctx, loadTime, abuse.BadRequests(10_000))
		AddReportEntry("bytes of log", size()-before)
	})
	Expect(size()-before).To(BeNumerically("<", most), "bytes of log")
})

var _ = It("denies no large pod without an identity while large bodies come slowly", func(ctx SpecContext) {
	r := newReplica(ctx, shared, shared.user)
	large := newPod("plain")
	large.Annotations = map[string]string{"example.com/note": strings.Repeat("x", 200<<10)}
	r.survives(ctx, func(ctx context.Context) {
		ended := make(chan struct{})
		go func() {
			defer GinkgoRecover()
			defer close(ended)
			r.abuseFor(ctx, 10*time.Second, abuse.SlowLargeBodies(16))
		}()
		for i, until := 0, time.After(8*time.Second); ; i++ {
			// The webhook may take all of its timeoutSeconds, as no other pod waits.
			_, err := podstream.Create(ctx, r.client, r.target.Namespace, large)
			Expect(err).NotTo(HaveOccurred(), "large pod %d", i)
			select {
			case <-until:
				<-ended
				AddReportEntry("large pods", i+1)
				return
			case <-time.After(100 * time.Millisecond):
			}
		}
	})
})
