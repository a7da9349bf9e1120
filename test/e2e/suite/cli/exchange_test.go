// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// recordExchange records check --exchange: the clouds accept the tokens of all
// ServiceAccounts of the namespace shop but one.
func recordExchange(ctx context.Context) {
	GinkgoHelper()
	checkPage.record(ctx, &recording{
		when:    "Present a token of each ServiceAccount to its cloud. A denial has its cause, and the commands that repair it.",
		command: "lanyard check --exchange --namespace shop", code: 1, verbatim: true,
	})
	checkPage.record(ctx, &recording{
		when:    "Only one ServiceAccount:",
		command: "lanyard check --exchange --namespace shop --service-account mail", verbatim: true,
	})
	for _, t := range terminals {
		_, shown := t.run(ctx, "lanyard check --exchange --namespace shop --output json")
		Expect(shown).NotTo(ContainSubstring("eyJhbGciOi"), "a token")
		Expect(shown).To(And(
			ContainSubstring("shop/cart: AWS accepts the token"), ContainSubstring("shop/mail: Azure accepts the token"),
			ContainSubstring("shop/reports: Google Cloud accepts the token"), ContainSubstring("shop/intern: AWS denies the token: AccessDenied"),
			ContainSubstring("aws iam update-assume-role-policy --role-name cart"), ContainSubstring("this machine asked the cloud"),
		))
	}
}
