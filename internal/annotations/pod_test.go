// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package annotations_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lanyard-dev/lanyard/internal/annotations"
	"github.com/lanyard-dev/lanyard/internal/provider"
)

func TestParsePod(t *testing.T) {
	t.Parallel()
	const hint = " and is not an annotation of a Pod; identities are set on the ServiceAccount; known keys are " +
		"lanyard.dev/inject, lanyard.dev/containers, lanyard.dev/skip-containers, lanyard.dev/token-expiration-seconds, " +
		"lanyard.dev/injected, lanyard.dev/aws-config, lanyard.dev/gcp-credentials"
	tests := map[string]struct {
		annotations map[string]string
		label       string
		want        annotations.Pod
		errs        []string
	}{
		"a pod without annotations is injected everywhere": {},
		"another domain's annotations are not looked at": {
			annotations: map[string]string{"example.com/inject": "false", "inject": "false"},
		},
		"inject false opts out": {
			annotations: map[string]string{"lanyard.dev/inject": "false"},
			want:        annotations.Pod{OptOut: true},
		},
		"the other annotations of a pod that opts out do not matter": {
			annotations: map[string]string{"lanyard.dev/inject": "false", "lanyard.dev/containers": "", "lanyard.dev/aws-role-arn": "x"},
			want:        annotations.Pod{OptOut: true},
		},
		"inject true changes nothing": {
			annotations: map[string]string{"lanyard.dev/inject": "true"},
		},
		"another spelling of false is denied": {
			annotations: map[string]string{"lanyard.dev/inject": "False"},
			errs:        []string{`metadata.annotations[lanyard.dev/inject]: Invalid value: "False": must be "false" to opt out, or "true"`},
		},
		"an empty inject is denied": {
			annotations: map[string]string{"lanyard.dev/inject": ""},
			errs:        []string{`metadata.annotations[lanyard.dev/inject]: Invalid value: "": must be "false" to opt out, or "true"`},
		},
		"the value of the namespace's label is denied": {
			annotations: map[string]string{"lanyard.dev/inject": "disabled"},
			errs:        []string{`metadata.annotations[lanyard.dev/inject]: Invalid value: "disabled": must be "false" to opt out, or "true"`},
		},
		"the label false opts out": {
			label: "false",
			want:  annotations.Pod{OptOut: true},
		},
		"the label false takes precedence over the annotation true": {
			annotations: map[string]string{"lanyard.dev/inject": "true"},
			label:       "false",
			want:        annotations.Pod{OptOut: true},
		},
		"the annotation false takes precedence over any label": {
			annotations: map[string]string{"lanyard.dev/inject": "false"},
			label:       "no",
			want:        annotations.Pod{OptOut: true},
		},
		"the annotations of a pod with the label false do not matter": {
			annotations: map[string]string{"lanyard.dev/inject": "x", "lanyard.dev/aws-role-arn": "x"},
			label:       "false",
			want:        annotations.Pod{OptOut: true},
		},
		"the label true changes nothing": {
			annotations: map[string]string{"lanyard.dev/containers": "app"},
			label:       "true",
			want:        annotations.Pod{Containers: []string{"app"}},
		},
		"another value of the label is denied": {
			label: "False",
			errs:  []string{`metadata.labels[lanyard.dev/inject]: Invalid value: "False": must be "false" to opt out, or "true"`},
		},
		"the value of the namespace's label is denied as a label": {
			label: "disabled",
			errs:  []string{`metadata.labels[lanyard.dev/inject]: Invalid value: "disabled": must be "false" to opt out, or "true"`},
		},
		"the annotation and the label are both reported": {
			annotations: map[string]string{"lanyard.dev/inject": "no"},
			label:       "off",
			errs: []string{
				`metadata.annotations[lanyard.dev/inject]: Invalid value: "no": must be "false" to opt out, or "true"`,
				`metadata.labels[lanyard.dev/inject]: Invalid value: "off": must be "false" to opt out, or "true"`,
			},
		},
		"one container": {
			annotations: map[string]string{"lanyard.dev/containers": "app"},
			want:        annotations.Pod{Containers: []string{"app"}},
		},
		"several containers, with spaces around the commas": {
			annotations: map[string]string{"lanyard.dev/containers": " app , init-db,debug "},
			want:        annotations.Pod{Containers: []string{"app", "init-db", "debug"}},
		},
		"containers to skip": {
			annotations: map[string]string{"lanyard.dev/skip-containers": "istio-proxy,vault"},
			want:        annotations.Pod{SkipContainers: []string{"istio-proxy", "vault"}},
		},
		"a container of 63 characters": {
			annotations: map[string]string{"lanyard.dev/containers": strings.Repeat("a", 63)},
			want:        annotations.Pod{Containers: []string{strings.Repeat("a", 63)}},
		},
		"a container of 64 characters cannot be": {
			annotations: map[string]string{"lanyard.dev/containers": strings.Repeat("a", 64)},
			errs: []string{`metadata.annotations[lanyard.dev/containers]: Invalid value: "` + strings.Repeat("a", 64) + `": "` + strings.Repeat("a", 64) +
				`" cannot be the name of a container; want names separated by commas`},
		},
		"a container with a capital letter cannot be": {
			annotations: map[string]string{"lanyard.dev/skip-containers": "app,Web"},
			errs:        []string{`metadata.annotations[lanyard.dev/skip-containers]: Invalid value: "app,Web": "Web" cannot be the name of a container; want names separated by commas`},
		},
		"a star is not the name of a container": {
			annotations: map[string]string{"lanyard.dev/skip-containers": "*"},
			errs:        []string{`metadata.annotations[lanyard.dev/skip-containers]: Invalid value: "*": "*" cannot be the name of a container; want names separated by commas`},
		},
		"spaces do not separate": {
			annotations: map[string]string{"lanyard.dev/containers": "app web"},
			errs:        []string{`metadata.annotations[lanyard.dev/containers]: Invalid value: "app web": "app web" cannot be the name of a container; want names separated by commas`},
		},
		"an empty list of containers is denied": {
			annotations: map[string]string{"lanyard.dev/containers": ""},
			errs:        []string{`metadata.annotations[lanyard.dev/containers]: Invalid value: "": must be a list separated by commas, without an empty element`},
		},
		"an empty element is denied": {
			annotations: map[string]string{"lanyard.dev/skip-containers": "app, ,web"},
			errs:        []string{`metadata.annotations[lanyard.dev/skip-containers]: Invalid value: "app, ,web": must be a list separated by commas, without an empty element`},
		},
		"both lists together are denied": {
			annotations: map[string]string{"lanyard.dev/containers": "app", "lanyard.dev/skip-containers": "web"},
			errs:        []string{`metadata.annotations[lanyard.dev/skip-containers]: Invalid value: "web": must not be set together with lanyard.dev/containers`},
		},
		"a lifetime of its own": {
			annotations: map[string]string{"lanyard.dev/token-expiration-seconds": "600"},
			want:        annotations.Pod{TokenExpirationSeconds: 600},
		},
		"a lifetime out of bounds": {
			annotations: map[string]string{"lanyard.dev/token-expiration-seconds": "599"},
			errs:        []string{`metadata.annotations[lanyard.dev/token-expiration-seconds]: Invalid value: "599": must be a whole number of seconds from 600 to 86400`},
		},
		"what Lanyard itself wrote is accepted": {
			annotations: map[string]string{"lanyard.dev/injected": "aws", "lanyard.dev/aws-config": "[default]", "lanyard.dev/gcp-credentials": "{}"},
		},
		"a pod can never choose a role": {
			annotations: map[string]string{"lanyard.dev/aws-role-arn": "arn:aws:iam::111122223333:role/admin"},
			errs:        []string{`metadata.annotations[lanyard.dev/aws-role-arn]: Forbidden: has value "arn:aws:iam::111122223333:role/admin"` + hint},
		},
		"a misspelled key is denied": {
			annotations: map[string]string{"lanyard.dev/skip-container": "web"},
			errs:        []string{`metadata.annotations[lanyard.dev/skip-container]: Forbidden: has value "web"` + hint},
		},
		"all mistakes are reported at once": {
			annotations: map[string]string{
				"lanyard.dev/inject": "no", "lanyard.dev/containers": "A", "lanyard.dev/skip-containers": "B",
				"lanyard.dev/token-expiration-seconds": "1h", "lanyard.dev/audience": "x",
			},
			errs: []string{
				`metadata.annotations[lanyard.dev/inject]: Invalid value: "no": must be "false" to opt out, or "true"`,
				`metadata.annotations[lanyard.dev/audience]: Forbidden: has value "x"` + hint,
				`metadata.annotations[lanyard.dev/containers]: Invalid value: "A": "A" cannot be the name of a container; want names separated by commas`,
				`metadata.annotations[lanyard.dev/skip-containers]: Invalid value: "B": "B" cannot be the name of a container; want names separated by commas`,
				`metadata.annotations[lanyard.dev/token-expiration-seconds]: Invalid value: "1h": must be a whole number of seconds from 600 to 86400`,
			},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pod, errs := annotations.ParsePod(newKeys(t), tt.annotations, tt.label)
			if diff := cmp.Diff(tt.errs, messages(errs)); diff != "" {
				t.Fatalf("errors (-want +got):\n%s", diff)
			}
			if len(errs) > 0 {
				return
			}
			if diff := cmp.Diff(tt.want, pod); diff != "" {
				t.Errorf("pod (-want +got):\n%s", diff)
			}
		})
	}
}

