// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mutate_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lanyard-dev/lanyard/internal/provider"
	"github.com/lanyard-dev/lanyard/pkg/mutate"
	"github.com/lanyard-dev/lanyard/pkg/mutate/reason"
)

const (
	tokenSource = `{"serviceAccountToken":{"audience":"aud","expirationSeconds":600,"path":"aws/token"}}`
	fileSource  = `{"downwardAPI":{"items":[{"path":"labels","fieldRef":{"fieldPath":"metadata.labels"}},` +
		`{"fieldRef":{"fieldPath":"metadata.annotations['lanyard.dev/gcp-credentials']"},"path":"gcp/credentials.json"}]}}`
)

// projected returns a projected volume with the sources.
func projected(name string, sources ...string) string {
	return `{"projected":{"sources":[` + strings.Join(sources, ",") + `]},"name":"` + name + `"}`
}

func TestTheTokenVolumeTakesTheFallbackNameIfTheUsualOneIsTaken(t *testing.T) {
	t.Parallel()
	const usual, fallback = mutate.VolumeName, mutate.FallbackVolumeName
	tests := map[string]struct {
		volumes   []string
		injection *provider.Injection
		mounts    string // the volume that is mounted, or "" if the pod is denied
		adds      bool   // the patch adds the volume
	}{
		"there is none":                              {nil, injection(), usual, true},
		"there are others":                           {[]string{`{"name":"data","emptyDir":{}}`}, injection(), usual, true},
		"it has the token":                           {[]string{projected(usual, tokenSource)}, injection(), usual, false},
		"it has the token among others":              {[]string{projected(usual, `{"configMap":{}}`, fileSource, tokenSource)}, injection(), usual, false},
		"it has another audience":                    {[]string{projected(usual, strings.Replace(tokenSource, "aud", "aud2", 2))}, injection(), fallback, true},
		"it has the token under another path":        {[]string{projected(usual, strings.Replace(tokenSource, "aws/token", "token", 1))}, injection(), fallback, true},
		"it has no sources":                          {[]string{`{"name":"bound-sa-token","projected":{"sources":null}}`}, injection(), fallback, true},
		"it is of another kind":                      {[]string{`{"name":"bound-sa-token","secret":{"secretName":"s"}}`}, injection(), fallback, true},
		"it has token and file":                      {[]string{projected(usual, fileSource, tokenSource)}, withFile(), usual, false},
		"it has the token without the file":          {[]string{projected(usual, tokenSource)}, withFile(), fallback, true},
		"it has the file under another path":         {[]string{projected(usual, tokenSource, strings.Replace(fileSource, "credentials.json", "c.json", 1))}, withFile(), fallback, true},
		"it has another annotation as the file":      {[]string{projected(usual, tokenSource, strings.Replace(fileSource, "lanyard.dev/", "own.dev/", 1))}, withFile(), fallback, true},
		"only the fallback has the token":            {[]string{projected(usual), projected(fallback, tokenSource)}, injection(), fallback, false},
		"both have the token":                        {[]string{projected(fallback, tokenSource), projected(usual, tokenSource)}, injection(), usual, false},
		"both are used for something else":           {[]string{projected(usual), projected(fallback)}, injection(), "", false},
		"the fallback is taken and the usual is not": {[]string{projected(fallback)}, injection(), usual, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pod := `{"spec":{"volumes":[` + strings.Join(test.volumes, ",") + `],"containers":[{}]}}`
			if test.mounts == "" {
				result, err := tryCreate(t, pod, test.injection)
				denied(t, reason.VolumeNameTaken, result, err)
				return
			}
			patched, result := createTwice(t, pod, test.injection)
			want := []mountSpec{{Name: test.mounts, MountPath: mountPath, ReadOnly: true}}
			if diff := cmp.Diff(want, decode(t, patched).Spec.Containers[0].VolumeMounts); diff != "" {
				t.Errorf("mounts (-want +got):\n%s", diff)
			}
			before, after := decode(t, pod).Spec.Volumes, decode(t, patched).Spec.Volumes
			if adds := len(after) > len(before); adds != test.adds {
				t.Errorf("got patch %s, want the volume added: %v", result.Patch.Bytes(), test.adds)
			}
			if diff := cmp.Diff(before, after[:len(before)]); diff != "" {
				t.Errorf("the pod's own volumes (-before +after):\n%s", diff)
			}
		})
	}
}

// On reinvocation, the pod must be unchanged, so the API server must not fill in defaults.
func TestTheTokenVolumeHasAllDefaults(t *testing.T) {
	t.Parallel()
	const want = `{"name":"bound-sa-token","projected":{"sources":[` +
		`{"serviceAccountToken":{"audience":"aud","expirationSeconds":3600,"path":"aws/token"}},` +
		`{"downwardAPI":{"items":[{"path":"gcp/credentials.json","fieldRef":{"apiVersion":"v1","fieldPath":"metadata.annotations['lanyard.dev/gcp-credentials']"}}]}},` +
		`{"serviceAccountToken":{"audience":"a\"b","expirationSeconds":600,"path":"token"}}` +
		`],"defaultMode":420}}`
	i := withFile()
	i.Providers = append(i.Providers, provider.Provider{Name: "token", Token: provider.Token{Audience: `a"b`, ExpirationSeconds: 600, Path: "token"}})
	result := create(t, `{"spec":{"containers":[{}]}}`, i)
	if operation := fmt.Sprintf(`{"op":"add","path":"/spec/volumes","value":[%s]}`, want); !strings.Contains(string(result.Patch.Bytes()), operation) {
		t.Errorf("got %s, want %s in it", result.Patch.Bytes(), operation)
	}
}
