// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package migration_test

import (
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lanyard-dev/lanyard/test/e2e/framework"
)

var update = flag.Bool("update", false, "write the golden files in testdata/switch")

// tools runs commands as a user does, and collects their outputs for golden files.
type tools struct {
	directory string
	page      []string // the commands of the page
	back      []string // the commands of the way back
}

func newTools() *tools {
	GinkgoHelper()
	t := &tools{directory: GinkgoT().TempDir()}
	Expect(os.Symlink(filepath.Join(cluster.Root, "charts"), filepath.Join(t.directory, "charts"))).To(Succeed())
	text, err := os.ReadFile(filepath.Join(cluster.Root, "docs", "migrate", "README.md"))
	Expect(err).NotTo(HaveOccurred())
	_, section, found := strings.Cut(string(text), "\n## The switch in eight commands\n")
	Expect(found).To(BeTrue())
	there, back, found := strings.Cut(section, "\n### Back\n")
	Expect(found).To(BeTrue())
	t.page, t.back = blocks(there, "sh"), blocks(back, "sh")
	Expect(len(t.page)).To(BeNumerically("<=", 8), "commands of a switch")
	for _, block := range t.page {
		Expect(strings.ReplaceAll(strings.TrimSpace(block), "\\\n", "")).NotTo(ContainSubstring("\n"), "one command")
		Expect(block).NotTo(Or(ContainSubstring("&&"), ContainSubstring(";"), ContainSubstring("|")), "one command")
	}
	values := blocks(there, "yaml")
	Expect(values).To(HaveLen(1))
	t.values(values[0])
	return t
}

// blocks returns the code blocks in a language.
func blocks(text, language string) []string {
	var found []string
	for _, match := range regexp.MustCompile("(?ms)^( *)```"+language+"\n(.*?)^ *```$").FindAllStringSubmatch(text, -1) {
		found = append(found, regexp.MustCompile("(?m)^"+match[1]).ReplaceAllString(match[2], ""))
	}
	return found
}

// values writes values.yaml: the values of the page, and the values of this cluster.
func (t *tools) values(page string) {
	GinkgoHelper()
	repository, tag, _ := strings.Cut(framework.WebhookImage, ":")
	text := page + fmt.Sprintf("image: {repository: %s, tag: %s}\nshutdownDelaySeconds: 0\n", repository, tag)
	if !strings.Contains(page, "config:\n") {
		text += "config:\n  adopt: [eks, azure, gcp]\n"
	}
	text = strings.Replace(text, "config:\n", fmt.Sprintf("config:\n  aws-default-region: %s\n  azure-default-tenant-id: %s\n", region, tenant), 1)
	Expect(os.WriteFile(filepath.Join(t.directory, "values.yaml"), []byte(text), 0o600)).To(Succeed())
}

// run runs a command, and returns its output and its exit code.
func (t *tools) run(ctx context.Context, text string) (string, int) {
	GinkgoHelper()
	By("$ " + strings.TrimSpace(text))
	command := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", text)
	command.Dir = t.directory
	command.Env = append(os.Environ(), "PATH="+filepath.Join(cluster.Root, "bin")+":"+os.Getenv("PATH"))
	output, err := command.CombinedOutput()
	if exit := (*exec.ExitError)(nil); err != nil {
		Expect(err).To(BeAssignableToTypeOf(exit), text)
	}
	return string(output), command.ProcessState.ExitCode()
}

// must runs a command that must succeed.
func (t *tools) must(ctx context.Context, text string) {
	GinkgoHelper()
	output, code := t.run(ctx, text)
	Expect(code).To(BeZero(), "%s\n%s", text, output)
}

// changing lists the parts of an output that differ between clusters or runs.
var changing = []struct {
	pattern *regexp.Regexp
	text    string
}{
	// The build of a release links to its version.
	{regexp.MustCompile(`/blob/v[^/]+/`), "/blob/main/"},
	{regexp.MustCompile(`20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ`), "TIME"},
	{regexp.MustCompile(`Kubernetes is v1\.\d+\.\d+\S*`), "Kubernetes is VERSION"},
	{regexp.MustCompile(`node/\S+`), "node/NAME"},
	{regexp.MustCompile(`(such as [a-z-]+)-[0-9a-z]+-[0-9a-z]{5}\.`), "$1-POD."},
}

// golden runs the commands, and compares their outputs with a golden file.
func (t *tools) golden(ctx context.Context, name string, commands ...string) {
	GinkgoHelper()
	var text strings.Builder
	for _, command := range commands {
		output, code := t.run(ctx, command)
		for _, c := range changing {
			output = c.pattern.ReplaceAllString(output, c.text)
		}
		fmt.Fprintf(&text, "$ %s\n%s[exit code %d]\n\n", strings.TrimSpace(command), output, code)
	}
	t.compare(name, text.String())
}

