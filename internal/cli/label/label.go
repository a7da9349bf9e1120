// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package label is the commands "label serviceaccounts" and adopt. Both write the
// ServiceAccounts that the guard does not know: the first adds only the label, and the
// second also has the webhook translate the annotations of another webhook.
package label

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/lanyard-dev/lanyard/internal/cli/cluster"
	"github.com/lanyard-dev/lanyard/internal/cli/command"
	"github.com/lanyard-dev/lanyard/internal/peer"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

//go:embed serviceaccounts.txt
var serviceaccountsHelp string

//go:embed adopt.txt
var adoptHelp string

// NewCommand returns the command label.
func NewCommand(c *command.CLI) *cobra.Command {
	cmd := &cobra.Command{Use: "label", Short: "Label ServiceAccounts for the guard.", Long: "label adds the labels of Lanyard to objects that lack them."}
	k := &writer{CLI: c, done: "labelled", none: "every ServiceAccount that needs credentials has the label"}
	serviceaccounts := k.command("Labelling", serviceaccountsHelp)
	serviceaccounts.Aliases = []string{"serviceaccount", "sa"}
	cmd.AddCommand(serviceaccounts)
	return cmd
}

// NewAdoptCommand returns the command adopt.
func NewAdoptCommand(c *command.CLI) *cobra.Command {
	k := &writer{CLI: c, adopts: true, done: "adopted", none: "no annotation of another webhook waits for its adoption"}
	return k.command("Adoption", adoptHelp)
}

// writer writes ServiceAccounts that the guard does not know.
type writer struct {
	*command.CLI
	command.Output
	dryRun command.DryRun
	all    bool
	// adopts selects the ServiceAccounts that the webhook adopts, instead of the others.
	adopts bool
	// done is the result of a ServiceAccount, and none is the result without any.
	done, none string
}

// command returns a command that writes ServiceAccounts. kind is the kind of its result.
func (k *writer) command(kind, help string) *cobra.Command {
	cmd := command.New(help, cobra.NoArgs, func(cmd *cobra.Command, _ []string) error {
		result, err := k.run(cmd.Context())
		if err != nil {
			return err
		}
		failed := slices.ContainsFunc(result.ServiceAccounts, func(s written) bool { return s.Error != "" })
		return command.FoundIf(failed, k.Write(k.CLI, result))
	})
	k.Output.AddFlag(cmd, kind, command.OutputName)
	command.AddAllNamespaces(cmd, &k.all)
	k.AddConfig(cmd)
	k.dryRun.AddFlag(cmd)
	return cmd
}

type result struct {
	DryRun          command.DryRun `json:"dryRun"`
	ServiceAccounts []written      `json:"serviceAccounts"`
	// Unadopted is the number of ServiceAccounts that label leaves to adopt.
	Unadopted int `json:"unadopted,omitempty"`

	by *writer
}

// written is one ServiceAccount. Error is why it was not written.
type written struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Error     string `json:"error,omitempty"`
}

func (r *result) Print(p *command.Page) {
	rows := [][]string{{"NAMESPACE", "SERVICEACCOUNT", "RESULT"}}
	for _, s := range r.ServiceAccounts {
		text := p.Style(command.Good, r.by.done)
		switch {
		case s.Error != "":
			text = p.Style(command.Bad, s.Error)
		case r.DryRun == command.DryRunServer:
			text = r.by.done + " (server dry run)"
		case r.DryRun == command.DryRunClient:
			text = "would be " + r.by.done
		}
		rows = append(rows, []string{s.Namespace, s.Name, text})
	}
	switch {
	case len(rows) > 1:
		p.Table(0, rows)
	case r.Unadopted == 0:
		p.Line("%s", r.by.none)
	}
	if r.Unadopted > 0 {
		p.Text(0, command.Warn, fmt.Sprintf("%d ServiceAccounts have annotations of another webhook that are not adopted yet: see %s adopt", r.Unadopted, r.by.Name))
	}
}

func (r *result) Names() []string {
	var names []string
	for _, s := range r.ServiceAccounts {
		names = append(names, "serviceaccount/"+s.Name)
	}
	return names
}

func (k *writer) run(ctx context.Context) (*result, error) {
	defer k.Progress("reading ServiceAccounts")()
	namespace, err := k.Scope(k.all)
	if err != nil {
		return nil, err
	}
	s, err := k.Settings(ctx)
	if err != nil {
		return nil, err
	}
	client, _, err := k.Clients()
	if err != nil {
		return nil, err
	}
	mutating, err := k.Installation(ctx, client)
	switch {
	case err != nil:
		return nil, err
	case k.adopts && k.Webhook.Unread != nil:
		return nil, fmt.Errorf("the settings of the webhook could not be read: %w. Pass the webhook's configuration file with --config", k.Webhook.Unread)
	case k.adopts && len(s.Peers) == 0:
		return nil, errors.New("the webhook adopts the annotations of no other webhook: name one in its setting adopt")
	}
	found := &result{DryRun: k.dryRun, ServiceAccounts: []written{}, by: k}
	report := k.Periodically()
	err = k.EachUnguarded(ctx, client, namespace, mutating, func(object *metav1.PartialObjectMetadata) error {
		if adoptable := peer.Adoptable(s, peer.Of(s), object.Annotations); adoptable != k.adopts {
			if adoptable {
				found.Unadopted++
			}
			return nil
		}
		entry := written{Namespace: object.Namespace, Name: object.Name}
		if k.dryRun.Sends() {
			if err := k.write(ctx, client, s, object); err != nil {
				entry.Error = err.Error()
			}
		}
		found.ServiceAccounts = append(found.ServiceAccounts, entry)
		report("%d ServiceAccounts so far ...", len(found.ServiceAccounts))
		return ctx.Err()
	})
	return found, err
}

// write adds the label to a ServiceAccount. With that write, Lanyard adopts the
// annotations of the peers.
func (k *writer) write(ctx context.Context, client kubernetes.Interface, s *annotations.Settings, object *metav1.PartialObjectMetadata) error {
	options := metav1.PatchOptions{FieldManager: "lanyard", DryRun: k.dryRun.Requests()}
	got, err := client.CoreV1().ServiceAccounts(object.Namespace).Patch(ctx, object.Name, types.MergePatchType, labelPatch(object), options)
	if err == nil && peer.Adoptable(s, peer.Of(s), got.Annotations) {
		err = fmt.Errorf("the webhook did not adopt it: the webhook %s must be called for such annotations, and its setting adopt must name the other webhook", cluster.ServiceAccountWebhook)
	}
	return err
}

// labelPatch returns a merge patch that adds the label, unless the ServiceAccount
// changed since it was read: it may not need the label any more. The value
// annotations.IdentityRequired is the user's, and stays.
func labelPatch(object *metav1.PartialObjectMetadata) []byte {
	const patch = `{"metadata":{"labels":{%q:%q},"resourceVersion":%q}}`
	value := object.Labels[annotations.IdentityLabel]
	if !annotations.IsGuarded(value) {
		value = annotations.IdentityEnabled
	}
	return fmt.Appendf(nil, patch, annotations.IdentityLabel, value, object.ResourceVersion)
}
