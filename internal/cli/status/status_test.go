// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package status_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lanyard-dev/lanyard/internal/cli/cluster"
	"github.com/lanyard-dev/lanyard/internal/cli/status"
	"github.com/lanyard-dev/lanyard/internal/injected"
	"github.com/lanyard-dev/lanyard/internal/peer"
	"github.com/lanyard-dev/lanyard/internal/provider"
	"github.com/lanyard-dev/lanyard/internal/settings"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

func newSettings(t *testing.T) *annotations.Settings {
	t.Helper()
	s, err := annotations.NewSettings(provider.Builtin())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

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
func addOwner(n *status.Namespace, kind string, meta metav1.ObjectMeta) {
	found, _ := cluster.ByName(kind)
	meta.UID = types.UID(kind + "/" + meta.Name)
	n.AddOwner(&found, &metav1.PartialObjectMetadata{ObjectMeta: meta})
}

// podOf returns a running pod of the ServiceAccount cart, with a role if it is not
// empty.
func podOf(meta metav1.ObjectMeta, role string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: meta, Spec: corev1.PodSpec{ServiceAccountName: "cart"}, Status: corev1.PodStatus{Phase: corev1.PodRunning}}
	if role != "" {
		pod.Annotations = map[string]string{"lanyard.dev/injected": "aws"}
		pod.Spec.Volumes = []corev1.Volume{{Name: "bound-sa-token", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
			Sources: []corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Audience: "sts.amazonaws.com", Path: "aws/token"}}},
		}}}}
		pod.Spec.Containers = []corev1.Container{{
			Name: "main", Env: []corev1.EnvVar{{Name: "AWS_ROLE_ARN", Value: "arn:aws:iam::111122223333:role/" + role}},
			VolumeMounts: []corev1.VolumeMount{{Name: "bound-sa-token", MountPath: "/lanyard", ReadOnly: true}},
		}}
	}
	return pod
}

// answer returns the contents of a new pod with the role.
func answer(t *testing.T, role string) *status.Answer {
	t.Helper()
	read, err := injected.Read(podOf(metav1.ObjectMeta{}, role), newSettings(t))
	if err != nil {
		t.Fatal(err)
	}
	return &status.Answer{Pod: read}
}

var aws = map[string]string{"lanyard.dev/aws-role-arn": "x"}

// cart returns a namespace with an annotated ServiceAccount and a Deployment.
func cart(t *testing.T, called, labelled bool) *status.Namespace {
	t.Helper()
	n := status.NewNamespace(&settings.Settings{Settings: newSettings(t)}, &metav1.ObjectMeta{Name: "shop"}, called)
	n.AddServiceAccount(object("cart", aws, labelled))
	addOwner(n, "Deployment", metav1.ObjectMeta{Name: "cart"})
	addOwner(n, "ReplicaSet", owned("cart-1", "Deployment", "cart"))
	addOwner(n, "StatefulSet", metav1.ObjectMeta{Name: "db"})
	return n
}