// No key that belongs on a ServiceAccount means anything on a pod.
func TestParsePodDeniesEveryKeyOfAServiceAccount(t *testing.T) {
	t.Parallel()
	keys := newKeys(t)
	for _, key := range append(keys.ServiceAccount(), keys.AllowedIdentities) {
		if key == keys.TokenExpirationSeconds {
			continue // it is also a key of a pod
		}
		t.Run(key, func(t *testing.T) {
			t.Parallel()
			_, errs := annotations.ParsePod(newKeys(t), map[string]string{key: "x"}, "")
			if len(errs) != 1 || errs[0].Field != "metadata.annotations["+key+"]" {
				t.Errorf("got %v, want one error for the key", errs)
			}
		})
	}
}

func TestPodSelects(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		pod       annotations.Pod
		container string
		want      bool
	}{
		"without a list every container":         {annotations.Pod{}, "app", true},
		"a container that is named":              {annotations.Pod{Containers: []string{"web", "app"}}, "app", true},
		"a container that is not named":          {annotations.Pod{Containers: []string{"web"}}, "app", false},
		"a container that is skipped":            {annotations.Pod{SkipContainers: []string{"web", "app"}}, "app", false},
		"a container that is not skipped":        {annotations.Pod{SkipContainers: []string{"web"}}, "app", true},
		"a name that only begins like the named": {annotations.Pod{Containers: []string{"app"}}, "app-2", false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := tt.pod.Selects(tt.container); got != tt.want {
				t.Errorf("%+v selects %s: got %t, want %t", tt.pod, tt.container, got, tt.want)
			}
		})
	}
}

