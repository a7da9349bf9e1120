// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package mutate works out what has to be added to a pod's JSON so that it
// carries an injection: a JSON Patch (RFC 6902) of add operations alone. It
// reads only the fields that the decision needs and never writes back the
// others, so a field that it does not know cannot be lost.
package mutate

import (
	"bytes"
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/lanyard-dev/lanyard/internal/jsonscan"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

// Fields of a pod's spec that hold containers.
const (
	initContainers      = "initContainers"
	containers          = "containers"
	ephemeralContainers = "ephemeralContainers"
)

// Bounds of what is worked on. An apiserver stores objects of up to 1.5 MiB,
// but sends larger ones to be admitted; a pod of very many tiny containers must
// not fill the webhook's memory.
const (
	maxContainers = 512     // of all kinds together
	maxElements   = 32768   // containers, variables, mounts and volumes together
	maxPatchBytes = 3 << 19 // 1.5 MiB
)

// ErrTooLarge is in the error for a pod that is over the bounds.
var ErrTooLarge = errors.New("the pod is larger than an API server stores")

// Pod is what the decision needs of a pod. It refers to the JSON it was read
// from, which must not change while the Pod is in use.
type Pod struct {
	// ServiceAccountName is never empty: the default is filled in.
	ServiceAccountName string
	// Annotations are those under Lanyard's prefix; nil where there is none.
	Annotations map[string]string
	// Mirror: the pod mirrors a static pod.
	Mirror bool
	// Windows: the pod says that it runs on Windows.
	Windows bool

	name, generateName []byte

	hasMetadata    bool
	hasAnnotations bool
	volumes        list
	volumesByName  map[string]volume // Lanyard's two names only

	text     jsonscan.Scanner // what the pod was read from
	elements int              // how many were read

	// The containers' variables and mounts stand in one list each: most pods
	// have few of them, in many containers.
	containers []container
	detailed   bool // vars and places are read
	vars       []envVar
	places     []place

	plans []plan // of Create, for their memory
}

// Name is the pod's name, or the start of a name that is yet to be made, for
// messages.
func (p *Pod) Name() string {
	if len(p.name) == 0 {
		return string(p.generateName)
	}
	return string(p.name)
}

// list is a list as it stands in the JSON. The zero value is a list that is
// absent or null.
type list struct {
	present  bool
	elements []byte // without the brackets
	count    int
}

// volume is what is needed of a volume that has one of Lanyard's names.
type volume struct {
	tokens []tokenSource
	files  []fileSource
}

type tokenSource struct{ audience, path string }

type fileSource struct{ fieldPath, path string }

type container struct {
	field string // of the spec
	index int
	name  []byte
	// Where its lists stand in the text, the zero Mark for one that it has not.
	envAt, mountsAt, devicesAt jsonscan.Mark

	env    list
	mounts list
	vars   span // of the pod's
	places span // of the pod's
}

// span is a part of a list.
type span struct{ from, to int }

type envVar struct {
	name, value []byte
	derived     bool // from valueFrom: the value is not known here
}

// place is where something is mounted, or mapped as a device.
type place struct {
	path    []byte
	volume  []byte // nil for a device
	partial bool   // a subPath
}

// ParsePod reads the JSON of a pod, in all detail. Where a field that it needs
// has the wrong JSON type, the error says where.
func ParsePod(raw []byte, keys *annotations.Keys) (*Pod, error) {
	s, pod := jsonscan.New(raw), new(Pod)
	if err := pod.Read(s, keys); err != nil {
		return nil, err
	}
	if err := s.End(); err != nil {
		return nil, fmt.Errorf("pod: %w", err)
	}
	return pod, pod.ReadDetails(keys)
}

// Read is ParsePod for a pod that is a value in a longer text: it reads the
// value that comes next, without the details. What was in p before is gone, and
// its memory is used.
func (p *Pod) Read(s *jsonscan.Scanner, keys *annotations.Keys) error {
	if s.Kind() != jsonscan.Object {
		return fmt.Errorf("pod: got %s, want object", s.Kind())
	}
	*p = Pod{text: *s, containers: p.containers[:0], vars: p.vars[:0], places: p.places[:0], plans: p.plans[:0]}
	r := reader{Scanner: s, keys: keys, pod: p}
	err := r.Object(func(key []byte) error {
		switch string(key) {
		case "metadata":
			return r.metadata()
		case "spec":
			return r.spec()
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("pod: %w", err)
	}
	if p.ServiceAccountName == "" {
		p.ServiceAccountName = "default"
	}
	return nil
}

// ReadDetails reads the variables and the mounts of the containers, if that was
// not done yet. Create and AddEphemeral need them; the pods of accounts without
// an identity, which are most, do not.
func (p *Pod) ReadDetails(keys *annotations.Keys) error {
	if p.detailed {
		return nil
	}
	p.detailed = true
	r := reader{Scanner: &p.text, keys: keys, pod: p}
	for i := range p.containers {
		c := &p.containers[i]
		if err := r.details(c); err != nil {
			return fmt.Errorf("pod: spec: %s: [%d]: %w", c.field, c.index, err)
		}
	}
	return nil
}

// reader fills a Pod on its way through the JSON.
type reader struct {
	*jsonscan.Scanner
	keys *annotations.Keys
	pod  *Pod
}

// in says under which name an error was found.
func in(name string, err error) error {
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

func (r *reader) text(into *string) error {
	text, err := r.String()
	*into = string(text)
	return err
}

// raw reads a string without copying it.
func (r *reader) raw(into *[]byte) (err error) {
	*into, err = r.String()
	return err
}

func (r *reader) metadata() error {
	r.pod.hasMetadata = r.Kind() == jsonscan.Object
	return in("metadata", r.Object(func(key []byte) error {
		switch string(key) {
		case "name":
			return in("name", r.raw(&r.pod.name))
		case "generateName":
			return in("generateName", r.raw(&r.pod.generateName))
		case "annotations":
			return in("annotations", r.annotations())
		}
		return nil
	}))
}

func (r *reader) annotations() error {
	r.pod.hasAnnotations = r.Kind() == jsonscan.Object
	return r.Object(func(key []byte) error {
		if string(key) == annotations.MirrorPodKey {
			r.pod.Mirror = true
		}
		if !bytes.HasPrefix(key, []byte(r.keys.Prefix)) {
			return nil
		}
		name := string(key)
		value, err := r.String()
		if r.pod.Annotations == nil {
			r.pod.Annotations = map[string]string{}
		}
		r.pod.Annotations[name] = string(value)
		return in(name, err)
	})
}

func (r *reader) spec() error {
	return in("spec", r.Object(func(key []byte) (err error) {
		switch string(key) {
		case "serviceAccountName":
			return in("serviceAccountName", r.text(&r.pod.ServiceAccountName))
		case "os":
			return in("os", r.windows("name"))
		case "nodeSelector":
			return in("nodeSelector", r.windows("kubernetes.io/os"))
		case "volumes":
			r.pod.volumes, err = r.list(r.volume)
			return in("volumes", err)
		case initContainers:
			return r.containers(initContainers)
		case containers:
			return r.containers(containers)
		case ephemeralContainers:
			return r.containers(ephemeralContainers)
		}
		return nil
	}))
}

// windows notes whether the member of this name says "windows".
func (r *reader) windows(member string) error {
	return r.Object(func(key []byte) error {
		if string(key) != member {
			return nil
		}
		value, err := r.String()
		r.pod.Windows = r.pod.Windows || string(value) == "windows"
		return err
	})
}

// list reads a list and keeps where its elements stand.
func (r *reader) list(element func(index int) error) (list, error) {
	if r.Kind() == jsonscan.Null {
		return list{}, r.Skip()
	}
	start, l := r.Offset(), list{present: true}
	err := r.Array(func(i int) error {
		l.count++
		if r.pod.elements++; r.pod.elements > maxElements {
			return fmt.Errorf("%w: it has more than %d containers, variables, mounts and volumes", ErrTooLarge, maxElements)
		}
		if err := element(i); err != nil {
			return fmt.Errorf("[%d]: %w", i, err)
		}
		return nil
	})
	if err != nil {
		return list{}, err
	}
	raw := r.Since(start)
	l.elements = bytes.TrimSpace(raw[1 : len(raw)-1])
	return l, nil
}

// volume keeps the volumes that have one of Lanyard's names. The name may come
// after the source, so the source is read when the name is known.
func (r *reader) volume(int) error {
	var name []byte
	var projected *jsonscan.Mark
	err := r.Object(func(key []byte) error {
		switch string(key) {
		case "name":
			return in("name", r.raw(&name))
		case "projected":
			mark := r.Mark()
			projected = &mark
		}
		return nil
	})
	if err != nil || string(name) != VolumeName && string(name) != FallbackVolumeName {
		return err
	}
	var v volume
	if projected != nil {
		end := r.Mark()
		r.Return(*projected)
		err = in("projected", r.projected(&v))
		r.Return(end)
	}
	if r.pod.volumesByName == nil {
		r.pod.volumesByName = map[string]volume{}
	}
	r.pod.volumesByName[string(name)] = v
	return err
}

func (r *reader) projected(v *volume) error {
	return r.Object(func(key []byte) error {
		if string(key) != "sources" {
			return nil
		}
		return r.Array(func(int) error { return r.source(v) })
	})
}

func (r *reader) source(v *volume) error {
	return r.Object(func(key []byte) error {
		switch string(key) {
		case "serviceAccountToken":
			var t tokenSource
			err := r.Object(func(key []byte) error {
				switch string(key) {
				case "audience":
					return r.text(&t.audience)
				case "path":
					return r.text(&t.path)
				}
				return nil
			})
			v.tokens = append(v.tokens, t)
			return in("serviceAccountToken", err)
		case "downwardAPI":
			return in("downwardAPI", r.downwardAPI(v))
		}
		return nil
	})
}

func (r *reader) downwardAPI(v *volume) error {
	return r.Object(func(key []byte) error {
		if string(key) != "items" {
			return nil
		}
		return r.Array(func(int) error {
			var f fileSource
			err := r.Object(func(key []byte) error {
				switch string(key) {
				case "path":
					return r.text(&f.path)
				case "fieldRef":
					return r.Object(func(key []byte) error {
						if string(key) != "fieldPath" {
							return nil
						}
						return r.text(&f.fieldPath)
					})
				}
				return nil
			})
			v.files = append(v.files, f)
			return err
		})
	})
}

func (r *reader) containers(field string) error {
	_, err := r.list(func(i int) error {
		if len(r.pod.containers) == maxContainers {
			return fmt.Errorf("%w: it has more than %d containers", ErrTooLarge, maxContainers)
		}
		c := container{field: field, index: i}
		err := r.container(&c)
		r.pod.containers = append(r.pod.containers, c)
		return err
	})
	return in(field, err)
}

// container reads a container, and of its lists where they stand.
func (r *reader) container(c *container) error {
	return r.Object(func(key []byte) error {
		switch string(key) {
		case "name":
			return in("name", r.raw(&c.name))
		case "env":
			c.envAt = r.Mark()
		case "volumeMounts":
			c.mountsAt = r.Mark()
		case "volumeDevices":
			c.devicesAt = r.Mark()
		}
		return nil
	})
}

// details reads the lists of a container.
func (r *reader) details(c *container) (err error) {
	c.vars = span{len(r.pod.vars), len(r.pod.vars)}
	c.places = span{len(r.pod.places), len(r.pod.places)}
	if c.env, err = r.listAt(c.envAt, r.envVar); err != nil {
		return in("env", err)
	}
	if c.mounts, err = r.listAt(c.mountsAt, r.mount); err != nil {
		return in("volumeMounts", err)
	}
	if _, err = r.listAt(c.devicesAt, r.device); err != nil {
		return in("volumeDevices", err)
	}
	c.vars.to, c.places.to = len(r.pod.vars), len(r.pod.places)
	return nil
}

// listAt reads the list that stands there, if one does.
func (r *reader) listAt(at jsonscan.Mark, element func(index int) error) (list, error) {
	if at == (jsonscan.Mark{}) {
		return list{}, nil
	}
	r.Return(at)
	return r.list(element)
}

func (r *reader) envVar(int) error {
	r.pod.vars = append(r.pod.vars, envVar{})
	v := &r.pod.vars[len(r.pod.vars)-1]
	start := r.Mark()
	if r.usualEnvVar(v) {
		return nil
	}
	r.Return(start)
	return r.Object(func(key []byte) error {
		switch string(key) {
		case "name":
			return in("name", r.raw(&v.name))
		case "value":
			return in("value", r.raw(&v.value))
		case "valueFrom":
			v.derived = r.Kind() == jsonscan.Object
		}
		return nil
	})
}

func (r *reader) mount(int) error {
	r.pod.places = append(r.pod.places, place{volume: []byte{}})
	p := &r.pod.places[len(r.pod.places)-1]
	start := r.Mark()
	if r.usualMount(p) {
		return nil
	}
	r.Return(start)
	return r.Object(func(key []byte) error {
		switch string(key) {
		case "name":
			return in("name", r.raw(&p.volume))
		case "mountPath":
			return in("mountPath", r.raw(&p.path))
		case "subPath", "subPathExpr":
			text, err := r.String()
			p.partial = p.partial || len(text) > 0
			return in("subPath", err)
		}
		return nil
	})
}

// usualEnvVar reads a variable that is written as an apiserver writes most, and
// so does usualMount: without a walk through the members. Where they give false
// the scanner is anywhere.
func (r *reader) usualEnvVar(v *envVar) bool {
	if !r.Consume(`{"name":`) || r.raw(&v.name) != nil {
		return false
	}
	if r.Consume(`,"value":`) {
		return r.raw(&v.value) == nil && r.Consume(`}`)
	}
	v.derived = r.Consume(`,"valueFrom":`) && r.Kind() == jsonscan.Object
	return v.derived && r.Skip() == nil && r.Consume(`}`)
}

func (r *reader) usualMount(p *place) bool {
	if !r.Consume(`{"name":`) || r.raw(&p.volume) != nil {
		return false
	}
	r.Consume(`,"readOnly":true`)
	return r.Consume(`,"mountPath":`) && r.raw(&p.path) == nil && r.Consume(`}`)
}

func (r *reader) device(int) error {
	r.pod.places = append(r.pod.places, place{})
	p := &r.pod.places[len(r.pod.places)-1]
	return r.Object(func(key []byte) error {
		if string(key) != "devicePath" {
			return nil
		}
		return in("devicePath", r.raw(&p.path))
	})
}

// variable finds the container's variable of this name. Where there are
// several, the last is the one that the kubelet hands to the container.
func (p *Pod) variable(c *container, name string) *envVar {
	for i := c.vars.to - 1; i >= c.vars.from; i-- {
		if string(p.vars[i].name) == name {
			return &p.vars[i]
		}
	}
	return nil
}

// at finds what a container has at path, which is clean, or below it: a mount below would need
// a directory in a volume that is read-only. It is either the token volume
// itself, or taken by something else.
func (p *Pod) at(c *container, path, tokenVolume string) (mounted bool, taken *place) {
	for i := c.places.from; i < c.places.to; i++ {
		here := &p.places[i]
		if !p.Windows && !mayBeAt(here.path, path) {
			continue
		}
		switch got := clean(string(here.path), p.Windows); {
		case got == path && string(here.volume) == tokenVolume && !here.partial:
			mounted = true
		case got == path || strings.HasPrefix(got, path+"/"):
			taken = here
		}
	}
	return mounted, taken
}

// mayBeAt rules out, without a copy, the paths that are written as they are
// and begin otherwise.
func mayBeAt(got []byte, path string) bool {
	return len(got) == 0 || got[0] != '/' || bytes.HasPrefix(got, []byte(path)) || bytes.Contains(got, []byte("//")) || bytes.Contains(got, []byte("/."))
}

// String says what is there, for a person.
func (p *place) String() string {
	if p.volume == nil {
		return fmt.Sprintf("a device at %s", p.path)
	}
	return fmt.Sprintf("volume %q at %s", p.volume, p.path)
}

// clean gives a path one spelling: absolute, as the kubelet makes it. On
// Windows it may be written with a drive, with backslashes and in any case.
func clean(p string, windows bool) string {
	if windows {
		p = strings.ToLower(strings.ReplaceAll(p, `\`, "/"))
		if len(p) > 1 && p[1] == ':' {
			p = p[2:]
		}
	}
	return path.Clean("/" + p)
}
