// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package command contains what all commands share: streams, flags that select the cluster,
// clients, settings of the webhook, errors, and output for people and programs.
package command

import (
	"context"
	_ "embed" // the text of options
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/klog/v2"

	"github.com/lanyard-dev/lanyard/internal/cli/cluster"
	"github.com/lanyard-dev/lanyard/internal/finding"
	"github.com/lanyard-dev/lanyard/internal/options"
	"github.com/lanyard-dev/lanyard/internal/peer"
	"github.com/lanyard-dev/lanyard/internal/probe"
	"github.com/lanyard-dev/lanyard/internal/version"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

// CLI contains the state that all commands share.
type CLI struct {
	genericiooptions.IOStreams
	// Name is how the user calls the program: lanyard, or kubectl lanyard.
	Name  string
	Flags *genericclioptions.ConfigFlags
	// ConfigPath is the webhook's configuration file. If empty, it is read from the cluster.
	ConfigPath string
	// Webhook contains the settings of the webhook once they have been read. unread is the
	// error because of which they are the built-in defaults, and noted reports whether the
	// user was warned.
	Webhook struct {
		settings *annotations.Settings
		Unread   error
		noted    bool
		// allowed are fields of the webhook's pods, which policies of the cluster allow.
		allowed map[string]any
	}
	survey *cluster.Survey
	// overrides are the fields of --overrides.
	overrides map[string]any
	// Started reports whether the command line was valid, so that errors are not about usage.
	Started bool
	// Private reports whether the command must not print names of the cluster.
	Private  bool
	progress *progress
}

// Rate limits of one client, the same as kubectl's for discovery. A command that sends more
// requests sets its own limits.
const (
	qps   = 50
	burst = 300
)

// NewCLI returns the defaults. A program whose name starts with kubectl- is a
// plugin of kubectl.
func NewCLI(program string, streams genericiooptions.IOStreams) *CLI {
	p := &progress{told: map[string]bool{}}
	streams.Out, streams.ErrOut = stream{streams.Out, p}, stream{streams.ErrOut, p}
	c := &CLI{
		IOStreams: streams,
		Name:      "lanyard",
		progress:  p,
		Flags:     genericclioptions.NewConfigFlags(true).WithDiscoveryQPS(qps).WithDiscoveryBurst(burst),
	}
	if strings.HasPrefix(filepath.Base(program), "kubectl-") {
		c.Name = "kubectl lanyard"
	}
	// Warnings of the API server go to the error stream, once.
	c.Flags.WrapConfigFn = func(config *rest.Config) *rest.Config {
		config.QPS, config.Burst = qps, burst
		config.UserAgent = "lanyard/" + version.Version()
		config.WarningHandler = rest.NewWarningWriter(notes{c}, rest.WarningWriterOptions{Deduplicate: true})
		if c.hasNoCluster(config) {
			config.Wrap(func(http.RoundTripper) http.RoundTripper { return noCluster{} })
		}
		config.Wrap(func(next http.RoundTripper) http.RoundTripper { return patient{next, c, c.apiServer()} })
		return config
	}
	return c
}

// errNoCluster is returned by a command that needs a cluster if nothing selects one.
var errNoCluster = errors.New("no kubeconfig: name a file with --kubeconfig or KUBECONFIG")

// noCluster is a transport that fails each request.
type noCluster struct{}

// RoundTrip implements http.RoundTripper.
func (noCluster) RoundTrip(*http.Request) (*http.Response, error) { return nil, errNoCluster }

// hasNoCluster reports whether the configuration is client-go's default: an API server
// without TLS on this machine.
func (c *CLI) hasNoCluster(config *rest.Config) bool {
	raw, err := c.Flags.ToRawKubeConfigLoader().RawConfig()
	return err == nil && api.IsConfigEmpty(&raw) && *c.Flags.APIServer == "" && strings.HasSuffix(config.Host, "localhost:8080")
}

// Usage returns the function that prints the usage of a command: cobra's, without the flags
// of all commands, which options lists.
func (c *CLI) Usage(standard func(*cobra.Command) error) func(*cobra.Command) error {
	return func(cmd *cobra.Command) error {
		global := cmd.Root().PersistentFlags()
		global.VisitAll(func(flag *pflag.Flag) { flag.Hidden = true })
		defer global.VisitAll(func(flag *pflag.Flag) { flag.Hidden = false })
		out := cmd.OutOrStderr()
		var text strings.Builder
		cmd.SetOut(&text)
		err := standard(cmd)
		cmd.SetOut(out)
		if err != nil {
			return err
		}
		p := NewPage(c.Out) // for a help text, out is a buffer
		p.W = out
		p.flags(text.String())
		p.Line("Use %q for the flags of all commands, such as --namespace.", c.Name+" options")
		return p.Err
	}
}

//go:embed options.txt
var optionsText string

// NewOptionsCommand returns the command options.
func (c *CLI) NewOptionsCommand() *cobra.Command {
	return New(optionsText, NoArgs, func(cmd *cobra.Command, _ []string) error {
		p := NewPage(c.Out)
		p.flags(cmd.Root().PersistentFlags().FlagUsages())
		return p.Err
	})
}

// flags wraps the descriptions of flags to the terminal. pflag's own wrapping fails for words
// that are longer than the column.
func (p *Page) flags(usage string) {
	for line := range strings.SplitSeq(strings.TrimSuffix(usage, "\n"), "\n") {
		if match := flagLine.FindStringSubmatch(line); match != nil && p.Width > 0 {
			p.Line("%s", match[1])
			p.Text(10, "", match[2])
		} else {
			p.Line("%s", line)
		}
	}
}

// flagLine matches the line of a flag in cobra's usage: the flag with its type, and
// its description.
var flagLine = regexp.MustCompile(`^( +(?:-\w, )?--[\w-]+(?: \w+(?:\[[^ ]*\])?)?) {2,}(.*)$`)

// New returns a command from a text that contains the license, a line of usage, a line of
// description, an empty line, the help text and, after the line "Examples:", the examples.
func New(text string, args cobra.PositionalArgs, run func(cmd *cobra.Command, args []string) error) *cobra.Command {
	_, text, _ = strings.Cut(text, "\n\n")
	use, text, _ := strings.Cut(text, "\n")
	short, text, _ := strings.Cut(text, "\n\n")
	long, examples, _ := strings.Cut(strings.TrimSuffix(text, "\n"), "\n\nExamples:\n")
	return &cobra.Command{Use: use, Short: short, Long: long, Example: examples, Args: args, RunE: run}
}

// Finish completes a command and its subcommands: examples show the name that the user
// types, a command that only groups others lists them, and the value of a flag is not
// taken for an argument.
func (c *CLI) Finish(cmd *cobra.Command) {
	cmd.Example = strings.ReplaceAll(cmd.Example, "  lanyard ", "  "+c.Name+" ")
	if !cmd.Runnable() {
		cmd.SuggestionsMinimumDistance = 2 // cobra sets it only where it makes the error
		cmd.Args = cobra.ArbitraryArgs
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cmd.Help()
			}
			if similar := cmd.SuggestionsFor(args[0]); len(similar) > 0 {
				return Usagef("unknown command %q; did you mean %s?", args[0], strings.Join(similar, " or "))
			}
			return Usagef("unknown command %q", args[0])
		}
	}
	cmd.SetFlagErrorFunc(unknownFlag)
	takes := cmd.Args
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if err := misplaced(cmd, args); err != nil || takes == nil {
			return err
		}
		return takes(cmd, args)
	}
	for _, child := range cmd.Commands() {
		c.Finish(child)
	}
}

