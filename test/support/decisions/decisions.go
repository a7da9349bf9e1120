// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package decisions reads the golden cases in test/decisions: one file for each, with the objects
// as YAML documents, and the expected decision as comments at the end. The README there describes
// the format.
package decisions

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// These themes have a meaning. Other themes only group the cases.
const (
	// Adopted contains ServiceAccounts with annotations of another program, which the
	// webhook translates first.
	Adopted = "adopted"
	// Providers contains a case for each file of examples/providers, with the settings of the file.
	Providers = "providers"
	// Peers contains pods that another webhook injects, too. Only ReadPeers reads them.
	Peers = "peers"
)

// Case is one file.
type Case struct {
	// Theme and Name are those of the file test/decisions/THEME/NAME.yaml.
	Theme, Name string
	// File is the path of the file, and Text its content.
	File string
	Text []byte
	// ServiceAccount, Namespace and Pod are the objects in JSON, or nil if there is none.
	ServiceAccount, Namespace, Pod []byte
	// Labels and Annotations are those of the ServiceAccount, and NamespaceAnnotations those
	// of the Namespace.
	Labels, Annotations, NamespaceAnnotations map[string]string
	// Settings is the configuration file of the webhook, and Peer the one of the other
	// webhook; "" for the defaults.
	Settings, Peer string
	// Want is nil if the file has no expected decision yet.
	Want *Want

	// input is the length of the text before the expected decision.
	input int
}

// Want is the expected decision.
type Want struct {
	Reason   string   `json:"reason,omitempty"`
	Code     int      `json:"code,omitempty"`
	Message  string   `json:"message,omitempty"`
	Findings []string `json:"findings,omitempty"`
	Warnings []string `json:"warnings,omitempty"`
	// ServiceAccount contains the annotations after adoption.
	ServiceAccount map[string]string `json:"serviceAccount,omitempty"`
	Additions
	// PeerFirst and LanyardFirst are the results of the two orders of the webhooks.
	PeerFirst    *Stored `json:"peer-first,omitempty"`
	LanyardFirst *Stored `json:"lanyard-first,omitempty"`
}

// Stored contains Lanyard's decision for each call of the API server, and the additions to the
// stored pod.
type Stored struct {
	Reasons  []string `json:"reasons"`
	Findings []string `json:"findings,omitempty"`
	Additions
}

// Read reads the cases in dir, the directory test/decisions.
func Read(dir string) ([]*Case, error) {
	return read(dir, func(theme string) bool { return theme != Peers }, true)
}

// ReadPeers reads the cases with the webhook of another program.
func ReadPeers(dir string) ([]*Case, error) {
	return read(dir, func(theme string) bool { return theme == Peers }, true)
}

// ReadInputs reads all cases, including those without an expected decision.
func ReadInputs(dir string) ([]*Case, error) {
	return read(dir, func(string) bool { return true }, false)
}

// ReadCase reads one case: THEME/NAME.
func ReadCase(dir, name string) (*Case, error) {
	return readFile(filepath.Join(dir, filepath.FromSlash(name)+".yaml"), true)
}

func read(dir string, has func(theme string) bool, complete bool) ([]*Case, error) {
	var cases []*Case
	err := filepath.WalkDir(dir, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || file == filepath.Join(dir, "README.md") {
			return err
		}
		theme, name, _ := strings.Cut(filepath.ToSlash(file[len(filepath.Clean(dir))+1:]), "/")
		if strings.Contains(name, "/") || filepath.Ext(name) != ".yaml" {
			return fmt.Errorf("%s: the name of a case is THEME/CASE.yaml", file)
		}
		if !has(theme) {
			return nil
		}
		c, err := readFile(file, complete)
		cases = append(cases, c)
		return err
	})
	if err == nil && len(cases) == 0 {
		err = fmt.Errorf("%s has no cases", dir)
	}
	return cases, err
}

func readFile(file string, complete bool) (*Case, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	c, err := Parse(file, text)
	if err == nil && complete && c.Want == nil {
		err = fmt.Errorf("%s: the file does not say what is expected: run make update-golden, and read what it adds", file)
	}
	if err == nil && c.Theme == Providers {
		var settings []byte
		settings, err = os.ReadFile(filepath.Join(filepath.Dir(file), "../../../examples/providers", c.Name+".yaml"))
		c.Settings = string(settings)
	}
	return c, err
}

const separator = "---\n"

