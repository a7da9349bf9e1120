// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package policies_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"sigs.k8s.io/yaml"

	"github.com/lanyard-dev/lanyard/internal/settings"
	"github.com/lanyard-dev/lanyard/policies"
)

// generate returns the policies for a configuration file.
func generate(t *testing.T, file string, names ...string) (string, error) {
	t.Helper()
	s, err := settings.Load([]byte(file), nil)
	if err != nil {
		t.Fatal(err)
	}
	if s, err = policies.Choose(s, names); err != nil {
		return "", err
	}
	return policies.Generate(s, policies.DefaultName, &policies.Source{Providers: names})
}

const vault = `
providers:
- name: vault
  audience: vault
  parameters: [{name: role, required: true, pattern: '[a-z.-]+', example: loki, default: '{namespace}.{serviceaccount}'}]
  environment: [{name: VAULT_ROLE, value: 'it''s ${role}'}]
`

// The text consists of six valid policies and six bindings, and is the same in each run.
func TestGenerate(t *testing.T) {
	t.Parallel()
	for name, file := range map[string]string{"defaults": "", "a custom provider": vault} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text, err := generate(t, file)
			if err != nil {
				t.Fatal(err)
			}
			if again, _ := generate(t, file); again != text {
				t.Error("the second text is another one")
			}
			documents := strings.Split(text, "\n---\n")
			if len(documents) != 12 {
				t.Fatalf("got %d documents, want 12", len(documents))
			}
			for i, into := range []any{
				&admissionv1.MutatingAdmissionPolicy{}, &admissionv1.MutatingAdmissionPolicyBinding{},
				&admissionv1.ValidatingAdmissionPolicy{}, &admissionv1.ValidatingAdmissionPolicyBinding{},
				&admissionv1.MutatingAdmissionPolicy{}, &admissionv1.MutatingAdmissionPolicyBinding{},
				&admissionv1.ValidatingAdmissionPolicy{}, &admissionv1.ValidatingAdmissionPolicyBinding{},
				&admissionv1.ValidatingAdmissionPolicy{}, &admissionv1.ValidatingAdmissionPolicyBinding{},
				&admissionv1.ValidatingAdmissionPolicy{}, &admissionv1.ValidatingAdmissionPolicyBinding{},
			} {
				if err := yaml.UnmarshalStrict([]byte(documents[i]), into); err != nil {
					t.Errorf("document %d: %v", i, err)
				}
			}
			if strings.Contains(text, "<no value>") {
				t.Error("a template has no value for an argument")
			}
		})
	}
}

// Only the chosen providers are in the text.
func TestGenerateSomeProviders(t *testing.T) {
	t.Parallel()
	text, err := generate(t, vault, "aws", "vault")
	if err != nil {
		t.Fatal(err)
	}
	text, _, _ = strings.Cut(text, "# The fences: ") // which know the marks of all providers
	for word, want := range map[string]bool{"AWS_ROLE_ARN": true, "VAULT_ROLE": true, "AZURE_CLIENT_ID": false, "gcp-": false, "LANYARD_TOKEN_FILE": false} {
		if strings.Contains(text, word) != want {
			t.Errorf("%s: got %t, want %t", word, !want, want)
		}
	}
}

// A setting that policies do not support is an error, and is not ignored.
func TestGenerateDenies(t *testing.T) {
	t.Parallel()
	identities := "identities: [{namespace: a, serviceAccount: b, annotations: {audience: c}}]"
	for name, test := range map[string]struct {
		file  string
		names []string
		want  string
	}{
		"an unknown provider":         {names: []string{"aws", "oracle"}, want: `there is no provider "oracle": choose from aws, azure, gcp, token`},
		"adoption":                    {file: "adopt: [eks]", want: "adopt: policies cannot adopt"},
		"mappings":                    {file: identities, want: "identities: policies cannot annotate"},
		"a path that JSON must quote": {file: `token-mount-path: /a"b`, want: `token-mount-path: got "/a\"b", want only`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text, err := generate(t, test.file, test.names...)
			if text != "" || err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %d bytes and error %v, want error %s", len(text), err, test.want)
			}
		})
	}
}

// maxCELLines limits the expressions of the templates, because reviewers of the policies must read
// them. The 45 lines of compiled.yaml replace the 46 of account.yaml, and inject profiles and
// copies of tokens.
const maxCELLines = 265

// The templates contain few lines of CEL. Lines with only YAML, or only conditions of the
// template, do not count.
func TestCELIsShort(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("templates/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("got files %v and error %v", files, err)
	}
	all := 0
	for _, file := range files {
		if filepath.Base(file) == "fences.yaml" { // generated from the chart
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		lines := 0
		for line := range strings.SplitSeq(comment.ReplaceAllString(string(text), ""), "\n") {
			line = strings.TrimSpace(directive.ReplaceAllString(line, ""))
			if line != "" && !strings.HasPrefix(line, "#") && (isExpression.MatchString(line) || !isYAML.MatchString(line)) {
				lines++
			}
		}
		t.Logf("%s: %d lines", file, lines)
		all += lines
	}
	if all > maxCELLines {
		t.Errorf("got %d lines of CEL, want at most %d", all, maxCELLines)
	}
}

var (
	comment      = regexp.MustCompile(`(?s)\{\{- /\*.*?\*/ -\}\}`)
	directive    = regexp.MustCompile(`\{\{-? ?(define|range|with|if|else|end|plus|template "(pods|serviceaccounts|namespaces|takesPart|account|namespace|pod)")[^}]*\}\}`)
	isYAML       = regexp.MustCompile(`^(---|- \{.*|(- )?[A-Za-z.\-/]+:( .*)?)$`)
	isExpression = regexp.MustCompile(`^(- )?expression: [^>]`)
)
