// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package check

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/lanyard-dev/lanyard/internal/cli/cloud"
	"github.com/lanyard-dev/lanyard/internal/cli/command"
	"github.com/lanyard-dev/lanyard/internal/probe"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

//go:embed check.txt
var checkHelp string

// checkCommand holds the flags of check and its findings.
type checkCommand struct {
	*command.CLI
	command.Output
	pre, redact, exchange bool
	endpoint, caFile      string // of the clouds, with exchange
	serviceAccount        string
	installTo             string
	attempts              int
	wait                  time.Duration

	settings  *annotations.Settings
	client    kubernetes.Interface
	namespace string
	redactor  *redactor
	report    checkReport
	page      *command.Page // for sections, as they come
}

// NewCommand returns the command check.
func NewCommand(c *command.CLI) *cobra.Command {
	k := &checkCommand{CLI: c}
	cmd := command.New(checkHelp, cobra.NoArgs, func(cmd *cobra.Command, _ []string) error { return k.run(cmd.Context()) })
	k.Output.AddFlag(cmd, "Check")
	c.AddConfig(cmd)
	c.AddOverrides(cmd)
	cmd.Flags().BoolVar(&k.pre, "pre", false, "Check the cluster before the install.")
	cmd.Flags().StringVar(&k.installTo, "install-namespace", "lanyard-system", "With --pre: the namespace that Lanyard is to be installed in.")
	cmd.Flags().StringVar(&k.serviceAccount, "service-account", "", "ServiceAccount of --namespace to try. Without it, one that needs credentials is chosen.")
	_ = cmd.RegisterFlagCompletionFunc("service-account", c.CompleteServiceAccounts()) // the error is for a flag that does not exist
	cmd.Flags().IntVar(&k.attempts, "attempts", 0, "Number of dry runs, each over its own connection. Without it, 1, or 3 for each of several API servers.")
	cmd.Flags().DurationVar(&k.wait, "wait", 0, "Repeat the checks until none fails, for at most this time. Without a value, 5m.")
	cmd.Flags().Lookup("wait").NoOptDefVal = "5m"
	cmd.Flags().BoolVar(&k.exchange, "exchange", false, "Only present a token of each ServiceAccount to its cloud, from this machine.")
	cloud.AddEndpoint(cmd.Flags(), &k.endpoint, &k.caFile)
	cmd.Flags().BoolVar(&k.redact, "redact", false, "Show placeholders for the names of namespaces, ServiceAccounts, identities, users and hosts.")
	return cmd
}

func (k *checkCommand) run(ctx context.Context) (err error) {
	if k.pre && k.serviceAccount != "" {
		return command.Usagef("--service-account cannot be used with --pre")
	}
	if k.exchange && (k.pre || k.redact || k.wait != 0 || k.attempts != 0) {
		return command.Usagef("--exchange cannot be used with --pre, --redact, --wait and --attempts")
	}
	if k.attempts < 0 || k.attempts > maxAttempts {
		return command.Usagef("--attempts %d is not between 1 and %d", k.attempts, maxAttempts)
	}
	if k.client, _, err = k.Clients(); err != nil {
		return err
	}
	if k.namespace, err = k.Namespace(); err != nil {
		return err
	}
	k.page = command.NewPage(k.Out)
	if err := k.lookUntil(ctx); err != nil {
		return err
	}
	k.report.Summarize()
	if err := cmp.Or(k.page.Err, k.Write(k.CLI, &k.report)); err != nil {
		return err
	}
	if n := k.report.Count(probe.Skipped); n > 0 && k.report.Count(probe.Failed) == 0 {
		return fmt.Errorf("checks that could not run: %d; see the output for the reasons", n)
	}
	return command.FoundIf(k.report.Count(probe.Failed) > 0, nil)
}

