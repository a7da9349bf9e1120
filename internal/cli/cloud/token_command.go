// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/lanyard-dev/lanyard/internal/annotations"
	"github.com/lanyard-dev/lanyard/internal/cli/command"
	"github.com/lanyard-dev/lanyard/internal/injected"
	"github.com/lanyard-dev/lanyard/internal/probe"
	"github.com/lanyard-dev/lanyard/internal/provider"
	"github.com/lanyard-dev/lanyard/internal/token"
)

const tokenHelp = `token requests a token of a ServiceAccount from the API server and shows its
claims: the issuer, the subject and the audience that a cloud compares with its
trust. For aws, azure, gcp and the custom providers of the cluster, the audience
is the one that the pods of the ServiceAccount get, which a dry run of a pod
tells. Any other value of --for is an audience.

With --exchange, token presents the token to the cloud as the SDK in a pod
would, with the same identity and region, and shows the cloud's response. The
exit code is 1 if the cloud denies it. The credential of the cloud is never
shown.

The token itself is only written with --raw. Anyone with the token can act as
the ServiceAccount until it expires.`

const tokenExamples = `  # Show the claims of a token for AWS
  lanyard token serviceaccount/cart --namespace shop --for aws

  # Does Azure accept it?
  lanyard token serviceaccount/cart --namespace shop --for azure --exchange

  # Write a token for another service
  lanyard token serviceaccount/cart --namespace shop --for vault --raw > token`

// tokenCommand holds the flags of token.
type tokenCommand struct {
	*command.CLI
	command.Output
	receiver      string
	raw, exchange bool
	endpoint      string
	caFile        string
	scope         string
	expiration    time.Duration
}

