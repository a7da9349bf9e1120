// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/lanyard-dev/lanyard/internal/annotations"
	"github.com/lanyard-dev/lanyard/internal/injected"
	"github.com/lanyard-dev/lanyard/internal/peer"
)

// Difference is one way in which a new pod differs from a running one.
type Difference struct {
	Container string `json:"container,omitempty"`
	// What is the meaning of the value that differs, such as the role.
	What string `json:"what"`
	// Running and New are the values; empty for none.
	Running string `json:"running"`
	New     string `json:"new"`
}

// facts are the credentials of a container by their meaning.
type facts map[string]string

// Compare compares the credentials of a running pod, which the peer gave it, with the
// credentials of a new pod: by meaning, not by the names of volumes. It returns nil if they are the
// same. The token may be at other paths in the new pod, but must still be at the old ones.
func Compare(keys *annotations.Keys, running, fresh *corev1.Pod) []Difference {
	var result []Difference
	if fresh.Annotations[keys.Injected] == "" {
		result = append(result, Difference{What: "injected by Lanyard", New: "no"})
	}
	others := containersOf(keys, fresh)
	for _, c := range containersOf(keys, running) {
		i := slices.IndexFunc(others, func(other injected.Container) bool { return other.Name == c.Name })
		if i < 0 {
			if !addedByPeer(c.Name) {
				result = append(result, Difference{Container: c.Name, What: "container", Running: "yes"})
			}
			continue
		}
		was, is := factsOf(keys, running, &c), factsOf(keys, fresh, &others[i])
		for _, what := range slices.Sorted(maps.Keys(was)) {
			if is[what] != was[what] {
				result = append(result, Difference{Container: c.Name, What: what, Running: was[what], New: is[what]})
			}
		}
		for _, what := range slices.Sorted(maps.Keys(is)) {
			// More copies of a token do no harm.
			if _, found := was[what]; !found && !strings.HasPrefix(what, tokenAt) {
				result = append(result, Difference{Container: c.Name, What: what, New: is[what]})
			}
		}
	}
	return result
}

// HasCredentials reports whether a pod has a token for a cloud, and variables that make
// a program use it. Keys in variables or in a Secret do not count.
func HasCredentials(keys *annotations.Keys, pod *corev1.Pod) bool {
	return slices.ContainsFunc(containersOf(keys, pod), func(c injected.Container) bool {
		for what := range factsOf(keys, pod, &c) {
			if what == "AWS audience" || what == "Azure audience" || what == "Google audience" {
				return true
			}
		}
		return false
	})
}

// addedByPeer reports whether a peer adds containers of this name.
func addedByPeer(name string) bool {
	return slices.ContainsFunc(peer.All(), func(p *peer.Peer) bool { return slices.Contains(p.Containers, name) })
}

func containersOf(keys *annotations.Keys, pod *corev1.Pod) []injected.Container {
	read, err := injected.Read(pod, keys)
	if err != nil {
		panic(err) // a typed pod can be encoded, and decoded
	}
	return slices.DeleteFunc(read.Containers, func(c injected.Container) bool { return c.Kind == injected.Ephemeral })
}

// tokenAt starts the fact about a token at a path.
const tokenAt = "token at "

// factsOf returns the credentials of a container. A variable whose value comes from
// elsewhere is only known to be set.
func factsOf(keys *annotations.Keys, pod *corev1.Pod, c *injected.Container) facts {
	f, files, env := facts{}, map[string]injected.Token{}, map[string]string{}
	for _, v := range c.Variables {
		env[v.Name] = v.Value
		if v.From != nil {
			env[v.Name] = "(from elsewhere)"
		}
	}
	for _, token := range c.Tokens {
		files[token.File] = token
		f[tokenAt+token.File] = token.Audience
	}
	f.credential("AWS", files, env["AWS_WEB_IDENTITY_TOKEN_FILE"])
	f.add("AWS role", env["AWS_ROLE_ARN"])
	f.add("AWS region", cmp.Or(env["AWS_REGION"], env["AWS_DEFAULT_REGION"]))
	f.credential("Azure", files, env["AZURE_FEDERATED_TOKEN_FILE"])
	f.add("Azure client", env["AZURE_CLIENT_ID"])
	f.add("Azure tenant", env["AZURE_TENANT_ID"])
	f.add("Azure authority", strings.TrimSuffix(env["AZURE_AUTHORITY_HOST"], "/"))
	if file := env["GOOGLE_APPLICATION_CREDENTIALS"]; file != "" {
		f.google(keys, pod, files, file)
	}
	return f
}

func (f facts) add(what, value string) {
	if value != "" {
		f[what] = value
	}
}

// credential adds the token behind a variable.
func (f facts) credential(cloud string, files map[string]injected.Token, file string) {
	if file == "" {
		return
	}
	found, ok := files[injected.Slashes(file)]
	if !ok {
		f[cloud+" token"] = "none at " + file
		return
	}
	f.token(cloud, found)
}

func (f facts) token(cloud string, t injected.Token) {
	f[cloud+" audience"] = t.Audience
	f[cloud+" lifetime"] = fmt.Sprintf("%d s", t.ExpirationSeconds)
}

// googleCredentials are the fields that count in a file of Google.
type googleCredentials struct {
	Audience      string `json:"audience"`
	Impersonation string `json:"service_account_impersonation_url"`
	Source        struct {
		File string `json:"file"`
	} `json:"credential_source"`
}

// google adds the facts in the credential file of Google. Lanyard and the peer have its
// content, or the input for its content, in an annotation of the pod.
func (f facts) google(keys *annotations.Keys, pod *corev1.Pod, files map[string]injected.Token, file string) {
	const prefix = "cloud.google.com/"
	var parsed googleCredentials
	// The file is the one that the variable points to: a pod may have both.
	text := pod.Annotations[prefix+"external-credentials-json"]
	for _, d := range keys.Providers {
		if own := d.CredentialFile; own != nil && strings.HasSuffix(injected.Slashes(file), "/"+own.Path) {
			text = pod.Annotations[keys.Prefix+own.Annotation]
		}
	}
	switch {
	case text != "" && json.Unmarshal([]byte(text), &parsed) == nil:
	case pod.Annotations[prefix+"workload-identity-provider"] != "": // the container gcloud-setup writes it
		parsed.Audience = pod.Annotations[prefix+"workload-identity-provider"]
		parsed.Impersonation = "/" + pod.Annotations[prefix+"service-account-email"] + ":"
		parsed.Source.File = "/var/run/secrets/sts.googleapis.com/serviceaccount/token"
	default:
		f["Google credentials"] = "in a file that is not known: " + file
		return
	}
	_, provider, found := strings.Cut(parsed.Audience, "//iam.googleapis.com/")
	if !found {
		provider = parsed.Audience
	}
	f["Google provider"] = provider
	email, _, _ := strings.Cut(path.Base(parsed.Impersonation), ":")
	if parsed.Impersonation != "" {
		f["Google service account"] = email
	}
	f.credential("Google", files, parsed.Source.File)
}
