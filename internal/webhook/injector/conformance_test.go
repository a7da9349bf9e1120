// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package injector_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/lanyard-dev/lanyard/internal/peer"
	"github.com/lanyard-dev/lanyard/test/support/peers"
)

// conformance is a file of testdata/conformance: the features of a peer's own tests and
// examples, with manifests of our own.
type conformance struct {
	// Flags are flags of the peer. Each case runs with each of them.
	Flags []peers.Flags `json:"flags"`
	// Config is Lanyard's configuration file.
	Config map[string]any `json:"config"`
	// Everywhere has differences that may occur in every case. Their keys have no
	// container.
	Everywhere []difference      `json:"everywhere"`
	Cases      []conformanceCase `json:"cases"`
}

// difference is one row of the documentation.
type difference struct {
	Case string `json:"case"`
	// Differs lists the keys of the outcome that differ, sorted.
	Differs []string `json:"differs,omitempty"`
	// Version limits a difference everywhere to one version of Azure's webhook.
	Version string `json:"version,omitempty"`
	// Peer and Lanyard describe the behavior of each, and Do what users must change.
	Peer    string `json:"peer,omitempty"`
	Lanyard string `json:"lanyard,omitempty"`
	Do      string `json:"do,omitempty"`
}

type conformanceCase struct {
	difference
	// From lists the peer's own tests and pages with the feature.
	From []string `json:"from,omitempty"`
	// As names the case whose row in the documentation also covers this one.
	As string `json:"as,omitempty"`
	// Flags and Config override those of the file.
	Flags  []peers.Flags  `json:"flags,omitempty"`
	Config map[string]any `json:"config,omitempty"`
	// Account has the annotations of the ServiceAccount. NoAccount reports whether the
	// ServiceAccount does not exist.
	Account   map[string]string `json:"account,omitempty"`
	NoAccount bool              `json:"noAccount,omitempty"`
	// Faulty means that the peer's variables lead to no token, with or without Lanyard.
	Faulty bool `json:"faulty,omitempty"`
	// Outcome is the outcome for a peer that is not a webhook.
	Outcome outcome `json:"outcome,omitempty"`
	// Pod has the metadata and the spec.
	Pod corev1.Pod `json:"pod"`
}

// outcome maps "CONTAINER: KEY" to a value that the pod got. If the pod was denied, the only
// key is "denied".
type outcome map[string]string

// TestConformance compares what a pod gets from a peer with what it gets from Lanyard
// after adoption. Each difference has a name, and is in testdata/conformance/NAME.differences.md.
// Then it creates the pod with both, in both orders.
func TestConformance(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"eks", "azure", "gcp", "gke"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := readConformance(t, name)
			seen, results := map[string]bool{}, &orderResults{}
			for i := range file.Cases {
				c := &file.Cases[i]
				t.Run(c.Case, func(t *testing.T) { file.run(t, c, seen, results) })
			}
			results.compare(t, name)
			for _, d := range file.Everywhere {
				for _, key := range d.Differs {
					if !seen[key] {
						t.Errorf("%s: no case differs in %q", d.Case, key)
					}
				}
			}
			compareText(t, filepath.Join("testdata/conformance", name+".differences.md"), differencesTable(t, name, file))
		})
	}
}

func readConformance(t *testing.T, name string) *conformance {
	t.Helper()
	var file conformance
	text, err := os.ReadFile(filepath.Join("testdata/conformance", name+".yaml"))
	if err == nil {
		err = yaml.UnmarshalStrict(text, &file)
	}
	if err != nil {
		t.Fatal(err)
	}
	return &file
}

// run runs one case. It notes the keys in seen that differ everywhere, and what the pod
// gets in each order.
func (f *conformance) run(t *testing.T, c *conformanceCase, seen map[string]bool, results *orderResults) {
	flags := c.Flags
	if len(flags) == 0 {
		flags = f.Flags
	}
	if len(flags) == 0 {
		flags = []peers.Flags{{}} // no webhook
	}
	for _, flags := range flags {
		b := f.beside(t, c, flags)
		pod := c.Pod.DeepCopy()
		pod.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
		pod.Spec.ServiceAccountName = "app"
		text := marshal(t, pod)
		theirs, ours := c.Outcome, b.lanyardAlone(t, text)
		if b.peer != nil {
			theirs = b.peerAlone(t, text)
		}
		want := slices.DeleteFunc(slices.Clone(c.Differs), func(key string) bool { return f.isEverywhere(key, flags) })
		got := f.unlike(t, c.As, f.differences(theirs, ours, flags, seen))
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("differences (-want +got):\n%s\npeer %v\nLanyard %v", diff, theirs, ours)
		}
		if named := c.Peer != "" && c.Lanyard != "" && c.Do != ""; named != (len(c.Differs) > 0 && c.As == "") {
			t.Errorf("got %d differences and the texts %q, %q and %q", len(c.Differs), c.Peer, c.Lanyard, c.Do)
		}
		if b.peer != nil {
			results.add(t, b, c, flags, text)
		}
	}
}

