// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"embed"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"text/template"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/lanyard-dev/lanyard/test/e2e/cluster/pki"
	"github.com/lanyard-dev/lanyard/test/support/controlplane"
)

// All addresses are in 198.18.0.0/15, which RFC 2544 reserves for benchmarks.
// The host's networks do not use it.
const (
	nodeName    = "node"
	nodeIP      = "198.18.0.1"
	networkBits = "/15"
	podCIDR     = "198.18.16.0/20"
	serviceCIDR = "198.19.0.0/16"
	// kubernetesIP is the address of the Service kubernetes: the first in
	// serviceCIDR.
	kubernetesIP = "198.19.0.1"
	apiServer    = "https://" + nodeIP + ":6443"
	etcdURL      = "http://127.0.0.1:2379"

	containerdSocket = "/run/containerd/containerd.sock"
	// pauseImage is the name that hack/images.sh uses.
	pauseImage = "pause:cluster"
	// staticPods is the same directory that kubeadm uses.
	staticPods = "/etc/kubernetes/manifests"
)

//go:embed config
var configs embed.FS

// cluster is the part that runs inside of the namespaces.
type cluster struct {
	*plan
	ctx    context.Context // cancelled when a component ends
	cancel context.CancelCauseFunc
	admin  *rest.Config
	client kubernetes.Interface
}

func newCluster(ctx context.Context, p *plan) *cluster {
	ctx, cancel := context.WithCancelCause(ctx)
	return &cluster{plan: p, ctx: ctx, cancel: cancel}
}

// start starts the cluster and returns when the node is ready for pods.
func (c *cluster) start(ctx context.Context) error {
	for _, prepare := range []func() error{
		c.mountAll,
		func() error { return setUpNetwork(ctx) },
		c.writeConfigs,
		c.writeCertificates,
	} {
		if err := prepare(); err != nil {
			return err
		}
	}
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() error {
		return step(c.Started, "control plane", func() error { return c.startControlPlane(groupCtx) })
	})
	group.Go(func() error {
		return step(c.Started, "containerd and images", func() error { return c.startContainerd(groupCtx) })
	})
	if err := group.Wait(); err != nil {
		return err
	}
	return c.startNode(ctx)
}

// startControlPlane starts etcd, then kube-apiserver, and then the components
// that depend on it.
func (c *cluster) startControlPlane(ctx context.Context) error {
	if err := c.startKubernetes("etcd", c.etcdFlags()...); err != nil {
		return err
	}
	if err := waitFor(ctx, "etcd", "its health endpoint", func(ctx context.Context) error {
		return controlplane.CheckReady(ctx, etcdURL+"/health")
	}); err != nil {
		return err
	}
	if err := c.startKubernetes("kube-apiserver", c.apiServerFlags()...); err != nil {
		return err
	}
	err := waitFor(ctx, "kube-apiserver", "its readiness endpoint", func(ctx context.Context) error {
		return c.client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	})
	if err != nil {
		return err
	}
	if err := c.startKubernetes("kube-controller-manager", c.controllerManagerFlags()...); err != nil {
		return err
	}
	return c.startKubernetes("kube-scheduler", c.schedulerFlags()...)
}

// startNode starts kubelet and kube-proxy and waits for everything that the
// command may depend on.
func (c *cluster) startNode(ctx context.Context) error {
	if err := c.startKubernetes("kubelet", c.kubeletFlags()...); err != nil {
		return err
	}
	if err := c.startKubernetes("kube-proxy", c.proxyFlags()...); err != nil {
		return err
	}
	for _, wait := range []struct {
		component, what string
		try             func(context.Context) error
	}{
		{"kubelet", "the node", c.nodeReady},
		{"kube-controller-manager", "the namespace default", c.defaultNamespaceReady},
		{"kube-proxy", "the Service kubernetes", c.serviceAnswers},
	} {
		if err := step(c.Started, wait.what, func() error { return waitFor(ctx, wait.component, wait.what, wait.try) }); err != nil {
			return err
		}
	}
	return nil
}

