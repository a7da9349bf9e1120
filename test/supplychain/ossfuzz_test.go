// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package supplychain

import (
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/lanyard-dev/lanyard/test/support/tree"
)

func TestOSSFuzzBuildsEveryFuzzTarget(t *testing.T) {
	t.Parallel()
	function := regexp.MustCompile(`(?m)^func (Fuzz\w+)\(`)
	var want []string
	for _, file := range tree.Files(t, root) {
		if top, _, _ := strings.Cut(file, "/"); top == "test" || !strings.HasSuffix(file, "_test.go") {
			continue
		}
		for _, match := range function.FindAllStringSubmatch(tree.Read(t, root, file), -1) {
			want = append(want, "github.com/lanyard-dev/lanyard/"+path.Dir(file)+" "+match[1]+" "+match[1])
		}
	}
	slices.Sort(want)
	command := exec.CommandContext(t.Context(), "bash", "-eu", "-c", `compile_native_go_fuzzer_v2() { echo "$@"; }; . hack/oss-fuzz/build.sh`)
	command.Dir = root
	var errOut strings.Builder // bash warns of a locale that the machine lacks
	command.Stderr = &errOut
	output, err := command.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, &errOut)
	}
	got := strings.Split(strings.TrimSpace(string(output)), "\n")
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("hack/oss-fuzz/build.sh: package, function and name (-want +got):\n%s", diff)
	}
}

// SECURITY-INSIGHTS.yml is for programs. It must say the same as the pages.
func TestSecurityInsightsNameFilesThatExist(t *testing.T) {
	t.Parallel()
	text := tree.Read(t, root, "SECURITY-INSIGHTS.yml")
	var insights struct {
		Project struct {
			Reporting struct {
				Accepted bool `json:"reports-accepted"`
				Contact  struct {
					Email string `json:"email"`
				} `json:"contact"`
			} `json:"vulnerability-reporting"`
		} `json:"project"`
	}
	if err := yaml.Unmarshal([]byte(text), &insights); err != nil {
		t.Fatal(err)
	}
	email := insights.Project.Reporting.Contact.Email
	for _, file := range []string{"SECURITY.md", "hack/oss-fuzz/project.yaml"} {
		if email == "" || !insights.Project.Reporting.Accepted || !strings.Contains(tree.Read(t, root, file), email) {
			t.Errorf("got the contact %q, want one that %s has", email, file)
		}
	}
	links := regexp.MustCompile(`https://github\.com/lanyard-dev/lanyard/blob/main/(\S+?)(?:#\S*)?'?\n`).FindAllStringSubmatch(text, -1)
	if len(links) < 5 {
		t.Errorf("got %d links, want at least 5", len(links))
	}
	for _, link := range links {
		if _, err := os.Stat(filepath.Join(root, link[1])); err != nil {
			t.Errorf("SECURITY-INSIGHTS.yml: %v", err)
		}
	}
}
