// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ask answers one question for all commands: which credentials would a new pod
// get? It sends the API server the dry run of the pod. If the user may not create pods,
// it evaluates the rules of the webhook here, on the objects that the user can read.
//
//	ask.go     the question and its answer
//	denial.go  tells the denial of a pod from the other errors of a dry run
package ask

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/lanyard-dev/lanyard/internal/cli/cluster"
	"github.com/lanyard-dev/lanyard/internal/cli/command"
	"github.com/lanyard-dev/lanyard/internal/cli/rules"
	"github.com/lanyard-dev/lanyard/internal/probe"
	"github.com/lanyard-dev/lanyard/internal/reason"
	"github.com/lanyard-dev/lanyard/internal/settings"
)

// Answer is the credentials of a new pod. One of Pod, Denial and Err is set.
type Answer struct {
	// Pod is the pod as it would be stored.
	Pod *unstructured.Unstructured
	// Denial is why the pod would not be created.
	Denial *Denial
	// Err is why neither is known.
	Err error
	// Warnings are the warnings of the response.
	Warnings []string
	// Local is why the rules were evaluated here, and not by the cluster: a missing right, or
	// Options.NoDryRun. Other webhooks, policies and quotas were then not asked, and it is not
	// known whether the API server can call Lanyard. It is empty if the cluster was asked.
	Local string
	// Missing is the right that a dry run needs and the user lacks, such as "create pods in the
	// namespace shop"; empty if the user has it.
	Missing string
}

// Problem returns why no pod would be created, or why that is not known; nil if a pod
// would be created.
func (a *Answer) Problem() error {
	if a.Denial != nil {
		return a.Denial
	}
	return a.Err
}

// DefaultConcurrent is the default of Options.Concurrent.
const DefaultConcurrent = 8

// Options are the options of an Asker.
type Options struct {
	// Registration is the webhook configuration of Lanyard; nil if the user may not read it.
	Registration *admissionregistrationv1.MutatingWebhookConfiguration
	// Unread is why the settings are the built-in defaults; nil if they were read in the
	// cluster or from its configuration file. With it, a Local answer about a namespace that
	// Lanyard is called for is an error: a default, a provider or a limit of the cluster may
	// be missing here.
	Unread error
	// NoDryRun makes every answer Local.
	NoDryRun bool
	// Concurrent is the highest number of requests at the same time. Zero stands for
	// DefaultConcurrent.
	Concurrent int
}

// Asker asks for the credentials of new pods. It may be used concurrently.
type Asker struct {
	settings *settings.Settings
	options  Options
	probe    *probe.Client
	client   kubernetes.Interface
	slots    chan struct{}

	mu sync.Mutex
	// rights has the namespaces that were asked about, and whether the user may create pods.
	rights map[string]bool
}

// once makes the client try a dry run once. Lanyard asks for a retry of its retryable
// denials, which are the answer here: client-go would wait for seconds.
type once struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (o once) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := o.RoundTripper.RoundTrip(request)
	if err == nil && response.StatusCode == http.StatusInternalServerError {
		response.Header.Del("Retry-After")
	}
	return response, err
}

// New returns an Asker for a cluster. It does not change config.
func New(config *rest.Config, s *settings.Settings, o Options) (*Asker, error) {
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return once{next} })
	client, err := probe.NewClient(config)
	if err != nil {
		return nil, err
	}
	typed, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("create Kubernetes client: %w", err)
	}
	return &Asker{
		settings: s, options: o, probe: client, client: typed,
		slots: make(chan struct{}, cmp.Or(o.Concurrent, DefaultConcurrent)), rights: map[string]bool{},
	}, nil
}

