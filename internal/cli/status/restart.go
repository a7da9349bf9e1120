// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"

	"github.com/lanyard-dev/lanyard/internal/cli/cluster"
	"github.com/lanyard-dev/lanyard/internal/cli/command"
)

const restartHelp = `restart --stale replaces the pods that "status --stale" lists: pods
with an identity that their ServiceAccount had before, and pods without
credentials that a new pod would get.

It asks first. Then it restarts Deployments, StatefulSets and DaemonSets one
after the other, as "kubectl rollout restart" does, and waits for each. It
stops at the first one whose new pods are not available in time. Other pods
are listed: somebody must replace them.

The exit code is 1 if a workload was not restarted, or must be restarted by
hand.`

const restartExamples = `  # Show the workloads that would be restarted
  lanyard restart --stale --all-namespaces --dry-run

  # Restart it, with a question first
  lanyard restart --stale --namespace shop

  # Restart it without a question, and wait up to 5 minutes for each workload
  lanyard restart --stale --namespace shop --yes --timeout 5m`

// restartedAt is the annotation that kubectl rollout restart sets.
const restartedAt = "kubectl.kubernetes.io/restartedAt"

// rolloutInterval is the time between two looks at a rollout.
const rolloutInterval = time.Second

// restartCommand holds the flags of restart.
type restartCommand struct {
	*command.CLI
	command.Output
	all, stale, dryRun, yes bool
	timeout                 time.Duration
	client                  dynamic.Interface
}

// NewRestartCommand returns the command restart.
func NewRestartCommand(c *command.CLI) *cobra.Command {
	k := &restartCommand{CLI: c}
	cmd := &cobra.Command{
		Use:     "restart --stale",
		Short:   "Replace the pods whose credentials are old or missing.",
		Long:    restartHelp,
		Example: restartExamples,
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return k.run(cmd.Context()) },
	}
	k.Output.AddFlag(cmd, "Restart")
	command.AddAllNamespaces(cmd, &k.all)
	c.AddConfig(cmd)
	cmd.Flags().BoolVar(&k.stale, "stale", false, "Restart the workloads with outdated pods. Required: there is nothing else to restart.")
	cmd.Flags().BoolVar(&k.dryRun, "dry-run", false, "Only show the workloads that would be restarted.")
	cmd.Flags().BoolVarP(&k.yes, "yes", "y", false, "Do not ask.")
	cmd.Flags().DurationVar(&k.timeout, "timeout", 10*time.Minute, "How long to wait for each workload.")
	return cmd
}

// restarts lists the restarted workloads.
type restarts struct {
	DryRun    bool      `json:"dryRun"`
	Workloads []restart `json:"workloads"`
}

// Results of a workload.
const (
	resultPlanned   = "planned"
	resultRestarted = "restarted"
	resultFailed    = "failed"
	resultByHand    = "by-hand"
)

// restart is one workload.
type restart struct {
	Namespace string `json:"namespace"`
	Workload  string `json:"workload"`
	// Pods is the number of outdated pods.
	Pods   int    `json:"pods"`
	Result string `json:"result"`
	// Why is why it failed, or must be restarted by hand.
	Why string `json:"why,omitempty"`

	*command.Reference `json:"-"`
}

func (r *restarts) Print(p *command.Page) {
	if len(r.Workloads) == 0 {
		p.Line("every pod has the credentials that its ServiceAccount asks for")
		return
	}
	rows := [][]string{{"NAMESPACE", "WORKLOAD", "OUTDATED", "RESULT", "WHY"}}
	styles := map[string]string{resultRestarted: command.Good, resultFailed: command.Bad, resultByHand: command.Warn}
	for _, w := range r.Workloads {
		rows = append(rows, []string{w.Namespace, w.Workload, fmt.Sprint(w.Pods), p.Style(styles[w.Result], strings.ReplaceAll(w.Result, "-", " ")), w.Why})
	}
	p.Table(0, rows)
}

// count returns how many workloads have one of the results.
func (r *restarts) count(results ...string) int {
	n := 0
	for _, w := range r.Workloads {
		if slices.Contains(results, w.Result) {
			n++
		}
	}
	return n
}

