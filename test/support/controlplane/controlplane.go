// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package controlplane runs a real Kubernetes control plane, etcd and
// kube-apiserver, on the loopback interface for tests and the demo.
//
// It runs the binaries of hack/controlplane.sh through controller-runtime's
// envtest, with settings that are closer to a real cluster than envtest's
// defaults: the ServiceAccount admission plugin is enabled, and tokens have the
// issuer of a cluster. There is no kube-controller-manager, no scheduler and no
// node, so no controller acts on objects, and pods never run.
package controlplane

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/lanyard-dev/lanyard/test/support/process"
)

// DefaultServiceAccountIssuer is the issuer of ServiceAccount tokens, and their audience
// if a request names none. kubeadm and most distributions use the same value.
const DefaultServiceAccountIssuer = "https://kubernetes.default.svc.cluster.local"

// Patience is how long a test waits for what usually happens within a second. On a machine under
// full load it takes up to a minute, and only what hangs takes longer than this.
const Patience = 5 * time.Minute

const (
	// startTimeout limits the start of each process. A start usually takes
	// seconds, but minutes on a machine under full load.
	startTimeout = 10 * time.Minute
	// stopTimeout is the time between SIGTERM and SIGKILL.
	stopTimeout = 30 * time.Second
)

// Options configures a control plane. The zero value is usable.
type Options struct {
	// APIServerFlags are kube-apiserver flags by name without dashes
	// (audit-policy-file, feature-gates, ...). They override the flags that
	// Start sets.
	APIServerFlags map[string]string

	// Assets is the directory with etcd and kube-apiserver. The default is the one
	// that Start names.
	Assets string

	// LogDir is an existing directory for etcd.log and kube-apiserver.log. If
	// it is empty, the logs are removed with the control plane.
	LogDir string
}

// ControlPlane is a running etcd and kube-apiserver. Its methods are safe for
// concurrent use.
type ControlPlane struct {
	plane   *envtest.ControlPlane
	dir     string
	logs    []*os.File
	admin   *rest.Config
	client  *kubernetes.Clientset // the administrator's
	version string

	stop func() error
}

// Start runs etcd and kube-apiserver and returns when the API is ready. The
// binaries are those in $KUBEBUILDER_ASSETS, or else in bin/controlplane of the
// repository that contains the working directory.
//
// If ctx ends, Start fails, but only when envtest's own wait for a process is over. If
// Start fails, it leaves no processes and no directory. The caller must stop the
// control plane with Stop. Cancelling ctx does not stop it, and neither does the end of
// the calling process.
func Start(ctx context.Context, opts Options) (*ControlPlane, error) {
	assets := opts.Assets
	if assets == "" {
		var err error
		if assets, err = assetsDir(); err != nil {
			return nil, err
		}
	}
	dir, err := os.MkdirTemp("", "lanyard-controlplane-")
	if err != nil {
		return nil, fmt.Errorf("create the control plane's directory: %w", err)
	}
	c := &ControlPlane{dir: dir}
	c.stop = sync.OnceValue(c.shutdown)
	if err := c.start(ctx, assets, opts); err != nil {
		// Read the end of the logs before the directory is removed.
		for _, log := range c.logs {
			err = fmt.Errorf("%w%s", err, process.Tail(log.Name()))
		}
		return nil, errors.Join(fmt.Errorf("start the control plane: %w", err), c.Stop())
	}
	return c, nil
}

func (c *ControlPlane) start(ctx context.Context, assets string, opts Options) error {
	if err := c.configure(ctx, assets, opts); err != nil {
		return err
	}
	if err := c.plane.Start(); err != nil {
		return err
	}
	admin, err := c.User("admin", "system:masters")
	if err != nil {
		return err
	}
	c.admin = admin
	if c.client, err = kubernetes.NewForConfig(admin); err != nil {
		return fmt.Errorf("create the administrator's client: %w", err)
	}
	info, err := c.client.Discovery().ServerVersion()
	if err != nil {
		return fmt.Errorf("read the version of kube-apiserver: %w", err)
	}
	c.version = info.GitVersion
	// kube-apiserver serves requests a moment before it has created its own namespaces.
	return process.Poll(ctx, "the namespace default", func(ctx context.Context) error {
		_, err := c.client.CoreV1().Namespaces().Get(ctx, metav1.NamespaceDefault, metav1.GetOptions{})
		return err
	})
}

