// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"errors"
	"maps"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/lanyard-dev/lanyard/internal/cli/cluster"
	"github.com/lanyard-dev/lanyard/internal/cli/command"
	"github.com/lanyard-dev/lanyard/internal/finding"
	"github.com/lanyard-dev/lanyard/internal/options"
	"github.com/lanyard-dev/lanyard/internal/peer"
	"github.com/lanyard-dev/lanyard/internal/probe"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/pkg/mutate"
	"github.com/lanyard-dev/lanyard/pkg/mutate/injected"
	"github.com/lanyard-dev/lanyard/pkg/mutate/reason"
	"github.com/lanyard-dev/lanyard/test/support/inject"
	"github.com/lanyard-dev/lanyard/test/support/peers"
)

const (
	role = "arn:aws:iam::111122223333:role/cart"
	path = "/var/run/secrets/lanyard.dev/serviceaccount"
)

func newSettings(t *testing.T) *annotations.Settings {
	t.Helper()
	s, err := options.New().Settings(annotations.CommonAPIServerAudiences())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// unstructuredOf returns the same pod, as the API server returns it.
func unstructuredOf(pod *corev1.Pod) *unstructured.Unstructured {
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(pod)
	if err != nil {
		panic(err) // a typed pod can be converted
	}
	return &unstructured.Unstructured{Object: object}
}

// newPod returns a pod before Lanyard changes it.
func newPod() *corev1.Pod {
	return &corev1.Pod{Spec: corev1.PodSpec{ServiceAccountName: "cart", Containers: []corev1.Container{{Name: "main"}}}}
}

// injectedPod returns newPod after injection.
func injectedPod(t *testing.T, role string) *corev1.Pod {
	t.Helper()
	return injectPod(t, newPod(), role)
}

// injectPod returns the pod as Lanyard changes it for a role.
func injectPod(t *testing.T, pod *corev1.Pod, role string) *corev1.Pod {
	t.Helper()
	return injectFor(t, pod, map[string]string{annotations.AWSRoleARN: role})
}

// injectFor is injectPod with the annotations of the ServiceAccount.
func injectFor(t *testing.T, pod *corev1.Pod, values map[string]string) *corev1.Pod {
	t.Helper()
	return inject.Pod(t, newSettings(t), &annotations.Object{Namespace: "shop", Name: "cart", Annotations: values}, pod)
}

// newInput returns a case in which a new pod is injected. Each test changes it.
func newInput(t *testing.T) *input {
	t.Helper()
	return &input{
		Object: "deployment/cart", Named: true,
		Namespace:          NewNamespace(newSettings(t), &metav1.ObjectMeta{Name: "shop"}, nil),
		ServiceAccountName: "cart",
		ServiceAccount: &metav1.ObjectMeta{
			Name: "cart", Annotations: map[string]string{"lanyard.dev/aws-role-arn": role}, Labels: map[string]string{"lanyard.dev/identity": "enabled"},
		},
		Sent: unstructuredOf(newPod()), Answer: Answer{Answer: probe.Answer{Pod: unstructuredOf(injectedPod(t, role))}},
	}
}

// denied returns the answer about a pod that is denied.
func denied(by Denier, message string) *Answer {
	return &Answer{Denial: &Denial{By: by, Message: message}}
}

// waiting changes the ServiceAccount to one that needs an identity but does not ask for it yet.
func waiting(in *input, values map[string]string) {
	in.Answer.Pod, in.ServiceAccount.Annotations, in.ServiceAccount.Labels = nil, values, map[string]string{"lanyard.dev/identity": "required"}
}

// expectNextSteps checks that each finding about a problem has a next step.
func expectNextSteps(t *testing.T, e *Explanation) {
	t.Helper()
	for _, f := range e.Findings {
		if isFine := f.Status == finding.OK || f.Status == finding.NotApplicable; !isFine && f.Fix == "" || f.Status == finding.OK && f.Fix != "" || f.About == "" || f.Text == "" {
			t.Errorf("got the finding %+v", f)
		}
		if textAfterCommand.MatchString(f.Fix) {
			t.Errorf("got the fix %q, want the command at its end", f.Fix)
		}
	}
}

// textAfterCommand matches a fix with text after its command, which users could not paste.
var textAfterCommand = regexp.MustCompile(`: (?:kubectl|lanyard) .*\.(?: |$)`)

func TestNewPods(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change  func(*input)
		outcome injected.State
		reason  reason.Reason
		why     string
		problem bool
	}{
		"an identity is injected": {func(*input) {}, Injected, reason.Injected, "a new pod gets aws", false},
		"the ServiceAccount does not exist": {
			func(in *input) { in.ServiceAccount, in.Absent, in.Answer.Pod = nil, true, nil },
			Denied, reason.ServiceAccountNotFound, "the ServiceAccount cart does not exist", true,
		},
		"the ServiceAccount asks for nothing": {
			func(in *input) { in.ServiceAccount.Annotations, in.Answer.Pod = nil, unstructuredOf(newPod()) },
			injected.None, reason.NoIdentity, "the ServiceAccount cart has no annotation that asks for an identity", false,
		},
		"the annotation has no prefix": {
			func(in *input) {
				in.ServiceAccount.Annotations, in.Answer.Pod = map[string]string{"aws-role-arn": role, "audience": "x"}, unstructuredOf(newPod())
			},
			injected.None, reason.NoIdentity, "the ServiceAccount cart has no annotation that asks for an identity: audience has no effect, Lanyard reads lanyard.dev/audience", true,
		},
		"the annotation has another prefix": {
			func(in *input) {
				in.ServiceAccount.Annotations, in.Answer.Pod = map[string]string{"example.com/audience": "x", "lanyard.io/aws-role-arn": role}, unstructuredOf(newPod())
			},
			injected.None, reason.NoIdentity, "the ServiceAccount cart has no annotation that asks for an identity: lanyard.io/aws-role-arn has no effect, Lanyard reads lanyard.dev/aws-role-arn", true,
		},
		"the annotation is another webhook's": {
			func(in *input) {
				in.ServiceAccount.Annotations, in.Answer.Pod = map[string]string{"eks.amazonaws.com/role-arn": role}, unstructuredOf(newPod())
			},
			injected.None, reason.NoIdentity, "the ServiceAccount cart has no annotation that asks for an identity: eks.amazonaws.com/role-arn is for amazon-eks-pod-identity-webhook, and Lanyard does not adopt it here (https://github.com/lanyard-dev/lanyard/blob/main/docs/migrate/adoption.md)", false,
		},
		"the annotation is another webhook's without a value": {
			func(in *input) {
				in.ServiceAccount.Annotations, in.Answer.Pod = map[string]string{"eks.amazonaws.com/role-arn": ""}, unstructuredOf(newPod())
			},
			injected.None, reason.NoIdentity, "the ServiceAccount cart has no annotation that asks for an identity", false,
		},
		"the annotation is another webhook's, and not adopted yet": {
			func(in *input) {
				in.ServiceAccount.Annotations, in.Answer.Pod = map[string]string{"iam.gke.io/gcp-service-account": "x", "eks.amazonaws.com/role-arn": role}, unstructuredOf(newPod())
				in.Peers = []string{"eks"}
			},
			injected.None, reason.NoIdentity, "the ServiceAccount cart has no annotation that asks for an identity: eks.amazonaws.com/role-arn is not adopted yet", true,
		},
		"the annotation is another webhook's, in an excluded namespace": {
			func(in *input) {
				in.ServiceAccount.Annotations, in.Answer.Pod = map[string]string{"eks.amazonaws.com/role-arn": role}, unstructuredOf(newPod())
				in.Peers, in.called = peer.Names(), false
			},
			injected.None, reason.NoIdentity, "the ServiceAccount cart has no annotation that asks for an identity: eks.amazonaws.com/role-arn is not adopted, because Lanyard is not called for the namespace: the namespaceSelector of the webhook pods.lanyard.dev does not select it", false,
		},
		"the pod opts out by an annotation": {
			func(in *input) {
				in.Sent.SetAnnotations(map[string]string{"lanyard.dev/inject": "false"})
				in.Answer.Pod = unstructuredOf(newPod())
			},
			injected.OptedOut, reason.OptedOut, "the pod has lanyard.dev/inject: \"false\"", false,
		},
		"the pod opts out by a label": {
			func(in *input) {
				in.Sent.SetLabels(map[string]string{"lanyard.dev/inject": "false"})
				in.Answer.Pod = unstructuredOf(newPod())
			},
			injected.OptedOut, reason.OptedOut, "the pod has lanyard.dev/inject: \"false\"", false,
		},
		"the pod mirrors a static pod": {
			func(in *input) {
				in.Sent.SetAnnotations(map[string]string{"kubernetes.io/config.mirror": "x"})
				in.Answer.Pod = unstructuredOf(newPod())
			},
			injected.Without, reason.MirrorPod, "the pod mirrors a static pod", false,
		},
		"the namespace is left out by its name": {
			func(in *input) { in.called, in.Answer.Pod = false, unstructuredOf(newPod()) },
			injected.Excluded, "", "Lanyard is not called for the namespace: the namespaceSelector of the webhook pods.lanyard.dev", true,
		},
		"the namespace opts out": {
			func(in *input) {
				in.called, in.Answer.Pod = false, unstructuredOf(newPod())
				in.Namespace.Labels = map[string]string{"lanyard.dev/inject": "disabled"}
			},
			injected.Excluded, "", "Lanyard is not called for the namespace: it has the label lanyard.dev/inject=disabled", true,
		},
		"the namespace opts out with the word for pods": {
			func(in *input) {
				in.called, in.Answer.Pod = false, unstructuredOf(newPod())
				in.Namespace.Labels = map[string]string{"lanyard.dev/inject": "false"}
			},
			injected.Excluded, "", "Lanyard is not called for the namespace: it has the label lanyard.dev/inject=false", true,
		},
		"the template is injected, and the namespace is left out": {
			func(in *input) { in.called = false },
			Injected, reason.Injected, "the pod template has Lanyard's annotations, but Lanyard is not called for the namespace", false,
		},
		"the webhook cannot be called": {
			func(in *input) {
				in.Answer.Pod, in.Probe = unstructuredOf(newPod()), denied(ByNoCall, `failed calling webhook "probe.lanyard.dev": x509: unknown authority`)
			},
			injected.Without, "", `the API server cannot call Lanyard: failed calling webhook "probe.lanyard.dev": x509: unknown authority`, true,
		},
		"the objectSelector does not select the pod": {
			func(in *input) {
				in.registration = webhooks(&metav1.LabelSelector{MatchLabels: map[string]string{"tier": "cloud"}})
				in.Answer.Pod, in.Probe = unstructuredOf(newPod()), &Answer{}
			},
			injected.Excluded, "", "Lanyard is not called for the pod: the objectSelector of the webhook pods.lanyard.dev does not select it", true,
		},
		"the webhook does not select the pod": {
			func(in *input) { in.Answer.Pod, in.Probe = unstructuredOf(newPod()), &Answer{} },
			injected.Without, "", "the API server did not call Lanyard for this pod, though it can", true,
		},
		"the webhook does not select the pod, and denies the pod of the probe": {
			func(in *input) { in.Answer.Pod, in.Probe = unstructuredOf(newPod()), denied(ByLanyard, "no") },
			injected.Without, "", "the API server did not call Lanyard for this pod, though it can", true,
		},
		"a policy denies the pod of the probe": {
			func(in *input) { in.Answer.Pod, in.Probe = unstructuredOf(newPod()), denied(ByOther, "Kyverno: no") },
			injected.Without, "", "the API server did not call Lanyard for this pod. The cause is unknown, because the probe pod was not created: Kyverno: no", true,
		},
		"Lanyard denies the pod": {
			func(in *input) {
				in.Answer.Pod, in.Answer.Denial = nil, &Denial{By: ByLanyard, Reason: reason.IdentityNotAllowed, Message: `serviceaccount "shop/cart" asks`}
			},
			Denied, reason.IdentityNotAllowed, `serviceaccount "shop/cart" asks`, true,
		},
		"the guard denies the pod, and the webhook cannot be called": {
			func(in *input) {
				in.Answer = *denied(ByGuard, "x")
				in.Probe = denied(ByNoCall, `failed calling webhook "probe.lanyard.dev": no endpoints available`)
			},
			Denied, "", `the guard denies new pods, because the API server cannot call Lanyard: failed calling webhook "probe.lanyard.dev": no endpoints available`, true,
		},
		"the guard denies the pod, and the webhook can be called": {
			func(in *input) { in.Answer, in.Probe = *denied(ByGuard, "x"), &Answer{} },
			Denied, "", "the guard denies new pods: Lanyard did not inject a container", true,
		},
		"the guard denies a pod that insists, in a namespace that Lanyard is not called for": {
			func(in *input) {
				in.Answer, in.called = *denied(ByGuard, "x"), false
				in.Namespace.Labels = map[string]string{"lanyard.dev/inject": "disabled"}
			},
			Denied, "", "the guard denies new pods that lack credentials, and Lanyard is not called for the namespace: it has the label lanyard.dev/inject=disabled", true,
		},
		"a pod insists, and the rules are evaluated here": {
			func(in *input) {
				in.Sent.SetAnnotations(map[string]string{"lanyard.dev/inject": "true"})
				in.Answer.Pod, in.Answer.Local, in.called = in.Sent, "you may not create pods in the namespace shop", false
			},
			Denied, "", "the guard denies new pods that lack credentials", true,
		},
		"a template has the label of an injected pod": {
			func(in *input) {
				in.ServiceAccount.Annotations = nil
				in.Sent.SetLabels(map[string]string{"lanyard.dev/identity": "injected"})
				in.Answer = *denied(ByGuard, "x")
			},
			Denied, "", "x", true,
		},
		"the webhook has failurePolicy Fail, and cannot be called": {
			func(in *input) {
				in.Answer = *denied(ByNoCall, `failed calling webhook "pods.lanyard.dev": EOF`)
			},
			Denied, "", `the API server cannot call Lanyard: failed calling webhook "pods.lanyard.dev": EOF`, true,
		},
		"another webhook cannot be called": {
			func(in *input) {
				in.Answer = *denied(ByFailedCall, `failed calling webhook "kyverno": EOF`)
			},
			Denied, "", `failed calling webhook "kyverno": EOF`, true,
		},
		"an identity is required": {
			func(in *input) {
				waiting(in, map[string]string{"example.com/aws-role-arn": role})
				in.Answer.Denial = &Denial{By: ByLanyard, Reason: reason.IdentityRequired, Message: "no"}
			},
			Denied, reason.IdentityRequired, "the ServiceAccount cart has the label lanyard.dev/identity=required, and no annotation that asks for an identity yet: example.com/aws-role-arn has no effect", true,
		},
		"an identity is required, and only the guard responds": {
			func(in *input) { waiting(in, nil); in.Answer = *denied(ByGuard, "x") },
			Denied, reason.IdentityRequired, "the ServiceAccount cart has the label lanyard.dev/identity=required", true,
		},
		"an identity is required, and a quota denies the pod": {
			func(in *input) { waiting(in, nil); in.Answer = *denied(ByOther, "exceeded quota") },
			Denied, "", "exceeded quota", true,
		},
		"somebody else denies the pod": {
			func(in *input) { in.Answer = *denied(ByOther, "exceeded quota: pods") },
			Denied, "", "exceeded quota: pods", true,
		},
		"the answer is not known": {
			func(in *input) { in.Answer.Pod, in.Answer.Err = nil, errors.New("EOF") },
			injected.Unknown, "", "could not determine the credentials of a new pod: EOF", false,
		},
		"the ServiceAccount may not be read, and the pod is injected": {
			func(in *input) { in.ServiceAccount = nil }, Injected, reason.Injected, "a new pod gets aws", false,
		},
		"the ServiceAccount may not be read, and the pod is not injected": {
			func(in *input) { in.ServiceAccount, in.Answer.Pod = nil, unstructuredOf(newPod()) },
			injected.Without, "", "the pod is created without credentials. The reason is unknown, because you may not read its ServiceAccount", false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := newInput(t)
			test.change(in)
			got := explain(in)
			expectNextSteps(t, got)
			if got.New.Outcome != test.outcome || got.New.Reason != string(test.reason) || !strings.HasPrefix(got.New.Text, test.why) || got.Problem() != test.problem {
				t.Errorf("got %+v and problem %t, want %s, %q, %q and problem %t", got.New, got.Problem(), test.outcome, test.reason, test.why, test.problem)
			}
		})
	}
}

