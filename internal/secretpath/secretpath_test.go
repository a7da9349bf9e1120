// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package secretpath

import (
	"cmp"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

const (
	secret = "0123456789abcdef0123456789abcdef"
	other  = "fedcba9876543210fedcba9876543210"
)

func TestSegmentsAreRandomAndValid(t *testing.T) {
	t.Parallel()
	a, b := NewSegment(), NewSegment()
	if a == b || !Valid(a) || !Valid(b) {
		t.Errorf("got %q and %q, want two valid segments", a, b)
	}
	for _, text := range []string{"", secret[1:], secret + "0", "0123456789ABCDEF0123456789ABCDEF", secret + "\n", "../" + secret[3:]} {
		if Valid(text) {
			t.Errorf("%q is valid, want that it is not", text)
		}
	}
}

func TestWithReplacesOnlyASecretSegment(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]string{
		"/mutate":                  "/mutate/" + secret,
		"/mutate/" + other:         "/mutate/" + secret,
		"/mutate/" + secret:        "/mutate/" + secret,
		"/mutate/" + other + "/x":  "/mutate/" + other + "/x/" + secret,
		"https://h:1/p/" + other:   "https://h:1/p/" + secret,
		"/mutate/" + other[:31]:    "/mutate/" + other[:31] + "/" + secret,
		"/mutate" + other:          "/mutate" + other + "/" + secret,
		"/" + other:                "/" + secret,
		"/mutate/" + other + other: "/mutate/" + other + other + "/" + secret,
	} {
		if got := With(path, secret); got != want {
			t.Errorf("%s: got %s, want %s", path, got, want)
		}
	}
}

func TestRedactRemovesTheSegment(t *testing.T) {
	t.Parallel()
	text := `failed to call webhook: Post "https://s.ns.svc:443/mutate-v1-pod/` + secret + `?timeout=5s": EOF`
	if got := RedactError(errors.New(text)).Error(); strings.Contains(got, secret) || !strings.Contains(got, `/mutate-v1-pod/<secret>?timeout=5s": EOF`) {
		t.Errorf("got %s", got)
	}
	if got := RedactError(io.EOF); !errors.Is(got, io.EOF) {
		t.Errorf("an error without a secret: got %v, want it unchanged", got)
	}
}

// step is one observation.
type step struct {
	segment string
	paths   []string
	written time.Duration // ago
	ago     time.Duration // when it was observed
	version string        // "1" if empty
}

func (s step) registration(now time.Time) *Registration {
	return &Registration{Paths: s.paths, Version: cmp.Or(s.version, "1"), Written: now.Add(-s.written)}
}

