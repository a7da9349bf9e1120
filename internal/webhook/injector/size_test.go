// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package injector_test

import (
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/lanyard-dev/lanyard/internal/webhook/injector"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/pkg/mutate/reason"
	"github.com/lanyard-dev/lanyard/test/support/decisions"
	"github.com/lanyard-dev/lanyard/test/support/optionstest"
)

// sized decides about a ServiceAccount and its pods.
type sized struct {
	*testing.T
	settings *annotations.Settings
}

// writes returns the response to the write of a ServiceAccount with these annotations.
func (s *sized) writes(values map[string]string) decision {
	s.Helper()
	validator := &injector.ServiceAccountValidator{Config: injector.Config{Settings: s.settings, Namespaces: objects{"/team": nil}}, Invalidator: &invalidated{}}
	return ask(s, validator, write(marshal(s, map[string]any{"metadata": map[string]any{"name": "app", "annotations": values}}), nil))
}

// creates returns the response to a pod of the ServiceAccount with one container.
func (s *sized) creates(values map[string]string, spec string) decision {
	s.Helper()
	pods := &injector.PodMutator{Config: injector.Config{Settings: s.settings, ServiceAccounts: objects{"team/app": values}, Namespaces: objects{"/team": nil}}}
	return ask(s, pods, create([]byte(`{"metadata":{"name":"pod"},"spec":{"serviceAccountName":"app",`+spec+`"containers":[{"name":"main"}]}}`)))
}

// systems are the parts of a spec that select the node's operating system.
var systems = []string{"", `"os":{"name":"windows"},`}

// long returns a text of n bytes that begins and ends as the grammar requires.
func long(start string, n int, end string) string {
	return start + strings.Repeat("a", n-len(start)-len(end)) + end
}

// longestConfig contains the longest values that only the cluster sets.
var longestConfig = "azure-authority-host: " + long("https://", 2047, ".example.com") + "/\n" +
	"gcp-universe-domain: " + long("", 253, ".example.com") + "\n"

// longestClouds asks for the three clouds, with the longest valid values. In JSON, and for the
// kubelet, some characters take two bytes.
func longestClouds() map[string]string {
	file := func(name string) string { return long("/var/run/secrets/"+name+"/", 250, "/token") }
	return map[string]string{
		"lanyard.dev/aws-role-arn":                   "arn:aws-us-gov:iam::111122223333:role/" + strings.Repeat("$", 510) + "/" + strings.Repeat("r", 64),
		"lanyard.dev/aws-role-arn.audit":             "arn:aws-us-gov:iam::111122223333:role/audit",
		"lanyard.dev/aws-region":                     long("eu-", 64, "-1"),
		"lanyard.dev/aws-session-name":               "pod",
		"lanyard.dev/aws-token-path":                 file("aws"),
		"lanyard.dev/azure-client-id":                clientID,
		"lanyard.dev/azure-tenant-id":                long("", 253, ".example.com"),
		"lanyard.dev/azure-token-path":               file("azure"),
		"lanyard.dev/gcp-workload-identity-provider": "projects/" + strings.Repeat("1", 20) + "/locations/global/workloadIdentityPools/" + strings.Repeat("p", 32) + "/providers/" + strings.Repeat("p", 32),
		"lanyard.dev/gcp-service-account":            long("lanyard-app@my-project.", 320, ".iam.gserviceaccount.com"),
		"lanyard.dev/gcp-project":                    long("", 289, ".com:") + "my-project-" + strings.Repeat("x", 19),
		"lanyard.dev/gcp-token-path":                 file("gcp"),
	}
}

func TestTheLongestIdentitiesOfTheCloudsFitIntoAContainer(t *testing.T) {
	t.Parallel()
	s := &sized{t, optionstest.Settings(t, longestConfig, reservedAudience)}
	if response := s.writes(longestClouds()); response.Reason != reason.Valid {
		t.Errorf("ServiceAccount: got %s: %s", response.Reason, response.Message)
	}
	for _, system := range systems {
		if response := s.creates(longestClouds(), system); response.Reason != reason.Injected {
			t.Errorf("pod %s: got %s: %s", system, response.Reason, response.Message)
		}
	}
}

