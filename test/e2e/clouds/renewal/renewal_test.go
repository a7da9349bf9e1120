// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package renewal_test replaces the token of a running program, as the kubelet does. The
// suite rotation does the same with a kubelet, which takes ten minutes.
package renewal_test

import (
	"bufio"
	"cmp"
	_ "embed"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/lanyard-dev/lanyard/test/e2e/clouds/emulator/emulatortest"
	"github.com/lanyard-dev/lanyard/test/e2e/clouds/issuer/issuertest"
	"github.com/lanyard-dev/lanyard/test/e2e/clouds/journal"
	"github.com/lanyard-dev/lanyard/test/e2e/clouds/journal/journaltest"
	"github.com/lanyard-dev/lanyard/test/e2e/clouds/trust"
)

const (
	repository = "../../../.."
	// rounds is how often the program may use the token that was replaced.
	rounds   = 20
	provider = "projects/123456789/locations/global/workloadIdentityPools/example-pool/providers/example-cluster"
)

//go:embed testdata/trust.yaml
var trusted []byte

// languagesVariable names the SDK programs. Those for Node.js and Python are in images that
// hack/images.sh builds.
const languagesVariable = "SDK_LANGUAGES"

var languages = map[string]func(t *testing.T, directory string) *exec.Cmd{
	"go": func(t *testing.T, directory string) *exec.Cmd {
		t.Helper()
		program := filepath.Join(directory, "credentials")
		build := exec.CommandContext(t.Context(), "go", "build", "-o", program, "./credentials")
		build.Dir = "../../sdk/go"
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return exec.CommandContext(t.Context(), program)
	},
	"node": func(t *testing.T, directory string) *exec.Cmd {
		t.Helper()
		image := filepath.Join(root(t), "bin/images/work/sdk-node")
		// Modules are next to the program.
		program := filepath.Join(directory, "credentials.mjs")
		text, err := os.ReadFile("../../sdk/node/credentials.mjs")
		if err == nil {
			err = os.WriteFile(program, text, 0o600)
		}
		if err == nil {
			err = os.Symlink(filepath.Join(image, "app/node_modules"), filepath.Join(directory, "node_modules"))
		}
		if err != nil {
			t.Fatal(err)
		}
		return interpreter(t, image, "usr/bin/node", program)
	},
	"python": func(t *testing.T, _ string) *exec.Cmd {
		t.Helper()
		image := filepath.Join(root(t), "bin/images/work/sdk-python")
		command := interpreter(t, image, "usr/bin/python3", "../../sdk/python/credentials.py")
		command.Env = []string{"PYTHONHOME=" + filepath.Join(image, "usr"), "PYTHONDONTWRITEBYTECODE=1"}
		return command
	},
}

func root(t *testing.T) string {
	t.Helper()
	directory, err := filepath.Abs(repository)
	if err != nil {
		t.Fatal(err)
	}
	return directory
}

// interpreter returns the command that runs a program with the interpreter of an image, and
// with the libraries of the image.
func interpreter(t *testing.T, image, path, program string) *exec.Cmd {
	t.Helper()
	one := func(pattern string) string {
		found, err := filepath.Glob(filepath.Join(image, pattern))
		if err != nil || len(found) == 0 {
			t.Fatalf("got no %s in %s and error %v; hack/images.sh makes it", pattern, image, err)
		}
		return found[0]
	}
	return exec.CommandContext(t.Context(), one("usr/lib*/ld-linux*.so.*"), "--library-path", one("usr/lib/*-linux-gnu"), filepath.Join(image, path), program)
}

