// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/kube"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"

	"github.com/lanyard-dev/lanyard/cmd/webhook/app"
	"github.com/lanyard-dev/lanyard/test/support/controlplane"
	"github.com/lanyard-dev/lanyard/test/support/process"
	"github.com/lanyard-dev/lanyard/test/support/webhook"
)

// cluster is a real API server. It has no nodes: the replicas are processes.
type cluster struct {
	plane      *controlplane.ControlPlane
	client     kubernetes.Interface
	kubeconfig string // of an administrator
	helm       *action.Configuration
}

func startCluster(t *testing.T) *cluster {
	t.Helper()
	plane := controlplane.Run(t)
	client, err := kubernetes.NewForConfig(plane.Config())
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{plane: plane, client: client, kubeconfig: filepath.Join(t.TempDir(), "kubeconfig"), helm: action.NewConfiguration()}
	if err := plane.Kubeconfig(c.kubeconfig); err != nil {
		t.Fatal(err)
	}
	flags := genericclioptions.NewConfigFlags(false)
	flags.KubeConfig, flags.Namespace = new(c.kubeconfig), new(namespace)
	if err := c.helm.Init(flags, namespace, "secret"); err != nil {
		t.Fatal(err)
	}
	return c
}

// install is "helm install" without --wait: no pod ever runs.
func (c *cluster) install(t *testing.T, v values) {
	t.Helper()
	chart, err := loader.Load(chartDir)
	if err != nil {
		t.Fatal(err)
	}
	install := action.NewInstall(c.helm)
	install.ReleaseName, install.Namespace, install.CreateNamespace, install.WaitStrategy = release, namespace, true, kube.HookOnlyStrategy
	if _, err := install.RunWithContext(t.Context(), chart, v); err != nil {
		t.Fatal(err)
	}
}

func (c *cluster) uninstall(t *testing.T) {
	t.Helper()
	uninstall := action.NewUninstall(c.helm)
	uninstall.WaitStrategy = kube.HookOnlyStrategy
	if _, err := uninstall.Run(release); err != nil {
		t.Fatal(err)
	}
}

// startReplica runs the program with the arguments and the permissions of the
// chart, until the test ends. ports are those of reviews, metrics and probes.
func (c *cluster) startReplica(t *testing.T, binary string, arguments, ports []string) *process.Process {
	t.Helper()
	config, err := c.plane.User("system:serviceaccount:"+namespace+":lanyard-webhook",
		"system:serviceaccounts", "system:serviceaccounts:"+namespace, "system:authenticated")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	kubeconfig := filepath.Join(dir, "kubeconfig")
	if err := controlplane.WriteKubeconfig(kubeconfig, config); err != nil {
		t.Fatal(err)
	}
	// The last of two arguments with the same flag takes effect. No context: Stop ends the process.
	replica, err := process.Start(exec.Command(binary, append(slices.Clone(arguments), "--kubeconfig="+kubeconfig, "--shutdown-delay=0s",
		"--bind-address=127.0.0.1", "--secure-port="+ports[0], "--metrics-bind-address=127.0.0.1:"+ports[1], "--health-probe-bind-address=127.0.0.1:"+ports[2])...),
		filepath.Join(dir, "replica.log"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := replica.Stop(); err != nil {
			t.Errorf("stop the replica: %v", err)
		}
		if t.Failed() {
			t.Logf("log of the replica:%s", process.Tail(replica.LogFile))
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), controlplane.Patience)
	defer cancel()
	if err := controlplane.WaitReady(ctx, "http://127.0.0.1:"+ports[2]+"/readyz"); err != nil {
		t.Fatal(err)
	}
	return replica
}

// waitForUninstall waits until the replica has noticed that its Secret is gone. It may have
// lost its permission to look for the webhook configurations by then.
func waitForUninstall(t *testing.T, replica *process.Process) {
	t.Helper()
	err := process.Until(t.Context(), "the replica to notice the uninstall", controlplane.Patience, func(context.Context) (bool, error) {
		log, err := os.ReadFile(replica.LogFile)
		return bytes.Contains(log, []byte("CA Secret and webhook configurations not found")) || bytes.Contains(log, []byte("Failed to renew")), err
	})
	if err != nil {
		t.Fatalf("%v%s", err, process.Tail(replica.LogFile))
	}
}

// check runs "lanyard-webhook check", as "helm test" does.
func (c *cluster) check(t *testing.T, account string) {
	t.Helper()
	command := app.NewCommand(nil)
	command.SetArgs([]string{"check", "--kubeconfig=" + c.kubeconfig, "--namespace=default", "--service-account=" + account})
	var out bytes.Buffer
	command.SetOut(&out)
	if err := command.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	if want := "\npods of ServiceAccount default/" + account + " get credentials: token"; !strings.Contains(out.String(), want) {
		t.Errorf("got %s, want %s", out.String(), want)
	}
}

// createAccount creates a ServiceAccount that needs credentials, and fails unless the
// webhook labels it or, without labelled, does not change it. An API server knows a new
// webhook and a new caBundle only after a moment, so dry runs come first.
func (c *cluster) createAccount(t *testing.T, name string, labelled bool) {
	t.Helper()
	create := func(dryRun ...string) error {
		account, err := c.client.CoreV1().ServiceAccounts("default").Create(t.Context(), &corev1.ServiceAccount{
			ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{"lanyard.dev/audience": "try"}},
		}, metav1.CreateOptions{DryRun: dryRun})
		if err != nil {
			return err
		}
		if got := account.Labels["lanyard.dev/identity"] == "enabled"; got != labelled {
			return fmt.Errorf("labelled: got %t, want %t", got, labelled)
		}
		return nil
	}
	eventually(t, "the dry run of ServiceAccount "+name, func() error { return create(metav1.DryRunAll) })
	if err := create(); err != nil {
		t.Fatalf("create ServiceAccount %s: %v", name, err)
	}
}

