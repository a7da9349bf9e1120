// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lanyard-dev/lanyard/internal/cli/cluster"
	"github.com/lanyard-dev/lanyard/internal/peer"
	"github.com/lanyard-dev/lanyard/internal/probe"
	"github.com/lanyard-dev/lanyard/pkg/mutate/injected"
	"github.com/lanyard-dev/lanyard/test/support/peers"
)

// object returns the metadata of an object with annotations and a label.
func object(name string, values map[string]string, labelled bool) *metav1.PartialObjectMetadata {
	o := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: values}}
	if labelled {
		o.Labels = map[string]string{"lanyard.dev/identity": "enabled"}
	}
	return o
}

// owned returns the metadata of an object with a controller. The UIDs are kind/name.
func owned(name, kind, owner string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, OwnerReferences: []metav1.OwnerReference{
		{Kind: kind, Name: owner, UID: types.UID(kind + "/" + owner), Controller: new(true)},
	}}
}

// addOwner adds an object that owns others.
func addOwner(n *Namespace, kind string, meta metav1.ObjectMeta) {
	found, _ := cluster.ByName(kind)
	meta.UID = types.UID(kind + "/" + meta.Name)
	n.addOwner(&found, &metav1.PartialObjectMetadata{ObjectMeta: meta})
}

// add adds a running pod.
func add(t *testing.T, n *Namespace, pod *corev1.Pod) {
	t.Helper()
	if err := n.addPod(pod); err != nil {
		t.Fatal(err)
	}
}

// podOf returns a running pod of the ServiceAccount cart. If role is not empty, it was injected
// for this role.
func podOf(t *testing.T, meta metav1.ObjectMeta, role string) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{ObjectMeta: meta, Spec: corev1.PodSpec{ServiceAccountName: "cart", Containers: []corev1.Container{{Name: "main"}}}, Status: corev1.PodStatus{Phase: corev1.PodRunning}}
	if role != "" {
		return injectFor(t, pod, awsRole(role))
	}
	return pod
}

func awsRole(name string) map[string]string {
	return map[string]string{"lanyard.dev/aws-role-arn": "arn:aws:iam::111122223333:role/" + name}
}

var aws = awsRole("new")

// cart returns a namespace with an annotated ServiceAccount and a Deployment.
func cart(t *testing.T, called, labelled bool) *Namespace {
	t.Helper()
	n := NewNamespace(newSettings(t), &metav1.ObjectMeta{Name: "shop"}, nil)
	n.called = called
	n.AddServiceAccount(object("cart", aws, labelled))
	addOwner(n, "Deployment", metav1.ObjectMeta{Name: "cart"})
	addOwner(n, "ReplicaSet", owned("cart-1", "Deployment", "cart"))
	addOwner(n, "StatefulSet", metav1.ObjectMeta{Name: "db"})
	return n
}

