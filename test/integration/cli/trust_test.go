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
	corev1 "k8s.io/api/core/v1"

	"github.com/lanyard-dev/lanyard/internal/cli/cloud"
	"github.com/lanyard-dev/lanyard/internal/cli/command"
)

const (
	publicIssuer = "https://issuer.example.com/production"
	pool         = "projects/123456789012/locations/global/workloadIdentityPools/production/providers/kubernetes"
)

// The warning about the audience: in these specs, the webhook runs outside the cluster.
const (
	unreadSettings = "warning: the settings of the webhook could not be read, so the audience "
	unreadHint     = " may not be the cluster's: the webhook runs outside the cluster. Pass the configuration file with --config.\n"
)

var _ = Describe("trust", func() {
	// The other formats are in the golden files of internal/cli/cloud.
	DescribeTable("says what the cloud must be told", func(ctx SpecContext, name string, args ...string) {
		expectOutput(ctx, env.kubeconfig, "trust-"+name+" as shell", command.ExitOK, And(HavePrefix(unreadSettings), HaveSuffix(unreadHint)),
			append([]string{"trust", "--namespace", "shop", "--issuer", publicIssuer, "--output", "shell"}, args...)...)
	},
		Entry("AWS, from the annotations", "aws", "aws", "serviceaccount/cart"),
		Entry("Azure, from flags", "azure", "azure", "serviceaccount/cart", "--resource-group", "workload-identities"),
		Entry("Google Cloud, from flags", "gcp", "gcp", "serviceaccount/cart", "--workload-identity-provider", pool, "--project", "my-project"),
	)

	It("prefers flags to annotations, and the cloud's audience to the common one", func(ctx SpecContext) {
		newServiceAccount(ctx, "shop", "audiences", map[string]string{
			"lanyard.dev/aws-role-arn": role, "lanyard.dev/aws-audience": "only-aws", "lanyard.dev/audience": "common", "lanyard.dev/azure-client-id": "11111111-2222-3333-4444-555555555555",
		})
		args := []string{"sa/audiences", "--namespace", "shop", "--issuer", publicIssuer}
		for _, test := range []struct{ args, want []string }{
			{[]string{"trust", "aws"}, []string{"arn:aws:iam::111122223333:role/cart", "only-aws"}},
			{[]string{"trust", "azure"}, []string{"common"}},
			{[]string{"trust", "aws", "--role-arn", "arn:aws:iam::444455556666:role/other", "--audience", "of-the-flag"}, []string{"arn:aws:iam::444455556666:role/other", "of-the-flag"}},
		} {
			code, out, _ := lanyard(ctx, append(append(test.args, args...), "--output", "json")...)
			Expect(code).To(Equal(command.ExitOK))
			for _, want := range test.want {
				Expect(out).To(ContainSubstring(`"`+want+`"`), "%v", test.args)
			}
		}
	})

	It("takes the issuer of the cluster", func(ctx SpecContext) {
		code, out, errOut := lanyard(ctx, "trust", "aws", "sa/cart", "--namespace", "shop")
		Expect(code).To(Equal(command.ExitOK))
		issuer := clusterIssuer(ctx)
		Expect(out).To(ContainSubstring("--url " + issuer + " "))
		Expect(errOut).To(HaveSuffix(unreadHint + "warning: the issuer " + issuer + " is not public, so the cloud cannot read its keys: see https://github.com/lanyard-dev/lanyard/blob/main/docs/issuer.md\n"))
	})

	It("uploads the keys to Google Cloud if the issuer is not public", func(ctx SpecContext) {
		code, out, errOut := lanyard(ctx, "trust", "gcp", "sa/cart", "--namespace", "shop", "--workload-identity-provider", pool)
		Expect(errOut).To(HaveSuffix(unreadHint))
		Expect(code).To(Equal(command.ExitOK))
		Expect(out).To(And(ContainSubstring("--jwk-json-path jwks.json"), ContainSubstring(`{"keys":[{"use":"sig","kty":`)))
	})

	It("keeps the uploaded keys of other clusters", func(ctx SpecContext) {
		uploaded := filepath.Join(GinkgoT().TempDir(), "uploaded.json")
		args := []string{"trust", "gcp", "sa/cart", "--namespace", "shop", "--issuer", publicIssuer, "--workload-identity-provider", pool, "--part", "cluster"}
		kids := func(args ...string) []string {
			code, out, errOut := lanyard(ctx, args...)
			Expect(code).To(Equal(command.ExitOK), errOut)
			Expect(out).To(And(ContainSubstring("providers update-oidc "), Not(ContainSubstring("create-oidc"))))
			_, keys, _ := strings.Cut(out, "<<'EOF'\n")
			keys, _, _ = strings.Cut(keys, "\nEOF\n")
			documents, err := cloud.Parse([]byte(`{"issuer":"x"}`), []byte(keys))
			Expect(err).NotTo(HaveOccurred(), out)
			return documents.KeyIDs()
		}
		keep := append(args, "--keep-keys", uploaded)
		Expect(os.WriteFile(uploaded, []byte("\n"), 0o600)).To(Succeed())
		own := kids(keep...)
		Expect(own).NotTo(BeEmpty())
		Expect(os.WriteFile(uploaded, []byte(`{"keys":[{"kty":"RSA","kid":"eu","n":"AQAB","e":"AQAB"},{"kty":"RSA","kid":"us","n":"AQAC","e":"AQAB"}]}`), 0o600)).To(Succeed())
		Expect(kids(keep...)).To(ConsistOf(append([]string{"eu", "us"}, own...)))
		Expect(kids(append(keep, "--remove-key", "eu")...)).To(ConsistOf(append([]string{"us"}, own...)))
		for _, test := range []struct {
			text, want string
			args       []string
		}{
			{`{"keys":[{"kty":"RSA","kid":"eu","n":"AQAB","e":"AQAB","d":"AQAB"}]}`, `key "eu" is a private key`, keep},
			{"no keys", "--keep-keys " + uploaded + ": keys: invalid", keep},
			{"{}", "--remove-key needs --keep-keys", append(args, "--remove-key", "eu")},
		} {
			Expect(os.WriteFile(uploaded, []byte(test.text), 0o600)).To(Succeed())
			code, out, errOut := lanyard(ctx, test.args...)
			Expect(code).To(Equal(command.ExitFailed), out)
			Expect(errOut).To(ContainSubstring(test.want))
		}
	})

	It("shows how to remove what it creates", func(ctx SpecContext) {
		newServiceAccount(ctx, "shop", "removed", map[string]string{"lanyard.dev/aws-role-arn": role, "lanyard.dev/aws-region": "eu-central-1", "lanyard.dev/audience": "common"})
		args := []string{"trust", "aws", "removed", "--namespace", "shop", "--issuer", publicIssuer, "--remove"}
		for _, part := range []string{"", "cluster", "all"} {
			if part != "" {
				args = append(args, "--part", part)
			}
			expectOutput(ctx, env.kubeconfig, strings.TrimSpace("trust-aws removed "+part), command.ExitOK, BeEmpty(), args...)
		}
		code, _, errOut := lanyard(ctx, append(args, "--output", "terraform")...)
		Expect(code).To(Equal(command.ExitFailed))
		Expect(errOut).To(ContainSubstring("--remove: the commands are for the shell, not for --output terraform"))
	})

	It("works before the ServiceAccount exists", func(ctx SpecContext) {
		code, out, errOut := lanyard(ctx, "trust", "aws", "sa/later", "--namespace", "shop", "--issuer", publicIssuer, "--role-arn", role, "--part", "serviceaccount")
		Expect(errOut).To(HavePrefix("serviceaccount shop/later does not exist yet\n" + unreadSettings))
		Expect(code).To(Equal(command.ExitOK))
		Expect(out).To(And(ContainSubstring("system:serviceaccount:shop:later"), Not(ContainSubstring("create-open-id-connect-provider"))))
	})

	It("trusts several ServiceAccounts for one identity, and no others", func(ctx SpecContext) {
		const other = "arn:aws:iam::444455556666:role/other"
		newNamespace(ctx, "logs")
		newServiceAccount(ctx, "logs", "ingester", map[string]string{"lanyard.dev/aws-role-arn": role})
		newServiceAccount(ctx, "logs", "querier", nil)
		newServiceAccount(ctx, "logs", "ruler", map[string]string{"lanyard.dev/aws-role-arn": other})
		args := []string{"trust", "aws", "--namespace", "logs", "--issuer", publicIssuer}
		code, out, errOut := lanyard(ctx, append(args, "ingester", "querier")...)
		Expect(code).To(Equal(command.ExitOK), errOut)
		Expect(out).To(And(
			ContainSubstring(`:sub": ["system:serviceaccount:logs:ingester","system:serviceaccount:logs:querier"]`),
			ContainSubstring("annotate serviceaccount querier"), Not(ContainSubstring("annotate serviceaccount ingester")),
		))
		code, _, errOut = lanyard(ctx, append(args, "ingester", "ruler")...)
		Expect(code).To(Equal(command.ExitFailed))
		Expect(errOut).To(ContainSubstring(`aws-role-arn is "` + role + `" for ingester, and "` + other + `" for ruler: run the command once for each`))
	})

	It("gives the pods of CredentialsRequests their roles, and shows what changed", func(ctx SpecContext) {
		command := func(args ...string) (int, string) {
			code, out, errOut := lanyardAs(ctx, env.kubeconfig, "", args...)
			Expect(errOut).To(Or(BeEmpty(), And(HavePrefix(unreadSettings), HaveSuffix(unreadHint))))
			return code, "$ lanyard " + strings.ReplaceAll(strings.Join(args, " "), "testdata/", "") + "\n" + out
		}
		code, out := command("trust", "-f", "testdata/bundle", "--name", "prod", "--role-arn-prefix", "arn:aws:iam::111122223333:role/", "--issuer", publicIssuer, "--output", "shell")
		Expect(code).To(BeZero(), out)
		expectGolden("trust-bundle as shell", out)
		code, out = command("trust", "-f", "testdata/bundle", "--diff", "testdata/bundle-previous")
		Expect(code).To(Equal(1))
		expectGolden("trust-bundle-diff", out)

		// Annotate it as the shell commands would, and use the issuer of the cluster.
		_, out, _ = lanyard(ctx, "trust", "-f", "testdata/bundle", "--name", "prod", "--role-arn-prefix", "arn:aws:iam::111122223333:role/")
		Expect(out).To(ContainSubstring("--url " + clusterIssuer(ctx) + " "))
		newNamespace(ctx, "image-registry")
		for _, name := range []string{"registry-operator", "registry"} {
			_, rest, found := strings.Cut(out, "kubectl annotate serviceaccount "+name+" --namespace image-registry --overwrite \\\n  ")
			Expect(found).To(BeTrue(), out)
			annotation, _, _ := strings.Cut(rest, "\n")
			key, value, _ := strings.Cut(annotation, "=")
			newServiceAccount(ctx, "image-registry", name, map[string]string{key: value})
			pod, err := env.client.CoreV1().Pods("image-registry").Create(ctx, newPod("probe", name), dryRun)
			Expect(err).NotTo(HaveOccurred())
			Expect(pod.Spec.Containers[0].Env).To(ContainElement(corev1.EnvVar{Name: "AWS_ROLE_ARN", Value: "arn:aws:iam::111122223333:role/prod-image-registry-credentials"}))
			Expect(out).To(ContainSubstring(`"system:serviceaccount:image-registry:` + name + `"`))
		}
	})

	DescribeTable("names what is missing or wrong", func(ctx SpecContext, code int, want string, args ...string) {
		got, out, errOut := lanyard(ctx, append([]string{"trust", "--namespace", "shop"}, args...)...)
		Expect(errOut).To(HavePrefix("error: " + want))
		Expect(out).To(BeEmpty())
		Expect(got).To(Equal(code))
	},
		Entry("no role", command.ExitFailed, "--role-arn is missing: the ServiceAccount has no annotation lanyard.dev/aws-role-arn, and the default of the cluster is not known", "aws", "sa/default"),
		Entry("no provider", command.ExitFailed, "--workload-identity-provider is missing", "gcp", "sa/cart"),
		Entry("a malformed role", command.ExitFailed, "--role-arn: Invalid value: \"x\": must be the ARN of an IAM role, such as arn:aws:iam::111122223333:role/name; it may be correct with the settings of the webhook", "aws", "sa/cart", "--role-arn", "x"),
		Entry("an audience of the API server", command.ExitFailed, "--audience: Invalid value: \"https://kubernetes.default.svc\"", "aws", "sa/cart", "--audience", "https://kubernetes.default.svc"),
	)
})

