// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"github.com/lanyard-dev/lanyard/internal/rawjson"
	"github.com/lanyard-dev/lanyard/internal/texts"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

// Limits of Read. The API server stores objects of up to 1.5 MiB, but sends larger ones to
// webhooks. A pod of very many tiny containers must not fill the memory of the webhook.
const (
	// MaxContainers counts the containers of all kinds.
	MaxContainers = 512
	maxElements   = 32768 // of all lists together
	// maxAnnotations exceeds the number of known keys.
	maxAnnotations = 32
	// maxValueBytes is more than the longest value of an annotation that Lanyard reads or
	// writes: a list of 512 names, or a credential file.
	maxValueBytes = 64 << 10
)

// ErrTooLarge is wrapped by errors for pods that exceed a limit.
var ErrTooLarge = errors.New("the pod is larger than an API server stores")

var (
	errContainers = fmt.Errorf("%w: it has more than %d containers", ErrTooLarge, MaxContainers)
	errElements   = fmt.Errorf("%w: it has more than %d containers, variables, mounts and volumes", ErrTooLarge, maxElements)
)

// Read reads the pod that is the next value of the scanner, for a decision: it enforces
// limits, and keeps only annotations under Lanyard's prefix and those that leave a provider
// to a peer. It replaces the previous content of p and reuses its memory.
//
// It leaves volumes, variables and mounts to ReadLists, because the pods of ServiceAccounts
// without an identity, which are most, do not need them: reading them here would take 20 to
// 35 % longer, and a mistake in them must not deny these pods.
func (p *Pod) Read(s *rawjson.Scanner, settings *annotations.Settings) error {
	if s.Kind() != rawjson.Object {
		return fmt.Errorf("pod: got %s, want object", rawjson.KindName(s.Kind()))
	}
	*p = Pod{
		Containers: p.Containers[:0], Volumes: p.Volumes[:0], limited: true,
		readOnly: p.readOnly, variables: p.variables, mounts: p.mounts, sources: p.sources,
	}
	return (&reader{Scanner: s, settings: settings, pod: p}).read()
}

// ReadAll reads the JSON of a pod with all annotations and lists. null is an empty pod. It
// enforces no limits, because it is for pods that an API server has stored.
func ReadAll(text []byte) (*Pod, error) {
	p, scanner := new(Pod), rawjson.NewScanner(text)
	err := (&reader{Scanner: scanner, pod: p}).read()
	if err == nil {
		err = withField("pod", scanner.End())
	}
	if err == nil {
		p.elements, err = p.readLists()
		err = withField("pod: spec", err)
	}
	if err != nil {
		return nil, err
	}
	return p, nil
}

// reader fills a Pod from JSON.
type reader struct {
	*rawjson.Scanner
	settings *annotations.Settings // nil if all annotations are read
	pod      *Pod
	elements int  // of lists, as far as they were read
	seen     uint // the bits of the members that are there, see once
}

func (r *reader) read() error {
	err := r.Object(r.podMember)
	if r.pod.ServiceAccountName == "" {
		r.pod.ServiceAccountName = "default"
	}
	return withField("pod", err)
}

// withField adds the name of a field to the error that was found in it.
func withField[T string | []byte](name T, err error) error {
	if err != nil {
		return fmt.Errorf("%s: %w", texts.Cut(name, texts.MaxShown), err)
	}
	return nil
}

// Object is like Scanner.Object, and adds the name of a member to its error.
func (r *reader) Object(member func(key []byte) error) error {
	return r.Scanner.Object(func(key []byte) error { return withField(key, member(key)) })
}

// Array is like Scanner.Array, and adds the index of an element to its error. It skips null
// elements: no API server sends them, and very many would take more memory than their text.
func (r *reader) Array(element func(index int) error) error {
	return r.Scanner.Array(func(i int) error {
		if r.Kind() == rawjson.Null {
			return nil
		}
		if err := element(i); err != nil {
			return fmt.Errorf("[%d]: %w", i, err)
		}
		return nil
	})
}

// member reads one member of the object that comes next.
func (r *reader) member(name string, read func() error) error {
	return r.Object(func(key []byte) error {
		if string(key) != name {
			return nil
		}
		return read()
	})
}

// bytes reads a string without copying it.
func (r *reader) bytes(into *[]byte) (err error) {
	*into, err = r.String()
	return err
}

// text returns the JSON of the next value, without copying it, or nil for null.
func (r *reader) text(into *[]byte) (err error) {
	*into = nil
	if r.Kind() != rawjson.Null {
		*into, err = r.Raw()
	}
	return err
}

// isTrue sets into if the value that comes next is true.
func (r *reader) isTrue(into *bool) error {
	text, err := r.Raw()
	*into = *into || string(text) == "true"
	return err
}

// once returns an error if a member with one of these names occurs twice. JSON allows it (RFC
// 8259, section 4), but no API server sends it, and both would be read. bit is the bit of the
// first name in r.seen.
func (r *reader) once(key []byte, bit int, names ...string) error {
	i := slices.Index(names, string(key))
	if i < 0 {
		return nil
	}
	if seen := uint(1) << (bit + i); r.seen&seen == 0 {
		r.seen |= seen
		return nil
	}
	return errors.New("is there twice, want one member of this name")
}