// compare compares a text with a golden file, or writes the file.
func (t *tools) compare(name, got string) {
	GinkgoHelper()
	file := filepath.Join(cluster.Root, "test", "e2e", "suite", "migration", "testdata", "switch", name+".txt")
	if *update {
		Expect(os.WriteFile(file, []byte(got), 0o600)).To(Succeed())
		return
	}
	want, err := os.ReadFile(file)
	Expect(err).NotTo(HaveOccurred())
	Expect(got).To(Equal(string(want)), "%s; -update writes it", file)
}

// watch contains the running pods, and the credentials that each of them must have at all times.
type watch struct {
	want map[string]string // by UID
	read map[string]int    // lines read, by UID
}

// see adds the pods that are new after a restart. want returns the credentials of a new
// pod of a workload.
func (w *watch) see(ctx context.Context, want func(*workload40) string) {
	GinkgoHelper()
	known := w.want
	w.want = map[string]string{}
	for _, pod := range running(ctx) {
		if w.want[string(pod.UID)] = known[string(pod.UID)]; w.want[string(pod.UID)] == "" {
			w.want[string(pod.UID)] = want(workloadOf(pod))
		}
	}
}

// running returns the pods of all workloads that are not being deleted.
func running(ctx context.Context) []*corev1.Pod {
	GinkgoHelper()
	var pods []*corev1.Pod
	for _, namespace := range switched {
		list, err := cluster.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
		Expect(err).NotTo(HaveOccurred())
		for i := range list.Items {
			if pod := &list.Items[i]; pod.DeletionTimestamp == nil {
				pods = append(pods, pod)
			}
		}
	}
	return pods
}

// check reads the logs of all pods. The pods must be those that were seen, no container may
// have started again, each line must have the credentials, and there must be new lines.
func (w *watch) check(ctx context.Context) {
	GinkgoHelper()
	start, pods := time.Now(), running(ctx)
	Expect(pods).To(HaveLen(len(w.want)), "pods, which were neither deleted nor created since the last step")
	for _, pod := range pods {
		Expect(w.want).To(HaveKey(string(pod.UID)), "%s/%s, which was not expected", pod.Namespace, pod.Name)
		for i := range pod.Status.ContainerStatuses {
			Expect(pod.Status.ContainerStatuses[i].RestartCount).To(BeZero(), pod.Namespace+"/"+pod.Name)
		}
		w.read[string(pod.UID)] = readsOnly(ctx, pod, w.want[string(pod.UID)], w.read[string(pod.UID)])
	}
	GinkgoWriter.Printf("read the credentials of %d pods in %v\n", len(pods), time.Since(start).Round(time.Millisecond))
}

// readsOnly checks that a pod has read only these credentials since its start, and
// again since the last check. It returns how often.
func readsOnly(ctx context.Context, pod *corev1.Pod, want string, before int) (times int) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		text, err := cluster.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{Container: app}).Do(ctx).Raw()
		g.Expect(err).NotTo(HaveOccurred())
		// The last line may not be written completely.
		lines := strings.Split(string(text), "\n")
		lines = lines[:len(lines)-1]
		times = len(lines)
		g.Expect(times).To(BeNumerically(">", before), "lines of pod %s/%s", pod.Namespace, pod.Name)
		if states := slices.Compact(lines); !slices.Equal(states, []string{want}) {
			StopTrying(fmt.Sprintf("pod %s/%s: got credentials %q, want %q at all times", pod.Namespace, pod.Name, states, want)).Now()
		}
	}).WithContext(ctx).Should(Succeed())
	return times
}

// waitPeers waits until the API server calls all peers, or none, for new pods.
func waitPeers(ctx context.Context, called bool) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		for _, w := range readTable() {
			if w.Name != "plain" {
				continue
			}
			pod := w.pod()
			pod.Annotations["lanyard.dev/inject"] = "false"
			created, err := cluster.CoreV1().Pods(w.namespace()).Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			g.Expect(err).NotTo(HaveOccurred())
			if called {
				g.Expect(credentialsOf(created)).To(Equal(w.Has), w.id())
			} else {
				g.Expect(credentialsOf(created)).To(Equal("none"), w.id())
			}
		}
	}).WithContext(ctx).Should(Succeed())
}

