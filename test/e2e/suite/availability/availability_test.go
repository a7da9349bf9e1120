// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package availability_test

import (
	"context"
	"fmt"
	"math/big"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lanyard-dev/lanyard/test/e2e/expect"
	"github.com/lanyard-dev/lanyard/test/e2e/framework"
	"github.com/lanyard-dev/lanyard/test/integration/abuse"
	"github.com/lanyard-dev/lanyard/test/support/podstream"
)

const (
	// perSecond is the number of pods per second, if the machine can create so many.
	perSecond = 100
	// fewest is the minimum number of pods for each event, including at least around
	// pods directly before it and after it.
	fewest, around = 500, 100
	// abuseTime is how long the replicas are abused.
	abuseTime = 10 * time.Second
)

// everyInstall labels the install methods that have much in common with
// another, and specs that do not depend on the method. The chart's tests compare these.
var everyInstall = Label("every-install")

var _ = DescribeTableSubtree("Installed with", Ordered, func(install method) {
	var namespace string
	var stream *podstream.Stream
	// once labels the specs that do not depend on the certificates.
	once := Label()
	if install.certificates != selfManaged {
		once = everyInstall
	}

	// during returns the results of the pods that were created while do ran, and directly
	// before and after it. None may be created without the credentials that it asks for,
	// and the guard may only deny pods that ask for them.
	during := func(ctx context.Context, event string, do func()) podstream.Counts {
		GinkgoHelper()
		stream.Counts()
		Expect(stream.More(ctx, around)).To(Succeed())
		do()
		Expect(stream.More(ctx, around)).To(Succeed())
		Expect(stream.Await(ctx, fewest, (*podstream.Counts).Pods)).To(Succeed())
		counts := stream.Counts()
		record(install, event, counts)
		Expect(counts.Identity.NotInjected).To(BeZero(), counts.Identity.String())
		Expect(counts.NoIdentity.Failed).To(BeEmpty(), counts.NoIdentity.String())
		Expect(counts.NoIdentity.Created).To(BeNumerically(">=", fewest/2-around))
		for message := range counts.Identity.Failed {
			Expect(message).To(And(
				ContainSubstring("ValidatingAdmissionPolicy 'lanyard-guard-pods'"),
				ContainSubstring("lanyard: ServiceAccount "+namespace+"/with-identity needs credentials"),
				ContainSubstring("lanyard-webhook did not respond")))
		}
		return counts
	}
	// unharmed is like during for events that must not affect any pod.
	unharmed := func(ctx context.Context, event string, do func()) {
		GinkgoHelper()
		counts := during(ctx, event, do)
		Expect(counts.Identity.Failed).To(BeEmpty(), counts.Identity.String())
		Expect(counts.Identity.Created).To(BeNumerically(">=", fewest/2-around))
	}
	nothing := func() {}

	BeforeAll(func(ctx SpecContext) {
		if install.certificates == certManager {
			stop, err := startCertManager(ctx, GinkgoWriter)
			Expect(err).NotTo(HaveOccurred())
			DeferCleanup(stop)
		}
		Expect(install.up(ctx)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) {
			Expect(install.down(ctx)).To(Succeed())
			expectNothingLeft(ctx)
		})
		namespace = newNamespace(ctx)
		var err error
		stream, err = podstream.Start(ctx, cluster, namespace, perSecond, 0)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(stream.Stop)
		waitForIdentities(ctx, stream)
	})

	It("injects every pod with an annotated ServiceAccount", func(ctx SpecContext) {
		if install.tool == helm {
			_, err := cluster.Run(ctx, "helm", "test", "lanyard", "--namespace", framework.Namespace)
			Expect(err).NotTo(HaveOccurred())
		}
		unharmed(ctx, "nothing", nothing)
	})

	It("renews its serving certificate without an outage", func(ctx SpecContext) {
		replicas, err := cluster.WaitReady(ctx)
		Expect(err).NotTo(HaveOccurred())
		before, err := servedSerials(ctx, replicas)
		Expect(err).NotTo(HaveOccurred())
		unharmed(ctx, "the serving certificate was renewed", func() {
			if install.certificates == certManager {
				Expect(renewCertificate(ctx, "lanyard-webhook-tls")).To(Succeed())
			}
			Eventually(func(g Gomega) {
				now, err := servedSerials(ctx, replicas)
				g.Expect(err).NotTo(HaveOccurred())
				for i := range now {
					g.Expect(now[i]).NotTo(Equal(before[i]), replicas[i].Name)
				}
			}).Should(Succeed())
		})
	})

	It("renews its CA with the same key without an outage", func(ctx SpecContext) {
		before, err := trustedCertificates(ctx)
		Expect(err).NotTo(HaveOccurred())
		var known []*big.Int
		for _, certificate := range before {
			known = append(known, certificate.SerialNumber)
		}
		unharmed(ctx, "the CA was renewed", func() {
			if install.certificates == certManager {
				Expect(renewCertificate(ctx, "lanyard-webhook-ca")).To(Succeed())
			}
			Eventually(func(g Gomega) {
				now, err := trustedCertificates(ctx)
				g.Expect(err).NotTo(HaveOccurred())
				// cainjector keeps the previous certificate next to the new
				// one.
				g.Expect(now).To(ContainElement(And(
					HaveField("SerialNumber", Not(BeElementOf(known))), HaveField("PublicKey", Equal(before[0].PublicKey)))))
			}).Should(Succeed())
		})
	})

	It("denies only pods that need credentials, to be tried again, when one of two replicas is killed", once, func(ctx SpecContext) {
		replicas, err := cluster.WaitReady(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(replicas).To(HaveLen(2))
		restarts := framework.Container(&replicas[0], "webhook").RestartCount
		counts := during(ctx, "one of two replicas was killed with SIGKILL", func() {
			done, err := cluster.KillContainer(ctx, &replicas[0], "webhook")
			Expect(err).NotTo(HaveOccurred())
			Expect(done(ctx)).To(Succeed())
			Eventually(func(g Gomega) {
				pod, err := cluster.CoreV1().Pods(framework.Namespace).Get(ctx, replicas[0].Name, metav1.GetOptions{})
				g.Expect(err).NotTo(HaveOccurred())
				status := framework.Container(pod, "webhook")
				g.Expect(status.RestartCount).To(Equal(restarts + 1))
				g.Expect(status.Ready).To(BeTrue())
			}).Should(Succeed())
		})
		// Connections to the replica are refused until the cluster has removed it from
		// the Service. The other one responds.
		Expect(counts.Identity.Created).To(BeNumerically(">", counts.Identity.Failures()), counts.Identity.String())
	})

	It("is rolled out without an outage", once, func(ctx SpecContext) {
		old, err := cluster.WaitReady(ctx)
		Expect(err).NotTo(HaveOccurred())
		unharmed(ctx, "the Deployment was rolled", func() {
			_, err := cluster.Run(ctx, "kubectl", "rollout", "restart", "deployment/"+framework.Deployment, "--namespace", framework.Namespace)
			Expect(err).NotTo(HaveOccurred())
			_, err = cluster.Run(ctx, "kubectl", "rollout", "status", "deployment/"+framework.Deployment, "--namespace", framework.Namespace, "--timeout", expect.Patience.String())
			Expect(err).NotTo(HaveOccurred())
			replicas, err := cluster.WaitReady(ctx)
			Expect(err).NotTo(HaveOccurred())
			for i := range replicas {
				Expect(old).NotTo(ContainElement(HaveField("Name", replicas[i].Name)))
			}
		})
	})

	It("is not harmed by mixed abuse from inside the cluster while pods are created", once, func(ctx SpecContext) {
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "target", Annotations: abuse.LongestIdentity()}}
		Expect(podstream.CreateServiceAccount(ctx, cluster.CoreV1().ServiceAccounts(namespace), account)).To(Succeed())
		before, err := cluster.WaitReady(ctx)
		Expect(err).NotTo(HaveOccurred())
		start := metav1.Now()
		counts := during(ctx, "10 seconds of mixed abuse", func() { abuseReplicas(ctx, before, namespace) })
		AddReportEntry("pods with an identity", counts.Identity.String())
		after, err := cluster.WaitReady(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(restarts(after)).To(Equal(restarts(before)))
		for i := range after {
			bytes, err := logBytes(ctx, &after[i], start)
			Expect(err).NotTo(HaveOccurred())
			AddReportEntry("log of "+after[i].Name, fmt.Sprintf("%d KiB", bytes>>10))
			Expect(bytes).To(BeNumerically("<=", 1<<20), "bytes of log")
		}
		Expect(counts.Identity.Created).To(BeNumerically(">", 0))
	})

	It("denies only pods that need credentials while all replicas are dead, and recovers by itself", once, func(ctx SpecContext) {
		replicas, err := cluster.WaitReady(ctx)
		Expect(err).NotTo(HaveOccurred())
		stop, err := cluster.KillPods(ctx, replicas)
		Expect(err).NotTo(HaveOccurred())
		during(ctx, "every replica was dead, and came back by itself", func() {
			Expect(stream.Await(ctx, around, func(c *podstream.Counts) int { return c.Identity.Failures() })).To(Succeed(), "denials")
			Expect(stop(ctx)).To(Succeed())
			_, err := cluster.WaitReady(ctx)
			Expect(err).NotTo(HaveOccurred())
		})
		// The node learns of a ready replica later than this suite.
		waitForIdentities(ctx, stream)
		unharmed(ctx, "nothing, after all replicas had been dead", nothing)
	})
},
	Entry("Helm and a self-managed certificate", method{helm, selfManaged}),
	Entry("kustomize and cert-manager", method{kustomize, certManager}),
	Entry("Helm and cert-manager", everyInstall, method{helm, certManager}),
	Entry("kustomize and a self-managed certificate", everyInstall, method{kustomize, selfManaged}),
)

