// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mutate

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/lanyard-dev/lanyard/internal/jsonpatch"
	"github.com/lanyard-dev/lanyard/internal/jsonscan"
	"github.com/lanyard-dev/lanyard/internal/provider"
	"github.com/lanyard-dev/lanyard/internal/texts"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/pkg/mutate/reason"
)

// Limits of the reader. The API server stores objects of up to 1.5 MiB, but
// sends larger ones to webhooks. A pod of very many tiny containers must not fill
// the memory of the webhook.
const (
	maxContainers = 512   // of all kinds together
	maxElements   = 32768 // containers, variables, mounts, devices and volumes together
	// maxAnnotations is more than there are keys: a pod with more has unknown ones.
	maxAnnotations = 32
	// maxValueBytes is more than the longest value of an annotation that Lanyard reads or
	// writes: a list of 512 names, or a credential file.
	maxValueBytes = 64 << 10
)

// ReadPod reads the JSON of a pod, which must not change while the Pod is in use.
func ReadPod(pod []byte, s *annotations.Settings) (*Pod, error) {
	p, scanner := new(Pod), jsonscan.New(pod)
	if err := p.read(scanner, s); err != nil {
		return nil, err
	}
	if err := scanner.End(); err != nil {
		return nil, fmt.Errorf("pod: %w", err)
	}
	return p, nil
}

// ReadNext reads the pod that is the next value of the decoder, which reads the text. It
// replaces the previous content of p and uses its memory again. The text must not change while
// the Pod is in use.
func (p *Pod) ReadNext(text []byte, decoder *jsontext.Decoder, s *annotations.Settings) error {
	return p.read(jsonscan.Continue(text, decoder), s)
}

// read reads the pod that is the next value of s.
//
// Volumes, variables and mounts are read later, by create and addEphemeral: the
// pods of ServiceAccounts without an identity, which are most, do not need them.
func (p *Pod) read(s *jsonscan.Scanner, settings *annotations.Settings) error {
	if s.Kind() != jsonscan.Object {
		return fmt.Errorf("pod: got %s, want object", jsonscan.Name(s.Kind()))
	}
	*p = Pod{containers: p.containers[:0], readOnly: p.readOnly, vars: p.vars, mounts: p.mounts, plans: p.plans, patch: p.patch}
	r := reader{Scanner: s, settings: settings, pod: p}
	err := r.Object(r.podMember)
	if p.ServiceAccountName == "" {
		p.ServiceAccountName = "default"
	}
	return withField("pod", err)
}

// reader fills a Pod from JSON.
type reader struct {
	*jsonscan.Scanner
	settings *annotations.Settings
	pod      *Pod
	names    []string // of the volumes to keep
	elements int      // of lists, as far as they were read
	seen     uint     // the bits of the members that are there, see once
}

// withField adds the name of a field to the error that was found in it.
func withField[T string | []byte](name T, err error) error {
	if err != nil {
		return fmt.Errorf("%s: %w", texts.Cut(name, texts.MaxShown), err)
	}
	return nil
}

// Object adds the member's name to the error of a member.
func (r *reader) Object(member func(key []byte) error) error {
	return r.Scanner.Object(func(key []byte) error { return withField(key, member(key)) })
}

// Array adds the index to the error of an element. A null is no element: no API server sends
// one, and very many would take more memory than their text.
func (r *reader) Array(element func(index int) error) error {
	return r.Scanner.Array(func(i int) error {
		if r.Kind() == jsonscan.Null {
			return nil
		}
		if err := element(i); err != nil {
			return fmt.Errorf("[%d]: %w", i, err)
		}
		return nil
	})
}

// bytes reads a string without copying it.
func (r *reader) bytes(into *[]byte) (err error) {
	*into, err = r.String()
	return err
}

// once returns an error for the second member of one of these names. JSON allows it (RFC
// 8259, section 4), but no API server sends it, and it would be read in addition to the first
// one. bit is the first one of the names in r.seen.
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
		r.pod.hasMetadata = r.Kind() == jsonscan.Object
		return r.Object(r.metadata)
	case "spec":
		return r.Object(r.specMember)
	}
	return nil
}