func TestRunningPods(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(*input)
		state  injected.State
		why    string
		fix    bool
	}{
		"the same role":   {func(in *input) { in.Live = injectedPod(t, role) }, injected.Current, "it has the credentials of a new pod", false},
		"another role":    {func(in *input) { in.Live = injectedPod(t, role+"2") }, injected.Stale, "its credentials differ from those of a new pod", true},
		"none, but asked": {func(in *input) { in.Live = newPod() }, injected.Without, "it has no credentials, and a new pod gets some: it was created before its ServiceAccount was annotated, or while Lanyard was not called", true},
		"none, as a new": {func(in *input) {
			in.Live, in.Answer.Pod, in.ServiceAccount.Annotations = newPod(), unstructuredOf(newPod()), nil
		}, injected.None, "it has no credentials, like a new pod", false},
		"more than a new": {func(in *input) {
			in.Live, in.Answer.Pod, in.ServiceAccount.Annotations = injectedPod(t, role), unstructuredOf(newPod()), nil
		}, injected.Stale, "it has credentials, and a new pod gets none", true},
		"a new one is denied":        {func(in *input) { in.Live, in.Answer = injectedPod(t, role+"2"), *denied(ByGuard, "no") }, injected.Unknown, "it cannot be compared with a new pod, which is denied", true},
		"a quota, and the same role": {func(in *input) { in.Live, in.Answer = injectedPod(t, role), *denied(ByOther, "no") }, injected.Current, "it has the credentials that its ServiceAccount asks for", false},
		"a quota, and another role":  {func(in *input) { in.Live, in.Answer = injectedPod(t, role+"2"), *denied(ByOther, "no") }, injected.Stale, "its credentials differ from those that its ServiceAccount asks for", true},
		"a quota, and none":          {func(in *input) { in.Live, in.Answer = newPod(), *denied(ByOther, "no") }, injected.Without, "it has no credentials, and its ServiceAccount asks for some", true},
		"older than asked":           {func(in *input) { in.Live = newPod(); annotated(in, time.Unix(100, 0)) }, injected.Without, "it has no credentials, and a new pod gets some: it is older than the annotations of its ServiceAccount", true},
		"not called":                 {func(in *input) { in.Live, in.Answer.Pod, in.called = newPod(), unstructuredOf(newPod()), false }, injected.Excluded, "it has no credentials, because Lanyard is not called for it", false},
		"not called since its injection": {func(in *input) {
			in.Live, in.Answer.Pod, in.called = injectedPod(t, role), unstructuredOf(newPod()), false
		}, injected.Excluded, "it has credentials from when Lanyard was still called for it", false},
		"opted out, and nothing is known of its ServiceAccount": {func(in *input) {
			live := newPod()
			live.Labels = map[string]string{"lanyard.dev/inject": "false"}
			in.Live, in.ServiceAccount, in.Answer = live, nil, Answer{Answer: probe.Answer{Err: errors.New("no right")}}
		}, injected.OptedOut, "it asks for no credentials", false},
		"the answer is not known": {func(in *input) {
			in.Live, in.Answer = injectedPod(t, role+"2"), Answer{Answer: probe.Answer{Err: errors.New("EOF")}}
		}, injected.Unknown, "it cannot be compared with a new pod, whose credentials are unknown", true},
		"younger than asked": {func(in *input) {
			live := newPod()
			live.CreationTimestamp = metav1.Unix(200, 0)
			in.Live = live
			annotated(in, time.Unix(100, 0))
		}, injected.Without, "it has no credentials, and a new pod gets some: it was created while Lanyard was not called", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := newInput(t)
			test.change(in)
			explained := explain(in)
			expectNextSteps(t, explained)
			got := explained.Live
			failed := Outdated(map[injected.State]int{test.state: 1}) > 0
			if got.State != test.state || !strings.HasPrefix(got.Text, test.why) || (got.Fix != "") != test.fix || (got.Status == finding.Failed) != failed {
				t.Errorf("got %+v, want %s and %q", got, test.state, test.why)
			}
			if name != "older than asked" && strings.Contains(got.Text, "older") {
				t.Errorf("got %q", got.Text)
			}
		})
	}
}

