// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mutate_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/pkg/mutate"
	"github.com/lanyard-dev/lanyard/pkg/mutate/reason"
)

// running returns a pod with the annotations, the volumes and the ephemeral
// containers. Its other container was not injected.
func running(injected, volumes, ephemeral string) string {
	return `{"metadata":{"annotations":{"lanyard.dev/injected":"` + injected + `"}},"spec":{"volumes":[` + volumes + `],"containers":[{"name":"main"}],"ephemeralContainers":[` + ephemeral + `]}}`
}

func addEphemeral(t *testing.T, pod, old string, selection *annotations.Pod) mutate.Result {
	t.Helper()
	result, err := mutate.AddEphemeral(parse(t, pod), parse(t, old), selection, mutate.NewInjection(injection()))
	if err != nil {
		t.Fatal(err)
	}
	return result
}

func TestOnlyNewEphemeralContainersAreInjected(t *testing.T) {
	t.Parallel()
	volume := projected(mutate.VolumeName, tokenSource)
	all := &annotations.Pod{}
	tests := map[string]struct {
		hash, volumes string
		old, now      string
		selection     *annotations.Pod
		paths         []string
		want          reason.Reason
		finds         []string
	}{
		"the first one": {"aws", volume, ``, `{"name":"a"}`, all,
			[]string{"/spec/ephemeralContainers/0/volumeMounts", "/spec/ephemeralContainers/0/env"}, reason.Injected, nil},
		"one after another": {"aws", volume, `{"name":"a"}`, `{"name":"a"},{"name":"b"}`, all,
			[]string{"/spec/ephemeralContainers/1/volumeMounts", "/spec/ephemeralContainers/1/env"}, reason.Injected, nil},
		"one before another": {"aws", volume, `{"name":"a"}`, `{"name":"b"},{"name":"a"}`, all,
			[]string{"/spec/ephemeralContainers/0/volumeMounts", "/spec/ephemeralContainers/0/env"}, reason.Injected, nil},
		"one named like an ordinary container": {"aws", volume, ``, `{"name":"main"}`, all,
			[]string{"/spec/ephemeralContainers/0/volumeMounts", "/spec/ephemeralContainers/0/env"}, reason.Injected, nil},
		"one with its own region": {"aws", volume, ``, `{"name":"a","env":[` + set("REGION", "us") + `]}`, all,
			[]string{"/spec/ephemeralContainers/0/volumeMounts", "/spec/ephemeralContainers/0/env"}, reason.Injected, nil},
		"one with its own token file gets the mount": {"aws", volume, ``, `{"name":"a","env":[` + set("FILE", "own") + `]}`, all,
			[]string{"/spec/ephemeralContainers/0/volumeMounts"}, reason.Injected, []string{`environment_taken: container "a"`}},
		"one whose mount path is taken": {"aws", volume, ``, `{"name":"a","volumeMounts":[{"name":"own","mountPath":"/lanyard"}]}`, all,
			nil, reason.MountPathTaken, []string{`mount_path_taken: container "a"`}},
		"one that is not selected": {"aws", volume, ``, `{"name":"a"}`, &annotations.Pod{Containers: []string{"main"}},
			nil, reason.ContainerNotSelected, []string{`container_not_selected: container "a"`}},
		"the volume has the fallback name": {"aws", projected(mutate.VolumeName) + "," + projected(mutate.FallbackVolumeName, tokenSource), ``, `{"name":"a"}`, all,
			[]string{"/spec/ephemeralContainers/0/volumeMounts", "/spec/ephemeralContainers/0/env"}, reason.Injected, nil},
		"the pod has no volume": {"aws", ``, ``, `{"name":"a"}`, all,
			nil, reason.VolumeMissing, []string{`volume_missing: container "a"`}},
		"the volume has another audience": {"aws", projected(mutate.VolumeName, strings.Replace(tokenSource, "aud", "aud2", 2)), ``, `{"name":"a"},{"name":"b"}`, all,
			nil, reason.VolumeMissing, []string{`volume_missing: container "a"`, `volume_missing: container "b"`}},
		"the ServiceAccount has another identity now": {"gcp", volume, ``, `{"name":"a"}`, all,
			nil, reason.VolumeMissing, []string{`volume_missing: container "a"`}},
		"one that is not selected needs no volume": {"gcp", ``, ``, `{"name":"a"}`, &annotations.Pod{SkipContainers: []string{"a"}},
			nil, reason.ContainerNotSelected, []string{`container_not_selected: container "a"`}},
		"no container is new": {"aws", volume, `{"name":"a"}`, `{"name":"a"}`, all,
			nil, reason.NoContainer, nil},
		"no container is new and the volume is missing": {"gcp", ``, `{"name":"a"}`, `{"name":"a"}`, all,
			nil, reason.NoContainer, nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pod, old := running(test.hash, test.volumes, test.now), running(test.hash, test.volumes, test.old)
			first := addEphemeral(t, pod, old, test.selection)
			if diff := cmp.Diff(test.paths, pathsOf(t, first.Patch.Bytes())); diff != "" || first.Reason != test.want {
				t.Errorf("got %s, want %s; paths (-want +got):\n%s", first.Reason, test.want, diff)
			}
			checkFindings(t, test.finds, first.Findings)
			second := addEphemeral(t, apply(t, pod, first.Patch.Bytes()), old, test.selection)
			if second.Patch != nil || first.Reason == reason.Injected && second.Reason != reason.AlreadyInjected {
				t.Errorf("second pass: got %s and patch %s", second.Reason, second.Patch.Bytes())
			}
		})
	}
}

