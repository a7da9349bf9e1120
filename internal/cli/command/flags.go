// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/lanyard-dev/lanyard/internal/cli/cluster"
	"github.com/lanyard-dev/lanyard/internal/texts"
)

// complete returns the names that start with the user's input, or none after an error, which
// a shell cannot show.
func complete(names []string, typed string, err error) ([]string, cobra.ShellCompDirective) {
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return slices.DeleteFunc(names, func(name string) bool { return !strings.HasPrefix(name, typed) }), cobra.ShellCompDirectiveNoFileComp
}

// CompleteReferences completes TYPE/NAME with the names that are in the cluster.
func (c *CLI) CompleteReferences(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	typeName, _, found := strings.Cut(typed, "/")
	prefix := typeName + "/"
	if len(args) == 1 {
		typeName, prefix, found = args[0], "", true
	}
	if !found {
		types := []string{}
		for _, kind := range cluster.Kinds() {
			types = append(types, strings.ToLower(kind.Kind)+"/")
		}
		types, directive := complete(append(types, "serviceaccount/"), typed, nil)
		return types, directive | cobra.ShellCompDirectiveNoSpace
	}
	mapper, err := c.Flags.ToRESTMapper()
	if err != nil || len(args) > 1 {
		return complete(nil, typed, err)
	}
	resource, err := mapper.ResourceFor(schema.ParseGroupResource(strings.ToLower(typeName)).WithVersion(""))
	if err != nil {
		return complete(nil, typed, err)
	}
	return c.completeNames(resource, prefix)(cmd, nil, typed)
}

// CompleteServiceAccounts completes the names of ServiceAccounts.
func (c *CLI) CompleteServiceAccounts() cobra.CompletionFunc {
	return c.completeNames(CoreResource("serviceaccounts"), "")
}

// CompleteNamespaces completes the names of namespaces.
func (c *CLI) CompleteNamespaces() cobra.CompletionFunc {
	return c.completeNames(CoreResource("namespaces"), "")
}

// CompleteContexts completes the contexts of the kubeconfig.
func (c *CLI) CompleteContexts(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	config, err := c.Flags.ToRawKubeConfigLoader().RawConfig()
	return complete(slices.Sorted(maps.Keys(config.Contexts)), typed, err)
}

// maxCompletions is how many names a completion reads.
const maxCompletions = 500

// completeNames completes one argument with the names of objects, behind a prefix.
func (c *CLI) completeNames(resource schema.GroupVersionResource, prefix string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		namespace, errNamespace := c.Namespace()
		client, err := c.metadata()
		if err = cmp.Or(err, errNamespace); err != nil || len(args) > 0 {
			return complete(nil, typed, err)
		}
		if resource.Resource == "namespaces" {
			namespace = metav1.NamespaceAll
		}
		list, err := client.Resource(resource).Namespace(namespace).List(cmd.Context(), metav1.ListOptions{Limit: maxCompletions})
		if err != nil {
			return complete(nil, typed, err)
		}
		var names []string
		for i := range list.Items {
			names = append(names, prefix+list.Items[i].Name)
		}
		return complete(names, typed, nil)
	}
}

// DryRun is the flag --dry-run of a command that writes objects of the cluster. It has the
// values of kubectl's.
type DryRun string

const (
	// DryRunNone writes.
	DryRunNone DryRun = "none"
	// DryRunClient sends no request that writes.
	DryRunClient DryRun = "client"
	// DryRunServer sends each request as a dry run, which the API server admits but does not
	// store.
	DryRunServer DryRun = "server"
)

// AddFlag adds the flag. Without a value, it means client.
func (d *DryRun) AddFlag(cmd *cobra.Command) {
	*d = DryRunNone
	AddChoice(cmd, (*string)(d), "dry-run", "Only show the changes: client sends no request, server sends dry-run requests",
		string(DryRunNone), string(DryRunClient), string(DryRunServer))
	cmd.Flags().Lookup("dry-run").NoOptDefVal = string(DryRunClient)
}

