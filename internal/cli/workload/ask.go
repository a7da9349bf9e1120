// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package workload determines which credentials the pods of a workload have, and which a new
// pod would get. status lists them, and explain gives the reasons.
//
// An Asker sends the API server the dry run of a new pod. If the user may not create pods, it
// evaluates the rules of the webhook here, on the objects that the user can read. The state of an
// existing pod is the result of a comparison with a new pod. Namespace counts the pods of one
// namespace at a time, so its memory does not grow with the cluster. The function explain combines
// the answer about a new pod with a decision about the same pod.
//
//	ask.go                       the credentials of a new pod
//	state.go, shadow.go          the state of a running pod
//	reader.go                    the reads of both commands
//	restart.go                   how the pods of a workload are replaced
//	status.go, status_command.go the command status: pure, and its output
//	explain.go, explain_read.go, event.go, verify.go, explain_command.go
//	                             the command explain: pure, its own reads, its output
package workload

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/lanyard-dev/lanyard/internal/cli/cluster"
	"github.com/lanyard-dev/lanyard/internal/cli/command"
	"github.com/lanyard-dev/lanyard/internal/probe"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/pkg/mutate"
	"github.com/lanyard-dev/lanyard/pkg/mutate/reason"
)

// Answer describes the credentials of a new pod. One of Pod, Denial and Err is set.
type Answer struct {
	probe.Answer // Err is why neither Pod nor Denial is known
	// Denial is set if the pod would not be created.
	Denial *Denial
	// Local says why the rules were evaluated here and not by the cluster: because of a
	// missing right, or Options.NoDryRun. It is empty if the cluster was asked. A local
	// answer ignores other webhooks, policies and quotas, and does not show whether the API
	// server can call Lanyard.
	Local string
	// Missing is the missing right for a dry run, for example "create pods in the namespace
	// shop", or empty.
	Missing string
}

// Problem returns the reason why no pod would be created, or why that is unknown, or nil
// if a pod would be created.
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
	// Registration is the webhook configuration of Lanyard, or nil if the user may not read it.
	Registration *admissionregistrationv1.MutatingWebhookConfiguration
	// Unread is the error because of which the settings are the built-in defaults, or nil. If it is
	// set, a Local answer about a namespace that Lanyard is called for is an error, because
	// the cluster may have other defaults, providers or limits.
	Unread error
	// NoDryRun makes every answer Local.
	NoDryRun bool
	// Concurrent is the highest number of requests at the same time. Zero stands for
	// DefaultConcurrent.
	Concurrent int
}

// Asker asks for the credentials of new pods. It may be used concurrently.
type Asker struct {
	settings *annotations.Settings
	options  Options
	probe    *probe.Client
	client   kubernetes.Interface

	mu sync.Mutex
	// rights caches, by namespace, whether the user may create pods.
	rights map[string]bool
}

// transport limits concurrent requests to the number of slots, and keeps client-go from
// retrying a dry run. Lanyard asks for retries of some denials, which are the answer here.
type transport struct {
	http.RoundTripper
	slots chan struct{}
}

// RoundTrip implements http.RoundTripper.
func (t transport) RoundTrip(request *http.Request) (*http.Response, error) {
	t.slots <- struct{}{}
	defer func() { <-t.slots }()
	response, err := t.RoundTripper.RoundTrip(request)
	if err == nil && response.StatusCode == http.StatusInternalServerError {
		response.Header.Del("Retry-After")
	}
	return response, err
}

// NewAsker returns an Asker for a cluster. It does not change config.
func NewAsker(config *rest.Config, s *annotations.Settings, o Options) (*Asker, error) {
	config = rest.CopyConfig(config)
	slots := make(chan struct{}, cmp.Or(o.Concurrent, DefaultConcurrent))
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return transport{next, slots} })
	client, err := probe.NewClient(config)
	if err != nil {
		return nil, err
	}
	typed, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("create Kubernetes client: %w", err)
	}
	return &Asker{settings: s, options: o, probe: client, client: typed, rights: map[string]bool{}}, nil
}