// A pod of another webhook is compared with a pod of the template, which shows what the containers
// set themselves.
func TestARunningPodOfAnotherWebhook(t *testing.T) {
	t.Parallel()
	theirs := func(role string, env ...corev1.EnvVar) *corev1.Pod {
		pod := newPod()
		pod.Spec.Containers[0].Env = env
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "cart", Annotations: map[string]string{"eks.amazonaws.com/role-arn": role}}}
		if err := (&peers.EKS{TokenExpiration: 3600}).Mutate(pod, account); err != nil {
			t.Fatal(err)
		}
		return pod
	}
	moved := injected.Difference{Container: "main", Field: "aws-token-path", Got: "/var/run/secrets/eks.amazonaws.com/serviceaccount/token", Minor: true}
	google := map[string]string{
		"cloud.google.com/workload-identity-provider": "projects/123456789012/locations/global/workloadIdentityPools/pool/providers/prov",
		"cloud.google.com/service-account-email":      "my-app@my-project-123.iam.gserviceaccount.com",
	}
	own := newPod()
	own.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "AWS_ROLE_ARN", Value: role + "-own"}}
	for sentence, test := range map[string]struct {
		change func(*input)
		want   injected.State
		why    string
		line   string
	}{
		"the same role": {func(in *input) { in.Live = theirs(role) }, injected.Current, "it has the credentials of a new pod, from another webhook", moved.String()},
		"another role":  {func(in *input) { in.Live = theirs(role + "2") }, injected.Stale, "its credentials differ from those of a new pod", "main: aws-role-arn: running pod " + role + "2, new pod " + role},
		"a role of its own": {func(in *input) {
			in.Live, in.Sent, in.Answer.Pod = theirs(role, corev1.EnvVar{Name: "AWS_ROLE_ARN", Value: role + "-own"}, corev1.EnvVar{Name: "AWS_WEB_IDENTITY_TOKEN_FILE", Value: moved.Got}), unstructuredOf(own), unstructuredOf(injectPod(t, own, role))
		}, injected.Current, "it has the credentials of a new pod, from another webhook", moved.String()},
		"a new pod gets none, because the annotations were forgotten": {func(in *input) {
			in.Live, in.ServiceAccount.Annotations, in.Answer.Pod = theirs(role), nil, unstructuredOf(newPod())
		}, injected.Stale, "it has credentials, and a new pod gets none", "main: aws-role-arn: running pod " + role + ", new pod none"},
		"the other webhook is still there, and Lanyard gives nothing": {func(in *input) {
			in.Live, in.ServiceAccount.Annotations, in.Answer.Pod = theirs(role), nil, unstructuredOf(theirs(role))
		}, injected.None, "it has the credentials of another webhook, and its ServiceAccount asks Lanyard for none", ""},
		"credentials of its own, which the other webhook replaced": {func(in *input) {
			in.Live, in.ServiceAccount.Annotations = newPod(), maps.Clone(google)
			if err := new(peers.GCP).Mutate(in.Live.(*corev1.Pod), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Annotations: google}}); err != nil {
				t.Fatal(err)
			}
			maps.Copy(in.ServiceAccount.Annotations, peer.Adopt(in.Settings, peer.All(), google).Set)
			fresh := newPod()
			fresh.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "GOOGLE_APPLICATION_CREDENTIALS", Value: "/own/credentials.json"}}
			in.Answer.Pod = unstructuredOf(fresh)
		}, injected.Stale, "it has credentials, and a new pod gets none", "main: GOOGLE_APPLICATION_CREDENTIALS: running pod none, new pod a file of its own"},
		"its own token file, beside the other webhook's client ID and token": {func(in *input) {
			live := newPod()
			live.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "AZURE_FEDERATED_TOKEN_FILE", Value: "/own/token"}}
			in.ServiceAccount.Annotations = map[string]string{"azure.workload.identity/client-id": "11112222-bbbb-3333-cccc-4444dddd5555"}
			in.Sent, in.Answer.Pod = unstructuredOf(live), unstructuredOf(live)
			live = live.DeepCopy()
			if err := new(peers.Azure).Mutate(live, &corev1.ServiceAccount{ObjectMeta: *in.ServiceAccount}); err != nil {
				t.Fatal(err)
			}
			in.Live = live
		}, injected.None, "it has the credentials of another webhook, and its ServiceAccount asks Lanyard for none", ""},
		"a new pod is denied": {func(in *input) {
			in.Live, in.Answer = theirs(role), *denied(ByLanyard, "no")
		}, injected.Unknown, "it cannot be compared with a new pod, which is denied", ""},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			in := newInput(t)
			test.change(in)
			got := explain(in)
			if got.Live.State != test.want || got.Live.Text != test.why {
				t.Errorf("got %s: %q, want %s: %q", got.Live.State, got.Live.Text, test.want, test.why)
			}
			var text strings.Builder
			got.Print(&command.Page{W: &text})
			if !strings.Contains(text.String(), test.line) || test.line == "" && len(got.Live.Differences) > 0 {
				t.Errorf("got %s, want the line %q", text.String(), test.line)
			}
		})
	}
}