func TestPodsAreCountedByWorkload(t *testing.T) {
	t.Parallel()
	n := cart(t, true, true)
	n.AddPod(podOf(owned("cart-1-a", "ReplicaSet", "cart-1"), "new"))
	n.AddPod(podOf(owned("cart-1-b", "ReplicaSet", "cart-1"), "old"))
	n.AddPod(podOf(owned("cart-1-c", "ReplicaSet", "cart-1"), ""))
	n.AddPod(podOf(owned("db-0", "StatefulSet", "db"), "new"))
	n.AddPod(podOf(metav1.ObjectMeta{Name: "alone"}, ""))
	optedOut := podOf(owned("cart-1-d", "ReplicaSet", "cart-1"), "")
	optedOut.Labels = map[string]string{"lanyard.dev/inject": "false"}
	n.AddPod(optedOut)
	optedOut = podOf(owned("cart-1-f", "ReplicaSet", "cart-1"), "")
	optedOut.Annotations = map[string]string{"lanyard.dev/inject": "false"}
	n.AddPod(optedOut)
	for _, phase := range []corev1.PodPhase{corev1.PodSucceeded, corev1.PodFailed} {
		done := podOf(owned("cart-1-e", "ReplicaSet", "cart-1"), "old")
		done.Status.Phase = phase
		n.AddPod(done)
	}
	mirror := podOf(metav1.ObjectMeta{Name: "mirror", Annotations: map[string]string{"kubernetes.io/config.mirror": "x"}}, "")
	n.AddPod(mirror)
	other := podOf(metav1.ObjectMeta{Name: "other"}, "")
	other.Spec.ServiceAccountName = ""
	n.AddPod(other)

	question := status.Question{ServiceAccount: "cart"}
	if diff := cmp.Diff([]status.Question{question}, n.Questions()); diff != "" {
		t.Fatalf("questions (-want +got):\n%s", diff)
	}
	row := func(workload string, pods int, states map[injected.State]int) status.Row {
		return status.Row{
			Namespace: "shop", ServiceAccount: "cart", Providers: []string{"aws"}, Guard: cluster.GuardOn,
			Workload: workload, Pods: pods, States: states,
		}
	}
	want := []status.Row{
		row("deployment/cart", 5, map[injected.State]int{injected.Current: 1, injected.Stale: 1, injected.Without: 1, injected.OptedOut: 2}),
		row("pod/alone", 1, map[injected.State]int{injected.Without: 1}),
		row("statefulset/db", 1, map[injected.State]int{injected.Current: 1}),
	}
	got := n.Rows(map[status.Question]*status.Answer{question: answer(t, "new")})
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
	for i, outdated := range []int{2, 1, 0} {
		if got[i].Outdated() != outdated {
			t.Errorf("%s: got %d outdated pods, want %d", got[i].Workload, got[i].Outdated(), outdated)
		}
	}
}

// Whoever creates a pod writes its ownerReferences, and restart --stale restarts the
// workload of the pod.
// During a switch, pods have the credentials of the other webhook until they are replaced.
func TestPodsWithTheTokenOfAPeerAreNotWithout(t *testing.T) {
	t.Parallel()
	peers, err := peer.Named([]string{"eks", "azure"})
	if err != nil {
		t.Fatal(err)
	}
	s := newSettings(t)
	s.PeerContainers, s.PeerTokens = peer.Rules(peers)
	theirs := func(name, volume, audience string) *corev1.Pod {
		pod := podOf(metav1.ObjectMeta{Name: name}, "")
		pod.Spec.Volumes = []corev1.Volume{{Name: volume, VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
			Sources: []corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Audience: audience, Path: "token"}}},
		}}}}
		pod.Spec.Containers = []corev1.Container{{Name: "main", VolumeMounts: []corev1.VolumeMount{{Name: volume, MountPath: "/token"}}}}
		return pod
	}
	n := status.NewNamespace(&settings.Settings{Settings: s, Peers: peers}, &metav1.ObjectMeta{Name: "shop"}, true)
	n.AddServiceAccount(object("cart", aws, true))
	// The names of the volumes are not the same in all versions of a webhook.
	n.AddPod(theirs("eks", "aws-iam-token", "sts.amazonaws.com"))
	n.AddPod(theirs("renamed", "reserved-1234", "sts.amazonaws.com"))
	n.AddPod(theirs("own", "aws-iam-token", "cloud"))
	bound := podOf(metav1.ObjectMeta{Name: "bound", Annotations: map[string]string{"azure.workload.identity/use-identity-binding": "true"}}, "")
	n.AddPod(bound)
	want := map[string]injected.State{"pod/eks": injected.Stale, "pod/renamed": injected.Stale, "pod/own": injected.Without, "pod/bound": injected.OptedOut}
	for _, row := range n.Rows(map[status.Question]*status.Answer{{ServiceAccount: "cart"}: answer(t, "new")}) {
		if row.States[want[row.Workload]] != 1 {
			t.Errorf("%s: got %v, want %s", row.Workload, row.States, want[row.Workload])
		}
	}
}

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
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			n := cart(t, true, true)
			addOwner(n, "ReplicaSet", owned("cart-2", "Deployment", "payments"))
			addOwner(n, "ReplicaSet", owned("cart-3", "Rollout", "cart"))
			addOwner(n, "CronJob", owned("report", "Report", "r"))
			addOwner(n, "Job", owned("report-1", "CronJob", "report"))
			addOwner(n, "StatefulSet", owned("log", "LogStore", "log"))
			meta := owned("a", test.kind, test.owner)
			meta.OwnerReferences[0].UID = types.UID(test.uid)
			n.AddPod(podOf(meta, ""))
			if rows := n.Rows(nil); len(rows) != 1 || rows[0].Workload != test.want {
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
		rows := cart(t, test.called, test.labelled).Rows(nil)
		if len(rows) != 1 || rows[0].Guard != test.want || rows[0].Workload != "" || rows[0].Outdated() > 0 {
			t.Errorf("called %t, labelled %t: got %+v, want %s", test.called, test.labelled, rows, test.want)
		}
	}
}

