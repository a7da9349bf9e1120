// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/lanyard-dev/lanyard/internal/cli/command"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/policies"
)

// manifest is a file that an API server reads at startup and whenever it changes: the objects of
// one kind, below a directory of their own (KEP-5793;
// apiserver/pkg/admission/plugin/policy/manifest and webhook/manifest).
type manifest struct {
	// plugin reads the objects, and configuration is the kind of its configuration.
	plugin, configuration string
	directory, text       string
}

// writeStatic writes the policies and the webhook configurations to files that an API server reads, and
// the file for --admission-control-config-file. It replaces a file as a whole.
func (k *compiler) writeStatic(ctx context.Context, s *annotations.Settings, name string, source *policies.Source) error {
	dir, err := filepath.Abs(k.static)
	if err != nil {
		return err
	}
	var all []manifest
	if k.compiles() {
		compiled, err := k.compile(ctx, s, name, source)
		if err != nil {
			return err
		}
		all = append(all, manifest{"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyConfiguration", "validating", compiled.Validating},
			manifest{"MutatingAdmissionPolicy", "MutatingAdmissionPolicyConfiguration", "mutating", compiled.Mutating})
	}
	if k.webhook != "" {
		webhooks, err := k.webhooks()
		if err != nil {
			return err
		}
		all = append(all, webhooks...)
	}
	var files []command.File
	admission := []string{"# For --admission-control-config-file of kube-apiserver.\napiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n"}
	for _, m := range all {
		files = append(files, command.File{Path: filepath.Join(dir, m.directory, "lanyard.yaml"), Text: m.text})
		admission = append(admission, fmt.Sprintf("- name: %s\n  configuration:\n    apiVersion: apiserver.config.k8s.io/v1\n    kind: %s\n    staticManifestsDir: %q\n",
			m.plugin, m.configuration, filepath.Join(dir, m.directory)))
	}
	return command.ReplaceFiles(append(files, command.File{Path: filepath.Join(dir, "admission.yaml"), Text: strings.Join(admission, "")}), 0o600, 0o750)
}

// webhooks returns the webhook configurations in the file, without the fields that an API server sets.
func (k *compiler) webhooks() ([]manifest, error) {
	var file command.Selection
	file.Files.Filenames = []string{k.webhook}
	texts := map[string][]string{}
	err := k.eachObject(&file, func(object *unstructured.Unstructured) error {
		kind := object.GetKind()
		if kind != "MutatingWebhookConfiguration" && kind != "ValidatingWebhookConfiguration" {
			return nil
		}
		webhooks, _, err := unstructured.NestedSlice(object.Object, "webhooks")
		if err != nil {
			return err
		}
		for i := range webhooks {
			webhook, _ := webhooks[i].(map[string]any)
			if url, _, _ := unstructured.NestedString(webhook, "clientConfig", "url"); url == "" {
				return fmt.Errorf("%s %s: webhooks[%d].clientConfig has no url, and files of an API server cannot refer to Services: set the value webhook.url of the chart", strings.ToLower(kind), object.GetName(), i)
			}
		}
		text, err := yaml.Marshal(map[string]any{
			"apiVersion": object.GetAPIVersion(), "kind": kind, "metadata": map[string]any{"name": object.GetName() + policies.StaticSuffix}, "webhooks": webhooks,
		})
		texts[kind] = append(texts[kind], string(text))
		return err
	})
	var all []manifest
	for _, name := range []string{"Validating", "Mutating"} {
		list := texts[name+"WebhookConfiguration"]
		if err == nil && len(list) == 0 {
			err = fmt.Errorf("%s has no %sWebhookConfiguration: use the output of helm template", k.webhook, name)
		}
		all = append(all, manifest{name + "AdmissionWebhook", "WebhookAdmissionConfiguration", strings.ToLower(name) + "-webhooks", strings.Join(list, "---\n")})
	}
	return all, err
}
