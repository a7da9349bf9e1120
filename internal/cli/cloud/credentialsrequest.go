// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
)

// CredentialsRequest declares the cloud permissions that the ServiceAccounts of a component
// need. Components and operators ship these objects of OpenShift's Cloud Credential Operator
// (pkg/apis/cloudcredential/v1 in github.com/openshift/cloud-credential-operator) with their
// manifests.
type CredentialsRequest struct {
	// Name is the name of the object. Identities and trust do not depend on its namespace.
	Name string
	// Provider is the cloud.
	Provider string
	// Namespace is the namespace of the ServiceAccounts, and Secret the name of the Secret that they
	// would read. Both are part of the identity's name, as for ccoctl.
	Namespace, Secret string
	ServiceAccounts   []string
	// TokenPath is where the component reads its token, and RoleARN a role that exists already. Both
	// may be empty.
	TokenPath, RoleARN string
	Permissions        Permissions
}

// Permissions contains the permissions in a CredentialsRequest.
type Permissions struct {
	// Statements are the statements of an IAM policy, for AWS.
	Statements []Statement `json:"statements,omitempty"`
	// Roles are existing roles of Azure or Google.
	Roles []string `json:"roles,omitempty"`
	// Actions and DataActions are the contents of a new role: of Azure, or of Google, whose roles
	// have no DataActions.
	Actions     []string `json:"actions,omitempty"`
	DataActions []string `json:"dataActions,omitempty"`
}

// Statement is a statement of an IAM policy, in the form of a CredentialsRequest.
type Statement struct {
	Effect    string                    `json:"effect"`
	Action    []string                  `json:"action"`
	Resource  string                    `json:"resource"`
	Condition map[string]map[string]any `json:"policyCondition,omitempty"`
}

const (
	credentialsRequestVersion = "cloudcredential.openshift.io/v1"
	// maxBundle limits the size of all files of a bundle. Those of an OpenShift release have 100
	// KiB.
	maxBundle = 8 << 20
	// deleteAnnotation marks a request of an earlier release, and featureSetAnnotation one that is
	// not part of an ordinary cluster. ccoctl ignores both.
	deleteAnnotation     = "release.openshift.io/delete"
	featureSetAnnotation = "release.openshift.io/feature-set"
)

// rawRequest contains the fields of a CredentialsRequest. spec and providerSpec are decoded strictly,
// because an unknown field may restrict the permissions.
type rawRequest struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              json.RawMessage   `json:"spec"`
	Items             []json.RawMessage `json:"items"` // of a list
}

type rawSpec struct {
	SecretRef           struct{ Name, Namespace string } `json:"secretRef"`
	ProviderSpec        json.RawMessage                  `json:"providerSpec"`
	ServiceAccountNames []string                         `json:"serviceAccountNames"`
	CloudTokenPath      string                           `json:"cloudTokenPath"`
}

type awsProviderSpec struct {
	metav1.TypeMeta  `json:",inline"`
	StatementEntries []Statement `json:"statementEntries"`
	STSIAMRoleARN    string      `json:"stsIAMRoleARN"`
}

type azureProviderSpec struct {
	metav1.TypeMeta `json:",inline"`
	RoleBindings    []struct {
		Role string `json:"role"`
	} `json:"roleBindings"`
	Permissions     []string `json:"permissions"`
	DataPermissions []string `json:"dataPermissions"`
}

type gcpProviderSpec struct {
	metav1.TypeMeta  `json:",inline"`
	PredefinedRoles  []string `json:"predefinedRoles"`
	Permissions      []string `json:"permissions"`
	SkipServiceCheck bool     `json:"skipServiceCheck"` // about a check of ccoctl
}

// bundleReader collects the CredentialsRequests in files.
type bundleReader struct {
	// note is called with the reason why a request is left out.
	note func(format string, args ...any)

	requests []*CredentialsRequest
	// errs collects the mistakes in requests, so that the user sees all of them.
	errs []error
}

// add adds an object, or the objects of a list, in JSON. It ignores other kinds of objects. inList
// reports whether the object is in a list.
func (b *bundleReader) add(text []byte, inList bool) error {
	var raw rawRequest
	// An object of another kind may have other fields of these names.
	if err := json.Unmarshal(text, &raw.TypeMeta); err != nil || raw.Kind == "" {
		return nil //nolint:nilerr // not an object of Kubernetes
	}
	isRequest := raw.APIVersion == credentialsRequestVersion && raw.Kind == "CredentialsRequest"
	isList := raw.Kind == "List" || raw.APIVersion == credentialsRequestVersion && raw.Kind == "CredentialsRequestList"
	if !isRequest && !isList {
		return nil
	}
	if isList && inList { // each level would decode all levels below it again
		return fmt.Errorf("a %s is in a list: write its items into the outer list", raw.Kind)
	}
	if err := json.Unmarshal(text, &raw); err != nil {
		return err
	}
	for _, item := range raw.Items {
		if err := b.add(item, true); err != nil {
			return err
		}
	}
	if !isRequest {
		return nil
	}
	if raw.Annotations[deleteAnnotation] == "true" || raw.Annotations[featureSetAnnotation] != "" {
		b.note("credentialsrequest %s is left out: it has the annotation %s or %s", raw.Name, deleteAnnotation, featureSetAnnotation)
		return nil
	}
	request, err := newCredentialsRequest(&raw)
	if err != nil {
		b.errs = append(b.errs, fmt.Errorf("credentialsrequest %s: %w", raw.Name, err))
		return nil
	}
	b.requests = append(b.requests, request)
	return nil
}

