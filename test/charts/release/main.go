// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Command release writes the manifests of a release from deploy/, as kustomize builds them:
//
//	release DEPLOY OUTPUT REGISTRY VERSION [DIGEST]
//
// OUTPUT/install.yaml is deploy/base with the image of the release, and OUTPUT/policies.yaml
// is deploy/policies. hack/release.sh runs it.
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

const imageName = "lanyard-webhook"

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) < 4 || len(args) > 5 {
		return fmt.Errorf("got %d arguments, want DEPLOY OUTPUT REGISTRY VERSION [DIGEST]", len(args))
	}
	deploy, output, version := args[0], args[1], args[3]
	image := types.Image{NewName: args[2] + "/" + imageName, NewTag: version}
	if len(args) == 5 {
		image.Digest = args[4]
	}
	install, err := buildInstall(deploy, image)
	if err != nil {
		return err
	}
	policies, err := build(filepath.Join(deploy, "policies"))
	if err != nil {
		return err
	}
	return errors.Join(
		write(output, "install.yaml", version, "", install),
		write(output, "policies.yaml", version, " without a program, for Kubernetes 1.36 or later", policies),
	)
}

// buildInstall builds deploy/base with the image. It fails if the output contains any other
// image.
func buildInstall(deploy string, image types.Image) (text string, err error) {
	directory, err := os.MkdirTemp("", "lanyard-release-")
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(directory)) }()
	base, err := relative(directory, filepath.Join(deploy, "base"))
	if err != nil {
		return "", err
	}
	// Before the first release, the base contains the image without a registry.
	bare, released := image, image
	bare.Name, released.Name = imageName, image.NewName
	overlay, err := yaml.Marshal(types.Kustomization{Resources: []string{base}, Images: []types.Image{bare, released}})
	if err != nil {
		return "", fmt.Errorf("encode the kustomization: %w", err)
	}
	if err := os.WriteFile(filepath.Join(directory, "kustomization.yaml"), overlay, 0o600); err != nil {
		return "", err
	}
	text, err = build(directory)
	if err != nil {
		return "", err
	}
	want := "image: " + image.NewName + ":" + image.NewTag
	if image.Digest != "" {
		want += "@" + image.Digest
	}
	if strings.Count(text, "image: ") != 1 || !strings.Contains(text, want+"\n") {
		return "", fmt.Errorf("%s: got other images than %q: set the image in deploy/base", deploy, want)
	}
	return text, nil
}

// relative returns the path of target from the directory. Kustomizations have no absolute paths.
func relative(directory, target string) (string, error) {
	from, err := filepath.EvalSymlinks(directory)
	if err != nil {
		return "", err
	}
	to, err := filepath.Abs(target)
	if err != nil {
		return "", err
	}
	return filepath.Rel(from, to)
}

// build returns the output of kustomize for the directory.
func build(directory string) (string, error) {
	objects, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), directory)
	if err != nil {
		return "", fmt.Errorf("build %s: %w", directory, err)
	}
	text, err := objects.AsYaml()
	if err != nil {
		return "", fmt.Errorf("build %s: %w", directory, err)
	}
	return string(text), nil
}

// write writes a manifest with a header that contains the command to apply it.
func write(directory, name, version, about, text string) error {
	header := fmt.Sprintf("# Copyright The Lanyard Authors.\n# SPDX-License-Identifier: Apache-2.0\n#\n# Lanyard %s%s:\n#\n"+
		"#   kubectl apply -f https://github.com/lanyard-dev/lanyard/releases/download/v%s/%s\n\n", version, about, version, name)
	if err := os.WriteFile(filepath.Join(directory, name), []byte(header+text), 0o644); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}
