// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios_test

import (
	"context"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/lanyard-dev/lanyard/test/e2e/clouds/journal"
	"github.com/lanyard-dev/lanyard/test/e2e/expect"
	"github.com/lanyard-dev/lanyard/test/e2e/framework"
)

const (
	tenant      = "@aaaabbbb-0000-cccc-1111-dddd2222eeee"
	otherTenant = "@bbbbcccc-1111-dddd-2222-eeee3333ffff"
	projectMail = "@example-project.iam.gserviceaccount.com"
)

func role(name string) expect.Outcome {
	return expect.Granted("arn:aws:iam::123456789012:role/" + name)
}

func application(id string) expect.Outcome { return expect.Granted(id + tenant) }

func serviceAccount(name string) expect.Outcome { return expect.Granted(name + projectMail) }

var _ = Describe("With the default settings", Ordered, func() {
	installed()

	It("does not change a log store whose operator mounts the tokens", func(ctx SpecContext) {
		s := begin(ctx, "log-store/operator")
		s.untouched(ctx, "log store", "log-store-operator/logstore-s3-ingester", journal.AWS, role("log-store"))
		s.untouched(ctx, "log store", "log-store-operator/logstore-azure-ingester", journal.Azure, application("11112222-bbbb-3333-cccc-4444dddd5555"))
		s.untouched(ctx, "log store", "log-store-operator/logstore-gcs-ingester", journal.GCP, serviceAccount("log-store"))
	})

	It("adds only its mount to such a log store if the ServiceAccounts are annotated", func(ctx SpecContext) {
		s := begin(ctx, "log-store/operator-annotated")
		s.injected(ctx, "log store", "log-store-annotated/logstore-s3-ingester", journal.AWS, role("log-store"), "aws")
		s.injected(ctx, "log store", "log-store-annotated/logstore-azure-ingester", journal.Azure, application("11112222-bbbb-3333-cccc-4444dddd5555"), "azure")
		s.injected(ctx, "log store", "log-store-annotated/logstore-gcs-ingester", journal.GCP, serviceAccount("log-store"), "gcp")
	})

	It("injects a log store without its own tokens", func(ctx SpecContext) {
		s := begin(ctx, "log-store/lanyard")
		s.injected(ctx, "log store", "log-store/logstore-s3-ingester", journal.AWS, role("log-store"), "aws")
		s.injected(ctx, "log store", "log-store/logstore-azure-ingester", journal.Azure, application("11112222-bbbb-3333-cccc-4444dddd5555"), "azure")
		s.injected(ctx, "log store", "log-store/logstore-gcs-ingester", journal.GCP, serviceAccount("log-store"), "gcp")
		s.injected(ctx, "log store", "log-store/logstore-gcs-key-file-ingester", journal.GCP, serviceAccount("log-store"), "token")
	})

	It("gives each operator and operand of each tenant the identity of its own ServiceAccount", func(ctx SpecContext) {
		s := begin(ctx, "day2-operators")
		s.injected(ctx, "day-2 operators", "backup-blue/backup-operator-controller-manager", journal.AWS, role("blue-backup-operator"), "aws")
		s.injected(ctx, "day-2 operators", "backup-blue/backup-server", journal.AWS, role("blue-backup-server"), "aws")
		s.injected(ctx, "day-2 operators", "backup-green/backup-operator-controller-manager", journal.Azure, application("22223333-cccc-4444-dddd-5555eeee6666"), "azure")
		s.injected(ctx, "day-2 operators", "backup-green/backup-server", journal.GCP, serviceAccount("backup-green"), "gcp")

		By("a neighbour requests another tenant's role")
		_, err := create(ctx, "examples/scenarios/day2-operators/neighbour/account.yaml")
		Expect(err).To(MatchError(And(ContainSubstring("backup-green/borrower"), ContainSubstring("allowed-identities"))))
		Expect(apierrors.IsForbidden(err)).To(BeTrue())

		By("a neighbour bypasses Lanyard")
		byHand := begin(ctx, "day2-operators/neighbour/by-hand.yaml")
		byHand.untouched(ctx, "day-2 operators", "backup-green/by-hand", journal.AWS, expect.Refused("AccessDenied"))

		By("another ServiceAccount of the same tenant requests the operator's role")
		colleague := begin(ctx, "day2-operators/neighbour/colleague.yaml")
		colleague.injected(ctx, "day-2 operators", "backup-blue/colleague", journal.AWS, expect.Refused("AccessDenied"), "aws")
	})

	It("gives a log forwarder a token for each of its targets and keeps its fallback", func(ctx SpecContext) {
		s := begin(ctx, "log-forwarder")
		pod := s.pod(ctx, "log-forwarder/collector")
		Expect(pod.Annotations).To(HaveKeyWithValue("lanyard.dev/injected", "azure"))
		checkTargets(ctx, s, pod)

		By("another ServiceAccount with the same configuration")
		other := begin(ctx, "log-forwarder/other-account.yaml")
		other.injected(ctx, "log forwarder", "log-forwarder/other-account", journal.Azure, expect.Refused("AADSTS700213"), "azure")
	})

	It("does not change core operators that mount their token by hand", func(ctx SpecContext) {
		checkCoreOperators(ctx, "core-operators/operators", "core-operators")
	})

	It("adds to core operators only what their annotated ServiceAccounts request, and they keep using their own token", func(ctx SpecContext) {
		s := begin(ctx, "core-operators/annotated-audience")
		s.injected(ctx, "core operators", "core-operators-audience/ingress-operator", journal.AWS, role("example-ingress-cloud-credentials"), "token")
		s.injected(ctx, "core operators", "core-operators-audience/machine-operator", journal.Azure, application("77778888-bbbb-9999-cccc-0000dddd1111"), "token")
		s.injected(ctx, "core operators", "core-operators-audience/storage-operator", journal.GCP, serviceAccount("example-storage"), "token")
	})

	It("does not change components with short-term credentials that mount their token by hand", func(ctx SpecContext) {
		checkComponents(begin(ctx, "short-term-credentials/by-hand"), "manual-mode-by-hand", func(s scenario, workload, cloud string, want expect.Outcome) {
			s.untouched(ctx, "short-term credentials", workload, cloud, want)
		})
	})
})

