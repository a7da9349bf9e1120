// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package availability_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"os/exec"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/cert"

	"github.com/lanyard-dev/lanyard/test/e2e/framework"
	"github.com/lanyard-dev/lanyard/test/support/process"
)

// startCertManager installs cert-manager's resources and runs its controllers
// and cainjector until stop is called. They log to output.
func startCertManager(ctx context.Context, output io.Writer) (stop func() error, err error) {
	command := exec.CommandContext(context.WithoutCancel(ctx), "bin/cert-manager", "--kubeconfig", cluster.Kubeconfig, "--crds", "bin/cert-manager-crds")
	command.Dir = cluster.Root
	command.Stdout, command.Stderr = output, output
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	if err := command.Start(); err != nil {
		return nil, fmt.Errorf("start cert-manager: %w", err)
	}
	stop = func() error {
		if err := command.Process.Signal(syscall.SIGTERM); err != nil {
			return fmt.Errorf("stop cert-manager: %w", err)
		}
		return command.Wait()
	}
	wait, cancel := context.WithTimeout(ctx, framework.Patience)
	defer cancel()
	// The resources appear one after the other.
	err = process.Poll(wait, "the resources of cert-manager", func(ctx context.Context) error {
		_, err := cluster.Run(ctx, "kubectl", "get", "certificates,certificaterequests,issuers", "--namespace", "default")
		return err
	})
	return stop, err
}

// renewCertificate makes cert-manager renew one of Lanyard's Certificates with
// the condition Issuing, as "cmctl renew" does.
func renewCertificate(ctx context.Context, name string) error {
	patch := fmt.Sprintf(`[{"op": "add", "path": "/status/conditions/-", "value": {"type": "Issuing", "status": "True",
		"reason": "ManuallyTriggered", "message": "requested by the test suite", "lastTransitionTime": %q}}]`, time.Now().UTC().Format(time.RFC3339))
	_, err := cluster.Run(ctx, "kubectl", "patch", "certificate", name, "--namespace", framework.Namespace, "--subresource", "status", "--type", "json", "--patch", patch)
	return err
}

// servedCertificate returns the certificate that a replica serves. It connects
// through the API server, because this machine may have no route to the pods.
func servedCertificate(ctx context.Context, pod *corev1.Pod) (*x509.Certificate, error) {
	address, stop, err := cluster.Forward(ctx, pod, framework.Port(pod, "webhook"))
	if err != nil {
		return nil, err
	}
	defer stop()
	// This only reads the certificate. The API server checks whether it is trusted.
	dialer := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("read the certificate of pod %s: %w", pod.Name, err)
	}
	defer conn.Close()
	return conn.(*tls.Conn).ConnectionState().PeerCertificates[0], nil
}

// trustedCertificates returns the CA certificates in the caBundle of the
// webhook configuration.
func trustedCertificates(ctx context.Context) ([]*x509.Certificate, error) {
	configuration, err := cluster.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(ctx, framework.Configuration, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	certificates, err := cert.ParseCertsPEM(configuration.Webhooks[0].ClientConfig.CABundle)
	if err != nil {
		return nil, fmt.Errorf("parse the caBundle of %s: %w", framework.Configuration, err)
	}
	return certificates, nil
}
