// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package engines tests how hack/kind/engine.sh and hack/image.sh select and call a
// container engine, and the images of hack/archive.sh. The engines are scripts that
// print their arguments.
package engines

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lanyard-dev/lanyard/test/support/process"
)

// Engines, as scripts.
const (
	running = `echo "${0##*/} $*"`
	stopped = `echo "Client: 28" >&2; echo "Cannot connect to the Docker daemon." >&2; exit 1`
	// docker23 is a client without the plugin buildx, docker20 an older one, which
	// has BuildKit built in.
	docker23 = `[ "$1" != buildx ] || exit 1; [ "$1" != version ] || { echo 23.0.1; exit; }; echo "docker $*, BuildKit: ${DOCKER_BUILDKIT-}"`
	docker20 = `[ "$1" != buildx ] || exit 1; [ "$1" != version ] || { echo 20.10.24; exit; }; echo "docker $*, BuildKit: ${DOCKER_BUILDKIT-}"`
)

// run runs a script with only these engines installed, and returns all its output.
func run(t *testing.T, engines map[string]string, environment []string, script string, arguments ...string) (string, error) {
	t.Helper()
	directory := t.TempDir()
	for _, program := range []string{"bash", "dirname", "tail"} {
		path, err := exec.LookPath(program)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(path, filepath.Join(directory, program)); err != nil {
			t.Fatal(err)
		}
	}
	for name, body := range engines {
		if err := process.WriteScript(filepath.Join(directory, name), "#!/usr/bin/env bash\n"+body+"\n"); err != nil {
			t.Fatal(err)
		}
	}
	command := exec.CommandContext(t.Context(), filepath.Join("../..", script), arguments...)
	command.Env = append([]string{"PATH=" + directory, "USER=me"}, environment...)
	output, err := command.CombinedOutput()
	return strings.ReplaceAll(string(output), directory+"/", ""), err
}

// test is one run of a script.
type test struct {
	engines     map[string]string
	environment []string
	push        bool
	fails       bool
	says        []string
	saysNot     string
}

func (test *test) check(t *testing.T, output string, err error) {
	t.Helper()
	if (err != nil) != test.fails {
		t.Errorf("got error %v, want one: %t", err, test.fails)
	}
	for _, part := range test.says {
		if !strings.Contains(output, part) {
			t.Errorf("no %q in\n%s", part, output)
		}
	}
	if test.saysNot != "" && strings.Contains(output, test.saysNot) {
		t.Errorf("got %q in\n%s", test.saysNot, output)
	}
}

func TestEngineForKind(t *testing.T) {
	t.Parallel()
	tests := map[string]test{
		"docker is selected before podman": {engines: map[string]string{"docker": running, "podman": running}, says: []string{"docker\n"}},
		"podman is selected if docker does not respond": {
			engines: map[string]string{"docker": stopped, "podman": running}, says: []string{"podman\n"},
		},
		"podman is selected if docker is not installed": {engines: map[string]string{"podman": running}, says: []string{"podman\n"}},
		"the user's choice is selected": {
			engines: map[string]string{"docker": running, "podman": running}, environment: []string{"KIND_EXPERIMENTAL_PROVIDER=podman"}, says: []string{"podman\n"},
		},
		"the user's choice is not replaced": {
			engines: map[string]string{"docker": running}, environment: []string{"KIND_EXPERIMENTAL_PROVIDER=podman"},
			fails: true, says: []string{"podman is not installed"}, saysNot: "docker is not installed",
		},
		"without an engine it says how to install one": {
			fails: true, says: []string{"docker is not installed", "podman is not installed", "https://docs.docker.com", "https://podman.io"},
		},
		"a stopped engine is not confused with a missing one": {
			engines: map[string]string{"docker": stopped}, fails: true,
			says:    []string{`"docker info" fails: Cannot connect to the Docker daemon.`, "podman is not installed", "systemctl start docker"},
			saysNot: "docker is not installed",
		},
		"without an engine it ends with the command that works": {
			fails: true, says: []string{"see the same on a real API server: make demo\n"},
		},
		"another engine is denied": {
			environment: []string{"KIND_EXPERIMENTAL_PROVIDER=nerdctl"}, fails: true, says: []string{"got KIND_EXPERIMENTAL_PROVIDER=nerdctl, want docker or podman"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			output, err := run(t, test.engines, test.environment, "hack/kind/engine.sh")
			test.check(t, output, err)
		})
	}
}

