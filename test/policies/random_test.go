// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lanyard-dev/lanyard/internal/webhook/injector"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/pkg/mutate"
	"github.com/lanyard-dev/lanyard/test/support/randpod"
)

var (
	randomPods = flag.Int("pods", 400, "number of random pods; hack/test-versions.sh runs 2000")
	seed       = flag.Uint64("seed", 0, "for other random pods")
)

const (
	podsPerAccount       = 5
	accountsPerNamespace = 20
	// plainNamespace is without policies. writtenPrefix begins the names of the namespaces
	// in which ServiceAccounts are created once more.
	plainNamespace, livePrefix, writtenPrefix = "plain", "live", "copy"
	randomGroup                               = "random"
)

// sample is a random ServiceAccount.
type sample struct {
	index              int
	live, written      string // namespaces
	meta               metav1.ObjectMeta
	namespace          map[string]string // annotations
	denied, deniedHere error             // when it is written: by the webhook, and by the policies
}

// values are valid values of annotations that a ServiceAccount may have, next to an identity.
var values = map[string][]string{
	"aws-region": {"eu-central-1"}, "aws-session-name": {"pod"}, "azure-tenant-id": {"aaaaaaaa-2222-3333-4444-555555555555", "example.onmicrosoft.com"},
	"gcp-service-account": {"app@my-project.iam.gserviceaccount.com", "app@my-project.example.com.iam.gserviceaccount.com"}, "gcp-project": {"other-project"},
	"aws-audience": {"aws"}, "azure-audience": {"azure$(HOME)"}, "gcp-audience": {"//gcp/\"x\""},
	"token-expiration-seconds": {"3600", "86400", "600"}, "tokens": {"aws", "azure", "azure, aws", "gcp"}, "audience": {"vault", "a$b"},
}

// asking are values that ask for an identity, by provider. rare are keys that policies do not
// know, or that nobody knows.
var asking = []map[string][]string{
	{"aws-role-arn": {role, "arn:aws-cn:iam::111122223333:role/team/app"}},
	{"azure-client-id": {"bbbbbbbb-2222-3333-4444-555555555555", "BBBBBBBB-2222-3333-4444-555555555555"}},
	{"gcp-workload-identity-provider": {"projects/123456789012/locations/global/workloadIdentityPools/pool/providers/cluster"}},
	{"audience": {"vault"}},
}

var rare = map[string][]string{"aws-role-arn.audit": {role}, "azure-token-path": {"/var/run/secrets/x/token"}, "aws-rolearn": {role}}

// globs are values of allowed-identities.
var globs = []string{"*", "-", "arn:aws:iam::111122223333:role/*", "BBBBBBBB-2222-3333-4444-555555555555, *@my-project.*, arn:*, tokens:*", "*, ", "vault,//iam*"}

// pick returns a value, sometimes changed to an invalid one.
func pick(list []string, r *rand.Rand) string {
	value := list[r.IntN(len(list))]
	if r.IntN(25) == 0 {
		value = changed(value, r)
	}
	return value
}

// newSample returns the ServiceAccount of this number: always the same.
func newSample(index int) *sample {
	r := rand.New(rand.NewPCG(25+*seed, uint64(index)))
	a := &sample{index: index, live: fmt.Sprintf("%s-%03d", livePrefix, index/accountsPerNamespace), written: fmt.Sprintf("%s-%03d", writtenPrefix, index/accountsPerNamespace)}
	a.meta = metav1.ObjectMeta{Name: fmt.Sprintf("app-%d", index), Annotations: map[string]string{"example.com/other": "x"}}
	if r.IntN(20) == 0 {
		a.meta.Name += strings.Repeat("x", 48+r.IntN(8))
	}
	set := func(from map[string][]string, one int) {
		for _, key := range slices.Sorted(maps.Keys(from)) {
			cloud, _, _ := strings.Cut(key, "-")
			fits := cloud == "audience" || cloud == "token" || strings.Contains(strings.Join(slices.Collect(maps.Keys(a.meta.Annotations)), " "), "/"+cloud)
			if r.IntN(one) == 0 && (fits || one < 4 || r.IntN(8) == 0) {
				a.meta.Annotations["lanyard.dev/"+key] = pick(from[key], r)
			}
		}
	}
	for _, provider := range asking {
		set(provider, 2)
	}
	if _, found := a.meta.Annotations["lanyard.dev/azure-client-id"]; found && r.IntN(10) > 0 {
		a.meta.Annotations["lanyard.dev/azure-tenant-id"] = values["azure-tenant-id"][0]
	}
	set(values, 6)
	set(rare, 40)
	return a
}

