// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"bytes"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

func TestWhatMakesAPodInjected(t *testing.T) {
	t.Parallel()
	keys, err := annotations.NewKeys(annotations.DefaultPrefix)
	if err != nil {
		t.Fatal(err)
	}
	marked := map[string]any{"annotations": map[string]any{"lanyard.dev/injected": "aws,gcp"}}
	volume := func(name string) map[string]any {
		return map[string]any{"volumes": []any{map[string]any{"name": "data"}, map[string]any{"name": name}}}
	}
	for name, test := range map[string]struct {
		pod         map[string]any
		want, error string
	}{
		"the marks and the volume":           {map[string]any{"metadata": marked, "spec": volume("bound-sa-token")}, "aws, gcp, from volume bound-sa-token", ""},
		"the volume under its other name":    {map[string]any{"metadata": marked, "spec": volume("lanyard-bound-sa-token")}, "aws, gcp, from volume lanyard-bound-sa-token", ""},
		"nothing is not enough":              {map[string]any{}, "", "annotation lanyard.dev/injected is not on the pod"},
		"a volume alone is not enough":       {map[string]any{"spec": volume("bound-sa-token")}, "", "annotation lanyard.dev/injected is not on the pod"},
		"the marks alone are not enough":     {map[string]any{"metadata": marked, "spec": volume("other")}, "", "volume bound-sa-token is not in the pod"},
		"a pod without volumes has got none": {map[string]any{"metadata": marked}, "", "volume bound-sa-token is not in the pod"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := identityOf(&unstructured.Unstructured{Object: test.pod}, &keys)
			if got != test.want || (err != nil) != (test.error != "") || err != nil && !strings.HasPrefix(err.Error(), test.error) {
				t.Errorf("got %q and %v, want %q and %q", got, err, test.want, test.error)
			}
		})
	}
}

func TestCheckSaysWhatIsWrong(t *testing.T) {
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"no account":                     {nil, "check pods of service account /: needs both --namespace and --service-account"},
		"a malformed prefix":             {[]string{"--namespace=n", "--service-account=a", "--annotation-prefix=x"}, "--annotation-prefix: "},
		"a kubeconfig that is not there": {[]string{"--namespace=n", "--service-account=a", "--kubeconfig=/nonexistent"}, "service account n/a: --kubeconfig: "},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := NewCommand()
			cmd.SetArgs(append([]string{"check"}, test.args...))
			if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

func TestCheckHasAHelpOfItsOwn(t *testing.T) {
	t.Parallel()
	cmd := NewCommand()
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetArgs([]string{"check", "--help"})
	if err := cmd.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	if help := out.String(); !strings.Contains(help, "--service-account") || strings.Contains(help, "--secure-port") {
		t.Errorf("got\n%s", help)
	}
}
