// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !race

package abuse_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/lanyard-dev/lanyard/test/integration/abuse"
	"github.com/lanyard-dev/lanyard/test/support/controlplane"
	"github.com/lanyard-dev/lanyard/test/support/memlimit"
	"github.com/lanyard-dev/lanyard/test/support/podstream"
	"github.com/lanyard-dev/lanyard/test/support/webhook"
)

const (
	// perSecond is the number of pods per second that are created meanwhile: half of
	// them with an identity, half without.
	perSecond = 10
	// patience limits each wait. Two processors are busy with the attacks, so a pod that
	// takes a second is only reported. Tests in fake time check the limits.
	patience = controlplane.Patience
)

// attackerAddress is another address than the API server's and the kubelet's.
const attackerAddress = "127.0.0.2"

var dryRun = metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}

// replica is the registered webhook, under the memory limit.
type replica struct {
	*webhook.Process
	client kubernetes.Interface
	limit  *memlimit.Limit
	target abuse.Target
}

// newReplica starts the webhook with the kubeconfig of this user, registers it, and
// prepares a namespace with a ServiceAccount. Everything ends with the spec.
func newReplica(ctx context.Context, c *cluster, user *rest.Config) *replica {
	GinkgoHelper()
	r := startReplica(ctx, c, user)
	Expect(r.Register(ctx, c.client, deployDir)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) error { return unregister(ctx, c.client) })
	r.target.Namespace, r.target.ServiceAccount, r.target.Client = "team-"+rand.String(8), "target", c.client
	Expect(c.plane.CreateNamespace(ctx, r.target.Namespace)).To(Succeed())
	r.newServiceAccount(ctx, "target", abuse.LongestIdentity())
	r.newServiceAccount(ctx, "plain", nil)
	r.waitRegistered(ctx)
	return r
}

// startReplica starts the webhook with the kubeconfig of this user until the spec ends. It is not
// registered, and the target has only addresses.
func startReplica(ctx context.Context, c *cluster, user *rest.Config, args ...string) *replica {
	GinkgoHelper()
	r := &replica{client: c.client, target: abuse.Target{From: attackerAddress}}
	var err error
	r.limit, err = memlimit.New(c.limit)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(r.limit.Remove)
	dir := GinkgoT().TempDir()
	kubeconfig := filepath.Join(dir, "kubeconfig")
	Expect(controlplane.WriteKubeconfig(kubeconfig, user)).To(Succeed())
	r.Process, err = webhook.Start(ctx, webhook.Options{Binary: binary, Kubeconfig: kubeconfig, Dir: dir, Prepare: r.limit.Apply, Args: args})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { _ = r.Stop() }) // a spec has already reported a process that ended
	for address, into := range map[string]*string{r.URL: &r.target.Reviews, r.MetricsURL: &r.target.Metrics, r.HealthURL: &r.target.Health} {
		*into, err = abuse.HostPort(address)
		Expect(err).NotTo(HaveOccurred())
	}
	return r
}

// unregister deletes the webhook configurations.
func unregister(ctx context.Context, client kubernetes.Interface) error {
	api := client.AdmissionregistrationV1()
	return errors.Join(api.MutatingWebhookConfigurations().Delete(ctx, "lanyard", metav1.DeleteOptions{}),
		api.ValidatingWebhookConfigurations().Delete(ctx, "lanyard", metav1.DeleteOptions{}))
}

// newServiceAccount creates a ServiceAccount. One with annotations also has its
// label: the webhook may not be called yet, or not respond.
func (r *replica) newServiceAccount(ctx context.Context, name string, annotations map[string]string) {
	GinkgoHelper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations}}
	if annotations != nil {
		account.Labels = map[string]string{"lanyard.dev/identity": "enabled"}
	}
	_, err := r.client.CoreV1().ServiceAccounts(r.target.Namespace).Create(ctx, account, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
}

// waitRegistered waits until the API server calls this process.
func (r *replica) waitRegistered(ctx context.Context) {
	GinkgoHelper()
	Eventually(ctx, func(ctx context.Context) error { return r.injects(ctx, "target") }).Should(Succeed())
	Eventually(ctx, func(ctx context.Context) error {
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "bad", Annotations: map[string]string{"lanyard.dev/aws-role-arn": "bad"}}}
		_, err := r.client.CoreV1().ServiceAccounts(r.target.Namespace).Create(ctx, account, dryRun)
		return err
	}).Should(MatchError(ContainSubstring("invalid_annotation")))
}

