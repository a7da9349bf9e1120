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

	"github.com/lanyard-dev/lanyard/test/support/webhook"
)

// errInterrupted ends a demo that was told to end.
var errInterrupted = errors.New("interrupted; nothing was left behind")

// demo is what the steps share.
type demo struct {
	*printer
	dir     string // for logs, kubeconfigs and the certificate
	cluster *cluster
	webhook *webhook.Process
	keys    keySet
	ends    []func() error // what has to be ended, in the order of its start
}

// run is the whole demo. Whatever its end, a panic among them, it leaves
// neither a process nor a file.
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
		d.printf("\n%s\n", d.green("Everything held."))
	}
	d.keep(ctx, keep)
	return err
}

// explain shows what the webhook had to say before the demo failed. An
// interrupted demo did not fail, whatever error that led to.
func (d *demo) explain(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return errInterrupted
	}
	log := filepath.Join(d.dir, "lanyard-webhook.log")
	if text := tail(log, 20); err != nil && text != "" {
		d.printf("\nthe webhook's log ends with:\n%s\n", text)
	}
	return err
}

// prepare takes the steps up to an installed webhook. The accounts are older
// than the installation, and the pods are tried without it.
func (d *demo) prepare(ctx context.Context) (examples []*example, err error) {
	d.printf("Lanyard on a real Kubernetes API server. Of each example: what its service account says,\nwhat its pod was given (+), and the claims of real tokens.\n\n")
	if examples, err = readExamples("examples"); err != nil {
		return nil, fmt.Errorf("%w; the demo runs in the repository's root", err)
	}
	if d.dir, err = os.MkdirTemp("", "lanyard-demo-"); err != nil {
		return nil, fmt.Errorf("making a directory: %w", err)
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
		{"the service accounts of examples/", func() (string, error) {
			return "created", d.cluster.createAccounts(ctx, examples)
		}},
		{"lanyard-webhook, with the rights of deploy/base/21-rbac.yaml", func() (how string, err error) {
			if d.webhook, err = startWebhook(ctx, d.cluster, d.dir); err != nil {
				return "", err
			}
			d.ends = append(d.ends, d.webhook.Stop)
			return "ready", nil
		}},
		{"the guard of deploy/base/70-guard.yaml", func() (string, error) {
			return "in effect", d.cluster.installGuard(ctx, examples[0])
		}},
		{"its registration, as in deploy/base/50-* and deploy/base/60-*", func() (string, error) {
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

// show creates the pods one after another. Its error is about the demo; what
// is wrong with a pod stands in the results.
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
		if e.refused {
			showPod = d.showRefusal
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

// keep waits for Ctrl-C where KEEP asks for it.
func (d *demo) keep(ctx context.Context, keep string) {
	if ctx.Err() != nil {
		return
	}
	if keep == "" || keep == "0" {
		d.printf("The cluster ends now. To keep it, and try it with kubectl: make demo KEEP=1\n")
		return
	}
	d.printf(`
%s
  export KUBECONFIG=%s

  # Create an example anew.
  kubectl replace --force -f examples/aws.yaml
  # Look at what a pod was given.
  kubectl get pod three-clouds -n %[3]s -o yaml | grep -A 3 -E 'AWS_|AZURE_|GOOGLE_'
  # Annotate an account yourself, and try a pod of it.
  kubectl annotate serviceaccount none -n %[3]s %[4]saudience=mine
  kubectl run try -n %[3]s --image=busybox --overrides='{"spec":{"serviceAccountName":"none"}}' --dry-run=server -o yaml

  The webhook logs each admission to %[5]s
  There is no node: no pod ever runs.
`, d.bold("The cluster is up until Ctrl-C."), d.cluster.kubeconfig, namespace, prefix, d.webhook.LogFile)
	<-ctx.Done()
	d.printf("\nstopping\n")
}

// step says what is being done, and how it went.
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