// unlike returns the keys that are not among the differences of the case with this name.
func (f *conformance) unlike(t *testing.T, name string, keys []string) []string {
	t.Helper()
	if name == "" {
		return keys
	}
	at := slices.IndexFunc(f.Cases, func(c conformanceCase) bool { return c.Case == name && c.As == "" })
	if at < 0 {
		t.Fatalf("no case %q in the documentation", name)
	}
	return slices.DeleteFunc(keys, func(key string) bool {
		return slices.ContainsFunc(f.Cases[at].Differs, func(other string) bool { return withoutContainer(other) == withoutContainer(key) })
	})
}

// beside returns an API server for the case.
func (f *conformance) beside(t *testing.T, c *conformanceCase, flags peers.Flags) *beside {
	t.Helper()
	config := maps.Clone(f.Config)
	maps.Copy(config, c.Config)
	text, err := yaml.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	b := newBeside(t, flags, string(text), accountObject(t, c.Account))
	if c.NoAccount {
		b.account = nil
		b.pods.ServiceAccounts = objects{}
	}
	return b
}

// peerAlone returns the outcome without Lanyard.
func (b *beside) peerAlone(t *testing.T, text []byte) outcome {
	t.Helper()
	before, after := typedPod(t, text), typedPod(t, text)
	if err := peers.Admit(b.peer, after, b.account); err != nil {
		return outcome{"denied": "by the webhook"}
	}
	if hasDuplicates(after) {
		return outcome{"denied": "by the API server"}
	}
	return outcomeOf(before, after)
}

// lanyardAlone returns the outcome without the peer.
func (b *beside) lanyardAlone(t *testing.T, text []byte) outcome {
	t.Helper()
	response := ask(t, b.pods, create(text))
	if response.Code != 0 {
		return outcome{"denied": "by the webhook"}
	}
	result := apply(t, text, response.Patch)
	contains(t, "", unmarshal(t, text), unmarshal(t, result))
	return outcomeOf(typedPod(t, text), typedPod(t, result))
}

// hasDuplicates reports whether the API server denies the pod.
func hasDuplicates(pod *corev1.Pod) bool {
	seen := map[string]bool{}
	again := func(what string) bool {
		found := seen[what]
		seen[what] = true
		return found
	}
	for _, v := range pod.Spec.Volumes {
		if again("volume " + v.Name) {
			return true
		}
	}
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		for _, m := range c.VolumeMounts {
			if again(c.Name + " " + m.MountPath) {
				return true
			}
		}
	}
	return false
}

