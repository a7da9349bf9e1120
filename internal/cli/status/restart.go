// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"bufio"
	"context"
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"

	"github.com/lanyard-dev/lanyard/internal/cli/cluster"
	"github.com/lanyard-dev/lanyard/internal/cli/command"
	"github.com/lanyard-dev/lanyard/pkg/mutate/injected"
)

//go:embed restart.txt
var restartHelp string

// restartedAt is the annotation that kubectl rollout restart sets.
const restartedAt = "kubectl.kubernetes.io/restartedAt"

// rolloutInterval is the time between two looks at a rollout.
const rolloutInterval = time.Second

// restartCommand holds the flags of restart.
type restartCommand struct {
	*command.CLI
	command.Output
	command.Selection
	dryRun     command.DryRun
	stale, yes bool
	timeout    time.Duration
	client     dynamic.Interface
}

// NewRestartCommand returns the command restart.
func NewRestartCommand(c *command.CLI) *cobra.Command {
	k := &restartCommand{CLI: c}
	cmd := command.New(restartHelp, nil, func(cmd *cobra.Command, args []string) error { return k.run(cmd.Context(), args) })
	cmd.ValidArgsFunction = c.CompleteReferences
	k.Output.AddFlag(cmd, "Restart", command.OutputName)
	command.AddAllNamespaces(cmd, &k.All)
	cmd.Flags().StringVarP(&k.Selector, "selector", "l", "", "Label selector, such as app=cart,tier!=web.")
	k.dryRun.AddFlag(cmd)
	c.AddConfig(cmd)
	cmd.Flags().BoolVar(&k.stale, "stale", false, "Only workloads with outdated pods.")
	cmd.Flags().BoolVarP(&k.yes, "yes", "y", false, "Skip the confirmation.")
	cmd.Flags().DurationVar(&k.timeout, "timeout", 10*time.Minute, "How long to wait for each workload.")
	return cmd
}

// restarts lists the restarted workloads.
type restarts struct {
	DryRun    command.DryRun `json:"dryRun"`
	Workloads []restart      `json:"workloads"`
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
	// Pods is the number of outdated pods; nil if nobody asked for it.
	Pods   *int   `json:"outdated,omitempty"`
	Result string `json:"result"`
	// Why is why it failed, or must be restarted by hand.
	Why string `json:"why,omitempty"`

	kind   cluster.Kind
	object *unstructured.Unstructured
}

// Print implements command.Result.
func (r *restarts) Print(p *command.Page) {
	if len(r.Workloads) == 0 {
		p.Line("every pod has the credentials that its ServiceAccount asks for")
		return
	}
	rows := [][]string{{"NAMESPACE", "WORKLOAD", "OUTDATED", "RESULT", "WHY"}}
	styles := map[string]string{resultRestarted: command.Good, resultFailed: command.Bad, resultByHand: command.Warn}
	for _, w := range r.Workloads {
		outdated, result := "-", strings.ReplaceAll(w.Result, "-", " ")
		if w.Pods != nil {
			outdated = fmt.Sprint(*w.Pods)
		}
		if r.DryRun == command.DryRunServer && w.Result == resultRestarted {
			result += " (server dry run)"
		}
		rows = append(rows, []string{w.Namespace, w.Workload, outdated, p.Style(styles[w.Result], result), w.Why})
	}
	p.Table(0, rows)
}

