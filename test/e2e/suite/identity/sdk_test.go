// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package identity_test

import (
	. "github.com/onsi/ginkgo/v2"
	corev1 "k8s.io/api/core/v1"

	"github.com/lanyard-dev/lanyard/test/e2e/clouds/journal"
	"github.com/lanyard-dev/lanyard/test/e2e/expect"
	"github.com/lanyard-dev/lanyard/test/e2e/identities"
)

var _ = DescribeTable("The SDKs' default chains get the credentials of", func(ctx SpecContext, account string, want expect.Outcomes) {
	checker.InEachLanguage(ctx, namespace, "account "+account, account, want)
},
	Entry("a ServiceAccount with a role", "aws", expect.Outcomes{journal.AWS: expect.Granted(identities.Role)}),
	Entry("a ServiceAccount with an application", "azure", expect.Outcomes{journal.Azure: expect.Granted(identities.Application)}),
	Entry("a ServiceAccount with a provider, by direct federation", "gcp-direct",
		expect.Outcomes{journal.GCP: expect.Granted(identities.Principals + "identity:gcp-direct")}),
	Entry("a ServiceAccount with a provider and a Google service account to impersonate", "gcp-impersonated",
		expect.Outcomes{journal.GCP: expect.Granted(identities.Impersonated)}),
	Entry("a ServiceAccount with all three clouds, in one pod", "three-clouds", identities.ThreeClouds()),
)

var _ = DescribeTable("The SDKs get the role of AWS_PROFILE:", func(ctx SpecContext, profile, want string) {
	var variables []corev1.EnvVar
	if profile != "" {
		variables = []corev1.EnvVar{{Name: "AWS_PROFILE", Value: profile}}
	}
	checker.InEachLanguage(ctx, namespace, "account profiles, profile "+profile, "profiles", expect.Outcomes{journal.AWS: expect.Granted(want)}, variables...)
},
	Entry("without a profile, the role of the ServiceAccount", "", identities.Role),
	Entry("a profile with the token", "audit", identities.Audit),
	Entry("a profile with the credentials of another profile", "backup", identities.Backup),
	Entry("the profile of the ServiceAccount's own role", "default", identities.Role),
)

var _ = DescribeTable("The clouds refuse, with their own errors,", func(ctx SpecContext, account string, want expect.Outcomes) {
	checker.InEachLanguage(ctx, namespace, "account "+account, account, want)
},
	Entry("tokens with another audience", "wrong-audience", expect.Outcomes{
		journal.AWS: expect.Refused("InvalidIdentityToken"), journal.Azure: expect.Refused("AADSTS700212"), journal.GCP: expect.Refused("invalid_grant"),
	}),
	Entry("a ServiceAccount that they do not trust", "stranger", expect.Outcomes{
		journal.AWS: expect.Refused("AccessDenied"), journal.Azure: expect.Refused("AADSTS700213"), journal.GCP: expect.Refused("PERMISSION_DENIED"),
	}),
	Entry("a role, a client and a provider that do not exist", "mistaken", expect.Outcomes{
		journal.AWS: expect.Refused("AccessDenied"), journal.Azure: expect.Refused("AADSTS700016"), journal.GCP: expect.Refused("invalid_target"),
	}),
)

var _ = It("does not inject pods of a ServiceAccount without annotations", func(ctx SpecContext) {
	checker.InEachLanguage(ctx, namespace, "account none", "none", identities.Nothing())
})
