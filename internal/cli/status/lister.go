// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/lanyard-dev/lanyard/internal/cli/ask"
	"github.com/lanyard-dev/lanyard/internal/cli/check"
	"github.com/lanyard-dev/lanyard/internal/cli/cluster"
	"github.com/lanyard-dev/lanyard/internal/cli/command"
	"github.com/lanyard-dev/lanyard/internal/injected"
	"github.com/lanyard-dev/lanyard/internal/settings"
)

// The load on the API server. Dry runs are few at a time: each passes every admission
// webhook of the cluster.
const (
	requestsPerSecond = 50
	requestsAtOnce    = 300
	dryRunsAtOnce     = 4
)

// Skipped is something that could not be read, because the user lacks a right.
type Skipped struct {
	Namespace string `json:"namespace,omitempty"`
	// Effect is the part of the result that is missing or not certain.
	Effect string `json:"effect"`
	// Why is the error of the API server, which names the right.
	Why string `json:"why"`
}

// part is the result for one namespace.
type part struct {
	rows    []Row
	skipped []Skipped
}

// lister reads the objects of a cluster.
type lister struct {
	*command.CLI
	settings *settings.Settings
	typed    kubernetes.Interface
	metadata metadata.Interface
	// cluster sends dry runs, and local evaluates the rules of the webhook here.
	cluster, local *ask.Asker
	// unread is why local cannot be used; nil if it can.
	unread error
	// noGuard reports whether the cluster has no guard, so that labels have no effect.
	noGuard bool
	// namespaces are the namespaces to look at.
	namespaces map[string]*Namespace
	// skipped is about all namespaces.
	skipped []Skipped
}

// eachNamespace calls do for each namespace that has rows, or something that was skipped.
func eachNamespace(ctx context.Context, c *command.CLI, scope string, noDryRun bool, do func(*part) error) error {
	l, err := newLister(ctx, c, noDryRun)
	if err != nil {
		return err
	}
	defer c.Progress("reading ServiceAccounts")()
	if err := l.readNamespaces(ctx, scope); err != nil {
		return err
	}
	err = c.EachServiceAccount(ctx, scope, func(object *metav1.PartialObjectMetadata) error {
		if n := l.namespaces[object.Namespace]; n != nil {
			n.AddServiceAccount(object)
		}
		return nil
	})
	if err != nil {
		return named(err, scope)
	}
	maps.DeleteFunc(l.namespaces, func(_ string, n *Namespace) bool { return n.Empty() })
	if len(l.skipped) > 0 {
		if err := do(&part{skipped: l.skipped}); err != nil {
			return err
		}
	}
	progress, total := c.Periodically(), len(l.namespaces)
	for i, name := range slices.Sorted(maps.Keys(l.namespaces)) {
		progress("%d of %d namespaces ...", i, total)
		found, err := l.part(ctx, l.namespaces[name])
		if err != nil {
			return err
		}
		delete(l.namespaces, name) // with its pods
		if err := do(found); err != nil {
			return err
		}
	}
	return nil
}

// newLister returns a lister. A user who may not read the webhook configuration gets the
// answer without it.
func newLister(ctx context.Context, c *command.CLI, noDryRun bool) (*lister, error) {
	s, err := c.Settings(ctx)
	if err != nil {
		return nil, err
	}
	config, err := c.Config()
	if err != nil {
		return nil, err
	}
	config.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(requestsPerSecond, requestsAtOnce)
	l := &lister{CLI: c, settings: s, unread: c.Webhook.Unread, namespaces: map[string]*Namespace{}}
	options := ask.Options{NoDryRun: noDryRun, Concurrent: dryRunsAtOnce}
	// Pods are large, and faster to read in this form.
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	if l.typed, err = kubernetes.NewForConfig(config); err != nil {
		return nil, fmt.Errorf("create Kubernetes client: %w", err)
	}
	if l.metadata, err = metadata.NewForConfig(config); err != nil {
		return nil, fmt.Errorf("create Kubernetes client: %w", err)
	}
	options.Registration, err = c.Installation(ctx, l.typed)
	if apierrors.IsForbidden(err) {
		l.skip("", "labels and settings decide for which namespaces Lanyard is called", err)
	} else if err != nil {
		return nil, err
	} else if err := l.readGuard(ctx, options.Registration); err != nil {
		return nil, err
	}
	if l.cluster, err = ask.New(config, s, options); err != nil {
		return nil, err
	}
	options.NoDryRun = true
	l.local, err = ask.New(config, s, options)
	return l, err
}

// readGuard looks for the guard.
func (l *lister) readGuard(ctx context.Context, mutating *admissionregistrationv1.MutatingWebhookConfiguration) error {
	problem, _, err := check.ReadGuard(ctx, l.typed.AdmissionregistrationV1(), mutating)
	switch {
	case err == nil:
		l.noGuard = problem != ""
	case apierrors.IsForbidden(err):
		l.skip("", "a guarded ServiceAccount has the label, but it is not known whether there is a guard", err)
	default:
		return fmt.Errorf("guard of %s: %w", mutating.Name, err)
	}
	return nil
}

// skip adds something that could not be read.
func (l *lister) skip(namespace, effect string, err error) {
	l.skipped = append(l.skipped, Skipped{Namespace: namespace, Effect: effect, Why: err.Error()})
}

