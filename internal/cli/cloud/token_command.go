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
	"github.com/spf13/pflag"

	"github.com/lanyard-dev/lanyard/internal/cli/command"
	"github.com/lanyard-dev/lanyard/internal/provider"
	"github.com/lanyard-dev/lanyard/internal/token"
)

// tokenCommand holds the flags of token.
type tokenCommand struct {
	*command.CLI
	command.Output
	receiver      string
	raw, exchange bool
	endpoint      string
	caFile        string
	scope         string
	duration      time.Duration
}

// NewTokenCommand returns the command token.
func NewTokenCommand(c *command.CLI) *cobra.Command {
	k := &tokenCommand{CLI: c}
	cmd := command.New(help("token"), cobra.RangeArgs(1, 2), func(cmd *cobra.Command, args []string) error { return k.run(cmd.Context(), args) })
	cmd.ValidArgsFunction = c.CompleteServiceAccounts()
	k.Output.AddFlag(cmd, "Token")
	c.AddConfig(cmd)
	c.AddOverrides(cmd)
	fs := cmd.Flags()
	fs.StringVar(&k.receiver, "for", "", "Who the token is for: aws, azure, gcp, a custom provider, or an audience.")
	fs.BoolVar(&k.raw, "raw", false, "Write the token, and nothing else.")
	fs.BoolVar(&k.exchange, "exchange", false, "Present the token to the cloud.")
	AddEndpoint(fs, &k.endpoint, &k.caFile)
	fs.StringVar(&k.scope, "scope", "", "With --exchange and --for azure: the scope to ask for. Defaults to the scope of Azure Resource Manager.")
	fs.DurationVar(&k.duration, "duration", 0, "Lifetime of the token. Defaults to the lifetime of the tokens in pods.")
	// The error is for a flag that does not exist.
	_ = cmd.RegisterFlagCompletionFunc("for", cobra.FixedCompletions(clouds(), cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// AddEndpoint adds the flags that send tokens to another place than the cloud. They are
// for tests and for private endpoints, so no help text shows them.
func AddEndpoint(fs *pflag.FlagSet, endpoint, caFile *string) {
	fs.StringVar(endpoint, "endpoint", "", "With --exchange: the scheme and host to use in place of the cloud's, such as https://sts.example.com.")
	fs.StringVar(caFile, "ca-file", "", "With --exchange: PEM file with the CA of the cloud's certificate. Defaults to the CAs of the system.")
	for _, name := range []string{"endpoint", "ca-file"} {
		_ = fs.MarkHidden(name) // the error is for a flag that does not exist
	}
}

// tokenResult is the output of token.
type tokenResult struct {
	Namespace      string        `json:"namespace"`
	ServiceAccount string        `json:"serviceAccount"`
	Claims         *token.Claims `json:"claims"`
	// Exchange has the cloud's response for each identity: of the ServiceAccount, and of its
	// profiles.
	Exchange []*Answer `json:"exchange,omitempty"`
	// InPod is the command that exchanges the token in a pod.
	InPod string `json:"inPod,omitempty"`
}

func (k *tokenCommand) run(ctx context.Context, args []string) error {
	name, err := serviceAccountName(k.CLI, args)
	if err != nil {
		return err
	}
	switch isCloud := slices.Contains(clouds(), k.receiver); {
	case k.receiver == "":
		return command.Usagef("--for is missing: set it to aws, azure, gcp, a custom provider or an audience")
	case k.raw && k.exchange:
		return command.Usagef("--raw cannot be used with --exchange")
	case k.exchange && !isCloud:
		return command.Usagef("--exchange: lanyard cannot exchange tokens for %q, only for aws, azure and gcp", k.receiver)
	case !k.exchange && (k.endpoint != "" || k.caFile != "" || k.scope != ""):
		return command.Usagef("--endpoint, --ca-file and --scope need --exchange")
	}
	namespace, err := k.Namespace()
	if err != nil {
		return err
	}
	read, err := newReader(ctx, k.CLI, false)
	if err != nil {
		return err
	}
	r, err := k.request(ctx, read, namespace, name)
	if err != nil {
		return err
	}
	if k.duration != 0 {
		r.ExpirationSeconds = int64(k.duration.Seconds())
	}
	if r.Token, err = requestToken(ctx, read.client, namespace, name, r.Audience, r.ExpirationSeconds); err != nil {
		return err
	}
	if k.raw {
		page := command.NewPage(k.Out)
		page.Line("%s", r.Token)
		return page.Err
	}
	result := &tokenResult{Namespace: namespace, ServiceAccount: name}
	if result.Claims, err = token.Parse(r.Token); err == nil && k.exchange {
		err = k.present(ctx, r, result)
	}
	if err != nil {
		return err
	}
	denied := slices.ContainsFunc(result.Exchange, func(a *Answer) bool { return !a.Granted })
	return command.FoundIf(denied, k.Write(k.CLI, result))
}

// request returns the Request for the receiver: of the ServiceAccount's pods, or only with an
// audience.
func (k *tokenCommand) request(ctx context.Context, read *reader, namespace, name string) (*Request, error) {
	if !slices.ContainsFunc(read.settings.Keys.Providers, func(d *provider.Definition) bool { return d.Name == k.receiver && !d.Plain() }) {
		return &Request{Audience: k.receiver, ExpirationSeconds: read.settings.Defaults.TokenExpirationSeconds}, nil
	}
	serviceAccount, err := read.serviceAccount(ctx, namespace, name)
	if err != nil {
		return nil, err
	}
	pod, err := read.pod(ctx, command.ReadNamespace(ctx, read.client, namespace), serviceAccount)
	if err == nil && !slices.Contains(pod.Providers, k.receiver) {
		err = fmt.Errorf("they get no token for %s; %s explain serviceaccount %s --namespace %s shows why", k.receiver, k.Name, name, namespace)
	}
	if err != nil {
		return nil, fmt.Errorf("pods of serviceaccount %s/%s: %w", namespace, name, err)
	}
	return read.request(pod, serviceAccount, k.receiver)
}

// present adds the responses of the cloud to the result. Profiles that are assumed with
// the credentials of another profile are left out.
func (k *tokenCommand) present(ctx context.Context, r *Request, result *tokenResult) error {
	client, err := NewClient(k.caFile)
	if err != nil {
		return err
	}
	defer k.Progress("waiting for the cloud")()
	r.Endpoint, r.Scope = k.endpoint, k.scope
	for _, one := range r.identities() {
		if one.Source != "" {
			continue
		}
		answer, err := Do(ctx, client, one)
		if err != nil {
			return err
		}
		result.Exchange = append(result.Exchange, answer)
	}
	result.InPod = r.inPod()
	return nil
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
	for _, a := range r.Exchange {
		a.print(p)
	}
	if len(r.Exchange) > 0 {
		p.Line("")
		p.Text(0, "", "Note: "+notFromAPod+".")
		if r.InPod != "" {
			p.Text(0, "", "This exchanges a token from inside a pod:")
			p.Lines(r.InPod)
		}
	}
}

// print writes the response to the token, or to the token for a profile.
func (a *Answer) print(p *command.Page) {
	p.Line("")
	title := a.Operation + " at " + a.URL
	if a.Profile != "" {
		title += ", profile " + a.Profile
	}
	p.Text(0, command.Title, title)
	if a.Granted {
		p.Marked(command.Good, "the cloud accepts the token")
		p.Table(4, [][]string{{"identity", a.Identity}, {"expires", a.Expires.Format(time.RFC3339)}})
		return
	}
	p.Marked(command.Bad, fmt.Sprintf("the cloud denies the token: %s (status %d)", a.Code, a.Status))
	p.Text(4, "", a.Message)
	if a.Cause != "" {
		p.Text(4, "", "Cause: "+a.Cause)
	}
	if a.Repair != "" {
		p.Line("")
		p.Lines(a.Repair)
	}
}