// Names implements command.Named.
func (r *restarts) Names() []string {
	var names []string
	for _, w := range r.Workloads {
		names = append(names, w.Workload)
	}
	return names
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

func (k *restartCommand) run(ctx context.Context, args []string) error {
	selects := len(args) > 0 || k.Selector != ""
	if !selects && !k.stale {
		return command.Usagef("no workload is selected: write TYPE/NAME, --selector or --stale")
	}
	_, client, err := k.Clients()
	if err != nil {
		return err
	}
	k.client = client
	plan := &restarts{DryRun: k.dryRun, Workloads: []restart{}}
	if selects {
		err = k.selected(plan, args)
	}
	if err == nil && k.stale {
		err = k.outdated(ctx, plan, selects)
	}
	if err != nil {
		return err
	}
	if plan.count(resultPlanned) > 0 && k.dryRun.Sends() {
		agreed, err := k.agree(ctx, plan)
		if err != nil {
			return err
		}
		if !agreed {
			k.Note("nothing was restarted")
			return command.ErrFound
		}
		k.restartAll(ctx, plan)
	}
	found := plan.count(resultFailed) > 0 || k.dryRun.Writes() && plan.count(resultByHand, resultPlanned) > 0
	return command.FoundIf(found, k.Write(k.CLI, plan))
}

// restartable are the types that a selector is for.
const restartable = "deployments.apps,statefulsets.apps,daemonsets.apps"

// selected adds the workloads of the names or the selector to the plan.
func (k *restartCommand) selected(plan *restarts, args []string) error {
	if len(args) == 0 {
		k.Type = restartable
	}
	infos, err := k.Objects(&k.Selection, args)
	if err != nil {
		return err
	}
	if len(infos) == 0 {
		return fmt.Errorf("the selector %s selects no workload", k.Selector)
	}
	for _, info := range infos {
		w := restart{Namespace: info.Namespace, Workload: command.NameOf(info), object: command.Unstructured(info)}
		var known bool
		if w.kind, known = cluster.ByGroupKind(info.Mapping.GroupVersionKind.GroupKind()); !known {
			return command.Usagef("%s has no pods that restart can replace: name a Deployment, a StatefulSet or a DaemonSet", w.Workload)
		}
		if w.check(); !w.kind.Restarts && metav1.GetControllerOf(w.object) != nil {
			w.Why = "it has a controller: restart the workload that lanyard status shows"
		}
		plan.Workloads = append(plan.Workloads, w)
	}
	return nil
}

// outdated adds the workloads with outdated pods to the plan. If some are selected, it
// removes the others from the plan instead.
func (k *restartCommand) outdated(ctx context.Context, plan *restarts, selects bool) error {
	namespace, err := k.Scope(k.All)
	if err != nil {
		return err
	}
	counts := map[[2]string]int{}
	err = eachNamespace(ctx, k.CLI, namespace, false, func(rows []Row, skipped []Skipped) error {
		if len(skipped) > 0 {
			return fmt.Errorf("the outdated pods are not known: %s: %s", skipped[0].Effect, skipped[0].Why)
		}
		for i := range rows {
			row := &rows[i]
			if row.Problem != "" {
				k.Note("warning: %s in the namespace %s: %d pods are unknown: %s", row.Workload, row.Namespace, row.States[injected.Unknown], row.Problem)
			}
			id := [2]string{row.Namespace, row.Workload}
			if !selects && counts[id] == 0 && row.Outdated() > 0 {
				w, err := k.named(ctx, row)
				if err != nil {
					return err
				}
				plan.Workloads = append(plan.Workloads, w)
			}
			counts[id] += row.Outdated()
		}
		return nil
	})
	plan.Workloads = slices.DeleteFunc(plan.Workloads, func(w restart) bool { return counts[[2]string{w.Namespace, w.Workload}] == 0 })
	for i := range plan.Workloads {
		w := &plan.Workloads[i]
		w.Pods = new(counts[[2]string{w.Namespace, w.Workload}])
	}
	return err
}

// named reads the workload of a row.
func (k *restartCommand) named(ctx context.Context, row *Row) (w restart, err error) {
	w = restart{Namespace: row.Namespace, Workload: row.Workload, Result: resultByHand}
	kind, name, _ := strings.Cut(row.Workload, "/")
	known := false
	if w.kind, known = cluster.ByName(kind); !known {
		w.Why = "its kind is not one of Kubernetes' own"
		return w, nil
	}
	w.object, err = k.client.Resource(w.kind.Resource).Namespace(w.Namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		w.Why = "it does not exist any more"
	case err != nil:
		return w, fmt.Errorf("%s in the namespace %s: %w", w.Workload, w.Namespace, err)
	default:
		w.check()
	}
	return w, nil
}

// check finds out whether the workload can be restarted.
func (w *restart) check() {
	w.Result, w.Why = resultPlanned, w.kind.ByHand(w.object)
	if w.Why != "" {
		w.Result = resultByHand
	}
}

// agree shows the plan and asks for a yes. The end of the input is a no.
func (k *restartCommand) agree(ctx context.Context, plan *restarts) (bool, error) {
	if k.yes || !k.dryRun.Writes() {
		return true, nil
	}
	p := command.NewPage(k.ErrOut)
	plan.Print(p)
	p.Line("")
	if p.Err != nil {
		return false, p.Err
	}
	workloads := "this workload"
	if n := plan.count(resultPlanned); n > 1 {
		workloads = fmt.Sprintf("%d workloads, one after the other", n)
	}
	if _, err := fmt.Fprintf(k.ErrOut, "Restart %s? [y/N] ", workloads); err != nil {
		return false, err
	}
	line, _ := bufio.NewReader(k.In).ReadString('\n') // the end of the input also ends the answer
	answer := strings.ToLower(strings.TrimSpace(line))
	return answer == "y" || answer == "yes", ctx.Err()
}

// restartAll restarts the planned workloads, until one fails.
func (k *restartCommand) restartAll(ctx context.Context, plan *restarts) {
	total := plan.count(resultPlanned)
	for i := range plan.Workloads {
		w := &plan.Workloads[i]
		if w.Result != resultPlanned {
			continue
		}
		if k.dryRun.Writes() {
			k.Note("restarting %s in the namespace %s (%d of %d) ...", w.Workload, w.Namespace, plan.count(resultRestarted)+1, total)
		}
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
	resource := k.client.Resource(w.kind.Resource).Namespace(w.Namespace)
	options := metav1.PatchOptions{FieldManager: "lanyard", DryRun: k.dryRun.Requests()}
	_, err := resource.Patch(ctx, w.object.GetName(), types.MergePatchType, patch, options)
	if err != nil || !k.dryRun.Writes() {
		return err
	}
	progress := ""
	err = wait.PollUntilContextTimeout(ctx, rolloutInterval, k.timeout, true, func(context.Context) (bool, error) {
		// A request with the deadline of the wait would fail with an error of its own.
		object, err := resource.Get(ctx, w.object.GetName(), metav1.GetOptions{})
		if err == nil {
			progress, err = w.kind.Rollout(object)
		}
		return err == nil && progress == "", err
	})
	if wait.Interrupted(err) {
		return fmt.Errorf("not done after %s: %s", k.timeout, progress)
	}
	return err
}
