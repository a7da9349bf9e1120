// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package callers_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lanyard-dev/lanyard/test/support/webhook"
)

// service forwards each connection to one of its replicas, as a Service does.
type service struct {
	listener net.Listener
	mu       sync.Mutex
	replicas []string
}

func newService(ctx context.Context) *service {
	GinkgoHelper()
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	Expect(err).NotTo(HaveOccurred())
	s := &service{listener: listener}
	DeferCleanup(listener.Close)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go s.forward(conn)
		}
	}()
	return s
}

// url is one that a certificate for localhost is valid for.
func (s *service) url() string {
	return fmt.Sprintf("https://localhost:%d", s.listener.Addr().(*net.TCPAddr).Port)
}

func (s *service) use(processes ...*webhook.Process) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.replicas = nil
	for _, p := range processes {
		s.replicas = append(s.replicas, strings.TrimPrefix(p.URL, "https://"))
	}
}

func (s *service) forward(conn net.Conn) {
	defer conn.Close()
	s.mu.Lock()
	address := s.replicas[rand.IntN(len(s.replicas))]
	s.mu.Unlock()
	replica, err := new(net.Dialer).DialContext(context.Background(), "tcp", address)
	if err != nil {
		return
	}
	defer replica.Close()
	go func() {
		_, _ = io.Copy(replica, conn)
		_ = replica.(*net.TCPConn).CloseWrite()
	}()
	_, _ = io.Copy(conn, replica)
}

// startReplica runs a webhook with a self-managed certificate.
func startReplica(ctx context.Context, args ...string) *webhook.Process {
	GinkgoHelper()
	return start(ctx, webhook.Options{Args: append([]string{
		"--certificate-source=self-managed", "--tls-cert-file=", "--tls-private-key-file=",
		"--certificate-secret-namespace=lanyard-system", "--certificate-dns-names=localhost", "--shutdown-delay=1s", "--v=1",
	}, args...)})
}

// createPods creates pods until it is stopped. stop returns how many, and what went
// wrong.
func createPods(ctx context.Context) (stop func() (created int, failures []error)) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var created int
	var failures []error
	var group sync.WaitGroup
	group.Go(func() {
		for ; ctx.Err() == nil; time.Sleep(5 * time.Millisecond) {
			if err := createPod(context.WithoutCancel(ctx)); err != nil {
				failures = append(failures, fmt.Errorf("%s: %w", time.Now().Format(time.TimeOnly), err))
			}
			created++
		}
	})
	return func() (int, []error) {
		cancel()
		group.Wait()
		return created, failures
	}
}

// paths returns the path of each webhook's URL.
func paths(ctx context.Context, s *service) (all []string) {
	GinkgoHelper()
	api := cluster.client.AdmissionregistrationV1()
	mutating, err := api.MutatingWebhookConfigurations().Get(ctx, configuration, metav1.GetOptions{})
	Expect(err).NotTo(HaveOccurred())
	for _, w := range mutating.Webhooks {
		all = append(all, strings.TrimPrefix(*w.ClientConfig.URL, s.url()))
	}
	validating, err := api.ValidatingWebhookConfigurations().Get(ctx, configuration, metav1.GetOptions{})
	Expect(err).NotTo(HaveOccurred())
	for _, w := range validating.Webhooks {
		all = append(all, strings.TrimPrefix(*w.ClientConfig.URL, s.url()))
	}
	return all
}

var secretPath = regexp.MustCompile(`^(/[a-z0-9-]+)/([0-9a-f]{32})$`)

// awaitSecret waits until all webhooks have one secret segment that is none of
// those before, and returns it.
func awaitSecret(ctx context.Context, s *service, before ...string) (segment string) {
	GinkgoHelper()
	Eventually(ctx, func(g Gomega) {
		all := paths(ctx, s)
		var segments []string
		for _, path := range all {
			g.Expect(path).To(MatchRegexp(secretPath.String()))
			segments = append(segments, secretPath.FindStringSubmatch(path)[2])
		}
		g.Expect(slices.Compact(segments)).To(HaveLen(1))
		g.Expect(before).NotTo(ContainElement(segments[0]))
		segment = segments[0]
	}).WithTimeout(patience).WithPolling(20 * time.Millisecond).Should(Succeed())
	return segment
}

// status returns the status of a request without a body for the path.
func status(ctx context.Context, process *webhook.Process, path string) int {
	GinkgoHelper()
	code, err := post(ctx, process.URL+path, new(tls.Config))
	Expect(err).NotTo(HaveOccurred())
	return code
}

const served = http.StatusUnsupportedMediaType // for a request without a body

func eventuallyNotFound(ctx context.Context, process *webhook.Process, path string) {
	GinkgoHelper()
	Eventually(ctx, func() int { return status(ctx, process, path) }).WithTimeout(patience).Should(Equal(http.StatusNotFound))
}