// label sets the label that the webhook sets.
func (a *sample) label(s *annotations.Settings) {
	if s.AskForIdentity(a.meta.Annotations) {
		a.meta.Labels = map[string]string{annotations.IdentityLabel: annotations.IdentityEnabled}
	} else if a.index%3 == 0 {
		a.meta.Labels = map[string]string{annotations.IdentityLabel: annotations.IdentityRequired}
	}
}

// newRandomPod returns the pod of this number for the ServiceAccount: always the same.
func (a *sample) newRandomPod(t *testing.T, index int) *corev1.Pod {
	t.Helper()
	r := rand.New(rand.NewPCG(uint64(a.index)+*seed<<32, uint64(index)))
	var pod corev1.Pod
	text, err := json.Marshal(randpod.New(r))
	must(t, "pod", err)
	must(t, "pod", json.Unmarshal(text, &pod)) // without the fields that no version has
	pod.Namespace, pod.Spec.ServiceAccountName = a.live, a.meta.Name
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	for key, list := range map[string][]string{
		"inject": {"true", "true", "false", "no"}, "containers": {"main-1", "main-1, init-3", "nobody", ""}, "skip-containers": {"main-1", "main-2,nobody", "Main"},
		"token-expiration-seconds": {"7200", "600", "0"}, "unknown": {"x"}, "injected": {"aws"},
	} {
		if r := rand.New(rand.NewPCG(uint64(a.index*podsPerAccount+index)+*seed<<32, uint64(len(key)))); r.IntN(30) == 0 {
			pod.Annotations["lanyard.dev/"+key] = list[r.IntN(len(list))]
		}
	}
	if r.IntN(30) == 0 {
		pod.Labels = map[string]string{"lanyard.dev/inject": []string{"true", "false", "maybe"}[r.IntN(3)]}
	}
	return &pod
}

// rules are the rules of the webhook, and the objects that they depend on.
type rules struct {
	*annotations.Settings
	accounts, namespaces map[string]*annotations.Object
}

func newRules(s *annotations.Settings) *rules {
	return &rules{s, map[string]*annotations.Object{}, map[string]*annotations.Object{}}
}

// testRandomPods creates random pods with random ServiceAccounts, and compares the policies
// with the webhook.
func (c *cluster) testRandomPods(t *testing.T) {
	s := settingsOf(t, "")
	webhook := newRules(s)
	c.createPlain(t)
	var all []*sample
	for i := range *randomPods / podsPerAccount {
		a := newSample(i)
		a.label(s)
		all = append(all, a)
		if i%accountsPerNamespace == 0 {
			c.namespaces(t, webhook, a)
		} else {
			a.namespace = all[i-1].namespace
		}
		for _, name := range []string{a.live, a.written} {
			webhook.accounts[name+"/"+a.meta.Name] = &annotations.Object{Namespace: name, Name: a.meta.Name, Annotations: a.meta.Annotations, Label: a.meta.Labels[annotations.IdentityLabel]}
		}
	}
	eachOf(all, func(a *sample) {
		c.createAccount(t, a.live, &corev1.ServiceAccount{ObjectMeta: *a.meta.DeepCopy()})
		c.createAccount(t, plainNamespace, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: a.meta.Name}})
	})
	c.install(t, s, randomGroup)
	var mu sync.Mutex
	counts := map[string]int{}
	eachOf(all, func(a *sample) {
		c.writeSample(t, webhook, a)
		for i := range podsPerAccount {
			result := c.compareRandom(t, webhook, a, a.newRandomPod(t, i), fmt.Sprintf("ServiceAccount %d, pod %d", a.index, i))
			mu.Lock()
			counts[result]++
			mu.Unlock()
		}
	})
	for _, result := range slices.Sorted(maps.Keys(counts)) {
		t.Logf("%d %s", counts[result], result)
	}
	for _, result := range []string{equal, alike, notHere} {
		if share := *randomPods / 100; counts[result] < share {
			t.Errorf("got %d pods %s, want at least %d", counts[result], result, share)
		}
	}
}

