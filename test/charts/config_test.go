// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"

	"github.com/lanyard-dev/lanyard/internal/options"
)

// loadOptions returns the settings that the program has with its arguments and its
// ConfigMap. users is the content of a ConfigMap that is not rendered.
func loadOptions(t *testing.T, objects []object, users string) *options.Options {
	t.Helper()
	o := options.New()
	flags := o.FlagSet()
	spec := deployment(t, objects).Spec.Template.Spec
	if err := flags.Parse(spec.Containers[0].Args); err != nil {
		t.Fatal(err)
	}
	if flags.NArg() > 0 {
		t.Errorf("got arguments that are not flags: %q", flags.Args())
	}
	if o.ConfigFile != "" {
		o.ConfigFile = mounted(t, objects, &spec, o.ConfigFile, users)
	}
	if err := o.LoadConfig(flags, os.ReadFile); err != nil {
		t.Fatal(err)
	}
	return o
}

// mounted returns a copy of the file that the container sees at the path, from the
// ConfigMap that is mounted there.
func mounted(t *testing.T, objects []object, spec *corev1.PodSpec, path, users string) string {
	t.Helper()
	for _, mount := range spec.Containers[0].VolumeMounts {
		if mount.MountPath != filepath.Dir(path) {
			continue
		}
		for _, volume := range spec.Volumes {
			if volume.Name != mount.Name {
				continue
			}
			text := users
			for _, o := range find(objects, "ConfigMap") {
				if o.GetName() == volume.ConfigMap.Name {
					text = decode[corev1.ConfigMap](t, o).Data[filepath.Base(path)]
				}
			}
			file := filepath.Join(t.TempDir(), filepath.Base(path))
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			return file
		}
	}
	t.Fatalf("nothing is mounted at %s", path)
	return ""
}

// allSettings sets many settings to values other than their defaults.
const allSettings = `config:
  aws-default-region: eu-central-1
  aws-default-audience: a
  aws-role-arn-prefix: "arn:aws:iam::1:role/team/"
  aws-default-role-arn: "arn:aws:iam::1:role/{namespace}_{serviceaccount}"
  azure-default-tenant-id: contoso.example
  azure-default-audience: b
  azure-authority-host: https://login.example/
  gcp-default-workload-identity-provider: projects/1/locations/global/workloadIdentityPools/pool/providers/prov
  gcp-default-audience: c
  gcp-default-project: my-project
  gcp-universe-domain: example.goog
  gcp-impersonation-lifetime-seconds: "7200"
  default-allowed-identities: "arn:aws:iam::1:role/{namespace}-*"
  token-expiration-seconds: 7200
  token-mount-path: /var/run/x
  bind-address: "::"
  tls-min-version: VersionTLS12
  tls-cipher-suites: [TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256]
`

// wantSettings maps flags to the values that the program must have with allSettings.
var wantSettings = map[string]string{
	"aws-default-region":                     "eu-central-1",
	"aws-default-audience":                   "a",
	"aws-role-arn-prefix":                    "arn:aws:iam::1:role/team/",
	"aws-default-role-arn":                   "arn:aws:iam::1:role/{namespace}_{serviceaccount}",
	"gcp-default-project":                    "my-project",
	"gcp-universe-domain":                    "example.goog",
	"gcp-impersonation-lifetime-seconds":     "7200",
	"azure-default-tenant-id":                "contoso.example",
	"azure-default-audience":                 "b",
	"azure-authority-host":                   "https://login.example/",
	"gcp-default-workload-identity-provider": "projects/1/locations/global/workloadIdentityPools/pool/providers/prov",
	"gcp-default-audience":                   "c",
	"default-allowed-identities":             "arn:aws:iam::1:role/{namespace}-*",
	"token-expiration-seconds":               "7200",
	"token-mount-path":                       "/var/run/x",
	"bind-address":                           "::",
	"tls-min-version":                        "VersionTLS12",
	"tls-cipher-suites":                      "[TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256]",
}

// settingsOf returns the settings of wantSettings that the program has.
func settingsOf(o *options.Options) map[string]string {
	got := map[string]string{}
	for _, group := range o.Flags().FlagSets {
		group.VisitAll(func(flag *pflag.Flag) {
			if _, found := wantSettings[flag.Name]; found {
				got[flag.Name] = flag.Value.String()
			}
		})
	}
	return got
}