func TestAnEphemeralContainerMountsTheVolumeThatThePodHas(t *testing.T) {
	t.Parallel()
	for name, volumes := range map[string]string{
		mutate.VolumeName:         projected(mutate.VolumeName, tokenSource),
		mutate.FallbackVolumeName: projected(mutate.VolumeName) + "," + projected(mutate.FallbackVolumeName, tokenSource),
	} {
		pod, old := running("aws", volumes, `{"name":"a"}`), running("aws", volumes, ``)
		patched := decode(t, apply(t, pod, func() []byte { r := addEphemeral(t, pod, old, &annotations.Pod{}); return r.Patch.Bytes() }()))
		want := []containerSpec{{
			Name:         "a",
			VolumeMounts: []mountSpec{{Name: name, MountPath: mountPath, ReadOnly: true}},
			Env:          []variableSpec{{Name: "ROLE", Value: "r"}, {Name: "FILE", Value: tokenPath}, {Name: "REGION", Value: "eu"}, {Name: "DEFAULT_REGION", Value: "eu"}},
		}}
		if diff := cmp.Diff(want, patched.Spec.EphemeralContainers); diff != "" {
			t.Errorf("%s: ephemeral containers (-want +got):\n%s", name, diff)
		}
	}
}

func TestAnInvalidMountPathDeniesANewEphemeralContainerOnly(t *testing.T) {
	t.Parallel()
	const slash = `{"name":"a","volumeMounts":[{"name":"own","mountPath":"/lanyard/"}]}`
	volume := projected(mutate.VolumeName, tokenSource)
	add := mutate.NewInjection(injection())
	result, err := mutate.AddEphemeral(parse(t, running("aws", volume, slash)), parse(t, running("aws", volume, ``)), &annotations.Pod{}, add)
	denied(t, reason.InvalidMountPath, result, err)
	if field := "spec.ephemeralContainers[0].volumeMounts[0].mountPath"; !strings.Contains(err.Error(), field) {
		t.Errorf("got error %v, want %q in it", err, field)
	}
	// A running ephemeral container can no longer be changed.
	if result := addEphemeral(t, running("aws", volume, slash+`,{"name":"b"}`), running("aws", volume, slash), &annotations.Pod{}); result.Reason != reason.Injected {
		t.Errorf("got %s, want %s", result.Reason, reason.Injected)
	}
}

