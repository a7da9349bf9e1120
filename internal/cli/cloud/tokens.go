// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/lanyard-dev/lanyard/internal/cli/command"
	"github.com/lanyard-dev/lanyard/internal/cli/workload"
	"github.com/lanyard-dev/lanyard/internal/exchange"
	"github.com/lanyard-dev/lanyard/internal/finding"
	"github.com/lanyard-dev/lanyard/internal/texts"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/pkg/mutate/injected"
)

// Bounds of Exchange.
const (
	maxServiceAccounts = 1000
	maxExchanges       = 8 // at the same time
	maxDuration        = 5 * time.Minute
)

// Target selects the tokens and clouds of Exchange.
type Target struct {
	// Namespace is empty for all namespaces, and ServiceAccount for all ServiceAccounts that
	// ask for an identity.
	Namespace, ServiceAccount string
	// Endpoint is Request.Endpoint.
	Endpoint string
	// Client sends the requests to the clouds.
	Client *http.Client

	*reader
}

// Exchange presents a token of each ServiceAccount to its clouds from this machine, and
// returns a finding for each: accepted, denied with the cause and its repair, or skipped. No
// finding contains a token or a credential.
func (x *Target) Exchange(ctx context.Context, c *command.CLI) (lines []finding.Finding, err error) {
	ctx, cancel := context.WithTimeout(ctx, maxDuration)
	defer cancel()
	if x.reader, err = newReader(ctx, c, true); err != nil {
		return nil, err
	}
	all, omitted, err := x.selected(ctx)
	switch {
	case err != nil:
		return nil, err
	case len(all) == 0:
		return []finding.Finding{finding.DoesNotApply("no ServiceAccount asks for an identity")}, nil
	}
	lines, inPod := x.exchangeAll(ctx, all)
	if omitted > 0 {
		lines = append(lines, finding.Skip("", "Check one namespace at a time, with --namespace.", "", "the tokens of %s were not exchanged", texts.Count(omitted, "more ServiceAccount")))
	}
	last := finding.DoesNotApply("%s", notFromAPod)
	last.Link = finding.Page("troubleshooting/no-credentials.md#from-inside-a-pod")
	if inPod != "" {
		last.Fix = "Exchange a token from inside a pod:\n" + strings.TrimSuffix(inPod, "\n")
	}
	return append(lines, last), nil
}

// selected returns the metadata of the ServiceAccounts, and the number of those above the limit.
func (x *Target) selected(ctx context.Context) (all []*metav1.ObjectMeta, omitted int, err error) {
	if x.ServiceAccount != "" {
		one, err := readServiceAccount(ctx, x.client, x.Namespace, x.ServiceAccount)
		return []*metav1.ObjectMeta{one}, 0, err
	}
	err = x.EachServiceAccount(ctx, x.Namespace, func(object *metav1.PartialObjectMetadata) error {
		switch _, labelled := object.Labels[annotations.IdentityLabel]; {
		case !labelled && !x.settings.AskForIdentity(object.Annotations):
		case len(all) == maxServiceAccounts:
			omitted++
		default:
			all = append(all, &object.ObjectMeta)
		}
		return nil
	})
	return all, omitted, err
}

// exchangeAll returns the findings about the ServiceAccounts, in their order, and a command
// that exchanges a token inside a pod, for the first one with a cloud.
func (x *Target) exchangeAll(ctx context.Context, all []*metav1.ObjectMeta) ([]finding.Finding, string) {
	lines, inPod := make([][]finding.Finding, len(all)), make([]string, len(all))
	var group errgroup.Group
	group.SetLimit(maxExchanges)
	report, done := x.Periodically(), 0
	var mu sync.Mutex
	namespace := &metav1.ObjectMeta{}
	for i, serviceAccount := range all { // by namespace
		if namespace.Name != serviceAccount.Namespace {
			namespace = command.ReadNamespace(ctx, x.client, serviceAccount.Namespace)
		}
		current := namespace
		group.Go(func() error {
			lines[i], inPod[i] = x.exchange(ctx, current, serviceAccount)
			mu.Lock()
			defer mu.Unlock()
			done++
			report("exchanged the tokens of %d of %d ServiceAccounts ...", done, len(all))
			return nil
		})
	}
	_ = group.Wait() // no function returns an error
	return slices.Concat(lines...), cmp.Or(inPod...)
}