// apiServer returns what users call the API server.
func (c *CLI) apiServer() string {
	if name := *c.Flags.Context; name != "" {
		return "the API server of the context " + name
	}
	return "the API server"
}

// InContext returns a CLI for the cluster of another context of the kubeconfig.
func (c *CLI) InContext(name string) *CLI {
	other := NewCLI(c.Name, c.IOStreams)
	other.IOStreams, other.progress = c.IOStreams, c.progress
	other.Flags.KubeConfig, other.Flags.Context = c.Flags.KubeConfig, &name
	return other
}

// Namespace returns the namespace of --namespace or of the kubeconfig.
func (c *CLI) Namespace() (string, error) {
	namespace, _, err := c.Flags.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return "", fmt.Errorf("kubeconfig: %w", err)
	}
	return namespace, nil
}

// Config returns a configuration for clients. The caller may change it.
func (c *CLI) Config() (*rest.Config, error) {
	config, err := c.Flags.ToRESTConfig()
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	return config, nil
}

// Clients returns a client for the types of Kubernetes and one for any object.
func (c *CLI) Clients() (kubernetes.Interface, dynamic.Interface, error) {
	typed, err := newClient(c, kubernetes.NewForConfig)
	if err != nil {
		return nil, nil, err
	}
	untyped, err := newClient(c, dynamic.NewForConfig)
	return typed, untyped, err
}

