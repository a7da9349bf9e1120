// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/creack/pty"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/lanyard-dev/lanyard/internal/cli"
	"github.com/lanyard-dev/lanyard/internal/cli/command"
)

// onTerminal runs a command line in a directory and returns the screen of a terminal.
func onTerminal(ctx context.Context, directory string, columns uint16, args ...string) (code int, shown string) {
	GinkgoHelper()
	screen, terminal, err := pty.Open()
	Expect(err).NotTo(HaveOccurred())
	defer screen.Close()
	Expect(pty.Setsize(terminal, &pty.Winsize{Rows: 50, Cols: columns})).To(Succeed())
	text := make(chan string)
	go func() {
		all, _ := io.ReadAll(screen) // Linux returns EIO when the terminal is closed
		text <- string(all)
	}()
	here, err := os.Getwd()
	Expect(err).NotTo(HaveOccurred())
	Expect(os.Chdir(directory)).To(Succeed())
	args = append([]string{"lanyard", "--kubeconfig", env.kubeconfig}, args...)
	code = cli.Run(ctx, args, genericiooptions.IOStreams{In: strings.NewReader(""), Out: terminal, ErrOut: terminal})
	Expect(os.Chdir(here)).To(Succeed())
	Expect(terminal.Close()).To(Succeed())
	return code, progress.ReplaceAllString(strings.ReplaceAll(<-text, "\r\n", "\n"), "")
}

// progress matches what a command says while it waits, as on a slow machine. A request can take
// several lines of a terminal.
var progress = regexp.MustCompile(`(?m)^waiting for (?:[^\n]*\n){0,3}?[^\n]*\s?\.\.\.\n|^[^\n]* \.\.\.\n`)

// colours matches the sequences that make a text coloured or bold.
var colours = regexp.MustCompile("\x1b\\[[0-9;]*m")

// expectShown compares what a terminal of 80 columns shows. In one of 120 columns, and with
// colours, the command shows the same text, in lines that fit.
func expectShown(ctx context.Context, directory, heading string, code int, args ...string) {
	GinkgoHelper()
	for columns, heading := range map[uint16]string{80: heading, 120: ""} {
		GinkgoT().Setenv("NO_COLOR", "1")
		got, shown := onTerminal(ctx, directory, columns, args...)
		Expect(got).To(Equal(code), shown)
		Expect(shown).NotTo(ContainSubstring("\x1b"), "NO_COLOR is set")
		for line := range strings.Lines(shown) {
			if len(strings.Fields(line)) > 1 { // a link is not broken, so that users can copy it
				Expect(len([]rune(line))-1).To(BeNumerically("<=", columns), line)
			}
		}
		if heading != "" {
			expectGolden(heading, "$ lanyard "+strings.Join(args, " ")+"\n"+shown)
		}
		GinkgoT().Setenv("NO_COLOR", "")
		GinkgoT().Setenv("TERM", "xterm-256color")
		_, coloured := onTerminal(ctx, directory, columns, args...)
		Expect(colours.ReplaceAllString(coloured, "")).To(Equal(shown), "with colours")
	}
}

