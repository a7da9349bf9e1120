// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package supplychain

import (
	"os/exec"
	"strings"
	"testing"
)

// The command line tool is in the module of the webhook, so that "go install"
// works. What only the tool needs must not get into the webhook.
func TestTheWebhookDoesNotLinkTheCommandLine(t *testing.T) {
	t.Parallel()
	linked := func(program string) string {
		command := exec.CommandContext(t.Context(), "go", "list", "-deps", program)
		command.Dir = root
		output, err := command.Output()
		if err != nil {
			t.Fatal(err)
		}
		return string(output)
	}
	webhook, tool := linked("./cmd/webhook"), linked("./cmd/lanyard")
	// The types of the Kubernetes API nearly double the size of the program: see ARCHITECTURE.md.
	for _, path := range []string{"k8s.io/cli-runtime/", "sigs.k8s.io/kustomize/", "k8s.io/api/", "k8s.io/client-go/kubernetes\n"} {
		if strings.Contains(webhook, path) {
			t.Errorf("lanyard-webhook links %s", path)
		}
		if !strings.Contains(tool, path) {
			t.Errorf("lanyard does not link %s: the test looks for the wrong path", path)
		}
	}
}