// metadata returns a client for the metadata of any object.
func (c *CLI) metadata() (metadata.Interface, error) { return newClient(c, metadata.NewForConfig) }

// newClient makes a client from the configuration.
func newClient[C any](c *CLI, newFor func(*rest.Config) (C, error)) (client C, err error) {
	config, err := c.Config()
	if err != nil {
		return client, err
	}
	if client, err = newFor(config); err != nil {
		return client, fmt.Errorf("create Kubernetes client: %w", err)
	}
	return client, nil
}

// maxVerbosity is the highest verbosity of the log. From 8 on, client-go logs the bodies of
// requests and responses: tokens, and objects with Secrets.
const maxVerbosity = 7

// LogTo makes the libraries log up to a level of verbosity, such as 6 for each request. slog quotes
// text from the cluster in their messages. At 0, they log nothing, because the command prints the
// errors that they return.
func LogTo(w io.Writer, level int) error {
	if level <= 0 {
		return nil
	}
	level = min(level, maxVerbosity)
	klog.SetSlogLogger(slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.Level(-level)}))) // as klog.V(level)
	var flags flag.FlagSet
	klog.InitFlags(&flags)
	return flags.Set("v", strconv.Itoa(level))
}

// Exit codes of every command, as of kubectl diff.
const (
	// ExitOK means success.
	ExitOK = 0
	// ExitFound means that a command found a problem.
	ExitFound = 1
	// ExitFailed means that a command failed, or that the command line is invalid.
	ExitFailed = 2
)

// ErrFound ends a command with ExitFound. Exit prints no message for it, because the output
// contains the findings.
var ErrFound = errors.New("found a problem, see the output")

// FoundIf returns the error of a command: ErrFound if the command found a problem and had
// no other error.
func FoundIf(found bool, err error) error {
	if found && err == nil {
		return ErrFound
	}
	return err
}

// Found notes the finding of a command that has no output to show it, and returns ErrFound.
func (c *CLI) Found(format string, args ...any) error {
	c.Note("error: "+format, args...)
	return ErrFound
}

// UsageError is a mistake in the command line that cobra does not detect.
type UsageError struct{ error }

// Usagef returns a UsageError.
func Usagef(format string, args ...any) error { return UsageError{fmt.Errorf(format, args...)} }

// Exit prints the error of a command, if any, and returns the exit code. After a mistake in
// the command line, it refers to the --help of the command help.
func (c *CLI) Exit(err error, help string) int {
	_, isUsage := errors.AsType[UsageError](err)
	switch {
	case err == nil:
		return ExitOK
	case errors.Is(err, ErrFound):
		return ExitFound
	case !isUsage && strings.Contains(err.Error(), errNoCluster.Error()): // not every library wraps errors
		err = errNoCluster
	}
	c.Note("error: %v", err)
	if right := finding.LackedRight(err); strings.HasPrefix(right, "get ") || strings.HasPrefix(right, "list ") {
		f := finding.NoRight(right, "")
		c.Note("%s", f.Fix)
	}
	if step := c.connection(err); step != "" {
		c.Note("%s", step)
	}
	if isUsage || !c.Started {
		c.Note("See '%s --help' for usage.", help)
	}
	return ExitFailed
}

// connection returns the next step after an error of the connection to the API server, or "" for another.
func (c *CLI) connection(err error) string {
	// Not every library wraps errors.
	if apierrors.IsUnauthorized(err) || strings.HasSuffix(err.Error(), "the server has asked for the client to provide credentials") {
		return "Log in to the cluster again: the API server rejects the credentials of the kubeconfig."
	}
	if strings.Contains(err.Error(), "getting credentials: ") {
		return "Log in to the cluster again: the program for credentials in the kubeconfig failed."
	}
	config, errConfig := c.Config()
	if errConfig == nil && config.Host != "" && strings.Contains(err.Error(), `"`+strings.TrimSuffix(config.Host, "/")+"/") {
		return "Check that the API server runs, and that the kubeconfig and its context are those of the cluster."
	}
	return ""
}

