// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/lanyard-dev/lanyard/test/support/tree"
)

// build returns the objects that kustomize builds from a directory.
func build(t *testing.T, directory string) []object {
	t.Helper()
	result, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), directory)
	if err != nil {
		t.Fatal(err)
	}
	text, err := result.AsYaml()
	if err != nil {
		t.Fatal(err)
	}
	return parseObjects(t, directory, string(text))
}

// byKey returns the normalized objects by their keys.
func byKey(objects []object) map[string]any {
	all := map[string]any{}
	for _, o := range objects {
		all[o.key()] = normalized(o.Object)
	}
	return all
}

// runIn runs a program in a directory, and returns its output.
func runIn(t *testing.T, directory string, environment []string, program ...string) string {
	t.Helper()
	command := exec.CommandContext(t.Context(), program[0], program[1:]...)
	command.Dir = directory
	command.Env = append(command.Environ(), environment...)
	output, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("%q: %v\n%s", program, err, output)
	}
	return string(output)
}

// releaseManifests returns the directory with the manifests of the release 9.8.7.
func releaseManifests(t *testing.T, arguments ...string) string {
	t.Helper()
	directory := t.TempDir()
	runIn(t, "../..", []string{"REGISTRY=registry.example/team"},
		append([]string{"bash", "hack/release.sh", "manifests", "v9.8.7", directory}, arguments...)...)
	return directory
}

// The manifests of a release contain all objects of deploy/, with the image of the release.
func TestTheManifestsOfAReleaseAreTheKustomizeBuild(t *testing.T) {
	digest := "sha256:" + strings.Repeat("0a", sha256.Size)
	for name, test := range map[string]struct {
		arguments []string
		image     string
	}{
		"with the digest of the image": {[]string{digest}, "registry.example/team/lanyard-webhook:9.8.7@" + digest},
		"without a digest":             {nil, "registry.example/team/lanyard-webhook:9.8.7"},
	} {
		t.Run(name, func(t *testing.T) {
			directory := releaseManifests(t, test.arguments...)
			install := readFile(t, filepath.Join(directory, "install.yaml"))
			got := parseObjects(t, "install.yaml", install)
			if image := podSpecs(t, got)["Deployment/lanyard-system/lanyard-webhook"].Containers[0].Image; image != test.image {
				t.Errorf("got the image %q, want %q", image, test.image)
			}
			same := parseObjects(t, "install.yaml", strings.ReplaceAll(install, test.image, "lanyard-webhook:"+appVersion(t)))
			if diff := cmp.Diff(byKey(build(t, deployDir)), byKey(same)); diff != "" {
				t.Errorf("install.yaml (-deploy +release):\n%s", diff)
			}
			// kubectl creates the objects in this order.
			if got[0].GetKind() != "Namespace" || got[len(got)-1].GetKind() != "ValidatingAdmissionPolicyBinding" {
				t.Errorf("got the objects from %s to %s, want the namespace first, and the guard and fences last", got[0].key(), got[len(got)-1].key())
			}
			policies := readFile(t, filepath.Join(directory, "policies.yaml"))
			if diff := cmp.Diff(byKey(build(t, deployDir+"/policies")), byKey(parseObjects(t, "policies.yaml", policies))); diff != "" {
				t.Errorf("policies.yaml (-deploy +release):\n%s", diff)
			}
			var sums string
			for name, text := range map[string]string{"install.yaml": install, "policies.yaml": policies} {
				if want := "kubectl apply -f https://github.com/lanyard-dev/lanyard/releases/download/v9.8.7/" + name + "\n"; !strings.Contains(text, want) {
					t.Errorf("%s does not have its command, %s", name, want)
				}
				sums = readFile(t, filepath.Join(directory, "checksums.txt"))
				if want := fmt.Sprintf("%x  %s\n", sha256.Sum256([]byte(text)), name); !strings.Contains(sums, want) {
					t.Errorf("got the checksums %q, want %q", sums, want)
				}
			}
		})
	}
}

// The image of the release would not replace another image in the base.
func TestTheManifestsOfAReleaseHaveNoOtherImage(t *testing.T) {
	root := t.TempDir()
	if err := os.CopyFS(root, os.DirFS(deployDir)); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(root, "base/40-deployment.yaml")
	text := strings.ReplaceAll(readFile(t, file), "lanyard-webhook:"+appVersion(t), "other.example/lanyard-webhook:1.0.0")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	output, err := exec.CommandContext(t.Context(), "go", "run", "./release", root, t.TempDir(), "registry.example/team", "9.8.7").CombinedOutput()
	if err == nil || !strings.Contains(string(output), "set the image in deploy/base") {
		t.Errorf("got %v and %s, want an error about the image", err, output)
	}
}

// remote returns the URL of a Git repository with the files of deploy/, and the tag v9.8.7.
func remote(t *testing.T) string {
	t.Helper()
	root := filepath.Join(t.TempDir(), "lanyard")
	for _, file := range tree.Files(t, "../..") {
		if !strings.HasPrefix(file, "deploy/") {
			continue
		}
		if err := os.MkdirAll(filepath.Join(root, filepath.Dir(file)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, file), []byte(readFile(t, "../../"+file)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	runIn(t, root, nil, "git", "init", "-q")
	runIn(t, root, nil, "git", "add", "--all")
	runIn(t, root, nil, "git", "-c", "user.name=test", "-c", "user.email=test@example.com", "commit", "-q", "-m", "release")
	runIn(t, root, nil, "git", "tag", "v9.8.7")
	return "file://" + root
}

// Users need no clone: each directory of deploy/ is a remote base of kustomize. Without the
// network, the repository is one of this machine.
func TestRemoteBases(t *testing.T) {
	repository := remote(t)
	for name, test := range map[string]struct {
		resource   string
		components []string
		local      []object
	}{
		"the base":     {"deploy/base", nil, build(t, deployDir+"/base")},
		"deploy":       {"deploy", nil, build(t, deployDir)},
		"the policies": {"deploy/policies", nil, build(t, deployDir+"/policies")},
		"the checks":   {"deploy/checks", nil, build(t, deployDir+"/checks")},
		"components": {
			"deploy/base", []string{"cert-manager", "monitoring", "network-policy", "token-audiences"},
			kustomize(t, ca, "cert-manager", "monitoring", "network-policy", "token-audiences"),
		},
		"components for old clusters": {"deploy/base", []string{"openshift", "fail-closed", "no-fences"}, kustomize(t, ca, "openshift", "fail-closed", "no-fences")},
	} {
		t.Run(name, func(t *testing.T) {
			url := func(directory string) string { return "- " + repository + "//" + directory + "?ref=v9.8.7\n" }
			text := "resources:\n" + url(test.resource) + "components:\n"
			for _, component := range test.components {
				text += url("deploy/components/" + component)
			}
			directory := t.TempDir()
			if err := os.WriteFile(filepath.Join(directory, "kustomization.yaml"), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(byKey(test.local), byKey(build(t, directory))); diff != "" {
				t.Errorf("(-local +remote):\n%s", diff)
			}
		})
	}
}
