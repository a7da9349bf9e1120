// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package inject is the command inject. It injects identities into manifests without a
// cluster: it makes the decisions of the webhook, with the ServiceAccounts and Namespaces
// of the same manifests, and applies the same patches.
package inject

import (
	"bytes"
	"cmp"
	"context"
	_ "embed" // the help text
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/lanyard-dev/lanyard/internal/cli/cluster"
	"github.com/lanyard-dev/lanyard/internal/cli/command"
	"github.com/lanyard-dev/lanyard/internal/options"
	"github.com/lanyard-dev/lanyard/internal/rawjson"
	"github.com/lanyard-dev/lanyard/internal/texts"
	"github.com/lanyard-dev/lanyard/internal/webhook/injector"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/pkg/mutate"
	"github.com/lanyard-dev/lanyard/pkg/mutate/reason"
)

// Result is the decision about one object.
type Result struct {
	// Object names it: deployment/cart.
	Object    string `json:"object"`
	Namespace string `json:"namespace"`
	// Changed reports whether a patch was applied.
	Changed bool `json:"changed,omitempty"`
	// Denied reports whether the webhook would deny the object, or its pods.
	Denied bool `json:"denied,omitempty"`
	// Reason is the decision.
	Reason reason.Reason `json:"reason"`
	// Message is the error of a denial, or contains details of the reason.
	Message string `json:"message,omitempty"`
	// Warnings are the webhook's warnings.
	Warnings []string `json:"warnings,omitempty"`
}

// Inject changes the documents as the webhook would. It returns a Result for each object that the
// webhook would be called for, in their order. s contains the settings of the webhook, and
// namespace is the namespace of objects that do not name one. client reads objects that the
// documents lack; it may be nil. Inject returns an error if a document is not a Kubernetes object,
// or if the client fails.
func Inject(ctx context.Context, documents []*Document, s *annotations.Settings, namespace string, client kubernetes.Interface) ([]Result, error) {
	var objects []*object
	for _, d := range documents {
		err := d.eachObject(nil, d.json, func(o *object) {
			o.Namespace = cmp.Or(o.Namespace, namespace)
			objects = append(objects, o)
		})
		if err != nil {
			return nil, err
		}
	}
	run, err := newInjection(s, objects)
	if err != nil {
		return nil, err
	}
	if run.knowsCluster = client != nil; run.knowsCluster {
		if err := run.readCluster(ctx, client, objects); err != nil {
			return nil, err
		}
	}
	var results []Result
	for _, found := range objects {
		result, err := run.decide(found)
		if err != nil {
			return nil, found.error(err)
		}
		if result != nil {
			results = append(results, *result)
		}
	}
	return results, nil
}

// object is one object of a document.
type object struct {
	metav1.PartialObjectMetadata
	document *Document
	// path is where the object is in the document: empty, or its place in a list.
	path []string
	raw  json.RawMessage
	// whole is the object, for its pod template.
	whole unstructured.Unstructured
	// result is the decision of the mutating webhook about a ServiceAccount, and mutated is the
	// ServiceAccount afterwards.
	result  Result
	mutated json.RawMessage
}

// reference names the object for people.
func (o *object) reference() string {
	return strings.ToLower(o.Kind) + "/" + cmp.Or(o.Name, o.GenerateName)
}

// error names the object in an error.
func (o *object) error(err error) error {
	return fmt.Errorf("%s: %s: %w", o.document.source, o.reference(), err)
}

// is reports whether the object is of a kind of the core group.
func (o *object) is(kind string) bool { return o.APIVersion == "v1" && o.Kind == kind }

// injection holds the objects that decisions depend on, by name.
type injection struct {
	*annotations.Settings
	serviceAccounts map[types.NamespacedName]*annotations.Object
	namespaces      map[string]*annotations.Object
	// knowsCluster reports whether these are all objects that exist, not only those of the manifests.
	knowsCluster bool
}

// newInjection collects the ServiceAccounts and Namespaces.
func newInjection(s *annotations.Settings, objects []*object) (*injection, error) {
	run := &injection{Settings: s, serviceAccounts: map[types.NamespacedName]*annotations.Object{}, namespaces: map[string]*annotations.Object{}}
	for _, found := range objects {
		switch {
		case found.is("ServiceAccount"):
			if err := run.mutate(found); err != nil {
				return nil, found.error(err)
			}
		case found.is("Namespace"):
			run.namespaces[found.Name] = annotations.NamespaceObject(found)
		}
	}
	return run, nil
}

