// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package settings_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/lanyard-dev/lanyard/internal/settings"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

const example = `# a comment
aws-default-region: eu-central-1
providers:
- name: example
  audience: example.com
  minTokenExpirationSeconds: 1200
  parameters:
  - {name: role, required: true, pattern: 'role/[a-z]+', message: must be a role, example: role/loki}
  - name: region
    maxBytes: 16
    default: eu-{namespace}
  environment:
  - {name: EXAMPLE_ROLE, value: '{role}'}
  - name: EXAMPLE_TOKEN
    value: '{token-file}'
    credential: true
  - {name: EXAMPLE_REGION, value: '{region}/{serviceaccount}', group: region}
  shadows: [EXAMPLE_KEY]
identities:
- namespace: team-*
  serviceAccount: loki
  annotations:
    aws-role-arn: loki
`

func parse(t *testing.T, text string) *settings.File {
	t.Helper()
	file, err := settings.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return file
}

func TestACustomProviderIsAProvider(t *testing.T) {
	t.Parallel()
	file := parse(t, example)
	want := []*annotations.Provider{{
		Name: "example", DefaultAudience: "example.com", MaxAudienceBytes: 256, MinExpirationSeconds: 1200,
		TokenPath: "example/token", PrincipalParameters: []string{"role"}, Shadows: []annotations.Shadow{{Name: "EXAMPLE_KEY"}},
		Parameters: []annotations.Parameter{
			{Name: "role", Identity: true, Required: true, Example: "role/loki", MaxBytes: 256, Template: true},
			{Name: "region", MaxBytes: 16, Template: true},
		},
		Variables: []annotations.Variable{
			{Name: "EXAMPLE_ROLE", Value: "{role}"},
			{Name: "EXAMPLE_TOKEN", Value: "{token-file}", Credential: true},
			{Name: "EXAMPLE_REGION", Value: "{region}/{serviceaccount}", Group: "region"},
		},
	}}
	if diff := cmp.Diff(want, file.Providers, cmpopts.IgnoreFields(annotations.Parameter{}, "Grammar")); diff != "" {
		t.Errorf("providers (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]string{"example-region": "eu-{namespace}"}, file.Parameters); diff != "" {
		t.Errorf("defaults (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]settings.Setting{"aws-default-region": {Value: "eu-central-1"}}, file.Settings); diff != "" {
		t.Errorf("settings (-want +got):\n%s", diff)
	}
	identities := []settings.Identity{{Namespace: "team-*", ServiceAccount: "loki", Annotations: map[string]string{"aws-role-arn": "loki"}}}
	if diff := cmp.Diff(identities, file.Identities, cmpopts.IgnoreUnexported(settings.Identity{})); diff != "" {
		t.Errorf("identities (-want +got):\n%s", diff)
	}
}

func TestTheTextOfTrustMayHaveOtherBraces(t *testing.T) {
	t.Parallel()
	const text = "login ${HOME} {role} {\"json\": {}} {issuer}\n"
	file := parse(t, broken(t, "  shadows:", "  trust: |\n    "+text+"  shadows:"))
	if got := file.Providers[0].Trust; got != text {
		t.Errorf("got %q, want %q", got, text)
	}
}

func TestAFileMayHaveNeither(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "# nothing\n", "v: 1\n", "providers: []\nidentities:\n"} {
		if file := parse(t, text); len(file.Providers) != 0 || len(file.Identities) != 0 {
			t.Errorf("%q: got %+v", text, file)
		}
	}
}

func TestTheGrammarOfAParameter(t *testing.T) {
	t.Parallel()
	parameters := parse(t, example).Providers[0].Parameters
	const (
		notVisible = "must be visible ASCII characters without a space"
		guid       = "01234567-89ab-cdef-0123-456789abcdef"
	)
	for sentence, tt := range map[string]struct {
		parameter   int
		value, want string // want is the value or the error
	}{
		"a value that the pattern matches":            {0, "role/a", "role/a"},
		"a value of which a part matches":             {0, "xrole/a", "must be a role"},
		"a value with a line break at the end":        {0, "role/a\n", notVisible},
		"an empty value":                              {1, "", notVisible},
		"any value without a pattern":                 {1, "$x{y}", "$x{y}"},
		"a letter that is not ASCII":                  {1, "é", notVisible},
		"a value that is longer than maxBytes":        {1, strings.Repeat("a", 17), "must have at most 16 bytes"},
		"a value that is longer than without a limit": {0, "role/" + strings.Repeat("a", 252), "must have at most 256 bytes"},
		"a GUID in lower case":                        {2, strings.ToUpper(guid), guid},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			p := annotations.Parameter{MaxBytes: 64, Grammar: parameters[1].Grammar}
			if tt.parameter < len(parameters) {
				p = parameters[tt.parameter]
			}
			got, err := p.Read(tt.value)
			if err != nil {
				got = err.Error()
			}
			if got != tt.want {
				t.Errorf("%q: got %q, want %q", tt.value, got, tt.want)
			}
		})
	}
}