func TestSettingsArriveInAConfigMapAndAsFlags(t *testing.T) {
	for name, more := range map[string]string{"the chart's ConfigMap": "", "the user's ConfigMap": "existingConfigMap: mine\n"} {
		t.Run(name, func(t *testing.T) {
			objects := render(t, defaultInstall, parseValues(t, allSettings+more)).objects
			// The values override the user's file.
			o := loadOptions(t, objects, "aws-default-region: us-east-1\ntoken-mount-path: /other")
			if diff := cmp.Diff(wantSettings, settingsOf(o)); diff != "" {
				t.Errorf("settings (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAConfigMapOfTheUsersIsRead(t *testing.T) {
	objects := render(t, defaultInstall, parseValues(t, "existingConfigMap: mine")).objects
	o := loadOptions(t, objects, "aws-default-region: us-east-1\ntoken-mount-path: /other")
	if got := settingsOf(o)["aws-default-region"]; got != "us-east-1" {
		t.Errorf("got the region %q, want us-east-1", got)
	}
	// The guard would not know the path.
	if want := "/var/run/secrets/lanyard.dev/serviceaccount"; o.Injection.TokenMountPath != want {
		t.Errorf("got the mount path %s, want %s", o.Injection.TokenMountPath, want)
	}
}

func TestAChangedSettingReplacesTheReplicas(t *testing.T) {
	template := func(values string) any {
		return deployment(t, render(t, defaultInstall, parseValues(t, values)).objects).Spec.Template
	}
	before := template("config: {aws-default-region: eu-central-1}")
	if diff := cmp.Diff(before, template("config: {aws-default-region: eu-west-1}")); diff == "" {
		t.Error("the pods keep the former region")
	}
	if diff := cmp.Diff(before, template("config: {aws-default-region: eu-central-1}\ncommonLabels: {}\nlogFormat: text\nfullnameOverride: lanyard")); diff != "" {
		t.Errorf("the pods are replaced without a change (-before +after):\n%s", diff)
	}
}

func TestWithoutSettingsThereIsNoConfigMap(t *testing.T) {
	objects := render(t, defaultInstall, nil).objects
	if got := find(objects, "ConfigMap"); len(got) != 0 {
		t.Errorf("got %s", got[0].key())
	}
	if o := loadOptions(t, objects, ""); o.ConfigFile != "" {
		t.Errorf("got --config=%s", o.ConfigFile)
	}
}

// The file is the value config, including settings that the chart does not know.
func TestTheFileIsTheValue(t *testing.T) {
	const values = "config: {a-setting-of-tomorrow: [x, 1], token-expiration-seconds: 7200, excluded-namespaces: [legacy], identities: [{namespace: a, serviceAccount: b, annotations: {c: d}}]}"
	v := parseValues(t, values)
	o := one(t, render(t, defaultInstall, v).objects, "ConfigMap/lanyard-system/lanyard-webhook-config")
	got := parseValues(t, decode[corev1.ConfigMap](t, o).Data["config.yaml"])
	if diff := cmp.Diff(v["config"], any(got)); diff != "" {
		t.Errorf("config.yaml (-want +got):\n%s", diff)
	}
}

// No setting can be set by two values of the chart: a flag that a template sets cannot
// be set in config. The chart extends excluded-namespaces.
func TestASettingOfTheChartIsNotInConfig(t *testing.T) {
	flags := map[string]bool{}
	for _, group := range options.New().Flags().FlagSets {
		group.VisitAll(func(flag *pflag.Flag) { flags[flag.Name] = true })
	}
	set := map[string]bool{"existingConfigMap": true} // no flag, but a likely mistake
	for _, values := range valueSets {
		if strings.Contains(values.values, "existingConfigMap") {
			continue // then the settings are arguments
		}
		for _, argument := range deployment(t, render(t, values.in, parseValues(t, values.values)).objects).Spec.Template.Spec.Containers[0].Args {
			name, _, _ := strings.Cut(strings.TrimPrefix(argument, "--"), "=")
			set[name] = name != "excluded-namespaces"
		}
	}
	paths := leaves(t)
	denied := regexp.MustCompile(`is set by the chart: use (\S+)`)
	for name := range flags {
		_, err := tryRender(t, defaultInstall, values{"config": map[string]any{name: "7"}})
		match := denied.FindStringSubmatch(fmt.Sprint(err))
		switch {
		case (match != nil) != set[name]:
			t.Errorf("%s: got error %v, want it denied: %t", name, err, set[name])
		case match != nil && !slices.Contains(paths, match[1]):
			t.Errorf("%s: got the value %s, which does not exist", name, match[1])
		}
	}
	own := regexp.MustCompile(`(?m)^([a-z][a-zA-Z-]*): \S+$`)
	for _, line := range own.FindAllStringSubmatch(readFile(t, chartDir+"/templates/_config.tpl"), -1) {
		if !flags[line[1]] && !set[line[1]] {
			t.Errorf("_config.tpl: got the setting %s, which is no flag", line[1])
		}
	}
}

func TestTheImageThatVerifiesIsTheWebhooksOrTheSetting(t *testing.T) {
	t.Parallel()
	for sentence, tt := range map[string]struct{ values, want string }{
		"off":                      {"", ""},
		"the image of the webhook": {"verifiedStart: {enabled: true}\nimage: {registry: registry.example, tag: v1}", "registry.example/lanyard-webhook:v1"},
		"a mirror":                 {"verifiedStart: {enabled: true}\nconfig: {verify-image: 'mirror.example/lanyard:v1'}", "mirror.example/lanyard:v1"},
		"the setting alone":        {"config: {verify-image: 'mirror.example/lanyard:v1'}", "mirror.example/lanyard:v1"},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			rendered := render(t, defaultInstall, parseValues(t, tt.values))
			if got := loadOptions(t, rendered.objects, "").Injection.VerifyImage; got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}