// exchange returns a line for each identity of a ServiceAccount, and the command for a pod.
func (x *Target) exchange(ctx context.Context, namespace, serviceAccount *metav1.ObjectMeta) (lines []finding.Finding, inPod string) {
	who := serviceAccount.Namespace + "/" + serviceAccount.Name
	pod, err := x.pod(ctx, namespace, serviceAccount)
	denial, denied := errors.AsType[*workload.Denial](err)
	switch {
	case denied:
		return []finding.Finding{finding.Fail("", "For the fix: lanyard explain serviceaccount "+serviceAccount.Name+" --namespace "+serviceAccount.Namespace,
			"troubleshooting/pods-denied.md", "%s: new pods are denied: %s", who, denial.Message)}, ""
	case err != nil:
		return []finding.Finding{unknown("the identity of "+who, err)}, ""
	case len(pod.Providers) == 0:
		return []finding.Finding{finding.DoesNotApply("%s: its pods get no token", who)}, ""
	}
	for _, name := range pod.Providers {
		cloud, exchanges := exchange.Clouds()[name]
		if !exchanges {
			lines = append(lines, finding.DoesNotApply("%s: lanyard cannot exchange tokens for %s", who, name))
			continue
		}
		r, err := FromPod(pod, x.settings, serviceAccount, name)
		switch {
		case err != nil:
			lines = append(lines, unknown("the identity of "+who, err))
		case cloud.Identity != "" && r.Variables[cloud.Identity] == "":
			lines = append(lines, finding.DoesNotApply("%s: its pods get a token for %s, but no identity", who, cloud.Title))
		default:
			lines = append(lines, x.present(ctx, r, who, cloud.Title)...)
			inPod = cmp.Or(inPod, commands(r, outputShell, partPod))
		}
	}
	return lines, inPod
}

// present presents a new token, for each identity of the Request.
func (x *Target) present(ctx context.Context, r *exchange.Request, who, title string) []finding.Finding {
	if err := requestToken(ctx, x.client, r); err != nil {
		return []finding.Finding{unknown("a token of "+who, err)}
	}
	r.Endpoint = x.Endpoint
	var lines []finding.Finding
	for _, one := range r.Identities() {
		subject := who + ": " + title
		if one.Profile != "" {
			subject += ", profile " + one.Profile
		}
		if one.Source != "" {
			lines = append(lines, finding.DoesNotApply("%s needs the credentials of the profile %s in place of a token", subject, one.Source))
			continue
		}
		answer, err := Do(ctx, x.Client, one)
		lines = append(lines, lineOf(subject, answer, err))
	}
	return lines
}

func lineOf(subject string, a *exchange.Answer, err error) finding.Finding {
	switch {
	case err != nil:
		return unknown(subject, err)
	case a.Granted:
		return finding.Passed("%s accepts the token, as %s", subject, a.Identity)
	}
	fix := "Look for the error on the page."
	if a.Cause != "" {
		fix = "Cause: " + a.Cause
	}
	if a.Repair != "" {
		fix += "\n" + strings.TrimSuffix(a.Repair, "\n")
	}
	return finding.Fail("", fix, "troubleshooting/cloud-denies.md", "%s denies the token: %s: %s", subject, a.Code, a.Message)
}

// unknown returns the finding for a check that could not run, with the missing right, if any.
func unknown(what string, err error) finding.Finding {
	if right := finding.LackedRight(err); right != "" {
		return finding.Skip(finding.MissingRight, "Ask an administrator for the right.", "", "%s: not known: you may not %s", what, right)
	}
	fix := "Try again. If the error persists, look at the program that returned it."
	if _, isNet := errors.AsType[net.Error](err); isNet {
		fix = "Check the network, the proxy and the DNS of this machine."
	}
	return finding.Skip("", fix, "", "%s: not known: %v", what, err)
}

// notFromAPod is a limitation of every exchange.
const notFromAPod = "this machine asked the cloud. The network of a pod may differ: NetworkPolicies, proxies, private endpoints and DNS"

// reader reads ServiceAccounts and requests their tokens. It may be used concurrently.
type reader struct {
	*command.CLI
	settings *annotations.Settings
	client   kubernetes.Interface
	asker    *workload.Asker
}

// newReader returns a reader. With evaluate, the reader evaluates the rules of the webhook
// instead of sending dry runs, unless the settings are unknown.
func newReader(ctx context.Context, c *command.CLI, evaluate bool) (*reader, error) {
	s, err := c.Settings(ctx)
	if err != nil {
		return nil, err
	}
	client, _, err := c.Clients()
	if err != nil {
		return nil, err
	}
	config, err := c.Config()
	if err != nil {
		return nil, err
	}
	asker, err := workload.NewAsker(config, s, workload.Options{NoDryRun: evaluate && c.Webhook.Unread == nil, Unread: c.Webhook.Unread})
	return &reader{CLI: c, settings: s, client: client, asker: asker}, err
}

func readServiceAccount(ctx context.Context, client kubernetes.Interface, namespace, name string) (*metav1.ObjectMeta, error) {
	found, err := client.CoreV1().ServiceAccounts(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("get serviceaccount %s/%s: %w", namespace, name, err)
	}
	return &found.ObjectMeta, nil
}

