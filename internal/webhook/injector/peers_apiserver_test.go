// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package injector_test

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lanyard-dev/lanyard/internal/webhook/injector"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/pkg/mutate/reason"
	"github.com/lanyard-dev/lanyard/test/support/optionstest"
	"github.com/lanyard-dev/lanyard/test/support/peers"
)

// beside is an API server with a peer next to Lanyard, and records Lanyard's decisions.
type beside struct {
	peer     peers.Peer
	account  *corev1.ServiceAccount
	pods     *injector.PodMutator
	reasons  []reason.Reason
	findings []string
}

// newBeside adopts the ServiceAccount with the text of Lanyard's configuration file. Without
// flags, there is no peer.
func newBeside(t *testing.T, flags peers.Flags, config string, account []byte) *beside {
	t.Helper()
	b := &beside{account: &corev1.ServiceAccount{}}
	if flags != (peers.Flags{}) {
		var err error
		if b.peer, err = flags.Peer(); err != nil {
			t.Fatal(err)
		}
	}
	if err := json.Unmarshal(account, b.account); err != nil {
		t.Fatal(err)
	}
	b.pods, _ = newPods(t, nil)
	b.pods.Settings = optionstest.Settings(t, config, reservedAudience)
	b.pods.ServiceAccounts = objects{"team/app": adopted(t, &b.pods.Config, account)}
	return b
}

// call is one webhook for the API server.
type call struct {
	reinvoked bool
	admit     func(*testing.T, []byte) (pod []byte, denied string)
}

// admit returns the pod that the API server stores.
func (b *beside) admit(t *testing.T, peerFirst bool, pod []byte) []byte {
	t.Helper()
	stored, denied := b.store(t, peerFirst, pod)
	if denied != "" {
		t.Fatalf("the pod is denied by %s", denied)
	}
	return stored
}

// store returns the pod that the API server stores, or who denies it. The API server
// calls each webhook, and then calls those again that ask for it, if the object changed
// after their first call. A change in this second round is followed by the webhooks
// after it, if they ask for it. Lanyard's guard comes last.
func (b *beside) store(t *testing.T, peerFirst bool, pod []byte) (stored []byte, denied string) {
	t.Helper()
	calls := []call{{peers.Reinvoked(b.peer), b.askPeer}, {true, b.askLanyard}}
	if !peerFirst {
		slices.Reverse(calls)
	}
	again := make([]bool, len(calls))
	for round := range 2 {
		for i, c := range calls {
			if round == 1 && !(again[i] && c.reinvoked) {
				continue
			}
			before := pod
			if pod, denied = c.admit(t, pod); denied != "" {
				return nil, denied
			}
			changed := !reflect.DeepEqual(unmarshal(t, before), unmarshal(t, pod))
			for other := range calls {
				again[other] = other != i && (changed || again[other])
			}
		}
	}
	return pod, b.deniedAfter(typedPod(t, pod))
}

// deniedAfter returns which policy denies the pod after the webhooks, or "" if none does.
func (b *beside) deniedAfter(pod *corev1.Pod) string {
	if hasDuplicates(pod) {
		return "the API server"
	}
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		if !b.passes(pod, &c) {
			return "the guard: no token mount in " + c.Name
		}
	}
	return ""
}

// askPeer returns the pod after the peer. As with the real webhook, unchanged parts keep
// their text.
func (b *beside) askPeer(t *testing.T, pod []byte) (changed []byte, denied string) {
	t.Helper()
	after := typedPod(t, pod)
	if err := peers.Admit(b.peer, after, b.account); err != nil {
		return nil, "the peer"
	}
	if reflect.DeepEqual(after, typedPod(t, pod)) {
		return pod, ""
	}
	return marshal(t, after), ""
}

func (b *beside) askLanyard(t *testing.T, pod []byte) (changed []byte, denied string) {
	t.Helper()
	response := ask(t, b.pods, create(pod))
	b.reasons = append(b.reasons, response.Reason)
	for _, finding := range response.Findings {
		if !slices.Contains(b.findings, finding) {
			b.findings = append(b.findings, finding)
		}
	}
	if response.Code != 0 {
		return nil, "Lanyard"
	}
	return apply(t, pod, response.Patch), ""
}