// writeConfigs writes the configuration files.
func (c *cluster) writeConfigs() error {
	templates, err := template.ParseFS(configs, "config/*")
	if err != nil {
		return fmt.Errorf("read the configuration templates: %w", err)
	}
	values := struct{ Dir, Cgroup, ContainerdSocket, PauseImage, CNIPlugins, PodCIDR, StaticPods string }{
		c.Dir, c.Cgroup, containerdSocket, pauseImage, cniPlugins, podCIDR, staticPods,
	}
	for _, name := range []string{"containerd.toml", "kubelet.yaml", "cni/cni.conflist"} {
		path := filepath.Join(c.Dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return fmt.Errorf("write the configuration files: %w", err)
		}
		file, err := os.Create(path)
		if err != nil {
			return fmt.Errorf("write the configuration files: %w", err)
		}
		defer file.Close()
		if err := templates.ExecuteTemplate(file, filepath.Base(name), values); err != nil {
			return fmt.Errorf("write the configuration files: %w", err)
		}
	}
	return nil
}

// writeCertificates creates the CA, the servers' certificates and the clients'
// kubeconfigs.
func (c *cluster) writeCertificates() error {
	ca, err := pki.NewCA("kubernetes")
	if err != nil {
		return err
	}
	if err := os.Mkdir(filepath.Join(c.Dir, "pki"), 0o700); err != nil {
		return fmt.Errorf("write the certificates: %w", err)
	}
	if err := c.writePair("ca", ca.Pair); err != nil {
		return err
	}
	signingKey, err := pki.NewSigningKey()
	if err != nil {
		return err
	}
	if err := os.WriteFile(c.pki("service-accounts.key"), signingKey, 0o600); err != nil {
		return fmt.Errorf("write the signing key: %w", err)
	}
	node, loopback := net.ParseIP(nodeIP), net.IPv4(127, 0, 0, 1)
	names := []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"}
	server, err := ca.Server("kube-apiserver", names, node, loopback, net.ParseIP(kubernetesIP))
	if err != nil {
		return err
	}
	if err := c.writePair("kube-apiserver", server); err != nil {
		return err
	}
	if server, err = ca.Server(nodeName, []string{nodeName}, node, loopback); err != nil {
		return err
	}
	if err := c.writePair("kubelet-server", server); err != nil {
		return err
	}
	return c.writeClients(ca)
}

// writeClients creates the certificates of the same users as kubeadm.
func (c *cluster) writeClients(ca *pki.CA) error {
	users := []struct {
		file, name string
		groups     []string
	}{
		{"admin", "kubernetes-admin", []string{"system:masters"}},
		{"kube-apiserver-kubelet-client", "kube-apiserver-kubelet-client", []string{"system:masters"}},
		{frontProxy, frontProxy, nil},
		{"kube-controller-manager", "system:kube-controller-manager", nil},
		{"kube-scheduler", "system:kube-scheduler", nil},
		{"kube-proxy", "system:kube-proxy", nil},
		{"kubelet", "system:node:" + nodeName, []string{"system:nodes"}},
	}
	for _, user := range users {
		pair, err := ca.Client(user.name, user.groups...)
		if err != nil {
			return err
		}
		if err := c.writePair(user.file, pair); err != nil {
			return err
		}
		config := &rest.Config{
			Host:            apiServer,
			QPS:             -1, // no client-side rate limit
			TLSClientConfig: rest.TLSClientConfig{CAData: ca.CertPEM, CertData: pair.CertPEM, KeyData: pair.KeyPEM},
		}
		if err := controlplane.WriteKubeconfig(c.kubeconfig(user.file), config); err != nil {
			return err
		}
		if user.file == "admin" {
			c.admin = config
		}
	}
	var err error
	if c.client, err = kubernetes.NewForConfig(c.admin); err != nil {
		return fmt.Errorf("create the administrator's client: %w", err)
	}
	return nil
}

// writePair writes a certificate to NAME.crt and its key to NAME.key.
func (c *cluster) writePair(name string, pair pki.Pair) error {
	if err := os.WriteFile(c.pki(name+".crt"), pair.CertPEM, 0o600); err != nil {
		return fmt.Errorf("write a certificate: %w", err)
	}
	if err := os.WriteFile(c.pki(name+".key"), pair.KeyPEM, 0o600); err != nil {
		return fmt.Errorf("write a key: %w", err)
	}
	return nil
}

func (c *cluster) pki(file string) string { return filepath.Join(c.Dir, "pki", file) }

func (c *cluster) kubeconfig(user string) string {
	return filepath.Join(c.Dir, user+".kubeconfig")
}
