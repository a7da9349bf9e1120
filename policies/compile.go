// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/lanyard-dev/lanyard/internal/provider"
	"github.com/lanyard-dev/lanyard/internal/texts"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/pkg/mutate"
)

// The keys of a row that do not come from a provider, and the suffixes of two that do. The other keys
// are annotation keys, without the prefix.
const (
	rowUses, rowTokens, rowExpires, rowRequired = "uses", "tokens", "expires", "required"

	profilePrincipals, onWindows = "profile-principals", "windows"
)

// Limits of compiled policies in bytes. A table is a single expression, and so are the names in a
// condition.
const (
	// maxExpression limits the names or rows of an expression, which may have 100,000 code points
	// (cel-go, parser.go). The rest is for what is around them.
	maxExpression = 99_800
	// maxTables limits the tables and names of a policy, so that the whole object
	// has less than 1 MiB. etcd accepts 1.5 MiB by default.
	maxTables = 900 << 10
)

// Account is a ServiceAccount whose identities are compiled, and its Namespace: nil for one without
// annotations.
type Account struct {
	ServiceAccount, Namespace *annotations.Object
}

// StaticSuffix ends the names of the policies in files that an API server reads at startup
// (KEP-5793; apiserver/pkg/admission/plugin/manifest).
const StaticSuffix = ".static.k8s.io"

// part is one policy that injects, with the identities that fit into it.
type part struct {
	*view

	// Inject is the name of the policy.
	Inject string
	// Keys lists the names of the ServiceAccounts, one per line. Each of Tables contains rows.
	Keys   string
	Tables []string
}

// Compiled contains policies with compiled identities, as YAML documents. An API server reads
// the two kinds from different directories.
type Compiled struct{ Mutating, Validating string }

// Text returns all documents.
func (c *Compiled) Text() string { return c.Mutating + "---\n" + c.Validating }

// Compile evaluates the rules of mutate.Decide, and returns policies that contain the identities of
// the ServiceAccounts as literals. suffix ends the names of the policies: StaticSuffix, or "". The error names each
// ServiceAccount with a mistake. A ServiceAccount without an identity, or in an excluded namespace,
// is left out.
func Compile(s *annotations.Settings, name, suffix string, source *Source, accounts []Account) (*Compiled, error) {
	errs := []error{check(s)}
	rows := map[string]string{}
	for i := range accounts {
		a := &accounts[i]
		key := a.ServiceAccount.Namespace + "/" + a.ServiceAccount.Name
		row, err := newRow(s, a)
		if _, found := rows[key]; found && row != nil {
			err = fmt.Errorf("serviceaccount %q is in the input more than once: remove the others", key)
		}
		errs = append(errs, err)
		if row != nil {
			rows[key] = literal(row)
		}
	}
	err := errors.Join(errs...)
	if err == nil && len(rows) == 0 {
		err = errors.New("got no ServiceAccount with an identity, want at least one")
	}
	if err != nil {
		return nil, err
	}
	v := newView(s, true)
	v.Name, v.Suffix = name, suffix
	recorded := *source
	recorded.Compiled = true
	data := struct {
		*view
		Parts []*part
	}{v, split(v, rows)}
	result := new(Compiled)
	if result.Mutating, err = v.execute(data, &recorded, "compiled.yaml"); err == nil {
		result.Validating, err = v.execute(data, &recorded, "validating")
	}
	return result, err
}