// clusterIssuer returns the issuer of the cluster.
func clusterIssuer(ctx context.Context) string {
	GinkgoHelper()
	text, err := env.client.CoreV1().RESTClient().Get().AbsPath("/.well-known/openid-configuration").DoRaw(ctx)
	Expect(err).NotTo(HaveOccurred())
	_, rest, found := strings.Cut(string(text), `"issuer":"`)
	Expect(found).To(BeTrue())
	issuer, _, _ := strings.Cut(rest, `"`)
	return issuer
}

var _ = Describe("trust issuer", func() {
	It("shows the issuer and the key that signs", func(ctx SpecContext) {
		code, out, errOut := lanyard(ctx, "trust", "issuer", "--namespace", "shop")
		Expect(errOut).To(BeEmpty())
		Expect(code).To(Equal(command.ExitOK))
		Expect(out).To(MatchRegexp(`^issuer ` + clusterIssuer(ctx) + `\n  key \S+, signs at present\n$`))
		expectOutputs(ctx, "trust-issuer", command.ExitOK, "trust", "issuer", "--namespace", "shop")
	})

	It("writes documents that check then finds equal, until they are not", func(ctx SpecContext) {
		directory := GinkgoT().TempDir()
		server := httptest.NewTLSServer(http.FileServer(http.Dir(directory)))
		DeferCleanup(server.Close)
		ca := filepath.Join(GinkgoT().TempDir(), "ca.crt")
		Expect(os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600)).To(Succeed())

		code, out, errOut := lanyard(ctx, "trust", "issuer", "--issuer", server.URL, "--to", directory, "--ca-file", ca)
		Expect(errOut).To(And(ContainSubstring("no documents were found at "+server.URL), ContainSubstring("status 404"), ContainSubstring("wrote the documents of "+server.URL)))
		Expect(out).To(BeEmpty())
		Expect(code).To(Equal(command.ExitOK))

		// The issuer differs from the cluster's, the keys do not.
		check := []string{"check", "--namespace", "shop", "--config", customConfig, "--issuer", server.URL, "--ca-file", ca}
		code, out, _ = lanyard(ctx, append(check, "--output", "json")...)
		Expect(code).To(Equal(command.ExitFound))
		Expect(out).To(ContainSubstring(`the public issuer is \"` + server.URL + `\", but tokens have \"` + clusterIssuer(ctx) + `\"`))
		Expect(strings.Count(out, `"status": "failed"`)).To(Equal(1))

		// With the issuer of the cluster, nothing differs.
		discovery := filepath.Join(directory, ".well-known", "openid-configuration")
		text, err := os.ReadFile(discovery)
		Expect(err).NotTo(HaveOccurred())
		changed := strings.Replace(string(text), `"issuer": "`+server.URL+`"`, `"issuer": "`+clusterIssuer(ctx)+`"`, 1)
		Expect(os.WriteFile(discovery, []byte(changed), 0o600)).To(Succeed())
		expectOutputs(ctx, "check-issuer", command.ExitOK, check...)

		// After a rotation without a new upload, the published key differs.
		keys := filepath.Join(directory, "openid", "v1", "jwks")
		Expect(os.WriteFile(keys, []byte(`{"keys":[{"kty":"RSA","kid":"former","n":"AQAB","e":"AQAB"}]}`), 0o600)).To(Succeed())
		expectOutputs(ctx, "check-issuer-rotated", command.ExitFound, check...)

		// Keys are never removed unless the user asks for it.
		publish := []string{"trust", "issuer", "--issuer", server.URL, "--to", directory}
		code, out, errOut = lanyard(ctx, publish...)
		Expect(code).To(Equal(command.ExitFailed))
		Expect(out).To(BeEmpty())
		Expect(errOut).To(ContainSubstring("has keys that this cluster does not have: former; if clusters sign with them, pass --fleet to keep them"))
		Expect(os.ReadFile(keys)).To(ContainSubstring("former"))
		code, _, errOut = lanyard(ctx, append(publish, "--fleet")...)
		Expect(code).To(Equal(command.ExitOK), errOut)
		Expect(errOut).To(HavePrefix("warning: the issuer " + server.URL + " is not public"))
		Expect(errOut).To(ContainSubstring("can act as each other"))
		Expect(os.ReadFile(keys)).To(And(ContainSubstring("former"), ContainSubstring(`"use":"sig"`)))
		code, _, errOut = lanyard(ctx, append(publish, "--remove-key", "former")...)
		Expect(code).To(Equal(command.ExitOK), errOut)
		Expect(os.ReadFile(keys)).NotTo(ContainSubstring("former"))

		// Unreadable documents are not a mistake of the cluster.
		Expect(os.Remove(keys)).To(Succeed())
		code, out, _ = lanyard(ctx, check...)
		Expect(code).To(Equal(command.ExitFailed))
		Expect(out).To(And(ContainSubstring("status 404"), ContainSubstring("\n    Check the URL, and that this machine reaches it. To publish the documents: lanyard trust issuer --to PLACE\n")))
	})

	It("writes the commands of an upload", func(ctx SpecContext) {
		server := httptest.NewTLSServer(http.NotFoundHandler())
		DeferCleanup(server.Close)
		code, out, errOut := lanyard(ctx, "trust", "issuer", "--issuer", server.URL, "--to", "gs://bucket/production", "--ca-file", os.DevNull)
		Expect(code).To(Equal(command.ExitFailed))
		Expect(errOut).To(ContainSubstring("--ca-file"))
		Expect(out).To(BeEmpty())
		ca := filepath.Join(GinkgoT().TempDir(), "ca.crt")
		Expect(os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600)).To(Succeed())
		code, out, _ = lanyard(ctx, "trust", "issuer", "--issuer", server.URL, "--to", "gs://bucket/production", "--ca-file", ca)
		Expect(code).To(Equal(command.ExitOK))
		Expect(out).To(And(
			ContainSubstring("gs://bucket/production/openid/v1/jwks"), ContainSubstring("gs://bucket/production/.well-known/openid-configuration"),
			ContainSubstring(`"issuer": "`+server.URL+`"`), ContainSubstring("--if-generation-match 0"),
		))
	})

	It("names the CA if the certificate of the issuer is not trusted", func(ctx SpecContext) {
		server := httptest.NewTLSServer(http.NotFoundHandler())
		DeferCleanup(server.Close)
		code, out, errOut := lanyard(ctx, "trust", "issuer", "--issuer", server.URL, "--to", "s3://bucket")
		Expect(code).To(Equal(command.ExitFailed))
		Expect(errOut).To(ContainSubstring("pass the CA with --ca-file"))
		Expect(out).To(BeEmpty())
	})

	It("warns of a place that is not the issuer's", func(ctx SpecContext) {
		code, _, errOut := lanyard(ctx, "trust", "issuer", "--issuer", publicIssuer, "--to", "s3://bucket/production")
		Expect(errOut).To(HavePrefix("warning: the issuer is " + publicIssuer + "; make sure that it shows s3://bucket/production\n"))
		Expect(code).To(Equal(command.ExitOK))
	})

	DescribeTable("denies contradicting flags", func(ctx SpecContext, want string, args ...string) {
		code, out, errOut := lanyard(ctx, append([]string{"trust", "issuer"}, args...)...)
		Expect(errOut).To(HavePrefix("error: " + want))
		Expect(out).To(BeEmpty())
		Expect(code).To(Equal(command.ExitFailed))
	},
		Entry("an issuer alone", "--issuer needs --to", "--issuer", publicIssuer),
		Entry("a CA alone", "--ca-file needs --to", "--ca-file", "x"),
		Entry("a fleet alone", "--fleet needs --to", "--fleet"),
		Entry("a key alone", "--remove-key needs --to", "--remove-key", "x"),
		Entry("a file of keys without an issuer", "--public-key needs --issuer", "--public-key", "x", "--to", "y"),
		Entry("a file of keys that does not exist", "--public-key: open /none: no such file or directory", "--public-key", "/none", "--to", "y", "--issuer", publicIssuer),
		Entry("a place without slashes", "--to: place \"s3:x\"", "--issuer", publicIssuer, "--to", "s3:x"),
		Entry("an unknown place", "--to: place \"ftp://x\"", "--issuer", publicIssuer, "--to", "ftp://x"),
	)
})
