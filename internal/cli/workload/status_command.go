// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/lanyard-dev/lanyard/internal/cli/cluster"
	"github.com/lanyard-dev/lanyard/internal/cli/command"
	"github.com/lanyard-dev/lanyard/internal/finding"
	"github.com/lanyard-dev/lanyard/internal/texts"
	"github.com/lanyard-dev/lanyard/pkg/mutate/injected"
)

//go:embed status.txt
var statusHelp string

// watchInterval is the refresh interval of --watch.
const watchInterval = 5 * time.Second

// statusCommand contains the flags of status.
type statusCommand struct {
	*command.CLI
	command.Output
	command.Selection
	query        query
	stale, watch bool
}

// NewStatusCommand returns the command status.
func NewStatusCommand(c *command.CLI) *cobra.Command {
	k := &statusCommand{CLI: c}
	cmd := command.New(strings.Replace(statusHelp, "STATES\n", statesHelp(), 1), nil, func(cmd *cobra.Command, args []string) error { return k.run(cmd.Context(), args) })
	cmd.ValidArgsFunction = c.CompleteReferences
	k.Output.AddFlag(cmd, "Status", command.OutputName)
	command.AddAllNamespaces(cmd, &k.All)
	c.AddConfig(cmd)
	cmd.Flags().StringVarP(&k.query.selector, "selector", "l", "", "Label selector of pods, such as app=cart,tier!=web.")
	cmd.Flags().BoolVar(&k.stale, "stale", false, "Show only workloads whose pods must be replaced.")
	cmd.Flags().BoolVar(&k.query.noDryRun, "no-dry-run", false, "Send no dry runs; evaluate the rules of the webhook locally.")
	cmd.Flags().BoolVarP(&k.watch, "watch", "w", false, "Refresh the output every 5 seconds until interrupted.")
	return cmd
}

// statesHelp returns the list of states in the help text.
func statesHelp() string {
	var text bytes.Buffer
	p := &command.Page{W: &text, Width: 80}
	var rows [][]string
	for _, state := range States() {
		rows = append(rows, []string{string(state.State), state.Means})
	}
	p.Table(2, rows)
	return text.String()
}

