// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package label is the command "label serviceaccounts".
package label

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/lanyard-dev/lanyard/internal/annotations"
	"github.com/lanyard-dev/lanyard/internal/cli/cluster"
	"github.com/lanyard-dev/lanyard/internal/cli/command"
	"github.com/lanyard-dev/lanyard/internal/peer"
	"github.com/lanyard-dev/lanyard/internal/settings"
)

const labelServiceAccountsHelp = `serviceaccounts adds the label that the guard selects by to the
ServiceAccounts that need credentials and lack it: those that were annotated
before Lanyard was installed, or while it was not called. ServiceAccounts in
namespaces that Lanyard is not called for are left out, because their pods get
no credentials.

If Lanyard adopts the annotations of another webhook, the ServiceAccounts that
have such annotations from before are written as well: Lanyard then translates
them. Only for these must a replica of the webhook respond.

ServiceAccounts that change in the meantime are reported, and not labelled. The
exit code is 1 if one could not be labelled.`

const labelServiceAccountsExamples = `  # Show which ServiceAccounts would be labelled, in all namespaces
  lanyard label serviceaccounts --all-namespaces --dry-run

  # Label them
  lanyard label serviceaccounts --all-namespaces

  # Only the ServiceAccounts of one namespace
  lanyard label serviceaccounts --namespace shop`

// NewCommand returns the command label.
func NewCommand(c *command.CLI) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "label",
		Short: "Label ServiceAccounts for the guard.",
		Long:  "label adds the labels of Lanyard to objects that lack them.",
	}
	cmd.AddCommand(newLabelServiceAccountsCommand(c))
	return cmd
}

func newLabelServiceAccountsCommand(c *command.CLI) *cobra.Command {
	var o command.Output
	var all, dryRun bool
	cmd := &cobra.Command{
		Use:     "serviceaccounts",
		Aliases: []string{"serviceaccount", "sa"},
		Short:   "Label ServiceAccounts that need credentials and are unguarded.",
		Long:    labelServiceAccountsHelp,
		Example: labelServiceAccountsExamples,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			namespace, err := c.Scope(all)
			if err != nil {
				return err
			}
			result, err := label(cmd.Context(), c, namespace, dryRun)
			if err != nil {
				return err
			}
			failed := slices.ContainsFunc(result.ServiceAccounts, func(s labelled) bool { return s.Error != "" })
			return command.FoundIf(failed, o.Write(c, result))
		},
	}
	o.AddFlag(cmd, "Labels")
	command.AddAllNamespaces(cmd, &all)
	c.AddConfig(cmd)
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "Only show which ServiceAccounts would be labelled.")
	return cmd
}

// labelling is the ServiceAccounts that were labelled.
type labelling struct {
	DryRun          bool       `json:"dryRun"`
	ServiceAccounts []labelled `json:"serviceAccounts"`
}

// labelled is one of them. Adopted reports whether annotations of another webhook
// were translated. Error is why the ServiceAccount was not labelled.
type labelled struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Adopted   bool   `json:"adopted,omitempty"`
	Error     string `json:"error,omitempty"`
}

func (l *labelling) Print(p *command.Page) {
	if len(l.ServiceAccounts) == 0 {
		p.Line("every ServiceAccount that needs credentials has the label")
		return
	}
	rows := [][]string{{"NAMESPACE", "SERVICEACCOUNT", "RESULT"}}
	for _, s := range l.ServiceAccounts {
		done := "labelled"
		if s.Adopted {
			done = "adopted"
		}
		result := p.Style(command.Good, done)
		if l.DryRun {
			result = "would be " + done
		}
		if s.Error != "" {
			result = p.Style(command.Bad, s.Error)
		}
		rows = append(rows, []string{s.Namespace, s.Name, result})
	}
	p.Table(0, rows)
}

// label labels the unguarded ServiceAccounts.
func label(ctx context.Context, c *command.CLI, namespace string, dryRun bool) (*labelling, error) {
	defer c.Progress("labelling ServiceAccounts")()
	s, err := c.Settings(ctx)
	if err != nil {
		return nil, err
	}
	client, _, err := c.Clients()
	if err != nil {
		return nil, err
	}
	mutating, err := c.Installation(ctx, client)
	if err != nil {
		return nil, err
	}
	result := &labelling{DryRun: dryRun, ServiceAccounts: []labelled{}}
	report := c.Periodically()
	err = c.EachUnguarded(ctx, namespace, mutating, func(object *metav1.PartialObjectMetadata) error {
		entry := labelled{Namespace: object.Namespace, Name: object.Name, Adopted: peer.Adoptable(s.Keys, s.Peers, object.Annotations)}
		if !dryRun {
			if err := addLabel(ctx, client, s, object); err != nil {
				entry.Error = err.Error()
			}
		}
		result.ServiceAccounts = append(result.ServiceAccounts, entry)
		report("%d ServiceAccounts so far ...", len(result.ServiceAccounts))
		return ctx.Err()
	})
	return result, err
}

// addLabel adds the label to a ServiceAccount. With that write, Lanyard adopts the
// annotations of the peers.
func addLabel(ctx context.Context, client kubernetes.Interface, s *settings.Settings, object *metav1.PartialObjectMetadata) error {
	patch, options := labelPatch(s.Keys, object), metav1.PatchOptions{FieldManager: "lanyard"}
	got, err := client.CoreV1().ServiceAccounts(object.Namespace).Patch(ctx, object.Name, types.MergePatchType, patch, options)
	if err == nil && peer.Adoptable(s.Keys, s.Peers, got.Annotations) {
		err = fmt.Errorf("got no translation of the annotations of another webhook: the webhook %s must be called for them and have them in --adopt", cluster.ServiceAccountWebhook)
	}
	return err
}

// labelPatch returns a merge patch that adds the label, unless the ServiceAccount
// changed since it was read: it may not need the label any more.
func labelPatch(keys *annotations.Keys, object *metav1.PartialObjectMetadata) []byte {
	const patch = `{"metadata":{"labels":{%q:%q},"resourceVersion":%q}}`
	return fmt.Appendf(nil, patch, keys.IdentityLabel, annotations.LabelEnabled, object.ResourceVersion)
}
