// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/lanyard-dev/lanyard/internal/cli/command"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

// Without a flag that the installed policies were made with, most lines would differ.
func TestTheDifferencesOfAForgottenFlagAreOneFinding(t *testing.T) {
	t.Parallel()
	for sentence, test := range map[string]struct {
		source, args, want string
	}{
		"a file":            {`{"config":{"aws-default-region":"eu-central-1"},"providers":["aws"]}`, "", "--config (aws-default-region): add the flag, or --config= to compare without it"},
		"providers":         {`{"providers":["aws","gcp"]}`, "", "--providers (aws, gcp): add the flag, or --providers= to compare without it"},
		"audiences":         {`{"reservedAudiences":["https://a.example"],"providers":["aws"]}`, "--providers aws", "--reserved-audiences (https://a.example): add the flag, or --reserved-audiences= to compare without it"},
		"identities":        {`{"compiled":true}`, "", "--compile or --cluster: add the same flag, or --cluster=false to compare without it"},
		"an empty value":    {`{"providers":["aws"]}`, "--providers=", ""},
		"the same flags":    {`{"providers":["aws"]}`, "--providers aws", ""},
		"another name":      {`{"providers":["aws"]}`, "--name second", ""},
		"built-in settings": {`{}`, "", ""},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			const api = "/apis/admissionregistration.k8s.io/v1/"
			installed := metav1.ObjectMeta{Name: "lanyard-inject-pods", Annotations: map[string]string{annotations.PoliciesSource: test.source}}
			code, _, errOut := runWith(t, map[string]any{
				api + "mutatingadmissionpolicies":                           admissionregistrationv1.MutatingAdmissionPolicyList{Items: []admissionregistrationv1.MutatingAdmissionPolicy{{ObjectMeta: installed}}},
				api + "mutatingadmissionpolicybindings/lanyard-inject-pods": admissionregistrationv1.MutatingAdmissionPolicyBinding{ObjectMeta: installed},
				api + "validatingadmissionpolicies":                         admissionregistrationv1.ValidatingAdmissionPolicyList{},
				api + "validatingadmissionpolicybindings":                   admissionregistrationv1.ValidatingAdmissionPolicyBindingList{},
			}, "", append([]string{"policies", "--diff"}, strings.Fields(test.args)...)...)
			if test.want == "" { // the API server has no discovery, so the comparison fails
				if code != command.ExitFailed || strings.Contains(errOut, "were made with") {
					t.Errorf("got %d and %q, want the comparison", code, errOut)
				}
				return
			}
			if want := "error: the installed policies were made with " + test.want + "\n"; code != command.ExitFound || errOut != want {
				t.Errorf("got %d and %q, want %d and %q", code, errOut, command.ExitFound, want)
			}
		})
	}
}

// The flags determine the text. A setting that policies do not support is a finding.
func TestPolicies(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte("aws-default-region: eu-central-1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	adopts := filepath.Join(t.TempDir(), "adopt.yaml")
	if err := os.WriteFile(adopts, []byte("adopt: [eks]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	accounts := filepath.Join(t.TempDir(), "accounts.yaml")
	if err := os.WriteFile(accounts, []byte(`apiVersion: v1
kind: ServiceAccount
metadata: {name: cart, namespace: shop, annotations: {lanyard.dev/audience: vault}}
---
apiVersion: v1
kind: Namespace
metadata: {name: shop, annotations: {lanyard.dev/allowed-identities: other}}
---
apiVersion: v1
kind: Namespace
metadata: {name: shop}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		args          []string
		with, without string
		wantErr       string
	}{
		"defaults":  {with: "lanyard.dev/inject", without: "'eu-central-1'"},
		"a file":    {args: []string{"--config", file}, with: "'eu-central-1'"},
		"providers": {args: []string{"--providers", "aws,gcp"}, with: "gcp_Used", without: "azure_Used"},
		"audiences": {args: []string{"--reserved-audiences", "https://a.example.com,b"}, with: "'https://kubernetes.default', 'https://a.example.com', 'b'"},
		"a name":    {args: []string{"--name", "second"}, with: "name: second-deny-pods", without: "lanyard-deny-pods"},
		"a source":  {args: []string{"--config", file, "--providers", "aws"}, with: `lanyard.dev/policies: '{"config":{"aws-default-region":"eu-central-1"},"providers":["aws"]}'`},
		"adoption":  {args: []string{"--config", adopts}, wantErr: "adopt: policies cannot adopt"},
		"limits":    {args: []string{"--compile", accounts}, wantErr: `namespace "shop" occurs twice in the files. Remove one of them`},
		"no file":   {args: []string{"--config", file + "x"}, wantErr: "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			streams, _, out, notes := genericiooptions.NewTestIOStreams()
			cmd := newPoliciesCommand(command.NewCLI("lanyard", streams))
			cmd.SetArgs(test.args)
			err := cmd.ExecuteContext(t.Context())
			if test.wantErr != "" {
				if err == nil || !strings.Contains(notes.String()+err.Error(), test.wantErr) || out.Len() > 0 {
					t.Errorf("got %d bytes, error %v and notes %s, want error %s", out.Len(), err, notes, test.wantErr)
				}
				return
			}
			if err != nil || !strings.Contains(out.String(), test.with) || test.without != "" && strings.Contains(out.String(), test.without) {
				t.Errorf("got %d bytes and error %v, want text with %q and without %q", out.Len(), err, test.with, test.without)
			}
		})
	}
}