func (k *statusCommand) run(ctx context.Context, args []string) (err error) {
	if k.query.scope, err = k.Scope(k.All); err != nil {
		return err
	}
	if len(args) > 0 {
		infos, err := k.Objects(k.All, args)
		if err != nil {
			return err
		}
		for _, info := range infos {
			k.query.names = append(k.query.names, command.NameOf(info))
		}
	}
	switch {
	case !k.watch:
		return k.write(ctx)
	case !k.ForPeople():
		return command.Usagef("--watch cannot be used with --output")
	}
	separator := ""
	err = wait.PollUntilContextCancel(ctx, watchInterval, true, func(ctx context.Context) (bool, error) {
		if _, err := fmt.Fprint(k.Out, separator); err != nil {
			return false, err
		}
		separator = "\n"
		k.SurveyAgain()
		err := k.write(ctx)
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

// errIncomplete is the error if the states of some pods are unknown.
var errIncomplete = errors.New("the result is not complete")

// summary counts the pods, in total and by state.
type summary struct {
	Pods   int                    `json:"pods"`
	States map[injected.State]int `json:"states"`
}

// statusResult is the rows of a cluster.
type statusResult struct {
	Workloads []Row `json:"workloads"`
	// InjectedBy describes an installation with policies; empty for the webhook only.
	InjectedBy string            `json:"injectedBy,omitempty"`
	Findings   []finding.Finding `json:"findings"`
	Summary    summary           `json:"summary"`
	query      *query
	stale      bool
	// titled reports whether the header was printed.
	titled bool
	// restarted and left are the outdated pods that a restart replaces, and the others.
	restarted, left outdated
	// noGuard is the Row.noGuard of the workloads.
	noGuard string
	// local contains the namespaces whose pods were evaluated here, by the reason.
	local map[string][]string
}

// outdated are pods that must be replaced.
type outdated struct {
	pods  int
	first *Row
}

// newStatusResult returns a result without rows.
func newStatusResult(q *query) *statusResult {
	return &statusResult{Workloads: []Row{}, Findings: []finding.Finding{}, Summary: summary{States: map[injected.State]int{}}, query: q, local: map[string][]string{}}
}

// add adds a part of the result.
func (r *statusResult) add(rows []Row, found []finding.Finding) {
	r.Findings = append(r.Findings, found...)
	for i := range rows {
		row := &rows[i]
		r.Summary.Pods += row.Pods
		for state, n := range row.States {
			r.Summary.States[state] += n
		}
		if n := row.Outdated(); n > 0 {
			of := &r.left
			if row.owner.restarts() {
				of = &r.restarted
			}
			of.pods, of.first = of.pods+n, cmp.Or(of.first, row)
		}
		if why := strings.TrimSuffix(row.Local, " in the namespace "+row.Namespace); why != "" {
			r.local[why] = append(r.local[why], row.Namespace)
		}
		for _, f := range row.findings() {
			if !slices.Contains(r.Findings, f) {
				r.Findings = append(r.Findings, f)
			}
		}
		if !r.stale || row.Outdated() > 0 || row.Problem != "" {
			r.Workloads, r.noGuard = append(r.Workloads, *row), cmp.Or(r.noGuard, row.noGuard())
		}
	}
}

// findings returns the findings about the pods of a row, except that they are outdated.
func (r *Row) findings() (found []finding.Finding) {
	explain := fmt.Sprintf("lanyard explain %s --namespace %s", cmp.Or(r.Workload, "serviceaccount/"+r.ServiceAccount), r.Namespace)
	if r.Problem != "" {
		found = append(found, finding.Finding{
			Status: finding.Skipped, About: "pods", Reason: string(injected.Unknown), Text: fmt.Sprintf("%s/%s: unknown: %s", r.Namespace, r.ServiceAccount, r.Problem),
			Fix: "See: " + explain,
		})
	}
	for _, s := range r.Shadows {
		found = append(found, finding.Finding{
			Status: finding.Failed, About: "pods", Reason: string(s.Reason), Text: fmt.Sprintf("%s: %s: container %s: %s", r.Namespace, r.Workload, s.Container, s.Detail),
			Fix: s.Fix,
		})
	}
	return found
}

// conclude adds the findings about all rows.
func (r *statusResult) conclude() {
	for _, why := range slices.Sorted(maps.Keys(r.local)) {
		r.Findings = append(r.Findings, finding.Finding{
			Status: finding.NotApplicable, About: "pods", Reason: "local",
			Text: fmt.Sprintf("new pods were evaluated here, not by the cluster: %s%s", why, namespaces(r.local[why], r.query.scope)),
		})
	}
	if r.noGuard != "" {
		r.Findings = append(r.Findings, finding.Finding{
			Status: finding.NotApplicable, About: "guard", Reason: "no_guard", Text: "ServiceAccounts with the guard's label are unguarded: " + r.noGuard,
			Fix: "See: lanyard check",
		})
	}
	r.Findings = append(r.Findings, r.outdated("")...)
}

// outdated returns the findings that pods must be replaced. object limits the restart to the pods
// of an object, unless it is empty.
func (r *statusResult) outdated(object string) (found []finding.Finding) {
	add := func(what string, of outdated, format string, args ...any) {
		found = append(found, finding.Finding{
			Status: finding.Warning, About: "pods", Reason: "outdated", Text: texts.Count(of.pods, what) + " must be replaced", Fix: fmt.Sprintf(format, args...),
		})
	}
	if first := r.restarted.first; first != nil {
		status := strings.TrimSpace("lanyard status " + object)
		add("pod", r.restarted, "Restart their workloads: kubectl rollout restart $(%[2]s --stale -o name -n %[1]s) -n %[1]s", first.Namespace, status)
	}
	if first := r.left.first; first != nil {
		what := "pod"
		if len(found) > 0 {
			what = "other pod"
		}
		add(what, r.left, "No restart does that. See: lanyard explain %s --namespace %s", first.Workload, first.Namespace)
	}
	return found
}

// namespaces formats a list of namespaces. It returns "" if the command is limited to one namespace.
func namespaces(list []string, scope string) string {
	list = slices.Compact(list)
	switch {
	case scope != "":
		return ""
	case len(list) == 1:
		return ", in the namespace " + list[0]
	}
	return fmt.Sprintf(", in %d namespaces such as %s", len(list), list[0])
}

// err returns the error of the result.
func (r *statusResult) err() error {
	found := finding.Summarize(r.Findings)
	unknown := r.Summary.States[injected.Unknown]
	switch {
	case r.stale && Outdated(r.Summary.States) > 0, found[finding.Failed] > 0:
		return command.ErrFound
	case found[finding.Skipped]+unknown > 0:
		return fmt.Errorf("%w: %s could not be read or compared, %s unknown. The reasons are in the output", errIncomplete, texts.Count(found[finding.Skipped], "part"), texts.Count(unknown, "pod"))
	}
	return nil
}

// Names implements command.Named. With --stale, it returns the names that kubectl rollout
// restart accepts.
func (r *statusResult) Names() []string {
	var names []string
	for i := range r.Workloads {
		row := &r.Workloads[i]
		if row.Workload != "" && !slices.Contains(names, row.Workload) && (!r.stale || row.owner.restarts() && row.Outdated() > 0) {
			names = append(names, row.Workload)
		}
	}
	return names
}

// Print writes the rows that are known so far.
func (r *statusResult) Print(p *command.Page) {
	if len(r.Workloads) == 0 {
		return
	}
	if p.Width > 0 && p.Width < narrow {
		r.printNarrow(p)
	} else {
		r.printWide(p)
	}
	for i := range r.Workloads {
		for _, d := range r.Workloads[i].Differences {
			p.Text(2, "", fmt.Sprintf("%s: %s: %s", r.Workloads[i].Namespace, r.Workloads[i].Workload, d))
		}
	}
	r.titled, r.Workloads = true, nil
}

// printEnd writes the findings and the numbers of pods.
func (r *statusResult) printEnd(p *command.Page) {
	if r.InjectedBy != "" {
		p.Text(2, command.Faint, "injected by "+r.InjectedBy)
	}
	for i := range r.Findings {
		p.Finding(&r.Findings[i])
	}
	unreadable := slices.ContainsFunc(r.Findings, func(f finding.Finding) bool { return f.Status != finding.NotApplicable })
	switch {
	case r.Summary.Pods > 0 && (r.titled || !r.stale || unreadable):
		p.Text(0, "", r.Summary.String())
	case unreadable || r.titled:
	case len(r.query.names) > 0 && r.query.scope != metav1.NamespaceAll:
		p.Line("no pod of a ServiceAccount that asks for an identity is selected. To see why: lanyard explain %s --namespace %s", r.query.names[0], r.query.scope)
	case len(r.query.names) > 0, r.query.selector != "":
		p.Line("no pod of a ServiceAccount that asks for an identity is selected")
	case r.stale:
		p.Line("every pod has the credentials that its ServiceAccount asks for")
	default:
		p.Line("no ServiceAccount asks for an identity")
	}
}

// counts formats the number of pods in each state.
func (s *summary) counts() string {
	var parts []string
	for _, state := range States() {
		if n := s.States[state.State]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, state.State))
		}
	}
	return strings.Join(parts, ", ")
}