// Sends reports whether requests are sent: to write, or as dry runs.
func (d DryRun) Sends() bool { return d != DryRunClient }

// Requests returns the value for the DryRun field of a request's options.
func (d DryRun) Requests() []string {
	if d == DryRunServer {
		return []string{metav1.DryRunAll}
	}
	return nil
}

// AddAllNamespaces adds the flag --all-namespaces.
func AddAllNamespaces(cmd *cobra.Command, all *bool) {
	cmd.Flags().BoolVarP(all, "all-namespaces", "A", false, "Use all namespaces instead of --namespace.")
}

// Exclusive returns an error if a flag is set together with one of the others. It does not use
// MarkFlagsMutuallyExclusive, whose errors name all flags of a group and not the mistake.
func Exclusive(cmd *cobra.Command, flag string, others ...string) error {
	for _, other := range others {
		if cmd.Flags().Changed(flag) && cmd.Flags().Changed(other) {
			return Usagef("--%s cannot be used with --%s", flag, other)
		}
	}
	return nil
}

// NoArgs returns an error for arguments of a command that takes none. Not cobra.NoArgs, whose error is
// about subcommands.
func NoArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return Usagef("unexpected argument %q: write %s", args[0], cmd.UseLine())
}

// unknownFlag adds the nearest flag to the error for a flag that does not exist.
func unknownFlag(cmd *cobra.Command, err error) error {
	unknown, isUnknown := errors.AsType[*pflag.NotExistError](err)
	if !isUnknown || unknown.GetSpecifiedShortnames() != "" {
		return err
	}
	var names []string
	cmd.Flags().VisitAll(func(flag *pflag.Flag) { names = append(names, flag.Name) })
	if nearest := texts.Nearest(unknown.GetSpecifiedName(), names); nearest != "" {
		return fmt.Errorf("%w; did you mean --%s?", err, nearest)
	}
	return err
}

// misplaced returns an error for an argument that was meant as the value of a flag. A flag with an optional
// value, such as a Boolean one, needs an equals sign: "--wait 5s" is the flag and an argument.
func misplaced(cmd *cobra.Command, args []string) (err error) {
	isValue := func(flag *pflag.Flag, arg string) bool {
		if flag.Value.Type() == "bool" { // which also takes t and 1: names that an argument may have
			return arg == "true" || arg == "false"
		}
		return flag.NoOptDefVal != "" && flag.Value.Set(arg) == nil
	}
	if dash := cmd.ArgsLenAtDash(); dash >= 0 {
		args = args[:dash]
	}
	cmd.Flags().Visit(func(flag *pflag.Flag) {
		for _, arg := range args {
			if isValue(flag, arg) {
				err = Usagef("--%s %s: the value of this flag needs an equals sign: --%[1]s=%[2]s", flag.Name, arg)
			}
		}
	})
	return err
}

// AddChoice adds a flag with a fixed set of values.
func AddChoice(cmd *cobra.Command, value *string, name, usage string, allowed ...string) {
	check := func(text string) error {
		if !slices.Contains(allowed, text) {
			return fmt.Errorf("allowed values are: %s", strings.Join(allowed, ", "))
		}
		return nil
	}
	addChecked(cmd, &checked{value, check}, name, "", usage+": "+strings.Join(allowed, ", ")+".", allowed)
}

// addChecked adds a flag whose values are checked, with completions.
func addChecked(cmd *cobra.Command, value *checked, name, short, usage string, completions []string) {
	cmd.Flags().VarP(value, name, short, usage)
	// The error is for a flag that does not exist.
	_ = cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(completions, cobra.ShellCompDirectiveNoFileComp))
}

// checked is a flag that rejects invalid values before the command runs.
type checked struct {
	value *string
	check func(value string) error
}

// String, Type and Set implement pflag.Value.
func (c *checked) String() string { return *c.value }

func (*checked) Type() string { return "string" }

func (c *checked) Set(value string) error {
	err := c.check(value)
	if err == nil {
		*c.value = value
	}
	return err
}
