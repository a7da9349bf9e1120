// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package pod_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/lanyard-dev/lanyard/internal/rawjson"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/pkg/mutate/internal/pod"
)

// read reads a pod for a decision.
func read(t *testing.T, text string) *pod.Pod {
	t.Helper()
	p := new(pod.Pod)
	if err := p.Read(rawjson.NewScanner([]byte(text)), new(annotations.Settings)); err != nil {
		t.Fatal(err)
	}
	return p
}

// summary contains the fields of a Pod without its lists.
type summary struct {
	Name, ServiceAccountName, InjectLabel string
	Annotations                           map[string]string
	Mirror, Windows                       bool
}

func summarize(p *pod.Pod) summary {
	return summary{p.ShownName(), p.ServiceAccountName, p.InjectLabel, p.Annotations, p.Mirror, p.Windows}
}

func TestReadReadsTheFieldsForDecisions(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		pod  string
		want summary
	}{
		"an empty pod has the default ServiceAccount": {`{}`, summary{ServiceAccountName: "default"}},
		"an empty name is the default ServiceAccount": {`{"spec":{"serviceAccountName":""}}`, summary{ServiceAccountName: "default"}},
		"the ServiceAccount is named":                 {`{"spec":{"serviceAccountName":"app"}}`, summary{ServiceAccountName: "app"}},
		"the name is set":                             {`{"metadata":{"generateName":"a-","name":"a-1"}}`, summary{ServiceAccountName: "default", Name: "a-1"}},
		"the name is not made yet":                    {`{"metadata":{"generateName":"a-","name":""}}`, summary{ServiceAccountName: "default", Name: "a-"}},
		"only annotations under the prefix are kept": {`{"metadata":{"annotations":{"lanyard.dev/a":"1","other.dev/lanyard.dev/a":"2","lanyard.devs/a":3}}}`,
			summary{ServiceAccountName: "default", Annotations: map[string]string{"lanyard.dev/a": "1"}}},
		"the inject label is kept":         {`{"metadata":{"labels":{"app":"x","lanyard.dev/inject":"false"}}}`, summary{ServiceAccountName: "default", InjectLabel: "false"}},
		"a mirror pod has the annotation":  {`{"metadata":{"annotations":{"kubernetes.io/config.mirror":""}}}`, summary{ServiceAccountName: "default", Mirror: true}},
		"the os is Windows":                {`{"spec":{"os":{"name":"windows"}}}`, summary{ServiceAccountName: "default", Windows: true}},
		"the node selector is for Windows": {`{"spec":{"nodeSelector":{"a":"b","kubernetes.io/os":"windows"}}}`, summary{ServiceAccountName: "default", Windows: true}},
		"the old node selector is as well": {`{"spec":{"nodeSelector":{"beta.kubernetes.io/os":"windows"}}}`, summary{ServiceAccountName: "default", Windows: true}},
		"the os is Linux":                  {`{"spec":{"os":{"name":"linux"},"nodeSelector":{"kubernetes.io/os":"linux","name":"windows"}}}`, summary{ServiceAccountName: "default"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(test.want, summarize(read(t, test.pod))); diff != "" {
				t.Errorf("pod (-want +got):\n%s", diff)
			}
		})
	}
}

// In other objects, the last of two members with the same name counts, as in encoding/json.
func TestTheLastOfTwoMembersCounts(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		`{"spec":{"os":{"name":"windows","name":"linux"}}}`:                                                     false,
		`{"spec":{"os":{"name":"linux","name":"windows"}}}`:                                                     true,
		`{"spec":{"nodeSelector":{"kubernetes.io/os":"windows","kubernetes.io/os":"linux"}}}`:                   false,
		`{"spec":{"nodeSelector":{"beta.kubernetes.io/os":"windows","kubernetes.io/os":"linux"}}}`:              true,
		`{"spec":{"os":{"name":"windows"},"nodeSelector":{"kubernetes.io/os":"linux"}}}`:                        true,
		`{"spec":{"nodeSelector":{"kubernetes.io/os":"windows"},"os":{"name":"linux"}},"metadata":{"name":""}}`: true,
	} {
		if got := read(t, text).Windows; got != want {
			t.Errorf("%s: got Windows %t, want %t", text, got, want)
		}
	}
}

// Manifests may have the former name of the field. The API server fills in both.
func TestTheFormerNameOfTheServiceAccountsField(t *testing.T) {
	t.Parallel()
	for spec, want := range map[string]string{
		`{}`: "default", `{"serviceAccount":"a"}`: "a", `{"serviceAccount":"a","serviceAccountName":"b"}`: "b", `{"serviceAccountName":"b","serviceAccount":"a"}`: "b",
	} {
		if got := read(t, `{"spec":`+spec+`}`).ServiceAccountName; got != want {
			t.Errorf("%s: got %s, want %s", spec, got, want)
		}
	}
}