// String formats the counts.
func (s *summary) String() string {
	return texts.Count(s.Pods, "pod") + ": " + s.counts()
}

// notInstalled is the finding about a cluster without an installation.
func notInstalled() finding.Finding {
	return finding.Finding{
		Status: finding.Failed, About: "registration", Reason: "not_installed", Text: "Lanyard is not installed, so no new pod gets credentials",
		Fix: "To see what is missing or left over: lanyard check", Link: finding.Page("cli/check.md"),
	}
}

// write writes the rows. A table is written incrementally, namespace by namespace.
func (k *statusCommand) write(ctx context.Context) error {
	result := newStatusResult(&k.query)
	result.stale = k.stale
	p := command.NewPage(k.Out)
	r, err := newReader(ctx, k.CLI, &k.query)
	if err == nil {
		result.InjectedBy = r.installation.InjectedBy()
		if r.installation != nil && r.installation.Absent() {
			result.add(nil, []finding.Finding{notInstalled()})
		}
		err = r.eachNamespace(ctx, func(rows []Row, found []finding.Finding) error {
			result.add(rows, found)
			if k.ForPeople() {
				result.Print(p)
			}
			return p.Err
		})
	}
	switch {
	case apierrors.IsForbidden(err) && k.query.scope == metav1.NamespaceAll:
		return fmt.Errorf("%w. Name a namespace with --namespace", err)
	case err != nil:
		return err
	}
	result.conclude()
	if k.ForPeople() {
		result.printEnd(p)
		return cmp.Or(p.Err, result.err())
	}
	if k.Format == command.OutputName {
		k.noteFindings(result)
	}
	return cmp.Or(k.Write(k.CLI, result), result.err())
}

