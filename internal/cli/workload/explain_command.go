// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"cmp"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lanyard-dev/lanyard/internal/cli/cluster"
	"github.com/lanyard-dev/lanyard/internal/cli/command"
	"github.com/lanyard-dev/lanyard/internal/finding"
	"github.com/lanyard-dev/lanyard/pkg/mutate/injected"
)

//go:embed explain.txt
var explainHelp string

// NewExplainCommand returns the command explain.
func NewExplainCommand(c *command.CLI) *cobra.Command {
	var o command.Output
	cmd := command.New(explainHelp, cobra.RangeArgs(1, 2), func(cmd *cobra.Command, args []string) error {
		explanation, err := explainObject(cmd.Context(), c, args)
		if err != nil {
			return err
		}
		err = o.Write(c, explanation)
		if err == nil && !explanation.Problem() && explanation.New.Outcome == injected.Unknown {
			return errors.New(explanation.New.Text)
		}
		return command.FoundIf(explanation.Problem(), err)
	})
	cmd.ValidArgsFunction = c.CompleteReferences
	o.AddFlag(cmd, "Explanation")
	c.AddConfig(cmd)
	return cmd
}

// Print implements command.Result.
func (e *Explanation) Print(p *command.Page) {
	p.Line("%s in namespace %s", p.Style(command.Title, e.Object), e.Namespace)
	p.Line("")
	p.Table(2, e.rows())
	printFix(p, e.ServiceAccount.label.Fix, "")
	p.Line("")
	style := map[injected.State]string{Injected: command.Good, Denied: command.Bad}[e.New.Outcome]
	if e.New.Outcome != Denied && e.New.Status != finding.OK && e.New.Status != finding.NotApplicable {
		style = command.Warn
	}
	word := string(e.New.Outcome)
	if e.New.Reason != "" && e.New.Outcome != Injected && e.New.Outcome != injected.OptedOut {
		word += " (" + e.New.Reason + ")"
	}
	p.Line("new pods: %s", p.Style(style, word))
	if e.New.Local {
		p.Text(2, command.Warn, "evaluated here, not by the cluster: "+e.New.Limits)
	}
	printPod(p, e.New.Text, e.New.Containers, nil)
	printFix(p, e.New.Fix, e.New.Link)
	for _, warning := range e.New.Warnings {
		p.Text(4, command.Faint, warning)
	}
	if l := e.Live; l != nil {
		p.Line("")
		style := map[injected.State]string{injected.Current: command.Good, injected.Stale: command.Bad, injected.Without: command.Bad, Shadowed: command.Bad}[l.State]
		p.Line("this pod: %s", p.Style(style, string(l.State)))
		printPod(p, l.Text+"; created "+l.Created, l.Containers, l.Differences)
		printFix(p, l.Fix, l.Link)
	}
	if e.Pods != nil {
		p.Line("")
		style := command.Good
		if e.Pods.problems() > 0 {
			style = command.Bad
		}
		p.Line("running pods: %s", p.Style(style, e.Pods.counts()))
	}
	printEvent(p, e.event)
	e.printOthers(p)
}

// printOthers writes the findings that are not about pods.
func (e *Explanation) printOthers(p *command.Page) {
	others := slices.DeleteFunc(slices.Clone(e.Findings), func(f finding.Finding) bool {
		return f.About == e.New.About || e.Live != nil && f.About == e.Live.About || e.event != nil && f == *e.event || e.ServiceAccount.label.Text != "" && f.About == e.ServiceAccount.label.About
	})
	if len(others) > 0 {
		p.Line("")
	}
	for i := range others {
		p.Finding(&others[i])
	}
}

// rows describes the ServiceAccount, the policy of the namespace and the guard.
func (e *Explanation) rows() [][]string {
	account := e.Namespace + "/" + e.ServiceAccount.Name
	switch {
	case !e.ServiceAccount.Exists:
		account += ", which does not exist"
	case !e.ServiceAccount.Read:
		account += ", which you may not read"
	case e.ServiceAccount.Required:
		account += ", which needs an identity and asks for none yet"
	case len(e.ServiceAccount.Identities) == 0:
		account += ", which asks for no identity"
	case e.ServiceAccount.label.Fix != "":
		account += ", which lacks the guard's label"
	}
	rows := [][]string{{"ServiceAccount", account}}
	for _, identity := range e.ServiceAccount.Identities {
		name := identity.Provider
		if identity.Profile != "" {
			name += ", profile " + identity.Profile
		}
		rows = append(rows, []string{"  " + name, identity.Name})
	}
	if e.ServiceAccount.Annotated != "" {
		rows = append(rows, []string{"  last annotated", e.ServiceAccount.Annotated})
	}
	policy := cmp.Or(e.AllowedIdentities, "the cluster's default")
	if slices.ContainsFunc(e.Findings, func(f finding.Finding) bool { return f.Reason == finding.MissingRight && f.About == aboutNamespace }) {
		policy = "not known"
	}
	guard := cmp.Or(string(e.Guard), "not needed")
	switch {
	case !e.ServiceAccount.Read:
		guard = "not known"
	case e.Guard == cluster.GuardOn && e.GuardProblem != "":
		guard += ", but " + e.GuardProblem
	case e.GuardProblem != "":
		guard += ": " + e.GuardProblem
	}
	rows = append(rows, []string{"allowed identities", policy}, []string{"guard", guard})
	if e.InjectedBy != "" {
		rows = append(rows, []string{"injected by", e.InjectedBy})
	}
	return rows
}

// printFix writes a next step and its page, if there are any, as Page.Finding does.
func printFix(p *command.Page, fix, link string) {
	if fix != "" {
		p.Line("  %s", p.Style(command.Title, "-> "+fix))
	}
	if link != "" {
		p.Text(5, command.Faint, link)
	}
}

// printPod writes the outcome for a pod: the reason, the containers and the differences.
func printPod(p *command.Page, why string, containers []Container, differences []injected.Difference) {
	p.Text(2, "", why)
	var rows [][]string
	for _, c := range containers {
		row := []string{c.Name, c.Type, "no", cmp.Or(strings.Join(c.Providers, ", "), "none"), ""}
		if c.Token {
			row[2] = "yes"
		}
		if len(c.Reasons) > 0 {
			row[4] = string(c.Reasons[0].Reason)
		}
		rows = append(rows, row)
	}
	if len(rows) > 0 {
		p.Table(2, append([][]string{{"CONTAINER", "TYPE", "TOKEN", "CREDENTIALS", "WHY"}}, rows...))
	}
	for _, c := range containers {
		for _, r := range c.Reasons {
			p.Text(4, command.Faint, fmt.Sprintf("%s: %s: %s", c.Name, r.Reason, r.Detail))
		}
	}
	for _, d := range differences {
		p.Text(2, "", d.String())
	}
}
