// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"cmp"
	"context"
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
	"github.com/lanyard-dev/lanyard/internal/injected"
)

const statusHelp = `status lists the ServiceAccounts that ask for an identity, the workloads that
use them, and how many of their pods are

  current    they have the credentials that a new pod would get,
  stale      they have an identity that their ServiceAccount had before,
  without    they have no credentials, and a new pod would get some: they are
             older than the annotations, or than Lanyard,
  excluded   Lanyard is not called for their namespace,
  opted-out  they ask for no credentials,
  unknown    they cannot be compared with a new pod; the reason is below.

GUARD is unguarded for a ServiceAccount that lacks the guard's label ("lanyard
label serviceaccounts" adds the label), or whose annotations of another webhook
are not adopted yet ("lanyard adopt" adopts them). It is excluded in a namespace
that Lanyard is not called for.

The cost: status lists the ServiceAccounts, and, in each namespace with one that
asks for an identity, the pods and their owners. It evaluates the webhook's
rules here. Only if a pod differs from the result, it sends the API server the
dry run of a new pod: one for each ServiceAccount with such pods. A dry run
passes every admission webhook of the cluster. Nothing is created. There are at
most 50 requests per second, and 4 dry runs at once. With --no-dry-run, or
without the right to create pods, there are no dry runs, and a line below the
rows tells so. If the settings of the webhook cannot be read, each
ServiceAccount with pods needs a dry run.

A right that is missing is named below the rows. An owner of a pod counts only
if it exists, by its UID.

With --stale, only workloads with stale pods or pods without credentials are
listed, and the exit code is 1 if there are any. The exit code is 2 if that is
not known for all pods.`

const statusExamples = `  # The whole cluster
  lanyard status --all-namespaces

  # What must be restarted? Exit code 1 if anything
  lanyard status --all-namespaces --stale

  # Ask no admission webhook of the cluster
  lanyard status --all-namespaces --no-dry-run

  # Watch a namespace while it is rolled out
  lanyard status --namespace shop --watch`

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
	cmd := &cobra.Command{
		Use:     "status",
		Short:   "Count the pods that have their credentials, and those that do not.",
		Long:    statusHelp,
		Example: statusExamples,
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return k.run(cmd.Context()) },
	}
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
	Workloads []Row     `json:"workloads"`
	Skipped   []Skipped `json:"skipped,omitempty"`
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
	rows := r.Workloads
	switch {
	case len(rows) == 0:
	case p.Width > 0 && p.Width < narrow:
		printNarrow(p, rows, !r.titled)
	default:
		printWide(p, rows, r.all, !r.titled)
	}
	// Each reason why nothing is known of some pods, once.
	var notes []string
	note := func(style, text string) {
		if !slices.Contains(notes, text) {
			notes = append(notes, text)
			p.Text(2, style, text)
		}
	}
	for i := range rows {
		r := &rows[i]
		if r.Problem != "" {
			note(command.Warn, fmt.Sprintf("%s/%s: unknown: %s", r.Namespace, r.ServiceAccount, r.Problem))
		}
		if r.Local != "" {
			note(command.Faint, fmt.Sprintf("%s: new pods were evaluated here, not by the cluster: %s", r.Namespace, r.Local))
		}
	}
	for _, s := range r.Skipped {
		note(command.Warn, strings.TrimPrefix(fmt.Sprintf("%s: skipped: %s: %s", s.Namespace, s.Effect, s.Why), ": "))
	}
	r.titled = r.titled || len(rows) > 0
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

func printWide(p *command.Page, rows []Row, all, first bool) {
	var lines [][]string
	if first {
		lines = append(lines, statusHeader)
	}
	for i := range rows {
		r := &rows[i]
		lines = append(lines, append([]string{r.Namespace, r.ServiceAccount, guardOf(p, r)}, statusCells(p, r)...))
	}
	if !all {
		for i := range lines {
			lines[i] = lines[i][1:]
		}
	}
	p.Table(0, lines)
}

// printNarrow writes the workloads below their ServiceAccounts. All tables are
// parts of one, which is as wide as the terminal, so that they line up.
func printNarrow(p *command.Page, rows []Row, first bool) {
	header := slices.Clone(statusHeader[3:])
	if first {
		// The workloads of namespaces to come may have long names.
		numbers := strings.Join(header[1:], strings.Repeat(" ", command.ColumnGap))
		header[0] += strings.Repeat(" ", max(0, p.Width-2-command.ColumnGap-len(numbers)-len(header[0])))
		p.Table(2, [][]string{header})
	}
	for i := range rows {
		r := &rows[i]
		if i == 0 || rows[i-1].ServiceAccount != r.ServiceAccount || rows[i-1].Namespace != r.Namespace {
			p.Text(0, "", fmt.Sprintf("%s (%s)", p.Style(command.Title, r.Namespace+"/"+r.ServiceAccount), guardOf(p, r)))
		}
		p.Table(2, [][]string{statusCells(p, r)})
	}
}

func guardOf(p *command.Page, r *Row) string {
	if r.Guard == cluster.GuardOff {
		return p.Style(command.Warn, string(r.Guard))
	}
	return string(r.Guard)
}

// statusCells returns the workload of a row and its numbers.
func statusCells(p *command.Page, r *Row) []string {
	number := func(n int, style string) string {
		if n == 0 {
			style = ""
		}
		return p.Style(style, strconv.Itoa(n))
	}
	var others []string
	for _, state := range []injected.State{injected.Excluded, injected.OptedOut, injected.Unknown} {
		if n := r.States[state]; n > 0 {
			others = append(others, fmt.Sprintf("%d %s", n, state))
		}
	}
	return []string{
		cmp.Or(r.Workload, "-"), strconv.Itoa(r.Pods), number(r.States[injected.Current], command.Good),
		number(r.States[injected.Stale], command.Bad), number(r.States[injected.Without], command.Bad),
		p.Style(command.Warn, strings.Join(others, ", ")),
	}
}