// newPod returns a pod that is not created yet.
func newPod(account string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "pod"},
		Spec:       corev1.PodSpec{ServiceAccountName: account, Containers: []corev1.Container{{Name: "main", Image: "image"}}},
	}
}

// create creates a pod in a dry run, within the time that it may take. The default
// namespace is the target's.
func (r *replica) create(ctx context.Context, pod *corev1.Pod) (*corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return podstream.Create(ctx, r.client, cmp.Or(pod.Namespace, r.target.Namespace), pod)
}

// injects returns an error unless a pod of the target's ServiceAccount with this name
// is created with an identity in time.
func (r *replica) injects(ctx context.Context, account string) error {
	return r.injectsPod(ctx, newPod(account))
}

// injectsPod is like injects for any pod.
func (r *replica) injectsPod(ctx context.Context, pod *corev1.Pod) error {
	pod, err := r.create(ctx, pod)
	if err == nil && !podstream.HasIdentity(pod) {
		err = errors.New("the pod was created without credentials")
	}
	return err
}

// survives creates pods with and without an identity while do runs, and some afterwards.
// All must be created with what they ask for, and the same process must be alive at the
// end. A pod with an identity may be denied and retried, as by a controller.
func (r *replica) survives(ctx context.Context, do func(ctx context.Context)) {
	GinkgoHelper()
	stream, err := podstream.Start(ctx, r.client, r.target.Namespace, perSecond, patience)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(stream.Stop)
	// The watch of the webhook may be behind.
	Eventually(ctx, func(ctx context.Context) error { return r.injects(ctx, podstream.WithIdentity) }).Should(Succeed())
	stream.Counts()
	do(ctx)
	Expect(stream.More(ctx, perSecond)).To(Succeed())
	counts := stream.Drain()
	r.report(&counts)

	r.expectAlive()
	Expect(counts.Identity.Failed).To(BeEmpty(), "with an identity: %v", &counts.Identity)
	Expect(counts.Identity.NotInjected).To(BeZero(), "with an identity: %v", &counts.Identity)
	Expect(counts.NoIdentity.Failed).To(BeEmpty(), "without an identity: %v", &counts.NoIdentity)
	Expect(counts.Identity.Created).To(BeNumerically(">", 0))
	Expect(counts.NoIdentity.Created).To(BeNumerically(">", 0))
	// As a controller does, which tries again.
	Eventually(ctx, func(ctx context.Context) error { return r.injects(ctx, "target") }).Should(Succeed())
	_, err = r.create(ctx, newPod("plain"))
	Expect(err).NotTo(HaveOccurred())
}

// expectAlive checks that the process was not killed and stayed below the limit.
func (r *replica) expectAlive() {
	GinkgoHelper()
	Expect(r.Done()).NotTo(BeClosed(), "the webhook ended")
	kills, err := r.limit.Kills()
	Expect(err).NotTo(HaveOccurred())
	Expect(kills).To(BeZero(), "killed because of its memory")
	peak, err := r.limit.Peak(r.PID())
	Expect(err).NotTo(HaveOccurred())
	Expect(peak).To(BeNumerically("<=", r.limit.Bytes), "the most memory in bytes")
}

// report adds the figures to the spec's report.
func (r *replica) report(counts *podstream.Counts) {
	peak, err := r.limit.Peak(r.PID())
	if err != nil {
		peak = 0 // the process has ended, which the spec reports
	}
	AddReportEntry("figures", fmt.Sprintf("peak of %d MiB (limit enforced: %v)\nwith an identity: %v\nwithout: %v",
		peak>>20, r.limit.Enforced(), &counts.Identity, &counts.NoIdentity))
}

// abuseFor runs the load for at most this long and adds its tally to the report.
func (r *replica) abuseFor(ctx context.Context, d time.Duration, load abuse.Load) *abuse.Tally {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	tally := new(abuse.Tally)
	load.Run(ctx, &r.target, tally)
	AddReportEntry(load.Name, tally.String())
	return tally
}

// abuseWhile runs the load until do returns and adds its tally to the report. do begins when
// the load has opened this many connections.
func (r *replica) abuseWhile(ctx context.Context, load abuse.Load, connections int, do func()) {
	GinkgoHelper()
	loading, stop := context.WithCancel(ctx)
	tally := new(abuse.Tally)
	var running sync.WaitGroup
	running.Go(func() { load.Run(loading, &r.target, tally) })
	defer func() {
		stop()
		running.Wait()
		AddReportEntry(load.Name, tally.String())
	}()
	Eventually(ctx, tally.Opened).Should(BeNumerically(">=", connections))
	do()
}
