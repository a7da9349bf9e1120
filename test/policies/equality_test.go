// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package policies compares the policies of "lanyard policies" with the webhook: on a real
// kube-apiserver, and expression by expression.
package policies

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/policies"
	"github.com/lanyard-dev/lanyard/test/support/controlplane"
	"github.com/lanyard-dev/lanyard/test/support/decisions"
	"github.com/lanyard-dev/lanyard/test/support/optionstest"
	"github.com/lanyard-dev/lanyard/test/support/process"
)

var update = flag.Bool("update", false, "write the golden files")

const (
	examplesDir = "../../examples/providers"
	tableFile   = "testdata/equality.md"
	// reservedAudience is the audience of the API server in the golden cases.
	reservedAudience = "https://kubernetes.default.svc"
	// team is the namespace of the golden cases. Here, each case has its own namespaces,
	// whose names have the same length.
	team = "team"
	// configLabel is the label of a namespace with the configuration that applies there.
	configLabel = "config"
	// unavailable is a part of each denial of something that policies do not support.
	unavailable = "not available with policies"
)

// The results in the table.
const (
	equal      = "equal"
	alike      = "denied alike"
	alikeSA    = "denied alike, when the ServiceAccount is written"
	asGuard    = "denied, as by the guard"
	notHere    = "not available"
	impossible = "not created by the API server itself"
	different  = "DIFFERENT"
)

// golden is one case of the webhook's decisions.
type golden struct {
	name string
	// config is the text of the settings; empty for the defaults.
	config string
	// pod, old, account and namespace are the objects; old is the pod before it gets an
	// ephemeral container, or nil.
	pod, old  *corev1.Pod
	account   *corev1.ServiceAccount
	namespace *corev1.Namespace
	// warned reports whether the webhook warns that the guard denies the pod.
	warned bool
	// message is the message of a denial. If there is none, want is the pod after the webhook.
	message string
	want    *corev1.Pod
	// index is a part of the names of the case's namespaces.
	index int
}

// The namespaces of a case: with the objects; for a new ServiceAccount; and without
// policies.
func (g *golden) live() string    { return fmt.Sprintf("a%03d", g.index) }
func (g *golden) written() string { return fmt.Sprintf("b%03d", g.index) }
func (g *golden) plain() string   { return fmt.Sprintf("c%03d", g.index) }

// cases returns the golden cases, and the number of those with the setting adopt. The names of their
// namespaces have numbers from first on.
func cases(t *testing.T, first int) (all []*golden, adopted int) {
	t.Helper()
	found, err := decisions.Read("../decisions")
	must(t, "the golden cases", err)
	for _, c := range found {
		if c.Theme == decisions.Adopted {
			adopted++
			continue
		}
		g := &golden{name: c.Theme + "/" + c.Name, config: c.Settings, index: first + len(all), account: &corev1.ServiceAccount{}, namespace: &corev1.Namespace{}}
		result, err := c.Result()
		must(t, g.name, err)
		for _, object := range []struct {
			text []byte
			into any
		}{{c.Pod, &g.pod}, {c.OldPod(), &g.old}, {c.ServiceAccount, g.account}, {c.Namespace, g.namespace}, {result, &g.want}} {
			if object.text != nil {
				must(t, g.name, json.Unmarshal(bytes.ReplaceAll(object.text, []byte(team), []byte(g.live())), object.into))
			}
		}
		g.warned = warnsOfGuard(c.Want.Warnings)
		g.message = strings.ReplaceAll(c.Want.Message, team, g.live())
		all = append(all, g)
	}
	return all, adopted
}

// nothingLeft is a part of the denial of a pod whose annotations leave out all of its
// containers. The webhook leaves this denial to the guard.
const nothingLeft = "leave out all of its containers"

// warnsOfGuard reports whether one of the webhook's warnings is about that.
func warnsOfGuard(warnings []string) bool {
	return slices.ContainsFunc(warnings, func(warning string) bool { return strings.Contains(warning, "no_container: ") })
}

