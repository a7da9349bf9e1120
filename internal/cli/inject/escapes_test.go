// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"bytes"
	"strings"
	"testing"
	"unicode"
)

// The manifests may come from a cluster: kubectl get -o json | lanyard inject -f -
func TestManifestsDoNotControlATerminal(t *testing.T) {
	t.Parallel()
	const object = "{\"apiVersion\": \"v1\", \"kind\": \"Pod\", \"metadata\": {\"name\": \"x\", \"annotations\": {\"a\": \"\\u001b[2J\x7f\u009b31m\"}}}"
	for _, isJSON := range []bool{false, true} {
		for _, changed := range []bool{false, true} {
			if !isJSON && !changed {
				continue // the parser denies YAML with a control character
			}
			var out bytes.Buffer
			d := &Document{text: []byte(object), json: []byte(object), isJSON: isJSON, changed: changed}
			if err := Write(&out, []*Document{d}); err != nil {
				t.Fatal(err)
			}
			if at := strings.IndexFunc(out.String(), func(r rune) bool { return r != '\n' && unicode.IsControl(r) }); at >= 0 {
				t.Errorf("JSON %t, changed %t: got %q", isJSON, changed, &out)
			}
			again, err := Read("again", out.Bytes())
			if err != nil || len(again) != 1 {
				t.Errorf("JSON %t, changed %t: got %v and %v", isJSON, changed, again, err)
			}
		}
	}
	if _, err := Read("x", []byte("a: \"\u009b\"\n")); err == nil {
		t.Error("got no error for YAML with a control character")
	}
	documents, err := Read("x", []byte("kind: Pod # a\r# b\nname: 'c\u0085d' # e\n"))
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := Write(&out, documents); err != nil || out.String() != "kind: Pod # a\n# b\nname: 'c\nd' # e\n" {
		t.Errorf("got %q and %v, want line breaks that hide nothing", &out, err)
	}
	again, err := Read("again", out.Bytes())
	if err != nil || !bytes.Equal(again[0].json, documents[0].json) {
		t.Errorf("got %v and %v, want the same object", again, err)
	}
}
