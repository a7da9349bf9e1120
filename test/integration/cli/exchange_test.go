// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"net/http"
	"os"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lanyard-dev/lanyard/internal/cli/command"
)

// named are settings with which ServiceAccounts can name roles, and a mapping.
const named = `
aws-role-arn-prefix: arn:aws:iam::111122223333:role/
aws-default-role-arn: arn:aws:iam::111122223333:role/{namespace}/{serviceaccount}
gcp-default-project: my-project
gcp-default-workload-identity-provider: ` + pool + `
identities:
- {namespace: named, serviceAccount: mapped, annotations: {aws-role-arn: of-the-mapping}}
providers:
- name: vault
  audience: vault
  parameters:
  - {name: role, required: true, default: '{namespace}_{serviceaccount}'}
  - {name: space}
  trust: |
    vault write auth/jwt/role/{role} bound_audiences={audience} bound_subject={subject}
    vault namespace create {space}
- name: api
  audience: rules.example.com
  parameters:
  - {name: rule, required: true, pattern: 'rule_[a-z]+', message: must be a rule, example: rule_a}
  trust: |
    register {keys-file} for {issuer} and {subject}
- name: other
  audience: other
  parameters: [{name: role, required: true}]
`

var _ = Describe("trust with the settings of the webhook", Ordered, func() {
	var config string
	BeforeAll(func(ctx SpecContext) {
		newNamespace(ctx, "named")
		config = filepath.Join(GinkgoT().TempDir(), "config.yaml")
		Expect(os.WriteFile(config, []byte(named), 0o600)).To(Succeed())
		for name, annotations := range map[string]map[string]string{
			"plain": nil, "mapped": nil,
			"loki": {"lanyard.dev/audience": "loki"},
		} {
			newServiceAccount(ctx, "named", name, annotations)
		}
	})

	DescribeTable("knows names, defaults, mappings and custom providers", func(ctx SpecContext, want string, args ...string) {
		args = append([]string{"trust"}, append(args, "--namespace", "named", "--issuer", publicIssuer, "--config", config)...)
		code, out, errOut := lanyard(ctx, args...)
		Expect(out).To(ContainSubstring(want), errOut)
		Expect(code).To(Equal(command.ExitOK))
	},
		Entry("the name of a role", "--role-name loki ", "aws", "plain", "--role-arn", "loki"),
		Entry("the annotation for the name of a role", "kubectl annotate serviceaccount plain --namespace named --overwrite \\\n  lanyard.dev/aws-role-arn=loki\n", "aws", "sa/plain", "--role-arn", "loki"),
		Entry("the default role", "--role-name plain --path /named/ ", "aws", "serviceaccount", "plain"),
		Entry("the annotation for the default role", "  lanyard.dev/aws-role-arn=default\n", "aws", "plain"),
		Entry("the role of a mapping", "--role-name of-the-mapping ", "aws", "mapped"),
		Entry("the name of a service account", "add-iam-policy-binding loki-reader@my-project.iam.gserviceaccount.com ", "gcp", "plain", "--service-account", "loki-reader"),
		Entry("the audience of all tokens", "--audiences loki\n", "azure", "loki", "--resource-group", "x"),
		Entry("a custom provider", "vault write auth/jwt/role/named_plain bound_audiences=vault bound_subject=system:serviceaccount:named:plain\n\n# Tell Lanyard:\nkubectl annotate", "vault", "plain"),
		Entry("a parameter of a custom provider", "role/x bound_audiences=vault bound_subject=system:serviceaccount:named:plain\nvault namespace create y\n", "vault", "plain", "--parameter", "role=x,space=y"),
		Entry("a custom provider without a text", "#   sub: system:serviceaccount:named:plain\n", "other", "plain", "--parameter", "role=x"),
		Entry("a parameter that the provider issues after the registration", "register jwks.json for "+publicIssuer, "api", "plain", "--upload-keys"),
		Entry("the keys of the cluster", "cat > jwks.json <<'EOF'\n{\"keys\":[{", "api", "plain", "--upload-keys"),
		Entry("such a parameter, once it is known", "lanyard.dev/api-rule=rule_b", "api", "plain", "--parameter", "rule=rule_b"),
		Entry("a custom provider as JSON", `"subject": "system:serviceaccount:named:plain"`, "vault", "plain", "--output", "json"),
	)

	DescribeTable("names what is wrong", func(ctx SpecContext, want string, args ...string) {
		code, out, errOut := lanyard(ctx, append([]string{"trust", "--namespace", "named", "--issuer", publicIssuer}, args...)...)
		Expect(errOut).To(ContainSubstring(want))
		Expect(out).To(BeEmpty())
		Expect(code).To(Equal(command.ExitFailed))
	},
		Entry("a provider that is not known without the settings", `error: provider "vault": it is not one of aws, azure, gcp, and the settings of the webhook, which may have it, could not be read: the webhook runs outside the cluster`, "vault", "plain"),
		Entry("a provider that does not exist", `error: provider "voult": the webhook does not have it; choose one of aws, azure, gcp, alibaba`, "voult", "plain", "--config", customConfig),
		Entry("a parameter that does not exist", "has no parameter \"x\"", "alibaba", "plain", "--parameter", "x=y", "--config", customConfig),
		Entry("keys that a provider does not take", `--upload-keys: the text "trust" of provider alibaba has no {keys-file}`, "alibaba", "plain", "--parameter", "role-arn=acs:ram::1234567890123456:role/oss", "--upload-keys", "--config", customConfig),
		Entry("a missing parameter", "--parameter role-arn=VALUE is missing: the ServiceAccount has no annotation lanyard.dev/alibaba-role-arn, and the cluster has no default", "alibaba", "plain", "--config", customConfig),
	)
})

