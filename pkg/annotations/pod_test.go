// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package annotations_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

func TestParsePod(t *testing.T) {
	t.Parallel()
	check(t, "pod.yaml", func(t *testing.T, c *podCase) {
		pod, errs := newSettings(t).ParsePod(expanded("", c.Annotations), c.Label)
		c.Errors = messages(errs)
		if len(errs) == 0 {
			c.Result.OptOut, c.Result.Insists, c.Result.TokenExpirationSeconds = pod.OptOut, pod.Insists, pod.TokenExpirationSeconds
			c.Result.Containers, c.Result.SkipContainers = pod.Containers, pod.SkipContainers
		}
	})
}

// Keys of ServiceAccounts have no meaning on a pod.
func TestParsePodDeniesEveryKeyOfAServiceAccount(t *testing.T) {
	t.Parallel()
	for _, key := range append(newSettings(t).ServiceAccountKeys(), annotations.AllowedIdentities) {
		if key == annotations.TokenExpirationSeconds {
			continue // it is also a key of a pod
		}
		t.Run(key, func(t *testing.T) {
			t.Parallel()
			_, errs := newSettings(t).ParsePod(map[string]string{key: "x"}, "")
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
			account := annotations.ServiceAccount{Identities: []annotations.Identity{newIdentity("aws", "x")}, TokenExpirationSeconds: tt.serviceAccount}
			if tt.azure {
				account.Identities = append(account.Identities, newIdentity("azure", "x"))
			}
			s := newSettings(t)
			s.TokenExpirationSeconds = tt.cluster
			got, errs := s.Expiration(&annotations.Pod{TokenExpirationSeconds: tt.pod}, &account)
			if diff := cmp.Diff(tt.errs, messages(errs)); diff != "" {
				t.Errorf("errors (-want +got):\n%s", diff)
			}
			if got != tt.want {
				t.Errorf("got %d, want %d", got, tt.want)
			}
		})
	}
}

// Another webhook injects the tokens of such a pod in its own way, for any spelling of true.
func TestAPodLeavesAProviderToAPeer(t *testing.T) {
	t.Parallel()
	s := newSettings(t)
	s.PeerTokens = map[string]string{"peer.dev/bind.": "aws"}
	for value, want := range map[string]string{"true": "aws", "True": "aws", "false": "", "": ""} {
		pod, errs := s.ParsePod(map[string]string{"peer.dev/bind.x": value, "peer.dev/other": "true"}, "")
		if len(errs) > 0 || pod.LeftToPeer != want {
			t.Errorf("%q: got %q and errors %v, want %q", value, pod.LeftToPeer, errs, want)
		}
	}
}

func TestAListHasALimit(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]bool{512: true, 513: false} {
		pod, errs := newSettings(t).ParsePod(map[string]string{annotations.Containers: strings.Repeat("a,", n-1) + "a"}, "")
		if (len(errs) == 0) != want || want && len(pod.Containers) != n {
			t.Errorf("%d names: got %d and errors %v, want them valid: %t", n, len(pod.Containers), errs, want)
		}
	}
}
