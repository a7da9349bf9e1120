// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"

	"github.com/lanyard-dev/lanyard/internal/cli/cluster"
	"github.com/lanyard-dev/lanyard/internal/cli/command"
	"github.com/lanyard-dev/lanyard/internal/injected"
	"github.com/lanyard-dev/lanyard/internal/probe"
	"github.com/lanyard-dev/lanyard/internal/settings"
)

const statusHelp = `status lists the ServiceAccounts that ask for an identity, the workloads that
use them, and how many of their pods are

  current   they have the credentials that a new pod would get,
  stale     they have an identity that their ServiceAccount had before,
  without   they have no credentials, and a new pod would get some: they are
            older than the annotations, or than Lanyard.

GUARD is unguarded for a ServiceAccount that lacks the guard's label, or whose
annotations of another webhook are not adopted yet ("lanyard label
serviceaccounts" mends both), and excluded in a namespace that Lanyard is not
called for: new pods get no credentials there, either. OTHER are pods that
opted out or cannot be compared.

status asks Lanyard for the credentials of a new pod by a dry run for each
ServiceAccount that has pods. It needs the rights to list pods, all kinds of
workloads and ServiceAccounts, and to create pods. Nothing is created. An owner
of a pod counts only if it exists, by its UID.

With --stale, only workloads with stale pods or pods without credentials are
listed, and the exit code is 1 if there are any.`

const statusExamples = `  # The whole cluster
  lanyard status --all-namespaces

  # What must be restarted? Exit code 1 if anything
  lanyard status --all-namespaces --stale

  # Watch a namespace while it is rolled out
  lanyard status --namespace shop --watch`

// watchInterval is the time between two looks of --watch.
const watchInterval = 5 * time.Second

// maxQuestions is how many dry runs are under way at once.
const maxQuestions = 8

// NewCommand returns the command status.
func NewCommand(c *command.CLI) *cobra.Command {
	var o command.Output
	var all, stale, watch bool
	cmd := &cobra.Command{
		Use:     "status",
		Short:   "Count the pods that have their credentials, and those that do not.",
		Long:    statusHelp,
		Example: statusExamples,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			namespace, err := c.Scope(all)
			if err != nil {
				return err
			}
			if watch && o.Format != command.OutputTable {
				return command.Usagef("--watch can only be used with --output table")
			}
			if watch {
				return watchStatus(cmd.Context(), c, &o, namespace, stale)
			}
			outdated, err := writeStatus(cmd.Context(), c, &o, namespace, stale)
			if err == nil && stale && outdated {
				err = command.ErrFound
			}
			return err
		},
	}
	o.AddFlag(cmd, "Status")
	command.AddAllNamespaces(cmd, &all)
	c.AddConfig(cmd)
	cmd.Flags().BoolVar(&stale, "stale", false, "Only workloads whose pods must be replaced.")
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "Look again every 5 seconds, until interrupted.")
	return cmd
}

// watchStatus writes the rows again and again, until the user interrupts it.
func watchStatus(ctx context.Context, c *command.CLI, o *command.Output, namespace string, stale bool) error {
	separator := ""
	err := wait.PollUntilContextCancel(ctx, watchInterval, true, func(ctx context.Context) (bool, error) {
		if _, err := fmt.Fprint(c.Out, separator); err != nil {
			return false, err
		}
		separator = "\n"
		_, err := writeStatus(ctx, c, o, namespace, stale)
		return false, err
	})
	if ctx.Err() != nil {
		return nil //nolint:nilerr // the error is the interruption
	}
	return err
}

// statusResult is the rows of a cluster.
type statusResult struct {
	Workloads []Row `json:"workloads"`
	// all reports whether the rows are of all namespaces, and written is the number of
	// rows on the page.
	all     bool
	written int
}

// Print writes the rows that are not written yet. The header is part of the same table,
// so that it lines up with the rows.
func (r *statusResult) Print(p *command.Page) {
	rows, first := r.Workloads[r.written:], r.written == 0
	r.written = len(r.Workloads)
	switch {
	case len(rows) == 0:
		return
	case p.Width > 0 && p.Width < narrow:
		printNarrow(p, rows, first)
	default:
		printWide(p, rows, r.all, first)
	}
	// Each reason why nothing is known of some pods, once.
	var problems []string
	for i := range rows {
		if r := &rows[i]; r.Problem != "" && !slices.Contains(problems, r.Problem) {
			problems = append(problems, r.Problem)
			p.Text(2, command.Warn, fmt.Sprintf("%s/%s: %s", r.Namespace, r.ServiceAccount, r.Problem))
		}
	}
}

// writeStatus writes the rows, and reports whether one is outdated. A table is
// written as it is known, namespace by namespace.
func writeStatus(ctx context.Context, c *command.CLI, o *command.Output, namespace string, stale bool) (outdated bool, err error) {
	result := statusResult{Workloads: []Row{}, all: namespace == metav1.NamespaceAll}
	p := command.NewPage(c.Out)
	err = eachStatus(ctx, c, namespace, func(rows []Row) error {
		for i := range rows {
			outdated = outdated || rows[i].Outdated()
			if !stale || rows[i].Outdated() {
				result.Workloads = append(result.Workloads, rows[i])
			}
		}
		if o.Format == command.OutputTable {
			result.Print(p)
		}
		return p.Err
	})
	switch {
	case err != nil:
		return false, err
	case o.Format != command.OutputTable:
		return outdated, o.Write(c, &result)
	case len(result.Workloads) == 0 && stale:
		p.Line("every pod has the credentials that its ServiceAccount asks for")
	case len(result.Workloads) == 0:
		p.Line("no ServiceAccount asks for an identity")
	}
	return outdated, p.Err
}

