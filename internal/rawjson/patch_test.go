// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package rawjson_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	evanphx "github.com/evanphx/json-patch/v5"

	"github.com/lanyard-dev/lanyard/internal/rawjson"
)

func apply(t *testing.T, object string, patch []byte) (string, error) {
	t.Helper()
	if patch == nil {
		return object, nil
	}
	decoded, err := evanphx.DecodePatch(patch)
	if err != nil {
		t.Fatalf("%s: %v", patch, err)
	}
	got, err := decoded.Apply([]byte(object))
	return string(got), err
}

// checkApply applies a patch and compares the result.
func checkApply(t *testing.T, object string, patch []byte, want string) {
	t.Helper()
	got, err := apply(t, object, patch)
	if err != nil {
		t.Fatalf("apply %s to %s: %v", patch, object, err)
	}
	if !evanphx.Equal([]byte(got), []byte(want)) {
		t.Errorf("apply %s to %s: got %s, want %s", patch, object, got, want)
	}
}

func TestPatchesApply(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		build  func(p *rawjson.Patch)
		object string
		text   string
		want   string // "" if the patch fails
	}{
		"no operation is no patch": {
			func(*rawjson.Patch) {}, `{"a":1}`, ``, `{"a":1}`},
		"capacity is not an operation": {
			func(p *rawjson.Patch) { p.Grow(100) }, `{"a":1}`, ``, `{"a":1}`},
		"one member is added": {
			func(p *rawjson.Patch) { p.Add("/b", []byte(`{"c":2}`)) }, `{"a":1}`,
			`[{"op":"add","path":"/b","value":{"c":2}}]`, `{"a":1,"b":{"c":2}}`},
		"two operations are done in order": {
			func(p *rawjson.Patch) { p.Add("/b", []byte(`[]`)); p.Add("/b/-", []byte(`1`)) }, `{}`,
			`[{"op":"add","path":"/b","value":[]},{"op":"add","path":"/b/-","value":1}]`, `{"b":[1]}`},
		"a member is removed": {
			func(p *rawjson.Patch) { p.Remove("/a") }, `{"a":1,"b":2}`,
			`[{"op":"remove","path":"/a"}]`, `{"b":2}`},
		"a test that holds lets the rest happen": {
			func(p *rawjson.Patch) { p.Test("/a", []byte(`1`)); p.Remove("/a") }, `{"a":1}`,
			`[{"op":"test","path":"/a","value":1},{"op":"remove","path":"/a"}]`, `{}`},
		"a test that fails stops the patch": {
			func(p *rawjson.Patch) { p.Test("/a", []byte(`2`)); p.Remove("/a") }, `{"a":1}`,
			`[{"op":"test","path":"/a","value":2},{"op":"remove","path":"/a"}]`, ``},
		"a member whose name is escaped": {
			func(p *rawjson.Patch) { p.Add("/"+rawjson.EscapePointer("x.dev/~1"), []byte(`1`)) }, `{}`,
			`[{"op":"add","path":"/x.dev~1~01","value":1}]`, `{"x.dev/~1":1}`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var p rawjson.Patch
			test.build(&p)
			if got := string(p.Bytes()); got != test.text {
				t.Errorf("got %s, want %s", got, test.text)
			}
			if p.Empty() != (test.text == "") || p.Size() != len(test.text) {
				t.Errorf("got empty %v and size %d, want size %d", p.Empty(), p.Size(), len(test.text))
			}
			if test.want != "" {
				checkApply(t, test.object, p.Bytes(), test.want)
			} else if got, err := apply(t, test.object, p.Bytes()); err == nil {
				t.Errorf("got %s, want an error", got)
			}
		})
	}
}

