// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mutate

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
)

// oneByOne and whole are the two ways to let a list grow, written plainly.

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

func TestAListGrowsInTheShorterOfTheTwoWays(t *testing.T) {
	t.Parallel()
	const path = "/spec/containers/0/env"
	ways := map[string]int{}
	for n := 1; n <= 14; n++ {
		for former := range 800 {
			l := list{present: true}
			if former > 1 {
				l.count, l.elements = 1, []byte(`"`+strings.Repeat("x", former-2)+`"`)
			}
			var elements [][]byte
			var texts []string
			for i := range n {
				texts = append(texts, fmt.Sprintf(`{"name":"%d"}`, i))
				elements = append(elements, []byte(texts[i]))
			}
			var p patch
			p.grow([]byte(path), l, newElements(elements...))
			got := string(p.bytes())
			a, b := oneByOne(path, texts), whole(path, string(l.elements), texts)
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

func TestAListGrowsAtItsEnd(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 500)
	for name, test := range map[string]struct {
		pod  string
		l    list
		want string
	}{
		"absent":                     {`{}`, list{}, `{"l":[1,2]}`},
		"null":                       {`{"l":null}`, list{}, `{"l":[1,2]}`},
		"empty":                      {`{"l":[]}`, list{present: true}, `{"l":[1,2]}`},
		"short, and carried over":    {`{"l":[ "a" ,  true]}`, list{present: true, count: 2, elements: []byte(`"a" ,  true`)}, `{"l":["a" ,  true,1,2]}`},
		"long, and left where it is": {`{"l":["` + long + `"]}`, list{present: true, count: 1, elements: []byte(`"` + long + `"`)}, `{"l":["` + long + `",1,2]}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var p patch
			p.grow([]byte("/l"), test.l, newElements([]byte("1"), []byte("2")))
			if carried := bytes.Contains(p.bytes(), []byte(long)); carried {
				t.Errorf("got %s, want the long list left where it is", p.bytes())
			}
			if test.l.count == 2 && !bytes.Contains(p.bytes(), test.l.elements) {
				t.Errorf("got %s, want %s carried over byte for byte", p.bytes(), test.l.elements)
			}
			decoded, err := jsonpatch.DecodePatch(p.bytes())
			if err != nil {
				t.Fatal(err)
			}
			got, err := decoded.Apply([]byte(test.pod))
			if err != nil {
				t.Fatal(err)
			}
			if !jsonpatch.Equal(got, []byte(test.want)) {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}

func TestNothingToAddIsNoPatch(t *testing.T) {
	t.Parallel()
	var p patch
	p.grow([]byte("/l"), list{}, elements{})
	p.annotations(&Pod{}, nil)
	if got := p.bytes(); got != nil {
		t.Errorf("got %s, want nil", got)
	}
}