var _ = Describe("A webhook with --unguessable-path", func() {
	It("is only reached on a secret path, and no review is lost while paths change", func(ctx SpecContext) {
		s := newService(ctx)
		plain := startReplica(ctx)
		s.use(plain)
		registered := *plain
		registered.URL = s.url()
		register(ctx, &registered)
		Eventually(ctx, createPod).WithTimeout(patience).Should(Succeed())
		stop := createPods(ctx)

		By("switching it on with a second replica, next to one without the flag")
		first := startReplica(ctx, "--unguessable-path")
		s.use(plain, first)
		segment := awaitSecret(ctx, s)
		secret := "/mutate-v1-pod/" + segment
		time.Sleep(2 * time.Second) // both serve the secret path
		s.use(first)
		Expect(plain.Stop()).To(Succeed())
		eventuallyNotFound(ctx, first, "/mutate-v1-pod")
		Expect(status(ctx, first, "/mutate-v1-pod/"+strings.Repeat("0", 32))).To(Equal(http.StatusNotFound))
		Expect(status(ctx, first, secret)).To(Equal(served))

		By("replacing the replica")
		second := startReplica(ctx, "--unguessable-path")
		Expect(status(ctx, second, "/mutate-v1-pod")).To(Equal(http.StatusNotFound), "a restart opens the plain path")
		s.use(second)
		Expect(first.Stop()).To(Succeed())

		By("writing the plain paths back, as an upgrade does")
		writeBack(ctx, s)
		Expect(status(ctx, second, "/mutate-v1-pod")).To(Equal(served))
		Expect(awaitSecret(ctx, s)).To(Equal(segment))
		eventuallyNotFound(ctx, second, "/mutate-v1-pod")
		Expect(status(ctx, second, secret)).To(Equal(served))

		By("removing the secret path from the Secret, which one of two replicas replaces")
		third := startReplica(ctx, "--unguessable-path")
		s.use(second, third)
		_, err := cluster.client.CoreV1().Secrets("lanyard-system").Patch(ctx, "lanyard-webhook-ca", types.JSONPatchType,
			[]byte(`[{"op":"remove","path":"/data/path"}]`), metav1.PatchOptions{})
		Expect(err).NotTo(HaveOccurred())
		next := awaitSecret(ctx, s, segment)
		for _, process := range []*webhook.Process{second, third} {
			eventuallyNotFound(ctx, process, secret)
			Expect(status(ctx, process, "/mutate-v1-pod/"+next)).To(Equal(served))
		}
		Expect(awaitSecret(ctx, s)).To(Equal(next))

		created, failures := stop()
		AddReportEntry(fmt.Sprintf("%d pods", created))
		Expect(failures).To(BeEmpty())
		Expect(created).To(BeNumerically(">", 100))
		for _, process := range []*webhook.Process{first, second, third} {
			Expect(logOf(process)).NotTo(Or(ContainSubstring(segment), ContainSubstring(next)))
		}
		Expect(metricsOf(ctx, second)).NotTo(Or(ContainSubstring(segment), ContainSubstring(next)))
	})
})

// writeBack writes the plain paths of deploy/ into both configurations.
func writeBack(ctx context.Context, s *service) {
	GinkgoHelper()
	var mutating, validating strings.Builder
	for i, path := range paths(ctx, s) {
		patch, index := &mutating, i
		if strings.HasPrefix(path, "/validate") {
			patch, index = &validating, 0
		}
		if patch.Len() > 0 {
			patch.WriteByte(',')
		}
		fmt.Fprintf(patch, `{"op":"replace","path":"/webhooks/%d/clientConfig/url","value":"%s"}`, index, s.url()+secretPath.FindStringSubmatch(path)[1])
	}
	api := cluster.client.AdmissionregistrationV1()
	_, err := api.MutatingWebhookConfigurations().Patch(ctx, configuration, types.JSONPatchType, []byte("["+mutating.String()+"]"), metav1.PatchOptions{})
	Expect(err).NotTo(HaveOccurred())
	_, err = api.ValidatingWebhookConfigurations().Patch(ctx, configuration, types.JSONPatchType, []byte("["+validating.String()+"]"), metav1.PatchOptions{})
	Expect(err).NotTo(HaveOccurred())
}

func metricsOf(ctx context.Context, process *webhook.Process) string {
	GinkgoHelper()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, process.MetricsURL, http.NoBody)
	Expect(err).NotTo(HaveOccurred())
	response, err := http.DefaultClient.Do(request)
	Expect(err).NotTo(HaveOccurred())
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	Expect(err).NotTo(HaveOccurred())
	return string(text)
}
