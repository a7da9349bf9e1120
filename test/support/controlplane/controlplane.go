// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package controlplane runs a real Kubernetes control plane, etcd and
// kube-apiserver, on the loopback interface for tests and for the demo.
//
// It runs what hack/controlplane.sh built, through controller-runtime's
// envtest, but closer to a cluster than envtest's defaults are: the
// ServiceAccount admission plugin is on, and tokens carry the issuer of a
// cluster. There is no kube-controller-manager, no scheduler and no node, so
// nothing reacts to what is created, and no pod ever runs.
package controlplane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// DefaultServiceAccountIssuer is the issuer of the service account tokens
// where Options names none: what kubeadm and most distributions set.
const DefaultServiceAccountIssuer = "https://kubernetes.default.svc.cluster.local"

const (
	// startTimeout bounds the start of each of the two processes. A start takes
	// seconds; this is for a machine whose cores are all busy.
	startTimeout = 2 * time.Minute
	// stopTimeout is how long a process has between SIGTERM and SIGKILL.
	stopTimeout = 30 * time.Second
)

// Options says how a control plane differs from the default one. The zero
// value is good.
type Options struct {
	// ServiceAccountIssuer is the iss claim of the service account tokens, and
	// their audience where a request names none. Empty means
	// DefaultServiceAccountIssuer.
	ServiceAccountIssuer string

	// APIServerFlags are flags of kube-apiserver by name, without the dashes
	// (audit-policy-file, feature-gates, ...), over the ones set here.
	APIServerFlags map[string]string

	// LogDir is an existing directory for etcd.log and kube-apiserver.log, which
	// stay there. Empty means that the logs go when the control plane does.
	LogDir string
}

// ControlPlane is a running etcd and kube-apiserver. Its methods may be called
// from several goroutines.
type ControlPlane struct {
	plane   *envtest.ControlPlane
	dir     string
	logs    []*os.File
	admin   *rest.Config
	version string

	stop func() error
}

// Start runs etcd and kube-apiserver and returns when the API answers. The
// binaries are the ones in $KUBEBUILDER_ASSETS or else in bin/controlplane of
// the repository that the working directory is in.
//
// A context that ends meanwhile makes Start fail, but no sooner than envtest's
// own wait for a process ends. Where Start fails, it leaves no process and no
// directory. The caller stops a control plane with Stop: the context's end
// does not, and neither does the end of the calling process.
func Start(ctx context.Context, opts Options) (*ControlPlane, error) {
	assets, err := assetsDir()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "lanyard-controlplane-")
	if err != nil {
		return nil, fmt.Errorf("making the control plane's directory: %w", err)
	}
	c := &ControlPlane{dir: dir}
	c.stop = sync.OnceValue(c.shutdown)
	if err := c.start(ctx, assets, opts); err != nil {
		// The end of the logs is read before the directory goes.
		err = fmt.Errorf("starting the control plane: %w%s", err, c.logTails())
		return nil, errors.Join(err, c.Stop())
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
	client, err := kubernetes.NewForConfig(admin)
	if err != nil {
		return fmt.Errorf("making the administrator's client: %w", err)
	}
	info, err := client.Discovery().ServerVersion()
	if err != nil {
		return fmt.Errorf("reading the version of kube-apiserver: %w", err)
	}
	c.version = info.GitVersion
	return waitForNamespace(ctx, client, metav1.NamespaceDefault)
}

// configure prepares the two processes: everything up to running them.
func (c *ControlPlane) configure(ctx context.Context, assets string, opts Options) error {
	timeout := startTimeout
	if deadline, ok := ctx.Deadline(); ok {
		timeout = min(timeout, time.Until(deadline))
	}
	// The directories are given, not left to envtest, which forgets to remove
	// its own where a start fails.
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
			return fmt.Errorf("making the control plane's directory: %w", err)
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
	// envtest.Environment would add retries that lose sight of the process
	// before, and follow USE_EXISTING_CLUSTER to a cluster that is not ours.
	c.plane = &envtest.ControlPlane{Etcd: etcd, APIServer: server}
	return ctx.Err()
}

func setAPIServerFlags(flags *envtest.Arguments, opts Options) {
	issuer := opts.ServiceAccountIssuer
	if issuer == "" {
		issuer = DefaultServiceAccountIssuer
	}
	flags.
		// envtest turns the ServiceAccount admission plugin off.
		Disable("disable-admission-plugins").
		Set("authorization-mode", "RBAC").
		Set("service-account-issuer", issuer).
		// Otherwise the server wants an address of the machine's own and
		// publishes it as the endpoint of the kubernetes Service, which may not
		// be a loopback address. Nothing here goes through that Service.
		Set("advertise-address", "127.0.0.1").
		Set("endpoint-reconciler-type", "none")
	for name, value := range opts.APIServerFlags {
		flags.Set(name, value)
	}
}

// Config returns a client configuration of an administrator (system:masters),
// without a rate limit of the client's own. Each call returns a copy.
func (c *ControlPlane) Config() *rest.Config {
	return rest.CopyConfig(c.admin)
}

// User returns a client configuration of the user, who authenticates with a
// client certificate and may do what RBAC says about the name and the groups.
func (c *ControlPlane) User(name string, groups ...string) (*rest.Config, error) {
	user, err := c.plane.AddUser(envtest.User{Name: name, Groups: groups}, &rest.Config{QPS: -1})
	if err != nil {
		return nil, fmt.Errorf("adding the user %q: %w", name, err)
	}
	return user.Config(), nil
}

// Kubeconfig writes a kubeconfig of an administrator to path, with mode 0600
// and everything embedded.
func (c *ControlPlane) Kubeconfig(path string) error {
	return WriteKubeconfig(path, c.admin)
}

// WriteKubeconfig writes a configuration that Config or User returned as a
// kubeconfig to path, with mode 0600 and everything embedded.
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
	if err := clientcmd.WriteToFile(*kubeconfig, path); err != nil {
		return fmt.Errorf("writing a kubeconfig: %w", err)
	}
	// A file that was there before kept the mode that it had.
	if err := os.Chmod(path, 0o600); err != nil {
		return fmt.Errorf("writing a kubeconfig: %w", err)
	}
	return nil
}

// Version is the version that kube-apiserver reports, as in v1.36.3.
func (c *ControlPlane) Version() string {
	return c.version
}

// CreateNamespace makes a namespace and its service account default. In a
// cluster kube-controller-manager makes that account; without it, a pod that
// names no account would be refused for want of one.
func (c *ControlPlane) CreateNamespace(ctx context.Context, name string) error {
	client, err := kubernetes.NewForConfig(c.admin)
	if err != nil {
		return fmt.Errorf("making the administrator's client: %w", err)
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("creating the namespace %q: %w", name, err)
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	if _, err := client.CoreV1().ServiceAccounts(name).Create(ctx, account, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("creating the service account default of the namespace %q: %w", name, err)
	}
	return nil
}

// Stop ends both processes, waits for their end and removes their files. Every
// call after the first returns what the first did.
func (c *ControlPlane) Stop() error {
	return c.stop()
}

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
		return fmt.Errorf("stopping the control plane: %w", err)
	}
	return nil
}