// configure prepares both processes without starting them.
func (c *ControlPlane) configure(ctx context.Context, assets string, opts Options) error {
	timeout := startTimeout
	if deadline, ok := ctx.Deadline(); ok {
		timeout = min(timeout, time.Until(deadline))
	}
	// Set the directories explicitly: envtest does not remove its own if a
	// start fails.
	etcd := &envtest.Etcd{
		Path:         filepath.Join(assets, "etcd"),
		DataDir:      filepath.Join(c.dir, "etcd"),
		StartTimeout: timeout,
		StopTimeout:  stopTimeout,
	}
	server := &envtest.APIServer{
		Path:         filepath.Join(assets, "kube-apiserver"),
		CertDir:      filepath.Join(c.dir, "kube-apiserver"),
		StartTimeout: timeout,
		StopTimeout:  stopTimeout,
	}
	for _, dir := range []string{etcd.DataDir, server.CertDir} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			return fmt.Errorf("create the control plane's directory: %w", err)
		}
	}
	var err error
	if etcd.Out, err = c.logFile(opts, "etcd.log"); err != nil {
		return err
	}
	etcd.Err = etcd.Out
	if server.Out, err = c.logFile(opts, "kube-apiserver.log"); err != nil {
		return err
	}
	server.Err = server.Out

	etcd.Configure().Set("unsafe-no-fsync", "true")
	setAPIServerFlags(server.Configure(), opts)
	// Not envtest.Environment: its retries lose track of the first process, and
	// USE_EXISTING_CLUSTER would make it use another cluster.
	c.plane = &envtest.ControlPlane{Etcd: etcd, APIServer: server}
	return ctx.Err()
}

// logFile creates a log for the output of a process. envtest's wait for the end
// of a process would also wait for the end of its output if this were not a
// file.
func (c *ControlPlane) logFile(opts Options, name string) (*os.File, error) {
	file, err := os.Create(filepath.Join(cmp.Or(opts.LogDir, c.dir), name))
	if err != nil {
		return nil, fmt.Errorf("create a log of the control plane: %w", err)
	}
	c.logs = append(c.logs, file)
	return file, nil
}

func setAPIServerFlags(flags *envtest.Arguments, opts Options) {
	flags.
		// envtest disables the ServiceAccount admission plugin.
		Disable("disable-admission-plugins").
		Set("authorization-mode", "RBAC").
		Set("service-account-issuer", DefaultServiceAccountIssuer).
		// By default, the server publishes an address of the machine as the
		// endpoint of the kubernetes Service, which must not be a loopback
		// address. Nothing here uses that Service.
		Set("advertise-address", "127.0.0.1").
		Set("endpoint-reconciler-type", "none")
	for name, value := range opts.APIServerFlags {
		flags.Set(name, value)
	}
}

// Config returns a client configuration of an administrator (system:masters)
// without a client-side rate limit. Each call returns a copy.
func (c *ControlPlane) Config() *rest.Config { return rest.CopyConfig(c.admin) }

// User returns a client configuration of the user, who authenticates with a
// client certificate. RBAC applies to the name and the groups.
func (c *ControlPlane) User(name string, groups ...string) (*rest.Config, error) {
	user, err := c.plane.AddUser(envtest.User{Name: name, Groups: groups}, &rest.Config{QPS: -1})
	if err != nil {
		return nil, fmt.Errorf("add the user %q: %w", name, err)
	}
	return user.Config(), nil
}

// Kubeconfig writes a self-contained kubeconfig of an administrator to path,
// with mode 0600.
func (c *ControlPlane) Kubeconfig(path string) error { return WriteKubeconfig(path, c.admin) }

// WriteKubeconfig writes a configuration of Config or User to path as a
// self-contained kubeconfig, with mode 0600.
func WriteKubeconfig(path string, config *rest.Config) error {
	const name = "lanyard"
	kubeconfig := clientcmdapi.NewConfig()
	kubeconfig.Clusters[name] = &clientcmdapi.Cluster{
		Server:                   config.Host,
		CertificateAuthorityData: config.CAData,
	}
	kubeconfig.AuthInfos[name] = &clientcmdapi.AuthInfo{
		ClientCertificateData: config.CertData,
		ClientKeyData:         config.KeyData,
	}
	kubeconfig.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	kubeconfig.CurrentContext = name
	// WriteToFile does not change the mode of an existing file.
	if err := errors.Join(clientcmd.WriteToFile(*kubeconfig, path), os.Chmod(path, 0o600)); err != nil {
		return fmt.Errorf("write the kubeconfig: %w", err)
	}
	return nil
}

// Version returns the version of kube-apiserver, such as v1.36.3.
func (c *ControlPlane) Version() string { return c.version }

// Policies reports whether the API server has ValidatingAdmissionPolicy v1, which
// the guard and the fences need: Kubernetes 1.30 and later.
func (c *ControlPlane) Policies() bool {
	server, err := version.ParseGeneric(c.version)
	return err == nil && server.AtLeast(version.MajorMinor(1, 30))
}

// CreateNamespace creates a namespace and its ServiceAccount default. In a
// cluster, kube-controller-manager creates that ServiceAccount; without it,
// pods that name no ServiceAccount would be denied.
func (c *ControlPlane) CreateNamespace(ctx context.Context, name string) error {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := c.client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create the namespace %q: %w", name, err)
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	if _, err := c.client.CoreV1().ServiceAccounts(name).Create(ctx, account, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create the ServiceAccount default in the namespace %q: %w", name, err)
	}
	return nil
}

// Stop stops both processes, waits for them and removes their files. All calls
// return the result of the first.
func (c *ControlPlane) Stop() error { return c.stop() }

func (c *ControlPlane) shutdown() error {
	var errs []error
	if c.plane != nil {
		errs = append(errs, c.plane.Stop())
	}
	for _, log := range c.logs {
		errs = append(errs, log.Close())
	}
	errs = append(errs, os.RemoveAll(c.dir))
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("stop the control plane: %w", err)
	}
	return nil
}