func newNamespace(ctx context.Context) string {
	GinkgoHelper()
	created, err := cluster.CoreV1().Namespaces().Create(ctx,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "availability-"}}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx SpecContext) error {
		return cluster.CoreV1().Namespaces().Delete(ctx, created.Name, metav1.DeleteOptions{})
	})
	return created.Name
}

// abuseReplicas sends one mixture of loads to each replica, and another to the API
// server.
func abuseReplicas(ctx context.Context, replicas []corev1.Pod, namespace string) {
	GinkgoHelper()
	var running sync.WaitGroup
	for i := range replicas {
		running.Go(func() {
			defer GinkgoRecover()
			tally, err := attack(ctx, &replicas[i], namespace, "target", abuseTime)
			Expect(err).NotTo(HaveOccurred())
			AddReportEntry("from the network", tally)
			Expect(tally).To(ContainSubstring("connections opened"))
			Expect(tally).To(ContainSubstring("responses 200"))
		})
	}
	running.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, abuseTime)
		defer cancel()
		load := abuse.ThroughTheAPIServer()
		var tally abuse.Tally
		load.Run(ctx, &abuse.Target{Namespace: namespace, ServiceAccount: "target", Client: cluster}, &tally)
		AddReportEntry(load.Name, tally.String())
	})
	running.Wait()
}

