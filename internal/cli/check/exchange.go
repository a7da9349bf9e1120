// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/lanyard-dev/lanyard/internal/cli/cloud"
	"github.com/lanyard-dev/lanyard/internal/probe"
)

// exchange holds the flags of check --exchange.
type exchange struct {
	enabled          bool
	endpoint, caFile string
}

func (e *exchange) addFlags(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&e.enabled, "exchange", false, "Only present a token of each ServiceAccount to its cloud, from this machine.")
	cloud.AddEndpoint(cmd.Flags(), &e.endpoint, &e.caFile)
}

// exchangeTokens adds a line for each token.
func (k *checkCommand) exchangeTokens(ctx context.Context) error {
	client, err := cloud.NewClient(k.exchange.caFile)
	if err != nil {
		return err
	}
	target := cloud.Target{ServiceAccount: k.serviceAccount, Endpoint: k.exchange.endpoint, Client: client}
	if k.serviceAccount != "" || *k.Flags.Namespace != "" {
		target.Namespace = k.namespace
	}
	lines, err := target.Exchange(ctx, k.CLI)
	switch {
	case apierrors.IsNotFound(err):
		lines = []probe.Line{probe.NoServiceAccount(target.Namespace + "/" + target.ServiceAccount)}
	case err != nil:
		lines = []probe.Line{probe.Unreadable("the ServiceAccounts", err)}
	}
	k.add("exchange", lines...)
	return nil
}