func TestExcludedNamespacesAskNothing(t *testing.T) {
	t.Parallel()
	n := cart(t, false, true)
	n.AddPod(podOf(metav1.ObjectMeta{Name: "a"}, ""))
	n.AddPod(podOf(metav1.ObjectMeta{Name: "b"}, "old"))
	if questions := n.Questions(); len(questions) > 0 {
		t.Errorf("got %v", questions)
	}
	rows := n.Rows(nil)
	for i := range rows {
		if row := &rows[i]; row.States[injected.Excluded] != 1 || row.Outdated() > 0 {
			t.Errorf("got %+v, want 1 excluded pod", row)
		}
	}
	if len(rows) != 2 {
		t.Errorf("got %+v, want 2 rows", rows)
	}
}

func TestPodsThatDifferInWhatTheyGet(t *testing.T) {
	t.Parallel()
	n := cart(t, true, true)
	short := podOf(metav1.ObjectMeta{Name: "short"}, "s")
	short.Annotations["lanyard.dev/token-expiration-seconds"] = "600"
	n.AddPod(short)
	byOS := podOf(metav1.ObjectMeta{Name: "windows"}, "w")
	byOS.Spec.OS = &corev1.PodOS{Name: corev1.Windows}
	n.AddPod(byOS)
	bySelector := podOf(metav1.ObjectMeta{Name: "windows-2"}, "w")
	bySelector.Spec.NodeSelector = map[string]string{"kubernetes.io/os": "windows"}
	n.AddPod(bySelector)
	byOldSelector := podOf(metav1.ObjectMeta{Name: "windows-3"}, "w")
	byOldSelector.Spec.NodeSelector = map[string]string{"beta.kubernetes.io/os": "windows"}
	n.AddPod(byOldSelector)
	want := map[status.Question]string{{ServiceAccount: "cart", Expiration: "600"}: "s", {ServiceAccount: "cart", Windows: true}: "w"}
	answers := map[status.Question]*status.Answer{}
	for _, q := range n.Questions() {
		answers[q] = answer(t, want[q])
	}
	if len(answers) != len(want) {
		t.Fatalf("got questions %v, want %v", answers, want)
	}
	for _, row := range n.Rows(answers) {
		if row.States[injected.Current] != 1 {
			t.Errorf("got %+v, want 1 current pod", row)
		}
	}
}

func TestPodsThatCannotBeCompared(t *testing.T) {
	t.Parallel()
	n := cart(t, true, true)
	n.AddPod(podOf(metav1.ObjectMeta{Name: "a"}, "old"))
	rows := n.Rows(map[status.Question]*status.Answer{{ServiceAccount: "cart"}: {Problem: "denied"}})
	if len(rows) != 1 || rows[0].States[injected.Unknown] != 1 || rows[0].Problem != "denied" || rows[0].Outdated() > 0 {
		t.Errorf("got %+v", rows)
	}
}

