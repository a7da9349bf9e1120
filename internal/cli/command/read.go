// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/resource"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/pager"

	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

// CoreResource returns a resource of the core group.
func CoreResource(name string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Version: "v1", Resource: name}
}

// pageSize is the number of objects per request.
const pageSize = 500

// EachObject calls do for each object of a list, which is read a page at a time.
func EachObject[L, O runtime.Object](ctx context.Context, list func(context.Context, metav1.ListOptions) (L, error), do func(O) error) error {
	page := func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return list(ctx, options)
	}
	pages := pager.ListPager{PageSize: pageSize, PageFn: page}
	return pages.EachListItem(ctx, metav1.ListOptions{}, func(object runtime.Object) error { return do(object.(O)) })
}

// EachServiceAccount calls do for the metadata of each ServiceAccount of the
// namespace, or of all namespaces if it is empty.
func (c *CLI) EachServiceAccount(ctx context.Context, namespace string, do func(*metav1.PartialObjectMetadata) error) error {
	client, err := c.metadata()
	if err != nil {
		return err
	}
	err = EachObject(ctx, client.Resource(CoreResource("serviceaccounts")).Namespace(namespace).List, func(object *metav1.PartialObjectMetadata) error {
		c.NoteUnknown(object)
		return do(object)
	})
	if err != nil {
		return fmt.Errorf("list serviceaccounts: %w", err)
	}
	return nil
}

// EachInjectedPod calls do for the metadata of each pod of the namespace, or of all namespaces if it is
// empty, that has the label of an injected pod.
func (c *CLI) EachInjectedPod(ctx context.Context, namespace string, do func(*metav1.PartialObjectMetadata) error) error {
	client, err := c.metadata()
	if err != nil {
		return err
	}
	return EachObject(ctx, func(ctx context.Context, options metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
		options.LabelSelector = annotations.IdentityLabel + "=" + annotations.IdentityInjected
		return client.Resource(CoreResource("pods")).Namespace(namespace).List(ctx, options)
	}, do)
}

// Namespaces returns the metadata of the namespace with this name, or of all namespaces if it is
// empty. If a named namespace cannot be read, the result contains only its name, together with the
// error.
func Namespaces(ctx context.Context, client kubernetes.Interface, name string) (list []*metav1.ObjectMeta, err error) {
	if name != metav1.NamespaceAll {
		one, err := client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return []*metav1.ObjectMeta{{Name: name}}, fmt.Errorf("namespace %s: %w", name, err)
		}
		return []*metav1.ObjectMeta{&one.ObjectMeta}, nil
	}
	err = EachObject(ctx, client.CoreV1().Namespaces().List, func(one *corev1.Namespace) error {
		list = append(list, &one.ObjectMeta)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list namespaces: %w", err)
	}
	return list, nil
}

// Exists returns an error if a namespace does not exist. The empty name stands for all namespaces.
func Exists(ctx context.Context, client kubernetes.Interface, namespace string) error {
	if namespace == metav1.NamespaceAll {
		return nil
	}
	if _, err := Namespaces(ctx, client, namespace); apierrors.IsNotFound(err) {
		return err
	}
	return nil // or unknown, without the right to read it
}

// ReadNamespace returns the metadata of a namespace, which is only its name if the namespace
// cannot be read.
func ReadNamespace(ctx context.Context, client kubernetes.Interface, name string) *metav1.ObjectMeta {
	list, _ := Namespaces(ctx, client, name)
	return list[0]
}

// Scope returns the namespace of the flags, or all namespaces.
func (c *CLI) Scope(all bool) (string, error) {
	if all {
		return metav1.NamespaceAll, nil
	}
	return c.Namespace()
}

// May reports whether the user has a right, such as create on pods in the namespace shop. The
// resource is written as in kubectl auth can-i: pods, deployments.apps or
// serviceaccounts/token. The namespace is empty for objects of the cluster, or for all
// namespaces.
func May(ctx context.Context, client kubernetes.Interface, verb, resource, namespace string) (bool, error) {
	name, subresource, _ := strings.Cut(resource, "/")
	group := schema.ParseGroupResource(name)
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: namespace, Verb: verb, Group: group.Group, Resource: group.Resource, Subresource: subresource,
		},
	}}
	response, err := client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
	if err != nil {
		return false, fmt.Errorf("ask whether you may %s %s: %w", verb, resource, err)
	}
	return response.Status.Allowed, nil
}

// Selection contains the flags that select objects.
type Selection struct {
	// All is --all-namespaces.
	All   bool
	Files resource.FilenameOptions
}

// AddFiles adds the flags --filename and --recursive.
func (s *Selection) AddFiles(cmd *cobra.Command) {
	flags := genericclioptions.FileNameFlags{
		Usage: "File or directory with manifests in YAML or JSON, or - for the standard input. Can be repeated.", Filenames: &s.Files.Filenames, Recursive: &s.Files.Recursive,
	}
	flags.AddFlags(cmd.Flags())
}

// Objects returns the objects that arguments name, in kubectl's forms: TYPE NAME or TYPE/NAME of
// every type of the API server and, in all namespaces, TYPE. It does not read the objects, which
// may not exist or not be readable.
func (c *CLI) Objects(all bool, args []string) ([]*resource.Info, error) {
	if len(args) == 1 && !strings.Contains(args[0], "/") && !all {
		return nil, Usagef("%s has no name: write TYPE/NAME or TYPE NAME", args[0])
	}
	namespace, err := c.Namespace()
	if err != nil {
		return nil, err
	}
	return resource.NewBuilder(c.Flags).Unstructured().ContinueOnError().
		NamespaceParam(namespace).DefaultNamespace().AllNamespaces(all).
		ResourceTypeOrNameArgs(all, args...).RequestChunksOf(pageSize).RequireObject(false).Flatten().
		Do().Infos()
}

// Object is like Objects for a command that takes one object.
func (c *CLI) Object(args []string) (*resource.Info, error) {
	infos, err := c.Objects(false, args)
	if err == nil && len(infos) != 1 {
		err = Usagef("%d objects are named: this command takes one", len(infos))
	}
	if err != nil {
		return nil, err
	}
	return infos[0], nil
}

// NameOf formats an object as users write it: deployment/cart.
func NameOf(info *resource.Info) string {
	return strings.ToLower(info.Mapping.GroupVersionKind.Kind) + "/" + info.Name
}

// Unstructured returns the object of an Info that Objects returned.
func Unstructured(info *resource.Info) *unstructured.Unstructured {
	object, _ := info.Object.(*unstructured.Unstructured)
	return object
}