// of returns the requests for a cloud, or for all clouds if cloud is empty, in the order of clouds and
// names.
func (b *bundleReader) of(cloud string) (requests []*CredentialsRequest, err error) {
	errs := b.errs
	slices.SortStableFunc(b.requests, func(a, b *CredentialsRequest) int {
		return cmp.Or(cmp.Compare(a.Provider, b.Provider), cmp.Compare(a.Name, b.Name))
	})
	users := map[[4]string]string{} // the names of the requests
	use := func(r *CredentialsRequest, field, name string) {
		key := [4]string{r.Provider, field, r.Namespace, name}
		if other, used := users[key]; used {
			errs = append(errs, fmt.Errorf("credentialsrequest %s: %s: %s/%s is also in credentialsrequest %s, and has one identity of %s", r.Name, field, r.Namespace, name, other, r.Provider))
		}
		users[key] = r.Name
	}
	var others []string // clouds
	for _, r := range b.requests {
		if cloud != "" && r.Provider != cloud {
			others = append(others, r.Provider)
			continue
		}
		requests = append(requests, r)
		use(r, "spec.secretRef", r.Secret)
		for _, name := range r.ServiceAccounts {
			use(r, "spec.serviceAccountNames", name)
		}
	}
	switch {
	case len(requests)+len(errs) > 0:
		return requests, errors.Join(errs...)
	case len(others) > 0:
		return nil, fmt.Errorf("no CredentialsRequest of %s found, only of %s; leave out --cloud", cloud, strings.Join(slices.Compact(others), ", "))
	}
	return nil, errors.New("no CredentialsRequest found; extract them with oc adm release extract --credentials-requests, or from the operator's bundle")
}

// newCredentialsRequest returns the request, or an error that names the invalid or
// unsupported field.
func newCredentialsRequest(raw *rawRequest) (*CredentialsRequest, error) {
	var spec rawSpec
	if err := strict("spec", raw.Spec, &spec); err != nil {
		return nil, err
	}
	r := &CredentialsRequest{
		Name: raw.Name, Namespace: spec.SecretRef.Namespace, Secret: spec.SecretRef.Name,
		ServiceAccounts: spec.ServiceAccountNames, TokenPath: spec.CloudTokenPath,
	}
	names := [][2]string{{"metadata.name", r.Name}, {"spec.secretRef.name", r.Secret}, {"spec.secretRef.namespace", r.Namespace}}
	for i, name := range r.ServiceAccounts {
		names = append(names, [2]string{fmt.Sprintf("spec.serviceAccountNames[%d]", i), name})
	}
	for _, field := range names {
		if errs := validation.IsDNS1123Subdomain(field[1]); len(errs) > 0 {
			return nil, fmt.Errorf("%s: %q: %s", field[0], field[1], errs[0])
		}
	}
	if len(r.ServiceAccounts) == 0 {
		return nil, errors.New("spec.serviceAccountNames: is empty, so no pod could use the identity")
	}
	if err := r.readProvider(spec.ProviderSpec); err != nil {
		return nil, err
	}
	return r, r.Permissions.check(r.Provider)
}

// strict decodes a part of a request, and rejects unknown fields.
func strict(path string, text json.RawMessage, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return fmt.Errorf("%s: cannot be expressed: %w", path, err)
	}
	return nil
}

// readProvider reads the part of the request that depends on the cloud.
func (r *CredentialsRequest) readProvider(text json.RawMessage) error {
	const path = "spec.providerSpec"
	var meta metav1.TypeMeta
	if err := json.Unmarshal(text, &meta); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	p := &r.Permissions
	switch meta.Kind {
	case "AWSProviderSpec":
		var spec awsProviderSpec
		err := strict(path, text, &spec)
		r.Provider, p.Statements, r.RoleARN = "aws", spec.StatementEntries, spec.STSIAMRoleARN
		return err
	case "AzureProviderSpec":
		var spec azureProviderSpec
		err := strict(path, text, &spec)
		for _, binding := range spec.RoleBindings {
			p.Roles = append(p.Roles, binding.Role)
		}
		r.Provider, p.Actions, p.DataActions = "azure", spec.Permissions, spec.DataPermissions
		return err
	case "GCPProviderSpec":
		var spec gcpProviderSpec
		err := strict(path, text, &spec)
		r.Provider, p.Roles, p.Actions = "gcp", spec.PredefinedRoles, spec.Permissions
		return err
	}
	return fmt.Errorf("%s.kind: %q cannot be expressed, only AWSProviderSpec, AzureProviderSpec and GCPProviderSpec", path, meta.Kind)
}