// nearest matches the part of the webhook's messages that CEL cannot compute: it would have to
// compare a name with all others, character by character.
var nearest = regexp.MustCompile(`; the nearest key is [a-z0-9./-]+|: did you mean "[a-z0-9-]+"\?|( Its|: its) containers are ("[a-z0-9-]+"(, | and [0-9]+ more)?)+`)

// withoutNearest returns a message of the webhook without the part that the policies lack.
func withoutNearest(message string) string { return nearest.ReplaceAllString(message, "") }

// must ends the test with an error.
func must(t *testing.T, what string, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// settingsOf returns the settings with the text of a configuration file, as lanyard-webhook
// reads it; empty for the defaults.
func settingsOf(t *testing.T, config string) *annotations.Settings {
	t.Helper()
	return optionstest.Settings(t, config, reservedAudience)
}

// prepare creates the objects of a case before there are policies: the old pod has to be
// stored as it is, and so do ServiceAccounts with mistakes.
func (c *cluster) prepare(t *testing.T, g *golden, group string, s *annotations.Settings) {
	t.Helper()
	ctx := t.Context()
	for _, name := range []string{g.live(), g.written(), g.plain()} {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: g.namespace.Annotations, Labels: map[string]string{configLabel: group}}}
		if name == g.plain() {
			namespace.Labels = map[string]string{annotations.Inject: annotations.LabelDisabled}
		}
		_, err := c.client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{})
		must(t, g.name, err)
	}
	for _, name := range []string{g.live(), g.plain()} {
		c.createAccount(t, name, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}})
		account := g.account.DeepCopy()
		if account.Name == "" {
			account.Name = "app"
		}
		if s.AskForIdentity(account.Annotations) && account.Labels == nil {
			account.Labels = map[string]string{annotations.IdentityLabel: annotations.IdentityEnabled}
		}
		c.createAccount(t, name, account)
		if g.old != nil {
			old := g.old.DeepCopy()
			old.Namespace = name
			old.Spec.EphemeralContainers = nil // which no pod is created with
			stored, err := c.client.CoreV1().Pods(name).Create(ctx, old, metav1.CreateOptions{})
			must(t, g.name, err)
			if stored.Spec.EphemeralContainers = g.old.Spec.EphemeralContainers; len(stored.Spec.EphemeralContainers) > 0 {
				_, err = c.client.CoreV1().Pods(name).UpdateEphemeralContainers(ctx, old.Name, stored, metav1.UpdateOptions{})
				must(t, g.name, err)
			}
		}
	}
}

func (c *cluster) createAccount(t *testing.T, namespace string, account *corev1.ServiceAccount) {
	t.Helper()
	account.Namespace = namespace
	account.AutomountServiceAccountToken = new(bool) // the volume has a random name
	_, err := c.client.CoreV1().ServiceAccounts(namespace).Create(t.Context(), account, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		must(t, namespace, err)
	}
}

// install installs the policies for the settings in the namespaces of the group, and waits
// until they inject.
func (c *cluster) install(t *testing.T, s *annotations.Settings, group string) {
	t.Helper()
	const name = policies.DefaultName
	text, err := policies.Generate(s, name, &policies.Source{})
	must(t, group, err)
	must(t, group, apply(t.Context(), c.client, text, group))
	namespace := "probe-" + group
	_, err = c.client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace, Labels: map[string]string{configLabel: group}}}, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		must(t, group, err)
	}
	c.createAccount(t, namespace, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{
		Name: name, Annotations: map[string]string{annotations.Audience: "probe"}, Labels: map[string]string{annotations.IdentityLabel: annotations.IdentityEnabled},
	}})
	c.waitInjected(t, namespace, name, annotations.Injected)
	c.waitDenied(t, namespace, name)
	// Each policy takes effect separately.
	account := func(key, value string) (*corev1.ServiceAccount, error) {
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "wait", Annotations: map[string]string{key: value}}}
		return c.client.CoreV1().ServiceAccounts(namespace).Create(t.Context(), account, dryRun)
	}
	eventually(t, "a ServiceAccount of group "+group+" to be labelled", func() bool {
		labelled, err := account(annotations.Audience, "probe")
		return err == nil && labelled.Labels[annotations.IdentityLabel] == annotations.IdentityEnabled
	})
	eventually(t, "a ServiceAccount of group "+group+" to be denied", func() bool {
		_, err := account(annotations.Tokens, "bad")
		return err != nil
	})
}

