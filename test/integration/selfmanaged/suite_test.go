// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package selfmanaged_test tests the self-managed certificate against a real
// kube-apiserver, with only the rights of deploy/.
package selfmanaged_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/internal/webhook/servingcert"
	"github.com/lanyard-dev/lanyard/test/support/controlplane"
	"github.com/lanyard-dev/lanyard/test/support/webhook"
)

const (
	deployDir     = "../../../deploy/base"
	namespace     = webhook.Namespace
	secretName    = "lanyard-webhook-ca"
	configuration = "lanyard"
	serverName    = "lanyard-webhook.lanyard-system.svc"
)

// cluster contains what all specs share.
var cluster struct {
	client  *kubernetes.Clientset // an administrator's
	objects client.Client         // the same
	admin   dynamic.Interface     // the same
	webhook dynamic.Interface     // the webhook's own
	rights  *kubernetes.Clientset // the same
	refused atomic.Int64          // requests of the webhook that RBAC has refused
}

func TestSelfManaged(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(controlplane.Patience)
	RunSpecs(t, "self-managed certificate")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	plane, err := controlplane.Start(ctx, controlplane.Options{})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(plane.Stop)
	cluster.client = kubernetes.NewForConfigOrDie(plane.Config())
	cluster.objects, err = client.New(plane.Config(), client.Options{})
	Expect(err).NotTo(HaveOccurred())
	cluster.admin = dynamic.NewForConfigOrDie(plane.Config())
	user, err := webhook.Grant(ctx, plane, deployDir)
	Expect(err).NotTo(HaveOccurred())
	user.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(request *http.Request) (*http.Response, error) {
			response, err := next.RoundTrip(request)
			if err == nil && response.StatusCode == http.StatusForbidden {
				cluster.refused.Add(1)
			}
			return response, err
		})
	})
	cluster.webhook = dynamic.NewForConfigOrDie(user)
	cluster.rights = kubernetes.NewForConfigOrDie(user)
	apply(ctx, "22-certificates-rbac")
	waitForRights(ctx)
	// All specs run with the fence, if the API server supports it.
	if plane.Policies() {
		Expect(webhook.Create(ctx, plane.Config(), deployDir, webhook.Fences)).To(Succeed())
	}
})

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }

var _ = BeforeEach(func(ctx SpecContext) {
	for _, file := range []string{"22-certificates-rbac", "50-mutatingwebhookconfiguration", "60-validatingwebhookconfiguration"} {
		apply(ctx, file)
	}
	// This runs after the spec's replicas have stopped, because they are registered later.
	DeferCleanup(remove)
})

// remove deletes what the specs write.
func remove(ctx context.Context) {
	GinkgoHelper()
	admission := cluster.client.AdmissionregistrationV1()
	for _, err := range []error{
		admission.ValidatingWebhookConfigurations().Delete(ctx, configuration, metav1.DeleteOptions{}),
		admission.MutatingWebhookConfigurations().Delete(ctx, configuration, metav1.DeleteOptions{}),
		cluster.client.CoreV1().Secrets(namespace).Delete(ctx, secretName, metav1.DeleteOptions{}),
	} {
		Expect(err).To(Or(Succeed(), MatchError(apierrors.IsNotFound, "not found")))
	}
}

var mutating = schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "mutatingwebhookconfigurations"}

// apply applies a file of deploy/ as kubectl apply --server-side does.
func apply(ctx context.Context, file string) {
	GinkgoHelper()
	objects, err := webhook.ReadManifest(filepath.Join(deployDir, file+".yaml"))
	Expect(err).NotTo(HaveOccurred())
	for _, object := range objects {
		fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
		Expect(err).NotTo(HaveOccurred())
		applied := client.ApplyConfigurationFromUnstructured(&unstructured.Unstructured{Object: fields})
		Expect(cluster.objects.Apply(ctx, applied, client.FieldOwner("kubectl"), client.ForceOwnership)).To(Succeed())
	}
}

// waitForRights waits until the API server's authorizer knows the roles.
func waitForRights(ctx context.Context) {
	GinkgoHelper()
	Eventually(func() error {
		_, err := cluster.webhook.Resource(mutating).Get(ctx, configuration, metav1.GetOptions{})
		return err
	}).Should(MatchError(apierrors.IsNotFound, "allowed, and not there"))
	Eventually(func() error {
		_, err := cluster.webhook.Resource(corev1.SchemeGroupVersion.WithResource("secrets")).Namespace(namespace).Get(ctx, secretName, metav1.GetOptions{})
		return err
	}).Should(Succeed())
}

// replica is one program's certificate.
type replica struct{ *servingcert.SelfManaged }

// start runs a replica with the rights of deploy/, until the spec ends.
func start(log logr.Logger) *replica {
	GinkgoHelper()
	source := servingcert.NewSelfManaged(servingcert.SelfManagedOptions{
		Client:          cluster.webhook,
		SecretNamespace: namespace, SecretName: secretName,
		WebhookConfigurationName: configuration,
		Hosts:                    []string{serverName},
		CADuration:               24 * time.Hour, CertificateDuration: time.Hour,
		OnChange: func(time.Time) {}, Logger: log,
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- source.Start(ctx) }()
	DeferCleanup(func() {
		cancel()
		Expect(<-done).To(Succeed())
	})
	return &replica{source}
}

func (r *replica) ready() error { return r.Check(nil) }

// leaf returns the certificate that the replica serves, or nil if there is none yet.
func (r *replica) leaf() *x509.Certificate {
	served, err := r.GetCertificate(&tls.ClientHelloInfo{})
	if err != nil {
		return nil
	}
	return served.Leaf
}

// bundles returns the caBundle of each webhook.
func bundles(ctx context.Context) map[string][]byte {
	GinkgoHelper()
	all := map[string][]byte{}
	m, err := cluster.client.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(ctx, configuration, metav1.GetOptions{})
	Expect(err).NotTo(HaveOccurred())
	for _, w := range m.Webhooks {
		all["mutating "+w.Name] = w.ClientConfig.CABundle
	}
	v, err := cluster.client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(ctx, configuration, metav1.GetOptions{})
	Expect(err).NotTo(HaveOccurred())
	for _, w := range v.Webhooks {
		all["validating "+w.Name] = w.ClientConfig.CABundle
	}
	return all
}

// verify verifies the leaf as an API server with the bundle does.
func verify(bundle []byte, leaf *x509.Certificate) error {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(bundle)
	_, err := leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: serverName})
	return err
}

func secret(ctx context.Context) *corev1.Secret {
	GinkgoHelper()
	s, err := cluster.client.CoreV1().Secrets(namespace).Get(ctx, secretName, metav1.GetOptions{})
	Expect(err).NotTo(HaveOccurred())
	return s
}