// mutate adds a ServiceAccount in its state after the response of the mutating webhook, and
// stores both in the object.
func (run *injection) mutate(o *object) error {
	o.mutated = o.raw
	if !slices.Contains(run.ExcludedNamespaces, o.Namespace) {
		response, err := injector.Annotate(run.Settings, o.Namespace, o.raw)
		if err != nil {
			return err
		}
		o.result = Result{Reason: response.Reason, Changed: response.Patch != nil, Warnings: response.Warnings}
		if o.result.Changed {
			if o.mutated, err = rawjson.Apply(o.raw, response.Patch.Bytes()); err != nil {
				return err
			}
		}
	}
	var meta metav1.PartialObjectMetadata
	if err := json.Unmarshal(o.mutated, &meta); err != nil {
		return err
	}
	account := annotations.ServiceAccountObject(&meta)
	account.Namespace = o.Namespace
	run.serviceAccounts[types.NamespacedName{Namespace: o.Namespace, Name: o.Name}] = account
	return nil
}

// namespace returns a Namespace. Manifests often omit it; it then has no annotations.
func (run *injection) namespace(name string) *annotations.Object {
	if found := run.namespaces[name]; found != nil {
		return found
	}
	return &annotations.Object{Name: name}
}

// pod decides about a pod of the namespace, and returns it with the patch.
func (run *injection) pod(namespace, serviceAccount string, raw json.RawMessage) (*mutate.Decision, json.RawMessage, error) {
	read, err := mutate.ReadPod(raw, run.Settings)
	if err != nil {
		return nil, nil, err
	}
	account := run.serviceAccounts[types.NamespacedName{Namespace: namespace, Name: serviceAccount}]
	decision, err := mutate.Decide(run.Settings, account, run.namespace(namespace), read)
	if err != nil {
		return nil, nil, err
	}
	raw, err = decision.Apply(raw)
	return decision, raw, err
}

// decide decides about one object and changes its document. It returns nil for an
// object that the webhook would not be called for.
func (run *injection) decide(o *object) (*Result, error) {
	path, isWorkload := cluster.TemplatePath(&o.whole)
	_, known := cluster.ByGroupKind(o.GroupVersionKind().GroupKind())
	result := &Result{Object: o.reference(), Namespace: o.Namespace}
	var after json.RawMessage
	var err error
	switch {
	case o.is("ServiceAccount") && !slices.Contains(run.ExcludedNamespaces, o.Namespace):
		valid, denial := injector.Validate(run.Settings, run.namespace(o.Namespace), o.mutated)
		result.Reason, result.Changed, after, err = o.result.Reason, o.result.Changed, o.mutated, denial
		result.Warnings = append(o.result.Warnings, valid.Warnings...)
	case isWorkload && !run.Excludes(o.Namespace, run.namespace(o.Namespace).Label):
		var decision *mutate.Decision
		if decision, after, err = run.pod(o.Namespace, cluster.ServiceAccountOf(&o.whole), at(o.raw, path)); err == nil {
			result.Reason, result.Changed = decision.Reason, decision.Patch != nil
			_, result.Warnings = decision.Texts()
		}
	case isWorkload:
		result.Reason, result.Message = reason.OptedOut, "its namespace opts out"
		return result, nil
	case known:
		return nil, errors.New("the pod template is missing")
	default:
		return nil, nil
	}
	denied, isDenied := errors.AsType[*reason.Error](err)
	switch {
	case isDenied && denied.Reason == reason.ServiceAccountNotFound:
		result.Reason, result.Message = denied.Reason, "the manifests do not have its ServiceAccount"
		if result.Denied = run.knowsCluster; result.Denied {
			result.Message = fmt.Sprintf("neither the manifests nor the cluster have its ServiceAccount %s: add it, or correct serviceAccountName", cluster.ServiceAccountOf(&o.whole))
		}
		return result, nil
	case isDenied:
		return &Result{Object: result.Object, Namespace: result.Namespace, Denied: true, Reason: denied.Reason, Message: denied.Err.Error()}, nil
	case err != nil:
		return nil, err
	}
	if result.Changed {
		err = o.document.replace(append(slices.Clone(o.path), path...), after)
	}
	return result, err
}

// at returns the JSON of a field that exists.
func at(raw json.RawMessage, path []string) json.RawMessage {
	for _, name := range path {
		var members map[string]json.RawMessage
		_ = json.Unmarshal(raw, &members) // TemplatePath has read the same JSON
		raw = members[name]
	}
	return raw
}