// readNamespaces reads one namespace, or all.
func (l *lister) readNamespaces(ctx context.Context, scope string) error {
	add := func(meta *metav1.ObjectMeta) error {
		called, err := l.local.Called(meta)
		meta.ManagedFields = nil // which can be large
		l.namespaces[meta.Name] = NewNamespace(l.settings, meta, called)
		return err
	}
	client := l.metadata.Resource(command.CoreResource("namespaces"))
	if scope != metav1.NamespaceAll {
		found, err := client.Get(ctx, scope, metav1.GetOptions{})
		if apierrors.IsForbidden(err) {
			l.skip(scope, "the labels and the policy of the namespace are unknown", err)
			l.unread = cmp.Or(l.unread, err)
			return add(&metav1.ObjectMeta{Name: scope})
		}
		if err != nil {
			return fmt.Errorf("namespace %s: %w", scope, err)
		}
		return add(&found.ObjectMeta)
	}
	err := command.EachPage(ctx, client.List, func(page *metav1.PartialObjectMetadataList) error {
		for i := range page.Items {
			if err := add(&page.Items[i].ObjectMeta); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return named(fmt.Errorf("list namespaces: %w", err), scope)
	}
	return nil
}

// named returns the error of a list, with a way out for a user who may not list in all
// namespaces.
func named(err error, scope string) error {
	if apierrors.IsForbidden(err) && scope == metav1.NamespaceAll {
		return fmt.Errorf("%w. Name a namespace with --namespace", err)
	}
	return err
}

// part reads the pods of a namespace and their owners, asks for the credentials of new
// pods, and returns the rows.
func (l *lister) part(ctx context.Context, n *Namespace) (*part, error) {
	l.skipped = nil
	err := command.EachPage(ctx, l.typed.CoreV1().Pods(n.Name).List, func(page *corev1.PodList) error {
		for i := range page.Items {
			n.AddPod(&page.Items[i])
		}
		return nil
	})
	if apierrors.IsForbidden(err) {
		l.skip(n.Name, "the pods of the namespace are not counted", err)
		return &part{skipped: l.skipped}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list pods: %w", err)
	}
	for kinds := n.UnreadOwners(); len(kinds) > 0; kinds = n.UnreadOwners() {
		for i := range kinds {
			kind := &kinds[i]
			err := command.EachPage(ctx, l.metadata.Resource(kind.Resource).Namespace(n.Name).List, func(page *metav1.PartialObjectMetadataList) error {
				for i := range page.Items {
					n.AddOwner(kind, &page.Items[i])
				}
				return nil
			})
			if apierrors.IsForbidden(err) {
				l.skip(n.Name, "pods with an owner of the kind "+kind.Kind+" are listed by their own names", err)
			} else if err != nil {
				return nil, fmt.Errorf("list %s: %w", kind.Resource.Resource, err)
			}
		}
	}
	rows := n.Rows(l.ask(ctx, n))
	for i := range rows {
		if l.noGuard && rows[i].Guard == cluster.GuardOn {
			rows[i].Guard = cluster.GuardOff
		}
	}
	return &part{rows: rows, skipped: l.skipped}, nil
}

// ask returns the contents of new pods. The rules of the webhook are evaluated here. The
// cluster is asked if a pod differs from the result, and if the rules are not known.
func (l *lister) ask(ctx context.Context, n *Namespace) map[Question]*Answer {
	answers := map[Question]*Answer{}
	var mu sync.Mutex
	set := func(q Question, answer *Answer) {
		mu.Lock()
		defer mu.Unlock()
		answers[q] = answer
	}
	var group errgroup.Group
	group.SetLimit(dryRunsAtOnce)
	for _, q := range n.Questions() {
		if l.unread == nil {
			if answer := l.answer(ctx, l.local, n, q); n.Confirms(q, answer) {
				set(q, answer)
				continue
			}
		}
		group.Go(func() error {
			set(q, l.answer(ctx, l.cluster, n, q))
			return nil
		})
	}
	_ = group.Wait() // no function returns an error
	return answers
}

// answer asks one question.
func (l *lister) answer(ctx context.Context, asker *ask.Asker, n *Namespace, q Question) *Answer {
	pod := l.ProbePod(q.ServiceAccount)
	if q.Expiration != "" {
		pod.SetAnnotations(map[string]string{l.settings.Keys.TokenExpirationSeconds: q.Expiration})
	}
	if q.Windows {
		// Not spec.os: the API server would deny the pod's security context.
		pod.Object["spec"].(map[string]any)["nodeSelector"] = map[string]any{corev1.LabelOSStable: string(corev1.Windows)}
	}
	got := asker.Ask(ctx, &n.ObjectMeta, n.ServiceAccount(q.ServiceAccount), pod)
	if got.Denial != nil && got.Denial.By == ask.ByOther && l.unread == nil {
		// The pod of the dry run was denied. The pods of the workload have other fields.
		answer := l.answer(ctx, l.local, n, q)
		answer.Local = "the pod of the dry run was denied, but not by Lanyard: " + got.Denial.Error()
		return answer
	}
	answer := &Answer{}
	if got.Missing != nil {
		answer.Local = "you may not " + got.Missing.String()
	} else if got.Local {
		answer.Local = "--no-dry-run"
	}
	var err error
	switch {
	case got.Local && l.unread != nil:
		answer.Problem = fmt.Sprintf("the credentials of a new pod are unknown: %s, and the settings of the webhook could not be read: %v. "+
			"Pass the webhook's configuration file with --config.", answer.Local, l.unread)
	case got.Denial != nil:
		answer.Problem = "a new pod is denied: " + got.Denial.Error()
	case got.Err != nil:
		answer.Problem = got.Err.Error()
	default:
		if answer.Pod, err = injected.Read(got.Pod.Object, l.settings.Keys); err != nil {
			answer.Pod, answer.Problem = nil, err.Error()
		}
	}
	return answer
}
