// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package podstream creates pods continuously while the webhook is disturbed, and counts
// their outcomes.
package podstream

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/lanyard-dev/lanyard/test/support/controlplane"
	"github.com/lanyard-dev/lanyard/test/support/process"
)

// Counts holds the results of the pods that a Stream created.
type Counts struct {
	// Identity is for pods whose ServiceAccount has an identity, NoIdentity for
	// all others.
	Identity, NoIdentity Outcome
}

// Pods returns the number of pods, whatever their outcome.
func (c *Counts) Pods() int { return c.Identity.pods() + c.NoIdentity.pods() }

// Outcome holds the results for one kind of pod.
type Outcome struct {
	Created     int // created as expected
	NotInjected int // created without the requested credentials
	Failed      map[string]int
	// Late counts the pods that took more than a second, failed ones included, and Slowest
	// is the time of the slowest. They are for reports: the machine may be busy.
	Late    int
	Slowest time.Duration
}

// Failures returns the number of pods that were not created.
func (o *Outcome) Failures() int {
	n := 0
	for _, count := range o.Failed {
		n += count
	}
	return n
}

// String formats the outcome for a report.
func (o *Outcome) String() string {
	lines := []string{fmt.Sprintf("%d created, %d without credentials, %d failed; %d took more than a second, slowest %v",
		o.Created, o.NotInjected, o.Failures(), o.Late, o.Slowest.Round(time.Millisecond))}
	for _, message := range slices.Sorted(maps.Keys(o.Failed)) {
		lines = append(lines, fmt.Sprintf("%d × %s", o.Failed[message], message))
	}
	return strings.Join(lines, "\n  ")
}

func (o *Outcome) pods() int { return o.Created + o.NotInjected + o.Failures() }

// Stream creates pods in dry runs, alternating between a ServiceAccount with an identity and
// one without. It does not wait for one pod before it creates the next.
type Stream struct {
	client    kubernetes.Interface
	namespace string
	retry     time.Duration
	cancel    context.CancelFunc
	drain     chan struct{} // closed when no more pods are to be created
	drained   sync.Once
	creators  sync.WaitGroup

	mu     sync.Mutex
	counts Counts
}

const (
	// retryInterval is the time before an object is tried again.
	retryInterval = 200 * time.Millisecond
	// atOnce limits the pods that wait for a response: with more, each of them would wait
	// longer on a slow machine, up to the timeout of the webhook.
	atOnce = 20
	// awaitTimeout limits Await. A busy machine creates a pod per second.
	awaitTimeout = 10 * time.Minute
)

// The ServiceAccounts in a stream's namespace.
const (
	WithIdentity    = "with-identity"
	WithoutIdentity = "without-identity"
)

// Start creates the ServiceAccounts in the namespace and starts to create
// perSecond pods per second, until Stop is called. A pod with an identity that the
// guard denies is tried again for the time retry, as a controller does.
func Start(ctx context.Context, client kubernetes.Interface, namespace string, perSecond int, retry time.Duration) (*Stream, error) {
	for name, annotations := range map[string]map[string]string{
		WithIdentity:    {"lanyard.dev/aws-role-arn": "arn:aws:iam::111122223333:role/stream", "lanyard.dev/audience": "stream"},
		WithoutIdentity: nil,
	} {
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations}}
		if err := CreateServiceAccount(ctx, client.CoreV1().ServiceAccounts(namespace), account); err != nil {
			return nil, fmt.Errorf("start the stream: %w", err)
		}
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s := &Stream{client: client, namespace: namespace, retry: retry, cancel: cancel, drain: make(chan struct{})}
	s.reset()
	s.creators.Go(func() { s.run(ctx, time.Second/time.Duration(perSecond)) })
	return s, nil
}

// Await waits until count returns at least n for the results since the last call of Counts.
func (s *Stream) Await(ctx context.Context, n int, count func(*Counts) int) error {
	return process.Until(ctx, fmt.Sprintf("%d pods", n), awaitTimeout, func(context.Context) (bool, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		return count(&s.counts) >= n, nil
	})
}

// More waits until this many more pods have been counted.
func (s *Stream) More(ctx context.Context, pods int) error {
	s.mu.Lock()
	pods += s.counts.Pods()
	s.mu.Unlock()
	return s.Await(ctx, pods, (*Counts).Pods)
}