func TestWhichPathsAreServed(t *testing.T) {
	t.Parallel()
	const long = time.Hour
	plain, mixed, settled := []string{"/a", "/b"}, []string{"/a/" + secret, "/b"}, []string{"/a/" + secret, "/b/" + secret}
	for name, test := range map[string]struct {
		steps []step
		only  bool // whether only the secret path is served
	}{
		"before anything is known":                            {nil, false},
		"no segment yet":                                      {[]step{{"", plain, long, long, ""}}, false},
		"the plain paths are registered":                      {[]step{{secret, plain, long, long, ""}}, false},
		"one webhook has the plain path":                      {[]step{{secret, mixed, long, long, ""}}, false},
		"all webhooks have had the secret path for long":      {[]step{{secret, plain, long, long, ""}, {secret, settled, long, long, ""}}, true},
		"all webhooks have the secret path since just now":    {[]step{{secret, plain, long, long, ""}, {secret, settled, 0, time.Second, ""}}, false},
		"the same, although the last write was long ago":      {[]step{{secret, plain, long, long, ""}, {secret, settled, long, time.Second, ""}}, false},
		"a restart, long after the last write":                {[]step{{secret, settled, long, time.Second, ""}}, true},
		"a restart, just after the last write":                {[]step{{secret, settled, time.Second, time.Second, ""}}, false},
		"a restart, with a writer whose clock is ahead":       {[]step{{secret, settled, -long, time.Second, ""}}, false},
		"the plain path was written back":                     {[]step{{secret, settled, long, long, ""}, {secret, mixed, 0, 0, ""}}, false},
		"the plain path was written back, and replaced again": {[]step{{secret, settled, long, long, ""}, {secret, mixed, 0, long, ""}, {secret, settled, 0, long, ""}}, true},
		"the same, just now":                                  {[]step{{secret, settled, long, long, ""}, {secret, mixed, 0, long, ""}, {secret, settled, 0, time.Second, ""}}, false},
		"nothing new is observed":                             {[]step{{secret, plain, long, long, ""}, {secret, settled, long, long, ""}, {secret, settled, 0, 0, ""}}, true},
		"a new segment that is not registered yet":            {[]step{{other, []string{"/a/" + other}, long, long, ""}, {secret, []string{"/a/" + other}, 0, long, ""}}, false},
		"a new segment that is registered since just now":     {[]step{{other, []string{"/a/" + other}, long, long, ""}, {secret, settled, 0, time.Second, ""}}, false},
		"a change that was not seen, long ago":                {[]step{{secret, settled, long, long, "1"}, {secret, settled, 0, long, "2"}}, true},
		"a change that was not seen, just now":                {[]step{{secret, settled, long, long, "1"}, {secret, settled, 0, time.Second, "2"}}, false},
		"neither a segment nor a configuration":               {[]step{{"", nil, long, long, ""}}, false},
		"no configuration":                                    {[]step{{secret, nil, long, long, ""}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var g Gate
			now := time.Now()
			for _, s := range test.steps {
				g.Observe(s.segment, s.registration(now), now.Add(-s.ago))
			}
			for segment, want := range map[string]bool{"": !test.only, other: !test.only, secret[:31]: !test.only, secret: true} {
				if got, _ := g.look(segment); got != want {
					t.Errorf("segment %q: got served %t, want %t", segment, got, want)
				}
			}
		})
	}
}

// An API server may learn that the plain path is back before this process does.
func TestARequestWaitsForAChangeOfTheRegistration(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(g *Gate, now time.Time){
		"the plain path is back": func(g *Gate, now time.Time) { g.Observe(secret, &Registration{[]string{"/a"}, "2", now}, now) },
		"a new secret path":      func(g *Gate, now time.Time) { g.Observe(other, &Registration{[]string{"/a/" + other}, "2", now}, now) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var g Gate
			past := time.Now().Add(-time.Hour)
			g.Observe(secret, &Registration{[]string{"/a/" + secret}, "1", past}, past)
			served := make(chan bool, 1)
			go func() { served <- g.serves("") }()
			select {
			case got := <-served:
				t.Fatalf("got served %t at once, want that it waits", got)
			case <-time.After(250 * time.Millisecond):
			}
			change(&g, time.Now())
			if !<-served {
				t.Error("the request was denied")
			}
		})
	}
}

// body fails the test if it is read.
type body struct{ t *testing.T }

func (b body) Read([]byte) (int, error) {
	b.t.Error("the body was read")
	return 0, io.EOF
}

func TestTheHandlerDeniesOtherPathsBeforeTheBody(t *testing.T) {
	t.Parallel()
	var g Gate
	past := time.Now().Add(-time.Hour)
	g.Observe(secret, &Registration{[]string{"/a/" + secret}, "1", past}, past)
	mux := http.NewServeMux()
	handler := g.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	mux.Handle("/a", handler)
	mux.Handle("/a/{"+Wildcard+"}", handler)
	for path, want := range map[string]int{"/a": 404, "/a/": 404, "/a/" + other: 404, "/a/" + secret + "/x": 404, "/a/" + secret: 200} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			recorder := httptest.NewRecorder()
			mux.ServeHTTP(recorder, httptest.NewRequest(http.MethodPost, path, body{t}))
			if recorder.Code != want {
				t.Errorf("got status %d, want %d", recorder.Code, want)
			}
			if strings.Contains(recorder.Body.String(), secret) {
				t.Errorf("the secret is in the response: %s", recorder.Body)
			}
		})
	}
}
