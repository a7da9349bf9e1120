// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package check

import (
	"cmp"
	"context"
	_ "embed"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/lanyard-dev/lanyard/internal/cli/cloud"
	"github.com/lanyard-dev/lanyard/internal/cli/cluster"
	"github.com/lanyard-dev/lanyard/internal/cli/command"
	"github.com/lanyard-dev/lanyard/internal/exchange"
	"github.com/lanyard-dev/lanyard/internal/finding"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

//go:embed check.txt
var checkHelp string

// checkCommand contains the flags and findings of check.
type checkCommand struct {
	*command.CLI
	command.Output
	pre, redact, exchange bool
	endpoint, caFile      string // of the clouds, with exchange; caFile also of the issuer
	issuerURL             string
	fleetContexts         []string
	serviceAccount        string
	installTo             string
	attempts              int
	wait                  time.Duration

	settings  *annotations.Settings
	survey    *cluster.Survey
	client    kubernetes.Interface
	internet  *http.Client // for the clouds, and for issuers
	namespace string
	redactor  *redactor
	report    report
	page      *command.Page // for sections, as they come
}

// NewCommand returns the command check.
func NewCommand(c *command.CLI) *cobra.Command {
	k := &checkCommand{CLI: c}
	cmd := command.New(checkHelp, command.NoArgs, func(cmd *cobra.Command, _ []string) error { return k.run(cmd) })
	k.Output.AddFlag(cmd, "Check")
	c.AddConfig(cmd)
	c.AddOverrides(cmd)
	cmd.Flags().BoolVar(&k.pre, "pre", false, "Check the cluster before the install.")
	cmd.Flags().StringVar(&k.installTo, "install-namespace", "lanyard-system", "With --pre: the namespace in which to install Lanyard.")
	cmd.Flags().StringVar(&k.serviceAccount, "service-account", "", "ServiceAccount in --namespace to test. By default, one that needs credentials.")
	_ = cmd.RegisterFlagCompletionFunc("service-account", c.CompleteServiceAccounts()) // the error is for a flag that does not exist
	cmd.Flags().IntVar(&k.attempts, "attempts", 0, "Number of dry runs, each over its own connection. Defaults to 1, or to 3 for each of several API servers.")
	cmd.Flags().DurationVar(&k.wait, "wait", 0, "Repeat the checks until none fails, for at most this time. The flag without a value means 5m.")
	cmd.Flags().Lookup("wait").NoOptDefVal = "5m"
	cmd.Flags().BoolVar(&k.exchange, "exchange", false, "Only present a token of each ServiceAccount to its cloud from this machine.")
	cmd.Flags().StringVar(&k.issuerURL, "issuer", "", "Only compare the documents at this URL with the keys of the cluster.")
	cmd.Flags().StringSliceVar(&k.fleetContexts, "fleet-context", nil, "Compare with the clusters of these contexts, which have the same issuer.")
	_ = cmd.RegisterFlagCompletionFunc("fleet-context", c.CompleteContexts)
	cloud.AddEndpoint(cmd.Flags(), &k.endpoint, &k.caFile)
	ca := cmd.Flags().Lookup("ca-file")
	ca.Hidden, ca.Usage = false, "PEM file with the CA of the issuer's certificate, or with --exchange of the cloud's. Also reads an issuer that is not public."
	cmd.Flags().BoolVar(&k.redact, "redact", false, "Replace the names of namespaces, ServiceAccounts, identities, users and hosts with placeholders.")
	return cmd
}

func (k *checkCommand) run(cmd *cobra.Command) (err error) {
	err = cmp.Or(
		command.Exclusive(cmd, "pre", "service-account"),
		command.Exclusive(cmd, "exchange", "pre", "redact", "wait", "attempts"),
		command.Exclusive(cmd, "fleet-context", "exchange", "redact"),
		command.Exclusive(cmd, "issuer", "exchange", "pre", "service-account", "attempts"),
	)
	if err != nil {
		return err
	}
	if k.attempts < 0 || k.attempts > maxAttempts {
		return command.Usagef("--attempts %d is not between 1 and %d", k.attempts, maxAttempts)
	}
	k.Private = k.redact
	if err := k.checkValues(cmd); err != nil {
		return err
	}
	if k.client, _, err = k.Clients(); err != nil {
		return err
	}
	if k.namespace, err = k.Namespace(); err != nil {
		return err
	}
	k.page = command.NewPage(k.Out)
	if err := k.lookUntil(cmd.Context()); err != nil {
		return err
	}
	k.report.Summary = finding.Summarize(k.report.Findings)
	if err := cmp.Or(k.page.Err, k.Write(k.CLI, &k.report)); err != nil {
		return err
	}
	if n := k.report.Summary[finding.Skipped]; n > 0 && k.report.Summary[finding.Failed] == 0 {
		return fmt.Errorf("checks that could not run: %d; see the output for the reasons", n)
	}
	return command.FoundIf(k.report.Summary[finding.Failed] > 0, nil)
}

// checkValues returns an error for the value of a flag that cannot be right in any cluster.
func (k *checkCommand) checkValues(cmd *cobra.Command) error {
	if k.serviceAccount != "" {
		name := k.serviceAccount
		if !strings.Contains(name, "/") {
			name = "serviceaccount/" + name // which may be called sa
		}
		names, err := cloud.ServiceAccountNames(cmd, []string{name})
		if err != nil {
			return fmt.Errorf("--service-account: %w", err)
		}
		k.serviceAccount = names[0]
	}
	if k.issuerURL != "" {
		if err := cloud.CheckIssuer(k.issuerURL); err != nil {
			return command.Usagef("--issuer: %w", err)
		}
	}
	for _, name := range k.fleetContexts {
		if _, err := k.InContext(name).Config(); err != nil {
			return fmt.Errorf("--fleet-context: %w", err)
		}
	}
	client, err := exchange.NewClient(k.caFile)
	if err != nil {
		return err
	}
	k.internet = k.Progress(client)
	return nil
}

// lookUntil runs the checks. With --wait, it repeats them until none fails, and shows
// the findings of the last round.
func (k *checkCommand) lookUntil(ctx context.Context) error {
	if k.wait == 0 {
		return k.look(ctx)
	}
	note := k.Periodically()
	var failure error
	// The context of the command also limits each round.
	err := wait.PollUntilContextTimeout(ctx, interval, k.wait, true, func(context.Context) (bool, error) {
		k.report = report{}
		failure = k.look(ctx)
		waitsFor := k.report.firstFailure()
		note("waiting: %s", cmp.Or(waitsFor, fmt.Sprint(failure)))
		return failure == nil && waitsFor == "", nil
	})
	if ctx.Err() != nil {
		return err
	}
	k.show(k.report.Findings)
	return failure
}

// interval is the time between rounds of --wait.
const interval = 2 * time.Second

// look runs the checks once.
func (k *checkCommand) look(ctx context.Context) (err error) {
	k.SurveyAgain()
	if k.survey, err = k.Survey(); err != nil {
		return err
	}
	if k.settings, err = k.Settings(ctx); err != nil {
		return err
	}
	k.redactor = newRedactor(k.redact)
	k.redactor.name("namespace", k.namespace)
	k.redactor.name("namespace", k.installTo)
	k.redactor.name("serviceaccount", k.serviceAccount)
	if k.issuerURL != "" {
		k.issuer(ctx)
		return nil
	}
	if err := k.cluster(ctx); err != nil {
		return err
	}
	if k.pre {
		k.beforeInstall(ctx)
		return nil
	}
	if k.exchange {
		k.exchangeTokens(ctx)
		return nil
	}
	return k.installed(ctx)
}

// add adds findings about a part to the report, and shows them to people at once unless the checks
// may be repeated.
func (k *checkCommand) add(about string, found ...finding.Finding) {
	for i := range found {
		found[i].About = about
		found[i].Text, found[i].Fix = k.redactor.text(found[i].Text), k.redactor.text(found[i].Fix)
	}
	k.report.Findings = append(k.report.Findings, found...)
	if k.wait == 0 {
		k.show(found)
	}
}

// show shows findings to people.
func (k *checkCommand) show(found []finding.Finding) {
	if k.Format == command.OutputTable {
		k.page.Findings(found)
	}
}

// report is the result of the command.
type report struct {
	Findings []finding.Finding `json:"findings"`
	Summary  finding.Summary   `json:"summary"`
}

// firstFailure returns the text of the first check that failed, if any.
func (r *report) firstFailure() string {
	for i := range r.Findings {
		if r.Findings[i].Status == finding.Failed {
			return r.Findings[i].Text
		}
	}
	return ""
}

// Print writes the summary: the findings were written as they came.
func (r *report) Print(p *command.Page) { p.Summary(r.Summary) }
