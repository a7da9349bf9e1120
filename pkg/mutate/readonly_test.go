// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mutate_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/lanyard-dev/lanyard/internal/provider"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/pkg/mutate"
	"github.com/lanyard-dev/lanyard/pkg/mutate/reason"
)

// deep returns the injection with a token mount path and a copy that have directories above
// them.
func deep() *provider.Injection {
	i := injection()
	i.MountPath = "/var/run/secrets/lanyard/token"
	i.Providers[0].Variables[1].Value = i.MountPath + "/aws/token"
	i.Providers[0].Copy = provider.Copy{Volume: "copy", MountPath: "/var/run/secrets/eks/serviceaccount", Path: "token", File: "/var/run/secrets/eks/serviceaccount/token"}
	return i
}

// The kubelet always mounts some volumes read-only, and the container runtime cannot create a
// directory in them.
func TestNothingIsMountedBelowAReadOnlyVolume(t *testing.T) {
	t.Parallel()
	for source, readOnly := range map[string]bool{
		`"secret":{"secretName":"a"}`:                               true,
		`"configMap":{"name":"a"}`:                                  true,
		`"downwardAPI":{}`:                                          true,
		`"projected":{"sources":[]}`:                                true,
		`"image":{"reference":"a"}`:                                 true,
		`"csi":{"driver":"a","readOnly":true}`:                      true,
		`"persistentVolumeClaim":{"claimName":"a","readOnly":true}`: true,
		`"nfs":{"readOnly":true}`:                                   true,
		`"iscsi":{"readOnly":true}`:                                 true,
		`"fc":{"readOnly":true}`:                                    true,
		`"csi":{"driver":"a","readOnly":false}`:                     false,
		`"csi":{"driver":"a"}`:                                      false,
		`"emptyDir":{}`:                                             false,
		`"hostPath":{"path":"/a"}`:                                  false,
		`"secret":null,"emptyDir":{}`:                               false,
		`"future":"x"`:                                              false,
		`"future":{"readOnly":true}`:                                false,
	} {
		for mounted, above := range map[string][]string{
			"/var/run/secrets/lanyard": {"token"},
			"/var/run/secrets/eks":     {"copy"},
			"/var/run/secrets":         {"token", "copy"},
			"/run/secrets/lanyard":     {"token"},
			"/run/secrets/eks/":        {"copy"},
			"/var":                     {"token", "copy"},
			"/run":                     {"token", "copy"},
			"/var/run/secrets/lan":     nil,
			"/data":                    nil,
		} {
			for _, flag := range []string{"", `,"readOnly":true`} {
				t.Run(source+" at "+mounted+flag, func(t *testing.T) {
					t.Parallel()
					pod := `{"spec":{"volumes":[{"name":"own",` + source + `}],"containers":[{"name":"main","volumeMounts":[{"name":"own","mountPath":"` + mounted + `"` + flag + `}]}]}}`
					patched, result := createTwice(t, pod, deep())
					var got []string // what is in the way of
					mounts := decode(t, patched).Spec.Containers[0].VolumeMounts
					for _, m := range []struct{ name, path string }{{"token", deep().MountPath}, {"copy", deep().Providers[0].Copy.MountPath}} {
						if !strings.Contains(encode(t, mounts), m.path+`"`) {
							got = append(got, m.name)
						}
					}
					want := above
					if !readOnly && flag == "" {
						want = nil
					}
					if len(want) == 1 && want[0] == "token" {
						want = []string{"token", "copy"} // the container is left out
					}
					if diff := cmp.Diff(want, got); diff != "" {
						t.Errorf("not mounted (-want +got):\n%s", diff)
					}
					if want != nil && (len(result.Findings) != 1 || result.Findings[0].Reason != reason.MountPathTaken) {
						t.Errorf("got findings %v, want one %s", result.Findings, reason.MountPathTaken)
					}
				})
			}
		}
	}
}

func TestTheFindingNamesTheVolumeAbove(t *testing.T) {
	t.Parallel()
	for mounted, want := range map[string]string{
		"/var/run/secrets/lanyard": `mount_path_taken: container "main": the read-only volume "own" is mounted at /var/run/secrets/lanyard, above the path of the token, so the container gets no identity`,
		"/run/secrets/eks":         `mount_path_taken: container "main": the read-only volume "own" is mounted at /run/secrets/eks, above the path of the copy of the aws token, so the container does not get the copy`,
	} {
		pod := `{"spec":{"containers":[{"name":"main","volumeMounts":[{"name":"own","mountPath":"` + mounted + `"}]}],"volumes":[{"secret":{},"name":"own"}]}}`
		result := create(t, pod, deep())
		if len(result.Findings) != 1 || result.Findings[0].String() != want {
			t.Errorf("got findings %v, want %s", result.Findings, want)
		}
	}
}

// To the guard, which compares text, such a mount would be at the token mount path.
func TestAReadOnlyVolumeAboveHasNoOtherSpelling(t *testing.T) {
	t.Parallel()
	result, err := tryCreate(t, `{"spec":{"containers":[{"name":"main","volumeMounts":[{"name":"own","mountPath":"/var/run/secrets/lanyard/token/..","readOnly":true}]}]}}`, deep())
	denied(t, reason.InvalidMountPath, result, err)
}

