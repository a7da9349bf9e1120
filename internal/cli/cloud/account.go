// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/lanyard-dev/lanyard/internal/cli/command"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

// given is the value of a parameter that overrides the annotation, or empty. from is where the user
// wrote it, such as --role-arn.
type given struct{ value, from string }

// account is a ServiceAccount for which the command trust determines the identity.
type account struct {
	ServiceAccount
	definition *annotations.Provider
	// values contains the annotations that concern the provider: those of the ServiceAccount
	// and its mappings, and those that it still needs. mapped contains those of the mappings.
	values, mapped map[string]string
}

// set sets an annotation, and notes it as needed if the ServiceAccount has a different value.
func (a *account) set(name, value string) {
	if key := annotations.Key(a.definition, name); value != "" && a.values[key] != value {
		a.values[key] = value
		a.Annotate = append(a.Annotate, key+"="+value)
	}
}

// unset lists the annotations of the provider to remove, instead of those to add. Without an
// identity, the webhook would deny the rest.
func (a *account) unset() {
	a.Annotate, a.ClientIDKey = nil, ""
	for _, key := range slices.Sorted(maps.Keys(a.values)) {
		if _, mapped := a.mapped[key]; !mapped && key != annotations.Audience {
			a.Annotate = append(a.Annotate, key+"-")
		}
	}
}

// token returns the token of the ServiceAccounts, which must have the same identity: from the given
// values, the annotations and the cluster's defaults, in this order. read reads the annotations of a
// ServiceAccount, if it is not nil.
func (k *trustCommand) token(ctx context.Context, names []string, parameters map[string]given, read func(context.Context, *account) error) (*Token, error) {
	t := k.flags
	var first *account
	for _, name := range names {
		a := &account{ServiceAccount{Namespace: k.namespace, Name: name}, k.definition, map[string]string{}, nil}
		if read != nil {
			if err := read(ctx, a); err != nil {
				return nil, err
			}
		}
		for _, name := range slices.Sorted(maps.Keys(parameters)) {
			a.set(name, parameters[name].value)
		}
		if first != nil {
			a.share(first)
		}
		identity, err := k.identify(a, parameters)
		if err != nil {
			return nil, err
		}
		if first == nil {
			first, t.Audience, t.Values = a, identity.Audience, identity.Values
		}
		if err := differs(k.definition, &t, name, identity); err != nil {
			return nil, err
		}
		if k.remove {
			a.unset()
		}
		t.ServiceAccounts = append(t.ServiceAccounts, a.ServiceAccount)
	}
	return &t, k.addIssuer(ctx, &t)
}

// share copies the identity of another ServiceAccount to one that has none.
func (a *account) share(of *account) {
	for _, name := range identityParameters(a.definition) {
		if key := annotations.Key(a.definition, name); a.values[key] == "" && of.values[key] != anyGUID {
			a.set(name, of.values[key])
		}
	}
}

// differs returns an error if the ServiceAccount has a different identity than the first one.
func differs(d *annotations.Provider, t *Token, name string, is *annotations.Identity) error {
	what, got, want := "the audience", is.Audience, t.Audience
	for _, parameter := range identityParameters(d) {
		if is, was := is.Values[parameter], t.Values[parameter]; is != was && is != anyGUID && was != anyGUID {
			what, got, want = d.Key(parameter), is, was
			break
		}
	}
	if got == want {
		return nil
	}
	return fmt.Errorf("%s is %q for %s, and %q for %s: run the command once for each", what, want, t.First().Name, got, name)
}

// identityParameters returns the names of the parameters that identify the trusted identity.
func identityParameters(d *annotations.Provider) (names []string) {
	for i := range d.Parameters {
		p := &d.Parameters[i]
		if !p.ClusterOnly && (p.Identity || p.Required || slices.Contains(d.PrincipalParameters, p.Name)) {
			names = append(names, p.Name)
		}
	}
	return names
}

// IdentityOf returns the annotations that say which identities of clouds a ServiceAccount has.
func IdentityOf(s *annotations.Settings, all map[string]string) map[string]string {
	identity := map[string]string{}
	for _, d := range s.Providers {
		for _, name := range identityParameters(d) {
			key := annotations.Key(d, name)
			if value, found := all[key]; found {
				identity[key] = value
			}
		}
	}
	return identity
}