// full contains each field that is read.
const full = `{"metadata":{"name":"a","generateName":"b","annotations":{"lanyard.dev/injected":"aws","other.dev/x":"y"},"labels":{"lanyard.dev/inject":"false","lanyard.dev/identity":"injected"}},
"spec":{"serviceAccountName":"c","os":{"name":"windows"},
"volumes":[{"name":"t","projected":{"defaultMode":420,"sources":[
 {"serviceAccountToken":{"audience":"aud","expirationSeconds":3600,"path":"aws/token"}},
 {"downwardAPI":{"items":[{"path":"gcp/credentials.json","fieldRef":{"apiVersion":"v1","fieldPath":"metadata.annotations['x']"}},{"path":"p"}]}},
 {"configMap":{"name":"ca"},"serviceAccountToken":null},{"downwardAPI":{}}]}},null,{"secret":{"secretName":"s"},"name":"s"},{"name":"d","persistentVolumeClaim":{"readOnly":true}},{"name":"e","emptyDir":{}}],
"initContainers":[{"name":"i","env":[{"name":"A","value":"1"},null,{"name":"B","valueFrom": {"fieldRef":{"fieldPath":"metadata.name"}} },{"name":"C","valueFrom":{"secretKeyRef":{"key":"k"}}},{"name":"D","valueFrom":null}]}],
"containers":[null,{"name":"m","volumeDevices":[{"devicePath":"/dev/x"}],"volumeMounts":[{"name":"v","mountPath":"/m","readOnly":true,"subPath":"x"},{"name":"w","mountPath":"/n","subPathExpr":"y","subPath":""}]}],
"ephemeralContainers":[{"name":"e"}]}}`

func b(text string) []byte { return []byte(text) }

func TestReadAllReadsAllFields(t *testing.T) {
	t.Parallel()
	got, err := pod.ReadAll([]byte(full))
	if err != nil {
		t.Fatal(err)
	}
	want := &pod.Pod{
		Name: b("a"), GenerateName: b("b"), HasMetadata: true, HasAnnotations: true, HasLabels: true, Windows: true, HasInitContainers: true,
		Annotations: map[string]string{"lanyard.dev/injected": "aws", "other.dev/x": "y"}, InjectLabel: "false", IdentityLabel: "injected", ServiceAccountName: "c",
		Volumes: []pod.Volume{
			{Index: 0, Name: b("t"), DefaultMode: 420, ReadOnly: true, Sources: []pod.Source{
				{Token: true, Audience: b("aud"), ExpirationSeconds: 3600, Path: b("aws/token")},
				{File: true, Path: b("gcp/credentials.json"), FieldPath: b("metadata.annotations['x']")}, {File: true, Path: b("p")}, {}, {},
			}},
			{Index: 2, Name: b("s"), ReadOnly: true}, {Index: 3, Name: b("d"), ReadOnly: true}, {Index: 4, Name: b("e")},
		},
		Containers: []pod.Container{
			{Kind: pod.InitContainers, Name: b("i"), Variables: []pod.Variable{
				{Index: 0, Name: b("A"), Value: b("1")},
				{Index: 2, Name: b("B"), From: b(`{"fieldRef":{"fieldPath":"metadata.name"}}`), FieldPath: b("metadata.name")},
				{Index: 3, Name: b("C"), From: b(`{"secretKeyRef":{"key":"k"}}`)}, {Index: 4, Name: b("D")},
			}},
			{Kind: pod.Containers, Index: 1, Name: b("m"), Mounts: []pod.Mount{
				{Index: 0, Volume: b("v"), Path: b("/m"), ReadOnly: true, Partial: true}, {Index: 1, Volume: b("w"), Path: b("/n"), Partial: true},
				{Index: 0, Path: b("/dev/x"), Device: true},
			}},
			{Kind: pod.EphemeralContainers, Name: b("e")},
		},
	}
	ignore := []cmp.Option{
		cmpopts.IgnoreUnexported(pod.Pod{}, pod.Container{}), cmpopts.EquateEmpty(),
		cmpopts.IgnoreFields(pod.Pod{}, "VolumesText"), cmpopts.IgnoreFields(pod.Container{}, "EnvText", "MountsText"),
	}
	if diff := cmp.Diff(want, got, ignore...); diff != "" {
		t.Errorf("pod (-want +got):\n%s", diff)
	}
	for name, want := range map[string]bool{"t": true, "s": true, "d": true, "e": false, "": false} {
		if is := got.IsReadOnly(b(name)); is != want {
			t.Errorf("volume %q: got read-only %t, want %t", name, is, want)
		}
	}
	if text := string(got.Containers[1].MountsText); !strings.HasPrefix(text, `[{"name":"v"`) || !strings.HasSuffix(text, `}]`) {
		t.Errorf("got the text %s, want the list of mounts", text)
	}
}