// lookUntil runs the checks. With --wait, it runs them again until none fails, and shows
// the findings of the last time.
func (k *checkCommand) lookUntil(ctx context.Context) error {
	if k.wait == 0 {
		return k.look(ctx)
	}
	note := k.Periodically()
	var failure error
	// A round has the context of the command: it also ends if the time is over.
	err := wait.PollUntilContextTimeout(ctx, interval, k.wait, true, func(context.Context) (bool, error) {
		k.report = checkReport{}
		failure = k.look(ctx)
		note("waiting: %s", k.report.firstFailure(failure))
		return failure == nil && k.report.Count(probe.Failed) == 0, nil
	})
	if ctx.Err() != nil {
		return err
	}
	for i := range k.report.Sections {
		k.show(&k.report.Sections[i])
	}
	return failure
}

// interval is the time between two rounds of --wait.
const interval = 2 * time.Second

// look runs the checks once.
func (k *checkCommand) look(ctx context.Context) (err error) {
	k.ForgetSettings()
	if k.settings, err = k.Settings(ctx); err != nil {
		return err
	}
	k.redactor = newRedactor(k.redact)
	k.redactor.name("namespace", k.namespace)
	k.redactor.name("namespace", k.installTo)
	k.redactor.name("serviceaccount", k.serviceAccount)
	version, err := k.client.Discovery().ServerVersion()
	if err != nil {
		return fmt.Errorf("version of the API server: %w", err)
	}
	k.add("cluster", Version(version.GitVersion))
	if k.pre {
		k.beforeInstall(ctx)
		return nil
	}
	if k.exchange {
		return k.exchangeTokens(ctx)
	}
	return k.installed(ctx)
}

// add adds a section to the report, and shows it to people at once unless the checks may
// be repeated.
func (k *checkCommand) add(name string, lines ...probe.Line) {
	for i := range lines {
		lines[i].Text, lines[i].Fix, lines[i].Missing = k.redactor.text(lines[i].Text), k.redactor.text(lines[i].Fix), k.redactor.text(lines[i].Missing)
	}
	k.report.Sections = append(k.report.Sections, probe.Section{Name: name, Lines: lines})
	if k.wait == 0 {
		k.show(&k.report.Sections[len(k.report.Sections)-1])
	}
}

// show shows a section to people.
func (k *checkCommand) show(section *probe.Section) {
	if k.Format != command.OutputTable {
		return
	}
	k.page.Line("%s", k.page.Style(command.Title, section.Name))
	for _, line := range section.Lines {
		k.page.Marked(styles[line.Status], line.Text)
		if line.Fix != "" {
			k.page.Text(4, "", line.Fix)
		}
		if line.Link != "" {
			k.page.Line("    %s", k.page.Style(command.Faint, line.Link))
		}
		k.page.Lines(line.Commands) // not indented: the end of a here-document must not be
	}
	k.page.Line("")
}

// styles are the styles of the lines.
var styles = map[probe.Status]string{
	probe.OK: command.Good, probe.Warning: command.Warn, probe.Failed: command.Bad, probe.Skipped: command.Unknown, probe.NotApplicable: command.Faint,
}

// checkReport is a report that can be printed.
type checkReport struct{ probe.Report }

// firstFailure returns the text of the first check that failed, or the error.
func (r *checkReport) firstFailure(err error) string {
	for _, section := range r.Sections {
		for _, line := range section.Lines {
			if line.Status == probe.Failed {
				return line.Text
			}
		}
	}
	return fmt.Sprint(cmp.Or(err, errors.New("no check failed")))
}

// Print writes the summary: the sections were written as they came.
func (r *checkReport) Print(p *command.Page) {
	style, summary := command.Good, "no check failed"
	failed, skipped, warnings := r.Summary[probe.Failed], r.Summary[probe.Skipped], r.Summary[probe.Warning]
	switch {
	case failed > 0:
		style, summary = command.Bad, fmt.Sprintf("failed: %d", failed)
	case skipped > 0:
		style, summary = command.Unknown, "no check failed, but not all could run"
	case warnings > 0:
		style = command.Warn
	}
	if skipped > 0 {
		summary += fmt.Sprintf(", skipped: %d", skipped)
	}
	if failed+skipped+warnings > 0 {
		summary += fmt.Sprintf(", warnings: %d", warnings)
	}
	p.Text(0, style, summary)
}
