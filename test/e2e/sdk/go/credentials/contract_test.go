// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// programVariable names the program to test, with its first arguments, such as
// "python3 ../../python/credentials.py". The default is the program of this
// package.
const programVariable = "CREDENTIALS_PROGRAM"

// asProgramVariable makes the test binary run as the program.
const asProgramVariable = "TEST_AS_CREDENTIALS"

func TestMain(m *testing.M) {
	if os.Getenv(asProgramVariable) != "" {
		main()
	}
	os.Exit(m.Run())
}

// program returns the command, with only the given environment.
func program(t *testing.T, environment []string, args ...string) *exec.Cmd {
	t.Helper()
	words := strings.Fields(os.Getenv(programVariable))
	if len(words) == 0 {
		words = []string{os.Args[0]}
		environment = append(environment, asProgramVariable+"=1")
	}
	//nolint:gosec // G702: users who run the test choose what it tests
	command := exec.CommandContext(t.Context(), words[0], append(words[1:], args...)...)
	command.Env = append([]string{"HOME=/nonexistent", "PATH=" + os.Getenv("PATH")}, environment...)
	return command
}

// Keys that the AWS SDKs use without a request.
func keys() []string {
	return []string{"AWS_ACCESS_KEY_ID=id", "AWS_SECRET_ACCESS_KEY=key", "AWS_SESSION_TOKEN=abc"}
}

// Files that make the AWS and Google SDKs fail without a request.
func missingFiles() []string {
	return []string{
		"AWS_EC2_METADATA_DISABLED=true",
		"AWS_REGION=eu-central-1",
		"AWS_DEFAULT_REGION=eu-central-1",
		"AWS_ROLE_ARN=arn:aws:iam::123456789012:role/reader",
		"AWS_WEB_IDENTITY_TOKEN_FILE=/nonexistent/aws/token",
		"GOOGLE_APPLICATION_CREDENTIALS=/nonexistent/gcp/credentials.json",
		"GOOGLE_CLOUD_PROJECT=project",
	}
}

const keysLine = `{"cloud":"aws","credential":"ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"}`

func TestContract(t *testing.T) {
	cases := map[string]struct {
		environment []string
		args        []string
		code        int
		lines       []string // prefixes
	}{
		"no cloud is wrong usage":               {nil, nil, 2, nil},
		"an unknown cloud is wrong usage":       {keys(), []string{"aws", "oracle"}, 2, nil},
		"an unknown flag is wrong usage":        {keys(), []string{"--all", "aws"}, 2, nil},
		"a pause of zero is wrong usage":        {keys(), []string{"--every", "0s", "aws"}, 2, nil},
		"a pause without a unit is wrong usage": {keys(), []string{"--every", "5", "aws"}, 2, nil},
		"a malformed pause is wrong usage":      {keys(), []string{"--every", "1..5s", "aws"}, 2, nil},
		"--every with --forever is wrong usage": {keys(), []string{"--every", "5s", "--forever", "aws"}, 2, nil},
		"a credential is a line with its hash":  {keys(), []string{"aws"}, 0, []string{keysLine}},
		"each cloud has a line, in order":       {missingFiles(), []string{"gcp", "aws"}, 1, []string{`{"cloud":"gcp","error":"`, `{"cloud":"aws","error":"`}},
		"clouds after a failure are tried":      {append(missingFiles(), keys()...), []string{"gcp", "aws"}, 1, []string{`{"cloud":"gcp","error":"`, keysLine}},
		"a failure ends --every":                {missingFiles(), []string{"--every", "1h", "aws"}, 1, []string{`{"cloud":"aws","error":"`}},
		"a failure ends --forever":              {missingFiles(), []string{"--forever", "aws"}, 1, []string{`{"cloud":"aws","error":"`}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			command := program(t, c.environment, c.args...)
			command.Stdout, command.Stderr = &stdout, &stderr
			if code := exitCode(t, command.Run()); code != c.code {
				t.Errorf("exit code: got %d, want %d\n%s", code, c.code, &stderr)
			}
			if c.code == 2 && stderr.Len() == 0 {
				t.Error("got nothing on standard error, want an error")
			}
			got := strings.Fields(plain(stdout.String()))
			if len(got) != len(c.lines) {
				t.Fatalf("got %d lines, want %d:\n%s", len(got), len(c.lines), &stdout)
			}
			for i, want := range c.lines {
				if !strings.HasPrefix(got[i], want) {
					t.Errorf("got line %s, want one that begins with %s", got[i], want)
				}
			}
		})
	}
}

// plain removes the spaces from the lines, because they differ between the JSON
// encoders of the languages.
func plain(lines string) string {
	return strings.ReplaceAll(lines, " ", "")
}

func TestMissingFilesAreNamed(t *testing.T) {
	out, err := program(t, missingFiles(), "aws", "gcp").Output()
	if code := exitCode(t, err); code != 1 {
		t.Errorf("exit code: got %d, want 1", code)
	}
	for _, file := range []string{"/nonexistent/aws/token", "/nonexistent/gcp/credentials.json"} {
		if !bytes.Contains(out, []byte(file)) {
			t.Errorf("got %s, want it to contain %s", out, file)
		}
	}
}

func TestSIGTERM(t *testing.T) {
	cases := map[string]struct {
		args  []string
		lines int
	}{
		"repeating":            {[]string{"--every", "10ms", "aws"}, 3},
		"between two rounds":   {[]string{"--every", "1h", "aws"}, 1},
		"after the only round": {[]string{"--forever", "aws"}, 1},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			command := program(t, keys(), c.args...)
			stdout, err := command.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := command.Start(); err != nil {
				t.Fatal(err)
			}
			lines := bufio.NewScanner(stdout)
			for range c.lines {
				if !lines.Scan() {
					t.Fatalf("got the end of the output (%v), want a line", lines.Err())
				}
				if diff := cmp.Diff(keysLine, plain(lines.Text())); diff != "" {
					t.Errorf("line (-want +got):\n%s", diff)
				}
			}
			if err := command.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			for lines.Scan() {
				if c.lines == 1 {
					t.Errorf("got another line %q, want the end of the output", lines.Text())
				}
			}
			if code := exitCode(t, command.Wait()); code != 0 {
				t.Errorf("exit code: got %d, want 0", code)
			}
		})
	}
}

// exitCode returns the exit code of a program that ended by itself.
func exitCode(t *testing.T, err error) int {
	t.Helper()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit) && exit.Exited():
		return exit.ExitCode()
	}
	t.Fatalf("got error %v, want a program that ends by itself", err)
	return -1
}