var _ = Describe("With OpenShift's token path", Ordered, func() {
	installed("config.token-mount-path=/var/run/secrets/openshift/serviceaccount")

	It("mounts the token that the short-term credentials of components refer to", func(ctx SpecContext) {
		checkComponents(begin(ctx, "short-term-credentials/lanyard"), "manual-mode", func(s scenario, workload, cloud string, want expect.Outcome) {
			s.injected(ctx, "short-term credentials", workload, cloud, want, "token")
		})
	})

	It("does not change core operators that mount their token by hand, even if their ServiceAccounts are annotated", func(ctx SpecContext) {
		checkCoreOperators(ctx, "core-operators/operators", "core-operators")
		checkCoreOperators(ctx, "core-operators/annotated-identity", "core-operators-identity")
	})
})

// checkComponents checks the components with short-term credentials.
func checkComponents(s scenario, namespace string, check func(s scenario, workload, cloud string, want expect.Outcome)) {
	GinkgoHelper()
	check(s, namespace+"/image-registry", journal.AWS, role("example-image-registry-cloud-credentials"))
	check(s, namespace+"/disk-driver", journal.Azure, application("55556666-ffff-7777-aaaa-8888bbbb9999"))
	check(s, namespace+"/network-config", journal.GCP, serviceAccount("example-network-config"))
}

func checkCoreOperators(ctx context.Context, path, namespace string) {
	GinkgoHelper()
	s := begin(ctx, path)
	s.untouched(ctx, "core operators", namespace+"/ingress-operator", journal.AWS, role("example-ingress-cloud-credentials"))
	s.untouched(ctx, "core operators", namespace+"/machine-operator", journal.Azure, application("77778888-bbbb-9999-cccc-0000dddd1111"))
	s.untouched(ctx, "core operators", namespace+"/storage-operator", journal.GCP, serviceAccount("example-storage"))
}

// checkTargets checks the credential of each target of the log forwarder, and
// its method.
func checkTargets(ctx context.Context, s scenario, pod *corev1.Pod) {
	GinkgoHelper()
	const byToken, bySecret = "workload-identity", "client-secret"
	targets := []struct{ name, identity, method string }{
		{"platform", "00001111-aaaa-2222-bbbb-3333cccc4444" + tenant, byToken},
		{"audit", "33334444-dddd-5555-eeee-6666ffff7777" + tenant, byToken},
		{"partner", "44445555-eeee-6666-ffff-7777aaaa8888" + otherTenant, byToken},
		{"legacy", "66667777-aaaa-8888-bbbb-9999cccc0000" + otherTenant, bySecret},
	}
	results := checker.Reports(ctx, pod, s.template("log-forwarder/collector").Containers[0].Name, len(targets))
	entries, err := checker.Clouds.Journal(ctx)
	Expect(err).NotTo(HaveOccurred())
	for i, want := range targets {
		row := fmt.Sprintf("log forwarder: target %s, by %s", want.name, want.method)
		checker.Begin(row, framework.Go, expect.Outcomes{journal.Azure: expect.None()})
		Expect(results[i].Target).To(Equal(want.name))
		Expect(results[i].Error).To(BeEmpty(), want.name)
		Expect(results[i].Method).To(Equal(want.method), want.name)
		Expect(entries).To(ContainElement(And(HaveField("Credential", results[i].Credential), HaveField("Identity", want.identity))), want.name)
		checker.Table.Set(row, framework.Go, journal.Azure, "yes")
	}
}