// Ask returns the answer for a new pod of the namespace. serviceAccount is the
// ServiceAccount of the pod, or nil if it was not read, which only a local evaluation needs. A
// namespace that was not read has only its name.
func (a *Asker) Ask(ctx context.Context, namespace, serviceAccount *metav1.ObjectMeta, pod *unstructured.Unstructured) Answer {
	if a.options.NoDryRun {
		return a.local("--no-dry-run", namespace, serviceAccount, pod)
	}
	allowed, errRight := a.mayCreatePods(ctx, namespace.Name)
	if errRight == nil && !allowed {
		right := "create pods in the namespace " + namespace.Name
		answer := a.local("you may not "+right, namespace, serviceAccount, pod)
		answer.Missing = right
		return answer
	}
	answer := Answer{Answer: a.probe.Create(ctx, namespace.Name, pod)}
	if err := answer.Err; err != nil {
		answer.Pod, answer.Err, answer.Denial = nil, nil, denial(err, errRight == nil)
		if answer.Denial == nil {
			answer.Err = errors.Join(err, errRight)
		}
	}
	return answer
}

// mayCreatePods reports whether the user may create pods in a namespace. The API server is asked
// once for each namespace, unless the request fails.
func (a *Asker) mayCreatePods(ctx context.Context, namespace string) (bool, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if allowed, known := a.rights[namespace]; known {
		return allowed, nil
	}
	allowed, err := command.May(ctx, a.client, "create", "pods", namespace)
	if err == nil {
		a.rights[namespace] = allowed
	}
	return allowed, err
}

// local evaluates the rules of the webhook here.
func (a *Asker) local(why string, namespace, serviceAccount *metav1.ObjectMeta, pod *unstructured.Unstructured) Answer {
	answer := Answer{Local: why}
	switch {
	case !a.called(namespace, pod):
		answer.Pod = pod.DeepCopy()
	case serviceAccount == nil:
		answer.Err = errors.New("the ServiceAccount of the pod was not read")
	case a.options.Unread != nil:
		answer.Err = fmt.Errorf("%s, and the settings of the webhook could not be read: %w; pass its configuration file with --config", why, a.options.Unread)
	default:
		err := a.evaluate(namespace, serviceAccount, pod, &answer)
		if denied, isDenied := errors.AsType[*reason.Error](err); isDenied {
			answer.Denial = &Denial{By: ByLanyard, Reason: denied.Reason, Message: denied.Err.Error(), Err: fmt.Errorf("lanyard: %w", err)}
		} else if err != nil {
			answer.Err = fmt.Errorf("evaluate the rules of the webhook: %w", err)
		}
	}
	return answer
}

// called reports whether the API server calls Lanyard for the pod, judging by the webhook
// configuration.
func (a *Asker) called(namespace *metav1.ObjectMeta, pod *unstructured.Unstructured) bool {
	selected, _ := cluster.Selects(a.options.Registration, pod.GetLabels())
	return selected && cluster.CalledFor(a.options.Registration, a.settings, namespace)
}

// evaluate fills in the pod as the webhook would change it.
func (a *Asker) evaluate(namespace, serviceAccount *metav1.ObjectMeta, pod *unstructured.Unstructured, answer *Answer) error {
	raw, err := json.Marshal(pod.Object)
	if err != nil {
		return err
	}
	decision, err := decide(a.settings, namespace, serviceAccount, raw)
	if err != nil {
		return err
	}
	if raw, err = decision.Apply(raw); err != nil {
		return err
	}
	answer.Pod = new(unstructured.Unstructured)
	return json.Unmarshal(raw, &answer.Pod.Object)
}

// decide decides about the JSON of a new pod of the ServiceAccount, as the webhook does. The
// error is a *reason.Error if the webhook would deny the pod.
func decide(s *annotations.Settings, namespace, serviceAccount *metav1.ObjectMeta, pod []byte) (*mutate.Decision, error) {
	read, err := mutate.ReadPod(pod, s)
	if err != nil {
		return nil, err
	}
	return mutate.Decide(s, accountOf(namespace, serviceAccount), annotations.NamespaceObject(namespace), read)
}

// accountOf converts a ServiceAccount for a decision. It returns nil for nil.
func accountOf(namespace, serviceAccount *metav1.ObjectMeta) *annotations.Object {
	if serviceAccount == nil {
		return nil
	}
	account := annotations.ServiceAccountObject(serviceAccount)
	account.Namespace = namespace.Name
	return account
}