// maxPolicy is IAM's limit for all inline policies of a role, without white space.
const maxPolicy = 10240

// permission matches a role, or an action of a role, with wildcards.
var permission = regexp.MustCompile(`^[A-Za-z0-9*][A-Za-z0-9*_./:() -]*$`)

// check returns an error for permissions that cannot be granted by commands.
func (p *Permissions) check(provider string) error {
	const path = "spec.providerSpec: "
	if len(p.Statements)+len(p.Roles)+len(p.Actions)+len(p.DataActions) == 0 {
		return errors.New(path + "has no permissions")
	}
	for i, s := range p.Statements {
		switch {
		case s.Effect != "Allow" && s.Effect != "Deny":
			return fmt.Errorf("%sstatementEntries[%d].effect: got %q, want Allow or Deny", path, i, s.Effect)
		case len(s.Action) == 0 || s.Resource == "":
			return fmt.Errorf("%sstatementEntries[%d]: needs an action and a resource", path, i)
		}
	}
	if n := len(compact(json.RawMessage(p.Policy()))); provider == "aws" && n > maxPolicy {
		return fmt.Errorf("%sstatementEntries: the policy has %d bytes; the inline policies of a role of AWS have at most %d", path, n, maxPolicy)
	}
	for _, one := range slices.Concat(p.Roles, p.Actions, p.DataActions) {
		if !permission.MatchString(one) {
			return fmt.Errorf("%s%q is not the name of a permission or a role", path, one)
		}
	}
	return nil
}

// Policy returns the statements as the document of an IAM policy.
func (p *Permissions) Policy() string {
	type statement struct {
		Effect    string
		Action    []string
		Resource  string
		Condition map[string]map[string]any `json:",omitempty"`
	}
	document := struct {
		Version   string
		Statement []statement
	}{Version: "2012-10-17"}
	for _, s := range p.Statements {
		document.Statement = append(document.Statement, statement(s))
	}
	var text bytes.Buffer
	if err := json.Indent(&text, []byte(compact(document)), "", "  "); err != nil {
		panic(err) // it was encoded just now
	}
	return text.String()
}

// lines returns a line for each permission, name and setting of the request.
func (r *CredentialsRequest) lines() []string {
	lines := []string{"secret " + r.Namespace + "/" + r.Secret}
	add := func(what string, values ...string) {
		for _, value := range values {
			if value != "" {
				lines = append(lines, what+" "+value)
			}
		}
	}
	add("serviceaccount", r.ServiceAccounts...)
	add("token path", r.TokenPath)
	add("role ARN", r.RoleARN)
	for _, s := range r.Permissions.Statements {
		condition := ""
		if len(s.Condition) > 0 {
			condition = " if " + compact(s.Condition)
		}
		for _, action := range s.Action {
			add(s.Effect, action+" on "+s.Resource+condition)
		}
	}
	add("role", r.Permissions.Roles...)
	add("permission", r.Permissions.Actions...)
	add("data permission", r.Permissions.DataActions...)
	return lines
}

// Difference describes how a request differs from the request of the same name in another bundle.
type Difference struct {
	Name     string   `json:"name"`
	Provider string   `json:"provider"`
	Added    []string `json:"added,omitempty"`
	Removed  []string `json:"removed,omitempty"`
}

// differencesOf returns the requests that differ, in the order of clouds and names. A request that is
// missing from one of the bundles counts as empty there.
func differencesOf(old, current []*CredentialsRequest) (all []Difference) {
	type key struct{ provider, name string }
	lines := func(requests []*CredentialsRequest) map[key]sets.Set[string] {
		of := map[key]sets.Set[string]{}
		for _, r := range requests {
			of[key{r.Provider, r.Name}] = sets.New(r.lines()...).Union(of[key{r.Provider, r.Name}])
		}
		return of
	}
	was, is := lines(old), lines(current)
	for k := range sets.KeySet(was).Union(sets.KeySet(is)) {
		d := Difference{k.name, k.provider, sets.List(is[k].Difference(was[k])), sets.List(was[k].Difference(is[k]))}
		if len(d.Added)+len(d.Removed) > 0 {
			all = append(all, d)
		}
	}
	slices.SortFunc(all, func(a, b Difference) int {
		return cmp.Or(cmp.Compare(a.Provider, b.Provider), cmp.Compare(a.Name, b.Name))
	})
	return all
}