// replace replaces the value at path. It leaves everything else as it is.
func (d *Document) replace(path []string, value json.RawMessage) (err error) {
	d.changed = true
	if len(path) == 0 {
		d.json = value
		return nil
	}
	d.json, err = rawjson.Apply(d.json, fmt.Appendf(nil, `[{"op":"replace","path":%q,"value":%s}]`, "/"+strings.Join(path, "/"), value))
	return err
}

// eachObject calls do for the objects in a part of a document: one, the items of a list, or none.
// A list has objects as its items, and no lists.
func (d *Document) eachObject(path []string, raw json.RawMessage, do func(*object)) error {
	if raw == nil {
		return nil
	}
	if raw[0] != '{' {
		return fmt.Errorf("%s: not an object of Kubernetes: it has no apiVersion and no kind", d.source)
	}
	o := &object{document: d, path: path, raw: raw}
	if err := cmp.Or(json.Unmarshal(raw, &o.PartialObjectMetadata), json.Unmarshal(raw, &o.whole.Object)); err != nil {
		return fmt.Errorf("%s: not an object of Kubernetes: %w", d.source, err)
	}
	if o.Kind == "" || o.APIVersion == "" {
		return fmt.Errorf("%s: not an object of Kubernetes: apiVersion is %q and kind is %q", d.source, o.APIVersion, o.Kind)
	}
	if !strings.HasSuffix(o.Kind, "List") {
		do(o)
		return nil
	}
	var list struct {
		Items []json.RawMessage `json:"items"`
	}
	if len(path) > 0 { // each level would decode all levels below it again
		return o.error(fmt.Errorf("%s is a List in a List: write its items into the outer List", strings.Join(path, ".")))
	}
	if err := json.Unmarshal(raw, &list); err != nil {
		return fmt.Errorf("%s: %s: %w", d.source, o.Kind, err)
	}
	for i, item := range list.Items {
		if err := d.eachObject(append(slices.Clone(path), "items", strconv.Itoa(i)), item, do); err != nil {
			return err
		}
	}
	return nil
}

// Document is a part of a manifest: an object, a list of objects, or only comments.
type Document struct {
	source string // the file, for errors
	text   []byte // as it was read
	isJSON bool
	// json is the object, or nil if the document has none.
	json    []byte
	changed bool
}

// resource.Builder is not used here, because it decodes objects, and an object that does not
// change must be written as it was read, with its comments, its order and its list.

// Read reads the documents of a file, in YAML or JSON. source names the file in
// errors.
func Read(source string, text []byte) (documents []*Document, err error) {
	if documents, ok := readJSON(source, text); ok {
		return documents, nil
	}
	err = command.EachDocument(source, bytes.NewReader(text), func(part, object []byte) error {
		if string(object) == "null" {
			object = nil
		}
		documents = append(documents, &Document{source: source, text: part, json: object})
		return nil
	})
	return documents, err
}

// readJSON reads one or more JSON objects. It reports whether the text consists of these.
func readJSON(source string, text []byte) ([]*Document, bool) {
	var documents []*Document
	decoder := json.NewDecoder(bytes.NewReader(text))
	for {
		var raw json.RawMessage
		err := decoder.Decode(&raw)
		if errors.Is(err, io.EOF) {
			return documents, len(documents) > 0
		}
		if err != nil || raw[0] != '{' {
			return nil, false
		}
		documents = append(documents, &Document{source: source, text: raw, json: raw, isJSON: true})
	}
}

// Write writes the documents. Those that did not change are written as they were
// read. The others keep their format, but YAML loses its comments and its order.
func Write(w io.Writer, documents []*Document) error {
	separator := ""
	if slices.ContainsFunc(documents, func(d *Document) bool { return !d.isJSON }) {
		separator = "---\n"
	}
	for i, d := range documents {
		text, err := d.output()
		if err != nil {
			return fmt.Errorf("%s: %w", d.source, err)
		}
		if i > 0 {
			text = append([]byte(separator), text...)
		}
		if _, err := w.Write(text); err != nil {
			return err
		}
	}
	return nil
}

// lineBreaks replaces the line breaks of YAML that control a terminal: the text after a lone
// carriage return would hide the text before it.
var lineBreaks = strings.NewReplacer("\r", "\n", "\u0085", "\n")