// The fix for one pod restarts no other workload of the namespace.
func TestTheFixIsForOneWorkload(t *testing.T) {
	t.Parallel()
	kind := func(name string) cluster.Kind {
		k, found := cluster.ByName(name)
		if !found {
			t.Fatal(name)
		}
		return k
	}
	for name, test := range map[string]struct {
		owner topOwner
		want  string
	}{
		"a Deployment":                    {topOwner{"deployment/cart", kind("deployment"), ""}, "Restart its workload: kubectl rollout restart deployment/cart --namespace shop"},
		"a paused Deployment":             {topOwner{"deployment/cart", kind("deployment"), "it is paused"}, "A restart of deployment/cart does not replace the pod: it is paused. Delete the pod, and its controller creates a new one: kubectl delete pod cart-0 --namespace shop"},
		"a DaemonSet that keeps its pods": {topOwner{"daemonset/log", kind("daemonset"), "its update strategy is OnDelete"}, "A restart of daemonset/log does not replace the pod: its update strategy is OnDelete. Delete the pod, and its controller creates a new one: kubectl delete pod cart-0 --namespace shop"},
		"no owner":                        {topOwner{}, "No controller replaces this pod. Delete it, and create it again from its manifest: kubectl delete pod cart-0 --namespace shop"},
		"a Job":                           {topOwner{"job/load", kind("job"), "x"}, "A Job cannot be restarted. Delete it, and create it again from its manifest: kubectl delete job/load --namespace shop"},
		"a CronJob":                       {topOwner{"cronjob/load", kind("cronjob"), "x"}, "The next Job of cronjob/load gets the credentials. To start a Job now: kubectl create job load-again --from=cronjob/load --namespace shop"},
		"a ReplicaSet":                    {topOwner{"replicaset/cart-1", kind("replicaset"), "x"}, "Delete the pod, and its controller creates a new one: kubectl delete pod cart-0 --namespace shop"},
		"a custom kind":                   {topOwner{"rollout/cart", cluster.Kind{}, ""}, "Restart rollout/cart with the program that manages it, or delete the pod, if its controller creates a new one: kubectl delete pod cart-0 --namespace shop"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := newInput(t)
			live := newPod()
			live.Name, in.Owner = "cart-0", test.owner
			in.Live = live
			if got := explain(in).Live.Fix; got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// The pods of a workload or a ServiceAccount are counted, and the fix replaces all that are outdated.
func TestTheFixIsForAllPods(t *testing.T) {
	t.Parallel()
	deployment := unstructured.Unstructured{Object: map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "spec": map[string]any{}}}
	paused := unstructured.Unstructured{Object: map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "spec": map[string]any{"paused": true}}}
	for name, test := range map[string]struct {
		object   string
		owner    topOwner
		workload string
		want     string
	}{
		"a Deployment":                    {"deployment/cart", topOwnerOf("deployment/cart", &deployment), "deployment/cart", "Restart its workload: kubectl rollout restart deployment/cart --namespace shop"},
		"a paused Deployment":             {"deployment/cart", topOwnerOf("deployment/cart", &paused), "deployment/cart", "A restart of deployment/cart does not replace the pod: it is paused. Delete the pod, and its controller creates a new one: kubectl delete pod POD --namespace shop"},
		"a ServiceAccount of Deployments": {"serviceaccount/cart", topOwner{}, "deployment/cart", "Restart their workloads: kubectl rollout restart $(lanyard status serviceaccount/cart --stale -o name -n shop) -n shop"},
		"a ServiceAccount of Jobs":        {"serviceaccount/cart", topOwner{}, "job/load", "No restart does that. See: lanyard explain job/load --namespace shop"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := newInput(t)
			in.Owner = test.owner
			result := newStatusResult(&query{})
			row := Row{Namespace: "shop", Pods: 3, States: map[injected.State]int{injected.Without: 2, injected.Current: 1}}
			row.setWorkload(test.workload)
			result.add([]Row{row}, nil)
			e := &Explanation{Object: test.object, Namespace: "shop"}
			e.addPods(result, in)
			want := finding.Finding{Status: finding.Failed, About: aboutPods, Reason: "outdated", Text: "2 pods must be replaced", Fix: test.want}
			if len(e.Findings) != 1 || e.Findings[0] != want || !e.Problem() {
				t.Errorf("got %+v, want %+v", e.Findings, want)
			}
		})
	}
}

