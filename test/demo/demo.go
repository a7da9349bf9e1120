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
	"time"

	"github.com/lanyard-dev/lanyard/test/support/process"
	"github.com/lanyard-dev/lanyard/test/support/webhook"
)

// errInterrupted is the error of a demo that was interrupted by a signal.
var errInterrupted = errors.New("interrupted; all processes and files were removed")

// demo is the state that the steps share.
type demo struct {
	*printer
	dir     string // for logs, kubeconfigs and the certificate
	cluster *cluster
	webhook *webhook.Process
	keys    keySet
	ends    []func() error // cleanup functions in start order
}

// run runs the whole demo. It leaves no processes and no files, even after a
// panic.
func run(ctx context.Context, p *printer, keep string) (err error) {
	d := &demo{printer: p}
	defer func() {
		for _, end := range slices.Backward(d.ends) {
			err = errors.Join(err, end())
		}
	}()
	examples, err := d.prepare(ctx)
	if err != nil {
		return d.explain(ctx, err)
	}
	results, err := d.show(ctx, examples)
	if err == nil {
		d.table(results)
		err = failures(results)
	}
	err = d.explain(ctx, err)
	if err == nil {
		d.printf("\n%s\n", d.green("All checks passed."))
	}
	d.keep(ctx, keep)
	return err
}

// explain prints the end of the webhook's log if the demo failed. An
// interrupted demo has not failed, whatever error it caused.
func (d *demo) explain(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return errInterrupted
	}
	if log := process.Tail(filepath.Join(d.dir, "lanyard-webhook.log")); err != nil && log != "" {
		d.printf("%s\n", log)
	}
	return err
}

// prepare runs all steps up to an installed webhook. It creates the
// ServiceAccounts before the installation and tries the pods without the
// webhook.
func (d *demo) prepare(ctx context.Context) (examples []*example, err error) {
	d.printf("Lanyard on a real Kubernetes API server. For each example: the annotations of its\nServiceAccount, what Lanyard added to its pod (+), and the claims of real tokens.\n\n")
	if examples, err = readExamples("examples"); err != nil {
		return nil, fmt.Errorf("%w; run the demo in the root of the repository", err)
	}
	if d.dir, err = os.MkdirTemp("", "lanyard-demo-"); err != nil {
		return nil, fmt.Errorf("create a directory: %w", err)
	}
	d.ends = append(d.ends, func() error { return os.RemoveAll(d.dir) })
	steps := []struct {
		what string
		do   func() (string, error)
	}{
		{"etcd and kube-apiserver", func() (how string, err error) {
			if d.cluster, err = startCluster(ctx, d.dir); err != nil {
				return "", err
			}
			d.ends = append(d.ends, d.cluster.Stop)
			d.keys, err = d.cluster.publishedKeys(ctx)
			return d.cluster.Version() + " ready", err
		}},
		{"ServiceAccounts of examples/", func() (string, error) {
			return "created", d.cluster.createServiceAccounts(ctx, examples)
		}},
		{"lanyard-webhook with the RBAC rules of deploy/base/21-rbac.yaml", func() (how string, err error) {
			if d.webhook, err = startWebhook(ctx, d.cluster, d.dir); err != nil {
				return "", err
			}
			d.ends = append(d.ends, d.webhook.Stop)
			return "ready", nil
		}},
		{"guard of deploy/base/70-guard.yaml", func() (string, error) {
			return "in effect", d.cluster.installGuard(ctx, examples[0])
		}},
		{"webhook configurations of deploy/base/50-* and deploy/base/60-*", func() (string, error) {
			return "in effect", d.cluster.register(ctx, d.webhook, examples[0])
		}},
	}
	for _, step := range steps {
		if err := d.step(step.what, step.do); err != nil {
			return nil, err
		}
	}
	return examples, nil
}

// show creates the pods one after another. It returns errors of the demo
// itself; what is wrong with a pod is in the results.
func (d *demo) show(ctx context.Context, examples []*example) ([]*result, error) {
	var results []*result
	for _, e := range examples {
		r := &result{example: e.name}
		results = append(results, r)
		d.headline(e.file(), e.title)
		for key, value := range sorted(e.account.Annotations) {
			d.printf("  %s: %s\n", d.bold(key), quote(value))
		}
		showPod := d.showPod
		if e.denied {
			showPod = d.showDenial
		}
		if err := showPod(ctx, e, r); err != nil {
			return nil, fmt.Errorf("%s: %w", e.name, err)
		}
		d.problems(r)
	}
	r, err := d.showDebug(ctx, examples[0])
	if err != nil {
		return nil, fmt.Errorf("debug: %w", err)
	}
	results = append(results, r)
	r, err = d.showGuard(ctx, examples[0], examples[len(examples)-1])
	if err != nil {
		return nil, fmt.Errorf("guard: %w", err)
	}
	return append(results, r), nil
}

// keep waits for Ctrl-C if KEEP is set.
func (d *demo) keep(ctx context.Context, keep string) {
	if ctx.Err() != nil {
		return
	}
	if keep == "" || keep == "0" {
		d.printf("Stopping the cluster. To keep it running and use it with kubectl: make demo KEEP=1\n")
		return
	}
	d.printf(`
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
`, d.bold("The cluster runs until Ctrl-C."), d.cluster.kubeconfig, namespace, prefix, d.webhook.LogFile)
	<-ctx.Done()
	d.printf("\nstopping\n")
}

// step prints what a step does and its result.
func (p *printer) step(what string, do func() (string, error)) error {
	p.printf("%s %s ... ", p.bold("•"), what)
	start := time.Now()
	how, err := do()
	if err != nil {
		p.printf("%s\n", p.red("failed"))
		return fmt.Errorf("%s: %w", what, err)
	}
	p.printf("%s in %.1f s\n", p.green(how), time.Since(start).Seconds())
	return nil
}