func TestPodsAreCountedByWorkload(t *testing.T) {
	t.Parallel()
	n := cart(t, true, true)
	add(t, n, podOf(t, owned("cart-1-a", "ReplicaSet", "cart-1"), "new"))
	add(t, n, podOf(t, owned("cart-1-b", "ReplicaSet", "cart-1"), "old"))
	add(t, n, podOf(t, owned("cart-1-c", "ReplicaSet", "cart-1"), ""))
	add(t, n, podOf(t, owned("db-0", "StatefulSet", "db"), "new"))
	add(t, n, podOf(t, metav1.ObjectMeta{Name: "alone"}, ""))
	optedOut := podOf(t, owned("cart-1-d", "ReplicaSet", "cart-1"), "")
	optedOut.Labels = map[string]string{"lanyard.dev/inject": "false"}
	add(t, n, optedOut)
	optedOut = podOf(t, owned("cart-1-f", "ReplicaSet", "cart-1"), "")
	optedOut.Annotations = map[string]string{"lanyard.dev/inject": "false"}
	add(t, n, optedOut)
	for _, phase := range []corev1.PodPhase{corev1.PodSucceeded, corev1.PodFailed} {
		done := podOf(t, owned("cart-1-e", "ReplicaSet", "cart-1"), "old")
		done.Status.Phase = phase
		add(t, n, done)
	}
	mirror := podOf(t, metav1.ObjectMeta{Name: "mirror", Annotations: map[string]string{"kubernetes.io/config.mirror": "x"}}, "")
	add(t, n, mirror)
	other := podOf(t, metav1.ObjectMeta{Name: "other"}, "")
	other.Spec.ServiceAccountName = ""
	add(t, n, other)

	if questions := n.questions(); len(questions) != 2 {
		t.Fatalf("got %d questions, want one for cart-1, and one for alone", len(questions))
	}
	row := func(name string, pods int, states map[injected.State]int) Row {
		return Row{
			Namespace: "shop", ServiceAccount: "cart", Providers: []string{"aws"}, Guard: cluster.GuardOn,
			Workload: name, Pods: pods, States: states,
		}
	}
	want := []Row{
		row("deployment/cart", 5, map[injected.State]int{injected.Current: 1, injected.Stale: 1, injected.Without: 1, injected.OptedOut: 2}),
		row("pod/alone", 1, map[injected.State]int{injected.Without: 1}),
		row("statefulset/db", 1, map[injected.State]int{injected.Current: 1}),
	}
	got := n.Rows()
	if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(Row{})); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
	for i, outdated := range []int{2, 1, 0} {
		if got[i].Outdated() != outdated {
			t.Errorf("%s: got %d outdated pods, want %d", got[i].Workload, got[i].Outdated(), outdated)
		}
	}
}

// A pod keeps the identity of its creation until it is replaced.
func TestPodsThatKeepARemovedIdentity(t *testing.T) {
	t.Parallel()
	n := NewNamespace(newSettings(t), &metav1.ObjectMeta{Name: "shop"}, nil)
	n.called = true
	n.AddServiceAccount(object("cart", nil, false))
	if n.injected = true; n.Empty() {
		t.Error("got an empty namespace, want the pods to be read")
	}
	gone := podOf(t, metav1.ObjectMeta{Name: "gone"}, "new")
	gone.Spec.ServiceAccountName = "gone"
	add(t, n, podOf(t, metav1.ObjectMeta{Name: "cart"}, "new"))
	add(t, n, podOf(t, metav1.ObjectMeta{Name: "without"}, ""))
	add(t, n, gone)
	got := map[string]injected.State{}
	for _, p := range n.pods {
		got[p.name] = p.State
	}
	if diff := cmp.Diff(map[string]injected.State{"cart": injected.Stale, "gone": injected.Stale}, got); diff != "" {
		t.Errorf("states (-want +got):\n%s", diff)
	}
	if rows := n.Rows(); len(rows) != 2 || rows[0].Guard != "" {
		t.Errorf("got %+v, want two rows without a guard", rows)
	}

	n = cart(t, true, true)
	optedOut := podOf(t, metav1.ObjectMeta{Name: "cart"}, "new")
	optedOut.Annotations["lanyard.dev/inject"] = "false"
	if add(t, n, optedOut); n.pods[0].State != injected.Stale {
		t.Errorf("opted out since its creation: got %s, want stale", n.pods[0].State)
	}
}