// Parse reads the text of a file.
func Parse(file string, text []byte) (*Case, error) {
	c := &Case{File: file, Text: text, Name: strings.TrimSuffix(filepath.Base(file), ".yaml"), Theme: filepath.Base(filepath.Dir(file)), input: len(text)}
	documents := bytes.SplitAfter(bytes.TrimSuffix(text, []byte(separator)), []byte("\n"+separator))
	for i, document := range documents {
		document = bytes.TrimSuffix(document, []byte(separator))
		var err error
		if last := i == len(documents)-1; last && isComment(document) {
			c.input = len(text) - len(document)
			err = c.parseWant(document)
		} else {
			err = c.add(document)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: document %d: %w", file, i+1, err)
		}
	}
	if c.Pod == nil {
		return nil, fmt.Errorf("%s: the pod is missing", file)
	}
	return c, nil
}

func isComment(document []byte) bool {
	for line := range bytes.Lines(document) {
		if line[0] != '#' {
			return false
		}
	}
	return true
}

func (c *Case) parseWant(document []byte) error {
	var text strings.Builder
	for line := range strings.Lines(string(document)) {
		text.WriteString(strings.TrimPrefix(strings.TrimPrefix(line, "#"), " "))
	}
	err := yaml.UnmarshalStrict([]byte(text.String()), &c.Want)
	if err == nil && c.Want == nil {
		return errors.New("the document is empty")
	}
	return err
}

// add adds an object.
func (c *Case) add(document []byte) error {
	var object struct {
		APIVersion, Kind string
		Metadata         struct {
			Name, GenerateName, Namespace string
			Labels, Annotations           map[string]string
		}
		Data map[string]string
	}
	raw, err := yaml.YAMLToJSONStrict(document)
	if err == nil {
		err = json.Unmarshal(raw, &object)
	}
	if err != nil {
		return err
	}
	if object.APIVersion != "v1" || object.Metadata.Name+object.Metadata.GenerateName == "" {
		return fmt.Errorf("got apiVersion %q and the name %q, want v1 and a name", object.APIVersion, object.Metadata.Name)
	}
	name := object.Metadata.Namespace + "/" + object.Metadata.Name
	switch {
	case object.Kind == "ServiceAccount" && name == "team/app":
		c.Labels, c.Annotations = object.Metadata.Labels, object.Metadata.Annotations
		return set(&c.ServiceAccount, raw)
	case object.Kind == "ServiceAccount" && name == "team/default":
		return nil // Every namespace has one, and lanyard inject reads it from the file.
	case object.Kind == "Namespace" && name == "/team":
		c.NamespaceAnnotations = object.Metadata.Annotations
		return set(&c.Namespace, raw)
	case object.Kind == "Pod" && object.Metadata.Namespace == "team":
		return set(&c.Pod, raw)
	case object.Kind == "ConfigMap" && name == "lanyard-system/lanyard-webhook-config" && len(object.Data) == 1:
		return set(&c.Settings, object.Data["config.yaml"])
	case object.Kind == "ConfigMap" && name == "peer-system/peer" && len(object.Data) == 1:
		return set(&c.Peer, object.Data["peer.yaml"])
	}
	return fmt.Errorf("%s %s is no part of a case", object.Kind, name)
}

func set[T ~string | ~[]byte](to *T, value T) error {
	if len(*to) > 0 || len(value) == 0 {
		return errors.New("the object is there twice, or is empty")
	}
	*to = value
	return nil
}

// IsEphemeral reports whether the case adds an ephemeral container to a running pod.
func (c *Case) IsEphemeral() bool { return bytes.Contains(c.Pod, []byte(`"ephemeralContainers"`)) }

// OldPod returns the pod before the request, without its last ephemeral container, or nil for a
// new pod.
func (c *Case) OldPod() []byte {
	if !c.IsEphemeral() {
		return nil
	}
	pod := decode(c.Pod)
	spec := get(pod, "spec")
	if containers := list(spec, ephemeral); len(containers) > 1 {
		spec[ephemeral] = containers[:len(containers)-1]
	} else {
		delete(spec, ephemeral)
	}
	return encode(pod)
}

// Result returns the pod with the expected additions, or nil if it is denied.
func (c *Case) Result() ([]byte, error) {
	if c.Want.Code != 0 {
		return nil, nil
	}
	result, err := c.Want.AddTo(c.Pod)
	if err != nil {
		err = fmt.Errorf("%s: %w", c.File, err)
	}
	return result, err
}

// Write writes the expected decision into the file, and leaves the rest as it is.
func (c *Case) Write() error {
	text := slices.Clone(c.Text[:c.input])
	if c.input == len(c.Text) {
		text = append(append(bytes.TrimRight(bytes.TrimSuffix(text, []byte(separator)), "\n"), '\n'), separator...)
	}
	return os.WriteFile(c.File, append(text, c.Want.Comment()...), 0o600)
}