// waitService waits until the API server reaches Lanyard through the Service. The webhook
// for ServiceAccounts must respond.
func waitService(ctx context.Context) {
	GinkgoHelper()
	Eventually(func() error {
		_, err := cluster.CoreV1().ServiceAccounts(switched["eks"]).Patch(ctx, "plain", types.MergePatchType,
			[]byte(`{"metadata": {"annotations": {"example.com/any": "true"}}}`), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}).WithContext(ctx).Should(Succeed())
}

// waitLanyard waits until the API server calls Lanyard for new pods, or does not.
func waitLanyard(ctx context.Context, called bool) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		w := readTable()[0]
		created, err := cluster.CoreV1().Pods(w.namespace()).Create(ctx, w.pod(), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		g.Expect(err).NotTo(HaveOccurred())
		_, injected := created.Annotations["lanyard.dev/injected"]
		g.Expect(injected).To(Equal(called))
	}).WithContext(ctx).Should(Succeed())
}

// waitPods waits until all workloads have their pods, and all pods run.
func waitPods(ctx context.Context) {
	GinkgoHelper()
	var want []string
	for _, w := range readTable() {
		if w.Status != "no pods" {
			want = append(want, w.id())
		}
	}
	Expect(len(want)).To(BeNumerically(">=", 40))
	Eventually(func(g Gomega) {
		var got []string
		for _, pod := range running(ctx) {
			g.Expect(pod.Status.Phase).To(Equal(corev1.PodRunning), pod.Namespace+"/"+pod.Name)
			got = append(got, workloadOf(pod).id())
		}
		slices.Sort(got) // a DaemonSet has a pod on each node
		g.Expect(slices.Compact(got)).To(ConsistOf(want))
	}).WithContext(ctx).WithPolling(time.Second).Should(Succeed())
}

// besides creates a pod of each workload as a dry run, while both webhooks run, and
// returns the warnings.
func besides(ctx context.Context) string {
	GinkgoHelper()
	var text strings.Builder
	for _, w := range readTable() {
		pod, warnings, err := dryRun(ctx, w)
		if w.Status == "unknown" {
			Expect(err).To(MatchError(ContainSubstring("denied the request: lanyard: invalid_annotation")), w.id())
			continue
		}
		Expect(err).NotTo(HaveOccurred(), w.id())
		if w.Has != "" {
			Expect(credentialsOf(pod)).To(Equal(w.beside()), w.id())
		}
		for _, warning := range warnings {
			fmt.Fprintf(&text, "%s: %s\n", w.id(), warning)
		}
	}
	return text.String()
}

// verified compares the pods in "lanyard status" with the table: their states, and the fields in
// which those of another webhook differ from new pods.
func verified(ctx context.Context, t *tools, want func(*workload40) string) {
	GinkgoHelper()
	output, _ := t.run(ctx, strings.TrimSpace(t.page[6])+" --output json 2> /dev/null")
	var report struct {
		Workloads []struct {
			Namespace, ServiceAccount, Workload string
			States                              map[string]int
			Differences                         []struct{ Container, Field string }
		} `json:"workloads"`
	}
	Expect(json.Unmarshal([]byte(output), &report)).To(Succeed(), output)
	got := map[string]string{}
	for _, row := range report.Workloads {
		if !slices.Contains(slices.Collect(maps.Values(switched)), row.Namespace) {
			Expect(row.States["stale"]+row.States["without"]).To(BeZero(), "%s %s", row.Namespace, row.Workload)
			continue
		}
		text := strings.Join(slices.Sorted(maps.Keys(row.States)), ", ")
		for i, d := range row.Differences {
			if d.Container != app {
				d.Field = d.Container + "/" + d.Field
			}
			text += map[bool]string{true: ": ", false: " "}[i == 0] + d.Field
		}
		got[row.Namespace+" "+row.ServiceAccount+" "+row.Workload] = cmp.Or(text, "no pods")
	}
	all := map[string]string{}
	for _, w := range readTable() {
		name := strings.ToLower(w.kind()) + "/" + w.Name
		switch state := want(w); state {
		case "not listed":
		case "no pods":
			all[w.namespace()+" "+w.Name+" "] = state
		default:
			all[w.namespace()+" "+w.Name+" "+name] = state
		}
	}
	Expect(got).To(Equal(all))
}

// combination is a way in which the peers are registered.
type combination struct {
	name   string
	change func(*admissionregistrationv1.MutatingWebhookConfiguration)
}

// combinations returns both orders with both policies. Each peer is called before
// Lanyard in one order, and after Lanyard in the other order.
func combinations() []combination {
	var all []combination
	for _, policy := range []admissionregistrationv1.ReinvocationPolicyType{admissionregistrationv1.NeverReinvocationPolicy, admissionregistrationv1.IfNeededReinvocationPolicy} {
		for _, order := range []string{"usual", "opposite"} {
			all = append(all, combination{strings.ToLower(string(policy)) + "-" + order, func(c *admissionregistrationv1.MutatingWebhookConfiguration) {
				if order == "opposite" {
					c.Name = map[bool]string{true: "zz-", false: "aa-"}[c.Name < framework.Configuration] + c.Name
				}
				for i := range c.Webhooks {
					c.Webhooks[i].ReinvocationPolicy = &policy
				}
			}})
		}
	}
	return all
}