// A pod that an API server has stored may exceed the limits of a decision.
func TestReadAllHasNoLimits(t *testing.T) {
	t.Parallel()
	list := func(n int) string { return "[{}" + strings.Repeat(",{}", n-1) + "]" }
	long := strings.Repeat("a", 100_000)
	text := `{"metadata":{"annotations":{"a":"` + long + `"` + strings.Repeat(`,"lanyard.dev/a":""`, 40) + `}},"spec":{"containers":` + list(600) + `,"volumes":` + list(40_000) + `}}`
	got, err := pod.ReadAll([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Containers) != 600 || len(got.Volumes) != 40_000 || got.Annotations["a"] != long {
		t.Errorf("got %d containers, %d volumes and an annotation of %d bytes, want all", len(got.Containers), len(got.Volumes), len(got.Annotations["a"]))
	}
	p := read(t, text)
	if err := p.ReadLists(); !errors.Is(err, pod.ErrTooLarge) {
		t.Errorf("for a decision: got error %v, want %v", err, pod.ErrTooLarge)
	}
}

// The limits also apply to a decision about a pod that ReadAll has read.
func TestReadListsChecksTheLimitsOfReadAll(t *testing.T) {
	t.Parallel()
	list := func(n int) string { return "[{}" + strings.Repeat(",{}", n-1) + "]" }
	for spec, want := range map[string]bool{
		`"containers":` + list(512): false, `"containers":` + list(513): true,
		`"volumes":` + list(32768): false, `"volumes":` + list(32769): true,
	} {
		p, err := pod.ReadAll([]byte(`{"spec":{` + spec + `}}`))
		if err != nil {
			t.Fatal(err)
		}
		if err := p.ReadLists(); errors.Is(err, pod.ErrTooLarge) != want {
			t.Errorf("%.30s: got error %v, want %t", spec, err, want)
		}
	}
}

// A pod can opt out, however many annotations it has.
func TestTheOptOutIsReadAfterTheMostAnnotations(t *testing.T) {
	t.Parallel()
	many := ""
	for i := range 40 {
		many += fmt.Sprintf(`"lanyard.dev/a%d":"",`, i)
	}
	got := read(t, `{"metadata":{"annotations":{`+many+`"lanyard.dev/inject":"false"}}}`).Annotations
	if len(got) != 33 || got[annotations.Inject] != "false" {
		t.Errorf("got %d annotations, and %q of %s, want 33 and false", len(got), got[annotations.Inject], annotations.Inject)
	}
}

// Annotations of other programs do not count towards the limit.
func TestAnnotationsOfOthersAreNotRead(t *testing.T) {
	t.Parallel()
	many := ""
	for i := range 40 {
		many += fmt.Sprintf(`"other.dev/a%d":"",`, i)
	}
	text := `{"metadata":{"annotations":{` + many + `"peer.dev/token":"x","lanyard.dev/containers":"main"}}}`
	for name, peers := range map[string]map[string]string{"no peer": nil, "a peer": {"peer.dev/token": "aws"}} {
		p := new(pod.Pod)
		if err := p.Read(rawjson.NewScanner([]byte(text)), &annotations.Settings{PeerTokens: peers}); err != nil {
			t.Fatal(err)
		}
		want := map[string]string{annotations.Containers: "main"}
		if peers != nil {
			want["peer.dev/token"] = "x"
		}
		if diff := cmp.Diff(want, p.Annotations); diff != "" {
			t.Errorf("%s: annotations (-want +got):\n%s", name, diff)
		}
	}
}

// The API server would reject such a manifest.
func TestAValueThatIsNoBooleanIsNotTrue(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]bool{`true`: true, `false`: false, `null`: false, `"true"`: false, `1`: false, `{"a":true}`: false, `[true]`: false} {
		p, err := pod.ReadAll([]byte(`{"spec":{"containers":[{"volumeMounts":[{"readOnly":` + value + `}]}]}}`))
		if err != nil {
			t.Fatal(err)
		}
		if got := p.Containers[0].Mounts[0].ReadOnly; got != want {
			t.Errorf("readOnly %s: got %t, want %t", value, got, want)
		}
	}
}