// noteFindings prints the findings to the error stream, because a list of names cannot
// contain them.
func (k *statusCommand) noteFindings(r *statusResult) {
	for i := range r.Findings {
		if f := &r.Findings[i]; f.Status == finding.Skipped || f.Status == finding.Failed {
			k.Note("warning: %s", f.String())
		}
	}
	for i := range r.Workloads {
		if row := &r.Workloads[i]; k.stale && row.Outdated() > 0 && !row.owner.restarts() {
			k.Note("warning: no restart replaces the pods of %s\n%s", row.Workload, row.replace())
		}
	}
}

// narrow is the width below which a terminal has no room for the columns of status
// side by side: the namespace, the ServiceAccount and its guard get a line of their
// own.
const narrow = 120

// The last column is wide enough for most counts.
var statusHeader = []string{"NAMESPACE", "SERVICEACCOUNT", "GUARD", "WORKLOAD", "PODS", "CURRENT", "STALE", "WITHOUT", "OTHER       "}

// printWide writes the rows as one table.
func (r *statusResult) printWide(p *command.Page) {
	first := 1 // without the namespace
	if r.query.scope == metav1.NamespaceAll {
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

// printNarrow writes the workloads below their ServiceAccounts. All are parts of one
// table, which is as wide as the terminal, so that their columns line up.
func (r *statusResult) printNarrow(p *command.Page) {
	header := slices.Clone(statusHeader[3:])
	if !r.titled {
		// Later namespaces may have longer names.
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
	guard := cmp.Or(string(r.Guard), "-")
	if r.Guard == cluster.GuardOff {
		guard = p.Style(command.Warn, guard)
	}
	var others []string
	style := command.Warn
	for _, state := range States() {
		n := r.States[state.State]
		if n == 0 || state.Outdated || state.State == injected.Current {
			continue
		}
		if others = append(others, fmt.Sprintf("%d %s", n, state.State)); state.State == Shadowed {
			style = command.Bad
		}
	}
	return []string{
		r.Namespace, r.ServiceAccount, guard, cmp.Or(r.Workload, "-"), strconv.Itoa(r.Pods),
		number(injected.Current, command.Good), number(injected.Stale, command.Bad), number(injected.Without, command.Bad),
		p.Style(style, strings.Join(others, ", ")),
	}
}
