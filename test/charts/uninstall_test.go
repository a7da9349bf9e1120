// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"slices"
	"strings"
	"testing"

	releasev1 "helm.sh/helm/v4/pkg/release/v1"
	releaseutil "helm.sh/helm/v4/pkg/release/v1/util"
)

// TestUninstallLeavesNothingBehind checks the order in which Helm deletes. The API
// server must not call a webhook that is gone, and a replica that still runs must not
// re-create the Secret of its CA, which it only does while there is a webhook
// configuration (see internal/webhook/servingcert).
func TestUninstallLeavesNothingBehind(t *testing.T) {
	for name, set := range valueSets {
		t.Run(name, func(t *testing.T) {
			files, err := renderFiles(set.in, parseValues(t, set.values))
			if err != nil {
				t.Fatal(err)
			}
			delete(files, "lanyard/templates/"+notesFile)
			hooks, sorted, err := releaseutil.SortManifests(files, nil, releaseutil.UninstallOrder)
			if err != nil {
				t.Fatal(err)
			}
			var kinds []string
			for _, manifest := range sorted {
				kinds = append(kinds, manifest.Head.Kind)
				if strings.Contains(manifest.Content, "helm.sh/resource-policy") {
					t.Errorf("%s %s stays", manifest.Head.Kind, manifest.Head.Metadata.Name)
				}
			}
			for _, registration := range []string{"ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"} {
				for _, later := range []string{"Service", "Deployment", "RoleBinding", "ClusterRoleBinding", "Secret", "ServiceAccount"} {
					if at := slices.Index(kinds, later); at >= 0 && at < slices.Index(kinds, registration) {
						t.Errorf("%s is deleted before %s", later, registration)
					}
				}
			}
			// Helm does not delete hooks when it uninstalls.
			for _, hook := range hooks {
				if !slices.Contains(hook.DeletePolicies, releasev1.HookSucceeded) {
					t.Errorf("%s %s stays after a test", hook.Kind, hook.Name)
				}
			}
		})
	}
}