func (k *restartCommand) run(ctx context.Context) error {
	if !k.stale {
		return command.Usagef("--stale is required")
	}
	namespace, err := k.Scope(k.all)
	if err != nil {
		return err
	}
	if _, k.client, err = k.Clients(); err != nil {
		return err
	}
	plan, err := k.plan(ctx, namespace)
	if err != nil {
		return err
	}
	if n := plan.count(resultPlanned); n > 0 && !k.dryRun {
		if !k.yes {
			agreed, err := k.agree(ctx, plan, n)
			if err != nil {
				return err
			}
			if !agreed {
				k.Note("nothing was restarted")
				return command.ErrFound
			}
		}
		k.restartAll(ctx, plan)
	}
	return command.FoundIf(!k.dryRun && plan.count(resultByHand, resultFailed, resultPlanned) > 0, k.Write(k.CLI, plan))
}

// plan returns the workloads with outdated pods.
func (k *restartCommand) plan(ctx context.Context, namespace string) (*restarts, error) {
	plan := &restarts{DryRun: k.dryRun, Workloads: []restart{}}
	err := eachStatus(ctx, k.CLI, namespace, func(rows []Row) error {
		for i := range rows {
			row := &rows[i]
			if !row.Outdated() {
				continue
			}
			w := restart{Namespace: row.Namespace, Workload: row.Workload, Pods: row.Stale + row.Without, Result: resultPlanned}
			var err error
			if w.Why, err = k.byHand(ctx, &w); err != nil {
				return err
			}
			if w.Why != "" {
				w.Result = resultByHand
			}
			plan.Workloads = append(plan.Workloads, w)
		}
		return nil
	})
	return plan, err
}

// byHand returns why a workload cannot be restarted; empty if it can.
func (k *restartCommand) byHand(ctx context.Context, w *restart) (why string, err error) {
	if w.Reference, err = command.ParseReference([]string{w.Workload}); err != nil {
		return "its kind is not one of Kubernetes' own", nil //nolint:nilerr // the sentence is the answer
	}
	if !w.Kind.Restarts {
		return w.Kind.ByHand(nil), nil
	}
	object, err := k.client.Resource(w.Kind.Resource).Namespace(w.Namespace).Get(ctx, w.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return "it does not exist any more", nil
	}
	if err != nil {
		return "", fmt.Errorf("%s in the namespace %s: %w", w.Workload, w.Namespace, err)
	}
	return w.Kind.ByHand(object), nil
}

// agree shows the plan and asks for a yes. The end of the input is a no.
func (k *restartCommand) agree(ctx context.Context, plan *restarts, n int) (bool, error) {
	p := command.NewPage(k.ErrOut)
	plan.Print(p)
	p.Line("")
	if p.Err != nil {
		return false, p.Err
	}
	what := "this workload"
	if n > 1 {
		what = fmt.Sprintf("%d workloads, one after the other", n)
	}
	if _, err := fmt.Fprintf(k.ErrOut, "Restart %s? [y/N] ", what); err != nil {
		return false, err
	}
	line, _ := bufio.NewReader(k.In).ReadString('\n') // the end of the input also ends the answer
	answer := strings.ToLower(strings.TrimSpace(line))
	return answer == "y" || answer == "yes", ctx.Err()
}

// restartAll restarts the planned workloads, until one fails.
func (k *restartCommand) restartAll(ctx context.Context, plan *restarts) {
	for i := range plan.Workloads {
		w := &plan.Workloads[i]
		if w.Result != resultPlanned {
			continue
		}
		k.Note("restarting %s in the namespace %s ...", w.Workload, w.Namespace)
		if err := k.restart(ctx, w); err != nil {
			w.Result, w.Why = resultFailed, err.Error()
			return
		}
		w.Result = resultRestarted
	}
}

// restart restarts one workload and waits until its pods are available.
func (k *restartCommand) restart(ctx context.Context, w *restart) error {
	patch := fmt.Appendf(nil, `{"spec":{"template":{"metadata":{"annotations":{%q:%q}}}}}`, restartedAt, time.Now().Format(time.RFC3339))
	resource := k.client.Resource(w.Kind.Resource).Namespace(w.Namespace)
	if _, err := resource.Patch(ctx, w.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "lanyard"}); err != nil {
		return err
	}
	var last cluster.Rollout
	// The deadline is of the rollout, not of a request.
	err := wait.PollUntilContextTimeout(ctx, rolloutInterval, k.timeout, true, func(context.Context) (bool, error) {
		object, err := resource.Get(ctx, w.Name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		last = w.Kind.Rollout(object)
		if last.Failed != "" {
			return false, errors.New(last.Failed)
		}
		return last.Done, nil
	})
	if wait.Interrupted(err) {
		return fmt.Errorf("not done after %s: %s", k.timeout, last.Progress)
	}
	return err
}
