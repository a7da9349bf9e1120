// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package journal_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lanyard-dev/lanyard/test/e2e/clouds/issuer"
	"github.com/lanyard-dev/lanyard/test/e2e/clouds/journal"
	"github.com/lanyard-dev/lanyard/test/e2e/clouds/journal/journaltest"
)

func request() *http.Request {
	r := httptest.NewRequest(http.MethodPost, "https://sts.amazonaws.com/", nil)
	r.Header.Set("User-Agent", "an-sdk/1")
	return r
}

func TestFieldNames(t *testing.T) {
	t.Parallel()
	recorder := journaltest.New()
	entry := journal.Entry{
		Cloud: journal.AWS, Operation: "AssumeRoleWithWebIdentity", Status: 403, Code: "AccessDenied", Message: "no",
		Identity: "arn:aws:iam::123456789012:role/reader", Credential: journal.Digest("abc"),
	}
	entry.Describe(issuer.Token{
		Subject: "system:serviceaccount:ns:sa", Audience: []string{"a"}, ID: "jti",
		IssuedAt: time.Unix(100, 0), Expires: time.Unix(200, 0), Pod: issuer.Object{Name: "p", UID: "u"},
	})
	w := httptest.NewRecorder()
	before := time.Now()
	recorder.Send(w, request(), journal.Response{Entry: entry, Header: http.Header{"Content-Type": {"text/xml"}}, Body: []byte("body")})
	if w.Code != 403 || w.Body.String() != "body" || w.Header().Get("Content-Type") != "text/xml" {
		t.Errorf("got response %d %v %q", w.Code, w.Header(), w.Body)
	}
	var got map[string]any
	if err := json.Unmarshal([]byte(recorder.Text()), &got); err != nil {
		t.Fatal(err)
	}
	when, err := time.Parse(time.RFC3339Nano, got["time"].(string))
	if err != nil || when.Before(before) || when.After(time.Now()) {
		t.Errorf("got time %v and error %v, want now", when, err)
	}
	delete(got, "time")
	want := map[string]any{
		"cloud": "aws", "operation": "AssumeRoleWithWebIdentity", "status": 403.0, "code": "AccessDenied", "message": "no",
		"identity": "arn:aws:iam::123456789012:role/reader", "subject": "system:serviceaccount:ns:sa", "audience": []any{"a"},
		"pod": "p", "podUID": "u", "tokenID": "jti", "issuedAt": 100.0, "expires": 200.0, "userAgent": "an-sdk/1",
		"credential": "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("line (-want +got):\n%s", diff)
	}
}

func TestEntryIsOneWrite(t *testing.T) {
	t.Parallel()
	out := &writes{}
	log := journal.New(out, slog.New(slog.DiscardHandler))
	var group sync.WaitGroup
	for range 50 {
		group.Go(func() {
			log.Send(httptest.NewRecorder(), request(), journal.Response{Entry: journal.Entry{Message: "with\na line", Status: 200}})
		})
	}
	group.Wait()
	if len(out.all) != 50 {
		t.Errorf("got %d writes, want 50", len(out.all))
	}
	for _, line := range out.all {
		if strings.Count(line, "\n") != 1 || !strings.HasSuffix(line, "}\n") || !json.Valid([]byte(line)) {
			t.Errorf("got %q, want one line of JSON", line)
		}
	}
}

// writes keeps each write and returns an error for concurrent calls. It yields
// to other goroutines to make these likely.
type writes struct {
	busy sync.Mutex
	all  []string
}

func (w *writes) Write(p []byte) (int, error) {
	if !w.busy.TryLock() {
		return 0, errors.New("two writes at once")
	}
	defer w.busy.Unlock()
	for range 100 {
		runtime.Gosched()
	}
	w.all = append(w.all, string(p))
	return len(p), nil
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("disk full") }

func TestNoResponseWithoutEntry(t *testing.T) {
	t.Parallel()
	var errorLog bytes.Buffer
	log := journal.New(broken{}, slog.New(slog.NewTextHandler(&errorLog, nil)))
	w := httptest.NewRecorder()
	log.Send(w, request(), journal.Response{Entry: journal.Entry{Status: 200}, Body: []byte("credential")})
	if w.Code != http.StatusInternalServerError || strings.Contains(w.Body.String(), "credential") {
		t.Errorf("got %d %q, want no credential", w.Code, w.Body)
	}
	if got := strings.Count(errorLog.String(), "disk full"); got != 1 {
		t.Errorf("got %d lines about the error, want 1: %s", got, &errorLog)
	}
}

func TestEmulatorErrorIsLogged(t *testing.T) {
	t.Parallel()
	recorder := journaltest.New()
	recorder.Send(httptest.NewRecorder(), request(), journal.Response{Entry: journal.Entry{Status: 400}, Err: errors.New("no keys")})
	if !strings.Contains(recorder.Errors(), "no keys") || strings.Contains(recorder.Text(), "no keys") {
		t.Errorf("got log %q and journal %q, want the error only in the log", recorder.Errors(), recorder.Text())
	}
}

func TestTheJournalHasTheEntryWhenTheClientHasTheResponse(t *testing.T) {
	t.Parallel()
	recorder := journaltest.New()
	for _, identity := range []string{"first", "second"} {
		recorder.Send(httptest.NewRecorder(), request(), journal.Response{Entry: journal.Entry{Status: 200, Identity: identity}})
		w := httptest.NewRecorder()
		recorder.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/journal", nil))
		if got, want := w.Body.String(), recorder.Text(); got != want || !strings.Contains(got, identity) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