// exampleProviders returns a configuration with all files of examples/providers.
func exampleProviders(t *testing.T) string {
	t.Helper()
	files, err := filepath.Glob("../../../examples/providers/*.yaml")
	if err != nil || len(files) < 10 {
		t.Fatalf("got %d files and error %v", len(files), err)
	}
	var all struct {
		Providers []any `json:"providers"`
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		one := all
		one.Providers = nil
		if err := yaml.UnmarshalStrict(text, &one); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		all.Providers = append(all.Providers, one.Providers...)
	}
	text, err := yaml.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// ordinary asks for the three clouds and all example providers, with the values of the golden
// cases.
func ordinary(t *testing.T) map[string]string {
	t.Helper()
	cases, err := decisions.Read("../../../test/decisions")
	if err != nil {
		t.Fatal(err)
	}
	values := threeClouds()
	for _, c := range cases {
		if c.Theme == "providers" {
			metadata := unmarshal(t, c.ServiceAccount)["metadata"].(map[string]any)
			for key, value := range metadata["annotations"].(map[string]any) {
				values[key] = value.(string)
			}
		}
	}
	return values
}

func TestAllExampleProvidersFitIntoAContainer(t *testing.T) {
	t.Parallel()
	s := &sized{t, optionstest.Settings(t, exampleProviders(t), reservedAudience)}
	values := ordinary(t)
	if asked := len(s.settings.Asked(values)); asked < 12 {
		t.Fatalf("got %d providers, want all", asked)
	}
	if response := s.writes(values); response.Reason != reason.Valid {
		t.Errorf("ServiceAccount: got %s: %s", response.Reason, response.Message)
	}
	for _, system := range systems {
		if response := s.creates(values, system); response.Reason != reason.Injected {
			t.Errorf("pod %s: got %s: %s", system, response.Reason, response.Message)
		}
	}
}

// wideProviders have variables that together do not fit into a container.
const wideProviders = `providers:
- {name: one, audience: one, parameters: [{name: user, required: true, pattern: '[^:@]+', example: x, maxBytes: 1024}, {name: more, pattern: '[^:@]+', example: x, maxBytes: 1024}], environment: [{name: ONE_USER, value: '{user}'}, {name: ONE_TWICE, value: '{user} {more}'}, {name: ONE_FILE, value: '{token-file}', credential: true}]}
- {name: two, audience: two, parameters: [{name: user, required: true, pattern: '[^:@]+', example: x, maxBytes: 1024}, {name: more, pattern: '[^:@]+', example: x, maxBytes: 1024}], environment: [{name: TWO_USER, value: '{user}'}, {name: TWO_MORE, value: '{more}'}]}
- {name: three, audience: three, parameters: [{name: user, required: true, pattern: '[^:@]+', example: x, maxBytes: 1024}], environment: [{name: THREE_USER, value: '{user}@{namespace}'}]}
`

func TestIdentitiesThatDoNotFitAreDeniedWhenTheyAreWritten(t *testing.T) {
	t.Parallel()
	s := &sized{t, optionstest.Settings(t, wideProviders, reservedAudience)}
	values := longestClouds()
	for _, name := range []string{"one-user", "one-more", "two-user", "two-more", "three-user"} {
		values["lanyard.dev/"+name] = strings.Repeat("x", 1000)
	}
	written, pod := s.writes(values), s.creates(values, "")
	sizes := regexp.MustCompile(`the identities add [0-9]{5} bytes to each container, want at most [0-9]+$`)
	for _, test := range []struct {
		got   decision
		start string
	}{
		{written, `lanyard: too_large: serviceaccount "team/app": `},
		{pod, `lanyard: too_large: pod "team/pod": serviceaccount "app": `},
	} {
		if test.got.Reason != reason.TooLarge || test.got.Code != 400 || !strings.HasPrefix(test.got.Message, test.start) || !sizes.MatchString(test.got.Message) {
			t.Errorf("got %d %s, want %s and sizes", test.got.Code, test.got.Message, test.start)
		}
	}
}

// FuzzSize checks that the pods of an accepted ServiceAccount are never denied as too large.
func FuzzSize(f *testing.F) {
	for seed := range uint64(200) {
		f.Add(seed)
	}
	wide := optionstest.Settings(f, wideProviders, reservedAudience)
	f.Fuzz(func(t *testing.T, seed uint64) {
		r, s := rand.New(rand.NewPCG(seed, 0)), &sized{t, wide}
		values := longestClouds()
		for _, name := range []string{"one-user", "one-more", "two-user", "two-more", "three-user"} {
			values["lanyard.dev/"+name] = strings.Repeat([]string{"x", `"`, "$", `\`}[r.IntN(4)], 1+r.IntN(1024))
		}
		for _, key := range slices.Sorted(maps.Keys(values)) {
			if r.IntN(6) == 0 {
				delete(values, key)
			}
		}
		written := s.writes(values)
		denied := 0
		for _, system := range systems {
			pod := s.creates(values, system)
			if pod.Reason == reason.TooLarge {
				denied++
			}
			if written.Reason == reason.Valid && pod.Code != 0 {
				t.Errorf("the ServiceAccount is valid, but its pod %s is denied: %s", system, pod.Message)
			}
		}
		if written.Reason == reason.TooLarge && denied == 0 {
			t.Errorf("the ServiceAccount is denied, but no pod: %s", written.Message)
		}
	})
}