// waitInjected waits until pods of a ServiceAccount get one of these annotations. The API server
// follows ServiceAccounts by a watch, so it does not know a new one at once.
func (c *cluster) waitInjected(t *testing.T, namespace, account string, keys ...string) {
	t.Helper()
	eventually(t, "the pods of ServiceAccount "+namespace+"/"+account+" to be injected", func() bool {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "wait"}, Spec: corev1.PodSpec{ServiceAccountName: account, Containers: []corev1.Container{{Name: "main", Image: "image"}}}}
		got, err := c.client.CoreV1().Pods(namespace).Create(t.Context(), pod, dryRun)
		return err == nil && slices.ContainsFunc(keys, func(key string) bool { return got.Annotations[key] != "" })
	})
}

// waitDenied waits until a pod of a ServiceAccount is denied for a mistake in its annotations, by
// the second policy, which comes into effect by itself.
func (c *cluster) waitDenied(t *testing.T, namespace, account string) {
	t.Helper()
	eventually(t, "a pod of ServiceAccount "+namespace+"/"+account+" to be denied", func() bool {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "wait", Annotations: map[string]string{annotations.Inject: "bad"}}}
		pod.Spec = corev1.PodSpec{ServiceAccountName: account, Containers: []corev1.Container{{Name: "main", Image: "image"}}}
		_, err := c.client.CoreV1().Pods(namespace).Create(t.Context(), pod, dryRun)
		return err != nil && strings.Contains(err.Error(), "invalid_annotation")
	})
}

// eventually waits for something that the API server does after a moment, or on a busy machine
// after many seconds.
func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	must(t, "the policies", process.Until(t.Context(), what, controlplane.Patience, func(context.Context) (bool, error) { return done(), nil }))
}

var dryRun = metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}

// testGoldenCases creates the pod of each golden case on a real API server with the
// policies, and compares the result with the webhook's. The table of the results must
// contain no difference.
func (c *cluster) testGoldenCases(t *testing.T) {
	all, adopted := cases(t, 0)
	groups := map[string]string{}
	for _, g := range all {
		if _, found := groups[g.config]; !found {
			groups[g.config] = fmt.Sprintf("c%d", len(groups))
		}
		c.prepare(t, g, groups[g.config], settingsOf(t, g.config))
	}
	for _, config := range slices.Sorted(maps.Keys(groups)) {
		c.install(t, settingsOf(t, config), groups[config])
	}
	var table strings.Builder
	table.WriteString("| Case | Result | Reason |\n|---|---|---|\n")
	counts := map[string]int{}
	for _, g := range all {
		result, why := c.compare(t, g, c.write(t, g), alikeSA)
		counts[result]++
		fmt.Fprintf(&table, "| %s | %s | %s |\n", g.name, result, why)
	}
	fmt.Fprintf(&table, "| adopted/* (%d cases) | %s | setting adopt |\n", adopted, notHere)
	for _, result := range slices.Sorted(maps.Keys(counts)) {
		t.Logf("%d %s", counts[result], result)
	}
	holdGolden(t, tableFile, table.String())
}

