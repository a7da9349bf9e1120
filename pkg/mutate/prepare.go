// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mutate

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/lanyard-dev/lanyard/internal/provider"
	"github.com/lanyard-dev/lanyard/internal/rawjson"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

// Prepared contains the additions to all pods of a ServiceAccount with the same Choice. It is
// immutable.
type Prepared struct {
	annotations map[string]string // of the ServiceAccount
	account     *annotations.ServiceAccount
	identities  []annotations.Identity // without the one that is left to a peer
	injection   *encodedInjection
}

// key contains everything that the result of Prepare depends on, except the settings and the
// annotations of the ServiceAccount.
type key struct {
	namespace, serviceAccount string
	expirationSeconds         int64
	windows                   bool
	leftToPeer                string
}

func (c *Choice) key() key {
	return key{c.namespace, c.pod.read.ServiceAccountName, c.TokenExpirationSeconds, c.pod.read.Windows, c.LeftToPeer}
}

// Prepare computes the additions to pods of the ServiceAccount. It returns nil if the
// ServiceAccount asks for no identity, or only for one that the pod gets from another
// webhook. The error is a *reason.Error.
func (c *Choice) Prepare(serviceAccount *annotations.Object) (*Prepared, error) {
	account, err := Account(c.settings, serviceAccount)
	if err != nil || account == nil {
		return nil, err
	}
	expiration, errs := c.settings.Expiration(&c.Pod, account)
	if len(errs) > 0 {
		return nil, invalid("pod", c.name(), errs)
	}
	identities := slices.DeleteFunc(slices.Clone(account.Identities), func(i annotations.Identity) bool { return i.Provider.Name == c.LeftToPeer })
	if len(identities) == 0 {
		return nil, nil
	}
	injection := newInjection(provider.NewInjection(identities, &provider.Subject{
		Namespace: serviceAccount.Namespace, ServiceAccount: serviceAccount.Name, MountPath: c.settings.TokenMountPath,
		TokenExpirationSeconds: expiration, Windows: c.pod.read.Windows,
	}))
	injection.verify, injection.verifyImage = account.Verify, c.settings.VerifyImage
	return &Prepared{annotations: serviceAccount.Annotations, account: account, identities: identities, injection: injection}, nil
}

// Limits of a Cache. A user chooses the annotations of a ServiceAccount, and with the lifetime
// that a pod asks for, any number of entries of one ServiceAccount.
const (
	// maxCachedBytes is the memory of all entries. An entry for three clouds takes about 15 kB.
	maxCachedBytes = 2 << 20
	// An entry takes less than entryBytes, and copiesOfText times the texts of its annotations
	// and variables, and of what it writes on the pod.
	entryBytes, copiesOfText = 4 << 10, 8
)

// Cache caches the results of Prepare, because most pods are replicas. All calls must use the
// same settings. The zero value is ready to use, and safe for concurrent use.
type Cache struct {
	mu      sync.RWMutex
	entries map[key]*Prepared
	bytes   int // of the entries, at most maxCachedBytes
}

// Prepare returns the result of choice.Prepare, from the cache if possible.
func (c *Cache) Prepare(choice *Choice, serviceAccount *annotations.Object) (*Prepared, error) {
	if len(serviceAccount.Annotations) == 0 {
		return choice.Prepare(serviceAccount) // which takes no time
	}
	key := choice.key()
	if entry := c.get(key); entry != nil && maps.Equal(entry.annotations, serviceAccount.Annotations) {
		return entry, nil
	}
	entry, err := choice.Prepare(serviceAccount)
	if entry != nil {
		c.put(key, entry)
	}
	return entry, err
}

func (c *Cache) get(k key) *Prepared {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.entries[k]
}

// put adds an entry. It empties a full cache, because entries in use are soon added again.
func (c *Cache) put(k key, entry *Prepared) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if old := c.entries[k]; old != nil {
		c.bytes -= old.bytes()
	}
	size := entry.bytes()
	if c.bytes += size; c.entries == nil || c.bytes > maxCachedBytes {
		c.entries, c.bytes = map[key]*Prepared{}, size
	}
	c.entries[k] = entry
}

// bytes returns an upper bound of the memory of the entry.
func (p *Prepared) bytes() int {
	text := len(p.injection.allAnnotations)
	for key, value := range p.annotations {
		text += len(key) + len(value)
	}
	for _, variable := range p.injection.environment {
		text += len(variable)
	}
	return entryBytes + copiesOfText*text
}

