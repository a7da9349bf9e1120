// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package apis_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/lanyard-dev/lanyard/test/e2e/clouds/emulator/emulatortest"
	"github.com/lanyard-dev/lanyard/test/e2e/clouds/issuer/issuertest"
	"github.com/lanyard-dev/lanyard/test/e2e/clouds/journal/journaltest"
	"github.com/lanyard-dev/lanyard/test/support/decisions"
)

const (
	module = "../../sdk/go" // of the program with the SDKs
	// mountPath is where a container of the golden cases has its tokens.
	mountPath = "/var/run/secrets/lanyard.dev/serviceaccount"
)

// The vendors' SDKs get a credential with the injected variables, a token with the injected
// audience, and the trust that the command line prints, but not if one of the three is wrong.
func TestTheSDKs(t *testing.T) {
	t.Parallel()
	program := filepath.Join(t.TempDir(), "credentials")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, "./credentials")
	build.Dir = module
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for name, a := range apis() {
		t.Run(name+" without variables", func(t *testing.T) {
			t.Parallel()
			checkNothingIsSent(t, program, name)
		})
		for sentence, test := range map[string]struct {
			audience string // instead of the injected one
			claims   map[string]any
			otherKey bool
			want     string // the error, "" for a credential
		}{
			"a token that is trusted": {},
			"another audience":        {audience: "somebody-else", want: a.forAudience},
			"another subject":         {claims: map[string]any{"sub": "system:serviceaccount:shop:other"}, want: a.ofSubject},
			"a key of somebody else":  {otherKey: true, want: a.signature},
			"an expired token":        {claims: map[string]any{"exp": time.Now().Add(-time.Second).Unix()}, want: a.signature},
		} {
			t.Run(name+" with "+sentence, func(t *testing.T) {
				t.Parallel()
				p := injected(t, name)
				if test.audience != "" {
					p.audience = test.audience
				}
				cluster, token := issuertest.Case{Audience: p.audience, Claims: test.claims, OtherKey: test.otherKey}.Issue(t)
				recorder := journaltest.New()
				line := p.run(t, program, name, token, cluster, recorder)
				entry := recorder.Last(t)
				if granted := test.want == ""; granted != (line.Credential != "") || line.Credential != entry.Credential || !strings.Contains(line.Error, test.want) {
					t.Errorf("got %+v and the journal entry %+v, want %q", line, entry, test.want)
				}
			})
		}
	}
}

// Without the variables, the SDKs call no API: they must not send the token that every
// pod has for the API server of the cluster.
func checkNothingIsSent(t *testing.T, program, name string) {
	t.Helper()
	recorder := journaltest.New()
	cluster, token := issuertest.Case{Audience: "https://kubernetes.default.svc"}.Issue(t)
	line := (&pod{file: "token"}).run(t, program, name, token, cluster, recorder)
	if line.Error == "" || line.Credential != "" || len(recorder.Entries(t)) > 0 {
		t.Errorf("got %+v and the journal entries %+v, want an error and none", line, recorder.Entries(t))
	}
}

// pod is the environment of an injected container, and the audience of its token.
type pod struct {
	environment []string
	audience    string
	file        string // of the token, below mountPath
}

// injected returns the pod of the golden case of a provider.
func injected(t *testing.T, name string) *pod {
	t.Helper()
	c, err := decisions.ReadCase("../../../decisions", decisions.Providers+"/"+name)
	if err != nil {
		t.Fatal(err)
	}
	result, err := c.Result()
	if err != nil {
		t.Fatal(err)
	}
	var want corev1.Pod
	if err := json.Unmarshal(result, &want); err != nil {
		t.Fatal(err)
	}
	token := want.Spec.Volumes[0].Projected.Sources[0].ServiceAccountToken
	p := &pod{audience: token.Audience, file: token.Path}
	for _, v := range want.Spec.Containers[0].Env {
		p.environment = append(p.environment, v.Name+"="+v.Value)
	}
	return p
}

// report is a line of the program.
type report struct{ Cloud, Credential, Error string }

// run runs the program with a token, and returns its line. All hosts are the emulator.
func (p *pod) run(t *testing.T, program, name, token string, cluster *issuertest.Cluster, recorder *journaltest.Recorder) report {
	t.Helper()
	directory := t.TempDir()
	write := func(name, content string) string {
		file := filepath.Join(directory, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	write(p.file, token)
	command := exec.CommandContext(t.Context(), program, name)
	command.Env = emulatortest.Start(t, config(t), cluster.Issuer, recorder.Journal)
	for _, v := range p.environment {
		command.Env = append(command.Env, strings.Replace(v, mountPath, directory, 1))
	}
	var line report
	out, _ := command.Output() // the exit code is 1 for an error in the line
	if err := json.Unmarshal(out, &line); err != nil || line.Cloud != name {
		t.Fatalf("got %s and error %v, want a line about %s", out, err, name)
	}
	return line
}
