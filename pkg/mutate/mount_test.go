// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mutate_test

import (
	"path"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/pkg/mutate"
	"github.com/lanyard-dev/lanyard/pkg/mutate/reason"
)

func TestAContainerIsLeftOutIfItsMountPathIsTaken(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		container string
		want      reason.Reason
		mounts    bool // the container gets the mount
	}{
		"nothing is there":                {``, reason.Injected, true},
		"the token volume is there":       {`"volumeMounts":[{"name":"bound-sa-token","mountPath":"/lanyard"}]`, reason.Injected, false},
		"another volume is there":         {`"volumeMounts":[{"name":"own","mountPath":"/lanyard"}]`, reason.MountPathTaken, false},
		"a volume without name is there":  {`"volumeMounts":[{"mountPath":"/lanyard"}]`, reason.MountPathTaken, false},
		"a volume named null is there":    {`"volumeMounts":[{"name":null,"mountPath":"/lanyard"}]`, reason.MountPathTaken, false},
		"another volume is below":         {`"volumeMounts":[{"name":"own","mountPath":"/lanyard/aws"}]`, reason.MountPathTaken, false},
		"another volume is above":         {`"volumeMounts":[{"name":"own","mountPath":"/"}]`, reason.Injected, true},
		"another volume is next to it":    {`"volumeMounts":[{"name":"own","mountPath":"/lanyard2"}]`, reason.Injected, true},
		"the token volume is below":       {`"volumeMounts":[{"name":"bound-sa-token","mountPath":"/lanyard/aws"}]`, reason.MountPathTaken, false},
		"the token volume is elsewhere":   {`"volumeMounts":[{"name":"bound-sa-token","mountPath":"/elsewhere"}]`, reason.Injected, true},
		"a part of the volume is there":   {`"volumeMounts":[{"name":"bound-sa-token","mountPath":"/lanyard","subPath":"aws"}]`, reason.MountPathTaken, false},
		"an expanded part is there":       {`"volumeMounts":[{"name":"bound-sa-token","mountPath":"/lanyard","subPathExpr":"$(A)"}]`, reason.MountPathTaken, false},
		"an empty part is the whole":      {`"volumeMounts":[{"name":"bound-sa-token","mountPath":"/lanyard","subPath":"","subPathExpr":null}]`, reason.Injected, false},
		"another is below the volume":     {`"volumeMounts":[{"name":"bound-sa-token","mountPath":"/lanyard"},{"name":"own","mountPath":"/lanyard/aws"}]`, reason.MountPathTaken, false},
		"another is below, written first": {`"volumeMounts":[{"name":"own","mountPath":"/lanyard/aws"},{"name":"bound-sa-token","mountPath":"/lanyard"}]`, reason.MountPathTaken, false},
		"a device is elsewhere":           {`"volumeDevices":[{"name":"disk","devicePath":"/dev/lanyard"}]`, reason.Injected, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pod := `{"spec":{"volumes":[` + projected("bound-sa-token", tokenSource) + `],"containers":[{` + test.container + `}]}}`
			patched, result := createTwice(t, pod, injection())
			if result.Reason != test.want || (result.Patch == nil) != (test.want == reason.MountPathTaken) {
				t.Errorf("got %s and patch %s, want %s", result.Reason, result.Patch.Bytes(), test.want)
			}
			before, after := decode(t, pod).Spec.Containers[0], decode(t, patched).Spec.Containers[0]
			want := before.VolumeMounts
			if test.mounts {
				want = append(want, mountSpec{Name: "bound-sa-token", MountPath: mountPath, ReadOnly: true})
			}
			if diff := cmp.Diff(want, after.VolumeMounts); diff != "" {
				t.Errorf("mounts (-want +got):\n%s", diff)
			}
			if gets := len(after.Env) > 0; gets != (test.want == reason.Injected) {
				t.Errorf("got env %v, want %s", after.Env, test.want)
			}
		})
	}
}

// If one container is left out, the others are still injected.
func TestATakenMountPathLeavesOutOneContainerOnly(t *testing.T) {
	t.Parallel()
	const pod = `{"spec":{"containers":[{"name":"a","volumeMounts":[{"name":"own","mountPath":"/lanyard"}]},{"name":"b"}]}}`
	_, result := createTwice(t, pod, injection())
	want := []mutate.Finding{{
		Reason: reason.MountPathTaken, Container: "a", Field: "volumeMounts[/lanyard]", Got: "own",
		Detail: `volume "own" is mounted at /lanyard, where the token would be, so the container gets no identity`, Fix: "Mount volume own elsewhere.",
	}}
	if diff := cmp.Diff(want, result.Findings); diff != "" || result.Reason != reason.Injected {
		t.Errorf("got %s, findings (-want +got):\n%s", result.Reason, diff)
	}
	for _, operation := range pathsOf(t, result.Patch.Bytes()) {
		if strings.HasPrefix(operation, "/spec/containers/0") {
			t.Errorf("got operation on %s, want none on the container that is left out", operation)
		}
	}
}