// broken returns the example with one part replaced.
func broken(t *testing.T, old, replacement string) string {
	t.Helper()
	if !strings.Contains(example, old) {
		t.Fatalf("the example has no %q", old)
	}
	return strings.Replace(example, old, replacement, 1)
}

func TestAMistakeHasItsLineAndItsReason(t *testing.T) {
	t.Parallel()
	const anyName = "must be 1 to 24 of a-z, 0-9 and -, and begin with a letter"
	for sentence, tt := range map[string]struct{ old, replacement, want string }{
		"an unknown key":                            {"pattern:", "patern:", "line 8: field patern not found"},
		"a key that is there twice":                 {"maxBytes: 16", "maxBytes: 16\n    maxBytes: 17", `line 11: mapping key "maxBytes" already defined at line 10`},
		"a value of another type":                   {"maxBytes: 16", "maxBytes: many", "line 10: cannot unmarshal !!str `many` into int"},
		"two mistakes":                              {"audience: example.com", "audience: [a]\n  x: 1", "line 5: cannot unmarshal !!seq into string\nline 6: field x not found"},
		"a list in place of a text":                 {"audience: example.com", "audience: [a]", "line 5: cannot unmarshal !!seq"},
		"an empty name":                             {"name: example", "name: ''", `line 4: providers[0].name: Invalid value: "": ` + anyName},
		"a name in capital letters":                 {"name: example", "name: Example", `line 4: providers[0].name: Invalid value: "Example": ` + anyName},
		"a name that is too long":                   {"name: example", "name: " + strings.Repeat("a", 25), anyName},
		"the name of a built-in provider":           {"name: example", "name: aws", `line 4: providers[0].name: Invalid value: "aws": is already a name of provider aws`},
		"the annotation of a built-in provider":     {"name: example", "name: aws-role", "x"},
		"no audience":                               {"audience: example.com", "audience: ''", `line 5: providers[0].audience: Invalid value: "": must be 1 to 256 visible ASCII characters without a space`},
		"a lifetime that is too short":              {"Seconds: 1200", "Seconds: 599", "line 6: providers[0].minTokenExpirationSeconds: Invalid value: 599: must be a whole number of seconds from 600 to 86400"},
		"the name of a key of every provider":       {"name: region", "name: audience", `line 9: providers[0].parameters[1].name: Invalid value: "audience": must not be one of audience, token-path, namespace, serviceaccount, token-file, credential-file, issuer, subject`},
		"an unknown parameter in the text of trust": {"  shadows:", "  trust: 'login {rol}'\n  shadows:", `line 18: providers[0].trust: Invalid value: "{rol}": must be one of {issuer}, {audience}, {subject}, {keys-file}, {namespace}, {serviceaccount}, {role}, {region}; write`},
		"the token's file in the text of trust":     {"  shadows:", "  trust: 'cat {token-file}'\n  shadows:", `line 18: providers[0].trust: Invalid value: "{token-file}": must be one of`},
		"an escape sequence in the text of trust":   {"  shadows:", "  trust: \"\\e[2J\"\n  shadows:", `line 18: providers[0].trust: Invalid value: "": must have no control characters`},
		"a text of trust that is too long":          {"  shadows:", "  trust: " + strings.Repeat("a", 4097) + "\n  shadows:", "line 18: providers[0].trust: Too long"},
		"a parameter with the name of the issuer":   {"name: region", "name: issuer", `line 9: providers[0].parameters[1].name: Invalid value: "issuer": must not be one of`},
		"a parameter that is there twice":           {"name: region", "name: role", `line 9: providers[0].parameters[1].name: Invalid value: "example-role": is already a annotation of provider example`},
		"no required parameter":                     {"required: true, ", "", "line 8: providers[0].parameters: Required value: must have a parameter with required: true"},
		"a pattern that does not compile":           {"role/[a-z]+", "role/[", `line 8: providers[0].parameters[0].pattern: Invalid value: "role/[": must be a regular expression: missing closing ]`},
		"a pattern that is too long":                {"role/[a-z]+", strings.Repeat("a", 1025), "line 8: providers[0].parameters[0].pattern: Too long"},
		"a message without a pattern":               {"pattern: 'role/[a-z]+', ", "", "line 8: providers[0].parameters[0].message: Invalid value: \"must be a role\": has no effect without a pattern"},
		"a pattern without an example":              {", example: role/loki", "", "line 8: providers[0].parameters[0].example: Required value: must have a value that the pattern matches"},
		"an example that does not match":            {"example: role/loki", "example: loki", `line 8: providers[0].parameters[0].example: Invalid value: "loki": must be a role`},
		"an example that is too long":               {"maxBytes: 16", "maxBytes: 16\n    example: eu-central-1-and-more", `line 11: providers[0].parameters[1].example: Invalid value: "eu-central-1-and-more": must have at most 16 bytes`},
		"a limit that is too high":                  {"maxBytes: 16", "maxBytes: 2049", "line 10: providers[0].parameters[1].maxBytes: Invalid value: 2049: must be 1 to 2048"},
		"a default that is too long":                {"default: eu-{namespace}", "default: eu-central-1-and-more", `line 11: providers[0].parameters[1].default: Invalid value: "eu-central-1-and-more": must have at most 16 bytes`},
		"a default with another variable":           {"default: eu-{namespace}", "default: eu-{x}", "line 11: providers[0].parameters[1].default: Invalid value: \"eu-{x}\": "},
		"a variable in small letters":               {"name: EXAMPLE_TOKEN", "name: token", `line 14: providers[0].environment[1].name: Invalid value: "token": must be 1 to 128 of A-Z, 0-9 and _, and not begin with a digit`},
		"a variable of a built-in provider":         {"name: EXAMPLE_TOKEN", "name: AWS_REGION", `line 14: providers[0].environment[1].name: Invalid value: "AWS_REGION": is already a variable of provider aws`},
		"a variable without a value":                {"value: '{role}'", "value: ''", `line 13: providers[0].environment[0].value: Invalid value: "": must be 1 to 1024 bytes`},
		"an unknown parameter in a value":           {"value: '{role}'", "value: '{rol}'", `line 13: providers[0].environment[0].value: Invalid value: "{rol}": has {rol}, which is none of {namespace}, {serviceaccount}, {token-file}, {role}, {region}`},
		"a brace":                                   {"value: '{role}'", "value: '{role}{'", `line 13: providers[0].environment[0].value: Invalid value: "{role}{": must have no braces except`},
		"a credential that is no file":              {"value: '{token-file}'", "value: x", "line 16: providers[0].environment[1].credential: Invalid value: true: is for variables that point to {token-file}"},
		"a credential in a group":                   {"credential: true", "credential: true\n    group: a", `line 17: providers[0].environment[1].group: Invalid value: "a": has no effect with credential: true`},
		"a variable to warn of in small letters":    {"EXAMPLE_KEY", "key", `line 18: providers[0].shadows[0]: Invalid value: "key": `},
		"a namespace that is no glob":               {"namespace: team-*", "namespace: team.*", `line 20: identities[0].namespace: Invalid value: "team.*": must be the name of a namespace`},
		"no ServiceAccount":                         {"serviceAccount: loki", "serviceAccount: ''", `line 21: identities[0].serviceAccount: Invalid value: "": must be the name of a ServiceAccount`},
		"no annotations":                            {"annotations:\n    aws-role-arn: loki", "annotations: {}", "line 22: identities[0].annotations: Required value"},
		"a pattern that escapes its anchors":        {"role/[a-z]+", "role/a)|(b", `line 8: providers[0].parameters[0].pattern: Invalid value: "role/a)|(b": must be a regular expression: unexpected ): `},
		"a required parameter of the cluster":       {"required: true", "required: true, clusterOnly: true", "line 8: providers[0].parameters[0].clusterOnly: Invalid value: true: must not be true with required: true"},
		"a parameter of the cluster to compare":     {"maxBytes: 16", "clusterOnly: true\n    allowed: true", "line 11: providers[0].parameters[1].allowed: Invalid value: true: has no effect with clusterOnly: true"},
		"an annotation that is the host of a URL": {"value: '{role}'", "value: 'https://{role}/x'", "line 13: providers[0].environment[0].value: Invalid value: \"https://{role}/x\": " +
			"may send tokens to a host that {role}, an annotation, decides; set a pattern that no URL and no host with a port matches, or clusterOnly: true"},
		"text that is no YAML": {"providers:", "providers: [", "line "},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			text := broken(t, tt.old, tt.replacement)
			if sentence == "the annotation of a built-in provider" {
				text = strings.Replace(text, "name: role,", "name: arn,", 1)
				text = strings.Replace(text, "'{role}'", "'{arn}'", 1)
				tt.want = `line 8: providers[0].parameters[0].name: Invalid value: "aws-role-arn": is already a annotation of provider aws`
			}
			file, err := settings.Parse([]byte(text))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("got %+v and error:\n%v\nwant:\n%s", file, err, tt.want)
			}
			if strings.Contains(err.Error(), "settings.") {
				t.Errorf("the message names a type of Go: %v", err)
			}
		})
	}
}