func typedPod(t *testing.T, text []byte) *corev1.Pod {
	t.Helper()
	var pod corev1.Pod
	if err := json.Unmarshal(text, &pod); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return &pod
}

// holds checks rules that hold next to any peer, in any order. With faulty, the peer's
// variables point to no token.
func (b *beside) holds(t *testing.T, stored []byte, faulty bool) {
	t.Helper()
	pod := typedPod(t, stored)
	holdsValidVolumes(t, pod)
	if again := ask(t, b.pods, create(stored)); again.Patch != nil {
		t.Errorf("a second pass of Lanyard gave %s", again.Patch)
	}
	// The second call of GCP's webhook replaces its init container as a whole.
	if _, gcp := b.peer.(*peers.GCP); !gcp && peers.Reinvoked(b.peer) {
		after := pod.DeepCopy()
		if err := peers.Admit(b.peer, after, b.account); err != nil {
			t.Errorf("a second pass of the peer denies the pod: %v", err)
		}
		if diff := cmp.Diff(pod, after); diff != "" {
			t.Errorf("a second pass of the peer (-before +after):\n%s", diff)
		}
	}
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		if !slices.Contains(b.pods.PeerContainers, c.Name) {
			holdsMarked(t, pod, &c)
		}
		if !faulty {
			holdsTokens(t, pod, &c)
		}
	}
}

// holdsValidVolumes checks that there are no two volumes with the same name, no two mounts
// with the same path, and no mount without a volume, which the API server would deny.
func holdsValidVolumes(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	volumes := map[string]bool{}
	for _, v := range pod.Spec.Volumes {
		if volumes[v.Name] {
			t.Errorf("the API server denies the pod: two volumes %s", v.Name)
		}
		volumes[v.Name] = true
	}
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		paths := map[string]bool{}
		for _, m := range c.VolumeMounts {
			if paths[m.MountPath] {
				t.Errorf("the API server denies the pod: container %s: mountPath %s must be unique", c.Name, m.MountPath)
			}
			if !volumes[m.Name] {
				t.Errorf("the API server denies the pod: container %s: volume %s not found", c.Name, m.Name)
			}
			paths[m.MountPath] = true
		}
		names := map[string]bool{}
		for _, v := range c.Env {
			if names[v.Name] {
				t.Errorf("container %s sets %s twice", c.Name, v.Name)
			}
			names[v.Name] = true
		}
	}
}

// holdsMarked checks that the guard lets the container pass.
func holdsMarked(t *testing.T, pod *corev1.Pod, c *corev1.Container) {
	t.Helper()
	if !isMarked(pod, c) {
		t.Errorf("container %s lacks the token mount: the guard denies the pod", c.Name)
	}
}

// passes reports whether the guard lets the container pass.
func (b *beside) passes(pod *corev1.Pod, c *corev1.Container) bool {
	return slices.Contains(b.pods.PeerContainers, c.Name) || isMarked(pod, c)
}

// isMarked reports whether the container has the token mount, or needs none.
func isMarked(pod *corev1.Pod, c *corev1.Container) bool {
	_, injected := pod.Annotations[annotations.Prefix+"injected"]
	return !injected || slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == annotations.DefaultTokenMountPath })
}

// holdsTokens checks that each variable that names a token or a credential file leads
// to a token in a volume that the container mounts.
func holdsTokens(t *testing.T, pod *corev1.Pod, c *corev1.Container) {
	t.Helper()
	for _, name := range []string{"AWS_WEB_IDENTITY_TOKEN_FILE", "AZURE_FEDERATED_TOKEN_FILE"} {
		if file := value(c, name); strings.Contains(file, "secrets") {
			if token := tokenAt(pod, c, file); token == nil {
				t.Errorf("container %s: %s=%s is not in a mounted volume", c.Name, name, file)
			}
		}
	}
	for _, name := range []string{"GOOGLE_APPLICATION_CREDENTIALS", "CLOUDSDK_AUTH_CREDENTIAL_FILE_OVERRIDE"} {
		if file := value(c, name); strings.Contains(file, "secrets") {
			if credential := credentialAt(pod, c, file); credential == nil || tokenAt(pod, c, credential.Source.File) == nil {
				t.Errorf("container %s: %s=%s leads to no token: %+v", c.Name, name, file, credential)
			}
		}
	}
}

