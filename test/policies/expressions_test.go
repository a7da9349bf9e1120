// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/cel-go/cel"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/cel/environment"
	"sigs.k8s.io/yaml"

	"github.com/lanyard-dev/lanyard/internal/provider"
	"github.com/lanyard-dev/lanyard/internal/settings"
	"github.com/lanyard-dev/lanyard/internal/texts"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/policies"
)

const grammarFile = "../../internal/provider/testdata/grammar.yaml"

// randomValues is how many random values each expression gets.
const randomValues = 2000

var placeholder = regexp.MustCompile(`\{[a-z][a-z0-9-]*\}`)

// evaluator evaluates expressions as an API server of Kubernetes 1.36 does.
type evaluator struct {
	env      *cel.Env
	programs map[string]cel.Program
}

func newEvaluator(t *testing.T) *evaluator {
	t.Helper()
	env, err := environment.MustBaseEnvSet(version.MajorMinor(1, 36)).Env(environment.NewExpressions)
	must(t, "environment", err)
	env, err = env.Extend(cel.Variable("value", cel.StringType), cel.Variable("values", cel.MapType(cel.StringType, cel.StringType)))
	must(t, "environment", err)
	return &evaluator{env, map[string]cel.Program{}}
}

// eval returns the result of an expression of a provider. {NAME} in the expression stands
// for values[NAME].
func (e *evaluator) eval(t *testing.T, expression, value string, values map[string]string) any {
	t.Helper()
	program, found := e.programs[expression]
	if !found {
		filled := placeholder.ReplaceAllStringFunc(expression, func(name string) string { return "values['" + strings.Trim(name, "{}") + "']" })
		ast, issues := e.env.Compile(filled)
		must(t, filled, issues.Err())
		var err error
		program, err = e.env.Program(ast)
		must(t, filled, err)
		e.programs[expression] = program
	}
	result, _, err := program.Eval(map[string]any{"value": value, "values": values})
	if err != nil {
		t.Fatalf("%s of %q: %v", expression, value, err)
	}
	return result.Value()
}

// grammarValues returns all values of the grammar's tables, both unchanged and changed at random.
func grammarValues(t *testing.T, random *rand.Rand) []string {
	t.Helper()
	var tables map[string]struct {
		Accepted, Denied map[string]string
		Respelled        map[string]struct{ Value, Want string }
	}
	text, err := os.ReadFile(grammarFile)
	must(t, grammarFile, err)
	must(t, grammarFile, yaml.Unmarshal(text, &tables))
	var values []string
	for _, table := range tables {
		for _, value := range table.Accepted {
			values = append(values, value)
		}
		for _, value := range table.Denied {
			values = append(values, value)
		}
		for _, value := range table.Respelled {
			values = append(values, value.Value, value.Want)
		}
	}
	values = append(values, "", "pod", "default", "loki", "team/loki")
	known := len(values)
	for range randomValues {
		values = append(values, changed(values[random.IntN(known)], random))
	}
	return values
}

// changed returns the text with a character removed, replaced or added.
func changed(text string, random *rand.Rand) string {
	const characters = "abzAZ09-_.:/@=+, '\"\\$*\n\u00fc{}"
	runes, all := []rune(text), []rune(characters)
	at := random.IntN(len(runes) + 1)
	with := []rune{all[random.IntN(len(all))]}
	end := at
	switch random.IntN(3) {
	case 0:
		with = nil
		end = min(at+1, len(runes))
	case 1:
		end = min(at+1, len(runes))
	}
	return string(runes[:at]) + string(with) + string(runes[end:])
}

// newRandom returns the same numbers in each run.
func newRandom() *rand.Rand { return rand.New(rand.NewPCG(1, 2)) }

// Each parameter reads and expands a value in Go and in CEL in the same way.
func TestParameters(t *testing.T) {
	e, random := newEvaluator(t), newRandom()
	custom, examples := customProviders(t)
	values := grammarValues(t, random)
	for _, example := range examples {
		values = append(values, example, changed(example, random))
	}
	for _, d := range slices.Concat(provider.Builtin(), custom) {
		for i := range d.Parameters {
			p := &d.Parameters[i]
			if p.Parse != nil {
				if !p.ClusterOnly && p.Name != annotations.TokenPathParameter {
					t.Errorf("%s has a function for its grammar, want data: policies cannot have it", d.Key(p.Name))
				}
				continue
			}
			valid := 0
			for _, value := range values {
				value = e.expand(t, d, p, value)
				want, err := p.Read(value)
				got, gotErr := value, e.eval(t, policies.Checks(p), value, nil).(string)
				if canonical := policies.Canonical(p); gotErr == "" && canonical != "" {
					got = e.eval(t, canonical, value, nil).(string)
				}
				switch {
				case err == nil && gotErr == "" && got == want:
					valid++
				case err == nil || err.Error() != gotErr:
					t.Errorf("%s: %q: CEL has %q and error %q, Go has %q and error %v", d.Key(p.Name), value, got, gotErr, want, err)
				}
			}
			if valid == 0 || valid == len(values) {
				t.Errorf("%s: %d of %d values are valid, want some", d.Key(p.Name), valid, len(values))
			}
		}
	}
}