// Denier is the part of the cluster that denies a pod.
type Denier string

const (
	// ByLanyard means that the webhook denied the pod, and so was called.
	ByLanyard Denier = "lanyard"
	// ByGuard means that the guard denied the pod: it lacks its credentials.
	ByGuard Denier = "guard"
	// ByNoCall means that the API server could not call a Lanyard webhook with failurePolicy
	// Fail.
	ByNoCall Denier = "no-call"
	// ByFailedCall is like ByNoCall, for a webhook of another program.
	ByFailedCall Denier = "failed-call"
	// ByOther means that another webhook, a policy, a quota or the validation of the API
	// server denied the pod.
	ByOther Denier = "other"
)

// Denial describes why a pod would not be created.
type Denial struct {
	By Denier
	// Reason is the reason of ByLanyard.
	Reason reason.Reason
	// Message is Lanyard's message, without the reason, or the message of the API server.
	Message string
	// Err is the API server's error, or the same error if the rules were evaluated locally.
	Err error
}

// Error implements error.
func (d *Denial) Error() string { return d.Message }

// Unwrap returns Err.
func (d *Denial) Unwrap() error { return d.Err }

// ShowsCall reports whether the denial proves that the API server called Lanyard. The guard
// runs after the webhook. For a nil Denial, it returns false.
func (d *Denial) ShowsCall() bool { return d != nil && (d.By == ByLanyard || d.By == ByGuard) }

// isOthers reports whether another program than Lanyard denied the pod. For a nil Denial, it returns
// false.
func (d *Denial) isOthers() bool { return d != nil && (d.By == ByOther || d.By == ByFailedCall) }

// ownWebhook matches the name of a webhook of Lanyard in the message of a failed call.
var ownWebhook = regexp.MustCompile(regexp.QuoteMeta(`"`+cluster.PodWebhook+`"`) + "|" + regexp.QuoteMeta(`"`+probe.Webhook+`"`))

// lanyardDenial matches a denial by Lanyard, also by its policies: a reason and a message.
var lanyardDenial = regexp.MustCompile(` denied (?:the )?request: lanyard: ([a-z_]+): (?s:(.*))$`)

// guardSentence occurs in the messages of the policies in
// charts/lanyard/templates/guard.yaml, before a key of Lanyard.
const guardSentence = "needs credentials ("

// noDenials contains the status codes of errors that are not about the pod: the request did
// not reach admission, or the API server did not complete it.
var noDenials = []int32{
	http.StatusUnauthorized, http.StatusNotFound, http.StatusRequestTimeout, http.StatusTooManyRequests,
	http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout,
}

// denial returns the denial of a pod, or nil for another error. authorized reports whether
// the user is known to have the right to create pods: the API server returns 403 for a
// missing right and for a denial of the pod.
func denial(err error, authorized bool) *Denial {
	var response apierrors.APIStatus
	if !errors.As(err, &response) {
		return nil
	}
	status := response.Status()
	if match := lanyardDenial.FindStringSubmatch(status.Message); match != nil && slices.Contains(reason.All(), reason.Reason(match[1])) {
		return &Denial{By: ByLanyard, Reason: reason.Reason(match[1]), Message: match[2], Err: err}
	}
	d := &Denial{By: ByOther, Message: status.Message, Err: err}
	switch {
	case strings.Contains(status.Message, guardSentence+"label "+annotations.IdentityLabel), strings.Contains(status.Message, guardSentence+annotations.Inject):
		d.By = ByGuard
	case failedCall(&status) && ownWebhook.MatchString(status.Message):
		d.By = ByNoCall
	case failedCall(&status):
		d.By = ByFailedCall
	case slices.Contains(noDenials, status.Code), status.Reason == metav1.StatusReasonForbidden && !authorized:
		return nil
	}
	return d
}

// failedCall reports whether the API server could not call a webhook: such an error has
// the error of the call as its cause.
func failedCall(status *metav1.Status) bool {
	return status.Reason == metav1.StatusReasonInternalError && status.Details != nil &&
		slices.ContainsFunc(status.Details.Causes, func(cause metav1.StatusCause) bool {
			return strings.HasPrefix(cause.Message, "failed calling webhook ")
		})
}
