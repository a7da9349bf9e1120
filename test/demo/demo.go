// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// errInterrupted is returned if a signal interrupted the demo.
var errInterrupted = errors.New("interrupted")

// options are the command line and the environment of the demo.
type options struct {
	// kubeconfig is the kubeconfig of a cluster with Lanyard. If it is empty, the demo starts
	// its own control plane and webhook.
	kubeconfig string
	// policies is true if the cluster has the policies instead of the webhook.
	policies bool
	// image is the image of test/demo/whoami. If it is empty, no pod is run.
	image string
	// keep is the variable KEEP.
	keep string
}

// demo is the state that the steps share.
type demo struct {
	*printer
	options  options
	examples []*example
	cluster  *cluster
	outage   outage
	// own is the control plane and the webhook that the demo started, if any.
	own *own
}

// outage stops the webhook for a moment and restores it. end is called even if begin
// failed.
type outage struct {
	what       string
	begin, end func(context.Context) error
}

// step is a part of the preparation. do returns the result.
type step struct {
	what string
	do   func() (string, error)
}

// run runs the whole demo. It leaves no processes and no files, even after a
// panic.
func run(ctx context.Context, p *printer, o options) (err error) {
	d := &demo{printer: p, options: o}
	if d.examples, err = readExamples("examples"); err != nil {
		return fmt.Errorf("%w; run the demo in the root of the repository", err)
	}
	steps := d.installedSteps
	if o.kubeconfig == "" {
		d.own = &own{}
		defer func() { err = errors.Join(err, d.own.stop()) }()
		steps = d.ownSteps
	}
	err = d.run(ctx, steps(ctx))
	if ctx.Err() != nil {
		return errInterrupted // an interrupted demo has not failed
	}
	if d.own != nil {
		d.own.explain(p, err)
		d.own.keep(ctx, p, o.keep)
	}
	return err
}

// run runs all steps up to an installed webhook, and then shows and checks everything.
func (d *demo) run(ctx context.Context, steps []step) error {
	d.printf("Lanyard on a real Kubernetes API server. For each example: the annotations of its\nServiceAccount, what Lanyard added to its pod (+), and the claims of real tokens.\n\n")
	for _, s := range steps {
		if err := d.step(s.what, s.do); err != nil {
			return err
		}
	}
	results, err := d.show(ctx, d.examples)
	if err != nil {
		return err
	}
	d.table(results)
	if err := failures(results); err != nil {
		return err
	}
	d.printf("\n%s\n", d.green("All checks passed."))
	return nil
}

// show creates the pods one after another. It returns errors of the demo
// itself; errors of a pod are in the results.
func (d *demo) show(ctx context.Context, examples []*example) ([]*result, error) {
	var results []*result
	for _, e := range examples {
		r := &result{example: e.name}
		results = append(results, r)
		d.showExample(e)
		showPod := d.showPod
		if e.denied {
			showPod = d.showDenial
		}
		if err := showPod(ctx, e, r); err != nil {
			return nil, fmt.Errorf("%s: %w", e.name, err)
		}
		d.problems(r)
	}
	return d.showMore(ctx, results, examples)
}

// showExample prints the name of an example and the annotations of its ServiceAccount.
func (d *demo) showExample(e *example) {
	d.headline(e.file(), e.title)
	for key, value := range sorted(e.account.Annotations) {
		d.printf("  %s: %s\n", d.bold(key), value)
	}
}

// showMore shows a debugger, a program in a pod, and how pods are created without the
// webhook.
func (d *demo) showMore(ctx context.Context, results []*result, examples []*example) ([]*result, error) {
	first, last := examples[0], examples[len(examples)-1]
	for _, part := range []struct {
		what  string
		shown bool
		show  func() (*result, error)
	}{
		{"debug", true, func() (*result, error) { return d.showDebug(ctx, first) }},
		{"running pod", d.options.image != "", func() (*result, error) { return d.showRunning(ctx, named(examples, "three-clouds")) }},
		{"no program", d.options.policies, func() (*result, error) { return d.showNoProgram(ctx) }},
		{"guard", !d.options.policies, func() (*result, error) { return d.showGuard(ctx, first, last) }},
	} {
		if !part.shown {
			continue
		}
		r, err := part.show()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", part.what, err)
		}
		results = append(results, r)
	}
	return results, nil
}

// step prints the description of a step and its result.
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
