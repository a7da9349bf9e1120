// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package rawjson_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lanyard-dev/lanyard/internal/rawjson"
)

// skip reads the whole of text without looking at it.
func skip(text []byte) error {
	s := rawjson.NewScanner(text)
	if err := s.Skip(); err != nil {
		return err
	}
	return s.End()
}

var texts = []string{
	``, ` `, `null`, `nul`, `true`, `truex`, `false`, `0`, `-0`, `01`, `-`, `1.`, `1.5`, `.5`, `1e9`, `1E+9`, `1e`, `1e+`, `-12.50e-3`,
	`""`, `"a`, `"a\nb"`, `"\q"`, `"\u12"`, `"\u12g4"`, `"\ud83d\ude00"`, `"\ud83d"`, "\"\x01\"", "\"\xff\"", "\"\t", `"é"`, `"\`,
	`[]`, `[1]`, `[1,]`, `[,1]`, `[1 2]`, `[`, `]`, `[1`, `[[[]]]`, `{}`, `{"a":1}`, `{"a":1,}`, `{"a"}`, `{"a":}`, `{a:1}`, `{1:1}`, `{"a":1 "b":2}`, `{"a":1`, `{"a":{"b":[null,true,"x"]}}`,
	`[}`, `{]`, `[1}`, `{"a":1]`, `{"a":[1}]`, `[{"a":1]}`, `[[]}`, `{"a":{}]`,
	` { "a" : [ 1 , 2 ] } `, `{} {}`, `null null`, `{"":{}}`, `{null:1}`,
}

func TestScannerAcceptsTheSameInputAsEncodingJSON(t *testing.T) {
	t.Parallel()
	for _, text := range texts {
		got, want := skip([]byte(text)) == nil, json.Valid([]byte(text))
		if got != want {
			t.Errorf("%q: accepted %t, encoding/json %t", text, got, want)
		}
	}
}

func TestScannerBoundsNesting(t *testing.T) {
	t.Parallel()
	for name, depth := range map[string]int{"as deep as encoding/json goes": 10000, "one deeper": 10001} {
		text := []byte(strings.Repeat("[", depth) + strings.Repeat("]", depth))
		if got, want := skip(text) == nil, json.Valid(text); got != want {
			t.Errorf("%s: accepted %t, encoding/json %t", name, got, want)
		}
	}
}

func TestScannerTracksDeepNesting(t *testing.T) {
	t.Parallel()
	for depth := range 130 {
		within := strings.Repeat("[", depth) + strings.Repeat("]", depth)
		for _, text := range []string{`{"a":` + within + `}`, `{"a":` + within + `]`, `[` + within + `]`, `[` + within + `}`} {
			if got, want := skip([]byte(text)) == nil, json.Valid([]byte(text)); got != want {
				t.Errorf("%s: accepted %t, encoding/json %t", text, got, want)
			}
		}
	}
}

func FuzzSkip(f *testing.F) {
	for _, text := range texts {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if got, want := skip(text) == nil, json.Valid(text); got != want {
			t.Errorf("%q: accepted %t, encoding/json %t", text, got, want)
		}
	})
}

// decode decodes like encoding/json, with the scanner.
func decode(s *rawjson.Scanner) (any, error) {
	switch s.Kind() {
	case rawjson.Object:
		object := map[string]any{}
		err := s.Object(func(key []byte) (err error) {
			name := string(key)
			object[name], err = decode(s)
			return err
		})
		return object, err
	case rawjson.Array:
		array := []any{}
		err := s.Array(func(int) error {
			element, err := decode(s)
			array = append(array, element)
			return err
		})
		return array, err
	case rawjson.String:
		text, err := s.String()
		return string(text), err
	default:
		raw, err := s.Raw()
		if err != nil {
			return nil, err
		}
		var value any
		return value, json.Unmarshal(raw, &value)
	}
}

func FuzzDecode(f *testing.F) {
	for _, text := range texts {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var want any
		if json.Unmarshal(text, &want) != nil {
			return
		}
		got, err := decode(rawjson.NewScanner(text))
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%q (-encoding/json +scanner):\n%s", text, diff)
		}
	})
}

func TestScannerSkipsUnreadValues(t *testing.T) {
	t.Parallel()
	s := rawjson.NewScanner([]byte(`{"skipped":{"b":[1,2]},"read":"x","n":null,"list":[{"a":1},7,"z"]}`))
	var got []string
	err := s.Object(func(key []byte) error {
		switch string(key) {
		case "read":
			text, err := s.String()
			got = append(got, string(text))
			return err
		case "n":
			return s.Object(func([]byte) error { return errors.New("a null has no members") })
		case "list":
			return s.Array(func(i int) error {
				if i != 1 {
					return nil
				}
				raw, err := s.Raw()
				got = append(got, string(raw))
				return err
			})
		}
		return nil
	})
	if err != nil || s.End() != nil {
		t.Fatalf("got error %v", err)
	}
	if diff := cmp.Diff([]string{"x", "7"}, got); diff != "" {
		t.Error(diff)
	}
}

// A cut must not split an escape sequence before the limit, or read past the end of the string.
func TestTheStartOfALongStringIsTheSame(t *testing.T) {
	t.Parallel()
	for _, limit := range []int{1, 4, 64} {
		for _, unit := range []string{"a", "ä", `\n`, `\u0061`, `\ud83d\ude00`, `a\u0061`} {
			for n := range 8 * (limit + 3) {
				text := `["` + strings.Repeat(unit, n) + `",1]`
				var want []any
				if err := json.Unmarshal([]byte(text), &want); err != nil {
					t.Fatal(err)
				}
				full := want[0].(string)
				s := rawjson.NewScanner([]byte(text))
				err := s.Array(func(i int) error {
					if i > 0 {
						return nil
					}
					got, err := s.StringUpTo(limit)
					if string(got) != full && (len(got) <= limit || !strings.HasPrefix(full, string(got[:limit]))) {
						t.Errorf("%d times %s up to %d: got %q", n, unit, limit, got)
					}
					return err
				})
				if err := errors.Join(err, s.End()); err != nil {
					t.Errorf("%d times %s up to %d: %v", n, unit, limit, err)
				}
			}
		}
	}
}

func TestScannerErrorsNameActualAndExpectedKind(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`"x"`:       `at byte 0: got string, want object`,
		` null "x"`: `at byte 6: got string, want the end`,
		`{"a":1 2`:  `at byte 7: invalid character '2' after object value (expecting ',' or '}')`,
		`{"a" 1}`:   `at byte 5: invalid character '1' after object name (expecting ':')`,
		`{`:         `unexpected end of JSON`,
		`%`:         `at byte 0: invalid character '%' at start of value, want object`,
		``:          `unexpected end of JSON, want object`,
	} {
		s := rawjson.NewScanner([]byte(text))
		err := s.Object(func([]byte) error { return nil })
		if err == nil {
			err = s.End()
		}
		if err == nil || err.Error() != want {
			t.Errorf("%s: got error %v, want %s", text, err, want)
		}
	}
}

// In some objects, such as ConfigMaps, the names are data.
func TestScannerErrorsDoNotShowNames(t *testing.T) {
	t.Parallel()
	for _, text := range []string{`{"secret":{"a":}}`, `{"a":{"secret":`, `{"secret" 1}`, `[{"secret":"\q"}]`, `{"secret":[1}`} {
		if err := skip([]byte(text)); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: got error %v, want one without the name", text, err)
		}
	}
}

// Each request has its own stack. The test is not parallel, because it measures the stacks of
// the process.
//
//nolint:paralleltest // see above
func TestScannerNeedsLittleStackForADeepValue(t *testing.T) {
	const most = 1 << 20
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	done := make(chan error)
	go func() {
		err := skip([]byte(strings.Repeat(`[{"a":`, 4999) + "1" + strings.Repeat("}]", 4999)))
		runtime.ReadMemStats(&after)
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if after.StackInuse > before.StackInuse+most {
		t.Errorf("got %d KiB more of stacks, want at most %d KiB", (after.StackInuse-before.StackInuse)>>10, most>>10)
	}
}

func FuzzAppendString(f *testing.F) {
	for _, text := range []string{"", "plain", "quote\" and \\", "\n\r\t\b\f\x00\x1f", "é\u2028", "bad \xff utf-8", "<&>"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		encoded := rawjson.AppendString(nil, text)
		var got, want string
		if err := json.Unmarshal(encoded, &got); err != nil {
			t.Fatalf("%q: %s: %v", text, encoded, err)
		}
		standard, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(standard, &want); err != nil {
			t.Fatal(err)
		}
		if got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
		if len(encoded) > len(standard) {
			t.Errorf("%q: %d bytes, encoding/json needs %d", text, len(encoded), len(standard))
		}
		if !bytes.Equal(encoded, rawjson.AppendString([]byte{}, text)) {
			t.Error("not deterministic")
		}
	})
}