// readAnnotations reads the annotations of the ServiceAccount and of its mappings.
func (k *trustCommand) readAnnotations(ctx context.Context, a *account) error {
	var serviceAccount *metav1.ObjectMeta
	client, _, err := k.Clients()
	if err == nil {
		serviceAccount, err = readServiceAccount(ctx, client, a.Namespace, a.Name)
	}
	switch _, responded := errors.AsType[*apierrors.StatusError](err); {
	case apierrors.IsNotFound(err):
		k.Note("serviceaccount %s/%s does not exist yet", a.Namespace, a.Name)
	case err != nil && !responded && k.flags.Issuer != "":
		k.Note("warning: serviceaccount %s/%s is not read: no cluster responds", a.Namespace, a.Name)
	case err != nil:
		return err
	default:
		maps.Copy(a.values, serviceAccount.Annotations)
		k.NoteUnknown(serviceAccount)
	}
	a.mapped = k.settings.Map(a.Namespace, a.Name, a.values)
	maps.Copy(a.values, a.mapped)
	maps.DeleteFunc(a.values, func(key, _ string) bool {
		name, ours := strings.CutPrefix(key, annotations.Prefix)
		return !ours || key != annotations.Audience && !a.definition.OwnsKey(name)
	})
	return nil
}

// identify determines the identity as the webhook does.
func (k *trustCommand) identify(a *account, parameters map[string]given) (*annotations.Identity, error) {
	if err := k.complete(a); err != nil {
		return nil, err
	}
	parsed, errs := k.settings.ParseServiceAccount(a.Namespace, a.Name, a.values)
	if len(errs) > 0 {
		return nil, k.mistake(errs[0], parameters)
	}
	return &parsed.Identities[0], nil
}

// anyGUID stands for the IDs of Azure's client and tenant, which trust does not need.
const anyGUID = "00000000-0000-0000-0000-000000000000"

// complete sets the annotations that are missing for an identity of the provider.
func (k *trustCommand) complete(a *account) error {
	d := k.definition
	asks := slices.ContainsFunc(d.Parameters, func(p annotations.Parameter) bool {
		return p.Identity && a.values[annotations.Key(d, p.Name)] != ""
	})
	for i := range d.Parameters {
		p := &d.Parameters[i]
		key, hasDefault := annotations.Key(d, p.Name), k.settings.Parameters[d.Key(p.Name)] != ""
		unneeded := "" // any valid value, if the result does not need the parameter
		if k.provider == "azure" {
			unneeded = anyGUID
		} else if d.Trust != "" && !d.TrustHas(p.Name) {
			unneeded = p.Example
		}
		switch {
		case !p.Required || p.ClusterOnly || a.values[key] != "":
		case hasDefault && p.Identity && !asks:
			a.set(p.Name, annotations.ClusterDefault)
		case hasDefault:
		case unneeded == "":
			return k.noParameter(p.Name, key)
		default:
			a.values[key] = unneeded
			if p.Identity {
				a.ClientIDKey = key
			}
		}
	}
	return nil
}

// noParameter returns the error for a parameter without a value.
func (k *trustCommand) noParameter(name, key string) error {
	flag := "--" + name
	if k.custom() {
		flag = "--parameter " + name + "=VALUE"
	}
	defaults := "the cluster has no default"
	if unread := k.Webhook.Unread; unread != nil {
		defaults = fmt.Sprintf("the default of the cluster is not known, because the settings of the webhook could not be read: %v; pass its configuration file with --config", unread)
	}
	return command.Usagef("%s is missing: the ServiceAccount has no annotation %s, and %s", flag, key, defaults)
}

// mistake returns the error for a mistake in an annotation or in the value that overrides it.
func (k *trustCommand) mistake(err *field.Error, parameters map[string]given) error {
	key := strings.TrimSuffix(strings.TrimPrefix(err.Field, "metadata.annotations["), "]")
	from := "annotation " + key
	for name, given := range parameters {
		if given.value != "" && annotations.Key(k.definition, name) == key {
			from = given.from
		}
	}
	if unread := k.Webhook.Unread; unread != nil {
		return fmt.Errorf("%s: %s; it may be correct with the settings of the webhook, which could not be read: %w; pass its configuration file with --config", from, err.ErrorBody(), unread)
	}
	return fmt.Errorf("%s: %s", from, err.ErrorBody())
}
