// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/cli-runtime/pkg/genericiooptions"
)

// slow is a transport that takes a while.
type slow time.Duration

func (s slow) RoundTrip(*http.Request) (*http.Response, error) {
	time.Sleep(time.Duration(s))
	return new(http.Response), nil
}

func TestACommandThatPrintsNothingSaysWhatItWaitsFor(t *testing.T) {
	t.Parallel()
	const line = "waiting for cloud.example.com: GET /a ...\n"
	output := func(c *CLI) { _, _ = c.Out.Write([]byte("a row\n")) }
	for sentence, test := range map[string]struct {
		// requests are how long they take, and between them is what the command does.
		requests []time.Duration
		between  func(c *CLI)
		want     string
	}{
		"not within two seconds":                      {[]time.Duration{patience - 1}, nil, ""},
		"after two seconds":                           {[]time.Duration{patience}, nil, line},
		"once, however long it takes":                 {[]time.Duration{time.Minute}, nil, line},
		"once, also if it waits for the same again":   {[]time.Duration{time.Minute, time.Minute}, nil, line},
		"also if no request takes that long":          {[]time.Duration{time.Second, time.Second}, nil, line},
		"not if it prints something":                  {[]time.Duration{time.Second, time.Second}, output, ""},
		"not because of a pause between its requests": {[]time.Duration{time.Second, time.Second}, func(c *CLI) { time.Sleep(time.Minute); c.SurveyAgain() }, ""},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				streams, _, _, errOut := genericiooptions.NewTestIOStreams()
				c := NewCLI("lanyard", streams)
				for i, takes := range test.requests {
					if i > 0 && test.between != nil {
						test.between(c)
					}
					request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://cloud.example.com/a", http.NoBody)
					if err != nil {
						t.Fatal(err)
					}
					response, err := c.Progress(&http.Client{Transport: slow(takes)}).Transport.RoundTrip(request)
					if err != nil || response == nil {
						t.Fatal(err)
					}
				}
				if errOut.String() != test.want {
					t.Errorf("got %q, want %q", errOut, test.want)
				}
			})
		})
	}
}

// The names of namespaces and hosts are in the paths of requests.
func TestAPrivateCommandDoesNotNameItsRequests(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		streams, _, _, errOut := genericiooptions.NewTestIOStreams()
		c := NewCLI("lanyard", streams)
		c.Private = true
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://cloud.example.com/shop", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		response, err := patient{slow(time.Minute), c, "the API server"}.RoundTrip(request)
		if err != nil || response == nil || errOut.String() != "waiting for a response ...\n" {
			t.Errorf("got %q and error %v, want no names", errOut, err)
		}
	})
}

// The time that a command computes is not that of its next request.
func TestABriefRequestAfterALongTimeIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		streams, _, _, errOut := genericiooptions.NewTestIOStreams()
		c := NewCLI("lanyard", streams)
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://cloud.example.com/a", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if response, err := (patient{slow(briefly - 1), c, ""}).RoundTrip(request); err != nil || response == nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
		}
		if errOut.Len() > 0 {
			t.Errorf("got %q, want nothing", errOut)
		}
	})
}