// NewTokenCommand returns the command token.
func NewTokenCommand(c *command.CLI) *cobra.Command {
	k := &tokenCommand{CLI: c}
	cmd := &cobra.Command{
		Use:               "token serviceaccount/NAME --for aws|azure|gcp|AUDIENCE",
		Short:             "Show a token of a ServiceAccount, and a cloud's response to it.",
		Long:              tokenHelp,
		Example:           tokenExamples,
		Args:              cobra.RangeArgs(1, 2),
		ValidArgsFunction: c.CompleteServiceAccountReferences(),
		RunE:              func(cmd *cobra.Command, args []string) error { return k.run(cmd.Context(), args) },
	}
	k.Output.AddFlag(cmd, "Token")
	c.AddConfig(cmd)
	fs := cmd.Flags()
	fs.StringVar(&k.receiver, "for", "", "Who the token is for: aws, azure, gcp, a custom provider, or an audience.")
	fs.BoolVar(&k.raw, "raw", false, "Write the token, and nothing else.")
	fs.BoolVar(&k.exchange, "exchange", false, "Present the token to the cloud.")
	fs.StringVar(&k.endpoint, "endpoint", "", "With --exchange: the scheme and host to use in place of the cloud's, such as https://sts.example.com.")
	fs.StringVar(&k.caFile, "ca-file", "", "With --exchange: PEM file with the CA of the cloud's certificate. Without it, the CAs of the system are trusted.")
	fs.StringVar(&k.scope, "scope", "", "With --exchange and --for azure: the scope to ask for. Without it, the scope of Azure Resource Manager.")
	fs.DurationVar(&k.expiration, "expiration", 0, "Lifetime of the token. Without it, the lifetime of the tokens in pods.")
	// The error is for a flag that does not exist.
	_ = cmd.RegisterFlagCompletionFunc("for", cobra.FixedCompletions(clouds, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// clouds are the providers that exchange tokens.
var clouds = []string{"aws", "azure", "gcp"}

// tokenResult is the output of token.
type tokenResult struct {
	Namespace      string        `json:"namespace"`
	ServiceAccount string        `json:"serviceAccount"`
	Claims         *token.Claims `json:"claims"`
	Exchange       *Answer       `json:"exchange,omitempty"`
}

func (k *tokenCommand) run(ctx context.Context, args []string) error {
	serviceAccount, err := command.ParseReference(args, command.ServiceAccountKind)
	if err != nil {
		return err
	}
	name := serviceAccount.Name
	isCloud := slices.Contains(clouds, k.receiver)
	switch {
	case k.receiver == "":
		return command.Usagef("--for: got none, want aws, azure, gcp or an audience")
	case k.raw && k.exchange:
		return command.Usagef("--raw cannot be used with --exchange")
	case k.exchange && !isCloud:
		return command.Usagef("--exchange: got --for %q, want aws, azure or gcp", k.receiver)
	case !k.exchange && (k.endpoint != "" || k.caFile != "" || k.scope != ""):
		return command.Usagef("--endpoint, --ca-file and --scope need --exchange")
	}
	namespace, err := k.Namespace()
	if err != nil {
		return err
	}
	s, err := k.Settings(ctx)
	if err != nil {
		return err
	}
	injected := provider.Provider{Token: provider.Token{Audience: k.receiver, ExpirationSeconds: s.Defaults.TokenExpirationSeconds}}
	if slices.ContainsFunc(s.Keys.Providers, func(d *provider.Definition) bool { return d.Name == k.receiver && !d.Plain() }) {
		if injected, err = injectedFor(ctx, k.CLI, s.Keys, namespace, name, k.receiver); err != nil {
			return fmt.Errorf("pods of serviceaccount %s/%s: %w", namespace, name, err)
		}
	}
	if k.expiration != 0 {
		injected.Token.ExpirationSeconds = int64(k.expiration.Seconds())
	}
	client, _, err := k.Clients()
	if err != nil {
		return err
	}
	text, err := requestToken(ctx, client, namespace, name, injected.Token)
	if err != nil {
		return err
	}
	if k.raw {
		p := command.NewPage(k.Out)
		p.Line("%s", text)
		return p.Err
	}
	return k.show(ctx, &tokenResult{Namespace: namespace, ServiceAccount: name}, injected, text)
}

// show prints the token's claims and the cloud's response.
func (k *tokenCommand) show(ctx context.Context, r *tokenResult, injected provider.Provider, text string) (err error) {
	if r.Claims, err = token.Parse(text); err != nil {
		return err
	}
	if k.exchange {
		client, err := NewClient(k.caFile)
		if err != nil {
			return err
		}
		defer k.Progress("waiting for the cloud")()
		r.Exchange, err = Do(ctx, client, &Request{Provider: injected, Token: text, Endpoint: k.endpoint, Scope: k.scope})
		if err != nil {
			return err
		}
	}
	return command.FoundIf(r.Exchange != nil && !r.Exchange.Granted, k.Write(k.CLI, r))
}

// injectedFor returns the injection for a provider into the pods of a ServiceAccount.
func injectedFor(ctx context.Context, c *command.CLI, keys *annotations.Keys, namespace, serviceAccount, name string) (provider.Provider, error) {
	client, err := c.Probe()
	if err != nil {
		return provider.Provider{}, err
	}
	answer := client.Create(ctx, namespace, probe.Pod(keys, serviceAccount))
	if answer.Err != nil {
		return provider.Provider{}, answer.Err
	}
	if _, err := probe.Injected(answer.Pod, keys); err != nil {
		return provider.Provider{}, err
	}
	pod, err := injected.Read(answer.Pod.Object, keys)
	if err != nil {
		return provider.Provider{}, err
	}
	return FromPod(pod, keys, name)
}

// requestToken returns a new token of a ServiceAccount.
func requestToken(ctx context.Context, client kubernetes.Interface, namespace, name string, t provider.Token) (string, error) {
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: []string{t.Audience}, ExpirationSeconds: &t.ExpirationSeconds}}
	response, err := client.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, name, request, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("request a token of serviceaccount %s/%s: %w", namespace, name, err)
	}
	return response.Status.Token, nil
}

func (r *tokenResult) Print(p *command.Page) {
	c := r.Claims
	p.Line("%s", p.Style(command.Title, "token of serviceaccount "+r.Namespace+"/"+r.ServiceAccount))
	p.Table(2, [][]string{
		{"issuer", c.Issuer},
		{"subject", c.Subject},
		{"audience", strings.Join(c.Audience, ", ")},
		{"key", c.KeyID + " (" + c.Algorithm + ")"},
		{"issued", c.IssuedAt.Format(time.RFC3339)},
		{"expires", c.Expires.Format(time.RFC3339) + ", after " + c.Expires.Sub(c.IssuedAt).String()},
	})
	if r.Exchange == nil {
		return
	}
	a := r.Exchange
	p.Line("")
	p.Text(0, command.Title, a.Operation+" at "+a.URL)
	if a.Granted {
		p.Marked(command.Good, "the cloud accepts the token")
		p.Table(4, [][]string{{"identity", a.Identity}, {"expires", a.Expires.Format(time.RFC3339)}})
		return
	}
	p.Marked(command.Bad, fmt.Sprintf("the cloud denies the token: %s (status %d)", a.Code, a.Status))
	p.Text(4, "", a.Message)
}