// What a mount path means for a container.
const (
	elsewhere = "elsewhere" // the container gets the mount
	taken     = "taken"     // the container is left out
	invalid   = "invalid"   // the pod is denied
)

// linuxPaths maps mount paths of a pod's own volume to their meaning if the token mount path
// is /lanyard.
var linuxPaths = map[string]string{
	"":                  elsewhere,
	"/":                 elsewhere,
	"/data":             elsewhere,
	"/lan":              elsewhere,
	"/lanyard2":         elsewhere,
	"/lanyard.":         elsewhere,
	"/x/lanyard":        elsewhere,
	"//lanyard2":        elsewhere,
	"/.lanyard":         elsewhere,
	"/lanyards/../data": elsewhere,
	"/Lanyard":          elsewhere,
	`\lanyard`:          elsewhere,
	`C:\lanyard`:        elsewhere,
	"C:/lanyard":        elsewhere,

	"/lanyard":           taken,
	"/lanyard/aws":       taken,
	"/lanyard/aws/token": taken,
	"/lanyard/...":       taken,
	"/lanyard/.x":        taken,
	`/lanyard/a\b`:       taken,

	"/lanyard/":         invalid,
	"/lanyard//":        invalid,
	"//lanyard":         invalid,
	"///lanyard///":     invalid,
	"/lanyard/.":        invalid,
	"/./lanyard":        invalid,
	"/../lanyard":       invalid,
	"/x/../lanyard":     invalid,
	"/lanyard/x/..":     invalid,
	"/lanyard/aws/":     invalid,
	"/lanyard//aws":     invalid,
	"/lanyard/./aws":    invalid,
	"/x/../lanyard/aws": invalid,
	"lanyard":           invalid,
	"./lanyard":         invalid,
	"lanyard/aws":       invalid,
	// The text is below the token mount path, but the place is not, so to the guard,
	// which compares text, the container would look injected.
	"/lanyard/..":      invalid,
	"/lanyard/../data": invalid,
}

