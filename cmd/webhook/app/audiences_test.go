// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"
)

// token writes a JSON Web Token with the claims to a file.
func tokenOf(t *testing.T, claims string) string {
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
		"of a bound token":              {tokenOf(t, `{"aud":["https://issuer","k3s"],"sub":"x"}`), []string{"https://issuer", "k3s"}, ""},
		"of a token without any":        {tokenOf(t, `{"sub":"x"}`), nil, ""},
		"of an opaque token":            {tokenFile(t, "opaque"), nil, ""},
		"of an empty file":              {tokenFile(t, ""), nil, ""},
		"of a missing file":             {filepath.Join(t.TempDir(), "none"), nil, "no such file"},
		"of claims that are not JSON":   {tokenOf(t, `{`), nil, "the claims are malformed"},
		"of claims that are not base64": {tokenFile(t, "e30.!s3cr3t!.c2ln"), nil, "the claims are malformed"},
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
				t.Errorf("got error %q, want %q in it, and no part of the token", err, test.error)
			}
		})
	}
}

// transport is an http.RoundTripper.
type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// answers returns the configuration of a client that gets the answers in turn, and the last one
// for all further requests. asked is the number of requests so far.
func answers(t *testing.T, answers ...http.HandlerFunc) (config *rest.Config, asked *int) {
	t.Helper()
	asked = new(int)
	return &rest.Config{Host: "https://apiserver", Transport: transport(func(r *http.Request) (*http.Response, error) {
		if r.URL.Path != "/.well-known/openid-configuration" {
			t.Errorf("got a request for %s", r.URL.Path)
		}
		recorder := httptest.NewRecorder()
		answers[min(*asked, len(answers)-1)](recorder, r)
		*asked++
		return recorder.Result(), nil
	})}, asked
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

func TestTheIssuerComesFromTheAPIServer(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		answers []http.HandlerFunc
		want    string
		error   string
		asked   int
		logs    string
	}{
		"a document with an issuer":               {[]http.HandlerFunc{text(`{"issuer":"https://issuer","jwks_uri":"x"}`)}, "https://issuer", "", 1, ""},
		"a server that forbids it":                {[]http.HandlerFunc{status(403)}, "", "", 1, "Cannot read the issuer's discovery document"},
		"a server that does not know the program": {[]http.HandlerFunc{status(401)}, "", "", 1, "Cannot read the issuer's discovery document"},
		"a server without discovery":              {[]http.HandlerFunc{status(404)}, "", "", 1, "Cannot read the issuer's discovery document"},
		"a server that is not ready yet":          {[]http.HandlerFunc{status(503), text(`{"issuer":"https://issuer"}`)}, "https://issuer", "", 2, "Waiting for the API server"},
		"a document that is not JSON":             {[]http.HandlerFunc{text(`<html>`)}, "", "openid-configuration", 1, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				config, asked := answers(t, test.answers...)
				var log strings.Builder
				got, err := issuer(t.Context(), config, funcr.New(func(_, args string) { log.WriteString(args) }, funcr.Options{}))
				if got != test.want || (err != nil) != (test.error != "") || err != nil && !strings.Contains(err.Error(), test.error) {
					t.Errorf("got %q and error %v, want %q and error %q", got, err, test.want, test.error)
				}
				if *asked != test.asked {
					t.Errorf("got %d requests, want %d", *asked, test.asked)
				}
				if !strings.Contains(log.String(), test.logs) || (test.logs == "") != (log.Len() == 0) {
					t.Errorf("got log %q, want %q in it", log.String(), test.logs)
				}
			})
		})
	}
}

func TestTheProgramWaitsForTheAPIServerUntilItStops(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		config := &rest.Config{Host: "https://apiserver", Transport: transport(func(*http.Request) (*http.Response, error) {
			return nil, errors.New("connection refused")
		})}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second+1)
		defer cancel()
		tries := 0
		log := funcr.New(func(_, args string) {
			if !strings.Contains(args, "Waiting for the API server") || !strings.Contains(args, config.Host) {
				t.Errorf("got log %q, want that the program waits", args)
			}
			tries++
		}, funcr.Options{})
		_, err := issuer(ctx, config, log)
		if err == nil || !strings.Contains(err.Error(), "connect to the API server at "+config.Host) {
			t.Errorf("got error %v, want that it could not connect", err)
		}
		if tries != 11 {
			t.Errorf("got %d attempts in 10 seconds, want 11", tries)
		}
	})
}

func TestTheAPIServersAudiences(t *testing.T) {
	t.Parallel()
	config, _ := answers(t, text(`{"issuer":"https://issuer"}`))
	config.BearerTokenFile = tokenOf(t, `{"aud":["https://issuer","own","https://kubernetes.default.svc"]}`)
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
		t.Errorf("got %q, want them distinct, sorted and not empty", got)
	}
}

func TestWithoutAnIssuerOrATokenTheCommonAudiencesRemain(t *testing.T) {
	t.Parallel()
	config, _ := answers(t, status(403))
	got, err := apiserverAudiences(t.Context(), config, logr.Discard())
	if err != nil || !slices.Contains(got, "https://kubernetes.default.svc") || slices.Contains(got, "") {
		t.Errorf("got %q and error %v, want the common ones and none that is empty", got, err)
	}
	config.BearerTokenFile = filepath.Join(t.TempDir(), "none")
	if _, err := apiserverAudiences(t.Context(), config, logr.Discard()); err == nil {
		t.Error("got no error for a token that cannot be read")
	}
}