func (r *reader) podMember(key []byte) error {
	if err := r.once(key, 0, "metadata", "spec"); err != nil {
		return err
	}
	switch string(key) {
	case "metadata":
		r.pod.HasMetadata = r.Kind() == rawjson.Object
		return r.Object(r.metadata)
	case "spec":
		return r.Object(r.spec)
	}
	return nil
}

func (r *reader) metadata(key []byte) (err error) {
	if err := r.once(key, 2, "annotations", "labels"); err != nil {
		return err
	}
	switch string(key) {
	case "name":
		r.pod.Name, err = r.StringUpTo(texts.MaxName)
	case "generateName":
		r.pod.GenerateName, err = r.StringUpTo(texts.MaxName)
	case "annotations":
		r.pod.HasAnnotations = r.Kind() == rawjson.Object
		return r.Object(r.annotation)
	case "labels":
		r.pod.HasLabels = r.Kind() == rawjson.Object
		return r.Object(r.label)
	}
	return err
}

func (r *reader) label(key []byte) error {
	switch string(key) {
	case annotations.Inject:
		return r.ReadCut(&r.pod.InjectLabel, texts.MaxShown)
	case annotations.IdentityLabel:
		return r.ReadCut(&r.pod.IdentityLabel, texts.MaxShown)
	}
	return nil
}

func (r *reader) annotation(key []byte) error {
	if string(key) == annotations.MirrorPod {
		r.pod.Mirror = true
	}
	if !r.isRead(key) {
		return nil
	}
	name := texts.Cut(key, texts.MaxKey)
	if r.pod.limited && len(r.pod.Annotations) >= maxAnnotations && name != annotations.Inject {
		return nil
	}
	if r.pod.Annotations == nil {
		r.pod.Annotations = map[string]string{}
	}
	var value string
	err := r.value(&value)
	r.pod.Annotations[name] = value
	return err
}

func (r *reader) value(into *string) error {
	if r.pod.limited {
		return r.ReadCut(into, maxValueBytes)
	}
	return r.ReadString(into)
}

// isRead reports whether the annotation is read.
func (r *reader) isRead(key []byte) bool {
	return r.settings == nil || bytes.HasPrefix(key, []byte(annotations.Prefix)) ||
		len(r.settings.PeerTokens) > 0 && r.settings.PeerToken(texts.Cut(key, texts.MaxKey)) != ""
}

func (r *reader) spec(key []byte) (err error) {
	if err := r.once(key, 4, "os", "nodeSelector", string(InitContainers), string(Containers), string(EphemeralContainers)); err != nil {
		return err
	}
	switch string(key) {
	case "serviceAccountName":
		return r.ReadCut(&r.pod.ServiceAccountName, texts.MaxName)
	case "serviceAccount": // its former name, which manifests may still have
		if r.pod.ServiceAccountName == "" {
			err = r.ReadCut(&r.pod.ServiceAccountName, texts.MaxName)
		}
		return err
	case "os":
		return r.windows("name")
	case "nodeSelector":
		return r.windows(osLabel, betaOSLabel)
	case "volumes":
		return r.text(&r.pod.VolumesText)
	case "securityContext":
		return r.text(&r.pod.securityText)
	case string(InitContainers):
		r.pod.HasInitContainers = r.Kind() == rawjson.Array
		return r.containers(InitContainers)
	case string(Containers):
		return r.containers(Containers)
	case string(EphemeralContainers):
		return r.containers(EphemeralContainers)
	}
	return err
}

// Node labels that select Windows nodes. betaOSLabel was used before Kubernetes 1.14.
const (
	osLabel     = "kubernetes.io/os"
	betaOSLabel = "beta.kubernetes.io/os"
	windows     = "windows"
)

// windows sets Pod.Windows if a member with one of these names is "windows". The last of
// several members with the same name wins.
func (r *reader) windows(members ...string) error {
	var is [2]bool
	err := r.Object(func(key []byte) error {
		i := slices.Index(members, string(key))
		if i < 0 {
			return nil
		}
		value, err := r.String()
		is[i] = string(value) == windows
		return err
	})
	r.pod.Windows = r.pod.Windows || is[0] || is[1]
	return err
}

func (r *reader) containers(k Kind) error {
	return r.Array(func(index int) error {
		if r.pod.limited && len(r.pod.Containers) == MaxContainers {
			r.pod.tooManyContainers = true
			return nil
		}
		r.pod.Containers = append(r.pod.Containers, Container{Kind: k, Index: index})
		return r.Object(r.containerMember)
	})
}

// containerMember reads a member of the last container.
func (r *reader) containerMember(key []byte) error {
	c := &r.pod.Containers[len(r.pod.Containers)-1]
	switch string(key) {
	case "name":
		return r.bytes(&c.Name)
	case "env":
		return r.text(&c.EnvText)
	case "volumeMounts":
		return r.text(&c.MountsText)
	case "volumeDevices":
		return r.text(&c.devicesText)
	case "args":
		if !r.pod.limited {
			return r.text(&c.ArgsText)
		}
	}
	return nil
}