// value returns the value of a variable, or "".
func value(c *corev1.Container, name string) string {
	for _, v := range c.Env {
		if v.Name == name {
			return v.Value
		}
	}
	return ""
}

// volumeAt returns the volume that the container has at the path of a file, or nil if
// there is none, and the rest of the path.
func volumeAt(pod *corev1.Pod, c *corev1.Container, file string) (volume *corev1.Volume, rest string) {
	file = strings.ReplaceAll(strings.TrimPrefix(file, "C:"), `\`, "/")
	for _, m := range c.VolumeMounts {
		below, found := strings.CutPrefix(file, m.MountPath+"/")
		if !found {
			continue
		}
		for i := range pod.Spec.Volumes {
			if pod.Spec.Volumes[i].Name == m.Name {
				return &pod.Spec.Volumes[i], below
			}
		}
	}
	return nil, ""
}

// tokenAt returns the token that the container reads at a path, or nil if there is none.
func tokenAt(pod *corev1.Pod, c *corev1.Container, file string) *corev1.ServiceAccountTokenProjection {
	volume, rest := volumeAt(pod, c, file)
	if volume == nil || volume.Projected == nil {
		return nil
	}
	for _, source := range volume.Projected.Sources {
		if source.ServiceAccountToken != nil && source.ServiceAccountToken.Path == rest {
			return source.ServiceAccountToken
		}
	}
	return nil
}

// credential is the part of a Google credential file that matters.
type credential struct {
	Audience      string `json:"audience"`
	Impersonation string `json:"service_account_impersonation_url"`
	Source        struct {
		File string `json:"file"`
	} `json:"credential_source"`
}

// credentialAt returns the credential file that the container reads at a path, or nil
// if there is none. The peer's init container writes its file.
func credentialAt(pod *corev1.Pod, c *corev1.Container, file string) *credential {
	volume, rest := volumeAt(pod, c, file)
	if volume == nil {
		return nil
	}
	var items []corev1.DownwardAPIVolumeFile
	if volume.DownwardAPI != nil {
		items = volume.DownwardAPI.Items
	}
	if volume.Projected != nil {
		for _, source := range volume.Projected.Sources {
			if source.DownwardAPI != nil {
				items = append(items, source.DownwardAPI.Items...)
			}
		}
	}
	for _, item := range items {
		key := strings.TrimSuffix(strings.TrimPrefix(item.FieldRef.FieldPath, "metadata.annotations['"), "']")
		var found credential
		if item.Path == rest && json.Unmarshal([]byte(pod.Annotations[key]), &found) == nil {
			return &found
		}
	}
	for i := range pod.Spec.InitContainers {
		setup := &pod.Spec.InitContainers[i]
		if setup.Name != "gcloud-setup" || volume.EmptyDir == nil {
			continue
		}
		found := credential{
			Audience:      "//iam.googleapis.com/" + value(setup, "GCP_WORKLOAD_IDENTITY_PROVIDER"),
			Impersonation: "https://iamcredentials.googleapis.com/v1/projects/-/serviceAccounts/" + value(setup, "GCP_SERVICE_ACCOUNT") + ":generateAccessToken",
		}
		found.Source.File = "/var/run/secrets/sts.googleapis.com/serviceaccount/token"
		return &found
	}
	return nil
}

// adopting is newBeside with the peers adopted.
func adopting(t *testing.T, flags peers.Flags, account map[string]string) *beside {
	t.Helper()
	return newBeside(t, flags, "adopt: [eks, azure, gcp]", accountObject(t, account))
}

func newPodOf(t *testing.T, values map[string]string, containers ...string) []byte {
	t.Helper()
	pod := &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Name: "pod", Namespace: "team", Annotations: values},
		Spec:       corev1.PodSpec{ServiceAccountName: "app"},
	}
	for _, name := range containers {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: name, Image: "image"})
	}
	return marshal(t, pod)
}

// accountObject returns the JSON of the ServiceAccount team/app.
func accountObject(t *testing.T, values map[string]string) []byte {
	t.Helper()
	return marshal(t, &corev1.ServiceAccount{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceAccount"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "app", Annotations: values},
	})
}
