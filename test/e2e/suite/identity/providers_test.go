// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package identity_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/lanyard-dev/lanyard/test/e2e/clouds/journal"
	"github.com/lanyard-dev/lanyard/test/e2e/expect"
	"github.com/lanyard-dev/lanyard/test/e2e/framework"
)

// The identities in trust.yaml.
const (
	ramRole        = "acs:ram::1234567890123456:role/reader"
	trustedProfile = "Profile-00001111-aaaa-2222-bbbb-3333cccc4444"
	vaultRole      = "auth/production/role/identity_custom"
	federationRule = "fdrl_custom"
	openAIAccount  = "sa-reader"
	snowflakeUser  = "READER"
)

// ofProviders runs a pod of the ServiceAccount that uses the SDKs of the custom
// providers, and checks it.
func ofProviders(ctx context.Context, account string, want expect.Outcomes) {
	GinkgoHelper()
	name := "account " + account
	custom.Begin(name, framework.Go, want)
	pod := checker.Create(ctx, namespace, framework.SDKPod(account, framework.Go, want.Clouds()...))
	custom.Check(ctx, name, framework.Go, pod, framework.SDKContainer, want)
}

var _ = Describe("Custom providers", func() {
	It("get their credentials, all in one pod", func(ctx SpecContext) {
		ofProviders(ctx, "custom", expect.Outcomes{
			journal.Alibaba: expect.Granted(ramRole), journal.IBM: expect.Granted(trustedProfile), journal.Vault: expect.Granted(vaultRole),
			journal.Anthropic: expect.Granted(federationRule), journal.OpenAI: expect.Granted(openAIAccount), journal.Snowflake: expect.Granted(snowflakeUser),
		})
	})

	It("refuse tokens with another audience", func(ctx SpecContext) {
		ofProviders(ctx, "custom-wrong-audience", expect.Outcomes{
			journal.Alibaba: expect.Refused("AuthenticationFail.OIDCToken.AudienceNotMatch"), journal.IBM: expect.Refused("BXNIM0398E"), journal.Vault: expect.Refused("error validating token: invalid audience (aud) claim"),
			journal.Anthropic: expect.Refused("invalid_grant"), journal.OpenAI: expect.Refused("invalid_subject_token"), journal.Snowflake: expect.Refused("390100"),
		})
	})

	It("refuse a ServiceAccount that they do not trust", func(ctx SpecContext) {
		ofProviders(ctx, "custom-stranger", expect.Outcomes{
			journal.Alibaba: expect.Refused("AuthenticationFail.NoPermission"), journal.IBM: expect.Refused("BXNIM0398E"), journal.Vault: expect.Refused("error validating token: invalid subject (sub) claim"),
			journal.Anthropic: expect.Refused("invalid_grant"), journal.OpenAI: expect.Refused("access_denied"), journal.Snowflake: expect.Refused("390100"),
		})
	})

	It("find nothing in pods of a ServiceAccount without annotations", func(ctx SpecContext) {
		want := expect.Outcomes{}
		for _, cloud := range framework.CustomClouds() {
			want[cloud] = expect.None()
		}
		ofProviders(ctx, "none", want)
	})

	// The command line reads them from the ConfigMap of the chart.
	It("are known to the command line", func(ctx SpecContext) {
		out, err := cluster.Run(ctx, "lanyard", "explain", "serviceaccount/custom", "--namespace", namespace)
		Expect(err).NotTo(HaveOccurred())
		for _, identity := range []string{ramRole, trustedProfile, federationRule, openAIAccount, snowflakeUser, "alibaba, anthropic, ibm, openai, snowflake, vault"} {
			Expect(out).To(ContainSubstring(identity))
		}
		Expect(out).NotTo(ContainSubstring("could not be read"))
	})
})
