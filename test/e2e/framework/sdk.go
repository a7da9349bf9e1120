// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package framework

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/yaml"

	"github.com/lanyard-dev/lanyard/test/e2e/clouds/journal"
	"github.com/lanyard-dev/lanyard/test/support/podstream"
	"github.com/lanyard-dev/lanyard/test/support/process"
)

// The languages of the SDK programs.
const (
	Go     = "Go"
	Node   = "Node.js"
	Python = "Python"
)

// Languages returns all languages in the order of a report.
func Languages() []string { return []string{Go, Node, Python} }

// AllClouds returns the built-in clouds in the order of a report.
func AllClouds() []string { return []string{journal.AWS, journal.Azure, journal.GCP} }

// CustomClouds returns the custom providers in the order of a report. Only the SDK program
// in Go knows them.
func CustomClouds() []string {
	return []string{journal.Alibaba, journal.IBM, journal.Vault, journal.Anthropic, journal.OpenAI, journal.Snowflake}
}

// SDKContainer is the name of the container with an SDK program.
const SDKContainer = "credentials"

// Result is the report of an SDK program about one cloud.
type Result struct {
	Cloud string
	// Credential is the SHA-256 of the credential, in hexadecimal.
	Credential string
	Expires    time.Time
	// Error is the SDK's error.
	Error string
	// Target and Method are set by the log forwarder only.
	Target, Method string
}

// sdkImages are the images by language.
var sdkImages = map[string]string{Go: SDKGoImage, Node: SDKNodeImage, Python: SDKPythonImage}

// SDK returns a container that gets a credential from each of the clouds with
// the default credential chain of the language's SDKs. It meets the Pod
// Security level restricted.
func SDK(language string, args ...string) corev1.Container {
	return corev1.Container{
		Name: SDKContainer, Image: sdkImages[language], ImagePullPolicy: corev1.PullNever, Args: args,
		SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: new(false), RunAsNonRoot: new(true), ReadOnlyRootFilesystem: new(true),
			Capabilities:   &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
	}
}

// SDKPod returns a pod with one such container, which runs once. The pod's name
// begins with the ServiceAccount's name.
func SDKPod(account, language string, args ...string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: account + "-"},
		Spec: corev1.PodSpec{
			ServiceAccountName: account, RestartPolicy: corev1.RestartPolicyNever,
			TerminationGracePeriodSeconds: new(int64(1)),
			Containers:                    []corev1.Container{SDK(language, args...)},
		},
	}
}

// Results returns everything that the SDK program has reported so far.
func (c *Cluster) Results(ctx context.Context, pod *corev1.Pod, container string) ([]Result, error) {
	text, err := c.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{Container: container}).DoRaw(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the log of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	results, err := decodeLines[Result](text)
	if err != nil {
		return nil, fmt.Errorf("decode the log of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return results, nil
}

// DebugOptions returns the file for kubectl debug --custom that redirects an
// ephemeral container like the pod's other containers.
func (c *Clouds) DebugOptions() ([]byte, error) {
	return json.Marshal(corev1.Container{Env: redirectEnv(), VolumeMounts: []corev1.VolumeMount{redirectMount()}})
}

// WaitContainer waits until done reports true for the state of a container, and
// returns the pod. An error of the container is not the end: the kubelet tries again, for
// example if the container engine took too long.
func (c *Cluster) WaitContainer(ctx context.Context, pod *corev1.Pod, container string, done func(*corev1.ContainerState) bool) (*corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	var last *corev1.Pod
	err := process.Poll(ctx, fmt.Sprintf("container %s of pod %s/%s", container, pod.Namespace, pod.Name), func(ctx context.Context) error {
		got, err := c.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if state := containerState(got, container); !done(state) {
			return fmt.Errorf("got the state %v, want another one", state)
		}
		last = got
		return nil
	})
	return last, err
}

// Terminated reports whether the container has ended, for WaitContainer.
func Terminated(state *corev1.ContainerState) bool { return state.Terminated != nil }

// Started reports whether the container is running or has ended, for
// WaitContainer.
func Started(state *corev1.ContainerState) bool {
	return state.Running != nil || state.Terminated != nil
}

// containerState returns the state of a container of any kind.
func containerState(pod *corev1.Pod, name string) *corev1.ContainerState {
	for _, status := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses, pod.Status.EphemeralContainerStatuses) {
		if status.Name == name {
			return &status.State
		}
	}
	return &corev1.ContainerState{}
}

// CreateNamespace creates a namespace that enforces the Pod Security level
// restricted. If a namespace of that name is being deleted, it waits for that
// to finish.
func (c *Cluster) CreateNamespace(ctx context.Context, name string, labels map[string]string) error {
	all := map[string]string{"pod-security.kubernetes.io/enforce": "restricted"}
	maps.Copy(all, labels)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: all}}
	return c.RetryWhileDeleted(ctx, name, func() error {
		_, err := c.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{})
		return err
	})
}

