// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package framework

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
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
)

// Counts holds the results of the pods that a Stream created.
type Counts struct {
	// Identity is for pods whose ServiceAccount has an identity, NoIdentity for
	// all others.
	Identity, NoIdentity Outcome
	// Seconds is the duration.
	Seconds float64
}

// Outcome holds the results for one kind of pod.
type Outcome struct {
	Created     int // created as expected
	NotInjected int // created without the requested credentials
	Failed      map[string]int
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
	lines := []string{fmt.Sprintf("%d created, %d without credentials, %d failed", o.Created, o.NotInjected, o.Failures())}
	for _, message := range slices.Sorted(maps.Keys(o.Failed)) {
		lines = append(lines, fmt.Sprintf("%d × %s", o.Failed[message], message))
	}
	return strings.Join(lines, "\n  ")
}

// Rate returns the number of requests per second.
func (c *Counts) Rate() float64 {
	tried := c.Identity.Created + c.Identity.NotInjected + c.Identity.Failures() + c.NoIdentity.Created + c.NoIdentity.NotInjected + c.NoIdentity.Failures()
	return float64(tried) / c.Seconds
}

// Stream creates pods in dry runs at a constant rate, alternating between a
// ServiceAccount with an identity and one without. It does not retry failed
// pods.
type Stream struct {
	client    kubernetes.Interface
	namespace string
	cancel    context.CancelFunc
	creators  sync.WaitGroup

	mu     sync.Mutex
	counts Counts
	since  time.Time
}

// The ServiceAccounts in a stream's namespace.
const (
	accountWithIdentity = "with-identity"
	accountWithout      = "without-identity"
)

// StartStream creates the ServiceAccounts in the namespace and starts to create
// perSecond pods per second, until Stop is called.
func StartStream(ctx context.Context, client kubernetes.Interface, namespace string, perSecond int) (*Stream, error) {
	for name, annotations := range map[string]map[string]string{
		accountWithIdentity: {"lanyard.dev/aws-role-arn": "arn:aws:iam::111122223333:role/stream", "lanyard.dev/audience": "stream"},
		accountWithout:      nil,
	} {
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations}}
		if err := createAccount(ctx, client.CoreV1().ServiceAccounts(namespace), account); err != nil {
			return nil, fmt.Errorf("start the stream: %w", err)
		}
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s := &Stream{client: client, namespace: namespace, cancel: cancel}
	s.reset()
	s.creators.Go(func() { s.run(ctx, time.Second/time.Duration(perSecond)) })
	return s, nil
}

// createAccount creates the ServiceAccount and retries while the webhook cannot be
// called: after an install, the Service needs a moment to reach the replicas, and
// the webhook for ServiceAccounts has failurePolicy Fail.
func createAccount(ctx context.Context, client typedcorev1.ServiceAccountInterface, account *corev1.ServiceAccount) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, 30*time.Second, true, func(ctx context.Context) (bool, error) {
		_, last = client.Create(ctx, account, metav1.CreateOptions{})
		return !apierrors.IsInternalError(last), nil
	})
	return errors.Join(last, err)
}

func (s *Stream) run(ctx context.Context, every time.Duration) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		// A slow request must not delay the next one.
		s.creators.Go(func() { s.create(ctx, i) })
	}
}

func (s *Stream) create(ctx context.Context, i int) {
	account := accountWithIdentity
	if i%2 == 1 {
		account = accountWithout
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("stream-%d", i)},
		Spec:       corev1.PodSpec{ServiceAccountName: account, Containers: []corev1.Container{{Name: "main", Image: "none"}}},
	}
	got, err := s.client.CoreV1().Pods(s.namespace).Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if ctx.Err() != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	outcome := &s.counts.NoIdentity
	if account == accountWithIdentity {
		outcome = &s.counts.Identity
	}
	switch {
	case err != nil:
		// Some messages contain the pod's own name.
		outcome.Failed[strings.ReplaceAll(err.Error(), pod.Name, "stream-N")]++
	case account == accountWithIdentity && !HasIdentity(got):
		outcome.NotInjected++
	default:
		outcome.Created++
	}
}

// HasIdentity reports whether every container of a pod mounts the token volume.
func HasIdentity(pod *corev1.Pod) bool {
	volume := ""
	for _, v := range pod.Spec.Volumes {
		if v.Projected != nil && v.Name == "bound-sa-token" {
			volume = v.Name
		}
	}
	mounts := func(c *corev1.Container) bool {
		return slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == volume })
	}
	for i := range pod.Spec.Containers {
		if volume == "" || !mounts(&pod.Spec.Containers[i]) {
			return false
		}
	}
	return pod.Annotations["lanyard.dev/injected"] != ""
}

// Counts returns the results since the last call and resets them.
func (s *Stream) Counts() Counts {
	s.mu.Lock()
	defer s.mu.Unlock()
	counts := s.counts
	counts.Seconds = time.Since(s.since).Seconds()
	s.reset()
	return counts
}

func (s *Stream) reset() {
	s.counts = Counts{Identity: Outcome{Failed: map[string]int{}}, NoIdentity: Outcome{Failed: map[string]int{}}}
	s.since = time.Now()
}

// Stop ends the stream. Requests in flight are not counted.
func (s *Stream) Stop() {
	s.cancel()
	s.creators.Wait()
}