func TestLocalAnswersShowTheirLimits(t *testing.T) {
	t.Parallel()
	in := newInput(t)
	in.Answer.Local = "you may not create pods"
	got := explain(in)
	if !got.New.Local || !strings.HasPrefix(got.New.Limits, "other webhooks, policies and quotas were not asked") || got.Problem() {
		t.Errorf("got %+v and problem %t", got.New, got.Problem())
	}
	var text strings.Builder
	got.Print(&command.Page{W: &text})
	if want := "\nnew pods: injected\n  evaluated here, not by the cluster: "; !strings.Contains(text.String(), want) || strings.Contains(text.String(), "denied") {
		t.Errorf("got %q, want %q, and no denial for a missing right of the user", text.String(), want)
	}
}

// annotated sets when the annotations were written. The label was written later.
func annotated(in *input, at time.Time) {
	field := func(at time.Time, text string) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Time: &metav1.Time{Time: at}, FieldsV1: metav1.NewFieldsV1(text)}
	}
	in.ServiceAccount.ManagedFields = []metav1.ManagedFieldsEntry{
		field(at.Add(-time.Second), `{"f:metadata":{"f:annotations":{".":{},"f:lanyard.dev/aws-region":{}}}}`),
		field(at, `{"f:metadata":{"f:annotations":{".":{},"f:lanyard.dev/aws-role-arn":{}}}}`),
		field(at.Add(time.Hour), `{"f:metadata":{"f:annotations":{"f:other":{}},"f:labels":{"f:lanyard.dev/identity":{}}}}`),
		field(at.Add(time.Hour), `malformed`),
	}
}

