// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/lanyard-dev/lanyard/internal/cli/command"
	"github.com/lanyard-dev/lanyard/internal/exchange"
)

// startCloud starts a service that gives every request the same answer, and returns
// its URL, a file with its CA, and the forms that it gets.
func startCloud(status int, body string) (url, caFile string, forms *[]map[string][]string) {
	GinkgoHelper()
	forms = new([]map[string][]string)
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := r.ParseForm(); err == nil {
			*forms = append(*forms, r.PostForm)
		}
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	}))
	DeferCleanup(server.Close)
	caFile = filepath.Join(GinkgoT().TempDir(), "ca.crt")
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	Expect(os.WriteFile(caFile, ca, 0o600)).To(Succeed())
	return server.URL, caFile, forms
}

const (
	stsGrants = `<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleWithWebIdentityResult>
<AssumedRoleUser><Arn>arn:aws:sts::111122223333:assumed-role/cart/cart@shop</Arn></AssumedRoleUser>
<Credentials><SecretAccessKey>HIDDEN</SecretAccessKey><SessionToken>HIDDEN</SessionToken><Expiration>2030-01-02T03:04:05Z</Expiration></Credentials>
</AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>`
	stsDenies = `<ErrorResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><Error><Type>Sender</Type><Code>AccessDenied</Code>
<Message>Not authorized to perform sts:AssumeRoleWithWebIdentity</Message></Error></ErrorResponse>`
)

// Answers of Azure and Google Cloud.
const (
	azureGrants = `{"token_type":"Bearer","expires_in":3599,"access_token":"HIDDEN"}`
	azureDenies = `{"error":"invalid_client","error_codes":[70021],
"error_description":"AADSTS70021: No matching federated identity record found for presented assertion. Trace ID: 1 Correlation ID: 2"}`
	gcpGrants = `{"token_type":"Bearer","expires_in":3599,"access_token":"HIDDEN"}`
	gcpDenies = `{"error":"invalid_grant","error_description":"The audience in ID Token does not match the expected audience."}`
)

var _ = Describe("token for Azure and Google Cloud", Ordered, func() {
	BeforeAll(func(ctx SpecContext) {
		newServiceAccount(ctx, "shop", "clouds", map[string]string{
			"lanyard.dev/azure-client-id":                "11111111-2222-3333-4444-555555555555",
			"lanyard.dev/gcp-workload-identity-provider": pool,
		})
		expectInjected(ctx, "shop", "clouds", "azure,gcp")
	})

	DescribeTable("shows what a token says, and what the cloud says to it", func(ctx SpecContext, cloud, grants, denies string) {
		args := []string{"token", "serviceaccount/clouds", "--namespace", "shop", "--for", cloud}
		expectOutputs(ctx, "token-"+cloud, command.ExitOK, args...)
		url, ca, forms := startCloud(http.StatusOK, grants)
		expectOutputs(ctx, "token-"+cloud+"-exchange", command.ExitOK, append(args, "--exchange", "--endpoint", url, "--ca-file", ca)...)
		Expect(*forms).To(HaveLen(2))
		url, ca, _ = startCloud(http.StatusBadRequest, denies)
		expectOutputs(ctx, "token-"+cloud+"-denied", command.ExitFound, append(args, "--exchange", "--endpoint", url, "--ca-file", ca)...)
	},
		Entry("Azure", "azure", azureGrants, azureDenies),
		Entry("Google Cloud", "gcp", gcpGrants, gcpDenies),
	)
})

