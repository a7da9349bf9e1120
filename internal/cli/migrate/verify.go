// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/lanyard-dev/lanyard/internal/injected"
	"github.com/lanyard-dev/lanyard/internal/peer"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
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

// Results of Compare.
const (
	// Same means that the new pod has the same credentials, or that neither pod has any.
	Same = "same"
	// Gains means that the new pod has credentials that the running pod lacks, and Loses
	// the opposite.
	Gains = "gains"
	Loses = "loses"
	// Differs means any other difference.
	Differs = "differs"
)

// Compare compares the credentials of a running pod, which the peer gave it, with the
// credentials of a new pod: by meaning, not by the names of volumes. The token may be at
// other paths in the new pod, but must still be at the previous paths.
func Compare(s *annotations.Settings, running, fresh *corev1.Pod) (state string, result []Difference) {
	before, after := factsOf(s, running), factsOf(s, fresh)
	for _, c := range slices.Concat(running.Spec.InitContainers, running.Spec.Containers) {
		was := before[c.Name]
		is, found := after[c.Name]
		if !found {
			if !slices.ContainsFunc(peer.All(), func(p *peer.Peer) bool { return slices.Contains(p.Containers, c.Name) }) {
				result = append(result, Difference{Container: c.Name, What: "container", Running: "yes"})
			}
			continue
		}
		all := maps.Clone(is)
		maps.Copy(all, was)
		for _, what := range slices.Sorted(maps.Keys(all)) {
			if was[what] != is[what] && !harmless(what, was[what], is) {
				result = append(result, Difference{Container: c.Name, What: what, Running: was[what], New: is[what]})
			}
		}
	}
	switch {
	case len(result) == 0 && fresh.Annotations[annotations.Injected] == "" && HasCredentials(s, running):
		return Differs, []Difference{{What: "injected by Lanyard", New: "no"}}
	case len(result) == 0:
		return Same, nil
	case !slices.ContainsFunc(result, func(d Difference) bool { return d.Running != "" }):
		return Gains, result
	case !slices.ContainsFunc(result, func(d Difference) bool { return d.New != "" }):
		return Loses, result
	}
	return Differs, result
}

// harmless reports whether a new pod may have another value: more copies of a token do no
// harm, and a program cannot have a path in its settings that changes with the version of
// the peer, if the same token is at the path in Azure's variable.
func harmless(what, was string, is facts) bool {
	file, isToken := strings.CutPrefix(what, tokenAt)
	return isToken && (was == "" || slices.ContainsFunc(peer.All(), func(p *peer.Peer) bool {
		return p.MovingPath != "" && strings.HasPrefix(file, p.MovingPath) && is["Azure audience"] == was
	}))
}

// HasCredentials reports whether a pod has a token for a cloud, and variables that make
// a program use it. Keys in variables or in a Secret do not count.
func HasCredentials(s *annotations.Settings, pod *corev1.Pod) bool {
	for _, f := range factsOf(s, pod) {
		if f["AWS audience"] != "" || f["Azure audience"] != "" || f["Google audience"] != "" {
			return true
		}
	}
	return false
}

// facts are the credentials of a container by their meaning.
type facts map[string]string

// tokenAt starts the fact about a token at a path.
const tokenAt = "token at "

// factsOf returns the credentials of a pod's containers, by their names. A variable whose
// value comes from elsewhere is only known to be set.
func factsOf(s *annotations.Settings, pod *corev1.Pod) map[string]facts {
	read, err := injected.Read(pod, s)
	if err != nil {
		panic(err) // a typed pod can be encoded, and decoded
	}
	result := map[string]facts{}
	for i := range read.Containers {
		c, f, env := &read.Containers[i], facts{}, map[string]string{}
		if c.Kind == injected.Ephemeral {
			continue
		}
		for _, v := range c.Variables {
			env[v.Name] = v.Value
			if v.From != nil {
				env[v.Name] = "(from elsewhere)"
			}
		}
		for _, token := range c.Tokens {
			f[tokenAt+token.File] = token.Audience
		}
		f.credential("AWS", c, env["AWS_WEB_IDENTITY_TOKEN_FILE"])
		f["AWS role"] = env["AWS_ROLE_ARN"]
		f["AWS region"] = cmp.Or(env["AWS_REGION"], env["AWS_DEFAULT_REGION"])
		f.credential("Azure", c, env["AZURE_FEDERATED_TOKEN_FILE"])
		f["Azure client"] = env["AZURE_CLIENT_ID"]
		f["Azure tenant"] = env["AZURE_TENANT_ID"]
		f["Azure authority"] = strings.TrimSuffix(env["AZURE_AUTHORITY_HOST"], "/")
		f.google(c, env["GOOGLE_APPLICATION_CREDENTIALS"], pod, read)
		result[c.Name] = f
	}
	return result
}

// credential adds the token behind a variable.
func (f facts) credential(cloud string, c *injected.Container, file string) {
	i := slices.IndexFunc(c.Tokens, func(t injected.Token) bool { return t.File == injected.Slashes(file) })
	if i >= 0 {
		f[cloud+" audience"] = c.Tokens[i].Audience
		f[cloud+" lifetime"] = fmt.Sprintf("%d s", c.Tokens[i].ExpirationSeconds)
	} else if file != "" {
		f[cloud+" token"] = "none at " + file
	}
}

// google adds the facts in the credential file of Google. Lanyard and the peer have the
// content, or the input for the content, in annotations of the pod.
func (f facts) google(c *injected.Container, file string, pod *corev1.Pod, read *injected.Pod) {
	if file == "" {
		return
	}
	peers, _ := peer.Named([]string{"gcp"})
	gcp := peers[0]
	// The file is the one that the variable points to: a pod may have both.
	text := pod.Annotations[gcp.Credentials]
	if c.TakesPart && strings.HasPrefix(injected.Slashes(file), injected.Slashes(read.MountPath)+"/") {
		text = read.Files["gcp"]
	}
	var parsed struct {
		Audience      string `json:"audience"`
		Impersonation string `json:"service_account_impersonation_url"`
		Source        struct {
			File string `json:"file"`
		} `json:"credential_source"`
	}
	switch {
	case text != "" && json.Unmarshal([]byte(text), &parsed) == nil:
	case gcp.Asks(pod.Annotations): // the container of the peer writes the file
		parsed.Audience = pod.Annotations[gcp.Identity[0]]
		parsed.Impersonation = pod.Annotations[gcp.Identity[1]]
		parsed.Source.File = gcp.TokenPath
	default:
		f["Google credentials"] = "in a file that is not known: " + file
		return
	}
	audience := strings.SplitAfter(parsed.Audience, "//iam.googleapis.com/")
	f["Google provider"] = audience[len(audience)-1]
	f["Google service account"], _, _ = strings.Cut(parsed.Impersonation[strings.LastIndex(parsed.Impersonation, "/")+1:], ":")
	f.credential("Google", c, parsed.Source.File)
}