// logBytes returns the number of bytes that a replica has logged since the given time. It stops at 8 MiB.
func logBytes(ctx context.Context, replica *corev1.Pod, since metav1.Time) (int, error) {
	log, err := cluster.CoreV1().Pods(replica.Namespace).GetLogs(replica.Name, &corev1.PodLogOptions{
		Container: "webhook", SinceTime: &since, LimitBytes: new(int64(8 << 20)),
	}).DoRaw(ctx)
	if err != nil {
		return 0, fmt.Errorf("read the log of pod %s: %w", replica.Name, err)
	}
	return len(log), nil
}

// restarts returns the restarts of the webhook's containers by the names of the
// pods.
func restarts(replicas []corev1.Pod) map[string]int32 {
	counts := map[string]int32{}
	for i := range replicas {
		counts[replicas[i].Name] = framework.Container(&replicas[i], "webhook").RestartCount
	}
	return counts
}

// waitForIdentities waits until the API server calls the webhook, which it
// learns about from a watch.
func waitForIdentities(ctx context.Context, stream *podstream.Stream) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		counts := stream.Counts()
		g.Expect(counts.Identity.Created).To(BeNumerically(">", 0))
		g.Expect(counts.Identity.Failed).To(BeEmpty(), counts.Identity.String())
		g.Expect(counts.Identity.NotInjected).To(BeZero())
	}).WithContext(ctx).Should(Succeed())
}

// servedSerials returns the serial numbers of the certificates that the replicas serve.
func servedSerials(ctx context.Context, replicas []corev1.Pod) ([]*big.Int, error) {
	serials := make([]*big.Int, len(replicas))
	for i := range replicas {
		served, err := servedCertificate(ctx, &replicas[i])
		if err != nil {
			return nil, err
		}
		serials[i] = served.SerialNumber
	}
	return serials, nil
}

// expectNothingLeft checks that no cluster-scoped object of the install is
// left.
func expectNothingLeft(ctx context.Context) {
	GinkgoHelper()
	admission, rbac, all := cluster.AdmissionregistrationV1(), cluster.RbacV1(), metav1.GetOptions{}
	for what, get := range map[string]func() error{
		"webhook configuration": func() error {
			_, err := admission.MutatingWebhookConfigurations().Get(ctx, framework.Configuration, all)
			return err
		},
		"validating webhook configuration": func() error {
			_, err := admission.ValidatingWebhookConfigurations().Get(ctx, framework.Configuration, all)
			return err
		},
		"guard": func() error {
			_, err := admission.ValidatingAdmissionPolicies().Get(ctx, "lanyard-guard-pods", all)
			return err
		},
		"cluster role": func() error { _, err := rbac.ClusterRoles().Get(ctx, framework.Deployment, all); return err },
		"namespace": func() error {
			_, err := cluster.CoreV1().Namespaces().Get(ctx, framework.Namespace, all)
			return err
		},
	} {
		Eventually(get).Should(MatchError(apierrors.IsNotFound, "not found"), what)
	}
}