// A read-only volume may contain the directory at which the pod mounts the token volume.
func TestATokenVolumeThatIsMountedBelowAReadOnlyVolumeIsUsed(t *testing.T) {
	t.Parallel()
	const token = `{"serviceAccountToken":{"audience":"aud","expirationSeconds":3600,"path":"aws/token"}}`
	for name, mounts := range map[string]string{
		"the read-only volume comes first": `{"name":"own","mountPath":"/var/run/secrets/lanyard"},{"name":"bound-sa-token","mountPath":"/var/run/secrets/lanyard/token"}`,
		"the read-only volume comes last":  `{"name":"bound-sa-token","mountPath":"/var/run/secrets/lanyard/token"},{"name":"own","mountPath":"/var/run/secrets/lanyard"}`,
	} {
		pod := `{"spec":{"volumes":[{"name":"own","secret":{}},` + projected("bound-sa-token", token) + `],"containers":[{"name":"main","volumeMounts":[` + mounts + `]}]}}`
		if _, result := createTwice(t, pod, deep()); result.Reason != reason.Injected || len(result.Findings) > 0 {
			t.Errorf("%s: got %s and findings %v, want %s", name, result.Reason, result.Findings, reason.Injected)
		}
	}
}

// In most images, /var/run is a link to /run.
func TestRunIsVarRun(t *testing.T) {
	t.Parallel()
	for mounted, want := range map[string]reason.Reason{
		"/run/secrets/lanyard/token":           reason.InvalidMountPath,
		"/run/secrets/lanyard/token/aws":       reason.InvalidMountPath,
		"/run/secrets/lanyard/./token":         reason.InvalidMountPath,
		"/run/secrets/lanyard/token2":          reason.Injected,
		"/run/secrets/lanyard":                 reason.Injected, // not read-only
		"/srv/run/secrets/lanyard/token":       reason.Injected,
		"/run/secrets/eks/serviceaccount":      reason.MountPathTaken,
		"/run/secrets/eks/serviceaccount/more": reason.MountPathTaken,
	} {
		result, err := tryCreate(t, `{"spec":{"volumes":[{"name":"own","emptyDir":{}}],"containers":[{"name":"main","volumeMounts":[{"name":"own","mountPath":"`+mounted+`"}]}]}}`, deep())
		switch {
		case want == reason.InvalidMountPath:
			denied(t, want, result, err)
		case err != nil || result.Reason != reason.Injected:
			t.Errorf("%s: got %s and error %v, want %s", mounted, result.Reason, err, reason.Injected)
		case want == reason.MountPathTaken != (len(result.Findings) == 1):
			t.Errorf("%s: got findings %v, want %s", mounted, result.Findings, want)
		}
	}
}

// The guard must not deny a pod for a container that the webhook leaves out.
func TestAMountInTheWayCountsForTheGuard(t *testing.T) {
	t.Parallel()
	const path = "/var/run/secrets/lanyard/token"
	for name, test := range map[string]struct {
		containers string
		selection  annotations.Pod
		want       bool
	}{
		"no mount":                          {`{"name":"a"}`, annotations.Pod{}, true},
		"a mount at the path":               {`{"name":"a","volumeMounts":[{"name":"data","mountPath":"` + path + `"}]}`, annotations.Pod{}, false},
		"a device at the path":              {`{"name":"a","volumeDevices":[{"name":"data","devicePath":"` + path + `"}]}`, annotations.Pod{}, true},
		"a Secret above":                    {`{"name":"a","volumeMounts":[{"name":"secret","mountPath":"/var/run/secrets"}]}`, annotations.Pod{}, false},
		"an emptyDir above":                 {`{"name":"a","volumeMounts":[{"name":"data","mountPath":"/var/run/secrets"}]}`, annotations.Pod{}, true},
		"a container that is left out":      {`{"name":"a"},{"name":"b","volumeMounts":[{"name":"data","mountPath":"` + path + `"}]}`, annotations.Pod{SkipContainers: []string{"a"}}, false},
		"all containers are left out":       {`{"name":"a"},{"name":"b"}`, annotations.Pod{SkipContainers: []string{"a", "b"}}, true},
		"all are left out, one has a mount": {`{"name":"a"},{"name":"b","volumeMounts":[{"name":"data","mountPath":"` + path + `/x"}]}`, annotations.Pod{Containers: []string{"c"}}, false},
		"a new pod with an ephemeral one":   {`{"name":"a","volumeMounts":[{"name":"data","mountPath":"` + path + `"}]}],"ephemeralContainers":[{"name":"e"}`, annotations.Pod{}, false},
		"a list names no container":         {`{"name":"a"}`, annotations.Pod{Containers: []string{"c"}}, true},
		"a list skips no container":         {`{"name":"a"}`, annotations.Pod{SkipContainers: []string{"c"}}, true},
		"a peer writes all containers":      {`{"name":"a"}`, annotations.Pod{PeerContainers: []string{"a"}}, false},
		"the pod is left to a peer":         {`{"name":"a"}`, annotations.Pod{LeftToPeer: "aws", Containers: []string{"c"}}, false},
	} {
		pod := parse(t, `{"spec":{"volumes":[{"name":"secret","secret":{}},{"name":"data","emptyDir":{}}],"containers":[`+test.containers+`]}}`)
		got, err := mutate.LacksMount(pod, &test.selection, path)
		if err != nil || got != test.want {
			t.Errorf("%s: got %t and error %v, want %t", name, got, err, test.want)
		}
	}
}

// The guard and the policies contain the same lists.
func TestTheKindsOfReadOnlyVolumesAreOfTheAPI(t *testing.T) {
	t.Parallel()
	source := reflect.TypeFor[corev1.VolumeSource]()
	has := map[string]bool{} // the member readOnly
	for field := range source.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		_, has[name] = field.Type.Elem().FieldByName("ReadOnly")
	}
	always, ifReadOnly := mutate.ReadOnlyKinds()
	for want, kinds := range map[bool][]string{false: always, true: ifReadOnly} {
		for _, kind := range kinds {
			if got, found := has[kind]; !found || got != want {
				t.Errorf("%s: got a volume: %t with the member readOnly: %t, want a volume with it: %t", kind, found, got, want)
			}
		}
	}
}
