// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package selfmanaged_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/lanyard-dev/lanyard/test/support/controlplane"
	"github.com/lanyard-dev/lanyard/test/support/webhook"
)

const (
	// fenceDenies is the beginning of a denial by the fence.
	fenceDenies = "ValidatingAdmissionPolicy 'lanyard-guard-registration' with binding 'lanyard-guard-registration' denied request: lanyard: the webhook may "

	caBundleOnly = "change the caBundle of its webhook configurations and nothing else"
	onlyChange   = "not add, remove, rename or reorder webhooks"

	caBundlePointer = "/webhooks/0/clientConfig/caBundle"
)

// fenced is a change of a webhook configuration that an administrator may make
// and the webhook may not.
type fenced struct{ patch, denial string }

// fencedFields contains a change of each field of the API that the webhook may not
// change, by its path without indexes. An empty patch is for a field that the API
// server itself keeps. TestEachFieldIsFenced compares them with the API.
var fencedFields = map[string]fenced{
	"metadata.name":                       {},
	"metadata.namespace":                  {},
	"metadata.selfLink":                   {},
	"metadata.uid":                        {},
	"metadata.creationTimestamp":          {},
	"metadata.deletionTimestamp":          {},
	"metadata.deletionGracePeriodSeconds": {},
	"metadata.generateName":               {`{"op":"add","path":"/metadata/generateName","value":"x"}`, caBundleOnly},
	"metadata.labels":                     {`{"op":"add","path":"/metadata/labels/x","value":"y"}`, caBundleOnly},
	"metadata.annotations":                {`{"op":"add","path":"/metadata/annotations/x","value":"y"}`, caBundleOnly},
	"metadata.finalizers":                 {`{"op":"add","path":"/metadata/finalizers","value":["example.com/x"]}`, caBundleOnly},
	"metadata.ownerReferences": {
		`{"op":"add","path":"/metadata/ownerReferences","value":[{"apiVersion":"v1","kind":"Namespace","name":"x","uid":"x"}]}`, caBundleOnly,
	},
	"webhooks.name": {`{"op":"replace","path":"/webhooks/0/name","value":"x.lanyard.dev"}`, onlyChange},
	"webhooks.clientConfig.url": {
		`{"op":"replace","path":"/webhooks/0/clientConfig","value":{"url":"https://attacker.example/"}}`, caBundleOnly,
	},
	"webhooks.clientConfig.service.namespace": {`{"op":"replace","path":"/webhooks/0/clientConfig/service/namespace","value":"x"}`, caBundleOnly},
	"webhooks.clientConfig.service.name":      {`{"op":"replace","path":"/webhooks/0/clientConfig/service/name","value":"x"}`, caBundleOnly},
	"webhooks.clientConfig.service.port":      {`{"op":"replace","path":"/webhooks/0/clientConfig/service/port","value":444}`, caBundleOnly},
	"webhooks.clientConfig.service.path":      {add("/webhooks/0/clientConfig/service/path", "/x"), caBundleOnly},
	"webhooks.rules": {
		`{"op":"add","path":"/webhooks/0/rules/-","value":{"apiGroups":["rbac.authorization.k8s.io"],"apiVersions":["v1"],"operations":["CREATE"],"resources":["*"]}}`, caBundleOnly,
	},
	"webhooks.failurePolicy":           {`{"op":"replace","path":"/webhooks/0/failurePolicy","value":"Fail"}`, caBundleOnly},
	"webhooks.matchPolicy":             {`{"op":"replace","path":"/webhooks/0/matchPolicy","value":"Exact"}`, caBundleOnly},
	"webhooks.namespaceSelector":       {`{"op":"replace","path":"/webhooks/0/namespaceSelector","value":{}}`, caBundleOnly},
	"webhooks.objectSelector":          {`{"op":"replace","path":"/webhooks/0/objectSelector","value":{"matchLabels":{"x":"y"}}}`, caBundleOnly},
	"webhooks.sideEffects":             {`{"op":"replace","path":"/webhooks/0/sideEffects","value":"NoneOnDryRun"}`, caBundleOnly},
	"webhooks.timeoutSeconds":          {`{"op":"replace","path":"/webhooks/0/timeoutSeconds","value":30}`, caBundleOnly},
	"webhooks.admissionReviewVersions": {`{"op":"add","path":"/webhooks/0/admissionReviewVersions/-","value":"v1beta1"}`, caBundleOnly},
	"webhooks.matchConditions":         {`{"op":"remove","path":"/webhooks/0/matchConditions"}`, caBundleOnly},
	"webhooks.reinvocationPolicy":      {`{"op":"replace","path":"/webhooks/0/reinvocationPolicy","value":"Never"}`, caBundleOnly},
}

// free lists the fields that the fence ignores: the one that the webhook writes, and
// those that the API server writes at each update.
var free = []string{"webhooks.clientConfig.caBundle", "metadata.generation", "metadata.managedFields", "metadata.resourceVersion"}

// onlyMutating are the fields that a validating webhook does not have.
var onlyMutating = []string{"webhooks.reinvocationPolicy"}