// The pages of docs/cli show excerpts of these recordings, which test/docs compares. Recordings
// that need a node, a controller or a cloud are in test/e2e/suite/cli.
var _ = Describe("lanyard in a terminal", Serial, Ordered, func() {
	var directory string
	BeforeAll(func(ctx SpecContext) {
		directory = GinkgoT().TempDir()
		read := func(path string) string {
			text, err := os.ReadFile(path)
			Expect(err).NotTo(HaveOccurred())
			return string(text)
		}
		app, alibaba := read("testdata/app.yaml"), read(filepath.Join(examples, "alibaba.yaml"))
		for name, text := range map[string]string{
			"app.yaml": app, "wrong.yaml": strings.ReplaceAll(app, "role/cart", "user/cart"), "eks.yaml": read("testdata/eks.yaml"),
			"alibaba.yaml": alibaba, "misspelled.yaml": strings.Replace(alibaba, "pattern:", "patern:", 1), "vault.yaml": read(filepath.Join(examples, "vault.yaml")),
		} {
			Expect(os.WriteFile(filepath.Join(directory, name), []byte(text), 0o600)).To(Succeed())
		}
		// There are documents, so the command does not look for them at the issuer.
		code, _, errOut := lanyard(ctx, "trust", "issuer", "--issuer", publicIssuer, "--to", filepath.Join(directory, "issuer"))
		Expect(code).To(Equal(command.ExitOK), errOut)
	})

	It("fits the help of each command into its columns", func(ctx SpecContext) {
		for _, name := range []string{
			"", "check", "explain", "status", "label", "label serviceaccounts", "token",
			"trust", "trust aws", "trust azure", "trust gcp", "trust issuer", "inject",
			"migrate",
		} {
			expectShown(ctx, directory, "", command.ExitOK, append(strings.Fields(name), "--help")...)
		}
	})

	DescribeTable("shows what it shows elsewhere, in lines that fit", func(ctx SpecContext, heading string, code int, line string) {
		expectShown(ctx, directory, heading, code, strings.Fields(line)...)
	},
		Entry("a kind that has no pods", "", command.ExitFailed, "explain ingress cart"),
		Entry("a mistake in the command line", "", command.ExitFailed, "status --watch --output json"),
		Entry("migrate of files", "migrate-files", command.ExitOK, "migrate --from eks -f eks.yaml"),
		Entry("migrate of a cluster with nothing to migrate", "migrate-nothing", command.ExitOK, "migrate --from eks --namespace shop"),
		Entry("a mistake in a configuration file", "inject-page-mistake", command.ExitFailed, "inject --config misspelled.yaml -f app.yaml"),
		Entry("a manifest that the webhook would deny", "inject-page-denied", command.ExitFound, "inject -f wrong.yaml"),
		Entry("the documents of an issuer", "trust-issuer-to", command.ExitOK, "trust issuer --issuer https://issuer.example.com/production --to issuer"),
		Entry("the documents of a fleet", "trust-issuer-fleet", command.ExitOK, "trust issuer --fleet --issuer https://issuer.example.com/production --to issuer"),
	)

	It("prints manifests as they are", func(ctx SpecContext) {
		GinkgoT().Setenv("NO_COLOR", "1")
		code, shown := onTerminal(ctx, directory, 80, "inject", "-f", "app.yaml")
		Expect(code).To(Equal(command.ExitOK), shown)
		expectGolden("inject-page", "$ lanyard inject -f app.yaml\n"+shown)
	})

	It("labels ServiceAccounts", func(ctx SpecContext) {
		newNamespace(ctx, "warehouse")
		for _, name := range []string{"orders", "stock"} {
			newServiceAccount(ctx, "warehouse", name, map[string]string{"lanyard.dev/aws-role-arn": role})
			unlabel(ctx, "warehouse", name)
		}
		const line = "label serviceaccounts --namespace warehouse"
		expectShown(ctx, directory, "label-page-dry-run", command.ExitOK, strings.Fields(line+" --dry-run=client")...)
		GinkgoT().Setenv("NO_COLOR", "1")
		code, shown := onTerminal(ctx, directory, 80, strings.Fields(line)...)
		Expect(code).To(Equal(command.ExitOK))
		expectGolden("label-page", "$ lanyard "+line+"\n"+shown)
		expectShown(ctx, directory, "label-page-again", command.ExitOK, strings.Fields(line)...)
	})

	It("prints the scripts of trust as they are", func(ctx SpecContext) {
		for name, annotations := range map[string]map[string]string{
			"mail":    {"lanyard.dev/azure-client-id": "55556666-cccc-7777-dddd-8888eeee9999", "lanyard.dev/azure-tenant-id": "aaaabbbb-0000-cccc-1111-dddd2222eeee"},
			"reports": {"lanyard.dev/gcp-workload-identity-provider": "projects/123456789/locations/global/workloadIdentityPools/shop/providers/production", "lanyard.dev/gcp-service-account": "reports@example-project.iam.gserviceaccount.com"},
		} {
			newServiceAccount(ctx, "shop", name, annotations)
			DeferCleanup(func(ctx SpecContext) error {
				return env.client.CoreV1().ServiceAccounts("shop").Delete(ctx, name, metav1.DeleteOptions{})
			})
		}
		vault := filepath.Join(directory, "vault.yaml")
		for heading, line := range map[string]string{
			"trust-page-azure": "trust azure mail --namespace shop",
			"trust-page-gcp":   "trust gcp reports --namespace shop --part serviceaccount",
			"trust-page-vault": "trust vault cart --namespace shop --config " + vault,
		} {
			expectOutput(ctx, env.kubeconfig, heading, command.ExitOK, Not(ContainSubstring("error")), strings.Fields(line+" --issuer "+publicIssuer)...)
		}
	})
})