// During a switch, pods have the credentials of the other webhook until they are replaced.
func TestPodsWithTheTokenOfAPeerAreNotWithout(t *testing.T) {
	t.Parallel()
	adopted, err := peer.Named([]string{"eks", "azure"})
	if err != nil {
		t.Fatal(err)
	}
	s := newSettings(t)
	s.Peers = []string{"eks", "azure"}
	s.PeerContainers, s.PeerTokens = peer.Rules(adopted)
	theirs := func(name, volume, audience string) *corev1.Pod {
		pod := podOf(t, metav1.ObjectMeta{Name: name}, "")
		pod.Spec.Volumes = []corev1.Volume{{Name: volume, VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
			Sources: []corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Audience: audience, Path: "token"}}},
		}}}}
		pod.Spec.Containers = []corev1.Container{{Name: "main", VolumeMounts: []corev1.VolumeMount{{Name: volume, MountPath: "/token"}}}}
		return pod
	}
	n := NewNamespace(s, &metav1.ObjectMeta{Name: "shop"}, nil)
	n.AddServiceAccount(object("cart", aws, true))
	// The names of the volumes are not the same in all versions of a webhook.
	add(t, n, theirs("eks", "aws-iam-token", "sts.amazonaws.com"))
	add(t, n, theirs("renamed", "reserved-1234", "sts.amazonaws.com"))
	add(t, n, theirs("own", "aws-iam-token", "cloud"))
	bound := podOf(t, metav1.ObjectMeta{Name: "bound", Annotations: map[string]string{"azure.workload.identity/use-identity-binding": "true"}}, "")
	add(t, n, bound) // which still gets the role of AWS
	bound = bound.DeepCopy()
	bound.Name, bound.Spec.ServiceAccountName = "azure", "mail"
	n.AddServiceAccount(object("mail", map[string]string{"lanyard.dev/azure-client-id": "00000000-0000-0000-0000-000000000001", "lanyard.dev/azure-tenant-id": "a.example"}, true))
	add(t, n, bound)
	want := map[string]injected.State{"pod/eks": injected.Stale, "pod/renamed": injected.Stale, "pod/own": injected.Without, "pod/bound": injected.Without, "pod/azure": injected.OptedOut}
	for _, row := range n.Rows() {
		if row.States[want[row.Workload]] != 1 {
			t.Errorf("%s: got %v, want %s", row.Workload, row.States, want[row.Workload])
		}
	}
}

// theirs returns a running pod of the ServiceAccount cart that amazon-eks-pod-identity-webhook has
// injected.
func theirs(t *testing.T, name, role, owner string) *corev1.Pod {
	t.Helper()
	pod := podOf(t, owned(name, "ReplicaSet", owner), "")
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "cart", Annotations: map[string]string{"eks.amazonaws.com/role-arn": awsRole(role)["lanyard.dev/aws-role-arn"]}}}
	if err := new(peers.EKS).Mutate(pod, account); err != nil {
		t.Fatal(err)
	}
	return pod
}

// Pods of another webhook are compared by their identities, in the same words.
func TestPodsOfAnotherWebhookAreComparedByMeaning(t *testing.T) {
	t.Parallel()
	n := cart(t, true, true)
	// The ServiceAccount has no region, so the region is the container's own.
	region := []corev1.EnvVar{{Name: "AWS_REGION", Value: "eu-central-1"}, {Name: "AWS_DEFAULT_REGION", Value: "eu-central-1"}}
	same := theirs(t, "same", "new", "cart-1")
	same.Spec.Containers[0].Env = slices.Concat(region, same.Spec.Containers[0].Env)
	add(t, n, same)
	add(t, n, theirs(t, "old", "old", "cart-1"))
	questions := n.questions()
	sent, err := questions[0].pod()
	if err == nil {
		fresh := podOf(t, metav1.ObjectMeta{}, "")
		fresh.Spec.Containers[0].Env = region
		err = questions[0].answered(&Answer{Answer: probe.Answer{Pod: unstructuredOf(injectFor(t, fresh, aws))}})
	}
	if err != nil || len(questions) != 1 {
		t.Fatalf("got %d questions and error %v, want one question", len(questions), err)
	}
	rows := n.Rows()
	want := []injected.Difference{
		{Container: "main", Field: "aws-token-path", Got: "/var/run/secrets/eks.amazonaws.com/serviceaccount/token", Minor: true}, // of both
		{Container: "main", Field: "token-expiration-seconds", Got: "86400", Want: "3600", Minor: true},
		{Container: "main", Field: "aws-role-arn", Got: "arn:aws:iam::111122223333:role/old", Want: "arn:aws:iam::111122223333:role/new"},
	}
	less := func(a, b injected.Difference) int { return strings.Compare(a.Field, b.Field) }
	slices.SortFunc(want, less)
	slices.SortFunc(rows[0].Differences, less)
	if len(rows) != 1 || rows[0].States[injected.Current] != 1 || rows[0].States[injected.Stale] != 1 || !slices.Equal(rows[0].Differences, want) {
		t.Errorf("got %+v, want one pod of each state, and %+v", rows, want)
	}
	containers, _, _ := unstructured.NestedSlice(sent.Object, "spec", "containers")
	if env, _ := containers[0].(map[string]any)["env"].([]any); len(env) != len(region) {
		t.Errorf("got %v, want a dry run with only the container's own variables", sent)
	}
}