// CreateServiceAccount creates the ServiceAccount and retries while the webhook cannot be
// called: after an install, the Service needs a moment to reach the replicas, and
// the webhook for ServiceAccounts has failurePolicy Fail.
func CreateServiceAccount(ctx context.Context, client typedcorev1.ServiceAccountInterface, account *corev1.ServiceAccount) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, retryInterval, controlplane.Patience, true, func(ctx context.Context) (bool, error) {
		_, last = client.Create(ctx, account, metav1.CreateOptions{})
		return !apierrors.IsInternalError(last), nil
	})
	return errors.Join(last, err)
}

// WaitLabelled waits until the policies of deploy/policies make the API server label a
// ServiceAccount that asks for an identity. One that is written earlier would never get the
// label, and its pods no credentials.
func WaitLabelled(ctx context.Context, client kubernetes.Interface) error {
	ctx, cancel := context.WithTimeout(ctx, controlplane.Patience)
	defer cancel()
	probe := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "probe", Annotations: map[string]string{"lanyard.dev/audience": "probe"}}}
	return process.Poll(ctx, "a ServiceAccount to be labelled", func(ctx context.Context) error {
		created, err := client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Create(ctx, probe, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil && created.Labels["lanyard.dev/identity"] != "enabled" {
			err = errors.New("the ServiceAccount was not labelled")
		}
		return err
	})
}

func (s *Stream) run(ctx context.Context, every time.Duration) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	waiting := make(chan struct{}, atOnce)
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return
		case <-s.drain:
			return
		case <-ticker.C:
			waiting <- struct{}{}
		}
		// A slow request must not delay the next one.
		s.creators.Go(func() {
			s.create(ctx, i)
			<-waiting
		})
	}
}

func (s *Stream) create(ctx context.Context, i int) {
	account, outcome := WithIdentity, &s.counts.Identity
	if i%2 == 1 {
		account, outcome = WithoutIdentity, &s.counts.NoIdentity
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("stream-%d", i)},
		Spec:       corev1.PodSpec{ServiceAccountName: account, Containers: []corev1.Container{{Name: "main", Image: "none"}}},
	}
	start := time.Now()
	got, err := Create(ctx, s.client, s.namespace, pod)
	// The API server has not looked at a pod for which it is too busy.
	for apierrors.IsTooManyRequests(err) || account == WithIdentity && apierrors.IsForbidden(err) && time.Since(start) < s.retry {
		time.Sleep(retryInterval)
		got, err = Create(ctx, s.client, s.namespace, pod)
	}
	if ctx.Err() != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	took := time.Since(start)
	outcome.Slowest = max(outcome.Slowest, took)
	if took > time.Second {
		outcome.Late++
	}
	switch {
	case err != nil:
		// Some messages contain the pod's own name.
		outcome.Failed[strings.ReplaceAll(err.Error(), pod.Name, "stream-N")]++
	case account == WithIdentity && !HasIdentity(got):
		outcome.NotInjected++
	default:
		outcome.Created++
	}
}

// Create creates a pod in a dry run. It does not retry, but client-go does after some
// denials.
func Create(ctx context.Context, client kubernetes.Interface, namespace string, pod *corev1.Pod) (*corev1.Pod, error) {
	created := new(corev1.Pod)
	err := client.CoreV1().RESTClient().Post().Namespace(namespace).Resource("pods").MaxRetries(0).
		VersionedParams(&metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}, scheme.ParameterCodec).
		Body(pod).Do(ctx).Into(created)
	return created, err
}

// HasIdentity reports whether every container of a pod mounts the token volume.
func HasIdentity(pod *corev1.Pod) bool {
	const name = "bound-sa-token"
	return pod.Annotations["lanyard.dev/injected"] != "" &&
		slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Projected != nil && v.Name == name }) &&
		!slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool {
			return !slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == name })
		})
}

// Counts returns the results since the last call and resets them.
func (s *Stream) Counts() Counts {
	s.mu.Lock()
	defer s.mu.Unlock()
	counts := s.counts
	s.reset()
	return counts
}

func (s *Stream) reset() {
	s.counts = Counts{Identity: Outcome{Failed: map[string]int{}}, NoIdentity: Outcome{Failed: map[string]int{}}}
}

// Drain ends the stream, waits for the requests in flight and returns the results
// since the last call of Counts.
func (s *Stream) Drain() Counts {
	s.drained.Do(func() { close(s.drain) })
	s.creators.Wait()
	return s.Counts()
}

// Stop ends the stream. Requests in flight are not counted.
func (s *Stream) Stop() {
	s.cancel()
	s.creators.Wait()
}