// Only these kinds are read: a large cluster has many ReplicaSets, and most namespaces have
// no Jobs.
func TestOnlyKindsThatOwnPodsAreRead(t *testing.T) {
	t.Parallel()
	n := status.NewNamespace(&settings.Settings{Settings: newSettings(t)}, &metav1.ObjectMeta{Name: "shop"}, true)
	n.AddServiceAccount(object("cart", aws, true))
	kinds := func() []string {
		var names []string
		for _, kind := range n.UnreadOwners() {
			names = append(names, kind.Kind)
		}
		slices.Sort(names)
		return names
	}
	n.AddPod(podOf(metav1.ObjectMeta{Name: "alone"}, ""))
	if got := kinds(); len(got) > 0 {
		t.Errorf("a pod without an owner: got %v, want no kinds", got)
	}
	n.AddPod(podOf(owned("a", "ReplicaSet", "cart-1"), ""))
	n.AddPod(podOf(owned("b", "StatefulSet", "db"), ""))
	n.AddPod(podOf(owned("c", "Rollout", "x"), ""))
	n.AddPod(podOf(owned("d", "Pod", "x"), ""))
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

// The pods of the webhook confirm an evaluation of its rules, so that no dry run is needed.
func TestPodsConfirmAnAnswer(t *testing.T) {
	t.Parallel()
	for sentence, test := range map[string]struct {
		roles  []string
		answer *status.Answer
		want   bool
	}{
		"all are like the answer": {[]string{"new", "new"}, answer(t, "new"), true},
		"one is stale":            {[]string{"new", "old"}, answer(t, "new"), false},
		"one has no credentials":  {[]string{"", "new"}, answer(t, "new"), false},
		"no credentials":          {[]string{"", ""}, answer(t, ""), true},
		"a denial":                {[]string{"new"}, &status.Answer{Problem: "denied"}, false},
	} {
		n := cart(t, true, true)
		for i, role := range test.roles {
			n.AddPod(podOf(metav1.ObjectMeta{Name: string(rune('a' + i))}, role))
		}
		optedOut := podOf(metav1.ObjectMeta{Name: "opted-out", Labels: map[string]string{"lanyard.dev/inject": "false"}}, "")
		n.AddPod(optedOut)
		if got := n.Confirms(status.Question{ServiceAccount: "cart"}, test.answer); got != test.want {
			t.Errorf("%s: got %t, want %t", sentence, got, test.want)
		}
	}
}

func TestPodsWithoutAServiceAccountUseTheDefaultOne(t *testing.T) {
	t.Parallel()
	n := status.NewNamespace(&settings.Settings{Settings: newSettings(t)}, &metav1.ObjectMeta{Name: "shop"}, true)
	n.AddServiceAccount(object("default", aws, true))
	pod := podOf(metav1.ObjectMeta{Name: "a"}, "")
	pod.Spec.ServiceAccountName = ""
	n.AddPod(pod)
	rows := n.Rows(nil)
	if len(rows) != 1 || rows[0].Pods != 1 {
		t.Errorf("got %+v, want 1 pod", rows)
	}
}

func TestServiceAccountsWithoutAnIdentityDoNotMatter(t *testing.T) {
	t.Parallel()
	n := status.NewNamespace(&settings.Settings{Settings: newSettings(t)}, &metav1.ObjectMeta{Name: "shop"}, true)
	n.AddServiceAccount(object("cart", map[string]string{"lanyard.dev/aws-region": "x"}, false))
	n.AddPod(podOf(metav1.ObjectMeta{Name: "a"}, ""))
	if rows := n.Rows(nil); !n.Empty() || len(rows) > 0 {
		t.Errorf("got %v", rows)
	}
	n.AddServiceAccount(object("token", map[string]string{"lanyard.dev/audience": "x"}, false))
	n.AddServiceAccount(object("both", map[string]string{"lanyard.dev/audience": "x", "lanyard.dev/gcp-service-account": "a", "lanyard.dev/azure-client-id": "b"}, false))
	n.AddServiceAccount(object("tokens", map[string]string{"lanyard.dev/tokens": "aws,azure"}, false))
	n.AddServiceAccount(object("tokens-with-audience", map[string]string{"lanyard.dev/tokens": "aws", "lanyard.dev/audience": "x"}, false))
	rows := n.Rows(nil)
	var got [][]string
	for _, row := range rows {
		got = append(got, row.Providers)
	}
	if diff := cmp.Diff([][]string{{"azure", "gcp"}, {"token"}, {"aws", "azure"}, {"aws"}}, got); diff != "" || n.Empty() {
		t.Errorf("providers (-want +got):\n%s", diff)
	}
}
