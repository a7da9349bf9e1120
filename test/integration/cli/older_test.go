// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// older is the label of specs for Kubernetes before 1.30, which has no
// ValidatingAdmissionPolicy v1: hack/test-versions.sh runs them.
const older = "older"

var _ = Describe("an older server", Label(older), Ordered, ContinueOnFailure, func() {
	BeforeAll(func(ctx SpecContext) {
		_, err := env.client.CoreV1().Pods("shop").Create(ctx, newPod("cart-0", "cart"), metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
	})

	// The same commands as for the other users, in test/e2e/suite/cli.
	DescribeTable("tells a user the truth", func(ctx SpecContext, file string, commands ...string) {
		var text strings.Builder
		for _, command := range commands {
			code, out, errOut := lanyard(ctx, strings.Fields(command)...)
			fmt.Fprintf(&text, "$ lanyard %s\n%s%s[exit code %d]\n\n", command, out, errOut, code)
		}
		for _, untrue := range []string{
			"the guard denies", "guard               on", "the guard is on", "no check failed\n",
			"Install the guard", "cannot call the webhook", "new pods: denied",
		} {
			Expect(text.String()).NotTo(ContainSubstring(untrue))
		}
		expectGolden("older-"+file, text.String())
	},
		Entry("check", "check", "check --namespace shop", "check --namespace shop --service-account cart"),
		Entry("explain", "explain", "explain pod/cart-0 --namespace shop", "explain serviceaccount/cart --namespace shop"),
		Entry("status", "status", "status --namespace shop"),
		Entry("token", "token", "token serviceaccount/cart --namespace shop --for aws"),
		Entry("trust", "trust", "trust aws serviceaccount/cart --namespace shop", "trust issuer"),
	)
})