// many returns ephemeral containers with the numbers from to to-1.
func many(from, to int) string {
	var list []string
	for i := from; i < to; i++ {
		list = append(list, fmt.Sprintf(`{"name":"debugger-%d"}`, i))
	}
	return strings.Join(list, ",")
}

func TestManyEphemeralContainers(t *testing.T) {
	t.Parallel()
	volume := projected(mutate.VolumeName, tokenSource)
	add := mutate.NewInjection(injection())
	tests := map[string]struct {
		old, now int
		want     bool
	}{
		"up to the limit, half of them new":             {255, 511, true}, // and an ordinary one
		"up to the limit, all of them new":              {0, 511, true},
		"one over the limit":                            {255, 512, false},
		"500 old and 500 new ones":                      {500, 1000, false},
		"fewer than before, which were over the limit ": {1000, 500, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pod, old := running("aws", volume, many(0, test.now)), running("aws", volume, many(0, test.old))
			result, err := mutate.AddEphemeral(parse(t, pod), parse(t, old), &annotations.Pod{}, add)
			if !test.want {
				denied(t, reason.TooLarge, result, err)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			patched := decode(t, apply(t, pod, result.Patch.Bytes()))
			for i, c := range patched.Spec.EphemeralContainers {
				if injected := len(c.VolumeMounts) == 1 && len(c.Env) == 4; injected != (i >= test.old) {
					t.Errorf("container %d: got %+v, want injected: %v", i, c, i >= test.old)
				}
			}
		})
	}
}

// The time of an operation must be proportional to the number of containers.
func BenchmarkAddEphemeral(b *testing.B) {
	volume := projected(mutate.VolumeName, tokenSource)
	add := mutate.NewInjection(injection())
	for _, n := range []int{64, 128, 255} {
		b.Run(fmt.Sprintf("%d old and %d new", n, n), func(b *testing.B) {
			pod, old := parse(b, running("aws", volume, many(0, 2*n))), parse(b, running("aws", volume, many(0, n)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := mutate.AddEphemeral(pod, old, &annotations.Pod{}, add); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(2*n), "ns/container")
		})
	}
}

func TestTheFindingAboutTheTokensOfAnotherIdentity(t *testing.T) {
	t.Parallel()
	got := addEphemeral(t, running("aws", "", `{"name":"a"}`), running("aws", "", ""), &annotations.Pod{}).Findings
	want := []mutate.Finding{{
		Reason: reason.VolumeMissing, Container: "a", Field: "spec.volumes[bound-sa-token]", Want: "the tokens of its ServiceAccount",
		Detail: "the pod's token volume does not match the current identity of its ServiceAccount: recreate the pod", Fix: "Recreate the pod.",
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("findings (-want +got):\n%s", diff)
	}
}

// The volumes of a running pod cannot change.
func TestAnEphemeralContainerGetsTheCopyOnlyIfThePodHasIt(t *testing.T) {
	t.Parallel()
	token := projected(mutate.VolumeName, tokenSource)
	for name, test := range map[string]struct {
		volumes string
		mounts  int
		finds   []string
	}{
		"the pod has the copy":           {token + "," + projected("copy", strings.Replace(tokenSource, "aws/token", "token", 1)), 2, nil},
		"the pod does not have the copy": {token, 1, []string{`volume_name_taken: container "a": the pod cannot have a volume copy`}},
	} {
		pod, old := running("aws", test.volumes, `{"name":"a"}`), running("aws", test.volumes, ``)
		result, err := mutate.AddEphemeral(parse(t, pod), parse(t, old), &annotations.Pod{}, mutate.NewInjection(deep()))
		if err != nil {
			t.Fatal(err)
		}
		patched := decode(t, apply(t, pod, result.Patch.Bytes()))
		if got := patched.Spec.EphemeralContainers[0].VolumeMounts; len(got) != test.mounts {
			t.Errorf("%s: got mounts %v, want %d", name, got, test.mounts)
		}
		checkFindings(t, test.finds, result.Findings)
	}
}
