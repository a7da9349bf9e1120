// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"path/filepath"

	"github.com/lanyard-dev/lanyard/test/support/controlplane"
)

// frontProxy is the user name of kube-apiserver in requests to extension API
// servers.
const frontProxy = "front-proxy-client"

func (c *cluster) etcdFlags() []string {
	const peerURL = "http://127.0.0.1:2380"
	return []string{
		"--data-dir=" + filepath.Join(c.Dir, "etcd"),
		"--listen-client-urls=" + etcdURL,
		"--advertise-client-urls=" + etcdURL,
		"--listen-peer-urls=" + peerURL,
		"--initial-advertise-peer-urls=" + peerURL,
		"--initial-cluster=default=" + peerURL,
		// The data is removed with the process.
		"--unsafe-no-fsync",
	}
}

func (c *cluster) apiServerFlags() []string {
	return []string{
		"--advertise-address=" + nodeIP,
		"--secure-port=6443",
		"--etcd-servers=" + etcdURL,
		"--tls-cert-file=" + c.pki("kube-apiserver.crt"),
		"--tls-private-key-file=" + c.pki("kube-apiserver.key"),
		"--client-ca-file=" + c.pki("ca.crt"),
		"--kubelet-certificate-authority=" + c.pki("ca.crt"),
		"--kubelet-client-certificate=" + c.pki("kube-apiserver-kubelet-client.crt"),
		"--kubelet-client-key=" + c.pki("kube-apiserver-kubelet-client.key"),
		"--kubelet-preferred-address-types=InternalIP",
		"--service-cluster-ip-range=" + serviceCIDR,
		"--service-account-issuer=" + controlplane.DefaultServiceAccountIssuer,
		"--service-account-key-file=" + c.pki("service-accounts.key"),
		"--service-account-signing-key-file=" + c.pki("service-accounts.key"),
		"--requestheader-client-ca-file=" + c.pki("ca.crt"),
		"--requestheader-allowed-names=" + frontProxy,
		"--requestheader-username-headers=X-Remote-User",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file=" + c.pki(frontProxy+".crt"),
		"--proxy-client-key-file=" + c.pki(frontProxy+".key"),
		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction",
		"--allow-privileged=true",
	}
}

func (c *cluster) controllerManagerFlags() []string {
	return append(c.controllerFlags("kube-controller-manager"),
		"--use-service-account-credentials=true",
		"--service-account-private-key-file="+c.pki("service-accounts.key"),
		"--root-ca-file="+c.pki("ca.crt"),
		"--cluster-signing-cert-file="+c.pki("ca.crt"),
		"--cluster-signing-key-file="+c.pki("ca.key"),
		// The one node gets all pod addresses.
		"--allocate-node-cidrs=true",
		"--cluster-cidr="+podCIDR,
		"--node-cidr-mask-size=20",
		"--service-cluster-ip-range="+serviceCIDR,
		"--flex-volume-plugin-dir="+filepath.Join(c.Dir, "volume-plugins"),
	)
}

func (c *cluster) schedulerFlags() []string {
	return c.controllerFlags("kube-scheduler")
}

// controllerFlags returns the flags that kube-controller-manager and
// kube-scheduler share.
func (c *cluster) controllerFlags(name string) []string {
	return []string{
		"--kubeconfig=" + c.kubeconfig(name),
		"--authentication-kubeconfig=" + c.kubeconfig(name),
		"--authorization-kubeconfig=" + c.kubeconfig(name),
		"--bind-address=127.0.0.1",
		// Only one instance runs.
		"--leader-elect=false",
	}
}

func (c *cluster) kubeletFlags() []string {
	return []string{
		"--config=" + filepath.Join(c.Dir, "kubelet.yaml"),
		"--kubeconfig=" + c.kubeconfig("kubelet"),
		"--hostname-override=" + nodeName,
		"--node-ip=" + nodeIP,
	}
}

func (c *cluster) proxyFlags() []string {
	return []string{
		"--kubeconfig=" + c.kubeconfig("kube-proxy"),
		"--hostname-override=" + nodeName,
		"--proxy-mode=iptables",
		"--cluster-cidr=" + podCIDR,
		// The conntrack table belongs to the whole kernel, so leave its size
		// unchanged.
		"--conntrack-max-per-core=0",
	}
}
