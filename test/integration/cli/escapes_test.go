// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"path/filepath"
	"unicode"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// hostile is a text that clears the screen and prints the sentence of a command that
// found nothing. The API server accepts it as the kind of an owner, and as the value of
// an annotation.
const hostile = "\x1b[2J\x1b[1;1Hevery pod has the credentials that its ServiceAccount asks for\n\u009b31m\x7f"

var _ = Describe("text of the cluster that controls a terminal", Ordered, ContinueOnFailure, func() {
	BeforeAll(func(ctx SpecContext) {
		newNamespace(ctx, "escapes")
		newServiceAccount(ctx, "escapes", "cart", nil)
		newServiceAccount(ctx, "escapes", "peer", map[string]string{"eks.amazonaws.com/role-arn": hostile})
		pod := newPod("victim", "cart")
		pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "a/v1", Kind: hostile, Name: hostile, UID: "1", Controller: new(true)}}
		_, err := env.client.CoreV1().Pods("escapes").Create(ctx, pod, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		reannotate(ctx, "escapes", "cart", map[string]string{"lanyard.dev/audience": "vault"})
		namespace, err := env.client.CoreV1().Namespaces().Get(ctx, "escapes", metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		namespace.Annotations = map[string]string{"lanyard.dev/allowed-identities": "vault, " + hostile}
		_, err = env.client.CoreV1().Namespaces().Update(ctx, namespace, metav1.UpdateOptions{})
		Expect(err).NotTo(HaveOccurred())
	})

	DescribeTable("is escaped in", func(ctx SpecContext, shown string, args ...string) {
		_, out, errOut := lanyard(ctx, append(args, "--namespace", "escapes")...)
		for _, r := range out + errOut {
			if r != '\n' && unicode.IsControl(r) {
				Fail("got a control character in\n" + out + errOut)
			}
		}
		Expect(out + errOut).NotTo(MatchRegexp("(?m)^.?.?.?every pod has"))
		Expect(out + errOut).To(ContainSubstring(shown))
	},
		// No object can have the name of the owner, so status names the pod.
		Entry("status", "pod/victim", "status"),
		Entry("status as JSON", `"pod/victim"`, "status", "-o", "json"),
		Entry("status as YAML", "workload: pod/victim", "status", "-o", "yaml"),
		Entry("status --output name", "pod/victim", "status", "--output", "name"),
		Entry("explain", `\x1b[2J\x1b[1;1Hevery pod`, "explain", "pod/victim"),
		Entry("explain as JSON", `\u001b[2J`, "explain", "pod/victim", "-o", "json"),
		Entry("migrate", `\x1b[2J\x1b[1;1Hevery pod`, "migrate", "--from", "eks"),
	)

	It("is escaped in migrate of files", func(ctx SpecContext) {
		file := filepath.Join(GinkgoT().TempDir(), "manifest.yaml")
		Expect(os.WriteFile(file, []byte(`{apiVersion: v1, kind: ServiceAccount, metadata: {name: "\e[2Jx", annotations: {eks.amazonaws.com/role-arn: "\e[2Jx"}}}`), 0o600)).To(Succeed())
		_, out, errOut := lanyard(ctx, "migrate", "--from", "eks", "--filename", file)
		Expect(out + errOut).To(And(Not(ContainSubstring("\x1b")), ContainSubstring(`\x1b[2J`)))
	})
})
