// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/lanyard-dev/lanyard/test/support/controlplane"
	"github.com/lanyard-dev/lanyard/test/support/process"
	"github.com/lanyard-dev/lanyard/test/support/webhook"
)

// own is a control plane and a webhook that the demo runs itself.
type own struct {
	dir        string // for logs, kubeconfigs and the certificate
	kubeconfig string
	plane      *controlplane.ControlPlane
	webhook    *webhook.Process
	ends       []func() error // cleanup functions in start order
}

// stop ends everything that was started.
func (o *own) stop() (err error) {
	for _, end := range slices.Backward(o.ends) {
		err = errors.Join(err, end())
	}
	return err
}

// ownSteps starts a control plane and the webhook. The ServiceAccounts are created
// before the installation, and the pods are tried without the webhook.
func (d *demo) ownSteps(ctx context.Context) []step {
	o := d.own
	d.outage = outage{
		what:  "the webhook hangs, and the API server decides without it",
		begin: func(context.Context) error { return o.webhook.Suspend() },
		end:   func(context.Context) error { return o.webhook.Resume() },
	}
	return []step{
		{"etcd and kube-apiserver", func() (how string, err error) {
			if d.cluster, err = o.start(ctx); err != nil {
				return "", err
			}
			return o.plane.Version() + " ready", nil
		}},
		{"ServiceAccounts of examples/", func() (string, error) {
			return "created", d.cluster.createServiceAccounts(ctx, d.examples)
		}},
		{"lanyard-webhook with the RBAC rules of deploy/base/21-rbac.yaml", func() (string, error) {
			return "ready", o.startWebhook(ctx)
		}},
		{"guard of deploy/base/70-guard.yaml", func() (string, error) {
			return "in effect", d.cluster.installGuard(ctx, d.examples[0])
		}},
		{"webhook configurations of deploy/base/50-* and deploy/base/60-*", func() (string, error) {
			if err := o.webhook.Register(ctx, d.cluster, deployDir); err != nil {
				return "", err
			}
			return "in effect", d.cluster.waitInEffect(ctx, d.examples[0])
		}},
	}
}

// start starts the control plane.
func (o *own) start(ctx context.Context) (c *cluster, err error) {
	if o.dir, err = os.MkdirTemp("", "lanyard-demo-"); err != nil {
		return nil, fmt.Errorf("create a directory: %w", err)
	}
	o.ends = append(o.ends, func() error { return os.RemoveAll(o.dir) })
	if o.plane, err = controlplane.Start(ctx, controlplane.Options{LogDir: o.dir}); err != nil {
		return nil, err
	}
	o.ends = append(o.ends, o.plane.Stop)
	if c, err = connect(o.plane.Config()); err != nil {
		return nil, err
	}
	o.kubeconfig = filepath.Join(o.dir, "kubeconfig")
	return c, errors.Join(o.plane.Kubeconfig(o.kubeconfig), o.plane.CreateNamespace(ctx, namespace))
}

// explain prints the end of the webhook's log if the demo failed.
func (o *own) explain(p *printer, err error) {
	if log := process.Tail(filepath.Join(o.dir, "lanyard-webhook.log")); err != nil && log != "" {
		p.printf("%s\n", log)
	}
}

// keep waits for Ctrl-C if KEEP is set.
func (o *own) keep(ctx context.Context, p *printer, keep string) {
	if o.webhook == nil {
		return
	}
	if keep == "" || keep == "0" {
		p.printf("Stopping the cluster. To keep it running and use it with kubectl: make demo KEEP=1\n")
		return
	}
	p.printf(`
%s
  export KUBECONFIG=%s

  # Create an example again.
  kubectl replace --force -f examples/aws.yaml
  # See the variables that Lanyard added to a pod.
  kubectl get pod three-clouds -n %[3]s -o yaml | grep -A 3 -E 'AWS_|AZURE_|GOOGLE_'
  # Annotate a ServiceAccount and create a pod that uses it.
  kubectl annotate serviceaccount none -n %[3]s %[4]saudience=mine
  kubectl run try -n %[3]s --image=busybox --overrides='{"spec":{"serviceAccountName":"none"}}' --dry-run=server -o yaml

  The webhook logs each request to %[5]s
  There are no nodes, so pods never run.
`, p.bold("The cluster runs until Ctrl-C."), o.kubeconfig, namespace, prefix, o.webhook.LogFile)
	<-ctx.Done()
	p.printf("\nstopping\n")
}