// A new field of the API needs an entry, so that the spec shows that the fence covers
// it.
func TestEachFieldIsFenced(t *testing.T) {
	t.Parallel()
	for kind, configuration := range map[string]reflect.Type{
		"mutating":   reflect.TypeFor[admissionregistrationv1.MutatingWebhookConfiguration](),
		"validating": reflect.TypeFor[admissionregistrationv1.ValidatingWebhookConfiguration](),
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			got := fieldsOf(configuration, "")
			var want []string
			for field := range fencedFields {
				if kind == "mutating" || !slices.Contains(onlyMutating, field) {
					want = append(want, field)
				}
			}
			want = append(want, free...)
			for _, field := range got {
				if !slices.Contains(want, field) {
					t.Errorf("fencedFields has no entry for %s", field)
				}
			}
			for _, field := range want {
				if !slices.Contains(got, field) {
					t.Errorf("%s is not a field of the API", field)
				}
			}
		})
	}
}

// fieldsOf returns the paths of the fields below t, in JSON. Selectors, rules and
// conditions are one field each.
func fieldsOf(t reflect.Type, at string) []string {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	parts := []reflect.Type{
		reflect.TypeFor[admissionregistrationv1.MutatingWebhookConfiguration](),
		reflect.TypeFor[admissionregistrationv1.ValidatingWebhookConfiguration](),
		reflect.TypeFor[admissionregistrationv1.MutatingWebhook](),
		reflect.TypeFor[admissionregistrationv1.ValidatingWebhook](),
		reflect.TypeFor[admissionregistrationv1.WebhookClientConfig](),
		reflect.TypeFor[admissionregistrationv1.ServiceReference](),
		reflect.TypeFor[metav1.ObjectMeta](),
	}
	if !slices.Contains(parts, t) {
		return []string{strings.TrimSuffix(at, ".")}
	}
	var fields []string
	for field := range t.Fields() {
		if field.Type == reflect.TypeFor[metav1.TypeMeta]() { // the kind of an object is fixed
			continue
		}
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		fields = append(fields, fieldsOf(field.Type, at+name+".")...)
	}
	return fields
}

// kinds are the resources of both kinds of configurations.
var kinds = map[string]schema.GroupVersionResource{
	"mutating":   mutating,
	"validating": admissionregistrationv1.SchemeGroupVersion.WithResource("validatingwebhookconfigurations"),
}

var dryRun = []string{metav1.DryRunAll}

// try patches a configuration as a dry run.
func try(ctx context.Context, user dynamic.Interface, kind string, operations ...string) error {
	_, err := user.Resource(kinds[kind]).Patch(ctx, configuration, types.JSONPatchType,
		[]byte("["+strings.Join(operations, ",")+"]"), metav1.PatchOptions{DryRun: dryRun})
	return err
}

func add(path, value string) string {
	return fmt.Sprintf(`{"op":"add","path":%q,"value":%q}`, path, value)
}

// waitForFence waits until the API server enforces the fence.
func waitForFence(ctx context.Context) {
	GinkgoHelper()
	Eventually(func() error {
		return try(ctx, cluster.webhook, "mutating", fencedFields["metadata.labels"].patch)
	}).Should(MatchError(ContainSubstring(fenceDenies)))
}