// encodedInjection is a provider.Injection that is encoded once for the patches of many pods.
// It is immutable.
type encodedInjection struct {
	mountPath string
	providers []encodedProvider
	// annotations are the annotations that Lanyard writes.
	annotations []annotation
	// allAnnotations is the JSON object of all annotations.
	allAnnotations []byte
	// label is the label of an injected pod.
	label annotation
	// environment contains the variables of all providers, for a container that sets none of
	// them.
	environment [][]byte
	// podNames reports whether the value of a variable in environment is the name of the pod.
	podNames bool
	// conditional reports whether a provider gives its variables only to some containers.
	conditional bool
	// volumes are the token volume under each of its possible names.
	volumes [2]encodedVolume
	// maxContainerBytes is an upper bound of the bytes that one container adds to a patch.
	maxContainerBytes int
	// verify is ServiceAccount.Verify, and verifyImage is Settings.VerifyImage.
	verify, verifyImage string
	// known are the names of the variables that providers set or warn of.
	known map[string]struct{}
}

// encodedProvider is a provider with its variables encoded.
type encodedProvider struct {
	*provider.Provider
	variables [][]byte
	// fieldPath is the credential file's annotation for the downward API.
	fieldPath string
	// copied is the volume for the token's copy, if Copy has a path.
	copied encodedVolume
}

// newInjection encodes an injection.
func newInjection(injection *provider.Injection) *encodedInjection {
	result := encodedInjection{mountPath: injection.MountPath, known: map[string]struct{}{}}
	result.annotations = make([]annotation, 1)
	for i := range injection.Providers {
		p := encodedProvider{Provider: &injection.Providers[i]}
		if p.File.Path != "" {
			file := newAnnotation(annotations.Prefix+p.File.Annotation, p.File.Content, true)
			p.fieldPath = "metadata.annotations['" + file.key + "']"
			result.annotations = append(result.annotations, file)
		}
		for _, v := range p.Variables {
			encoded := withValue(&v)
			if v.PodName != "" {
				result.podNames = true
				field := fmt.Appendf(nil, `{"name":%s,"valueFrom":{"fieldRef":{"apiVersion":"v1","fieldPath":%s}}}`, quoted(v.Name), quoted(annotations.PodNameField))
				result.maxContainerBytes += max(0, len(encoded)-len(field))
				encoded = field
			}
			p.variables = append(p.variables, encoded)
			result.known[v.Name] = struct{}{}
		}
		result.conditional = result.conditional || p.Needs != ""
		for _, shadow := range p.Shadows {
			result.known[shadow.Name] = struct{}{}
		}
		for _, names := range p.Synonyms {
			for _, name := range names {
				result.known[name] = struct{}{}
			}
		}
		result.environment = append(result.environment, p.variables...)
		result.providers = append(result.providers, p)
	}
	result.annotations[0] = newAnnotation(annotations.Injected, strings.Join(result.Providers(), ","), false)
	var members [][]byte
	for _, a := range result.annotations {
		members = append(members, a.member)
	}
	result.allAnnotations = fmt.Appendf(nil, "{%s}", bytes.Join(members, []byte(",")))
	result.label = newAnnotation(annotations.IdentityLabel, annotations.IdentityInjected, false)
	result.label.path = "/metadata/labels/" + rawjson.EscapePointer(annotations.IdentityLabel)
	result.encodeVolumes()
	return &result
}

// withValue encodes a variable with its value, and not with the name of the pod.
func withValue(v *annotations.Variable) []byte {
	return fmt.Appendf(nil, `{"name":%s,"value":%s}`, quoted(v.Name), quoted(v.Value))
}

// encodeVolumes encodes the volumes and mounts, and adds the rest to maxContainerBytes.
func (i *encodedInjection) encodeVolumes() {
	for n, name := range []string{VolumeName, FallbackVolumeName} {
		i.volumes[n] = newEncodedVolume(name, i.mountPath, i.sources())
	}
	longest := i.volumes[1].mounts
	for n := range i.providers {
		if p := &i.providers[n]; p.Copy.Path != "" {
			p.copied = newEncodedVolume(p.Copy.Volume, p.Copy.MountPath, [][]byte{tokenSourceOf(&p.Token, p.Copy.Path)})
			longest = append(longest, p.copied.mounts...)
		}
	}
	i.maxContainerBytes += rawjson.SizeOfExtend(maxPathBytes, i.environment) + rawjson.SizeOfExtend(maxPathBytes, longest)
}

// maxAdditionBytes is enough for the longest values of the three clouds, or usual values of more
// than ten providers.
const maxAdditionBytes = (20 << 10) * 3 / 7

// checkSize returns an error if the identities would add more to each container than the
// webhook has memory for.
func (i *encodedInjection) checkSize() error {
	if i.maxContainerBytes > maxAdditionBytes {
		return fmt.Errorf("the identities add %d bytes to each container, want at most %d", i.maxContainerBytes, maxAdditionBytes)
	}
	return nil
}

// Providers lists the names of the providers, sorted.
func (i *encodedInjection) Providers() []string {
	var names []string
	for _, p := range i.providers {
		names = append(names, p.Name)
	}
	return names
}