// Everything is bounded: the file, and each list in it.
func TestListsAreBounded(t *testing.T) {
	t.Parallel()
	list := func(n int, item string) string {
		var text strings.Builder
		for i := range n {
			fmt.Fprintf(&text, item, i)
		}
		return text.String()
	}
	const one = "providers:\n- name: a\n  audience: a\n  parameters:\n  - {name: p, required: true}\n"
	for sentence, tt := range map[string]struct {
		text func(n int) string
		most int
	}{
		"providers": {func(n int) string {
			return "providers:\n" + list(n, "- {name: p%d, audience: a, parameters: [{name: a, required: true}]}\n")
		}, 16},
		"parameters": {func(n int) string { return one + list(n-1, "  - {name: p%d}\n") }, 16},
		"variables":  {func(n int) string { return one + "  environment:\n" + list(n, "  - {name: V%d, value: x}\n") }, 32},
		"shadows":    {func(n int) string { return one + "  shadows:\n" + list(n, "  - V%d\n") }, 32},
		"identities": {func(n int) string {
			return "identities:\n" + list(n, "- {namespace: a, serviceAccount: a%d, annotations: {a: b}}\n")
		}, 256},
		"annotations": {func(n int) string {
			return "identities:\n- namespace: a\n  serviceAccount: a\n  annotations:\n" + list(n, "    a%d: b\n")
		}, 32},
		"bytes": {func(n int) string { return strings.Repeat("#", n) }, 1 << 20},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			if _, err := settings.Parse([]byte(tt.text(tt.most))); err != nil {
				t.Errorf("%d: %v", tt.most, err)
			}
			if _, err := settings.Parse([]byte(tt.text(tt.most + 1))); err == nil {
				t.Errorf("%d: got no error", tt.most+1)
			}
		})
	}
}

