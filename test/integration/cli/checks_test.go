// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lanyard-dev/lanyard/internal/cli/command"
	"github.com/lanyard-dev/lanyard/test/support/controlplane"
	"github.com/lanyard-dev/lanyard/test/support/webhook"
)

var _ = Describe("the CronJobs of deploy/checks", func() {
	It("have the rights that their commands need", func(ctx SpecContext) {
		newRolledOut(ctx, "checked")
		Expect(webhook.Create(ctx, env.plane.Config(), "../../../deploy/checks", "checks.yaml")).To(Succeed())
		config, err := webhook.User(env.plane, "lanyard-checks")
		Expect(err).NotTo(HaveOccurred())
		kubeconfig := filepath.Join(GinkgoT().TempDir(), "checks")
		Expect(controlplane.WriteKubeconfig(kubeconfig, config)).To(Succeed())

		job, err := env.client.BatchV1().CronJobs(webhook.Namespace).Get(ctx, "lanyard-stale-pods", metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		// The webhook of this suite runs outside of the cluster, where its settings cannot be read.
		args := append(job.Spec.JobTemplate.Spec.Template.Spec.Containers[0].Args, "--config", customConfig)
		code, out, errOut := lanyardAs(ctx, kubeconfig, "", args...)
		Expect(code).To(Equal(command.ExitFound), errOut)
		Expect(out).To(MatchRegexp(`checked +cart +guarded +deployment/cart +4 +1 +1 +1 `))
		Expect(out).NotTo(ContainSubstring("forbidden"))

		// The issuer in the documents differs from the cluster's, which is a finding, not a missing
		// right.
		directory := GinkgoT().TempDir()
		server := httptest.NewTLSServer(http.FileServer(http.Dir(directory)))
		DeferCleanup(server.Close)
		ca := filepath.Join(GinkgoT().TempDir(), "ca.crt")
		Expect(os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600)).To(Succeed())
		code, _, errOut = lanyard(ctx, "trust", "issuer", "--issuer", server.URL, "--to", directory, "--ca-file", ca)
		Expect(code).To(Equal(command.ExitOK), errOut)
		job, err = env.client.BatchV1().CronJobs(webhook.Namespace).Get(ctx, "lanyard-issuer", metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		args = job.Spec.JobTemplate.Spec.Template.Spec.Containers[0].Args
		Expect(args).To(Equal([]string{"check", "--issuer", publicIssuer}))
		args = []string{"check", "--issuer", server.URL, "--ca-file", ca}
		code, out, errOut = lanyardAs(ctx, kubeconfig, "", args...)
		Expect(code).To(Equal(command.ExitFound), out+errOut)
		Expect(out).To(And(ContainSubstring("the public issuer is"), ContainSubstring("failed: 1, warnings: 0")))

		// Documents that cannot be read have another exit code.
		server.Close()
		code, out, errOut = lanyardAs(ctx, kubeconfig, "", args...)
		Expect(code).To(Equal(command.ExitFailed), out+errOut)
	})
})
