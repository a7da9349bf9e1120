// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package injector_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/lanyard-dev/lanyard/internal/webhook/injector"
	"github.com/lanyard-dev/lanyard/pkg/mutate/reason"
	"github.com/lanyard-dev/lanyard/test/support/randpod"
)

// tokenAlone is the bit of accountOf for a token without an identity.
const tokenAlone = 64

// verifies is the bit of accountOf for a verified start.
const verifies = 128

// accountOf returns a ServiceAccount with some of the providers, chosen by bits.
func accountOf(bits uint8) map[string]string {
	account := map[string]string{}
	for key, value := range threeClouds() {
		switch {
		case strings.Contains(key, "aws") && bits&1 != 0,
			strings.Contains(key, "azure") && bits&2 != 0,
			strings.Contains(key, "gcp") && bits&4 != 0:
			account[key] = value
		}
	}
	if bits&16 != 0 && bits&1 != 0 {
		account["lanyard.dev/aws-role-arn.audit"] = "arn:aws:iam::444455556666:role/audit"
		account["lanyard.dev/aws-role-arn.backup"] = "arn:aws:iam::444455556666:role/backup"
		account["lanyard.dev/aws-source-profile.backup"] = "audit"
	}
	if bits&32 != 0 && bits&1 != 0 {
		account["lanyard.dev/aws-session-name"] = "pod"
	}
	if bits&tokenAlone != 0 && bits&1 == 0 {
		account["lanyard.dev/tokens"] = "aws"
	}
	if bits&8 != 0 || len(account) == 0 {
		account["lanyard.dev/audience"] = "neutral"
	}
	if bits&verifies != 0 {
		account["lanyard.dev/verify"] = "wait"
	}
	return account
}

// FuzzRules checks rules that hold for every pod, with random pods and ServiceAccounts.
func FuzzRules(f *testing.F) {
	for seed := range uint64(300) {
		f.Add(seed, uint8(seed%64))
	}
	f.Fuzz(func(t *testing.T, seed uint64, bits uint8) {
		r := rand.New(rand.NewPCG(seed, uint64(bits)))
		// If the container gets no other variable, its own session name cannot be told from
		// Lanyard's.
		bits &^= tokenAlone
		pod := marshal(t, randpod.New(r))
		pods, _ := newPods(t, accountOf(bits))
		response := ask(t, pods, create(pod))
		if response.Code != 0 {
			if !(response.Reason == reason.InvalidMountPath && misspelled(pod)) {
				t.Fatalf("denied: %s", response.Message)
			}
			return
		}
		result := apply(t, pod, response.Patch)
		holdsAppendOnly(t, pod, response.Patch, result)
		holdsConsistent(t, result)
		holdsRemovable(t, pods.Settings, "", pod, result)
		if again := ask(t, pods, create(pod)); !bytes.Equal(again.Patch, response.Patch) {
			t.Errorf("the same pod got two patches:\n%s\n%s", response.Patch, again.Patch)
		}
		if second := ask(t, pods, create(result)); second.Patch != nil {
			t.Errorf("a second pass gave %s", second.Patch)
		}
		if response.Patch != nil {
			holdsCompletion(t, pods, result)
		}
	})
}

// misspelled reports whether the pod has the token mount path with a trailing
// slash, or below /run.
func misspelled(pod []byte) bool {
	return bytes.Contains(pod, []byte(randpod.MountPath+`/"`)) || bytes.Contains(pod, []byte(`"`+randpod.OtherPath+`"`))
}

// holdsAppendOnly checks that the patch only adds: everything in the pod is in the
// result, including unknown fields, and each list starts with its previous elements.
func holdsAppendOnly(t *testing.T, pod, patch, result []byte) {
	t.Helper()
	for _, op := range operations(t, patch) {
		if op.Op != "add" {
			t.Errorf("got operation %q on %s, want add alone", op.Op, op.Path)
		}
		carriesOver(t, pod, op)
	}
	contains(t, "", unmarshal(t, pod), unmarshal(t, result))
}

