// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"
)

// token writes a file with a JSON Web Token that has these claims.
func token(t *testing.T, claims string) string {
	t.Helper()
	return tokenFile(t, "e30."+base64.RawURLEncoding.EncodeToString([]byte(claims))+".c2lnbmF0dXJl\n")
}

func tokenFile(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestAudiencesOfTheProgramsOwnToken(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		file  string
		want  []string
		error string
	}{
		"of a bound token":            {token(t, `{"aud":["https://issuer","k3s"],"sub":"x"}`), []string{"https://issuer", "k3s"}, ""},
		"of a token without any":      {token(t, `{"sub":"x"}`), nil, ""},
		"of an opaque token":          {tokenFile(t, "opaque"), nil, ""},
		"of an empty file":            {tokenFile(t, ""), nil, ""},
		"of a file that is not there": {filepath.Join(t.TempDir(), "none"), nil, "no such file"},
		"of claims that are no JSON":  {token(t, `{`), nil, "claims of the program's own token"},
		"of claims in another coding": {tokenFile(t, "e30.!s3cr3t!.c2ln"), nil, "claims of the program's own token"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := tokenAudiences(test.file)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("audiences (-want +got):\n%s", diff)
			}
			switch {
			case (err != nil) != (test.error != ""):
				t.Errorf("got error %v, want %q", err, test.error)
			case err != nil && (!strings.Contains(err.Error(), test.error) || strings.Contains(err.Error(), "s3cr3t")):
				t.Errorf("got error %q, want %q in it, and nothing of the token", err, test.error)
			}
		})
	}
}

// answers serves one answer after the other, the last one for ever.
func answers(t *testing.T, answers ...http.HandlerFunc) (*rest.Config, *atomic.Int32) {
	t.Helper()
	var asked atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		i := int(asked.Add(1)) - 1
		if r.URL.Path != "/.well-known/openid-configuration" {
			t.Errorf("asked for %s", r.URL.Path)
		}
		answers[min(i, len(answers)-1)](w, r)
	}))
	t.Cleanup(server.Close)
	return &rest.Config{Host: server.URL}, &asked
}

func text(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(text))
	}
}

func status(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
}

func TestTheIssuerIsAskedOfTheAPIServer(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		answers []http.HandlerFunc
		want    string
		error   string
		asked   int32
		logs    string
	}{
		"one that tells":              {[]http.HandlerFunc{text(`{"issuer":"https://issuer","jwks_uri":"x"}`)}, "https://issuer", "", 1, ""},
		"one that forbids it":         {[]http.HandlerFunc{status(403)}, "", "", 1, "cannot be read"},
		"one that does not know us":   {[]http.HandlerFunc{status(401)}, "", "", 1, "cannot be read"},
		"one without discovery":       {[]http.HandlerFunc{status(404)}, "", "", 1, "cannot be read"},
		"one that is not up yet":      {[]http.HandlerFunc{status(503), text(`{"issuer":"https://issuer"}`)}, "https://issuer", "", 2, "Waiting for the API server"},
		"one that answers in riddles": {[]http.HandlerFunc{text(`<html>`)}, "", "openid-configuration", 1, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config, asked := answers(t, test.answers...)
			var log strings.Builder
			got, err := issuer(t.Context(), config, funcr.New(func(_, args string) { log.WriteString(args) }, funcr.Options{}))
			if got != test.want || (err != nil) != (test.error != "") || err != nil && !strings.Contains(err.Error(), test.error) {
				t.Errorf("got %q and error %v, want %q and error %q", got, err, test.want, test.error)
			}
			if asked.Load() != test.asked {
				t.Errorf("asked %d times, want %d", asked.Load(), test.asked)
			}
			if !strings.Contains(log.String(), test.logs) || (test.logs == "") != (log.Len() == 0) {
				t.Errorf("got log %q, want %q in it", log.String(), test.logs)
			}
		})
	}
}

func TestAnAPIServerThatIsAwayIsAskedAgainUntilTheProgramStops(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.NotFoundHandler())
	server.Close()
	ctx, cancel := context.WithCancel(t.Context())
	tries := 0
	log := funcr.New(func(_, args string) {
		if !strings.Contains(args, "Waiting for the API server") || !strings.Contains(args, server.URL) {
			t.Errorf("got log %q, want what is waited for", args)
		}
		if tries++; tries == 2 {
			cancel()
		}
	}, funcr.Options{})
	_, err := issuer(ctx, &rest.Config{Host: server.URL}, log)
	if err == nil || !strings.Contains(err.Error(), "reach the API server at "+server.URL) {
		t.Errorf("got error %v, want that the API server was not reached", err)
	}
	if tries != 2 {
		t.Errorf("tried %d times, want 2", tries)
	}
}

func TestTheAPIServersAudiencesAreAllThatCanBeTold(t *testing.T) {
	t.Parallel()
	config, _ := answers(t, text(`{"issuer":"https://issuer"}`))
	config.BearerTokenFile = token(t, `{"aud":["https://issuer","own","https://kubernetes.default.svc"]}`)
	got, err := apiserverAudiences(t.Context(), config, logr.Discard())
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"https://issuer", "own", "api", "kubernetes", "kubernetes.default.svc",
		"https://kubernetes.default", "https://kubernetes.default.svc", "https://kubernetes.default.svc.cluster.local",
	} {
		if !slices.Contains(got, want) {
			t.Errorf("got %q, want %q among them", got, want)
		}
	}
	if slices.Contains(got, "") || !slices.IsSorted(got) || len(slices.Compact(slices.Clone(got))) != len(got) {
		t.Errorf("got %q, want each once, sorted, and none empty", got)
	}
}

func TestWithoutAnIssuerOrATokenTheCommonAudiencesRemain(t *testing.T) {
	t.Parallel()
	config, _ := answers(t, status(403))
	got, err := apiserverAudiences(t.Context(), config, logr.Discard())
	if err != nil || !slices.Contains(got, "https://kubernetes.default.svc") || slices.Contains(got, "") {
		t.Errorf("got %q and error %v, want the common ones and no empty one", got, err)
	}
	config.BearerTokenFile = filepath.Join(t.TempDir(), "none")
	if _, err := apiserverAudiences(t.Context(), config, logr.Discard()); err == nil {
		t.Error("got no error for a token that cannot be read")
	}
}