func TestUnguardedServiceAccounts(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(*input)
		guard  cluster.Guard
		fix    bool
	}{
		"with the label": {func(*input) {}, cluster.GuardOn, false},
		"without it":     {func(in *input) { in.ServiceAccount.Labels = nil }, cluster.GuardOff, true},
		"without it and an identity": {func(in *input) {
			in.ServiceAccount.Labels, in.ServiceAccount.Annotations, in.Answer.Pod = nil, nil, unstructuredOf(newPod())
		}, "", false},
		"without it, where it is moot": {func(in *input) { in.ServiceAccount.Labels, in.called = nil, false }, cluster.GuardExcluded, false},
	} {
		in := newInput(t)
		test.change(in)
		if got := explain(in); got.Guard != test.guard || (got.ServiceAccount.label.Fix != "") != test.fix || (got.ServiceAccount.label.Reason == "unguarded") != test.fix || got.Problem() != test.fix {
			t.Errorf("%s: got guard %q, fix %q and problem %t, want %q and %t", name, got.Guard, got.ServiceAccount.label.Fix, got.Problem(), test.guard, test.fix)
		}
	}
}

func TestIdentities(t *testing.T) {
	t.Parallel()
	s := newSettings(t)
	for name, test := range map[string]struct {
		values map[string]string
		want   []Identity
	}{
		"none":                            {map[string]string{"lanyard.dev/aws-region": "eu-central-1"}, nil},
		"a plain token":                   {map[string]string{"lanyard.dev/audience": "vault"}, []Identity{{Provider: "token", Name: "vault"}}},
		"an audience of another provider": {map[string]string{"lanyard.dev/audience": "x", "lanyard.dev/azure-client-id": "id"}, []Identity{{Provider: "azure", Name: "id"}}},
		"a Google service account":        {map[string]string{"lanyard.dev/gcp-workload-identity-provider": "default", "lanyard.dev/gcp-service-account": "a@b"}, []Identity{{Provider: "gcp", Name: "a@b"}}},
		"profiles": {
			map[string]string{"lanyard.dev/aws-role-arn": role, "lanyard.dev/aws-role-arn.b": "y", "lanyard.dev/aws-role-arn.a": "x", "lanyard.dev/aws-source-profile.a": "default"},
			[]Identity{{"aws", "", role}, {"aws", "a", "x"}, {"aws", "b", "y"}},
		},
		"tokens only":             {map[string]string{"lanyard.dev/tokens": "aws,azure"}, []Identity{{Provider: "aws", Name: "tokens:aws"}, {Provider: "azure", Name: "tokens:azure"}}},
		"tokens with an audience": {map[string]string{"lanyard.dev/tokens": "aws", "lanyard.dev/audience": "x"}, []Identity{{Provider: "aws", Name: "tokens:aws"}}},
		"a token and an identity": {
			map[string]string{"lanyard.dev/tokens": "aws", "lanyard.dev/azure-client-id": "id"},
			[]Identity{{Provider: "aws", Name: "tokens:aws"}, {Provider: "azure", Name: "id"}},
		},
		"a provider of the cluster's": {map[string]string{"lanyard.dev/gcp-workload-identity-provider": "default"}, []Identity{{Provider: "gcp", Name: "default"}}},
	} {
		if diff := cmp.Diff(test.want, identitiesOf(s, test.values)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestContainers(t *testing.T) {
	t.Parallel()
	in := newInput(t)
	sent := newPod()
	sent.Annotations = map[string]string{"lanyard.dev/skip-containers": "proxy"}
	sent.Spec.InitContainers = []corev1.Container{{Name: "proxy"}}
	sent.Spec.Containers = append(sent.Spec.Containers, corev1.Container{Name: "own", Env: []corev1.EnvVar{{Name: "AWS_WEB_IDENTITY_TOKEN_FILE", Value: "/own/token"}}})
	got := injectPod(t, sent, role)
	profile := *got.Spec.Containers[0].DeepCopy()
	profile.Name, profile.Env = "profile", []corev1.EnvVar{{Name: "AWS_PROFILE", Value: "audit"}, {Name: "AWS_CONFIG_FILE", Value: path + "/aws/config"}}
	got.Spec.Containers = append(got.Spec.Containers, profile)
	in.Sent, in.Answer.Pod = unstructuredOf(sent), unstructuredOf(got)
	want := []Container{
		{Name: "proxy", Type: "init", Reasons: []mutate.Finding{{Reason: reason.ContainerNotSelected, Detail: "the pod's annotations leave it out"}}},
		{Name: "main", Type: "container", Token: true, Providers: []string{"aws"}},
		{Name: "own", Type: "container", Token: true, Reasons: []mutate.Finding{{
			Reason: reason.EnvironmentTaken, Field: "env[AWS_WEB_IDENTITY_TOKEN_FILE]",
			Detail: "it sets AWS_WEB_IDENTITY_TOKEN_FILE itself and keeps its own aws credentials",
			Fix:    "Remove AWS_WEB_IDENTITY_TOKEN_FILE from the container to use the injected aws identity.",
		}}},
		{Name: "profile", Type: "container", Token: true, Providers: []string{"aws"}},
	}
	if diff := cmp.Diff(want, explain(in).New.Containers); diff != "" {
		t.Errorf("containers (-want +got):\n%s", diff)
	}
}

// explain used to report only "a new pod gets aws".
func TestContainersThatKeepTheirOwnCredentials(t *testing.T) {
	t.Parallel()
	in, sent := newInput(t), newPod()
	sent.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "AWS_WEB_IDENTITY_TOKEN_FILE", Value: "/own/token"}}
	in.Sent, in.Answer.Pod = unstructuredOf(sent), unstructuredOf(injectPod(t, sent, role))
	got := explain(in)
	expectNextSteps(t, got)
	want := finding.Finding{
		Status: finding.NotApplicable, About: "new pods", Reason: string(reason.EnvironmentTaken),
		Text: "a new pod gets aws, but no container uses it: container main: it sets AWS_WEB_IDENTITY_TOKEN_FILE itself and keeps its own aws credentials",
		Fix:  "Remove AWS_WEB_IDENTITY_TOKEN_FILE from the container to use the injected aws identity.",
	}
	if diff := cmp.Diff(want, got.New.Finding); diff != "" || got.New.Outcome != Injected || got.Problem() {
		t.Errorf("got outcome %s and problem %t (-want +got):\n%s", got.New.Outcome, got.Problem(), diff)
	}
}

// explain used to blame the API server for pods in which no container is injected.
func TestAPodWithoutAContainerThatTakesPart(t *testing.T) {
	t.Parallel()
	taken := newPod()
	taken.Spec.Volumes = []corev1.Volume{{Name: "x"}}
	taken.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "x", MountPath: path}}
	skipping := newPod()
	skipping.Annotations = map[string]string{"lanyard.dev/skip-containers": "main"}
	denied := Answer{Denial: &Denial{By: ByGuard, Message: "denied"}}
	for sentence, test := range map[string]struct {
		pod     *corev1.Pod
		answer  Answer
		outcome injected.State
		reason  reason.Reason
		finding reason.Reason
		problem bool
	}{
		"its annotation skips the only container, and the guard denies it":      {skipping, denied, Denied, reason.NoContainer, reason.ContainerNotSelected, true},
		"its annotation skips the only container, and the guard was not asked":  {skipping, Answer{Local: "no right"}, Denied, reason.NoContainer, reason.ContainerNotSelected, true},
		"its annotation skips the only container, and the guard let it through": {skipping, Answer{}, injected.LeftOut, reason.NoContainer, reason.ContainerNotSelected, true},
		"something is mounted at the token path":                                {taken, Answer{}, injected.LeftOut, reason.MountPathTaken, reason.MountPathTaken, false},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			in := newInput(t)
			in.Sent, in.Live, in.Probe, in.Answer = unstructuredOf(test.pod), test.pod, &Answer{}, test.answer
			in.Answer.Pod = in.Sent
			got := explain(in)
			if got.New.Outcome != test.outcome || got.New.Reason != string(test.reason) || got.New.Fix == "" || got.Problem() != test.problem || got.Live.State != injected.LeftOut {
				t.Errorf("got %+v, %+v and problem %t, want %s, %s and problem %t", got.New, got.Live, got.Problem(), test.outcome, test.reason, test.problem)
			}
			if len(got.New.Containers) != 1 || len(got.New.Containers[0].Reasons) != 1 || got.New.Containers[0].Reasons[0].Reason != test.finding {
				t.Errorf("got containers %+v, want %s", got.New.Containers, test.finding)
			}
		})
	}
}