var _ = Describe("token", func() {
	It("shows what a token says, in the audience of the pods", func(ctx SpecContext) {
		expectOutputs(ctx, "token", command.ExitOK, "token", "serviceaccount/cart", "--namespace", "shop", "--for", "aws")
	})

	It("takes any other audience as it is", func(ctx SpecContext) {
		code, out, errOut := lanyard(ctx, "token", "default", "--namespace", "shop", "--for", "vault", "--duration", "20m")
		Expect(errOut).To(BeEmpty())
		Expect(code).To(Equal(command.ExitOK))
		Expect(out).To(MatchRegexp(`(?m)^  audience +vault$`))
		Expect(out).To(MatchRegexp(`(?m)^  expires .*, after 20m0s$`))
	})

	It("warns of a provider in other letters, and names a missing right", func(ctx SpecContext) {
		code, out, errOut := lanyard(ctx, "token", "cart", "--namespace", "shop", "--for", "AWS")
		Expect(errOut).To(Equal("warning: AWS is an audience; the name of the provider is aws\n"))
		Expect(out).To(MatchRegexp(`(?m)^  audience +AWS$`))
		Expect(code).To(Equal(command.ExitOK))
		_, _, errOut = lanyardAs(ctx, user("nobody-of-tokens"), "", "token", "cart", "--namespace", "shop", "--for", "vault")
		Expect(errOut).To(HaveSuffix("; ask an administrator for the right to create serviceaccounts/token in the namespace shop\n"))
	})

	It("writes the token itself only with --raw", func(ctx SpecContext) {
		code, out, errOut := lanyard(ctx, "token", "serviceaccount/cart", "--namespace", "shop", "--for", "aws", "--raw")
		Expect(errOut).To(BeEmpty())
		Expect(code).To(Equal(command.ExitOK))
		claims, err := exchange.ParseToken(out)
		Expect(err).NotTo(HaveOccurred())
		Expect(claims.Subject).To(Equal("system:serviceaccount:shop:cart"))
		Expect(claims.Audience).To(Equal([]string{"sts.amazonaws.com"}))
		_, out, _ = lanyard(ctx, "token", "serviceaccount/cart", "--namespace", "shop", "--for", "aws", "--output", "json")
		// Every token begins with {"alg":. The random ID of the key may contain fewer letters of it.
		Expect(out).NotTo(ContainSubstring("eyJhbGciOi"))
	})

	It("presents the token to the cloud as the SDK in a pod would", func(ctx SpecContext) {
		url, ca, forms := startCloud(http.StatusOK, stsGrants)
		expectOutputs(ctx, "token-exchange", command.ExitOK, "token", "serviceaccount/cart", "--namespace", "shop", "--for", "aws", "--exchange", "--endpoint", url, "--ca-file", ca)
		Expect(*forms).To(HaveLen(2))
		for _, form := range *forms {
			Expect(form).To(HaveKeyWithValue("RoleArn", []string{role}))
			Expect(form).To(HaveKeyWithValue("RoleSessionName", []string{"cart@shop"}))
			claims, err := exchange.ParseToken(form["WebIdentityToken"][0])
			Expect(err).NotTo(HaveOccurred())
			Expect(claims.Subject).To(Equal("system:serviceaccount:shop:cart"))
		}
	})

	It("shows why the cloud denies the token", func(ctx SpecContext) {
		url, ca, _ := startCloud(http.StatusForbidden, stsDenies)
		expectOutputs(ctx, "token-denied", command.ExitFound, "token", "serviceaccount/cart", "--namespace", "shop", "--for", "aws", "--exchange", "--endpoint", url, "--ca-file", ca)
	})

	It("does not send the token to a server that it does not trust", func(ctx SpecContext) {
		url, _, forms := startCloud(http.StatusOK, stsGrants)
		code, out, errOut := lanyard(ctx, "token", "serviceaccount/cart", "--namespace", "shop", "--for", "aws", "--exchange", "--endpoint", url)
		Expect(errOut).To(And(ContainSubstring("certificate"), HaveSuffix("through HTTPS_PROXY, and --ca-file names another CA\n")))
		Expect(out).To(BeEmpty())
		Expect(code).To(Equal(command.ExitFailed))
		Expect(*forms).To(BeEmpty())
	})

	It("shows the token of each of several ServiceAccounts, and what is wrong with the others", func(ctx SpecContext) {
		expectOutputs(ctx, "token-several", command.ExitOK, "token", "cart", "default", "--namespace", "shop", "--for", "vault")
		url, ca, _ := startCloud(http.StatusForbidden, stsDenies)
		args := []string{"token", "later", "sa/cart", "default", "--namespace", "shop", "--for", "aws"}
		code, out, errOut := lanyard(ctx, append(args, "--exchange", "--endpoint", url, "--ca-file", ca)...)
		Expect(errOut).To(And(HavePrefix("error: "), ContainSubstring("get serviceaccount shop/later: "), ContainSubstring("pods of serviceaccount shop/default: they get no token for aws")))
		Expect(out).To(And(HavePrefix("token of serviceaccount shop/cart\n"), ContainSubstring("the cloud denies the token: AccessDenied")))
		Expect(code).To(Equal(command.ExitFailed))
	})

	It("says which identity the pods lack", func(ctx SpecContext) {
		for name, want := range map[string]string{
			"cart":    "they get no token for azure; lanyard explain serviceaccount cart --namespace shop shows why",
			"default": "they get no token for azure",
		} {
			code, out, errOut := lanyard(ctx, "token", "serviceaccount/"+name, "--namespace", "shop", "--for", "azure")
			Expect(errOut).To(And(HavePrefix("error: pods of serviceaccount shop/"+name+": "), ContainSubstring(want)))
			Expect(out).To(BeEmpty())
			Expect(code).To(Equal(command.ExitFailed))
		}
	})

	DescribeTable("denies contradicting flags", func(ctx SpecContext, want string, args ...string) {
		code, out, errOut := lanyard(ctx, append([]string{"token"}, args...)...)
		Expect(errOut).To(HavePrefix("error: " + want))
		Expect(out).To(BeEmpty())
		Expect(code).To(Equal(command.ExitFailed))
	},
		Entry("no receiver", "--for is missing", "sa/cart"),
		Entry("raw with exchange", "--raw cannot be used with --exchange", "sa/cart", "--for", "aws", "--raw", "--exchange"),
		Entry("raw as JSON", "--raw cannot be used with --exchange or --output", "sa/cart", "--for", "aws", "--raw", "--output", "json"),
		Entry("a scope of another cloud", "--scope is for azure, not for aws", "sa/cart", "--for", "aws", "--exchange", "--scope", "x"),
		Entry("no name", "the name of a ServiceAccount is missing: lanyard token NAME", "--for", "aws"),
		Entry("raw for several", "--raw: got 2 ServiceAccounts, want one", "cart", "default", "--for", "aws", "--raw"),
		Entry("an exchange for an audience", "--exchange: lanyard cannot exchange tokens for \"vault\"", "sa/cart", "--for", "vault", "--exchange"),
		Entry("an endpoint without an exchange", "--endpoint, --ca-file and --scope need --exchange", "sa/cart", "--for", "aws", "--endpoint", "https://x"),
		Entry("another type", "deployment/cart: this command is for serviceaccount", "deployment/cart", "--for", "aws"),
	)
})

// completions returns the completions that the shell gets.
func completions(ctx context.Context, args ...string) []string {
	GinkgoHelper()
	code, out, _ := lanyard(ctx, append([]string{"__complete"}, args...)...)
	Expect(code).To(Equal(command.ExitOK))
	return strings.Split(out, "\n")
}

var _ = Describe("completion of ServiceAccounts", func() {
	It("offers those of the namespace", func(ctx SpecContext) {
		for _, command := range [][]string{{"token"}, {"trust", "aws"}} {
			Expect(completions(ctx, append(command, "--namespace", "shop", "")...)).To(ContainElement("cart"))
		}
	})
})
