// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package rounds

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestRun(t *testing.T) {
	granted := Source{Cloud: "aws", Get: func(context.Context) (Credential, error) {
		return Credential{
			Secret:  "abc",
			Expires: time.Date(2026, 11, 21, 15, 4, 5, 600, time.FixedZone("", 3600)),
		}, nil
	}}
	const grantedLine = `{"cloud":"aws","credential":"ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad","expires":"2026-11-21T14:04:05Z"}` + "\n"
	fallback := Source{Cloud: "azure", Target: "audit", Get: func(context.Context) (Credential, error) {
		return Credential{Secret: "abc", Method: "client-secret"}, nil
	}}
	const fallbackLine = `{"cloud":"azure","target":"audit","method":"client-secret","credential":"ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"}` + "\n"
	refused := Source{Cloud: "gcp", Get: func(context.Context) (Credential, error) {
		return Credential{Secret: "abc"}, errors.New("refused:\n\t\"no\"")
	}}
	const refusedLine = `{"cloud":"gcp","error":"refused:\n\t\"no\""}` + "\n"
	empty := Source{Cloud: "gcp", Get: func(context.Context) (Credential, error) {
		return Credential{}, nil
	}}
	const emptyLine = `{"cloud":"gcp","error":"got a credential without a token"}` + "\n"

	cases := map[string]struct {
		options Options
		sources []Source
		want    string
		code    int
	}{
		"each credential is a line, in the given order": {Options{}, []Source{fallback, granted}, fallbackLine + grantedLine, OK},
		"the other sources are tried after a failure":   {Options{}, []Source{refused, granted}, refusedLine + grantedLine, Failed},
		"a credential without a token is a failure":     {Options{}, []Source{empty}, emptyLine, Failed},
		"a failed round is not repeated":                {Options{Every: time.Hour}, []Source{refused, granted}, refusedLine + grantedLine, Failed},
		"a failed round ends at once with --forever":    {Options{Forever: true}, []Source{refused}, refusedLine, Failed},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			code := Run(t.Context(), &out, c.options, c.sources)
			if diff := cmp.Diff(c.want, out.String()); diff != "" {
				t.Errorf("lines (-want +got):\n%s", diff)
			}
			if code != c.code {
				t.Errorf("exit code: got %d, want %d", code, c.code)
			}
		})
	}
}

func TestRunUntilTheEnd(t *testing.T) {
	cases := map[string]struct {
		options Options
		// last is the attempt during which ctx ends.
		last int
		// cut makes that attempt fail.
		cut   bool
		lines int
		code  int
	}{
		"rounds are repeated":                                                 {Options{Every: time.Nanosecond}, 3, true, 2, OK},
		"the wait between rounds ends":                                        {Options{Every: time.Hour}, 1, true, 0, OK},
		"the wait after the only round ends":                                  {Options{Forever: true}, 1, true, 0, OK},
		"an interrupted single round is a failure":                            {Options{}, 1, true, 0, Failed},
		"an interrupted single round is a failure if the attempt ignores ctx": {Options{}, 1, false, 0, Failed},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			ctx, end := context.WithCancel(t.Context())
			attempts := 0
			source := Source{Cloud: "aws", Get: func(ctx context.Context) (Credential, error) {
				if attempts++; attempts == c.last {
					end()
					if c.cut {
						return Credential{}, ctx.Err()
					}
				}
				return Credential{Secret: "abc"}, nil
			}}
			var out bytes.Buffer
			code := Run(ctx, &out, c.options, []Source{source})
			if got := strings.Count(out.String(), "\n"); got != c.lines {
				t.Errorf("lines: got %d, want %d:\n%s", got, c.lines, &out)
			}
			if code != c.code {
				t.Errorf("exit code: got %d, want %d", code, c.code)
			}
		})
	}
}

func TestTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := Source{Get: func(ctx context.Context) (Credential, error) {
			time.Sleep(time.Second)
			deadline, ok := ctx.Deadline()
			if left := time.Until(deadline); !ok || left != Timeout-time.Second {
				t.Errorf("time left: got %s (deadline: %t), want %s", left, ok, Timeout-time.Second)
			}
			return Credential{Secret: "abc"}, nil
		}}
		if code := Run(t.Context(), &bytes.Buffer{}, Options{}, []Source{source, source}); code != OK {
			t.Errorf("exit code: got %d, want %d", code, OK)
		}
	})
}

func TestANameThatIsNotFoundIsLookedUpAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		missing := &net.DNSError{Err: noSuchHost, Name: "sts.amazonaws.com", IsNotFound: true}
		attempts := 0
		source := Source{Cloud: "aws", Get: func(context.Context) (Credential, error) {
			if attempts++; attempts < 3 {
				return Credential{}, missing
			}
			return Credential{Secret: "abc"}, nil
		}}
		if code := Run(t.Context(), &bytes.Buffer{}, Options{}, []Source{source}); code != OK || attempts != 3 {
			t.Errorf("got exit code %d after %d attempts, want %d after 3", code, attempts, OK)
		}
		var out bytes.Buffer
		begun := time.Now()
		never := Source{Cloud: "aws", Get: func(context.Context) (Credential, error) { return Credential{}, missing }}
		if code := Run(t.Context(), &out, Options{}, []Source{never}); code != Failed || !strings.Contains(out.String(), noSuchHost) {
			t.Errorf("got exit code %d and %s, want %d and the error", code, &out, Failed)
		}
		if took := time.Since(begun); took != Timeout {
			t.Errorf("got the error after %s, want %s", took, Timeout)
		}
	})
}

func TestOptions(t *testing.T) {
	cases := map[string]struct {
		args []string
		want string
	}{
		"none":             {nil, ""},
		"a pause":          {[]string{"--every", "5s"}, ""},
		"forever":          {[]string{"--forever"}, ""},
		"a pause of zero":  {[]string{"--every", "0s"}, "--every: got 0s, want more than 0s"},
		"a negative pause": {[]string{"--every=-1s"}, "--every: got -1s, want more than 0s"},
		"both":             {[]string{"--every", "5s", "--forever"}, "--every and --forever are mutually exclusive"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var options Options
			flags := flag.NewFlagSet("", flag.ContinueOnError)
			options.Bind(flags)
			if err := flags.Parse(c.args); err != nil {
				t.Fatal(err)
			}
			got := ""
			if err := options.Validate(flags); err != nil {
				got = err.Error()
			}
			if got != c.want {
				t.Errorf("got error %q, want %q", got, c.want)
			}
		})
	}
}