// customProviders returns the providers of the examples, and values of their parameters.
func customProviders(t *testing.T) (all []*annotations.Provider, values []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(examplesDir, "*.yaml"))
	must(t, examplesDir, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		must(t, file, err)
		parsed, err := settings.Parse(text)
		must(t, file, err)
		all = append(all, parsed.Providers...)
		for _, d := range parsed.Providers {
			for i := range d.Parameters {
				values = append(values, d.Parameters[i].Example)
			}
		}
	}
	slices.Sort(values)
	return all, values
}

// expand expands the value with some values of the cluster, and compares Go with CEL.
func (e *evaluator) expand(t *testing.T, d *annotations.Provider, p *annotations.Parameter, value string) string {
	t.Helper()
	if p.Expand == nil {
		return value
	}
	result := value
	for _, cluster := range []map[string]string{
		{"role-arn-prefix": "", "default-project": ""},
		{"role-arn-prefix": "", "default-project": "example.com:my-project"},
		{"role-arn-prefix": "arn:aws:iam::111122223333:role/", "default-project": "my-project"},
	} {
		result = p.Expand(value, func(name string) string { return cluster[name] })
		if got := e.eval(t, policies.FunctionsOf(d).Expand[p.Name], value, cluster); got != result {
			t.Errorf("%s: %q expands to %q in CEL, and to %q in Go", p.Name, value, got, result)
		}
	}
	return result
}

// Each value that a provider derives from others, and each credential file, is the same in
// Go and in CEL.
func TestDerivedValuesAndFiles(t *testing.T) {
	e, random := newEvaluator(t), newRandom()
	emails := []string{
		"", "app@my-project.iam.gserviceaccount.com", "app@my-project.example.com.iam.gserviceaccount.com",
		"lanyard@my-project.iam.gserviceaccount.com.iam.gserviceaccount.com", "my-project@appspot.gserviceaccount.com", "123-compute@developer.gserviceaccount.com",
	}
	projects := []string{"", "project-1", "example.com:project-2"}
	for range randomValues {
		values := annotations.Values{
			"namespace": strings.Repeat("n", 1+random.IntN(63)), "serviceaccount": strings.Repeat("s", 1+random.IntN(80)),
			"project": projects[random.IntN(3)], "default-project": projects[random.IntN(3)], "service-account": emails[random.IntN(len(emails))],
			"workload-identity-provider":     "projects/1/locations/global/workloadIdentityPools/pool/providers/name",
			"token-file":                     []string{"/var/run/secrets/x/gcp/token", `C:\var\run\secrets\x\gcp\token`}[random.IntN(2)],
			"universe-domain":                []string{"", "googleapis.com", "apis.example.goog"}[random.IntN(3)],
			"impersonation-lifetime-seconds": []string{"", "43200"}[random.IntN(2)],
		}
		for _, d := range provider.Builtin() {
			e.compareDerived(t, d, values)
			if file := policies.FunctionsOf(d).File; file != "" {
				if got, want := e.eval(t, file, "", values), d.CredentialFile.Content(values, nil); got != want {
					t.Errorf("%s: the file of %v is %q in CEL, and %q in Go", d.Name, values, got, want)
				}
			}
		}
	}
}

// compareDerived compares the values that a provider derives.
func (e *evaluator) compareDerived(t *testing.T, d *annotations.Provider, values annotations.Values) {
	t.Helper()
	want := maps.Clone(values)
	if d.Derive != nil {
		d.Derive(want)
	}
	for _, derived := range policies.FunctionsOf(d).Derived {
		valid := derived.Valid == "" || e.eval(t, derived.Valid, "", values) == true
		if got := e.eval(t, derived.Value, "", values); valid != (got == want[derived.Name]) {
			t.Errorf("%s: %s of %v is %q in CEL (valid: %t), and %q in Go", d.Name, derived.Name, values, got, valid, want[derived.Name])
		}
		delete(want, derived.Name)
	}
	for name, value := range want {
		if values[name] != value {
			t.Errorf("%s: %s has no expression", d.Name, name)
		}
	}
}

func TestPodNameFits(t *testing.T) {
	e := newEvaluator(t)
	for size := range 70 {
		name := strings.Repeat("p", size)
		if got, want := e.eval(t, policies.PodNameFits, name, nil), provider.PodNameFits(name); got != want {
			t.Errorf("%d characters: got %v in CEL, want %v", size, got, want)
		}
	}
}

// A quoted text is the same text in CEL.
func TestQuoteCEL(t *testing.T) {
	e, random := newEvaluator(t), newRandom()
	for range randomValues {
		text := strings.ReplaceAll(changed(changed(changed("it's \"a\" \\ text\t\x7f", random), random), random), "{", "")
		if got := e.eval(t, texts.QuoteCEL(text), "", nil); got != text {
			t.Errorf("%q: got %q", text, got)
		}
	}
}