var _ = Describe("A switch of 40 workloads", Ordered, func() {
	var t *tools
	w := &watch{want: map[string]string{}, read: map[string]int{}}
	const takeStock, check, status = 0, "lanyard check", "lanyard status --all-namespaces"

	BeforeAll(func(ctx SpecContext) {
		for _, name := range []string{namespace, older, framework.Namespace, "clouds"} {
			Eventually(func() bool {
				_, err := cluster.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
				return apierrors.IsNotFound(err)
			}).WithContext(ctx).Should(BeTrue(), "namespace %s is gone", name)
		}
		t = newTools()
		DeferCleanup(func(ctx SpecContext) {
			// This is already gone, unless a spec failed.
			t.run(ctx, "helm uninstall lanyard --namespace lanyard-system --wait || true; kubectl delete namespace lanyard-system")
		})
		Expect(others.register(ctx)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) error { return others.unregister(ctx) })
		createAccounts(ctx)
		waitPeers(ctx, true)
		createWorkloads(ctx)
		waitPods(ctx)
		w.see(ctx, func(w *workload40) string { return w.Has })
		w.check(ctx)
	})

	It("takes stock", func(ctx SpecContext) {
		t.golden(ctx, "1-before", "lanyard check --pre", t.page[takeStock])
		w.check(ctx)
	})

	It("installs Lanyard next to the peers", func(ctx SpecContext) {
		t.must(ctx, t.page[1])
		waitService(ctx)
		t.golden(ctx, "2-installed", status, t.page[2], t.page[3], check, status, t.page[takeStock])
		waitLanyard(ctx, true)
		w.check(ctx)
	})

	It("gives new pods credentials in both orders, with both policies", func(ctx SpecContext) {
		for _, c := range combinations() {
			By(c.name)
			Expect(others.unregister(ctx)).To(Succeed())
			waitPeers(ctx, false)
			Expect(others.register(ctx, c.change)).To(Succeed())
			waitPeers(ctx, true)
			t.compare("3-"+c.name+"-warnings", besides(ctx))
			t.golden(ctx, "3-"+c.name, "lanyard check --pre", check, "lanyard migrate --from eks,azure,gcp --namespace "+switched["azure-older"])
		}
		Expect(others.unregister(ctx)).To(Succeed())
		Expect(others.register(ctx)).To(Succeed())
		waitPeers(ctx, true)
		w.check(ctx)
	})

	It("restarts one workload of each peer", func(ctx SpecContext) {
		for _, namespace := range switched {
			t.must(ctx, "kubectl rollout restart deployment/plain --namespace "+namespace)
		}
		for _, namespace := range switched {
			t.must(ctx, "kubectl rollout status deployment/plain --timeout "+framework.Patience.String()+" --namespace "+namespace)
		}
		w.see(ctx, (*workload40).beside)
		w.check(ctx)
		t.golden(ctx, "4-tried", "lanyard status --namespace "+switched["eks"])
	})

	It("switches", func(ctx SpecContext) {
		t.must(ctx, t.page[4])
		t.must(ctx, t.page[5])
		waitPeers(ctx, false)
		t.golden(ctx, "5-switched", t.page[6], check)
		verified(ctx, t, func(w *workload40) string { return w.Status })
		w.check(ctx)
	})

	It("turns the guard on, and restarts the workloads that are not denied", func(ctx SpecContext) {
		t.values("")
		t.must(ctx, t.page[7])
		waitLanyard(ctx, true)
		restart(ctx, t)
		waitPods(ctx)
		w.see(ctx, (*workload40).gets)
		w.check(ctx)
		verified(ctx, t, func(w *workload40) string {
			if slices.Contains([]string{"unknown", "opted-out", "no pods", "not listed"}, w.Status) {
				return w.Status
			}
			return "current"
		})
		t.golden(ctx, "6-guarded", check, status)
	})

	It("goes back", func(ctx SpecContext) {
		for command := range strings.SplitSeq(strings.TrimSpace(t.back[0]), "\n") {
			t.must(ctx, command)
		}
		waitLanyard(ctx, false)
		waitPeers(ctx, true)
		w.check(ctx)
		t.golden(ctx, "7-back", "lanyard check --pre", t.page[takeStock])
		for _, w := range readTable() {
			pod, _, err := dryRun(ctx, w)
			Expect(err).NotTo(HaveOccurred(), w.id())
			if w.Has != "" {
				Expect(credentialsOf(pod)).To(Equal(w.Has), w.id())
			}
		}
	})
})