func TestTheExamplesAreValid(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../examples/providers/*.yaml")
	if err != nil || len(files) < 7 {
		t.Fatalf("got %q and error %v", files, err)
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		file, err := settings.Parse(text)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got, want := file.Providers[0].Name+".yaml", filepath.Base(name); got != want {
			t.Errorf("%s: got provider %s", name, got)
		}
	}
}

// hostValue returns a configuration file whose provider sets the variable to the value. Annotations
// set the parameters a, which may be any address, and name. Only the cluster sets c.
func hostValue(variable, value string) string {
	return "providers:\n- name: x\n  audience: x\n  parameters:\n  - {name: a, required: true}\n  - {name: name, pattern: '[a-z.-]+', example: b}\n  - {name: c, clusterOnly: true}\n" +
		"  environment:\n  - {name: " + variable + ", value: '" + value + "'}\n"
}

func TestNoAnnotationDecidesWhichServerGetsTheToken(t *testing.T) {
	t.Parallel()
	for sentence, tt := range map[string]struct {
		variable, value string
		denied          bool
	}{
		"the host":                                  {"X", "https://{a}", true},
		"the host, with a grammar":                  {"X", "https://{name}", true},
		"the end of the host":                       {"X", "https://x.{a}/y", true},
		"the user in front of the host":             {"X", "https://{a}@x.example.com/", true},
		"the port":                                  {"X", "https://x.example.com:{a}", true},
		"the end of a host without a path":          {"X", "https://x.example.com{a}", true},
		"the scheme":                                {"X", "{a}://x.example.com/", true},
		"a part in front of a second URL":           {"X", "https://x.example.com/{a},https://y/", true},
		"the path":                                  {"X", "https://x.example.com/{a}", false},
		"the query":                                 {"X", "https://x.example.com?a={a}", false},
		"the path, and the cluster the host":        {"X", "https://{c}/{a}", false},
		"the host, and the cluster another":         {"X", "https://{c}.{a}/", true},
		"a value that can be an address":            {"AWS_ENDPOINT_URL_STS", "{a}", true},
		"a value that can be a server":              {"MINIO_SERVER", "{a}", true},
		"a value that can be the authority":         {"FOO_AUTHORITY", "{a}", true},
		"the start of an address":                   {"X", "{a}:8200", true},
		"the start of an address, with a grammar":   {"X", "{name}:8200", true},
		"the end of an address without a path":      {"X", "x.example.com{a}", true},
		"a value of which no address is one":        {"X_ADDR", "{name}", false},
		"the end of a value of which no address is": {"X", "role-{name}", false},
		"the path of an address":                    {"X_ADDR", "x.example.com/{a}", false},
		"an address that the cluster decides":       {"X_ADDR", "{c}", false},
		"the name of a file in such a variable":     {"X_URL", "file:///{a}", false},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			_, err := settings.Parse([]byte(hostValue(tt.variable, tt.value)))
			if (err != nil) != tt.denied || err != nil && !strings.Contains(err.Error(), "an annotation, decides; set a pattern") {
				t.Errorf("got error %v, want denied %t", err, tt.denied)
			}
		})
	}
}

func TestNoVariableChangesHowProgramsLoadCode(t *testing.T) {
	t.Parallel()
	for variable, denied := range map[string]bool{
		"LD_PRELOAD": true, "LD_LIBRARY_PATH": true, "DYLD_INSERT_LIBRARIES": true, "PATH": true, "HTTPS_PROXY": true, "NO_PROXY": true,
		"NODE_OPTIONS": true, "PYTHONPATH": true, "PYTHONSTARTUP": true, "JAVA_TOOL_OPTIONS": true, "JDK_JAVA_OPTIONS": true, "RUBYOPT": true,
		"PERL5OPT": true, "BASH_ENV": true, "ENV": true, "KUBERNETES_SERVICE_HOST": true, "KUBERNETES_PORT": true,
		"https_proxy": true, // as any name in small letters
		"X_PATH":      false, "OLD_X": false, "ENVIRONMENT": false, "PROXY_X": false, "X_KUBERNETES_Y": false,
	} {
		if _, err := settings.Parse([]byte(hostValue(variable, "x"))); (err != nil) != denied {
			t.Errorf("%s: got error %v, want denied %t", variable, err, denied)
		}
	}
}

// FuzzParse checks that any text is a file or a mistake with a line, and that a file is
// parsed the same each time.
func FuzzParse(f *testing.F) {
	f.Add(example)
	f.Add("providers: [{name: a, parameters: [{pattern: '(', required: 1}]}]")
	f.Add("identities: {a: b}")
	f.Add("a: &a [*a]")
	f.Fuzz(func(t *testing.T, text string) {
		file, err := settings.Parse([]byte(text))
		if err != nil {
			return
		}
		again, err := settings.Parse([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		ignore := cmp.Options{cmpopts.IgnoreFields(annotations.Parameter{}, "Grammar"), cmpopts.IgnoreUnexported(settings.Identity{})}
		if diff := cmp.Diff(file, again, ignore); diff != "" {
			t.Error(diff)
		}
	})
}
