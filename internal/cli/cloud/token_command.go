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
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/lanyard-dev/lanyard/internal/cli/ask"
	"github.com/lanyard-dev/lanyard/internal/cli/command"
	"github.com/lanyard-dev/lanyard/internal/provider"
	"github.com/lanyard-dev/lanyard/internal/settings"
	"github.com/lanyard-dev/lanyard/internal/token"
)

const tokenHelp = `token requests a token of a ServiceAccount from the API server and shows its
claims: the issuer, the subject and the audience that a cloud compares with its
trust. For aws, azure, gcp and the custom providers of the cluster, the token
has the audience and the lifetime of the tokens in the ServiceAccount's pods,
according to a dry run of a pod. Any other value of --for is an audience.

With --exchange, token presents the token to the cloud from this machine, as the
SDK in a pod would, with the same identity and region, and shows the cloud's
response. The exit code is 1 if the cloud denies it. The network of a pod may
differ; the output has the command that asks from inside a pod. The credential
of the cloud is never shown. check --exchange does this for all ServiceAccounts.

The token itself is only written with --raw. Anyone with the token can act as
the ServiceAccount until it expires.`

const tokenExamples = `  # Show the claims of a token for AWS
  lanyard token cart --namespace shop --for aws

  # Does Azure accept it?
  lanyard token cart --namespace shop --for azure --exchange

  # Write a token for another service
  lanyard token cart --namespace shop --for vault --raw > token`

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
	cmd := &cobra.Command{
		Use:               "token NAME --for aws|azure|gcp|PROVIDER|AUDIENCE",
		Short:             "Show a token of a ServiceAccount, and a cloud's response to it.",
		Long:              tokenHelp,
		Example:           tokenExamples,
		Args:              cobra.RangeArgs(1, 2),
		ValidArgsFunction: c.CompleteServiceAccounts(),
		RunE:              func(cmd *cobra.Command, args []string) error { return k.run(cmd.Context(), args) },
	}
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
	_ = cmd.RegisterFlagCompletionFunc("for", cobra.FixedCompletions(clouds, cobra.ShellCompDirectiveNoFileComp))
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

// clouds are the providers that exchange tokens.
var clouds = []string{"aws", "azure", "gcp"}

// cloudNames are their names for people.
var cloudNames = map[string]string{"aws": "AWS", "azure": "Azure", "gcp": "Google Cloud"}

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
	switch isCloud := slices.Contains(clouds, k.receiver); {
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
	s, err := k.Settings(ctx)
	if err != nil {
		return err
	}
	client, _, err := k.Clients()
	if err != nil {
		return err
	}
	p := provider.Provider{Token: provider.Token{Audience: k.receiver, ExpirationSeconds: s.Defaults.TokenExpirationSeconds}}
	if slices.ContainsFunc(s.Keys.Providers, func(d *provider.Definition) bool { return d.Name == k.receiver && !d.Plain() }) {
		if p, err = k.injectedFor(ctx, client, s, namespace, name); err != nil {
			return fmt.Errorf("pods of serviceaccount %s/%s: %w", namespace, name, err)
		}
	}
	if k.duration != 0 {
		p.Token.ExpirationSeconds = int64(k.duration.Seconds())
	}
	text, err := requestToken(ctx, client, namespace, name, p.Token)
	if err != nil {
		return err
	}
	if k.raw {
		page := command.NewPage(k.Out)
		page.Line("%s", text)
		return page.Err
	}
	r := &tokenResult{Namespace: namespace, ServiceAccount: name}
	if r.Claims, err = token.Parse(text); err == nil && k.exchange {
		err = k.present(ctx, r, requests(p, text), s.Keys.Prefix)
	}
	if err != nil {
		return err
	}
	denied := slices.ContainsFunc(r.Exchange, func(a *Answer) bool { return !a.Granted })
	return command.FoundIf(denied, k.Write(k.CLI, r))
}

// present adds the responses of the cloud to the result. Profiles that are assumed with
// the credentials of another profile are left out.
func (k *tokenCommand) present(ctx context.Context, r *tokenResult, all []*Request, prefix string) error {
	client, err := NewClient(k.caFile)
	if err != nil {
		return err
	}
	defer k.Progress("waiting for the cloud")()
	for _, request := range all {
		if request.Source != "" {
			continue
		}
		request.Endpoint, request.Scope = k.endpoint, k.scope
		answer, err := Do(ctx, client, request)
		if err != nil {
			return err
		}
		answer.explain(request, r.Namespace, r.ServiceAccount, prefix)
		r.Exchange = append(r.Exchange, answer)
	}
	r.InPod = inPod(all[0], r.Namespace, r.ServiceAccount)
	return nil
}

// injectedFor returns the injection for the receiver into the pods of a ServiceAccount.
func (k *tokenCommand) injectedFor(ctx context.Context, client kubernetes.Interface, s *settings.Settings, namespace, name string) (provider.Provider, error) {
	var none provider.Provider
	serviceAccount, err := client.CoreV1().ServiceAccounts(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return none, err
	}
	config, err := k.Config()
	if err != nil {
		return none, err
	}
	asker, err := ask.New(config, s, ask.Options{Unread: k.Webhook.Unread})
	if err != nil {
		return none, err
	}
	pod, err := podOf(ctx, k.CLI, asker, s, command.ReadNamespace(ctx, client, namespace), &serviceAccount.ObjectMeta)
	if err != nil {
		return none, err
	}
	if !slices.Contains(pod.Providers, k.receiver) {
		return none, fmt.Errorf("they get no token for %s; %s explain serviceaccount %s --namespace %s shows why", k.receiver, k.Name, name, namespace)
	}
	return FromPod(pod, s.Keys, k.receiver)
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
