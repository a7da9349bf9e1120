// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/pmezard/go-difflib/difflib"
	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/resource"
	"sigs.k8s.io/yaml"

	"github.com/lanyard-dev/lanyard/internal/cli/command"
	"github.com/lanyard-dev/lanyard/internal/texts"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/policies"
)

// diffPolicies writes the changes that an install of the text would make in the cluster, as kubectl
// diff does, and returns command.ErrFound if there are any. A dry run fills in the defaults. If
// nothing is installed, it says so. Policies with the prefix that the text no longer contains
// still have an effect, so they are differences, too.
func diffPolicies(ctx context.Context, c *command.CLI, prefix, text string) error {
	differences, isInstalled, page, wants := []string(nil), false, command.NewPage(c.Out), map[string]bool{}
	err := resource.NewBuilder(c.Flags).Unstructured().Stream(strings.NewReader(text), "policies").Flatten().Do().Visit(func(info *resource.Info, err error) error {
		if err != nil {
			return err
		}
		wanted, name := command.Unstructured(info), command.NameOf(info)
		wants[info.Name] = true
		client := resource.NewHelper(info.Client, info.Mapping)
		installed, err := client.Get("", info.Name)
		if apierrors.IsNotFound(err) {
			installed = nil
			info.Object, err = client.DryRun(true).Create("", true, wanted)
		} else if err == nil {
			info.Object, err = client.DryRun(true).Replace("", info.Name, true, wanted)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		before, found := installed.(*unstructured.Unstructured)
		isInstalled = isInstalled || found
		result, err := difflib.GetUnifiedDiffString(difflib.UnifiedDiff{
			A: shown(before), B: shown(command.Unstructured(info)), FromFile: "installed/" + name, ToFile: "generated/" + name, Context: 3,
		})
		differences = append(differences, result)
		return err
	})
	if err == nil && !isInstalled {
		return c.Found("none of these policies is installed. To install them: %s policies | kubectl apply -f -, with the same flags", c.Name)
	}
	if err == nil {
		var rest []string
		rest, err = surplus(ctx, c, prefix, wants)
		differences = append(differences, rest...)
	}
	changes := strings.Join(differences, "")
	page.Lines(changes)
	return command.FoundIf(changes != "", cmp.Or(err, page.Err))
}

// forgotten returns an error for flags that the installed policies were made with, and that the command
// line lacks: without one of them, most lines differ. A flag with an empty value is not forgotten.
func forgotten(cmd *cobra.Command, c *command.CLI, prefix string) error {
	survey, err := c.Survey()
	if err != nil {
		return err
	}
	installed, err := survey.Injecting(cmd.Context())
	if err != nil || installed == nil || installed.Prefix() != prefix {
		return err
	}
	source := &installed.Source
	var settings map[string]any
	if len(source.Config) > 0 {
		if err := json.Unmarshal(source.Config, &settings); err != nil {
			return fmt.Errorf("settings of the installed policies: %w", err)
		}
	}
	for _, was := range []struct {
		flag   string
		values []string
	}{
		{"config", slices.Sorted(maps.Keys(settings))}, {"providers", source.Providers}, {"reserved-audiences", source.ReservedAudiences},
	} {
		if len(was.values) > 0 && !cmd.Flags().Changed(was.flag) {
			return c.Found("the installed policies were made with --%s (%s): add the flag, or --%[1]s= to compare without it", was.flag, texts.Cut(strings.Join(was.values, ", "), 300))
		}
	}
	if source.Compiled && !cmd.Flags().Changed("compile") && !cmd.Flags().Changed("cluster") {
		return c.Found("the installed policies were made with --compile or --cluster: add the same flag, or --cluster=false to compare without it")
	}
	return nil
}

// surplus returns a line for each binding of a policy with the prefix that is not wanted.
func surplus(ctx context.Context, c *command.CLI, prefix string, wants map[string]bool) (lines []string, err error) {
	client, _, err := c.Clients()
	if err != nil {
		return nil, err
	}
	bindings, err := client.AdmissionregistrationV1().MutatingAdmissionPolicyBindings().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list mutatingadmissionpolicybindings: %w", err)
	}
	for i := range bindings.Items {
		if name := bindings.Items[i].Name; strings.HasPrefix(name, policies.InjectPods(prefix)) && !wants[name] {
			lines = append(lines, fmt.Sprintf("--- installed/mutatingadmissionpolicybinding/%s\n+++ /dev/null\n", name))
		}
	}
	return lines, nil
}

// shown returns the lines of the parts that lanyard policies writes; none for nil.
func shown(object *unstructured.Unstructured) []string {
	if object == nil {
		return nil
	}
	text, _ := yaml.Marshal(map[string]any{"name": object.GetName(), "source": object.GetAnnotations()[annotations.PoliciesSource], "spec": object.Object["spec"]})
	return difflib.SplitLines(string(text))
}