func TestImage(t *testing.T) {
	t.Parallel()
	const name, two = "IMAGE=example.com/acme/lanyard:1", "PLATFORMS=linux/amd64,linux/arm64"
	tests := map[string]test{
		"docker with buildx": {
			engines: map[string]string{"docker": running}, says: []string{"docker buildx build --load --tag lanyard-webhook:0.1.0 .", "lanyard-webhook:0.1.0: built\n"},
		},
		"docker before version 23 has BuildKit built in": {
			engines: map[string]string{"docker": docker20}, says: []string{"docker build --tag lanyard-webhook:0.1.0 ., BuildKit: 1"},
		},
		"docker since version 23 without buildx is told what is missing": {
			engines: map[string]string{"docker": docker23}, fails: true, says: []string{"docker 23.0.1 lacks its plugin buildx", "make image ENGINE=podman"}, saysNot: "docker build ",
		},
		"one platform": {
			engines: map[string]string{"docker": running}, environment: []string{name, "PLATFORMS=linux/arm64"},
			says: []string{"docker buildx build --load --platform linux/arm64 --tag example.com/acme/lanyard:1 ."},
		},
		"the command line": {
			engines: map[string]string{"podman": running}, environment: []string{"TARGET=lanyard"},
			says: []string{"podman build --target lanyard --tag lanyard:0.1.0 ."},
		},
		"another target is denied": {
			engines: map[string]string{"docker": running}, environment: []string{"TARGET=build"}, fails: true, says: []string{"got TARGET=build, want lanyard-webhook or lanyard"},
		},
		"several platforms are not kept by docker": {
			engines: map[string]string{"docker": running}, environment: []string{name, two}, fails: true, says: []string{"make image-push"}, saysNot: "buildx build",
		},
		"several platforms are pushed by docker": {
			engines: map[string]string{"docker": running}, environment: []string{name, two}, push: true,
			says: []string{"docker buildx build --push --platform linux/amd64,linux/arm64 --tag example.com/acme/lanyard:1 .", "built and pushed"},
		},
		"several platforms need buildx": {
			engines: map[string]string{"docker": docker20}, environment: []string{name, two}, push: true, fails: true, says: []string{"several platforms need docker's plugin buildx"},
		},
		"one platform is pushed by docker": {
			engines: map[string]string{"docker": docker20}, environment: []string{name}, push: true,
			says: []string{"docker build --tag example.com/acme/lanyard:1 .", "docker push example.com/acme/lanyard:1"},
		},
		"several platforms are a manifest of podman": {
			engines: map[string]string{"podman": running}, environment: []string{name, two}, push: true,
			says: []string{
				"podman manifest rm example.com/acme/lanyard:1", "podman build --platform linux/amd64,linux/arm64 --manifest example.com/acme/lanyard:1 .",
				"podman manifest push --all example.com/acme/lanyard:1 docker://example.com/acme/lanyard:1",
			},
		},
		"the user's engine is used": {
			engines: map[string]string{"docker": running, "buildah": running}, environment: []string{"ENGINE=buildah"},
			says: []string{"buildah build --tag lanyard-webhook:0.1.0 ."},
		},
		"an engine that is not installed is denied": {
			engines: map[string]string{"docker": running}, environment: []string{"ENGINE=podman"}, fails: true, says: []string{"got ENGINE=podman, which is not installed"},
		},
		"without an engine it says so": {fails: true, says: []string{"needs docker, podman or buildah"}},
		"a name without a registry is not pushed": {
			engines: map[string]string{"docker": running}, push: true, fails: true, says: []string{"got IMAGE=lanyard-webhook:0.1.0, want one with a registry"}, saysNot: "docker build",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var arguments []string
			if test.push {
				arguments = []string{"--push"}
			}
			output, err := run(t, test.engines, test.environment, "hack/image.sh", arguments...)
			test.check(t, output, err)
		})
	}
}
