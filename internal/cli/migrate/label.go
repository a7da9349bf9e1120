// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"

	"github.com/lanyard-dev/lanyard/internal/cli/cluster"
	"github.com/lanyard-dev/lanyard/internal/cli/command"
	"github.com/lanyard-dev/lanyard/internal/peer"
	"github.com/lanyard-dev/lanyard/internal/texts"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

//go:embed label.txt
var labelHelp string

// NewLabelCommand returns the command label, which adds the guard's label to ServiceAccounts that
// lack it. During this write, the webhook adopts the annotations of other webhooks.
func NewLabelCommand(c *command.CLI) *cobra.Command {
	cmd := &cobra.Command{Use: "label", Short: "Label ServiceAccounts for the guard, and adopt their annotations.", Long: "label adds the labels of Lanyard to objects that lack them."}
	k := &labeller{CLI: c}
	serviceaccounts := command.New(labelHelp, command.NoArgs, func(cmd *cobra.Command, _ []string) error {
		result, err := k.run(cmd.Context())
		if err != nil {
			return err
		}
		failed := slices.ContainsFunc(result.ServiceAccounts, func(s written) bool { return s.Error != "" })
		return command.FoundIf(failed, k.Write(k.CLI, result))
	})
	serviceaccounts.Aliases = []string{"serviceaccount", "sa"}
	k.Output.AddFlag(serviceaccounts, "Labelling", command.OutputName)
	command.AddAllNamespaces(serviceaccounts, &k.all)
	k.AddConfig(serviceaccounts)
	k.dryRun.AddFlag(serviceaccounts)
	cmd.AddCommand(serviceaccounts)
	return cmd
}

// labeller labels ServiceAccounts that are not guarded yet.
type labeller struct {
	*command.CLI
	command.Output
	dryRun command.DryRun
	all    bool
}

type labelling struct {
	DryRun          command.DryRun `json:"dryRun"`
	ServiceAccounts []written      `json:"serviceAccounts"`
}

// written is one ServiceAccount.
type written struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Adopted reports whether the webhook also adopts the annotations of another webhook.
	Adopted bool `json:"adopted,omitempty"`
	// Error is why it was not written.
	Error string `json:"error,omitempty"`
}

func (r *labelling) Print(p *command.Page) {
	if len(r.ServiceAccounts) == 0 {
		p.Line("every ServiceAccount that needs credentials has the label")
		return
	}
	rows := [][]string{{"NAMESPACE", "SERVICEACCOUNT", "RESULT"}}
	for _, s := range r.ServiceAccounts {
		done := "labelled"
		if s.Adopted {
			done = "adopted"
		}
		text := p.Style(command.Good, done)
		switch {
		case s.Error != "":
			text = p.Style(command.Bad, s.Error)
		case r.DryRun == command.DryRunServer:
			text = done + " (server dry run)"
		case r.DryRun == command.DryRunClient:
			text = "would be " + done
		}
		rows = append(rows, []string{s.Namespace, s.Name, text})
	}
	p.Table(0, rows)
}

func (r *labelling) Names() []string {
	var names []string
	for _, s := range r.ServiceAccounts {
		names = append(names, "serviceaccount/"+s.Name)
	}
	return names
}

func (k *labeller) run(ctx context.Context) (*labelling, error) {
	namespace, err := k.Scope(k.all)
	if err != nil {
		return nil, err
	}
	s, err := k.Settings(ctx)
	if err != nil {
		return nil, err
	}
	client, untyped, err := k.Clients()
	if err != nil {
		return nil, err
	}
	parts, err := k.Survey()
	if err != nil {
		return nil, err
	}
	installation, err := parts.Installation(ctx)
	switch {
	case err != nil:
		return nil, err
	case installation.Absent():
		return nil, errors.New("lanyard is not installed, so the label has no effect: see " + k.Name + " check")
	}
	found := &labelling{DryRun: k.dryRun, ServiceAccounts: []written{}}
	report := k.Periodically()
	namespaces, err := command.Namespaces(ctx, client, namespace)
	if err != nil {
		return nil, err
	}
	called := map[string]bool{}
	for _, one := range namespaces {
		called[one.Name] = cluster.CalledFor(installation.Registration(), s, one)
	}
	err = k.EachServiceAccount(ctx, namespace, func(object *metav1.PartialObjectMetadata) error {
		if !called[object.Namespace] || !cluster.Unguarded(s, object) {
			return nil
		}
		entry := written{Namespace: object.Namespace, Name: object.Name, Adopted: peer.Adoptable(s, peer.Of(s), object.Annotations)}
		if k.dryRun.Sends() {
			if err := k.write(ctx, untyped, s, object); err != nil {
				entry.Error = err.Error()
			}
		}
		found.ServiceAccounts = append(found.ServiceAccounts, entry)
		report("%s so far ...", texts.Count(len(found.ServiceAccounts), "ServiceAccount"))
		return ctx.Err()
	})
	return found, err
}

// write adds the label to a ServiceAccount. With that write, Lanyard adopts the
// annotations of the peers.
func (k *labeller) write(ctx context.Context, client dynamic.Interface, s *annotations.Settings, object *metav1.PartialObjectMetadata) error {
	label := map[string]any{annotations.IdentityLabel: identityLabel(object)}
	got, err := patch(ctx, client, object.Namespace, object.Name, object.ResourceVersion, "labels", label, k.dryRun.Requests())
	if err == nil && peer.Adoptable(s, peer.Of(s), got.GetAnnotations()) {
		err = fmt.Errorf("the webhook did not adopt it: the webhook %s must be called for such annotations, and its setting adopt must name the other webhook", cluster.ServiceAccountWebhook)
	}
	return err
}

// identityLabel returns the value of the label that the ServiceAccount needs. The value
// annotations.IdentityRequired, which users set, stays.
func identityLabel(object *metav1.PartialObjectMetadata) string {
	if value := object.Labels[annotations.IdentityLabel]; annotations.IsGuarded(value) {
		return value
	}
	return annotations.IdentityEnabled
}
