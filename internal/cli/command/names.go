// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"

	"github.com/lanyard-dev/lanyard/internal/cli/cluster"
)

// ServiceAccountKind is the kind of ServiceAccounts in a reference.
const ServiceAccountKind = "ServiceAccount"

// Reference is an object that the user names: TYPE NAME or TYPE/NAME.
type Reference struct {
	// Kind is the zero value for a ServiceAccount.
	Kind cluster.Kind
	Name string
}

// IsServiceAccount reports whether the object is a ServiceAccount.
func (r *Reference) IsServiceAccount() bool { return r.Kind.Kind == "" }

// String returns how the user may write the reference.
func (r *Reference) String() string {
	if r.IsServiceAccount() {
		return "serviceaccount/" + r.Name
	}
	return r.Kind.Name(r.Name)
}

// ParseReference reads the arguments TYPE NAME or TYPE/NAME. kinds are the kinds
// that are allowed; if empty, all kinds with pods and ServiceAccounts.
func ParseReference(args []string, kinds ...string) (*Reference, error) {
	var typeName, name string
	switch len(args) {
	case 1:
		var found bool
		if typeName, name, found = strings.Cut(args[0], "/"); !found || strings.Contains(name, "/") {
			return nil, Usagef("got %q, want TYPE/NAME or TYPE NAME", args[0])
		}
	case 2:
		typeName, name = args[0], args[1]
	default:
		return nil, Usagef("got %d arguments, want TYPE/NAME or TYPE NAME", len(args))
	}
	if typeName == "" || name == "" || strings.Contains(name, "/") {
		return nil, Usagef("got type %q and name %q, want TYPE/NAME or TYPE NAME", typeName, name)
	}
	r := &Reference{Name: name}
	if !slices.Contains([]string{"serviceaccount", "serviceaccounts", "sa"}, strings.ToLower(typeName)) {
		var found bool
		if r.Kind, found = cluster.ByName(typeName); !found {
			return nil, Usagef("got type %q, want serviceaccount, pod or a workload such as deployment", typeName)
		}
	}
	if kind := r.Kind.Kind; len(kinds) > 0 && !slices.Contains(kinds, kind) && !(r.IsServiceAccount() && slices.Contains(kinds, ServiceAccountKind)) {
		return nil, Usagef("got type %q, want one of %s", typeName, strings.ToLower(strings.Join(kinds, ", ")))
	}
	return r, nil
}

// CompleteReferences completes TYPE/NAME with the names that are in the cluster.
func (c *CLI) CompleteReferences(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	typeName, _, found := strings.Cut(typed, "/")
	if len(args) == 1 {
		typeName, found = args[0], true
	}
	var types []string
	for _, kind := range cluster.Kinds() {
		types = append(types, strings.ToLower(kind.Kind)+"/")
	}
	if types = append(types, "serviceaccount/"); !found {
		return startingWith(types, typed), cobra.ShellCompDirectiveNoSpace | cobra.ShellCompDirectiveNoFileComp
	}
	reference, err := ParseReference([]string{typeName, "x"})
	if err != nil || len(args) > 1 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	resource := reference.Kind.Resource
	if reference.IsServiceAccount() {
		resource = CoreResource("serviceaccounts")
	}
	names := c.names(cmd.Context(), resource)
	if len(args) == 0 {
		for i := range names {
			names[i] = typeName + "/" + names[i]
		}
	}
	return startingWith(names, typed), cobra.ShellCompDirectiveNoFileComp
}

// startingWith returns the names that start with the user's input.
func startingWith(names []string, typed string) []string {
	return slices.DeleteFunc(names, func(name string) bool { return !strings.HasPrefix(name, typed) })
}

// CompleteServiceAccounts completes the names of ServiceAccounts.
func (c *CLI) CompleteServiceAccounts(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	return startingWith(c.names(cmd.Context(), CoreResource("serviceaccounts")), typed), cobra.ShellCompDirectiveNoFileComp
}

// CompleteNamespaces completes the names of namespaces.
func (c *CLI) CompleteNamespaces(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	return startingWith(c.names(cmd.Context(), CoreResource("namespaces")), typed), cobra.ShellCompDirectiveNoFileComp
}

// CompleteContexts completes the contexts of the kubeconfig.
func (c *CLI) CompleteContexts(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	config, err := c.Flags.ToRawKubeConfigLoader().RawConfig()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
	for name := range config.Contexts {
		names = append(names, name)
	}
	slices.Sort(names)
	return startingWith(names, typed), cobra.ShellCompDirectiveNoFileComp
}

// maxCompletions is how many names a completion reads.
const maxCompletions = 500

// names lists objects of the namespace of the flags. Errors result in no names: a
// shell has no place to show them.
func (c *CLI) names(ctx context.Context, resource schema.GroupVersionResource) []string {
	config, err := c.Config()
	if err != nil {
		return nil
	}
	client, err := metadata.NewForConfig(config)
	if err != nil {
		return nil
	}
	var lister metadata.ResourceInterface = client.Resource(resource)
	if resource.Resource != "namespaces" {
		namespace, err := c.Namespace()
		if err != nil {
			return nil
		}
		lister = client.Resource(resource).Namespace(namespace)
	}
	list, err := lister.List(ctx, metav1.ListOptions{Limit: maxCompletions})
	if err != nil {
		return nil
	}
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names
}

// CompleteServiceAccountReferences completes serviceaccount/NAME with the names that
// are in the cluster.
func (c *CLI) CompleteServiceAccountReferences(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	names := c.names(cmd.Context(), CoreResource("serviceaccounts"))
	for i := range names {
		names[i] = "serviceaccount/" + names[i]
	}
	return startingWith(names, typed), cobra.ShellCompDirectiveNoFileComp
}