// eventually calls try until it succeeds.
func eventually(t *testing.T, what string, try func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), controlplane.Patience)
	defer cancel()
	if err := process.Poll(ctx, what, func(context.Context) error { return try() }); err != nil {
		t.Fatal(err)
	}
}

// mappingValues contains a custom provider, and an identity of it for the
// ServiceAccounts default/mapped.*.
const mappingValues = `config:
  providers:
  - {name: example, audience: example.com, parameters: [{name: role, required: true}]}
  identities:
  - {namespace: def*, serviceAccount: mapped.*, annotations: {example-role: r}}
`

// checkMapping checks that the API server calls the webhook for the ServiceAccounts
// that a mapping matches, and for no others.
func (c *cluster) checkMapping(t *testing.T) {
	t.Helper()
	for name, want := range map[string]string{"mapped.x": "r", "other": ""} {
		account, err := c.client.CoreV1().ServiceAccounts("default").Create(t.Context(),
			&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		labelled := account.Labels["lanyard.dev/identity"] == "enabled"
		if got := account.Annotations["lanyard.dev/example-role"]; got != want || labelled != (want != "") {
			t.Errorf("%s: got annotation %q and the label %t, want %q", name, got, labelled, want)
		}
	}
}

// objects returns all objects of the cluster.
func (c *cluster) objects(t *testing.T) (keys []string) {
	t.Helper()
	client, err := metadata.NewForConfig(c.plane.Config())
	if err != nil {
		t.Fatal(err)
	}
	lists, err := c.client.Discovery().ServerPreferredResources()
	if err != nil {
		t.Fatal(err)
	}
	for _, list := range lists {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			t.Fatal(err)
		}
		for _, resource := range list.APIResources {
			// Events are about other objects.
			if !slices.Contains(resource.Verbs, "list") || resource.Name == "events" {
				continue
			}
			found, err := client.Resource(version.WithResource(resource.Name)).List(t.Context(), metav1.ListOptions{})
			if apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) {
				continue
			}
			if err != nil {
				t.Fatalf("list %s: %v", resource.Name, err)
			}
			for _, item := range found.Items {
				keys = append(keys, fmt.Sprintf("%s %s/%s", resource.Kind, item.Namespace, item.Name))
			}
		}
	}
	slices.Sort(keys)
	return keys
}

// settled returns all objects when an API server that has just started creates no
// more of them. Some come when it is ready already.
func (c *cluster) settled(t *testing.T) (keys []string) {
	t.Helper()
	late := []string{
		"ConfigMap kube-system/extension-apiserver-authentication", "ConfigMap kube-system/kube-apiserver-legacy-service-account-token-tracking",
		"Lease kube-system/apiserver-", "Service default/kubernetes",
	}
	err := process.Until(t.Context(), "the objects of the API server", controlplane.Patience, func(context.Context) (bool, error) {
		keys = c.objects(t)
		return !slices.ContainsFunc(late, func(prefix string) bool {
			return !slices.ContainsFunc(keys, func(key string) bool { return strings.HasPrefix(key, prefix) })
		}), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

// The replicas keep running for a while after "helm uninstall", and must not write anything
// (internal/webhook/servingcert tests a week of it). The API server calls them by a URL with an
// IP address, so the self-managed certificate must contain that address.
func TestInstallAndUninstallOnAnAPIServer(t *testing.T) {
	c := startCluster(t)
	before := c.settled(t)
	ports, err := webhook.FreePorts(t.Context(), 6)
	if err != nil {
		t.Fatal(err)
	}
	v := parseValues(t, mappingValues+"webhook: {url: 'https://127.0.0.1:"+ports[0]+"'}\n")
	c.install(t, v)
	binary, err := webhook.Build(t.Context(), t.TempDir(), false)
	if err != nil {
		t.Fatal(err)
	}
	objects := render(t, defaultInstall, v).objects
	spec := deployment(t, objects).Spec.Template.Spec
	arguments := append(spec.Containers[0].Args, "--config="+mounted(t, objects, &spec, "/etc/lanyard/config/config.yaml", ""))
	replicas := []*process.Process{c.startReplica(t, binary, arguments, ports[:3]), c.startReplica(t, binary, arguments, ports[3:])}
	c.createAccount(t, "try", true)
	c.check(t, "try")
	c.checkMapping(t)

	c.uninstall(t)
	for _, replica := range replicas {
		waitForUninstall(t, replica)
	}
	want := append(slices.Clone(before), "Namespace /"+namespace, "ServiceAccount default/try", "ServiceAccount default/mapped.x", "ServiceAccount default/other")
	var left []string
	for _, key := range c.objects(t) {
		if !slices.Contains(want, key) {
			left = append(left, key)
		}
	}
	if len(left) > 0 {
		t.Errorf("helm uninstall leaves behind:\n%s", strings.Join(left, "\n"))
	}
	// Nothing is denied, and nothing waits.
	c.createAccount(t, "later", false)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "pod"},
		Spec:       corev1.PodSpec{ServiceAccountName: "try", Containers: []corev1.Container{{Name: "main", Image: "none"}}},
	}
	// The API server learns from a watch that the guard is gone.
	eventually(t, "the dry run of a pod", func() error {
		_, err := c.client.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	})
}
