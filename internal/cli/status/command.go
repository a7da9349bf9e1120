// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/lanyard-dev/lanyard/internal/cli/cluster"
	"github.com/lanyard-dev/lanyard/internal/cli/command"
	"github.com/lanyard-dev/lanyard/pkg/mutate/injected"
)

//go:embed status.txt
var statusHelp string

// watchInterval is the time between two looks of --watch.
const watchInterval = 5 * time.Second

// statusCommand holds the flags of status.
type statusCommand struct {
	*command.CLI
	command.Output
	all, stale, watch, noDryRun bool
}

// NewCommand returns the command status.
func NewCommand(c *command.CLI) *cobra.Command {
	k := &statusCommand{CLI: c}
	cmd := command.New(statusHelp, cobra.NoArgs, func(cmd *cobra.Command, _ []string) error { return k.run(cmd.Context()) })
	k.Output.AddFlag(cmd, "Status", command.OutputName)
	command.AddAllNamespaces(cmd, &k.all)
	c.AddConfig(cmd)
	cmd.Flags().BoolVar(&k.stale, "stale", false, "Only workloads whose pods must be replaced.")
	cmd.Flags().BoolVar(&k.noDryRun, "no-dry-run", false, "Send no dry run. New pods are evaluated here.")
	cmd.Flags().BoolVarP(&k.watch, "watch", "w", false, "Look again every 5 seconds, until interrupted.")
	return cmd
}

func (k *statusCommand) run(ctx context.Context) error {
	namespace, err := k.Scope(k.all)
	switch {
	case err != nil:
		return err
	case !k.watch:
		return k.write(ctx, namespace)
	case !k.ForPeople():
		return command.Usagef("--watch cannot be used with --output")
	}
	separator := ""
	err = wait.PollUntilContextCancel(ctx, watchInterval, true, func(ctx context.Context) (bool, error) {
		if _, err := fmt.Fprint(k.Out, separator); err != nil {
			return false, err
		}
		separator = "\n"
		err := k.write(ctx, namespace)
		if errors.Is(err, errIncomplete) || errors.Is(err, command.ErrFound) {
			err = nil
		}
		return false, err
	})
	if ctx.Err() != nil {
		return nil //nolint:nilerr // the error is the interruption
	}
	return err
}

// errIncomplete is the error of a result that is not known for all pods.
var errIncomplete = errors.New("the result is not complete")

// statusResult is the rows of a cluster.
type statusResult struct {
	Workloads []Row `json:"workloads"`
	// InjectedBy describes an installation with policies; empty for the webhook only.
	InjectedBy string    `json:"injectedBy,omitempty"`
	Skipped    []Skipped `json:"skipped,omitempty"`
	// all reports whether the rows are of all namespaces.
	all bool
	// titled reports whether the header is on the page.
	titled bool
	// outdated and unknown are numbers of pods, and skips is the number of Skipped.
	outdated, unknown, skips int
}

// add adds a part of the result. Only outdated rows count if stale is set.
func (r *statusResult) add(rows []Row, skipped []Skipped, stale bool) {
	r.Skipped = append(r.Skipped, skipped...)
	r.skips += len(skipped)
	for i := range rows {
		row := &rows[i]
		r.outdated += row.Outdated()
		r.unknown += row.States[injected.Unknown]
		if !stale || row.Outdated() > 0 || row.Problem != "" {
			r.Workloads = append(r.Workloads, *row)
		}
	}
}

// err returns the error of the result.
func (r *statusResult) err(stale bool) error {
	switch {
	case stale && r.outdated > 0:
		return command.ErrFound
	case r.skips+r.unknown > 0:
		return fmt.Errorf("%w: %d skipped, %d pods unknown. The reasons are in the output", errIncomplete, r.skips, r.unknown)
	}
	return nil
}

// Names implements command.Named.
func (r *statusResult) Names() []string {
	var names []string
	for i := range r.Workloads {
		if r.Workloads[i].Workload != "" {
			names = append(names, r.Workloads[i].Workload)
		}
	}
	return names
}

