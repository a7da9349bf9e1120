// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package app holds the commands of lanyard. Each command is thin: it reads its
// flags, asks the API server, calls a package that decides, and prints the result.
package app

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/lanyard-dev/lanyard/internal/probe"
	"github.com/lanyard-dev/lanyard/internal/settings"
	"github.com/lanyard-dev/lanyard/internal/version"
)

// Exit codes of every command.
const (
	// ExitOK means that all is well.
	ExitOK = 0
	// ExitFound means that a command found something that is wrong, or failed.
	ExitFound = 1
	// ExitUsage means that the command line is wrong.
	ExitUsage = 2
)

// errFound ends a command with ExitFound. It has no message of its own: the output
// of the command shows the findings.
var errFound = errors.New("found a problem, see the output")

// usageError is a mistake in the command line that cobra does not find.
type usageError struct{ error }

// usagef returns a usageError.
func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// cli holds the parts that all commands share: the streams, the flags that select the cluster,
// and the settings of the webhook.
type cli struct {
	genericiooptions.IOStreams
	// name is how the user calls the program: lanyard, or kubectl lanyard.
	name  string
	flags *genericclioptions.ConfigFlags
	// prefix is --annotation-prefix; empty for the webhook's.
	prefix string
	// configPath is the webhook's configuration file; empty to read it in the cluster.
	configPath string
	// webhook has the settings of the webhook, once they are read. unread is why they are
	// only the built-in defaults; noted reports whether the user knows.
	webhook struct {
		settings *settings.Settings
		unread   error
		noted    bool
	}
	// started reports whether the command line was correct, so that a command runs.
	started bool
}

// Run runs the command of args, which begin with the program's name. It prints
// the error, if any, and returns the exit code.
func Run(ctx context.Context, args []string, streams genericiooptions.IOStreams) int {
	c := newCLI(args[0], streams)
	root := c.newRootCommand()
	root.SetArgs(args[1:])
	cmd, err := root.ExecuteContextC(ctx)
	_, isUsage := errors.AsType[usageError](err)
	switch {
	case err == nil:
		return ExitOK
	case isUsage || !c.started:
		c.note("%s: %v\nRun '%s --help' for usage.", c.name, err, cmd.CommandPath())
		return ExitUsage
	case !errors.Is(err, errFound):
		c.note("%s: %v", c.name, err)
	}
	return ExitFound
}

// newCLI returns the defaults. A program whose name starts with kubectl- is a
// plugin of kubectl.
func newCLI(program string, streams genericiooptions.IOStreams) *cli {
	c := &cli{
		IOStreams: streams,
		name:      "lanyard",
		flags:     genericclioptions.NewConfigFlags(true),
	}
	c.flags.CacheDir = nil // nothing is cached
	if strings.HasPrefix(filepath.Base(program), "kubectl-") {
		c.name = "kubectl lanyard"
	}
	return c.wrapConfig()
}

// wrapConfig sets up the clients. They have no rate limit: the API server limits
// requests by priority and fairness. Its warnings go to the error stream, once.
func (c *cli) wrapConfig() *cli {
	c.flags.WrapConfigFn = func(config *rest.Config) *rest.Config {
		config.QPS = -1
		config.UserAgent = "lanyard/" + version.Version()
		config.WarningHandler = rest.NewWarningWriter(c.ErrOut, rest.WarningWriterOptions{Deduplicate: true})
		return config
	}
	return c
}

const rootHelp = `lanyard looks into a cluster that runs the Lanyard webhook. It needs nothing
but access to the API server, with the same kubeconfig and flags as kubectl.

Exit codes: 0 if all is well, 1 if a command found a problem or failed, 2 if
the command line is wrong.`