// Errors of Pod Security and quotas do not name an owner, and the user can correct the pod.
func TestTheFixOfADenialByOthersIsForThePodToo(t *testing.T) {
	t.Parallel()
	in := newInput(t)
	in.Answer = *denied(ByOther, `violates PodSecurity "restricted:latest"`)
	const want = "Correct the pod template, or ask the owner of the policy, quota or webhook that the message names. Lanyard did not deny the pod."
	if got := explain(in).New.Fix; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// Every denial has a next step.
func TestEveryDenialHasAFix(t *testing.T) {
	t.Parallel()
	for _, r := range []reason.Reason{
		reason.IdentityRequired, reason.InvalidAnnotation, reason.IdentityNotAllowed, reason.ForeignInjection, reason.InvalidMountPath,
		reason.VolumeNameTaken, reason.TooLarge, reason.LookupFailed, reason.Overloaded,
	} {
		if fixes[r] == "" {
			t.Errorf("%s has no fix", r)
		}
	}
}

// Why a pod has no credentials is the first question of most users.
func TestAServiceAccountThatAsksForNothingHasANextStep(t *testing.T) {
	t.Parallel()
	for sentence, test := range map[string]struct {
		change func(*input)
		text   string
		fix    string
	}{
		"its own ServiceAccount": {
			func(*input) {}, "the ServiceAccount cart has no annotation that asks for an identity",
			"If it needs credentials, annotate the ServiceAccount. For the commands, also with azure or gcp: lanyard trust aws cart --namespace shop",
		},
		"the pod has a mistake as well": {
			func(in *input) { in.Sent.SetAnnotations(map[string]string{annotations.Inject: "x"}) },
			`the ServiceAccount cart has no annotation that asks for an identity; the pod's annotations have a mistake as well: pod "shop/": metadata.annotations[lanyard.dev/inject]: Invalid value: "x": must be "false" to opt out, or "true"`,
			"If it needs credentials, annotate the ServiceAccount. For the commands, also with azure or gcp: lanyard trust aws cart --namespace shop",
		},
		"one of the same name asks elsewhere": {
			func(in *input) { in.Elsewhere = []string{"team-a", "team-b"} },
			"the ServiceAccount cart has no annotation that asks for an identity; the ServiceAccount of the same name asks for one in: team-a, team-b",
			"If it needs credentials, annotate the ServiceAccount. For the commands, also with azure or gcp: lanyard trust aws cart --namespace shop",
		},
		"the pod names none, and others ask": {
			func(in *input) {
				in.Named, in.ServiceAccountName, in.Askers = false, "default", []string{"cart", "mail"}
			},
			"the pod sets no serviceAccountName, and the ServiceAccount default has no annotation that asks for an identity",
			"If it needs credentials, set serviceAccountName in the pod template to a ServiceAccount that asks for an identity: cart, mail.",
		},
		"the pod names none, and nobody asks": {
			func(in *input) { in.Named, in.ServiceAccountName = false, "default" },
			"the pod sets no serviceAccountName, and the ServiceAccount default has no annotation that asks for an identity",
			"If it needs credentials, create a ServiceAccount for it, and set serviceAccountName in the pod template. For the annotation, also with azure or gcp: lanyard trust aws NAME --namespace shop",
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			in := newInput(t)
			in.ServiceAccount.Annotations, in.Answer.Pod = nil, unstructuredOf(newPod())
			test.change(in)
			got := explain(in)
			if got.New.Outcome != injected.None || got.New.Text != test.text || got.New.Fix != test.fix || got.Problem() {
				t.Errorf("got %+v, want %q and %q", got.New, test.text, test.fix)
			}
		})
	}
}