// Callers may call Bytes several times, and add operations in between.
func TestBytesCanBeCalledAtAnyTime(t *testing.T) {
	t.Parallel()
	var p rawjson.Patch
	p.Grow(1000)
	p.Add("/a", []byte(`1`))
	for range 2 {
		if got, want := string(p.Bytes()), `[{"op":"add","path":"/a","value":1}]`; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	p.Remove("/b")
	if got, want := string(p.Bytes()), `[{"op":"add","path":"/a","value":1},{"op":"remove","path":"/b"}]`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestEscape(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{"": "", "a": "a", "a/b": "a~1b", "~": "~0", "~1": "~01", "/~0/": "~1~00~1"} {
		if got := rawjson.EscapePointer(name); got != want {
			t.Errorf("%q: got %q, want %q", name, got, want)
		}
	}
}

// oneByOne and whole are the two ways to extend a list, written plainly.

func oneByOne(path string, elements []string) string {
	var operations []string
	for _, element := range elements {
		operations = append(operations, fmt.Sprintf(`{"op":"add","path":"%s/-","value":%s}`, path, element))
	}
	return "[" + strings.Join(operations, ",") + "]"
}

func whole(path, former string, elements []string) string {
	all := strings.Join(elements, ",")
	if former != "" {
		all = former + "," + all
	}
	return fmt.Sprintf(`[{"op":"add","path":"%s","value":[%s]}]`, path, all)
}

func encoded(texts []string) (elements [][]byte) {
	for _, text := range texts {
		elements = append(elements, []byte(text))
	}
	return elements
}

func TestExtendTakesTheShorterOfTwoWays(t *testing.T) {
	t.Parallel()
	const path = "/spec/containers/0/env"
	ways := map[string]int{}
	for n := 1; n <= 14; n++ {
		for former := range 800 {
			previous := ""
			if former > 1 {
				previous = `"` + strings.Repeat("x", former-2) + `"`
			}
			var texts []string
			for i := range n {
				texts = append(texts, fmt.Sprintf(`{"name":"%d"}`, i))
			}
			var p rawjson.Patch
			p.Extend([]byte(path), []byte("["+previous+"]"), encoded(texts))
			got := string(p.Bytes())
			a, b := oneByOne(path, texts), whole(path, previous, texts)
			switch {
			case got == a && len(a) <= len(b):
				ways["one by one"]++
			case got == b && len(b) <= len(a):
				ways["whole"]++
			default:
				t.Fatalf("%d elements after %d bytes: got %d bytes %s, one by one would be %d and whole %d", n, former, len(got), got, len(a), len(b))
			}
		}
	}
	if len(ways) != 2 {
		t.Errorf("got only %v, want both ways", ways)
	}
}

func TestExtendAddsAtTheEnd(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 500)
	tests := map[string]struct {
		object string
		list   string
		added  []string
		want   string
		has    string // in the patch
		hasNot string
	}{
		"an absent list":               {`{}`, "", []string{"1", "2"}, `{"l":[1,2]}`, `[1,2]`, `/-`},
		"a list that is null":          {`{"l":null}`, "", []string{"1", "2"}, `{"l":[1,2]}`, `[1,2]`, `/-`},
		"an empty list":                {`{"l":[]}`, `[]`, []string{"1", "2"}, `{"l":[1,2]}`, `[1,2]`, `/-`},
		"a short list is copied":       {`{"l":[ "a" ,  true]}`, `[ "a" ,  true]`, []string{"1", "2"}, `{"l":["a" ,  true,1,2]}`, `"a" ,  true`, `/-`},
		"a list of one digit":          {`{"l":[7]}`, `[7]`, []string{"1", "2"}, `{"l":[7,1,2]}`, `[7,1,2]`, `/-`},
		"a long list is not copied":    {`{"l":["` + long + `"]}`, `["` + long + `"]`, []string{"1", "2"}, `{"l":["` + long + `",1,2]}`, `/l/-`, long},
		"nothing after an absent list": {`{}`, "", nil, `{}`, ``, `/l`},
		"nothing after a list":         {`{"l":[1]}`, `[1]`, nil, `{"l":[1]}`, ``, `/l`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var p rawjson.Patch
			var list []byte
			if test.list != "" {
				list = []byte(test.list)
			}
			p.Extend([]byte("/l"), list, encoded(test.added))
			got := string(p.Bytes())
			if !strings.Contains(got, test.has) || strings.Contains(got, test.hasNot) {
				t.Errorf("got %s, want %s in it and not %s", got, test.has, test.hasNot)
			}
			checkApply(t, test.object, p.Bytes(), test.want)
		})
	}
}

// checkExtend extends a list after another operation, and checks the result and
// the size.
func checkExtend(t *testing.T, present bool, former, added []string) {
	t.Helper()
	const path = "/a/l"
	var list []byte
	object := `{"a":{}}`
	if present {
		list = []byte(`[` + strings.Join(former, ", ") + `]`)
		object = `{"a":{"l":` + string(list) + `}}`
	}
	var p rawjson.Patch
	p.Add("/b", []byte(`0`))
	before := p.Size()
	p.Extend([]byte(path), list, encoded(added))
	size := p.Size() - before
	if most := rawjson.SizeOfExtend(len(path), encoded(added)); size > most {
		t.Errorf("%d elements after %d: got %d bytes, want at most %d", len(added), len(former), size, most)
	}
	want := `{"a":{},"b":0}`
	if present || len(added) > 0 {
		want = `{"a":{"l":[` + strings.Join(append(append([]string(nil), former...), added...), ",") + `]},"b":0}`
	}
	checkApply(t, object, p.Bytes(), want)
}

func TestExtendIsNeverLongerThanSizeOfExtend(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	list := func() (elements []string) {
		for range random.IntN(6) {
			elements = append(elements, strconv.Quote(strings.Repeat("x", random.IntN(100))))
		}
		return elements
	}
	for range 3000 {
		present := random.IntN(4) > 0
		var former []string
		if present {
			former = list()
		}
		checkExtend(t, present, former, list())
	}
}

func FuzzExtend(f *testing.F) {
	f.Add(true, "a,b", "c,d")
	f.Add(true, "", "c")
	f.Add(false, "", "c,d,e,f")
	f.Add(true, strings.Repeat("x", 300), "c")
	f.Fuzz(func(t *testing.T, present bool, former, added string) {
		split := func(text string) (elements []string) {
			for element := range strings.SplitSeq(text, ",") {
				if quoted, err := json.Marshal(element); err == nil && text != "" {
					elements = append(elements, string(quoted))
				}
			}
			return elements
		}
		if !present {
			former = ""
		}
		checkExtend(t, present, split(former), split(added))
	})
}

// If the size of a patch is known in advance, one allocation is enough.
func TestGrowAllocatesSizeOfExtend(t *testing.T) {
	elements := encoded([]string{`{"name":"a"}`, `{"name":"b"}`})
	list := []byte("[" + strings.Repeat("1,", 300) + "1]")
	allocations := testing.AllocsPerRun(10, func() {
		var p rawjson.Patch
		p.Grow(10 * rawjson.SizeOfExtend(len("/l"), elements))
		for range 10 {
			p.Extend([]byte("/l"), list, elements)
		}
		p.Bytes()
	})
	// The race detector adds one.
	if allocations > 2 {
		t.Errorf("got %.0f allocations, want one", allocations)
	}
}