// differences returns the sorted keys in which two outcomes differ, without those that
// differ everywhere. If one pod is not created, nothing else matters.
func (f *conformance) differences(theirs, ours outcome, flags peers.Flags, seen map[string]bool) []string {
	if (theirs["denied"] != "") != (ours["denied"] != "") {
		return []string{"denied"}
	}
	var differs []string
	for _, key := range slices.Sorted(maps.Keys(theirs)) {
		if theirs[key] != ours[key] && key != "denied" {
			differs = append(differs, key)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(ours)) {
		if _, found := theirs[key]; !found && key != "denied" {
			differs = append(differs, key)
		}
	}
	slices.Sort(differs)
	return slices.DeleteFunc(differs, func(key string) bool {
		seen[withoutContainer(key)] = true
		return f.isEverywhere(key, flags)
	})
}

// isEverywhere reports whether every case may differ in the key.
func (f *conformance) isEverywhere(key string, flags peers.Flags) bool {
	return slices.ContainsFunc(f.Everywhere, func(d difference) bool {
		beside := d.Version == "" || flags.Azure != nil && flags.Azure.Version == d.Version
		return beside && slices.Contains(d.Differs, withoutContainer(key))
	})
}

func withoutContainer(key string) string {
	if _, bare, found := strings.Cut(key, ": "); found {
		return bare
	}
	return key // of the pod
}

// variables are those whose value is compared as it is.
var variables = []string{
	"AWS_ROLE_ARN", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_STS_REGIONAL_ENDPOINTS", "AWS_ROLE_SESSION_NAME", "AWS_CONTAINER_CREDENTIALS_FULL_URI",
	"AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "AZURE_FEDERATED_TOKEN_FILE", "GOOGLE_APPLICATION_CREDENTIALS",
	"AZURE_CLIENT_ID", "AZURE_TENANT_ID", "AZURE_AUTHORITY_HOST", "AZURE_KUBERNETES_TOKEN_PROXY", "AZURE_KUBERNETES_SNI_NAME", "AZURE_KUBERNETES_CA_FILE",
	"CLOUDSDK_CONFIG", "CLOUDSDK_AUTH_CREDENTIAL_FILE_OVERRIDE", "CLOUDSDK_COMPUTE_REGION", "CLOUDSDK_CORE_PROJECT", "GOOGLE_CLOUD_PROJECT",
}

// oldFiles are the peers' own paths.
var oldFiles = map[string]string{
	"aws":       "/var/run/secrets/eks.amazonaws.com/serviceaccount/token",
	"azure 1.5": "/var/run/secrets/azure/tokens/azure-identity-token",
	"azure 1.6": "/var/run/secrets/azure/wi/token/azure-identity-token",
	"gcp":       "/var/run/secrets/sts.googleapis.com/serviceaccount/token",
}

// outcomeOf returns the credentials of the pod.
func outcomeOf(before, after *corev1.Pod) outcome {
	o := outcome{}
	add := func(c *corev1.Container, key, value string) {
		if value != "" {
			o[c.Name+": "+key] = value
		}
	}
	own := map[string]bool{}
	for _, c := range slices.Concat(before.Spec.InitContainers, before.Spec.Containers) {
		own[c.Name] = true
	}
	for _, list := range [][]corev1.Container{after.Spec.InitContainers, after.Spec.Containers} {
		for i := range list {
			c := &list[i]
			if !own[c.Name] {
				o["container "+c.Name] = "added"
				continue
			}
			if c.Name == "gcloud-setup" && c.Image == "gcloud" {
				o["container "+c.Name] = "replaced"
				continue
			}
			for _, name := range variables {
				add(c, name, value(c, name))
			}
			for name, file := range oldFiles {
				add(c, "token at the path of "+name, tokenText(after, c, file))
			}
			add(c, "token of AWS", tokenText(after, c, value(c, "AWS_WEB_IDENTITY_TOKEN_FILE")))
			add(c, "token of Azure", tokenText(after, c, value(c, "AZURE_FEDERATED_TOKEN_FILE")))
			if found := credentialAt(after, c, value(c, "GOOGLE_APPLICATION_CREDENTIALS")); found != nil {
				add(c, "identity of Google", found.Audience+" "+found.Impersonation)
				add(c, "token of Google", tokenText(after, c, found.Source.File))
			}
		}
	}
	for i := range before.Spec.Volumes {
		if was, is := &before.Spec.Volumes[i], find(after.Spec.Volumes, before.Spec.Volumes[i].Name); !cmp.Equal(was, is) {
			o["volume "+was.Name] = "replaced"
		}
	}
	return o
}

func find(volumes []corev1.Volume, name string) *corev1.Volume {
	for i := range volumes {
		if volumes[i].Name == name {
			return &volumes[i]
		}
	}
	return nil
}

// tokenText returns the audience and the lifetime of the token at a path in the container,
// and whether it is a Windows path.
func tokenText(pod *corev1.Pod, c *corev1.Container, file string) string {
	token := tokenAt(pod, c, file)
	if token == nil {
		return ""
	}
	system := ""
	if strings.HasPrefix(file, "C:") {
		system = ", Windows"
	}
	return fmt.Sprintf("%s, %d s%s", token.Audience, *token.ExpirationSeconds, system)
}

// differencesTable returns the page with the differences from a peer.
func differencesTable(t *testing.T, name string, file *conformance) string {
	t.Helper()
	found, err := peer.Named([]string{name})
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	out.WriteString("<!-- Copyright The Lanyard Authors. -->\n<!-- SPDX-License-Identifier: Apache-2.0 -->\n" +
		"<!-- Generated by TestConformance -update. -->\n\n")
	fmt.Fprintf(&out, "| Case | %s | Lanyard | Your steps, and the steps of `lanyard migrate` |\n|---|---|---|---|\n", found[0].Program)
	var same []string
	rows := slices.Clone(file.Everywhere)
	for i := range file.Cases {
		if c := &file.Cases[i]; c.As != "" {
			continue
		} else if len(c.Differs) > 0 {
			rows = append(rows, c.difference)
		} else {
			same = append(same, c.Case)
		}
	}
	for _, d := range rows {
		fmt.Fprintf(&out, "| %s | %s | %s | %s |\n", d.Case, d.Peer, d.Lanyard, d.Do)
	}
	if len(same) > 0 {
		fmt.Fprintf(&out, "\nApart from the first rows, the outcome is the same in these cases:\n\n")
		for _, sentence := range same {
			fmt.Fprintf(&out, "- %s\n", sentence)
		}
	}
	return out.String()
}