// pod returns the injection into a new pod of a ServiceAccount. The error is an
// *workload.Denial if no pod would be created.
func (r *reader) pod(ctx context.Context, namespace, serviceAccount *metav1.ObjectMeta) (*injected.Pod, error) {
	answer := r.asker.Ask(ctx, namespace, serviceAccount, r.ProbePod(serviceAccount.Name))
	if err := answer.Problem(); err != nil {
		return nil, err
	}
	return injected.Read(answer.Pod.Object, r.settings)
}

func requestToken(ctx context.Context, client kubernetes.Interface, r *exchange.Request) error {
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: []string{r.Audience}, ExpirationSeconds: &r.ExpirationSeconds}}
	response, err := client.CoreV1().ServiceAccounts(r.Namespace).CreateToken(ctx, r.ServiceAccount, request, metav1.CreateOptions{})
	if right := finding.LackedRight(err); right != "" {
		err = fmt.Errorf("%w; ask an administrator for the right to %s", err, right)
	}
	if err != nil {
		return fmt.Errorf("request a token of serviceaccount %s/%s: %w", r.Namespace, r.ServiceAccount, err)
	}
	r.Token = response.Status.Token
	return nil
}

type tokenCommand struct {
	*command.CLI
	command.Output
	cmd                               *cobra.Command
	raw, exchange                     bool
	receiver, endpoint, caFile, scope string
	duration                          time.Duration
}