// compare creates the pod of a case, and returns the result for the table and its reason. account
// is the error about the ServiceAccount. If the webhook denies the pod because of it, the result is
// earlier.
func (c *cluster) compare(t *testing.T, g *golden, account error, earlier string) (result, why string) {
	t.Helper()
	stored, err := c.create(t, g, g.live(), g.pod)
	switch {
	case err != nil && strings.Contains(err.Error(), unavailable), account != nil && strings.Contains(account.Error(), unavailable):
		return notHere, firstUnavailable(err, account)
	case g.message != "" && err != nil && strings.Contains(err.Error(), withoutNearest(g.message)):
		return alike, ""
	case g.message != "" && account != nil && strings.Contains(withoutNearest(strings.ReplaceAll(account.Error(), g.written(), g.live())), withoutNearest(g.message)):
		return earlier, ""
	case g.message != "":
		t.Errorf("%s: got pod error %v\nand ServiceAccount error %v\nwant %s", g.name, err, account, g.message)
		return different, ""
	}
	if g.warned {
		if err == nil || !strings.Contains(err.Error(), nothingLeft) {
			t.Errorf("%s: got error %v, want %q in it", g.name, err, nothingLeft)
			return different, ""
		}
		return asGuard, ""
	}
	want, wantErr := c.create(t, g, g.plain(), g.want)
	if wantErr != nil {
		if err == nil {
			t.Errorf("%s: with policies, the API server creates the pod; without: %v", g.name, wantErr)
			return different, ""
		}
		return impossible, ""
	}
	if err != nil {
		t.Errorf("%s: %v", g.name, err)
		return different, ""
	}
	if diff := cmp.Diff(compared(want), compared(stored)); diff != "" {
		t.Errorf("%s (-webhook +policies):\n%s", g.name, diff)
		return different, ""
	}
	return equal, ""
}

// create creates the pod in a dry run, or adds its ephemeral containers to the old pod.
func (c *cluster) create(t *testing.T, g *golden, namespace string, pod *corev1.Pod) (*corev1.Pod, error) {
	t.Helper()
	pod = pod.DeepCopy()
	pod.Namespace = namespace
	if g.old == nil {
		return c.client.CoreV1().Pods(namespace).Create(t.Context(), pod, dryRun)
	}
	current, err := c.client.CoreV1().Pods(namespace).Get(t.Context(), pod.Name, metav1.GetOptions{})
	must(t, g.name, err)
	current.Spec.EphemeralContainers = pod.Spec.EphemeralContainers
	return c.client.CoreV1().Pods(namespace).UpdateEphemeralContainers(t.Context(), pod.Name, current, metav1.UpdateOptions{DryRun: dryRun.DryRun})
}

// write writes the ServiceAccount of a case in a dry run, as a new one.
func (c *cluster) write(t *testing.T, g *golden) error {
	t.Helper()
	account := g.account.DeepCopy()
	if account.Name == "" {
		return nil
	}
	s := settingsOf(t, g.config)
	account.Namespace = g.written()
	stored, err := c.client.CoreV1().ServiceAccounts(g.written()).Create(t.Context(), account, dryRun)
	if err != nil {
		return err
	}
	want := account.Labels[annotations.IdentityLabel]
	if s.AskForIdentity(account.Annotations) && want != annotations.IdentityRequired {
		want = annotations.IdentityEnabled
	}
	if got := stored.Labels[annotations.IdentityLabel]; got != want {
		t.Errorf("%s: got label %q of the ServiceAccount, want %q", g.name, got, want)
	}
	return nil
}

// injectedLabel is the label of an injected pod, and its value.
const injectedLabel, injectedValue = annotations.Prefix + "identity", "injected"

// compared returns the parts that must be equal on both pods.
func compared(pod *corev1.Pod) map[string]any {
	return map[string]any{"labels": pod.Labels, "annotations": pod.Annotations, "spec": pod.Spec}
}

// firstUnavailable returns the first thing that an error names as not available.
func firstUnavailable(errs ...error) string {
	for _, err := range errs {
		if err == nil || !strings.Contains(err.Error(), unavailable) {
			continue
		}
		before, _, _ := strings.Cut(err.Error(), "]: Forbidden: is "+unavailable)
		return "annotation " + before[strings.LastIndex(before, "[")+1:]
	}
	return ""
}

// holdGolden compares a text with a golden file, or writes the file.
func holdGolden(t *testing.T, file, text string) {
	t.Helper()
	if *update {
		must(t, file, os.WriteFile(file, []byte(text), 0o600))
	}
	want, err := os.ReadFile(file)
	must(t, file, err)
	if diff := cmp.Diff(string(want), text); diff != "" {
		t.Errorf("%s (-want +got); -update writes it:\n%s", file, diff)
	}
	if strings.Contains(text, different) {
		t.Errorf("%s has cases that differ", file)
	}
}