// A running pod can hide what its containers set themselves: another webhook overwrites it, as
// Google's does, and Lanyard's variables look like a container's own. The owner's template shows
// it.
func TestTheTemplateOfTheOwnerCounts(t *testing.T) {
	t.Parallel()
	n := cart(t, true, true)
	add(t, n, theirs(t, "a", "new", "cart-1"))
	questions := n.questions()
	if len(questions) != 1 {
		t.Fatalf("got %v, want a question about the template of cart-1", questions)
	}
	q := questions[0]
	q.template = &unstructured.Unstructured{Object: map[string]any{"kind": "Pod"}}
	if pod, err := q.pod(); pod != q.template || err != nil {
		t.Errorf("got %v and error %v, want the template", pod, err)
	}
	if err := q.answered(&Answer{Local: "you may not", Answer: probe.Answer{Pod: &unstructured.Unstructured{}}}); err != nil {
		t.Fatal(err)
	}
	if rows := n.Rows(); len(rows) != 1 || rows[0].States[injected.Stale] != 1 || rows[0].Local != "you may not" || len(rows[0].Differences) == 0 {
		t.Errorf("got %+v, want a stale pod", rows)
	}
}

// Until a ServiceAccount is adopted, Lanyard gives its pods nothing, which is not a difference.
func TestPodsOfAWebhookThatIsNotAdoptedYet(t *testing.T) {
	t.Parallel()
	s := newSettings(t)
	s.Peers = []string{"eks"}
	n := NewNamespace(s, &metav1.ObjectMeta{Name: "shop"}, nil)
	n.AddServiceAccount(object("cart", map[string]string{"eks.amazonaws.com/role-arn": awsRole("new")["lanyard.dev/aws-role-arn"]}, false))
	add(t, n, theirs(t, "a", "new", "cart-1"))
	if rows := n.Rows(); len(n.questions()) > 0 || len(rows) != 1 || rows[0].States[injected.None] != 1 || rows[0].Differences != nil {
		t.Errorf("got %d questions and %+v, want none", len(n.questions()), rows)
	}
}