// NewTokenCommand returns the command token.
func NewTokenCommand(c *command.CLI) *cobra.Command {
	k := &tokenCommand{CLI: c}
	cmd := command.New(help("token"), cobra.ArbitraryArgs, func(cmd *cobra.Command, args []string) error { return k.run(cmd.Context(), args) })
	k.cmd = cmd
	cmd.ValidArgsFunction = c.CompleteServiceAccounts()
	k.Output.AddFlag(cmd, "Token")
	c.AddConfig(cmd)
	c.AddOverrides(cmd)
	fs := cmd.Flags()
	fs.StringVar(&k.receiver, "for", "", "Receiver of the token: aws, azure, gcp, a custom provider, or an audience.")
	fs.BoolVar(&k.raw, "raw", false, "Print only the token.")
	fs.BoolVar(&k.exchange, "exchange", false, "Present the token to the cloud.")
	AddEndpoint(fs, &k.endpoint, &k.caFile)
	fs.StringVar(&k.scope, "scope", "", "With --exchange and --for azure: the scope to ask for. Defaults to the scope of Azure Resource Manager.")
	fs.DurationVar(&k.duration, "duration", 0, "Lifetime of the token. Defaults to the lifetime of the tokens in pods.")
	// The error is for a flag that does not exist.
	_ = cmd.RegisterFlagCompletionFunc("for", cobra.FixedCompletions(clouds(), cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// AddEndpoint adds the hidden flags that send tokens to another endpoint, for tests and
// private endpoints.
func AddEndpoint(fs *pflag.FlagSet, endpoint, caFile *string) {
	fs.StringVar(endpoint, "endpoint", "", "With --exchange: scheme and host to use instead of the cloud's, such as https://sts.example.com.")
	fs.StringVar(caFile, "ca-file", "", "With --exchange: PEM file with the CA of the cloud's certificate. Defaults to the CAs of the system.")
	for _, name := range []string{"endpoint", "ca-file"} {
		_ = fs.MarkHidden(name) // the error is for a flag that does not exist
	}
}

// tokenResults are the tokens of several ServiceAccounts.
type tokenResults struct {
	Tokens []*tokenResult `json:"tokens"`
}

type tokenResult struct {
	Namespace      string           `json:"namespace"`
	ServiceAccount string           `json:"serviceAccount"`
	Claims         *exchange.Claims `json:"claims"`
	// Exchange contains the cloud's response for the identity of the ServiceAccount and for
	// each profile.
	Exchange []*exchange.Answer `json:"exchange,omitempty"`
	// InPod is the command that exchanges the token in a pod.
	InPod string `json:"inPod,omitempty"`
}

func (k *tokenCommand) run(ctx context.Context, args []string) error {
	names, err := ServiceAccountNames(k.cmd, args)
	if err == nil {
		err = k.check(names)
	}
	if err != nil {
		return err
	}
	namespace, err := k.Namespace()
	if err != nil {
		return err
	}
	read, err := newReader(ctx, k.CLI, false)
	if err != nil {
		return err
	}
	all := &tokenResults{}
	var errs []error
	denied := false
	for _, name := range names {
		result, err := k.token(ctx, read, namespace, name)
		switch {
		case err != nil:
			errs = append(errs, err)
		case result != nil:
			all.Tokens = append(all.Tokens, result)
			denied = denied || slices.ContainsFunc(result.Exchange, func(a *exchange.Answer) bool { return !a.Granted })
		}
	}
	if len(names) == 1 && len(all.Tokens) == 1 {
		errs = append(errs, k.Write(k.CLI, all.Tokens[0]))
	} else if len(all.Tokens) > 0 {
		errs = append(errs, k.Write(k.CLI, all))
	}
	return command.FoundIf(denied, errors.Join(errs...))
}

// check returns an error for flags and arguments that cannot be combined.
func (k *tokenCommand) check(names []string) error {
	switch isCloud := slices.Contains(clouds(), k.receiver); {
	case k.receiver == "":
		return command.Usagef("--for is missing: set it to aws, azure, gcp, a custom provider or an audience")
	case k.raw && (k.exchange || k.Format != command.OutputTable):
		return command.Usagef("--raw cannot be used with --exchange or --output")
	case k.raw && len(names) > 1:
		return command.Usagef("--raw: got %d ServiceAccounts, want one: nothing would separate their tokens", len(names))
	case k.exchange && !isCloud:
		return command.Usagef("--exchange: lanyard cannot exchange tokens for %q, only for aws, azure and gcp", k.receiver)
	case !k.exchange && (k.endpoint != "" || k.caFile != "" || k.scope != ""):
		return command.Usagef("--endpoint, --ca-file and --scope need --exchange")
	case k.scope != "" && k.receiver != "azure":
		return command.Usagef("--scope is for azure, not for %s", k.receiver)
	}
	return nil
}

// token returns the claims of a ServiceAccount's token, and the responses of the cloud. With --raw,
// it writes the token instead, and returns nil.
func (k *tokenCommand) token(ctx context.Context, read *reader, namespace, name string) (*tokenResult, error) {
	r, err := k.request(ctx, read, namespace, name)
	if err != nil {
		return nil, err
	}
	if k.duration != 0 {
		r.ExpirationSeconds = int64(k.duration.Seconds())
	}
	if err := requestToken(ctx, read.client, r); err != nil {
		return nil, err
	}
	if k.raw {
		page := command.NewPage(k.Out)
		page.Line("%s", r.Token)
		return nil, page.Err
	}
	result := &tokenResult{Namespace: namespace, ServiceAccount: name}
	if result.Claims, err = exchange.ParseToken(r.Token); err == nil && k.exchange {
		err = k.present(ctx, r, result)
	}
	return result, err
}

// request returns the Request for the receiver, as in the ServiceAccount's pods, or only with
// an audience.
func (k *tokenCommand) request(ctx context.Context, read *reader, namespace, name string) (*exchange.Request, error) {
	i := slices.IndexFunc(read.settings.Providers, func(d *annotations.Provider) bool { return strings.EqualFold(d.Name, k.receiver) && !d.Plain() })
	if i >= 0 && read.settings.Providers[i].Name != k.receiver {
		k.Note("warning: %s is an audience; the name of the provider is %s", k.receiver, read.settings.Providers[i].Name)
		i = -1
	}
	if i < 0 {
		return &exchange.Request{Namespace: namespace, ServiceAccount: name, Audience: k.receiver, ExpirationSeconds: read.settings.TokenExpirationSeconds}, nil
	}
	serviceAccount, err := readServiceAccount(ctx, read.client, namespace, name)
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
	return FromPod(pod, read.settings, serviceAccount, k.receiver)
}

// present adds the responses of the cloud to the result. It skips profiles with a source
// profile.
func (k *tokenCommand) present(ctx context.Context, r *exchange.Request, result *tokenResult) error {
	client, err := exchange.NewClient(k.caFile)
	if err != nil {
		return err
	}
	client = k.Progress(client)
	r.Endpoint, r.Scope = k.endpoint, k.scope
	for _, one := range r.Identities() {
		if one.Source != "" {
			continue
		}
		answer, err := Do(ctx, client, one)
		if _, noResponse := errors.AsType[*url.Error](err); noResponse {
			return fmt.Errorf("%w; lanyard asks the cloud from this machine, directly or through HTTPS_PROXY, and --ca-file names another CA", err)
		}
		if err != nil {
			return err
		}
		result.Exchange = append(result.Exchange, answer)
	}
	result.InPod = commands(r, outputShell, partPod)
	return nil
}

// Print prints the tokens one after the other.
func (r *tokenResults) Print(p *command.Page) {
	for i, one := range r.Tokens {
		if i > 0 {
			p.Line("")
		}
		one.Print(p)
	}
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
		printAnswer(p, a)
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

func printAnswer(p *command.Page, a *exchange.Answer) {
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