var _ = Describe("check --exchange", Ordered, func() {
	BeforeAll(func(ctx SpecContext) {
		newNamespace(ctx, "exchange")
		newServiceAccount(ctx, "exchange", "cart", map[string]string{"lanyard.dev/aws-role-arn": role})
		newServiceAccount(ctx, "exchange", "oss", map[string]string{"lanyard.dev/alibaba-role-arn": "acs:ram::1234567890123456:role/oss"})
		expectInjected(ctx, "exchange", "cart", "aws")
		// Other specs look at all ServiceAccounts.
		DeferCleanup(func(ctx SpecContext) error {
			return env.client.CoreV1().ServiceAccounts("exchange").DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
		})
	})
	args := []string{"check", "--exchange", "--namespace", "exchange"}

	It("shows the response of the cloud to each ServiceAccount", func(ctx SpecContext) {
		url, ca, forms := startCloud(http.StatusOK, stsGrants)
		settings := append(args, "--config", customConfig, "--ca-file", ca)
		expectOutputs(ctx, "exchange", command.ExitOK, append(settings, "--endpoint", url)...)
		Expect((*forms)[0]).To(HaveKeyWithValue("RoleArn", []string{role}))
		url, ca, _ = startCloud(http.StatusForbidden, stsDenies)
		settings[len(settings)-1] = ca
		expectOutputs(ctx, "exchange-denied", command.ExitFound, append(settings, "--endpoint", url, "--service-account", "cart")...)
	})

	It("asks the webhook if its settings cannot be read", func(ctx SpecContext) {
		url, ca, _ := startCloud(http.StatusOK, stsGrants)
		code, out, _ := lanyard(ctx, append(args, "--endpoint", url, "--ca-file", ca)...)
		Expect(out).To(And(ContainSubstring("√ exchange/cart: AWS accepts the token"), Not(ContainSubstring("eyJhbGciOi"))))
		Expect(code).To(Equal(command.ExitOK))
	})

	It("names the missing right, and goes on", func(ctx SpecContext) {
		url, ca, forms := startCloud(http.StatusOK, stsGrants)
		kubeconfig := reader(ctx, "exchange-reader")
		code, out, errOut := lanyardAs(ctx, kubeconfig, "", append(args, "--config", customConfig, "--endpoint", url, "--ca-file", ca)...)
		Expect(out).To(And(
			ContainSubstring("? a token of exchange/cart: not known: you may not create serviceaccounts/token in the namespace exchange"),
			ContainSubstring("- exchange/oss: lanyard cannot exchange tokens for alibaba"),
		))
		Expect(errOut).To(HavePrefix("error: checks that could not run: 1"))
		Expect(code).To(Equal(command.ExitFailed))
		Expect(*forms).To(BeEmpty())

		code, out, _ = lanyardAs(ctx, kubeconfig, "", append(args, "--endpoint", url, "--ca-file", ca)...)
		Expect(out).To(ContainSubstring("you may not create pods in the namespace exchange, and the settings of the webhook could not be read"))
		Expect(code).To(Equal(command.ExitFailed))
	})

	It("fails for a ServiceAccount that does not exist", func(ctx SpecContext) {
		code, out, _ := lanyard(ctx, append(args, "--service-account", "later")...)
		Expect(out).To(ContainSubstring("ServiceAccount exchange/later does not exist"))
		Expect(code).To(Equal(command.ExitFound))
	})
})