// Users can write the ownerReferences of a pod.
func TestOwnersMustExist(t *testing.T) {
	t.Parallel()
	for sentence, test := range map[string]struct{ kind, owner, uid, want string }{
		"an owner":                                {"StatefulSet", "db", "StatefulSet/db", "statefulset/db"},
		"another UID":                             {"StatefulSet", "db", "x", "pod/a"},
		"no such object":                          {"Deployment", "payments", "Deployment/payments", "pod/a"},
		"another name for a UID":                  {"StatefulSet", "payments", "StatefulSet/db", "statefulset/db"},
		"a kind in another case":                  {"statefulset", "db", "x", "pod/a"},
		"a short name of a kind":                  {"sts", "db", "x", "pod/a"},
		"a kind with its group":                   {"StatefulSet.apps", "db", "x", "pod/a"},
		"a ReplicaSet with an owner":              {"ReplicaSet", "cart-1", "ReplicaSet/cart-1", "deployment/cart"},
		"a ReplicaSet whose owner does not exist": {"ReplicaSet", "cart-2", "ReplicaSet/cart-2", "replicaset/cart-2"},
		"a Job whose owner has its own owner":     {"Job", "report-1", "Job/report-1", "cronjob/report"},
		"a StatefulSet of an operator":            {"StatefulSet", "log", "StatefulSet/log", "statefulset/log"},
		"a kind that is not of Kubernetes":        {"Rollout", "cart", "x", "rollout/cart"},
		"a ReplicaSet of another kind":            {"ReplicaSet", "cart-3", "ReplicaSet/cart-3", "rollout/cart"},
		"a Deployment, which makes no pods":       {"Deployment", "cart", "Deployment/cart", "pod/a"},
		"a CronJob, which makes no pods":          {"CronJob", "report", "CronJob/report", "pod/a"},
		"a ReplicaSet with a wrong owner":         {"ReplicaSet", "cart-4", "ReplicaSet/cart-4", "replicaset/cart-4"},
		"the UID of an object of another kind":    {"Rollout", "cart", "Deployment/cart", "rollout/cart"},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			n := cart(t, true, true)
			addOwner(n, "ReplicaSet", owned("cart-2", "Deployment", "payments"))
			addOwner(n, "ReplicaSet", owned("cart-3", "Rollout", "cart"))
			addOwner(n, "ReplicaSet", owned("cart-4", "StatefulSet", "log"))
			addOwner(n, "CronJob", owned("report", "Report", "r"))
			addOwner(n, "Job", owned("report-1", "CronJob", "report"))
			addOwner(n, "StatefulSet", owned("log", "LogStore", "log"))
			meta := owned("a", test.kind, test.owner)
			meta.OwnerReferences[0].UID = types.UID(test.uid)
			add(t, n, podOf(t, meta, ""))
			if rows := n.Rows(); len(rows) != 1 || rows[0].Workload != test.want {
				t.Errorf("got %+v, want the workload %s", rows, test.want)
			}
		})
	}
}

func TestGuards(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		called, labelled bool
		want             cluster.Guard
	}{{true, true, cluster.GuardOn}, {true, false, cluster.GuardOff}, {false, true, cluster.GuardExcluded}, {false, false, cluster.GuardExcluded}} {
		rows := cart(t, test.called, test.labelled).Rows()
		if len(rows) != 1 || rows[0].Guard != test.want || rows[0].Workload != "" || rows[0].Outdated() > 0 {
			t.Errorf("called %t, labelled %t: got %+v, want %s", test.called, test.labelled, rows, test.want)
		}
	}
}

// answering gives each question the same answer, and counts the questions.
func answering(n *Namespace, answer Answer) (asked int, err error) {
	for _, q := range n.questions() {
		asked++
		err = errors.Join(err, q.answered(&answer))
	}
	return asked, err
}

// webhooks returns a registration of Lanyard's webhook with a selector of pods and matchConditions.
func webhooks(selector *metav1.LabelSelector, conditions ...string) *admissionregistrationv1.MutatingWebhookConfiguration {
	w := admissionregistrationv1.MutatingWebhook{Name: cluster.PodWebhook, ObjectSelector: selector}
	for _, name := range conditions {
		w.MatchConditions = append(w.MatchConditions, admissionregistrationv1.MatchCondition{Name: name})
	}
	return &admissionregistrationv1.MutatingWebhookConfiguration{Webhooks: []admissionregistrationv1.MutatingWebhook{w}}
}