// Ask returns the answer for a new pod of the namespace. serviceAccount is the
// ServiceAccount of the pod; nil if it was not read, which only a local evaluation needs. A
// namespace that was not read has only its name.
func (a *Asker) Ask(ctx context.Context, namespace, serviceAccount *metav1.ObjectMeta, pod *unstructured.Unstructured) Answer {
	if a.options.NoDryRun {
		return a.Evaluate(ctx, namespace, serviceAccount, pod)
	}
	allowed, errRight := a.mayCreatePods(ctx, namespace.Name)
	if errRight == nil && !allowed {
		right := "create pods in the namespace " + namespace.Name
		answer := a.local(ctx, "you may not "+right, namespace, serviceAccount, pod)
		answer.Missing = right
		return answer
	}
	defer a.slot()()
	got := a.probe.Create(ctx, namespace.Name, pod)
	answer := Answer{Pod: got.Pod, Warnings: got.Warnings}
	if got.Err != nil {
		answer.Pod, answer.Denial = nil, denial(a.settings.Keys, got.Err, errRight == nil)
		if answer.Denial == nil {
			answer.Err = errors.Join(got.Err, errRight)
		}
	}
	return answer
}

// Evaluate is Ask with Options.NoDryRun.
func (a *Asker) Evaluate(ctx context.Context, namespace, serviceAccount *metav1.ObjectMeta, pod *unstructured.Unstructured) Answer {
	return a.local(ctx, "--no-dry-run", namespace, serviceAccount, pod)
}

// slot waits until a request may be sent. The caller must call the function that it
// returns when the request has ended.
func (a *Asker) slot() (done func()) {
	a.slots <- struct{}{}
	return func() { <-a.slots }
}

// mayCreatePods reports whether the user may create pods in a namespace. The API server is asked
// once for each namespace, unless the request fails.
func (a *Asker) mayCreatePods(ctx context.Context, namespace string) (bool, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if allowed, known := a.rights[namespace]; known {
		return allowed, nil
	}
	defer a.slot()()
	allowed, err := command.May(ctx, a.client, "create", "pods", namespace)
	if err == nil {
		a.rights[namespace] = allowed
	}
	return allowed, err
}

// local evaluates the rules of the webhook here.
func (a *Asker) local(ctx context.Context, why string, namespace, serviceAccount *metav1.ObjectMeta, pod *unstructured.Unstructured) Answer {
	answer := Answer{Local: why}
	called, err := cluster.CalledFor(a.options.Registration, a.settings, namespace)
	switch {
	case err != nil:
		answer.Err = err
	case !called:
		answer.Pod = pod.DeepCopy()
	case serviceAccount == nil:
		answer.Err = errors.New("the ServiceAccount of the pod was not read")
	case a.options.Unread != nil:
		answer.Err = fmt.Errorf("%s, and the settings of the webhook could not be read: %w; pass its configuration file with --config", why, a.options.Unread)
	default:
		err = a.evaluate(ctx, namespace, serviceAccount, pod, &answer)
		if denied, isDenied := errors.AsType[*reason.Error](err); isDenied {
			answer.Denial = &Denial{By: ByLanyard, Reason: denied.Reason, Message: denied.Err.Error(), Err: fmt.Errorf("lanyard: %w", err)}
		} else if err != nil {
			answer.Err = fmt.Errorf("evaluate the rules of the webhook: %w", err)
		}
	}
	return answer
}

// evaluate fills in the pod that the webhook would make, and its warnings.
func (a *Asker) evaluate(ctx context.Context, namespace, serviceAccount *metav1.ObjectMeta, pod *unstructured.Unstructured, answer *Answer) error {
	all := rules.New(a.settings)
	all.AddNamespace(namespace)
	all.AddServiceAccount(namespace.Name, serviceAccount)
	raw, err := json.Marshal(pod.Object)
	if err != nil {
		return err
	}
	response, mutated, err := all.Pod(ctx, namespace.Name, serviceAccount.Name, raw)
	if err != nil {
		return err
	}
	for _, text := range response.Warnings { // in the form of the webhook's responses
		answer.Warnings = append(answer.Warnings, "lanyard: "+text)
	}
	answer.Pod = new(unstructured.Unstructured)
	return json.Unmarshal(mutated, &answer.Pod.Object)
}