// AddConfig adds the flag --config, to a command that uses settings.
func (c *CLI) AddConfig(cmd *cobra.Command) {
	cmd.Flags().StringVar(&c.ConfigPath, "config", "", "Configuration file of the webhook. By default, the settings are read from the cluster.")
}

// AddOverrides adds the flag --overrides, to a command that uses ProbePod.
func (c *CLI) AddOverrides(cmd *cobra.Command) {
	cmd.Flags().Func("overrides", "Fields of the dry-run pod in JSON or YAML, for policies of the cluster that require them. Defaults to the image and labels of the webhook's pods.",
		func(text string) (err error) {
			c.overrides, err = probe.ParseOverrides(text)
			return err
		})
}

// ProbePod returns the pod of a dry run for a ServiceAccount. Policies of the cluster allow the
// pod as they allow the pods of the webhook. The settings must have been read.
func (c *CLI) ProbePod(serviceAccount string) *unstructured.Unstructured {
	return probe.Pod(serviceAccount, c.Webhook.allowed, c.overrides)
}

// Survey returns the survey of the cluster, which reads each part once.
func (c *CLI) Survey() (*cluster.Survey, error) {
	if c.survey == nil {
		client, _, err := c.Clients()
		if err != nil {
			return nil, err
		}
		c.survey = cluster.NewSurvey(client)
	}
	return c.survey, nil
}

// SurveyAgain makes the command read the cluster again.
func (c *CLI) SurveyAgain() {
	c.survey, c.Webhook.settings, c.Webhook.Unread = nil, nil, nil
	c.progress.again()
}

// Settings returns the settings of the webhook from the file of --config or the cluster. If
// the cluster's cannot be read, they are the built-in defaults, and NoteUnknown warns where
// it matters.
func (c *CLI) Settings(ctx context.Context) (*annotations.Settings, error) {
	if c.Webhook.settings != nil {
		return c.Webhook.settings, nil
	}
	if c.ConfigPath == "" {
		if c.Webhook.settings, c.Webhook.Unread = c.clusterSettings(ctx); c.Webhook.Unread == nil {
			return c.Webhook.settings, nil
		}
	}
	var err error
	c.Webhook.settings, err = c.FileSettings()
	return c.Webhook.settings, err
}

// FileSettings returns the settings in the file of --config, or the built-in defaults without it.
func (c *CLI) FileSettings() (*annotations.Settings, error) {
	var args []string
	if c.ConfigPath != "" {
		args = append(args, "--config="+c.ConfigPath)
	}
	o, err := options.Load(args, os.ReadFile)
	if err != nil {
		return nil, err
	}
	return o.Settings(annotations.CommonAPIServerAudiences())
}

// clusterSettings reads the settings in the cluster.
func (c *CLI) clusterSettings(ctx context.Context) (s *annotations.Settings, err error) {
	cluster, err := c.Survey()
	if err == nil {
		s, c.Webhook.allowed, err = cluster.Settings(ctx)
	}
	return s, err
}

// NoteUnknown warns the user once if the settings of the webhook could not be read and a
// ServiceAccount has an annotation that depends on them: of a custom provider or another
// webhook.
func (c *CLI) NoteUnknown(object metav1.Object) {
	if c.Webhook.Unread == nil || c.Webhook.noted {
		return
	}
	unknown := c.Webhook.settings.UnknownOnServiceAccount(object.GetAnnotations())
	for _, p := range peer.All() {
		if p.Asks(object.GetAnnotations()) {
			unknown = append(unknown, p.Identity...)
		}
	}
	if len(unknown) > 0 {
		c.Webhook.noted = true
		c.Note("warning: serviceaccount %s/%s has the annotation %s, which Lanyard only reads with settings of the webhook. The settings could not be read: %v. Pass the webhook's configuration file with --config.",
			object.GetNamespace(), object.GetName(), unknown[0], c.Webhook.Unread)
	}
}