// The rules of the webhook determine the state of a pod. The cluster is asked only if it may know
// more.
func TestTheStateOfAPod(t *testing.T) {
	t.Parallel()
	pod := func(role string) *corev1.Pod { return podOf(t, metav1.ObjectMeta{Name: "a"}, role) }
	fresh := func(role string) Answer { return Answer{Answer: probe.Answer{Pod: unstructuredOf(pod(role))}} }
	optedOut, bound := pod(""), pod("")
	optedOut.Labels = map[string]string{"lanyard.dev/inject": "false"}
	bound.Annotations = map[string]string{"azure.workload.identity/use-identity-binding": "true"}
	azure := map[string]string{"lanyard.dev/azure-client-id": "00000000-0000-0000-0000-000000000001", "lanyard.dev/azure-tenant-id": "a.example"}
	excluded := func(n *Namespace) { n.called = false }
	unread := func(n *Namespace) { n.unread = true }
	registered := func(r *admissionregistrationv1.MutatingWebhookConfiguration) func(n *Namespace) {
		return func(n *Namespace) { n.registration = r }
	}
	account := func(values map[string]string) func(n *Namespace) {
		return func(n *Namespace) { n.keep(object("cart", values, true)) }
	}
	takes := func(env ...corev1.EnvVar) *corev1.Pod {
		p := pod("")
		p.Spec.Containers[0].Env = env
		p.Spec.Containers[0].EnvFrom = []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "env"}}}}
		return injectFor(t, p, azure)
	}
	withConfigMap := func(n *Namespace) {
		account(azure)(n)
		n.variables.add(n.Settings, "env", map[string]string{"AZURE_TOKEN_CREDENTIALS": "dev"})
	}
	tier := webhooks(&metav1.LabelSelector{MatchLabels: map[string]string{"tier": "cloud"}})
	notInjected := webhooks(&metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "lanyard.dev/identity", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"injected"}}}})
	conditional := webhooks(nil, "not-a-mirror-pod", "own")
	const others, isDenied = "the pod of the dry run was denied, but not by Lanyard: no", "a new pod is denied: "
	for sentence, test := range map[string]struct {
		pod            *corev1.Pod
		change         func(*Namespace)
		answer         *Answer // nil if the cluster is not asked
		want           injected.State
		problem, local string
	}{
		"it has what the rules say":                                  {pod("new"), nil, nil, injected.Current, "", ""},
		"a variable of a ConfigMap shadows":                          {takes(), withConfigMap, nil, Shadowed, "", ""},
		"a variable of its own hides that of the ConfigMap":          {takes(corev1.EnvVar{Name: "AZURE_TOKEN_CREDENTIALS", Value: "prod"}), withConfigMap, nil, injected.Current, "", ""},
		"the namespace is excluded":                                  {pod("old"), excluded, nil, injected.Excluded, "", ""},
		"the objectSelector does not select it":                      {pod(""), registered(tier), nil, injected.Excluded, "", ""},
		"the objectSelector leaves out injected pods":                {pod("new"), registered(notInjected), nil, injected.Current, "", ""},
		"the matchConditions have not excluded it":                   {pod("new"), registered(conditional), nil, injected.Current, "", ""},
		"the matchConditions may exclude it":                         {pod(""), registered(conditional), new(fresh("new")), injected.Without, "", ""},
		"it opts out, and the settings are not known":                {optedOut, unread, nil, injected.OptedOut, "", ""},
		"it is left to another webhook":                              {bound, func(n *Namespace) { unread(n); account(azure)(n) }, nil, injected.OptedOut, "", ""},
		"the settings are not known, and a new pod is the same":      {pod("new"), unread, new(fresh("new")), injected.Current, "", ""},
		"the settings are not known, and a new pod is another":       {pod("new"), unread, new(fresh("other")), injected.Stale, "", ""},
		"the settings are not known, and a quota is exceeded":        {pod("new"), unread, denied(ByOther, "no"), injected.Unknown, isDenied + "no", ""},
		"the rules deny a new pod, and the cluster does not":         {pod("new"), account(map[string]string{"lanyard.dev/aws-role-arn": "x"}), new(fresh("new")), injected.Current, "", ""},
		"the cluster makes the same pod":                             {pod("old"), nil, new(fresh("old")), injected.Current, "", ""},
		"the cluster makes another pod":                              {pod("old"), nil, new(fresh("new")), injected.Stale, "", ""},
		"it has none, and a new pod gets one":                        {pod(""), nil, new(fresh("new")), injected.Without, "", ""},
		"neither gets one":                                           {pod(""), nil, new(fresh("")), injected.Unknown, "a new pod has no credentials from Lanyard", ""},
		"a new pod is denied":                                        {pod("old"), nil, denied(ByGuard, "no"), injected.Unknown, isDenied + "no", ""},
		"another program denies a new pod":                           {pod("old"), nil, denied(ByOther, "no"), injected.Stale, "", others},
		"its ServiceAccount asks for nothing, and a pod is denied":   {pod("old"), account(map[string]string{}), denied(ByOther, "no"), injected.Unknown, isDenied + "no", ""},
		"the webhook of another program fails":                       {pod("old"), nil, denied(ByFailedCall, "no"), injected.Stale, "", others},
		"the rules are evaluated here, and deny a pod":               {pod("old"), nil, &Answer{Local: "you may not", Denial: denied(ByOther, "no").Denial}, injected.Unknown, isDenied + "no", ""},
		"the rules are evaluated here, on the pod as it was created": {pod("old"), nil, &Answer{Local: "you may not", Answer: fresh("old").Answer}, injected.Stale, "", "you may not"},
		"the answer is not known":                                    {pod("old"), nil, &Answer{Answer: probe.Answer{Err: errors.New("EOF")}}, injected.Unknown, "the credentials of a new pod are unknown: EOF", ""},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			s := newSettings(t)
			s.Peers = []string{"azure"}
			s.PeerContainers, s.PeerTokens = peer.Rules(peer.All())
			n := NewNamespace(s, &metav1.ObjectMeta{Name: "shop"}, nil)
			n.AddServiceAccount(object("cart", aws, true))
			if test.change != nil {
				test.change(n)
			}
			add(t, n, test.pod)
			wantAsked, answer := 0, Answer{}
			if test.answer != nil {
				wantAsked, answer = 1, *test.answer
			}
			if asked, err := answering(n, answer); err != nil || asked != wantAsked {
				t.Fatalf("got %d questions and error %v, want %d", asked, err, wantAsked)
			}
			rows := n.Rows()
			if len(rows) != 1 || rows[0].States[test.want] != 1 || !strings.HasPrefix(rows[0].Problem, test.problem) || (rows[0].Problem == "") != (test.problem == "") || rows[0].Local != test.local {
				t.Errorf("got %+v, want %s, %q and %q", rows, test.want, test.problem, test.local)
			}
			if asked, err := answering(n, answer); asked > 0 || err != nil {
				t.Errorf("got %d questions and error %v after the answer", asked, err)
			}
		})
	}
}