// RetryWhileDeleted retries the creation of a namespace while another namespace
// of that name is being deleted.
func (c *Cluster) RetryWhileDeleted(ctx context.Context, name string, create func() error) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, Patience, true, func(ctx context.Context) (bool, error) {
		if last = create(); !apierrors.IsAlreadyExists(last) {
			return true, last
		}
		old, err := c.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		if err == nil && old.DeletionTimestamp == nil {
			return false, last
		}
		return false, err
	})
	if wait.Interrupted(err) {
		return errors.Join(err, last)
	}
	return err
}

// SetUp creates a namespace with the ServiceAccounts of a YAML list, and with
// the emulators' CA for redirected pods.
func (c *Cluster) SetUp(ctx context.Context, clouds *Clouds, namespace string, labels map[string]string, accounts []byte) error {
	if err := c.CreateNamespace(ctx, namespace, labels); err != nil {
		return err
	}
	if err := clouds.TrustIn(ctx, namespace); err != nil {
		return err
	}
	return c.CreateAccounts(ctx, namespace, accounts)
}

// CreateAccounts creates the ServiceAccounts of a YAML list.
func (c *Cluster) CreateAccounts(ctx context.Context, namespace string, accounts []byte) error {
	var list corev1.ServiceAccountList
	if err := yaml.UnmarshalStrict(accounts, &list); err != nil {
		return fmt.Errorf("decode the ServiceAccounts: %w", err)
	}
	for i := range list.Items {
		if err := podstream.CreateServiceAccount(ctx, c.CoreV1().ServiceAccounts(namespace), &list.Items[i]); err != nil {
			return fmt.Errorf("create the ServiceAccount %s/%s: %w", namespace, list.Items[i].Name, err)
		}
	}
	return nil
}

// DeleteNamespace deletes a namespace with its contents. It does not wait until
// the deletion has finished.
func (c *Cluster) DeleteNamespace(ctx context.Context, name string) error {
	return c.CoreV1().Namespaces().Delete(ctx, name, metav1.DeleteOptions{})
}

// WaitInjected waits until a new pod of the ServiceAccount is injected, and the ServiceAccount
// can be written. After an install, it takes a moment until the API server calls the webhooks
// through the Service.
func (c *Cluster) WaitInjected(ctx context.Context, namespace, account string) error {
	probe := SDKPod(account, Go, journal.AWS)
	written := []byte(`{"metadata": {"annotations": {"example.com/any": "true"}}}`)
	dryRun := []string{metav1.DryRunAll}
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	return process.Poll(ctx, "a pod of the ServiceAccount "+namespace+"/"+account+" to be injected", func(ctx context.Context) error {
		pod, err := c.CoreV1().Pods(namespace).Create(ctx, probe, metav1.CreateOptions{DryRun: dryRun})
		if err == nil && !podstream.HasIdentity(pod) {
			err = errors.New("the pod was not injected")
		}
		if err == nil {
			_, err = c.CoreV1().ServiceAccounts(namespace).Patch(ctx, account, types.MergePatchType, written, metav1.PatchOptions{DryRun: dryRun})
		}
		return err
	})
}
