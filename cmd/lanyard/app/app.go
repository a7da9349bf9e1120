// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package app holds the commands of lanyard. Each command is thin: it reads its
// flags, asks the API server, calls a package that decides, and prints the result.
package app

import (
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

// CLI holds the parts that all commands share: the streams, the flags that select the
// cluster, and the settings of the webhook.
type CLI struct {
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

// newCLI returns the defaults. A program whose name starts with kubectl- is a
// plugin of kubectl.
func newCLI(program string, streams genericiooptions.IOStreams) *CLI {
	c := &CLI{
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
func (c *CLI) wrapConfig() *CLI {
	c.flags.WrapConfigFn = func(config *rest.Config) *rest.Config {
		config.QPS = -1
		config.UserAgent = "lanyard/" + version.Version()
		config.WarningHandler = rest.NewWarningWriter(c.ErrOut, rest.WarningWriterOptions{Deduplicate: true})
		return config
	}
	return c
}

// usage returns the function that writes the usage of a command. It is cobra's, with
// descriptions of flags that fit the terminal.
func (c *CLI) usage(standard func(*cobra.Command) error) func(*cobra.Command) error {
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
func (c *CLI) finish(cmd *cobra.Command) {
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
func (c *CLI) namespace() (string, error) {
	namespace, _, err := c.flags.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return "", fmt.Errorf("namespace: %w", err)
	}
	return namespace, nil
}

// config returns a configuration for clients. The caller may change it.
func (c *CLI) config() (*rest.Config, error) {
	config, err := c.flags.ToRESTConfig()
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	return config, nil
}

// probe returns a client for dry runs of pods.
func (c *CLI) probe() (*probe.Client, error) {
	config, err := c.config()
	if err != nil {
		return nil, err
	}
	return probe.NewClient(config)
}

// clients returns a client for the types of Kubernetes and one for any object.
func (c *CLI) clients() (kubernetes.Interface, dynamic.Interface, error) {
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