// narrow is the width below which a terminal has no room for the columns of status
// side by side: the namespace, the ServiceAccount and its guard get a line of their
// own.
const narrow = 120

var statusHeader = []string{"NAMESPACE", "SERVICEACCOUNT", "GUARD", "WORKLOAD", "PODS", "CURRENT", "STALE", "WITHOUT", "OTHER"}

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
	cells := []string{cmp.Or(r.Workload, "-"), strconv.Itoa(r.Pods)}
	for _, number := range []struct {
		n     int
		style string
	}{{r.Current, command.Good}, {r.Stale, command.Bad}, {r.Without, command.Bad}, {r.OptedOut + r.Unknown, command.Warn}} {
		if number.n == 0 {
			number.style = ""
		}
		cells = append(cells, p.Style(number.style, strconv.Itoa(number.n)))
	}
	return cells
}

// lister reads the objects that status needs.
type lister struct {
	*command.CLI
	settings *settings.Settings
	typed    kubernetes.Interface
	metadata metadata.Interface
	probe    *probe.Client
	called   map[string]bool
}

// eachStatus calls do with the rows of each namespace that has some.
func eachStatus(ctx context.Context, c *command.CLI, namespace string, do func([]Row) error) error {
	l, err := newLister(ctx, c)
	if err != nil {
		return err
	}
	defer c.Progress("reading pods")()
	namespaces := map[string]*Namespace{}
	err = c.EachServiceAccount(ctx, namespace, func(object *metav1.PartialObjectMetadata) error {
		n := namespaces[object.Namespace]
		if n == nil {
			n = NewNamespace(l.settings, object.Namespace, l.called[object.Namespace])
			namespaces[object.Namespace] = n
		}
		n.AddServiceAccount(object)
		return nil
	})
	for _, name := range slices.Sorted(maps.Keys(namespaces)) {
		n := namespaces[name]
		delete(namespaces, name) // with its pods
		if err != nil || n.Empty() {
			continue
		}
		var rows []Row
		if rows, err = l.rows(ctx, n); err == nil {
			err = do(rows)
		}
	}
	return err
}

func newLister(ctx context.Context, c *command.CLI) (*lister, error) {
	settings, err := c.Settings(ctx)
	if err != nil {
		return nil, err
	}
	config, err := c.Config()
	if err != nil {
		return nil, err
	}
	// Pods are large, and faster to read in this form.
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	l := &lister{CLI: c, settings: settings}
	if l.typed, err = kubernetes.NewForConfig(config); err != nil {
		return nil, fmt.Errorf("create Kubernetes client: %w", err)
	}
	if l.metadata, err = metadata.NewForConfig(config); err != nil {
		return nil, fmt.Errorf("create Kubernetes client: %w", err)
	}
	if l.probe, err = c.Probe(); err != nil {
		return nil, err
	}
	mutating, err := c.Installation(ctx, l.typed)
	if err != nil {
		return nil, err
	}
	l.called, err = c.CalledFor(ctx, mutating)
	return l, err
}

// rows reads the pods of a namespace, asks for the identities of new pods, and returns
// the rows.
func (l *lister) rows(ctx context.Context, n *Namespace) ([]Row, error) {
	for _, kind := range cluster.Kinds() {
		if kind.Kind == "Pod" || kind.Kind == "PodTemplate" {
			continue // they own no pods
		}
		err := command.EachPage(ctx, l.metadata.Resource(kind.Resource).Namespace(n.Name).List, func(page *metav1.PartialObjectMetadataList) error {
			for i := range page.Items {
				n.AddOwner(&kind, &page.Items[i])
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", kind.Resource.Resource, err)
		}
	}
	err := command.EachPage(ctx, l.typed.CoreV1().Pods(n.Name).List, func(page *corev1.PodList) error {
		for i := range page.Items {
			n.AddPod(&page.Items[i])
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list pods: %w", err)
	}
	return n.Rows(l.ask(ctx, n)), nil
}

// ask asks Lanyard for the identities of new pods.
func (l *lister) ask(ctx context.Context, n *Namespace) map[Question]*Answer {
	answers := n.Questions()
	var group errgroup.Group
	group.SetLimit(maxQuestions)
	for q, answer := range answers {
		group.Go(func() error {
			pod := probe.Pod(l.settings.Keys, q.ServiceAccount)
			if q.Expiration != "" {
				pod.SetAnnotations(map[string]string{l.settings.Keys.TokenExpirationSeconds: q.Expiration})
			}
			if q.Windows {
				// Not spec.os: the API server would deny the pod's security context.
				pod.Object["spec"].(map[string]any)["nodeSelector"] = map[string]any{corev1.LabelOSStable: string(corev1.Windows)}
			}
			if got := l.probe.Create(ctx, n.Name, pod); got.Err != nil {
				answer.Problem = got.Err.Error()
			} else if read, err := injected.Read(got.Pod.Object, l.settings.Keys); err != nil {
				answer.Problem = err.Error()
			} else {
				answer.Pod = *read
			}
			return nil
		})
	}
	_ = group.Wait() // no function returns an error
	return answers
}