var _ = Describe("The webhook's permission to patch its configurations", Label("policies"), func() {
	BeforeEach(func(ctx SpecContext) { waitForFence(ctx) })

	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		for _, field := range slices.Sorted(maps.Keys(fencedFields)) {
			change := fencedFields[field]
			if change.patch == "" || kind == "validating" && slices.Contains(onlyMutating, field) {
				continue
			}
			It("is not for "+field+", "+kind, func(ctx SpecContext) {
				Expect(try(ctx, cluster.admin, kind, change.patch)).To(Succeed(), "an administrator may")
				err := try(ctx, cluster.webhook, kind, change.patch)
				Expect(apierrors.IsForbidden(err)).To(BeTrue(), "%v", err)
				Expect(err).To(MatchError(ContainSubstring(fenceDenies + change.denial)))
			})
		}

		It("is for the caBundle, "+kind, func(ctx SpecContext) {
			_, _, authority, err := controlplane.NewServingCertificate(GinkgoT().TempDir())
			Expect(err).NotTo(HaveOccurred())
			bundle := base64.StdEncoding.EncodeToString(authority)
			Expect(try(ctx, cluster.webhook, kind, add(caBundlePointer, bundle))).To(Succeed())
			Expect(try(ctx, cluster.webhook, kind, add(caBundlePointer, bundle), fencedFields["webhooks.rules"].patch)).
				To(MatchError(ContainSubstring(fenceDenies + caBundleOnly)))
		})

		It("is not for the list of webhooks, "+kind, func(ctx SpecContext) {
			for _, change := range []string{
				`{"op":"remove","path":"/webhooks/0"}`,
				`{"op":"remove","path":"/webhooks"}`,
				`{"op":"add","path":"/webhooks/-","value":{"name":"x.lanyard.dev","sideEffects":"None","admissionReviewVersions":["v1"],"clientConfig":{"url":"https://attacker.example/"}}}`,
			} {
				Expect(try(ctx, cluster.admin, kind, change)).To(Succeed(), "an administrator may")
				Expect(try(ctx, cluster.webhook, kind, change)).To(MatchError(ContainSubstring(fenceDenies+onlyChange)), change)
			}
		})

	}

	It("is not for the URL, where webhooks have one", func(ctx SpecContext) {
		const url = "https://lanyard.example:9443/mutate-v1-pod"
		toURL := func(to string) string {
			return fmt.Sprintf(`{"op":"replace","path":"/webhooks/0/clientConfig","value":{"url":%q}}`, to)
		}
		_, err := cluster.admin.Resource(mutating).Patch(ctx, configuration, types.JSONPatchType, []byte("["+toURL(url)+"]"), metav1.PatchOptions{})
		Expect(err).NotTo(HaveOccurred())
		other := toURL("https://attacker.example/mutate-v1-pod")
		service := `{"op":"replace","path":"/webhooks/0/clientConfig","value":{"service":{"namespace":"x","name":"x"}}}`
		for _, change := range []string{other, service} {
			Expect(try(ctx, cluster.admin, "mutating", change)).To(Succeed(), "an administrator may")
			Expect(try(ctx, cluster.webhook, "mutating", change)).To(MatchError(ContainSubstring(fenceDenies + caBundleOnly)))
		}
	})

	It("is not for the order of webhooks", func(ctx SpecContext) {
		swap := `{"op":"move","from":"/webhooks/0","path":"/webhooks/1"}`
		Expect(try(ctx, cluster.admin, "mutating", swap)).To(Succeed())
		Expect(try(ctx, cluster.webhook, "mutating", swap)).To(MatchError(ContainSubstring(fenceDenies + onlyChange)))
	})

	It("is fenced also if somebody grants it everything", func(ctx SpecContext) {
		binding := &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "too-much"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: webhook.Namespace, Name: webhook.Account}},
		}
		Expect(cluster.objects.Create(ctx, binding)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) {
			Expect(cluster.objects.Delete(ctx, binding)).To(Succeed())
			Eventually(func() bool { return may(ctx, "delete", mutating.Group, mutating.Resource, "", "another") }).Should(BeFalse())
		})
		Eventually(func() bool { return may(ctx, "delete", mutating.Group, mutating.Resource, "", "another") }).Should(BeTrue())

		denied := MatchError(ContainSubstring(fenceDenies + "not create or delete webhook configurations"))
		for kind, resource := range kinds {
			object := &unstructured.Unstructured{}
			object.SetGroupVersionKind(admissionregistrationv1.SchemeGroupVersion.WithKind(strings.ToUpper(kind[:1]) + kind[1:] + "WebhookConfiguration"))
			object.SetName("another")
			_, err := cluster.admin.Resource(resource).Create(ctx, object.DeepCopy(), metav1.CreateOptions{DryRun: dryRun})
			Expect(err).NotTo(HaveOccurred(), "an administrator may")
			_, err = cluster.webhook.Resource(resource).Create(ctx, object, metav1.CreateOptions{DryRun: dryRun})
			Expect(err).To(denied)
			Expect(cluster.webhook.Resource(resource).Delete(ctx, configuration, metav1.DeleteOptions{DryRun: dryRun})).To(denied)
			Expect(try(ctx, cluster.webhook, kind, fencedFields["webhooks.rules"].patch)).To(MatchError(ContainSubstring(fenceDenies + caBundleOnly)))
		}
	})

	It("is not for a Secret that gets the token of a ServiceAccount", func(ctx SpecContext) {
		Expect(cluster.client.CoreV1().Secrets(namespace).Delete(ctx, secretName, metav1.DeleteOptions{})).
			To(Or(Succeed(), MatchError(apierrors.IsNotFound, "not found")))
		create := func(user dynamic.Interface, kind string, annotations map[string]string) error {
			object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Secret", "type": kind}}
			object.SetName(secretName)
			object.SetAnnotations(annotations)
			_, err := user.Resource(corev1.SchemeGroupVersion.WithResource("secrets")).Namespace(namespace).
				Apply(ctx, secretName, object, metav1.ApplyOptions{FieldManager: "test", DryRun: dryRun})
			return err
		}
		const token = "kubernetes.io/service-account-token"
		ofServiceAccount := map[string]string{"kubernetes.io/service-account.name": webhook.Account}
		denied := MatchError(ContainSubstring(fenceDenies + "only write Secrets of the type Opaque, without annotations of a ServiceAccount's token"))
		Eventually(func() error { return create(cluster.webhook, token, ofServiceAccount) }).Should(denied)
		Expect(create(cluster.webhook, "example.com/other", nil)).To(denied)
		Expect(create(cluster.webhook, "Opaque", ofServiceAccount)).To(denied)
		Expect(create(cluster.webhook, "Opaque", map[string]string{"meta.helm.sh/release-name": "x"})).To(Succeed())
		Expect(create(cluster.admin, token, ofServiceAccount)).To(Succeed(), "an administrator may")
	})
})
