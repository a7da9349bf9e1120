// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

type (
	artifactHubImage struct {
		Name      string   `json:"name"`
		Image     string   `json:"image"`
		Platforms []string `json:"platforms"`
	}
	artifactHubLink struct {
		Name string `json:"name"`
		URL  string `json:"url"`
	}
	artifactHubChange struct {
		Kind        string            `json:"kind"`
		Description string            `json:"description"`
		Links       []artifactHubLink `json:"links"`
	}
)

// chartMetadata returns Chart.yaml and its annotations for Artifact Hub, without their prefix.
func chartMetadata(t *testing.T) (chart map[string]any, annotations map[string]string) {
	t.Helper()
	if err := yaml.Unmarshal([]byte(readFile(t, chartDir+"/Chart.yaml")), &chart); err != nil {
		t.Fatal(err)
	}
	annotations = map[string]string{}
	for key, value := range chart["annotations"].(map[string]any) {
		annotations[strings.TrimPrefix(key, "artifacthub.io/")] = value.(string)
	}
	return chart, annotations
}

// list decodes an annotation, which is a text with a list.
func list[T any](t *testing.T, annotations map[string]string, key string) []T {
	t.Helper()
	var all []T
	if err := yaml.UnmarshalStrict([]byte(annotations[key]), &all); err != nil || len(all) == 0 {
		t.Errorf("%s: got %d entries, %v", key, len(all), err)
	}
	return all
}

// Artifact Hub ignores an annotation with a mistake, and shows nothing for it.
func TestTheMetadataForArtifactHubIsComplete(t *testing.T) {
	chart, annotations := chartMetadata(t)
	// The list omits alternativeName, maintainers and operatorCapabilities, which would repeat
	// Chart.yaml, signKey, which is for PGP, crds, because there are none, and screenshots.
	want := []string{"category", "changes", "containsSecurityUpdates", "images", "license", "links", "operator", "prerelease", "recommendations"}
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(annotations))); diff != "" {
		t.Errorf("annotations (-want +got):\n%s", diff)
	}
	if got := annotations["category"]; got != "security" {
		t.Errorf("got the category %q, want security", got)
	}
	if license := readFile(t, "../../LICENSE"); annotations["license"] != "Apache-2.0" || !strings.Contains(license, "Apache License") {
		t.Errorf("got the license %q, want the one of LICENSE", annotations["license"])
	}
	for _, key := range []string{"containsSecurityUpdates", "operator", "prerelease"} {
		if !slices.Contains([]string{"true", "false"}, annotations[key]) {
			t.Errorf("%s: got %q, want true or false", key, annotations[key])
		}
	}
	for _, change := range list[artifactHubChange](t, annotations, "changes") {
		if !slices.Contains([]string{"added", "changed", "deprecated", "removed", "fixed", "security"}, change.Kind) || change.Description == "" {
			t.Errorf("got the change %+v", change)
		}
	}
	for _, link := range slices.Concat(list[artifactHubLink](t, annotations, "links"), list[artifactHubLink](t, annotations, "recommendations")) {
		checkLink(t, link.URL)
	}
	for _, maintainer := range chart["maintainers"].([]any) {
		m := maintainer.(map[string]any)
		if m["name"] == nil || m["email"] == nil {
			t.Errorf("got the maintainer %v, want a name and an email", m)
		}
		checkLink(t, m["url"].(string))
	}
}

// checkLink fails for a link to a file of the repository that does not exist.
func checkLink(t *testing.T, link string) {
	t.Helper()
	file, found := strings.CutPrefix(link, "https://github.com/lanyard-dev/lanyard/blob/main/")
	if !found {
		if !strings.HasPrefix(link, "https://") {
			t.Errorf("got the link %q, want https", link)
		}
		return
	}
	if _, err := os.Stat("../../" + file); err != nil {
		t.Errorf("%s: %v", link, err)
	}
}

// Artifact Hub scans these images for vulnerabilities, so all images of the chart must be there.
func TestArtifactHubScansTheImagesOfTheChart(t *testing.T) {
	_, annotations := chartMetadata(t)
	platforms := strings.Fields(regexp.MustCompile(`(?m)^RELEASE_PLATFORMS := (.*)$`).FindStringSubmatch(readFile(t, "../../Makefile"))[1])
	rendered := map[string]bool{}
	for _, spec := range podSpecs(t, render(t, defaultInstall, parseValues(t, checksValues+"image: {registry: ghcr.io/lanyard-dev}")).objects) {
		for _, container := range slices.Concat(spec.InitContainers, spec.Containers) {
			rendered[container.Image] = true
		}
	}
	var listed []string
	for _, image := range list[artifactHubImage](t, annotations, "images") {
		listed = append(listed, image.Image)
		if diff := cmp.Diff(platforms, image.Platforms); diff != "" {
			t.Errorf("%s: platforms (-Makefile +Chart.yaml):\n%s", image.Name, diff)
		}
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(rendered)), listed); diff != "" {
		t.Errorf("images (-chart +annotation):\n%s", diff)
	}
}