// Only these kinds are read: a large cluster has many ReplicaSets, and most namespaces have
// no Jobs.
func TestOnlyKindsThatOwnPodsAreRead(t *testing.T) {
	t.Parallel()
	n := NewNamespace(newSettings(t), &metav1.ObjectMeta{Name: "shop"}, nil)
	n.AddServiceAccount(object("cart", aws, true))
	kinds := func() []string {
		var names []string
		for _, kind := range n.unreadOwners() {
			names = append(names, kind.Kind)
		}
		slices.Sort(names)
		return names
	}
	add(t, n, podOf(t, metav1.ObjectMeta{Name: "alone"}, ""))
	if got := kinds(); len(got) > 0 {
		t.Errorf("a pod without an owner: got %v, want no kinds", got)
	}
	add(t, n, podOf(t, owned("a", "ReplicaSet", "cart-1"), ""))
	add(t, n, podOf(t, owned("b", "StatefulSet", "db"), ""))
	add(t, n, podOf(t, owned("c", "Rollout", "x"), ""))
	add(t, n, podOf(t, owned("d", "Pod", "x"), ""))
	if diff := cmp.Diff([]string{"ReplicaSet", "StatefulSet"}, kinds()); diff != "" {
		t.Errorf("owners of pods (-want +got):\n%s", diff)
	}
	addOwner(n, "ReplicaSet", owned("cart-1", "Deployment", "cart"))
	if diff := cmp.Diff([]string{"Deployment"}, kinds()); diff != "" {
		t.Errorf("owners of owners (-want +got):\n%s", diff)
	}
	if got := kinds(); len(got) > 0 {
		t.Errorf("at the end: got %v, want no kinds", got)
	}
}