// newRow returns the values of a ServiceAccount, or nil if its pods get none.
func newRow(s *annotations.Settings, a *Account) (map[string]string, error) {
	object := *a.ServiceAccount
	if slices.Contains(s.ExcludedNamespaces, object.Namespace) {
		return nil, nil
	}
	all := map[string]string{}
	maps.Copy(all, object.Annotations)
	maps.Copy(all, s.Map(object.Namespace, object.Name, object.Annotations))
	object.Annotations = all
	account, err := mutate.Account(s, &object)
	if err != nil {
		return nil, err
	}
	if account == nil && object.Label == annotations.IdentityRequired {
		return map[string]string{rowRequired: "true"}, nil
	} else if account == nil {
		return nil, nil
	}
	if err := cmp.Or(checkVerify(&object, account), mutate.CheckWritten(s, &object, account), mutate.CheckPolicy(s, &object, account, a.Namespace)); err != nil {
		return nil, err
	}
	expires, mistakes := s.Expiration(new(annotations.Pod), account)
	if len(mistakes) > 0 {
		return nil, mistakes.ToAggregate()
	}
	row := map[string]string{rowExpires: strconv.FormatInt(expires, 10)}
	var uses, tokens []string
	for i := range account.Identities {
		identity := &account.Identities[i]
		uses = append(uses, identity.Provider.Name)
		if identity.TokenAlone {
			tokens = append(tokens, identity.Provider.Name)
		}
		addIdentity(row, s, &object, identity)
	}
	row[rowUses] = strings.Join(uses, ",")
	if len(tokens) > 0 {
		row[rowTokens] = strings.Join(tokens, ",")
	}
	return row, nil
}

// checkVerify returns an error if the ServiceAccount asks for a verified start, because
// policies add no containers.
func checkVerify(object *annotations.Object, account *annotations.ServiceAccount) error {
	if account.Verify == "" {
		return nil
	}
	path := field.NewPath("metadata", "annotations").Key(annotations.Verify)
	return fmt.Errorf("serviceaccount %q: %w", object.Namespace+"/"+object.Name, field.Forbidden(path, unavailable))
}

// addIdentity adds the values of an identity to a row.
func addIdentity(row map[string]string, s *annotations.Settings, object *annotations.Object, identity *annotations.Identity) {
	d := identity.Provider
	subject := provider.Subject{Namespace: object.Namespace, ServiceAccount: object.Name, MountPath: s.TokenMountPath}
	values := subject.Values(identity)
	for i := range d.Parameters {
		if p := &d.Parameters[i]; !p.ClusterOnly && values[p.Name] != "" {
			row[d.Key(p.Name)] = values[p.Name]
		}
	}
	for _, derived := range FunctionsOf(d).Derived {
		if values[derived.Name] != "" {
			row[d.Key(derived.Name)] = values[derived.Name]
		}
	}
	row[d.Key("audience")] = identity.Audience
	if len(identity.Profiles) == 0 {
		return
	}
	var names []string
	for _, profile := range identity.Profiles {
		names = append(names, profile.Identity)
	}
	row[d.Key(profilePrincipals)] = strings.Join(names, " ")
	row[d.CredentialFile.Annotation] = d.CredentialFile.Content(values, identity.Profiles)
	subject.Windows = true
	if content := d.CredentialFile.Content(subject.Values(identity), identity.Profiles); content != row[d.CredentialFile.Annotation] {
		row[d.CredentialFile.Annotation+"-"+onWindows] = content
	}
}

// literal returns a map of strings in CEL, in the order of the keys.
func literal(row map[string]string) string {
	var members []string
	for _, key := range slices.Sorted(maps.Keys(row)) {
		members = append(members, texts.QuoteCEL(key)+": "+texts.QuoteCEL(row[key]))
	}
	return "{" + strings.Join(members, ", ") + "}"
}

// split returns the policies for the rows, sorted: each expression and each object is within its
// limit. The names of the second policy and later ones end with numbers.
func split(v *view, rows map[string]string) []*part {
	var parts []*part
	var last *part
	size := 0 // of the texts of last
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		key, row := "        "+texts.QuoteCEL(name)+",\n", "          "+texts.QuoteCEL(name)+": "+rows[name]+",\n"
		if last == nil || len(last.Keys)+len(key) > maxExpression || size+len(key)+len(row) > maxTables {
			last, size = &part{view: v, Inject: InjectPods(v.Name) + v.Suffix}, 0
			if len(parts) > 0 {
				last.Inject = fmt.Sprintf("%s-%d%s", InjectPods(v.Name), len(parts)+1, v.Suffix)
			}
			parts = append(parts, last)
		}
		if n := len(last.Tables); n == 0 || len(last.Tables[n-1])+len(row) > maxExpression {
			last.Tables = append(last.Tables, "")
		}
		last.Keys += key
		last.Tables[len(last.Tables)-1] += row
		size += len(key) + len(row)
	}
	return parts
}