func TestAServiceAccountThatNeedsAnIdentity(t *testing.T) {
	t.Parallel()
	in := newInput(t)
	if got := explain(in).ServiceAccount; got.Required {
		t.Errorf("got %+v, want one that has its identity", got)
	}
	waiting(in, nil)
	in.Answer = *denied(ByGuard, "x")
	if got := explain(in).ServiceAccount; !got.Required {
		t.Errorf("got %+v, want one that needs an identity", got)
	}
}

// The guard of a removed installation denies pods. explain must run nevertheless.
func TestWithoutAnInstallation(t *testing.T) {
	t.Parallel()
	in := newInput(t)
	in.Installation = &cluster.Installation{}
	in.registration, in.called, in.Answer.Pod = in.Installation.Registration(), false, unstructuredOf(newPod())
	got := explain(in)
	if got.New.Outcome != injected.Excluded || got.New.Reason != "not_installed" || got.New.Fix != "Install it. To see whether the cluster is ready: lanyard check --pre" || !got.Problem() {
		t.Errorf("got %+v", got.New)
	}
	in.Answer = *denied(ByGuard, "x")
	in.left = []cluster.Leftover{{Kind: "validatingadmissionpolicybinding", Name: "lanyard-guard-pods", DeniesPods: true}}
	got = explain(in)
	if got.Guard != cluster.GuardOn {
		t.Errorf("got the guard %s, want %s: it denies pods", got.Guard, cluster.GuardOn)
	}
	if want := "Remove it, or install Lanyard again: kubectl delete validatingadmissionpolicybinding/lanyard-guard-pods"; got.New.Outcome != Denied || got.New.Fix != want {
		t.Errorf("got %+v, want %s", got.New, want)
	}
}

// A pod with static keys is not current: SDKs use the keys.
func TestVariablesThatMakeSDKsIgnoreTheIdentity(t *testing.T) {
	t.Parallel()
	own, from := newPod(), newPod()
	own.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "AWS_ACCESS_KEY_ID", Value: "x"}}
	secret := corev1.EnvFromSource{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "keys"}}}
	// A template of a custom kind can have it, and its name would be a part of a command.
	command := corev1.EnvFromSource{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "x;curl evil.example"}}}
	own.Spec.Containers[0].EnvFrom = []corev1.EnvFromSource{secret, command}
	from.Spec.Containers[0].EnvFrom = []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "s3"}}}, secret, command}
	for sentence, test := range map[string]struct {
		pod        *corev1.Pod
		configMaps map[string]string
		want       injected.State
		fix        string
	}{
		"a variable of its own":            {own, nil, Shadowed, "Remove AWS_ACCESS_KEY_ID from the container."},
		"a variable of a ConfigMap":        {from, map[string]string{"AWS_PROFILE": "minio", "BUCKET": "b"}, Shadowed, "Remove AWS_PROFILE from the ConfigMap s3."},
		"another variable of a ConfigMap":  {from, map[string]string{"BUCKET": "b"}, injected.Current, ""},
		"a ConfigMap that may not be read": {from, nil, injected.Current, ""},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			in := newInput(t)
			in.Sent, in.Answer.Pod, in.Live = unstructuredOf(test.pod), unstructuredOf(injectPod(t, test.pod, role)), injectPod(t, test.pod, role)
			if test.configMaps != nil {
				in.variables.add(in.Settings, "s3", test.configMaps)
			}
			got := explain(in)
			expectNextSteps(t, got)
			if got.Live.State != test.want || got.Live.Fix != test.fix || got.New.Fix != test.fix || got.Problem() != (test.want == Shadowed) || (got.Live.Status == finding.Failed) != (test.want == Shadowed) {
				t.Errorf("got %+v and %+v, want %s and %q", got.New, got.Live, test.want, test.fix)
			}
			in.unread = true // so only the API server's pod shows that the pod is current
			if got := explain(in); got.Live.State != test.want {
				t.Errorf("got %s for a pod that is compared with the API server's, want %s", got.Live.State, test.want)
			}
			secret := got.Findings[len(got.Findings)-1]
			if secret.About != "secret/keys" || !strings.HasPrefix(secret.Fix, "To list its keys: kubectl get secret keys --namespace shop -o go-template=") {
				t.Errorf("got %+v, want the Secret", secret)
			}
		})
	}
}