// output returns the document with a newline at its end.
func (d *Document) output() (text []byte, err error) {
	var indented bytes.Buffer
	switch {
	case d.isJSON && d.changed:
		err = json.Indent(&indented, d.json, "", "    ")
		text = texts.EscapeJSON(indented.Bytes())
	case d.isJSON:
		text = texts.EscapeJSON(d.text)
	case d.changed:
		text, err = yaml.JSONToYAML(texts.EscapeJSON(d.json))
	default:
		text = []byte(lineBreaks.Replace(string(d.text)))
	}
	return append(bytes.TrimRight(text, "\n"), '\n'), err
}

// maxManifestBytes limits the manifests, which are all in memory until they are written.
const maxManifestBytes = 16 << 20

//go:embed help.txt
var help string

type injectCommand struct {
	*command.CLI
	command.Selection
	cluster bool
	options *options.Options
	// all are the flags of the webhook, for its configuration file.
	all *pflag.FlagSet
	// ofWebhook contains the names of the webhook's flags that the command accepts.
	ofWebhook []string
}

// NewCommand returns the command inject.
func NewCommand(c *command.CLI) *cobra.Command {
	k := &injectCommand{CLI: c, options: options.New(), ofWebhook: []string{"config"}}
	cmd := command.New(help, command.NoArgs, func(cmd *cobra.Command, _ []string) error { return k.run(cmd) })
	k.AddFiles(cmd)
	groups := k.options.Flags()
	k.all = options.AllFlags(groups)
	for _, name := range []string{"Injection", "Providers"} {
		groups.FlagSet(name).VisitAll(func(flag *pflag.Flag) {
			cmd.Flags().AddFlag(flag)
			k.ofWebhook = append(k.ofWebhook, flag.Name)
		})
	}
	config := *k.all.Lookup("config")
	config.Usage = "YAML file with settings of the webhook, as in its own --config. Settings about the server are ignored."
	cmd.Flags().AddFlag(&config)
	cmd.Flags().BoolVar(&k.cluster, "cluster", false, "Read from the cluster the settings of the webhook, and ServiceAccounts and Namespaces that the manifests lack. Cannot be combined with flags of the webhook.")
	return cmd
}

func (k *injectCommand) run(cmd *cobra.Command) error {
	if len(k.Files.Filenames) == 0 {
		return command.Usagef("--filename is missing: name a file or directory with manifests, or - for the standard input")
	}
	if err := command.Exclusive(cmd, "cluster", k.ofWebhook...); err != nil {
		return err
	}
	settings, err := k.webhookSettings(cmd.Context())
	if err != nil {
		return err
	}
	namespace, err := k.Namespace()
	if err != nil {
		return err
	}
	var documents []*Document
	err = k.EachText(k.In, maxManifestBytes, func(name string, text []byte) error {
		found, err := Read(name, text)
		documents = append(documents, found...)
		return err
	})
	if err != nil {
		return err
	}
	var client kubernetes.Interface
	if k.cluster {
		if client, _, err = k.Clients(); err != nil {
			return err
		}
	}
	results, err := Inject(cmd.Context(), documents, settings, namespace, client)
	if err != nil {
		return err
	}
	if denied := k.report(results); denied > 0 {
		return k.Found("the webhook would deny %s; nothing was written", texts.Count(denied, "object"))
	}
	return Write(k.Out, documents)
}

// webhookSettings returns the settings of the webhook in the cluster, or of the flags.
func (k *injectCommand) webhookSettings(ctx context.Context) (s *annotations.Settings, err error) {
	if k.cluster {
		s, err := k.Settings(ctx)
		if err == nil && k.CLI.Webhook.Unread != nil {
			err = fmt.Errorf("read the settings of the webhook: %w", k.CLI.Webhook.Unread)
		}
		return s, err
	}
	err = k.options.LoadConfig(k.all, os.ReadFile)
	if err == nil {
		s, err = k.options.Settings(annotations.CommonAPIServerAudiences())
	}
	if err != nil {
		return nil, command.Usagef("%w", err)
	}
	return s, nil
}

// report writes warnings and findings to the error stream, and returns the number of
// objects that are denied.
func (k *injectCommand) report(results []Result) (denied int) {
	for _, r := range results {
		name := r.Object + " in the namespace " + r.Namespace
		switch {
		case r.Denied:
			denied++
			k.Note("denied: %s: %s: %s", name, r.Reason, r.Message)
		case r.Reason == reason.ServiceAccountNotFound:
			k.Note("unchanged: %s: %s: %s", name, r.Reason, r.Message)
		}
		for _, warning := range r.Warnings {
			k.Note("warning: %s: %s", name, warning)
		}
	}
	return denied
}