func (r *reader) metadata(key []byte) (err error) {
	if err := r.once(key, 2, "annotations", "labels"); err != nil {
		return err
	}
	switch string(key) {
	case "name":
		r.pod.name, err = r.StringUpTo(texts.MaxName)
	case "generateName":
		r.pod.generateName, err = r.StringUpTo(texts.MaxName)
	case "annotations":
		r.pod.hasAnnotations = r.Kind() == jsonscan.Object
		return r.Object(r.annotation)
	case "labels":
		r.pod.hasLabels = r.Kind() == jsonscan.Object
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
	if !bytes.HasPrefix(key, []byte(annotations.Prefix)) && (len(r.settings.PeerTokens) == 0 || r.settings.PeerToken(texts.Cut(key, texts.MaxKey)) == "") {
		return nil
	}
	name := texts.Cut(key, texts.MaxKey)
	if len(r.pod.Annotations) >= maxAnnotations && name != annotations.Inject {
		return nil
	}
	if r.pod.Annotations == nil {
		r.pod.Annotations = map[string]string{}
	}
	var value string
	err := r.ReadCut(&value, maxValueBytes)
	r.pod.Annotations[name] = value
	return err
}

func (r *reader) specMember(key []byte) (err error) {
	if err := r.once(key, 4, "os", "nodeSelector", string(initContainers), string(containers), string(ephemeralContainers)); err != nil {
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
		r.pod.volumesText, err = r.Raw()
	case string(initContainers):
		return r.containers(initContainers)
	case string(containers):
		return r.containers(containers)
	case string(ephemeralContainers):
		return r.containers(ephemeralContainers)
	}
	return err
}

// The labels of nodes by which a node selector makes a pod one of Windows. The second
// one is of before Kubernetes 1.14.
const (
	osLabel     = "kubernetes.io/os"
	betaOSLabel = "beta.kubernetes.io/os"
	windows     = "windows"
)

// IsWindows reports whether a pod with this name of spec.os and this node selector
// runs on Windows.
func IsWindows(os string, nodeSelector map[string]string) bool {
	return os == windows || nodeSelector[osLabel] == windows || nodeSelector[betaOSLabel] == windows
}

// windows sets Pod.Windows if a member of one of these names is "windows". Of two members of
// the same name, the last one counts.
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

func (r *reader) containers(k kind) error {
	return r.Array(func(index int) error {
		if len(r.pod.containers) == maxContainers {
			r.pod.tooManyContainers = true
			return nil
		}
		r.pod.containers = append(r.pod.containers, container{kind: k, index: index})
		return r.Object(r.containerMember)
	})
}

// containerMember reads a member of the last container.
func (r *reader) containerMember(key []byte) (err error) {
	c := &r.pod.containers[len(r.pod.containers)-1]
	switch string(key) {
	case "name":
		return r.bytes(&c.name)
	case "env":
		c.envText, err = r.Raw()
	case "volumeMounts":
		c.mountsText, err = r.Raw()
	case "volumeDevices":
		c.devicesText, err = r.Raw()
	}
	return err
}

// errTooLarge is wrapped by the errors for a pod that exceeds a limit.
var errTooLarge = errors.New("the pod is larger than an API server stores")

// readLists reads the volumes, and the variables and mounts of the containers. Its
// error is a *reason.Error.
//
// It keeps the volumes with one of the names.
func (p *Pod) readLists(names []string) error {
	p.readOnly, p.vars, p.mounts, p.plans = p.readOnly[:0], p.vars[:0], p.mounts[:0], p.plans[:0]
	p.patch.Reset()
	r := reader{Scanner: new(jsonscan.Scanner), pod: p, names: names, elements: len(p.containers)}
	var err error
	p.volumes, err = r.list("volumes", p.volumesText, r.volume)
	slices.SortFunc(p.readOnly, bytes.Compare)
	if p.tooManyContainers {
		err = fmt.Errorf("%w: it has more than %d containers", errTooLarge, maxContainers)
	}
	for i := range p.containers {
		if err == nil {
			err = r.container(&p.containers[i])
		}
	}
	switch {
	case errors.Is(err, errTooLarge):
		return &reason.Error{Reason: reason.TooLarge, Err: withField("pod: spec", err)}
	case err != nil:
		return &reason.Error{Reason: reason.InvalidReview, Err: withField("pod: spec", err)}
	}
	return nil
}

// container reads the lists of a container.
func (r *reader) container(c *container) (err error) {
	firstVar, firstMount := len(r.pod.vars), len(r.pod.mounts)
	c.varsList, err = r.list("env", c.envText, r.envVar)
	if err == nil {
		c.mountsList, err = r.list("volumeMounts", c.mountsText, r.volumeMount)
	}
	if err == nil {
		_, err = r.list("volumeDevices", c.devicesText, r.volumeDevice)
	}
	if err != nil {
		return fmt.Errorf("%s: [%d]: %w", c.kind, c.index, err)
	}
	c.vars, c.mounts = r.pod.vars[firstVar:], r.pod.mounts[firstMount:]
	return nil
}

// list reads the list of a field in text, which is nil if there is no list.
func (r *reader) list(field string, text []byte, element func(index int) error) (jsonpatch.List, error) {
	r.Reset(text)
	if text == nil || r.Kind() == jsonscan.Null {
		return jsonpatch.List{}, nil
	}
	err := r.Array(func(i int) error {
		if r.elements++; r.elements > maxElements {
			return fmt.Errorf("%w: it has more than %d containers, variables, mounts and volumes", errTooLarge, maxElements)
		}
		return element(i)
	})
	if err != nil {
		return jsonpatch.List{}, withField(field, err)
	}
	return jsonpatch.List{Present: true, Text: bytes.TrimSpace(text[1 : len(text)-1])}, nil
}

// ReadOnlyKinds lists the kinds of volumes that the kubelet mounts read-only: always, whatever
// the mount says, and if the member readOnly of the source is true. (The kubelet asks
// GetAttributes of a plugin in k8s.io/kubernetes/pkg/volume.) Inline disks of single clouds
// are not in the list.
func ReadOnlyKinds() (always, ifReadOnly []string) { return alwaysReadOnly, maybeReadOnly }

var (
	alwaysReadOnly = []string{"secret", "configMap", "downwardAPI", "projected", "image"}
	maybeReadOnly  = []string{"persistentVolumeClaim", "csi", "nfs", "iscsi", "fc"}
)

// volume keeps the names of the read-only volumes, and the volumes with one of the names.
// The name may come after the source, so the source is read when the name is known.
func (r *reader) volume(int) error {
	var name, projected []byte
	readOnly := false
	err := r.Object(func(key []byte) (err error) {
		isObject := r.Kind() == jsonscan.Object
		readOnly = readOnly || isObject && slices.Contains(alwaysReadOnly, string(key))
		switch {
		case string(key) == "name":
			return r.bytes(&name)
		case string(key) == "projected":
			projected, err = r.Raw()
		case isObject && slices.Contains(maybeReadOnly, string(key)):
			err = r.member("readOnly", func() error { return r.isTrue(&readOnly) })
		}
		return err
	})
	if readOnly {
		r.pod.readOnly = append(r.pod.readOnly, name)
	}
	if err != nil || !slices.Contains(r.names, string(name)) {
		return err
	}
	var sources []source
	if projected != nil {
		err = withField("projected", (&reader{Scanner: jsonscan.New(projected)}).projected(&sources))
	}
	if r.pod.sources == nil {
		r.pod.sources = map[string][]source{}
	}
	r.pod.sources[string(name)] = sources
	return err
}

// isTrue sets into if the value that comes next is true.
func (r *reader) isTrue(into *bool) error {
	text, err := r.Raw()
	*into = *into || string(text) == "true"
	return err
}

func (r *reader) projected(into *[]source) error {
	member := func(key []byte) error {
		switch string(key) {
		case "serviceAccountToken":
			return r.source(into)
		case "downwardAPI":
			return r.member("items", func() error {
				return r.Array(func(int) error { return r.source(into) })
			})
		}
		return nil
	}
	return r.member("sources", func() error {
		return r.Array(func(int) error { return r.Object(member) })
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

func (r *reader) source(into *[]source) error {
	var s source
	err := r.Object(func(key []byte) error {
		switch string(key) {
		case "audience":
			return r.ReadString(&s.audience)
		case "path":
			return r.ReadString(&s.path)
		case "fieldRef":
			return r.member("fieldPath", func() error { return r.ReadString(&s.fieldPath) })
		}
		return nil
	})
	if s != (source{}) { // very many empty ones would take more memory than their text
		*into = append(*into, s)
	}
	return err
}

func (r *reader) envVar(int) error {
	var v envVar
	err := r.Object(func(key []byte) error {
		switch string(key) {
		case "name":
			return r.bytes(&v.name)
		case "value":
			return r.bytes(&v.value)
		case "valueFrom":
			v.derived = r.Kind() == jsonscan.Object
			return r.member("fieldRef", func() error {
				return r.member("fieldPath", func() error {
					field, err := r.String()
					v.podName = string(field) == provider.PodNameField
					return err
				})
			})
		}
		return nil
	})
	r.pod.vars = append(r.pod.vars, v)
	return err
}

func (r *reader) volumeMount(index int) error {
	m := mount{index: index}
	err := r.Object(func(key []byte) error {
		switch string(key) {
		case "name":
			return r.bytes(&m.volume)
		case "mountPath":
			return r.bytes(&m.path)
		case "subPath", "subPathExpr":
			text, err := r.String()
			m.partial = m.partial || len(text) > 0
			return err
		case "readOnly":
			return r.isTrue(&m.readOnly)
		}
		return nil
	})
	r.pod.mounts = append(r.pod.mounts, m)
	return err
}

func (r *reader) volumeDevice(index int) error {
	m := mount{index: index, device: true}
	err := r.member("devicePath", func() error { return r.bytes(&m.path) })
	r.pod.mounts = append(r.pod.mounts, m)
	return err
}