func TestExpiration(t *testing.T) {
	t.Parallel()
	const tooShort = "must be a whole number of seconds from 3600 to 86400: SDKs of a provider of this ServiceAccount cannot use shorter ones"
	tests := map[string]struct {
		pod, serviceAccount, cluster int64
		azure                        bool
		want                         int64
		errs                         []string
	}{
		"the cluster's, if no other is set":                      {cluster: 7200, want: 7200},
		"the ServiceAccount's overrides the cluster's":           {serviceAccount: 600, cluster: 7200, want: 600},
		"the pod's overrides the ServiceAccount's":               {pod: 86400, serviceAccount: 600, cluster: 7200, want: 86400},
		"the pod's overrides the cluster's":                      {pod: 600, cluster: 7200, want: 600},
		"a short default is raised for Azure":                    {cluster: 600, azure: true, want: 3600},
		"a default that is one second too short is raised":       {cluster: 3599, azure: true, want: 3600},
		"a long default stays for Azure":                         {cluster: 3601, azure: true, want: 3601},
		"a short default stays without Azure":                    {cluster: 600, want: 600},
		"a pod may shorten an Azure ServiceAccount's to an hour": {pod: 3600, serviceAccount: 86400, cluster: 7200, azure: true, want: 3600},
		"a pod must not shorten an Azure ServiceAccount's to less": {
			pod: 3599, serviceAccount: 86400, cluster: 7200, azure: true,
			errs: []string{`metadata.annotations[lanyard.dev/token-expiration-seconds]: Invalid value: 3599: ` + tooShort},
		},
		"a pod that asks for too little is denied, also if the default is short": {
			pod: 600, cluster: 600, azure: true,
			errs: []string{`metadata.annotations[lanyard.dev/token-expiration-seconds]: Invalid value: 600: ` + tooShort},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			identity := annotations.Identity{Providers: []provider.Identity{newIdentity("aws", "x")}, TokenExpirationSeconds: tt.serviceAccount}
			if tt.azure {
				identity.Providers = append(identity.Providers, newIdentity("azure", "x"))
			}
			got, errs := annotations.Expiration(newKeys(t), &annotations.Pod{TokenExpirationSeconds: tt.pod},
				&identity, &annotations.Defaults{TokenExpirationSeconds: tt.cluster})
			if diff := cmp.Diff(tt.errs, messages(errs)); diff != "" {
				t.Errorf("errors (-want +got):\n%s", diff)
			}
			if got != tt.want {
				t.Errorf("got %d, want %d", got, tt.want)
			}
		})
	}
}