// newRootCommand returns the command with all of its subcommands.
func (c *cli) newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "lanyard",
		Short: "See and manage the cloud credentials of pods.",
		Long:  rootHelp,
		// Not SetVersionTemplate, as in cmd/webhook/app.
		Version:       version.String(),
		SilenceUsage:  true,
		SilenceErrors: true,
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: c.name},
		// After this point, an error is not a mistake in the command line.
		PersistentPreRunE: func(*cobra.Command, []string) error {
			c.started = true
			return nil
		},
	}
	root.SetIn(c.In)
	root.SetOut(c.Out)
	root.SetErr(c.ErrOut)
	root.SetUsageFunc(c.usage(root.UsageFunc()))
	c.flags.AddFlags(root.PersistentFlags())
	root.PersistentFlags().StringVar(&c.prefix, "annotation-prefix", c.prefix, "Prefix of every annotation and label, with its slash. Without it, the prefix of the webhook.")
	// The errors are for flags that do not exist.
	_ = root.RegisterFlagCompletionFunc("namespace", c.completeNamespaces)
	_ = root.RegisterFlagCompletionFunc("context", c.completeContexts)
	root.AddCommand(
		newCheckCommand(c),
		newExplainCommand(c),
		newInjectCommand(c),
		newLabelCommand(c),
		newMigrateCommand(c),
		newProviderCommand(c),
		newRestartCommand(c),
		newStatusCommand(c),
		newTokenCommand(c),
		newTrustCommand(c),
	)
	c.finish(root)
	return root
}

// usage returns the function that writes the usage of a command. It is cobra's, with
// descriptions of flags that fit the terminal.
func (c *cli) usage(standard func(*cobra.Command) error) func(*cobra.Command) error {
	return func(cmd *cobra.Command) error {
		out := cmd.OutOrStderr()
		var text strings.Builder
		cmd.SetOut(&text)
		err := standard(cmd)
		cmd.SetOut(out)
		if err != nil {
			return err
		}
		// For a help text, out is a buffer.
		p := &page{w: out, width: newPage(c.Out).width}
		for line := range strings.SplitSeq(strings.TrimSuffix(text.String(), "\n"), "\n") {
			if match := flagLine.FindStringSubmatch(line); match != nil && p.width > 0 {
				p.line("%s", match[1])
				p.text(10, "", match[2])
			} else {
				p.line("%s", line)
			}
		}
		return p.err
	}
}

// flagLine matches the line of a flag in cobra's usage: the flag with its type, and
// its description.
var flagLine = regexp.MustCompile(`^( +(?:-\w, )?--[\w-]+(?: \w+)?) {2,}(.*)$`)

// finish completes a command and its subcommands: the examples show the name that
// the user types, and a command that only groups others needs one of them.
func (c *cli) finish(cmd *cobra.Command) {
	cmd.Example = strings.ReplaceAll(cmd.Example, "  lanyard ", "  "+c.name+" ")
	if !cmd.Runnable() {
		cmd.Args = cobra.ArbitraryArgs
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usagef("a command is missing")
			}
			if similar := cmd.SuggestionsFor(args[0]); len(similar) > 0 {
				return usagef("unknown command %q; did you mean %s?", args[0], strings.Join(similar, " or "))
			}
			return usagef("unknown command %q", args[0])
		}
	}
	for _, child := range cmd.Commands() {
		c.finish(child)
	}
}

// namespace returns the namespace of --namespace or of the kubeconfig.
func (c *cli) namespace() (string, error) {
	namespace, _, err := c.flags.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return "", fmt.Errorf("namespace: %w", err)
	}
	return namespace, nil
}

// config returns a configuration for clients. The caller may change it.
func (c *cli) config() (*rest.Config, error) {
	config, err := c.flags.ToRESTConfig()
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	return config, nil
}

// probe returns a client for dry runs of pods.
func (c *cli) probe() (*probe.Client, error) {
	config, err := c.config()
	if err != nil {
		return nil, err
	}
	return probe.NewClient(config)
}

// clients returns a client for the types of Kubernetes and one for any object.
func (c *cli) clients() (kubernetes.Interface, dynamic.Interface, error) {
	config, err := c.config()
	if err != nil {
		return nil, nil, err
	}
	typed, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, nil, fmt.Errorf("create Kubernetes client: %w", err)
	}
	untyped, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, nil, fmt.Errorf("create Kubernetes client: %w", err)
	}
	return typed, untyped, nil
}
