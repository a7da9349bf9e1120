// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/lanyard-dev/lanyard/internal/cli/command"
)

const examples = "../../../examples/providers"

var _ = Describe("provider test", func() {
	It("shows what each ready-made provider gives, without a cluster", func(ctx SpecContext) {
		files, err := filepath.Glob(filepath.Join(examples, "*.yaml"))
		Expect(err).NotTo(HaveOccurred())
		Expect(files).NotTo(BeEmpty())
		for _, file := range files {
			name := strings.TrimSuffix(filepath.Base(file), ".yaml")
			code, out, errOut := lanyardAs(ctx, os.DevNull, "", "provider", "test", file)
			Expect(errOut).To(BeEmpty())
			Expect(code).To(Equal(command.ExitOK))
			expectGolden("provider-"+name, out)
		}
	})

	It("shows the values that the user gives, and those of the file", func(ctx SpecContext) {
		text, err := os.ReadFile(filepath.Join(examples, "vault.yaml"))
		Expect(err).NotTo(HaveOccurred())
		file := filepath.Join(GinkgoT().TempDir(), "config.yaml")
		settings := "default-allowed-identities: nobody\n"
		Expect(os.WriteFile(file, []byte(settings+string(text)), 0o600)).To(Succeed())
		expectOutputsAs(ctx, os.DevNull, "provider-given", command.ExitOK, BeEmpty(), "provider", "test", file,
			"--annotation", "vault-role=loki", "--annotation", "vault-audience=bao,vault-vault-namespace=team")
	})

	DescribeTable("says what is wrong", func(ctx SpecContext, code int, text, want string, args ...string) {
		file := filepath.Join(GinkgoT().TempDir(), "config.yaml")
		Expect(os.WriteFile(file, []byte(text), 0o600)).To(Succeed())
		got, out, errOut := lanyardAs(ctx, os.DevNull, "", append([]string{"provider", "test", file}, args...)...)
		Expect(errOut).To(HavePrefix("error: " + strings.ReplaceAll(want, "FILE", file)))
		Expect(out).To(BeEmpty())
		Expect(got).To(Equal(code))
	},
		Entry("with a provider", command.ExitFound, "providers:\n- name: aws\n  audience: a\n  parameters: [{name: b, required: true}]\n", "FILE: line 2: providers[0].name: Invalid value: \"aws\": is already a name of provider aws\n"),
		Entry("with the form", command.ExitFound, "providers: {}\n", "FILE: line 1: cannot unmarshal !!map"),
		Entry("with a setting", command.ExitFound, "secure-ports: 1\n", "FILE: secure-ports: unknown setting"),
		Entry("with the value of a setting", command.ExitFound, "token-mount-path: relative\n", "FILE: token-mount-path: "),
		Entry("without providers", command.ExitFound, "v: 1\n", "FILE: the file has no providers\n"),
		Entry("with a value", command.ExitFound, "providers: [{name: a, audience: a, parameters: [{name: b, required: true, pattern: c, example: c}]}]\n",
			"FILE: provider a: invalid_annotation: serviceaccount \"team/app\": metadata.annotations[lanyard.dev/a-b]: Invalid value: \"d\": must match the pattern c\n", "--annotation", "a-b=d"),
		Entry("with the command line", command.ExitFailed, "", "accepts 1 arg(s), received 2\n", "another"),
	)

	It("names a file that is not there", func(ctx SpecContext) {
		code, _, errOut := lanyardAs(ctx, os.DevNull, "", "provider", "test", "/does/not/exist")
		Expect(errOut).To(HavePrefix("error: open /does/not/exist: "))
		Expect(code).To(Equal(command.ExitFailed))
	})
})