// eachOf calls do for each sample, a few at a time.
func eachOf(all []*sample, do func(a *sample)) {
	var group sync.WaitGroup
	next := make(chan *sample)
	for range 4 {
		group.Go(func() {
			for a := range next {
				do(a)
			}
		})
	}
	for _, a := range all {
		next <- a
	}
	close(next)
	group.Wait()
}

// namespaces creates the namespaces of a sample.
func (c *cluster) namespaces(t *testing.T, webhook *rules, a *sample) {
	t.Helper()
	r := rand.New(rand.NewPCG(26+*seed, uint64(a.index)))
	if r.IntN(4) == 0 {
		a.namespace = map[string]string{"lanyard.dev/allowed-identities": globs[r.IntN(len(globs))]}
	}
	list := []metav1.ObjectMeta{
		{Name: a.live, Annotations: a.namespace, Labels: map[string]string{configLabel: randomGroup}},
		{Name: a.written, Annotations: a.namespace, Labels: map[string]string{configLabel: randomGroup}},
	}
	for i := range list {
		webhook.namespaces[list[i].Name] = annotations.NamespaceObject(&list[i])
		_, err := c.client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: list[i]}, metav1.CreateOptions{})
		must(t, list[i].Name, err)
	}
}

// createPlain creates plainNamespace, unless another test has.
func (c *cluster) createPlain(t *testing.T) {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: plainNamespace, Labels: map[string]string{annotations.Inject: annotations.LabelDisabled}}}
	if _, err := c.client.CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
		must(t, plainNamespace, err)
	}
}