var windowsPaths = map[string]string{
	"":             elsewhere,
	"/data":        elsewhere,
	`C:\data`:      elsewhere,
	`C:\`:          elsewhere,
	"C:":           elsewhere,
	"/lanyard2":    elsewhere,
	`C:\lanyard2`:  elsewhere,
	`C:\x\lanyard`: elsewhere,

	"/lanyard":     taken,
	"/lanyard/aws": taken,
	"/lanyard/AWS": taken,

	"/lanyard/":          invalid,
	"//lanyard":          invalid,
	"/lanyard/.":         invalid,
	"lanyard":            invalid,
	"/LANYARD":           invalid,
	"/Lanyard/aws":       invalid,
	`\lanyard`:           invalid,
	`\lanyard\aws`:       invalid,
	`/lanyard\aws`:       invalid,
	`/lanyard/aws\token`: invalid,
	`C:\lanyard`:         invalid,
	`c:\lanyard`:         invalid,
	`C:\LANYARD\aws`:     invalid,
	"C:/lanyard":         invalid,
	"C:lanyard":          invalid,
	`C:\x\..\lanyard`:    invalid,
	`C:\lanyard\`:        invalid,
	// Another drive counts as the same one.
	`D:\lanyard`: invalid,
	// Below the path by text, but not in fact.
	"/lanyard/../data":        invalid,
	`/lanyard/..\data`:        invalid,
	`/lanyard/x\..\..\data`:   invalid,
	`/lanyard\..\lanyard/aws`: invalid,
}

// platforms are the tables above, and the part of a spec that selects one.
var platforms = map[string]struct {
	spec  string
	paths map[string]string
}{
	"linux":                        {``, linuxPaths},
	"windows":                      {`"os":{"name":"windows"},`, windowsPaths},
	"windows by the node selector": {`"nodeSelector":{"kubernetes.io/os":"windows"},`, windowsPaths},
}

func TestTheTokenMountPathHasOneSpelling(t *testing.T) {
	t.Parallel()
	for platform, p := range platforms {
		for mounted, want := range p.paths {
			t.Run(platform+" "+mounted, func(t *testing.T) {
				t.Parallel()
				pod := `{"spec":{` + p.spec + `"containers":[{"volumeMounts":[{"name":"own","mountPath":` + encode(t, mounted) + `}]}]}}`
				if want == invalid {
					result, err := tryCreate(t, pod, injection())
					denied(t, reason.InvalidMountPath, result, err)
					if field := "spec.containers[0].volumeMounts[0].mountPath: Invalid value: "; !strings.Contains(err.Error(), field) {
						t.Errorf("got error %v, want %q in it", err, field)
					}
					return
				}
				patched, result := createTwice(t, pod, injection())
				after := decode(t, patched).Spec.Containers[0].VolumeMounts
				switch {
				case want == taken && (result.Reason != reason.MountPathTaken || len(after) != 1):
					t.Errorf("got %s and mounts %v, want the container left out", result.Reason, after)
				case want == elsewhere && (result.Reason != reason.Injected || len(after) != 2):
					t.Errorf("got %s and mounts %v, want the mount added", result.Reason, after)
				}
			})
		}
	}
}

// The path at which a pod mounts the token volume itself must have this spelling, too.
func TestTheTokenVolumeInAnotherSpellingDeniesThePod(t *testing.T) {
	t.Parallel()
	for platform, p := range platforms {
		for mounted, want := range p.paths {
			if want != invalid {
				continue
			}
			t.Run(platform+" "+mounted, func(t *testing.T) {
				t.Parallel()
				pod := `{"spec":{` + p.spec + `"volumes":[` + projected("bound-sa-token", tokenSource) + `],` +
					`"initContainers":[{},{"volumeMounts":[{"name":"bound-sa-token","mountPath":"/lanyard"},{"name":"bound-sa-token","mountPath":` + encode(t, mounted) + `}]}]}}`
				result, err := tryCreate(t, pod, injection())
				denied(t, reason.InvalidMountPath, result, err)
			})
		}
	}
}

func TestADeviceAtTheTokenMountPathDeniesThePod(t *testing.T) {
	t.Parallel()
	for platform, p := range platforms {
		for device, want := range p.paths {
			t.Run(platform+" "+device, func(t *testing.T) {
				t.Parallel()
				result, err := tryCreate(t, `{"spec":{`+p.spec+`"containers":[{},{"volumeDevices":[{"name":"bound-sa-token","devicePath":`+encode(t, device)+`}]}]}}`, injection())
				if want == elsewhere {
					if err != nil || len(result.Findings) > 0 {
						t.Errorf("got error %v and findings %v, want none", err, result.Findings)
					}
					return
				}
				denied(t, reason.InvalidMountPath, result, err)
				if field := "spec.containers[1].volumeDevices[0].devicePath: Invalid value: "; !strings.Contains(err.Error(), field) {
					t.Errorf("got error %v, want %q in it", err, field)
				}
			})
		}
	}
}

func TestTheMountsOfAContainerThatIsLeftOutDoNotMatter(t *testing.T) {
	t.Parallel()
	const pod = `{"spec":{"containers":[{"name":"a","volumeMounts":[{"name":"own","mountPath":"/lanyard/"}],"volumeDevices":[{"devicePath":"/lanyard"}]},{"name":"b"}]}}`
	result := createSelected(t, pod, injection(), &annotations.Pod{SkipContainers: []string{"a"}})
	if diff := cmp.Diff([]reason.Reason{reason.ContainerNotSelected}, reasonsOf(result.Findings)); diff != "" || result.Reason != reason.Injected {
		t.Errorf("got %s, findings (-want +got):\n%s", result.Reason, diff)
	}
}

func TestALongMountPathIsCutInTheMessage(t *testing.T) {
	t.Parallel()
	result, err := tryCreate(t, `{"spec":{"containers":[{"volumeMounts":[{"mountPath":"/lanyard/`+strings.Repeat("x", 4096)+`/"}]}]}}`, injection())
	denied(t, reason.InvalidMountPath, result, err)
	if len(err.Error()) > 512 {
		t.Errorf("got a message of %d bytes, want at most 512", len(err.Error()))
	}
}

// FuzzMountPath compares the outcome with a plain statement of the rule.
func FuzzMountPath(f *testing.F) {
	for p := range linuxPaths {
		f.Add(p)
	}
	settings := newSettings(f)
	add := mutate.NewInjection(injection())
	f.Fuzz(func(t *testing.T, mounted string) {
		text := encode(t, mounted)
		mounted = strings.ToValidUTF8(mounted, "\uFFFD")
		pod, err := read(`{"spec":{"containers":[{"volumeMounts":[{"name":"own","mountPath":`+text+`}]}]}}`, settings)
		if err != nil {
			t.Fatal(err)
		}
		result, err := mutate.Create(pod, &annotations.Pod{}, add)
		below := func(p string) bool { return p == mountPath || strings.HasPrefix(p, mountPath+"/") }
		looks, is := below(mounted), below(path.Clean("/"+mounted))
		switch {
		case looks && is && mounted == path.Clean(mounted):
			if err != nil || result.Reason != reason.MountPathTaken {
				t.Errorf("got %s and error %v, want %s", result.Reason, err, reason.MountPathTaken)
			}
		case looks || is:
			denied(t, reason.InvalidMountPath, result, err)
		case err != nil || result.Reason != reason.Injected:
			t.Errorf("got %s and error %v, want %s", result.Reason, err, reason.Injected)
		}
	})
}
