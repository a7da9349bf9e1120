// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package framework

import (
	"context"
	"fmt"
	"io"
	"os/exec"
	"syscall"
	"time"

	"github.com/lanyard-dev/lanyard/test/support/process"
)

// StartCertManager installs cert-manager's resources and runs its controllers
// and cainjector until stop is called. They log to output.
func (c *Cluster) StartCertManager(ctx context.Context, output io.Writer) (stop func() error, err error) {
	command := exec.CommandContext(context.WithoutCancel(ctx), "bin/cert-manager", "--kubeconfig", c.Kubeconfig, "--crds", "bin/cert-manager-crds")
	command.Dir = c.Root
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
	wait, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	// The resources appear one after the other.
	err = process.Poll(wait, "the resources of cert-manager", func(ctx context.Context) error {
		_, err := c.Run(ctx, "kubectl", "get", "certificates,certificaterequests,issuers", "--namespace", "default")
		return err
	})
	return stop, err
}

// RenewCertificate makes cert-manager renew one of Lanyard's Certificates with
// the condition Issuing, as "cmctl renew" does.
func (c *Cluster) RenewCertificate(ctx context.Context, name string) error {
	patch := fmt.Sprintf(`[{"op": "add", "path": "/status/conditions/-", "value": {"type": "Issuing", "status": "True",
		"reason": "ManuallyTriggered", "message": "requested by the test suite", "lastTransitionTime": %q}}]`, time.Now().UTC().Format(time.RFC3339))
	_, err := c.Run(ctx, "kubectl", "patch", "certificate", name, "--namespace", Namespace, "--subresource", "status", "--type", "json", "--patch", patch)
	return err
}