// Print writes the rows and forgets them: a large cluster has very many. The header is part
// of the same table, so that it lines up with the rows.
func (r *statusResult) Print(p *command.Page) {
	switch {
	case len(r.Workloads) == 0:
	case p.Width > 0 && p.Width < narrow:
		r.printNarrow(p)
	default:
		r.printWide(p)
	}
	// Each reason why nothing is known of some pods, once.
	var notes []string
	note := func(style, text string) {
		if !slices.Contains(notes, text) {
			notes = append(notes, text)
			p.Text(2, style, text)
		}
	}
	for i := range r.Workloads {
		row := &r.Workloads[i]
		if row.Problem != "" {
			note(command.Warn, fmt.Sprintf("%s/%s: unknown: %s", row.Namespace, row.ServiceAccount, row.Problem))
		}
		for _, d := range row.Differences {
			note("", fmt.Sprintf("%s: %s: %s", row.Namespace, row.Workload, d))
		}
		if row.Local != "" {
			note(command.Faint, fmt.Sprintf("%s: new pods were evaluated here, not by the cluster: %s", row.Namespace, row.Local))
		}
	}
	for _, s := range r.Skipped {
		note(command.Warn, strings.TrimPrefix(fmt.Sprintf("%s: skipped: %s: %s", s.Namespace, s.Effect, s.Why), ": "))
	}
	r.titled = r.titled || len(r.Workloads) > 0
	r.Workloads, r.Skipped = nil, nil
}

// write writes the rows. A table is written as it is known, namespace by namespace.
func (k *statusCommand) write(ctx context.Context, namespace string) error {
	result := &statusResult{Workloads: []Row{}, all: namespace == metav1.NamespaceAll}
	p := command.NewPage(k.Out)
	err := eachNamespace(ctx, k.CLI, namespace, k.noDryRun, func(rows []Row, skipped []Skipped) error {
		result.add(rows, skipped, k.stale)
		if k.ForPeople() {
			result.Print(p)
		}
		return p.Err
	})
	if result.InjectedBy = k.Webhook.InjectedBy; err == nil && result.InjectedBy != "" && k.ForPeople() {
		p.Text(2, command.Faint, "injected by "+result.InjectedBy)
	}
	switch {
	case err != nil:
		return err
	case !k.ForPeople():
		return cmp.Or(k.Write(k.CLI, result), result.err(k.stale))
	case result.titled || result.skips > 0:
	case k.stale:
		p.Line("every pod has the credentials that its ServiceAccount asks for")
	default:
		p.Line("no ServiceAccount asks for an identity")
	}
	return cmp.Or(p.Err, result.err(k.stale))
}

// narrow is the width below which a terminal has no room for the columns of status
// side by side: the namespace, the ServiceAccount and its guard get a line of their
// own.
const narrow = 120

// The last column has room for most numbers with their words.
var statusHeader = []string{"NAMESPACE", "SERVICEACCOUNT", "GUARD", "WORKLOAD", "PODS", "CURRENT", "STALE", "WITHOUT", "OTHER       "}

// printWide writes the rows as one table.
func (r *statusResult) printWide(p *command.Page) {
	first := 1 // without the namespace
	if r.all {
		first = 0
	}
	var lines [][]string
	if !r.titled {
		lines = append(lines, statusHeader[first:])
	}
	for i := range r.Workloads {
		lines = append(lines, r.Workloads[i].cells(p)[first:])
	}
	p.Table(0, lines)
}

// printNarrow writes the workloads below their ServiceAccounts. All tables are
// parts of one, which is as wide as the terminal, so that they line up.
func (r *statusResult) printNarrow(p *command.Page) {
	header := slices.Clone(statusHeader[3:])
	if !r.titled {
		// The workloads of namespaces to come may have long names.
		numbers := strings.Join(header[1:], strings.Repeat(" ", command.ColumnGap))
		header[0] += strings.Repeat(" ", max(0, p.Width-2-command.ColumnGap-len(numbers)-len(header[0])))
		p.Table(2, [][]string{header})
	}
	above := ""
	for i := range r.Workloads {
		cells := r.Workloads[i].cells(p)
		if name := cells[0] + "/" + cells[1]; name != above {
			p.Text(0, "", fmt.Sprintf("%s (%s)", p.Style(command.Title, name), cells[2]))
			above = name
		}
		p.Table(2, [][]string{cells[3:]})
	}
}

// cells returns the cells of a row, in the order of statusHeader.
func (r *Row) cells(p *command.Page) []string {
	number := func(state injected.State, style string) string {
		if r.States[state] == 0 {
			style = ""
		}
		return p.Style(style, strconv.Itoa(r.States[state]))
	}
	guard := string(r.Guard)
	if r.Guard == cluster.GuardOff {
		guard = p.Style(command.Warn, guard)
	}
	var others []string
	for _, state := range []injected.State{injected.LeftOut, injected.None, injected.Excluded, injected.OptedOut, injected.Unknown} {
		if n := r.States[state]; n > 0 {
			others = append(others, fmt.Sprintf("%d %s", n, state))
		}
	}
	return []string{
		r.Namespace, r.ServiceAccount, guard, cmp.Or(r.Workload, "-"), strconv.Itoa(r.Pods),
		number(injected.Current, command.Good), number(injected.Stale, command.Bad), number(injected.Without, command.Bad),
		p.Style(command.Warn, strings.Join(others, ", ")),
	}
}
