// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package identity_test

import (
	. "github.com/onsi/ginkgo/v2"

	"github.com/lanyard-dev/lanyard/test/e2e/expect"
	"github.com/lanyard-dev/lanyard/test/e2e/framework"
)

var _ = DescribeTable("The SDKs' default chains get the credentials of", func(ctx SpecContext, account string, want expect.Outcomes) {
	inEachLanguage(ctx, "account "+account, account, want)
},
	Entry("an account with a role", "aws", expect.Outcomes{framework.AWS: expect.Granted(role)}),
	Entry("an account with an application", "azure", expect.Outcomes{framework.Azure: expect.Granted(application)}),
	Entry("an account with a provider, by direct federation", "gcp-direct",
		expect.Outcomes{framework.GCP: expect.Granted(principals + "identity:gcp-direct")}),
	Entry("an account with a provider and a service account to impersonate", "gcp-impersonated",
		expect.Outcomes{framework.GCP: expect.Granted(impersonated)}),
	Entry("an account with all three, in one pod", "three-clouds", threeClouds()),
)

var _ = DescribeTable("The clouds refuse, with errors of their own,", func(ctx SpecContext, account string, want expect.Outcomes) {
	inEachLanguage(ctx, "account "+account, account, want)
},
	Entry("tokens that are for somebody else", "wrong-audience", expect.Outcomes{
		framework.AWS: expect.Refused("InvalidIdentityToken"), framework.Azure: expect.Refused("AADSTS700212"), framework.GCP: expect.Refused("invalid_grant"),
	}),
	Entry("an account that they do not trust", "stranger", expect.Outcomes{
		framework.AWS: expect.Refused("AccessDenied"), framework.Azure: expect.Refused("AADSTS700213"), framework.GCP: expect.Refused("PERMISSION_DENIED"),
	}),
	Entry("a role, a client and a provider that there are not", "mistaken", expect.Outcomes{
		framework.AWS: expect.Refused("AccessDenied"), framework.Azure: expect.Refused("AADSTS700016"), framework.GCP: expect.Refused("invalid_target"),
	}),
)

var _ = It("gives nothing to an account that asks for nothing", func(ctx SpecContext) {
	inEachLanguage(ctx, "account none", "none", nothing())
})