// writeSample creates the ServiceAccount once more, which the policies must deny as the webhook
// does.
func (c *cluster) writeSample(t *testing.T, webhook *rules, a *sample) {
	t.Helper()
	account := &corev1.ServiceAccount{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceAccount"}, ObjectMeta: *a.meta.DeepCopy()}
	account.Namespace = a.written
	text, err := json.Marshal(account)
	if err != nil {
		t.Error(err)
		return
	}
	_, a.denied = injector.Validate(webhook.Settings, webhook.namespaces[a.written], text)
	stored, err := c.client.CoreV1().ServiceAccounts(a.written).Create(t.Context(), account, dryRun)
	a.deniedHere = err
	switch {
	case isUnavailable(err):
	case (err == nil) != (a.denied == nil), err != nil && !strings.Contains(err.Error(), "lanyard: "+withoutNearest(a.denied.Error())):
		t.Errorf("ServiceAccount %d: got error %v\nwant %v", a.index, err, a.denied)
	case err == nil && !maps.Equal(stored.Labels, a.meta.Labels):
		t.Errorf("ServiceAccount %d: got labels %v, want %v", a.index, stored.Labels, a.meta.Labels)
	}
}

// isUnavailable reports whether an error denies something that policies cannot do.
func isUnavailable(err error) bool {
	return err != nil && (strings.Contains(err.Error(), unavailable) || strings.Contains(err.Error(), ", which policies cannot "))
}

// compareRandom creates a pod, and returns the result for the count.
func (c *cluster) compareRandom(t *testing.T, webhook *rules, a *sample, pod *corev1.Pod, name string) string {
	t.Helper()
	want, decision, errWant := mutated(t, webhook, pod)
	got, err := c.client.CoreV1().Pods(a.live).Create(t.Context(), pod, dryRun)
	switch {
	case isUnavailable(err), err == nil && isUnavailable(a.deniedHere):
		return notHere
	case errWant != nil && err != nil && strings.Contains(withoutGenerated(err.Error(), pod), "lanyard: "+withoutNearest(errWant.Error())):
		return alike
	case errWant != nil && a.denied != nil && (err == nil || strings.Contains(err.Error(), "no annotation of serviceaccount")):
		return alikeSA // which writeSample compares
	case errWant != nil:
		t.Errorf("%s: got error %v\nwant %v", name, err, errWant)
		return different
	}
	if _, warnings := decision.Texts(); warnsOfGuard(warnings) {
		if err == nil || !strings.Contains(err.Error(), nothingLeft) {
			t.Errorf("%s: got error %v, want %q in it", name, err, nothingLeft)
			return different
		}
		return asGuard
	}
	stored, errPlain := c.inPlain(t, want)
	if errPlain != nil {
		if err == nil {
			t.Errorf("%s: with policies, the API server creates the pod; without: %v", name, errPlain)
			return different
		}
		return impossible
	}
	if err != nil {
		t.Errorf("%s: %v", name, err)
		return different
	}
	if diff := cmp.Diff(compared(stored), compared(got)); diff != "" {
		t.Errorf("%s (-webhook +policies):\n%s", name, diff)
		return different
	}
	if got.Labels[injectedLabel] == injectedValue {
		c.holdsAgain(t, webhook, got, name)
	}
	return equal
}

// withoutGenerated returns the message of a denial without the generated end of the pod's name. A
// validating policy already knows the name, and a mutating one does not.
func withoutGenerated(message string, pod *corev1.Pod) string {
	if pod.GenerateName == "" {
		return message
	}
	return regexp.MustCompile(regexp.QuoteMeta(pod.Namespace+"/"+pod.GenerateName)+"[a-z0-9]{5}").ReplaceAllString(message, pod.Namespace+"/"+pod.GenerateName)
}

// inPlain creates a pod without policies.
func (c *cluster) inPlain(t *testing.T, pod *corev1.Pod) (*corev1.Pod, error) {
	pod = pod.DeepCopy()
	pod.Namespace = plainNamespace
	return c.client.CoreV1().Pods(plainNamespace).Create(t.Context(), pod, dryRun)
}

// mutated returns the pod after the webhook, and the decision.
func mutated(t *testing.T, webhook *rules, pod *corev1.Pod) (*corev1.Pod, *mutate.Decision, error) {
	t.Helper()
	pod = pod.DeepCopy()
	pod.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	text, err := json.Marshal(pod)
	if err != nil {
		return nil, nil, err
	}
	read, err := mutate.ReadPod(text, webhook.Settings)
	if err != nil {
		return nil, nil, err
	}
	decision, err := mutate.Decide(webhook.Settings, webhook.accounts[pod.Namespace+"/"+pod.Spec.ServiceAccountName], webhook.namespaces[pod.Namespace], read)
	if err == nil {
		text, err = decision.Apply(text)
	}
	if err != nil {
		return nil, nil, err
	}
	var result corev1.Pod
	return &result, decision, json.Unmarshal(text, &result)
}

// holdsAgain sends an injected pod through the policies and the webhook once more, as it is
// and with the container of another webhook.
func (c *cluster) holdsAgain(t *testing.T, webhook *rules, got *corev1.Pod, name string) {
	t.Helper()
	again := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: got.Namespace, Name: got.Name, Labels: got.Labels, Annotations: got.Annotations}, Spec: *got.Spec.DeepCopy()}
	second, err := c.client.CoreV1().Pods(got.Namespace).Create(t.Context(), again, dryRun)
	if err != nil {
		t.Errorf("%s: a second admission: %v", name, err)
	} else if diff := cmp.Diff(compared(got), compared(second)); diff != "" {
		t.Errorf("%s: a second admission changes (-first +second):\n%s", name, diff)
	}
	if _, decision, err := mutated(t, webhook, again); err != nil || decision.Patch != nil {
		t.Errorf("%s: the webhook after the policies changes the pod: %+v, %v", name, decision, err)
	}
	again.Spec.Containers = append(again.Spec.Containers, corev1.Container{Name: "late", Image: "image"})
	want, _, err := mutated(t, webhook, again)
	var completed *corev1.Pod
	if err == nil {
		want, err = c.inPlain(t, want)
	}
	if err == nil {
		completed, err = c.client.CoreV1().Pods(got.Namespace).Create(t.Context(), again, dryRun)
	}
	if err != nil {
		t.Errorf("%s: a container that came late: %v", name, err)
	} else if diff := cmp.Diff(compared(want), compared(completed)); diff != "" {
		t.Errorf("%s: a container that came late (-webhook +policies):\n%s", name, diff)
	}
}
