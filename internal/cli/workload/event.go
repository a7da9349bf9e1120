// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lanyard-dev/lanyard/internal/cause"
	"github.com/lanyard-dev/lanyard/internal/cli/command"
	"github.com/lanyard-dev/lanyard/internal/finding"
	"github.com/lanyard-dev/lanyard/pkg/mutate"
	"github.com/lanyard-dev/lanyard/pkg/mutate/injected"
)

// printEvent writes the finding about the newest event.
func printEvent(p *command.Page, f *finding.Finding) {
	if f == nil {
		return
	}
	p.Line("")
	p.Line("newest event: %s", p.Style(command.Bad, f.Reason))
	p.Text(2, "", f.About+": "+f.Text)
	printFix(p, f.Fix, f.Link)
}

const (
	failedMount  = "FailedMount"
	failedCreate = "FailedCreate"
	// recent is longer than a kubelet waits before it retries a mount.
	recent = 5 * time.Minute
	// maxOwners limits the objects that are read to find those of the workload, and the owners of each.
	maxOwners = 10
)

// event returns the finding about the newest event that explains why a pod has no token or
// was not created, or nil if there is none or it is outdated.
func (x *explainer) event(ctx context.Context, in *input, n *NewPod) (*finding.Finding, error) {
	if x.info.Mapping.Resource == command.CoreResource("serviceaccounts") {
		return nil, nil
	}
	targets := []string{in.Object}
	if in.Live != nil {
		if owner := metav1.GetControllerOf(in.Live); owner != nil {
			targets = append(targets, strings.ToLower(owner.Kind)+"/"+owner.Name)
		}
	}
	events, err := x.events(ctx, targets)
	if x.lacks(err, "the newest event about the token of the pod") {
		return nil, nil
	}
	read := map[types.UID]bool{} // an object may have the name of one that is gone
	for i := range events {
		event := &events[i]
		uid := event.InvolvedObject.UID
		if read[uid] || len(read) == maxOwners {
			continue
		}
		read[uid] = true
		object, err := x.involved(ctx, event, targets)
		if err != nil {
			return nil, err
		}
		if object == nil || x.isOver(ctx, event, object) {
			continue
		}
		return newEvent(event, n), nil
	}
	return nil, err
}

// objectOf returns the object of an event, for example pod/cart-0.
func objectOf(event *corev1.Event) string {
	return strings.ToLower(event.InvolvedObject.Kind) + "/" + event.InvolvedObject.Name
}

// events returns the events that may be about the targets or their pods, the newest first.
func (x *explainer) events(ctx context.Context, targets []string) ([]corev1.Event, error) {
	var found []corev1.Event
	for _, reason := range []string{failedMount, failedCreate} {
		list, err := x.list(ctx, fields.Set{"reason": reason})
		if err != nil {
			return nil, err
		}
		for i := range list {
			if isAbout(&list[i], targets) {
				found = append(found, list[i])
			}
		}
	}
	slices.SortStableFunc(found, func(a, b corev1.Event) int { return last(&b).Compare(last(&a)) })
	return found, nil
}

// list returns the events of the namespace with these fields.
func (x *explainer) list(ctx context.Context, set fields.Set) ([]corev1.Event, error) {
	list, err := x.typed.CoreV1().Events(x.info.Namespace).List(ctx, metav1.ListOptions{FieldSelector: set.String()})
	if err != nil {
		return nil, fmt.Errorf("list events: %w", err)
	}
	return list.Items, nil
}

// isAbout reports whether an event may be about one of the targets, judging by the names.
func isAbout(event *corev1.Event, targets []string) bool {
	if event.Reason == failedMount && !slices.ContainsFunc([]string{`"` + mutate.VolumeName + `"`, `"` + mutate.FallbackVolumeName + `"`, "failed to fetch token"},
		func(part string) bool { return strings.Contains(event.Message, part) }) {
		return false
	}
	return slices.ContainsFunc(targets, func(target string) bool {
		_, name, _ := strings.Cut(target, "/")
		return objectOf(event) == target || strings.HasPrefix(event.InvolvedObject.Name, name+"-")
	})
}

// last returns the last time an event occurred.
func last(event *corev1.Event) time.Time {
	at := event.LastTimestamp.Time
	if event.EventTime.After(at) {
		at = event.EventTime.Time
	}
	if event.Series != nil && event.Series.LastObservedTime.After(at) {
		at = event.Series.LastObservedTime.Time
	}
	return at
}

// involved returns the object of an event if it is one of the targets or belongs to one, or else
// nil.
func (x *explainer) involved(ctx context.Context, event *corev1.Event, targets []string) (*unstructured.Unstructured, error) {
	about := event.InvolvedObject
	var found *unstructured.Unstructured
	next := &metav1.OwnerReference{APIVersion: about.APIVersion, Kind: about.Kind, Name: about.Name, UID: about.UID}
	for n := 0; next != nil && n < maxOwners; n++ { // users can write references in a circle
		object, err := x.ownerOf(ctx, next)
		if apierrors.IsNotFound(err) || err == nil && (object == nil || object.GetUID() != next.UID) {
			return nil, nil
		}
		if err != nil {
			return nil, fmt.Errorf("the object of an event: %w", err)
		}
		if found = cmp.Or(found, object); slices.Contains(targets, strings.ToLower(next.Kind)+"/"+next.Name) {
			return found, nil
		}
		next = metav1.GetControllerOf(object)
	}
	return nil, nil
}

// isOver reports whether an event is outdated. Kubelets do not report success.
func (x *explainer) isOver(ctx context.Context, event *corev1.Event, object *unstructured.Unstructured) bool {
	at := last(event)
	if event.Reason == failedMount {
		phase, _, _ := unstructured.NestedString(object.Object, "status", "phase")
		return phase != string(corev1.PodPending) && time.Since(at) > recent
	}
	created, err := x.list(ctx, fields.Set{"reason": "SuccessfulCreate", "involvedObject.uid": string(object.GetUID())})
	return err == nil && slices.ContainsFunc(created, func(e corev1.Event) bool { return last(&e).After(at) })
}

// newEvent describes an event. It returns nil if the outcome for a new pod already contains it.
func newEvent(event *corev1.Event, n *NewPod) *finding.Finding {
	f := &finding.Finding{
		Status: finding.Failed, About: objectOf(event), Reason: event.Reason, Text: event.Message + "; last at " + last(event).UTC().Format(time.RFC3339),
		Fix: "Correct what the message names.", Link: finding.Page("troubleshooting/pods-denied.md"),
	}
	switch {
	case event.Reason == failedMount:
		why := cause.Kubelet(event.Message)
		f.Fix, f.Link = why.Advice(), finding.Page(why.Link)
	case n.Outcome == Denied:
		return nil
	case n.Outcome != injected.Unknown && !n.Local:
		f.Status, f.Fix, f.Link = finding.Warning, "A pod would be created now. Wait until the controller tries again.", finding.Page("troubleshooting/pods-denied.md#which-controllers-retry")
	case strings.Contains(event.Message, "failed calling webhook") && strings.Contains(event.Message, ".lanyard.dev"):
		f.Fix, f.Link = callFix(event.Message)
	}
	return f
}

// callFix returns the fix and its page for an error that the API server returned for a call to the
// webhook.
func callFix(message string) (fix, link string) {
	why := cause.Webhook(message)
	return why.Advice(), finding.Page(why.Link)
}
