// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mutate

import (
	"strings"

	"github.com/lanyard-dev/lanyard/internal/annotations"
	"github.com/lanyard-dev/lanyard/internal/jsonpatch"
	"github.com/lanyard-dev/lanyard/internal/provider"
)

// Injection is a provider.Injection, encoded for the patches of many pods. It
// does not change, and may be used concurrently.
type Injection struct {
	keys      *annotations.Keys
	mountPath string
	providers []encodedProvider
	// annotations are the annotations that Lanyard writes.
	annotations []annotation
	// environment has the variables of all providers, for a container that sets none
	// of them.
	environment [][]byte
	// volumes and mounts are for the token and its copies, with the usual names of the
	// volumes.
	volumes, mounts [][]byte
	// volumeNames are all names that the volumes can have.
	volumeNames []string
	// allAnnotations is the JSON object of all annotations.
	allAnnotations []byte
	// maxContainerBytes is the most that one container adds to a patch.
	maxContainerBytes int
	// known are the names of the variables that providers set or warn of.
	known map[string]struct{}
}

// encodedProvider is a provider with its variables encoded.
type encodedProvider struct {
	*provider.Provider
	variables [][]byte
	// fieldPath is the credential file's annotation for the downward API.
	fieldPath string
	// copied is the copy of the token, nil for none.
	copied *tokenCopy
}

// NewInjection encodes an injection. keys are the keys of the annotations that it
// writes.
func NewInjection(injection *provider.Injection, keys *annotations.Keys) *Injection {
	result := Injection{keys: keys, mountPath: injection.MountPath, known: map[string]struct{}{}}
	var files []annotation
	for i := range injection.Providers {
		p := encodedProvider{Provider: &injection.Providers[i]}
		if p.File.Path != "" {
			file := newAnnotation(keys.Prefix+p.File.Annotation, p.File.Content)
			file.secret = true
			p.fieldPath = "metadata.annotations['" + file.key + "']"
			files = append(files, file)
		}
		for _, v := range p.Variables {
			p.variables = append(p.variables, encodeEnvVar(v))
			result.known[v.Name] = struct{}{}
		}
		for _, name := range p.Shadows {
			result.known[name] = struct{}{}
		}
		result.environment = append(result.environment, p.variables...)
		p.copied = newTokenCopy(p.Provider)
		result.providers = append(result.providers, p)
	}
	result.annotations = append([]annotation{
		newAnnotation(keys.Injected, strings.Join(result.Providers(), ",")),
	}, files...)
	result.allAnnotations = encodeAnnotations(result.annotations)
	result.encodeVolumes()
	return &result
}

// encodeVolumes encodes the volumes and mounts, and sets maxContainerBytes.
func (i *Injection) encodeVolumes() {
	i.volumes = [][]byte{i.encodeVolume(VolumeName)}
	i.mounts = [][]byte{encodeMount(VolumeName, i.mountPath)}
	longest := [][]byte{encodeMount(FallbackVolumeName, i.mountPath)}
	i.volumeNames = []string{VolumeName, FallbackVolumeName}
	for _, p := range i.providers {
		if c := p.copied; c != nil {
			i.volumes = append(i.volumes, c.encodeVolume())
			i.mounts = append(i.mounts, encodeMount(c.Volume, c.MountPath))
			longest = append(longest, encodeMount(c.Volume, c.MountPath))
			i.volumeNames = append(i.volumeNames, c.Volume)
		}
	}
	i.maxContainerBytes = jsonpatch.SizeOfExtend(maxPathBytes, i.environment) + jsonpatch.SizeOfExtend(maxPathBytes, longest)
}

// Providers lists the names of the providers, sorted.
func (i *Injection) Providers() []string {
	var names []string
	for _, p := range i.providers {
		names = append(names, p.Name)
	}
	return names
}
