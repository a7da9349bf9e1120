// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/lanyard-dev/lanyard/internal/cli/command"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/policies"
)

// compiler reads the ServiceAccounts to compile.
type compiler struct {
	*command.CLI
	command.Selection
	fromCluster bool
	// static is the directory to write the files of an API server to, or empty to print the policies.
	static string
	// webhook is the file with the webhook configurations for static, or empty.
	webhook string
}

// compiles reports whether identities are compiled.
func (k *compiler) compiles() bool { return k.fromCluster || len(k.Files.Filenames) > 0 }

// suffix ends the names of the policies.
func (k *compiler) suffix() string {
	if k.static != "" {
		return policies.StaticSuffix
	}
	return ""
}

// generate returns the text to print. With --static, it writes files instead.
func (k *compiler) generate(ctx context.Context, s *annotations.Settings, name string, source *policies.Source) (string, error) {
	if k.static != "" {
		return "", k.writeStatic(ctx, s, name, source)
	}
	if !k.compiles() {
		text, err := policies.Generate(s, name, source)
		return text, k.unsupported(err)
	}
	compiled, err := k.compile(ctx, s, name, source)
	if err != nil {
		return "", err
	}
	return compiled.Text(), nil
}

// compile returns the policies.
func (k *compiler) compile(ctx context.Context, s *annotations.Settings, name string, source *policies.Source) (*policies.Compiled, error) {
	accounts, err := k.accounts(ctx)
	if err != nil {
		return nil, err
	}
	compiled, err := policies.Compile(s, name, k.suffix(), source, accounts)
	return compiled, k.unsupported(err)
}

// unsupported returns the error for what policies cannot do, if any: it is a finding about the settings
// or the ServiceAccounts.
func (k *compiler) unsupported(err error) error {
	if err == nil {
		return nil
	}
	return k.Found("%v", err)
}

// accounts returns the ServiceAccounts with their Namespaces.
func (k *compiler) accounts(ctx context.Context) ([]policies.Account, error) {
	namespaces := map[string]*annotations.Object{}
	var accounts []policies.Account
	read := k.fromFiles
	if k.fromCluster {
		read = k.readCluster
	}
	var twice error
	err := read(ctx, func(kind string, object annotations.Metadata) {
		if kind == "Namespace" {
			if namespaces[object.GetName()] != nil { // one of them may allow what the other denies
				twice = fmt.Errorf("namespace %q occurs twice in the files. Remove one of them", object.GetName())
			}
			namespaces[object.GetName()] = annotations.NamespaceObject(object)
		} else {
			accounts = append(accounts, policies.Account{ServiceAccount: annotations.ServiceAccountObject(object)})
		}
	})
	for i := range accounts {
		accounts[i].Namespace = namespaces[accounts[i].ServiceAccount.Namespace]
	}
	return accounts, cmp.Or(err, twice)
}

// fromFiles calls do for each ServiceAccount and Namespace in the files.
func (k *compiler) fromFiles(_ context.Context, do func(kind string, object annotations.Metadata)) error {
	return k.eachObject(&k.Selection, func(object *unstructured.Unstructured) error {
		switch {
		case object.GetAPIVersion() != "v1", object.GetKind() != "ServiceAccount" && object.GetKind() != "Namespace":
		case object.GetKind() == "ServiceAccount" && object.GetNamespace() == "":
			return fmt.Errorf("serviceaccount %q has no metadata.namespace: add it, because policies have no default", object.GetName())
		default:
			do(object.GetKind(), object)
		}
		return nil
	})
}

// eachObject calls do for each object in the files.
func (k *compiler) eachObject(files *command.Selection, do func(*unstructured.Unstructured) error) error {
	return files.EachFile(k.In, func(name string, r io.Reader) error {
		return command.EachManifest(name, r, func(object *unstructured.Unstructured) error {
			if object.GetKind() == "" || object.GetAPIVersion() == "" {
				return fmt.Errorf("not an object of Kubernetes: apiVersion is %q and kind is %q", object.GetAPIVersion(), object.GetKind())
			}
			return do(object)
		})
	})
}

// readCluster calls do for each ServiceAccount and Namespace in the cluster.
func (k *compiler) readCluster(ctx context.Context, do func(kind string, object annotations.Metadata)) error {
	client, _, err := k.Clients()
	if err != nil {
		return err
	}
	list, err := command.Namespaces(ctx, client, metav1.NamespaceAll)
	if err != nil {
		return err
	}
	for _, namespace := range list {
		do("Namespace", namespace)
	}
	return k.EachServiceAccount(ctx, metav1.NamespaceAll, func(object *metav1.PartialObjectMetadata) error {
		do("ServiceAccount", object)
		return nil
	})
}