func TestARunningProgramUsesTheTokenThatReplacesItsFirst(t *testing.T) {
	t.Parallel()
	for language := range strings.FieldsSeq(cmp.Or(os.Getenv(languagesVariable), "go")) {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			directory := t.TempDir()
			pod := newPod(t, directory)
			pod.replaceTokens(t, "first")
			command := languages[language](t, directory)
			command.Args = append(command.Args, "--every", "10ms", journal.AWS, journal.Azure, journal.GCP)
			command.Env = append(command.Env, pod.environment...)
			var warnings strings.Builder
			command.Stderr = &warnings
			stdout, err := command.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := command.Start(); err != nil {
				t.Fatal(err)
			}
			lines := bufio.NewScanner(stdout)
			for _, token := range []string{"first", "second"} {
				pod.replaceTokens(t, token)
				for read := 0; !pod.hasUsed(t, token); read++ {
					if read == rounds*len(audiences) || !lines.Scan() {
						t.Fatalf("got no credential for each token %s after %d lines of the program, the last one %s", token, read, lines.Text())
					}
				}
			}
			if err := command.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			for lines.Scan() {
				continue // the rest of the round
			}
			if err := command.Wait(); err != nil {
				t.Errorf("got error %v, want none after SIGTERM:\n%s", err, warnings.String())
			}
		})
	}
}

// pod contains the token files and variables of a container.
type pod struct {
	directory   string
	environment []string
	key         issuertest.Key
	recorder    *journaltest.Recorder
}

// audiences are those of the tokens.
var audiences = map[string]string{
	journal.AWS: "sts.amazonaws.com", journal.Azure: "api://AzureADTokenExchange", journal.GCP: "https://iam.googleapis.com/" + provider,
}

func newPod(t *testing.T, directory string) *pod {
	t.Helper()
	config, err := trust.Parse(trusted)
	if err != nil {
		t.Fatal(err)
	}
	p := &pod{directory: directory, key: issuertest.RSA(t, "key-1"), recorder: journaltest.New()}
	cluster := issuertest.Start(t, p.key)
	credentials := filepath.Join(directory, "credentials.json")
	p.write(t, credentials, `{"type": "external_account", "audience": "//iam.googleapis.com/`+provider+`",
		"subject_token_type": "urn:ietf:params:oauth:token-type:jwt", "token_url": "https://sts.googleapis.com/v1/token",
		"service_account_impersonation_url": "https://iamcredentials.googleapis.com/v1/projects/-/serviceAccounts/reporter@example-project.iam.gserviceaccount.com:generateAccessToken",
		"credential_source": {"file": "`+p.token(journal.GCP)+`"}}`)
	p.environment = append(emulatortest.Start(t, config, cluster.Issuer, p.recorder.Journal),
		"AWS_ROLE_ARN=arn:aws:iam::123456789012:role/reader", "AWS_REGION=eu-central-1", "AWS_DEFAULT_REGION=eu-central-1",
		"AWS_WEB_IDENTITY_TOKEN_FILE="+p.token(journal.AWS),
		"AZURE_CLIENT_ID=55556666-cccc-7777-dddd-8888eeee9999", "AZURE_TENANT_ID=aaaabbbb-0000-cccc-1111-dddd2222eeee",
		"AZURE_AUTHORITY_HOST=https://login.microsoftonline.com/", "AZURE_FEDERATED_TOKEN_FILE="+p.token(journal.Azure),
		"GOOGLE_APPLICATION_CREDENTIALS="+credentials, "GOOGLE_CLOUD_PROJECT=example-project")
	return p
}

// token returns the file of a cloud's token.
func (p *pod) token(cloud string) string { return filepath.Join(p.directory, cloud) }

// replaceTokens replaces all tokens, each atomically.
func (p *pod) replaceTokens(t *testing.T, id string) {
	t.Helper()
	for cloud, audience := range audiences {
		p.write(t, p.token(cloud)+".new", p.key.Sign(t, issuertest.Claims(audience, map[string]any{"jti": id})))
		if err := os.Rename(p.token(cloud)+".new", p.token(cloud)); err != nil {
			t.Fatal(err)
		}
	}
}

func (p *pod) write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// hasUsed reports whether each cloud has granted a credential for the token.
func (p *pod) hasUsed(t *testing.T, token string) bool {
	t.Helper()
	used := map[string]bool{}
	for _, entry := range p.recorder.Entries(t) {
		if entry.Status != http.StatusOK {
			t.Fatalf("got %+v, want a credential", entry)
		}
		if entry.TokenID == token {
			used[entry.Cloud] = true
		}
	}
	return len(used) == len(audiences)
}