// The pods of one owner are alike, so one dry run is enough. Pods that are current need
// none.
func TestOneQuestionForThePodsOfAnOwner(t *testing.T) {
	t.Parallel()
	for sentence, test := range map[string]struct {
		roles []string
		want  int
	}{
		"all are current":                {[]string{"new", "new"}, 0},
		"one is stale":                   {[]string{"new", "old"}, 1},
		"two are stale":                  {[]string{"old", "old"}, 1},
		"one is stale, and one has none": {[]string{"", "old"}, 1},
	} {
		n := cart(t, true, true)
		for i, role := range test.roles {
			add(t, n, podOf(t, owned(string(rune('a'+i)), "StatefulSet", "db"), role))
		}
		add(t, n, podOf(t, metav1.ObjectMeta{Name: "opted-out", Labels: map[string]string{"lanyard.dev/inject": "false"}}, ""))
		if got := len(n.questions()); got != test.want {
			t.Errorf("%s: got %d questions, want %d", sentence, got, test.want)
		}
	}
}

func TestPodsWithoutAServiceAccountUseTheDefaultOne(t *testing.T) {
	t.Parallel()
	n := NewNamespace(newSettings(t), &metav1.ObjectMeta{Name: "shop"}, nil)
	n.AddServiceAccount(object("default", aws, true))
	pod := podOf(t, metav1.ObjectMeta{Name: "a"}, "")
	pod.Spec.ServiceAccountName = ""
	add(t, n, pod)
	rows := n.Rows()
	if len(rows) != 1 || rows[0].Pods != 1 {
		t.Errorf("got %+v, want 1 pod", rows)
	}
}

func TestServiceAccountsWithoutAnIdentityDoNotMatter(t *testing.T) {
	t.Parallel()
	n := NewNamespace(newSettings(t), &metav1.ObjectMeta{Name: "shop"}, nil)
	n.AddServiceAccount(object("cart", map[string]string{"lanyard.dev/aws-region": "x"}, false))
	add(t, n, podOf(t, metav1.ObjectMeta{Name: "a"}, ""))
	if rows := n.Rows(); !n.Empty() || len(rows) > 0 {
		t.Errorf("got %v", rows)
	}
	n.AddServiceAccount(object("token", map[string]string{"lanyard.dev/audience": "x"}, false))
	n.AddServiceAccount(object("both", map[string]string{"lanyard.dev/audience": "x", "lanyard.dev/gcp-service-account": "a", "lanyard.dev/azure-client-id": "b"}, false))
	n.AddServiceAccount(object("tokens", map[string]string{"lanyard.dev/tokens": "aws,azure"}, false))
	n.AddServiceAccount(object("tokens-with-audience", map[string]string{"lanyard.dev/tokens": "aws", "lanyard.dev/audience": "x"}, false))
	rows := n.Rows()
	var got [][]string
	for _, row := range rows {
		got = append(got, row.Providers)
	}
	if diff := cmp.Diff([][]string{{"azure", "gcp"}, {"token"}, {"aws", "azure"}, {"aws"}}, got); diff != "" || n.Empty() {
		t.Errorf("providers (-want +got):\n%s", diff)
	}
}