type operation struct {
	Op    string          `json:"op"`
	Path  string          `json:"path"`
	Value json.RawMessage `json:"value"`
}

func operations(t *testing.T, patch []byte) []operation {
	t.Helper()
	if patch == nil {
		return nil
	}
	var ops []operation
	if err := json.Unmarshal(patch, &ops); err != nil {
		t.Fatalf("patch %s: %v", patch, err)
	}
	return ops
}

// carriesOver checks that a list that is replaced as a whole starts with its previous
// elements, byte for byte.
func carriesOver(t *testing.T, pod []byte, op operation) {
	t.Helper()
	if strings.HasSuffix(op.Path, "/-") || op.Value[0] != '[' {
		return
	}
	var at any = unmarshalRaw(t, pod)
	for step := range strings.SplitSeq(op.Path[1:], "/") {
		at = into(t, at, step)
	}
	former, ok := at.(json.RawMessage)
	if !ok || string(former) == "null" {
		return
	}
	if want := strings.TrimSuffix(string(former), "]"); !strings.HasPrefix(string(op.Value), want) {
		t.Errorf("%s: got %s, want it to begin with %s", op.Path, op.Value, want)
	}
}

func unmarshalRaw(t *testing.T, text []byte) map[string]json.RawMessage {
	t.Helper()
	var v map[string]json.RawMessage
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// into follows one step of a JSON pointer, which is not decoded.
func into(t *testing.T, at any, step string) any {
	t.Helper()
	if raw, ok := at.(json.RawMessage); ok {
		if raw[0] == '[' {
			var list []json.RawMessage
			if err := json.Unmarshal(raw, &list); err != nil {
				t.Fatal(err)
			}
			var index int
			if _, err := fmt.Sscan(step, &index); err != nil {
				t.Fatal(err)
			}
			return list[index]
		}
		at = unmarshalRaw(t, raw)
	}
	if object, ok := at.(map[string]json.RawMessage); ok {
		if value, found := object[step]; found {
			return value
		}
	}
	return nil
}

// contains checks that nothing in before is missing or different in after.
func contains(t *testing.T, path string, before, after any) {
	t.Helper()
	switch b := before.(type) {
	case map[string]any:
		a, ok := after.(map[string]any)
		if !ok {
			t.Errorf("%s: got %T, want an object", path, after)
			return
		}
		for key, value := range b {
			if _, found := a[key]; !found {
				t.Errorf("%s/%s is lost", path, key)
				continue
			}
			contains(t, path+"/"+key, value, a[key])
		}
	case []any:
		a, ok := after.([]any)
		if !ok || len(a) < len(b) {
			t.Errorf("%s: got %v, want at least %d elements", path, after, len(b))
			return
		}
		for i := range b {
			contains(t, fmt.Sprintf("%s/%d", path, i), b[i], a[i])
		}
	default:
		if !reflect.DeepEqual(before, after) {
			t.Errorf("%s: got %v, want %v", path, after, before)
		}
	}
}

// holdsConsistent checks the additions: every mount has a volume, no two mounts have the same
// path, no variable of Lanyard occurs twice, and files that variables point to are below the
// container's mount.
func holdsConsistent(t *testing.T, result []byte) {
	t.Helper()
	spec := unmarshal(t, result)["spec"].(map[string]any)
	volumes := map[any]bool{}
	for _, v := range list(spec, "volumes") {
		if name := v["name"]; volumes[name] {
			t.Errorf("two volumes are called %v", name)
		}
		volumes[v["name"]] = true
	}
	for _, c := range append(list(spec, "containers"), list(spec, "initContainers")...) {
		mounted := map[any]any{}
		for _, m := range list(c, "volumeMounts") {
			if !volumes[m["name"]] {
				t.Errorf("%v mounts %v, which is no volume", c["name"], m["name"])
			}
			if mounted[m["mountPath"]] != nil {
				t.Errorf("%v has two mounts at %v", c["name"], m["mountPath"])
			}
			mounted[m["mountPath"]] = m["name"]
		}
		for _, v := range list(c, "env") {
			value, _ := v["value"].(string)
			if strings.HasPrefix(value, randpod.MountPath) && mounted[randpod.MountPath] == nil {
				t.Errorf("%v has %v below a mount that it does not have", c["name"], v["name"])
			}
		}
	}
}

func list(object map[string]any, key string) []map[string]any {
	elements, _ := object[key].([]any)
	var objects []map[string]any
	for _, element := range elements {
		objects = append(objects, element.(map[string]any))
	}
	return objects
}

// holdsCompletion checks that only a container that another webhook adds is completed,
// after the API server has filled in its name.
func holdsCompletion(t *testing.T, pods *injector.PodMutator, result []byte) {
	t.Helper()
	pod := unmarshal(t, result)
	spec := pod["spec"].(map[string]any)
	spec["containers"] = append(spec["containers"].([]any), map[string]any{"name": "late", "image": "image"})
	if metadata := pod["metadata"].(map[string]any); metadata["name"] == nil {
		metadata["name"] = "pod-x7k2p"
	}
	last := len(spec["containers"].([]any)) - 1
	late := marshal(t, pod)
	response := ask(t, pods, create(late))
	if response.Code != 0 || response.Patch == nil {
		t.Fatalf("a container that came late got no patch: %+v", response)
	}
	want := regexp.MustCompile(fmt.Sprintf(`^/spec/containers/%d/(env|volumeMounts)$`, last))
	for _, op := range operations(t, response.Patch) {
		if !want.MatchString(op.Path) {
			t.Errorf("got a patch of %s, want the late container's env and volumeMounts alone", op.Path)
		}
	}
	if second := ask(t, pods, create(apply(t, late, response.Patch))); second.Patch != nil {
		t.Errorf("a pass after the completion gave %s", second.Patch)
	}
}

// FuzzPod checks that every review of a pod gets a response, and that its patch applies.
func FuzzPod(f *testing.F) {
	for seed := range uint64(20) {
		f.Add(marshal(f, randpod.New(rand.New(rand.NewPCG(seed, 0)))))
	}
	for _, pod := range []string{
		`{}`, `{"metadata":null,"spec":null}`, `{"spec":{"containers":[{}]}}`, `{"spec":{"serviceAccountName":"app","containers":[{"name":"a"}]}}`,
		`{"metadata":{"annotations":null},"spec":{"serviceAccountName":"app","containers":[{"env":null,"volumeMounts":null}],"volumes":null}}`,
		`{"spec":{"serviceAccountName":"app","containers":{}}}`, `{"spec":{"serviceAccountName":7}}`, `[]`, `"x"`, `{} {}`,
	} {
		f.Add([]byte(pod))
	}
	f.Fuzz(func(t *testing.T, pod []byte) {
		pods, _ := newPods(t, threeClouds())
		review := create(pod)
		response := ask(t, pods, review)
		if response.Reason == "" {
			t.Error("a decision without a reason")
		}
		if !json.Valid(review.body()) && response.Code == 0 {
			t.Error("malformed JSON was let through")
		}
		if response.Patch == nil || !json.Valid(pod) || duplicates(pod) {
			return
		}
		result := apply(t, pod, response.Patch)
		if second := ask(t, pods, create(result)); second.Patch != nil {
			t.Errorf("a second pass over %s gave %s", result, second.Patch)
		}
	})
}

// duplicates reports whether an object in text has a member twice, which JSON leaves
// undefined and the API server never sends.
func duplicates(text []byte) bool {
	var v any
	if err := json.Unmarshal(text, &v); err != nil {
		return true
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, text); err != nil {
		return true
	}
	canonical, err := json.Marshal(v)
	return err != nil || bytes.Count(canonical, []byte(`":`)) != bytes.Count(compact.Bytes(), []byte(`":`))
}