func TestVolumeReturnsTheLastOfAName(t *testing.T) {
	t.Parallel()
	p := pod.Pod{Volumes: []pod.Volume{{Index: 0, Name: b("a")}, {Index: 1, Name: b("a")}, {Index: 2, Name: b("c")}}}
	if got := p.Volume("a"); got != &p.Volumes[1] {
		t.Errorf("got %+v, want the volume at index 1", got)
	}
	if got := p.Volume("x"); got != nil {
		t.Errorf("got %+v, want none", got)
	}
}

func TestACloneHasItsOwnReadOnlyVolumes(t *testing.T) {
	t.Parallel()
	p := new(pod.Pod)
	p.SetVolumes([]pod.Volume{{Name: b("a"), ReadOnly: true}})
	p.Clone().SetVolumes([]pod.Volume{{Name: b("z"), ReadOnly: true}})
	if !p.IsReadOnly(b("a")) || p.IsReadOnly(b("z")) {
		t.Error("a change of the clone changed the pod")
	}
}

// Unknown members of a manifest do not turn a file into a token.
func TestATokenIsNoFile(t *testing.T) {
	t.Parallel()
	p, err := pod.ReadAll([]byte(`{"spec":{"volumes":[{"projected":{"sources":[
		{"serviceAccountToken":{"audience":"aud","path":"token","fieldRef":{"fieldPath":"field"}}},
		{"downwardAPI":{"items":[{"audience":"aud","path":"file","fieldRef":{"fieldPath":"field"}}]}}]}}]}}`))
	if err != nil {
		t.Fatal(err)
	}
	v := &p.Volumes[0]
	got := [4]bool{v.HasToken("aud", "token"), v.HasFile("field", "file"), v.HasToken("aud", "file"), v.HasFile("field", "token")}
	if want := [4]bool{true, true, false, false}; got != want {
		t.Errorf("got %v, want %v", got, want)
	}
}

// A pod that was not read is an empty one, for the command line.
func TestReadAllReadsNull(t *testing.T) {
	t.Parallel()
	if got, err := pod.ReadAll([]byte(`null`)); err != nil || got.HasMetadata || got.ServiceAccountName != "default" {
		t.Errorf("got %+v and error %v, want an empty pod", got, err)
	}
}

func TestReadAllNamesTheFieldOfTheWrongType(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`[]`:                                    "pod: at byte 0: got array, want object",
		`{}x`:                                   "pod: at byte 2: ",
		`{"spec":{"containers":[{"env":"x"}]}}`: "pod: spec: containers: [0]: env: at byte 0: got string, want array",
		`{"spec":{"volumes":[{"projected":{"defaultMode":"x"}}]}}`: "pod: spec: volumes: [0]: projected: defaultMode: got string, want integer",
		`{"spec":{"volumes":[{"projected":{"defaultMode":0.5}}]}}`: "pod: spec: volumes: [0]: projected: defaultMode: got number, want integer",
	} {
		if _, err := pod.ReadAll([]byte(text)); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: got error %v, want %s", text, err, want)
		}
	}
}

// A mistake in a list must not deny a pod whose ServiceAccount asks for no identity.
func TestReadLeavesTheListsUnread(t *testing.T) {
	t.Parallel()
	for _, text := range []string{`{"spec":{"volumes":{}}}`, `{"spec":{"containers":[{"env":1}]}}`, `{"spec":{"containers":[{"volumeMounts":[1]}]}}`} {
		if err := read(t, text).ReadLists(); err == nil {
			t.Errorf("%s: ReadLists: got no error, want one", text)
		}
	}
}

// FuzzReadAll checks that the reader never panics, and that results are parts of the text.
func FuzzReadAll(f *testing.F) {
	f.Add([]byte(full))
	f.Add([]byte(`{"spec":{"containers":[{"env":[{"value":"\u0041","valueFrom":{"fieldRef":{}}}]}],"volumes":[{"projected":{"sources":null}}]}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		all, err := pod.ReadAll(text)
		if err == nil && rawjson.NewScanner(text).Kind() == rawjson.Null {
			return
		}
		p := new(pod.Pod)
		errRead := p.Read(rawjson.NewScanner(text), new(annotations.Settings))
		if errRead == nil {
			errRead = p.ReadLists()
		}
		if err != nil || errors.Is(errRead, pod.ErrTooLarge) {
			return
		}
		if errRead != nil {
			t.Fatalf("got error %v for a decision, and none for all", errRead)
		}
		p.Annotations, all.Annotations = nil, nil
		if diff := cmp.Diff(all, p, cmpopts.IgnoreUnexported(pod.Pod{}, pod.Container{}), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("pod (-all +for a decision):\n%s", diff)
		}
	})
}
