// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/lanyard-dev/lanyard/internal/cli/command"
)

const manifests = `# The ServiceAccount
apiVersion: v1
kind: ServiceAccount
metadata:
  name: cart
  namespace: shop
  annotations:
    lanyard.dev/aws-role-arn: ` + role + `
    lanyard.dev/aws-region: eu-central-1
---
apiVersion: v1
kind: ConfigMap # stays as it is
metadata: {name: settings, namespace: shop}
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
  namespace: shop
spec:
  selector:
    matchLabels:
      app: web
  template:
    metadata:
      labels:
        app: web
    spec:
      serviceAccountName: cart
      containers:
      - name: main
        image: image
`

var _ = Describe("inject", func() {
	It("injects manifests without a cluster", func(ctx SpecContext) {
		code, out, errOut := lanyardAs(ctx, os.DevNull, manifests, "inject", "-f", "-")
		Expect(errOut).To(BeEmpty())
		Expect(code).To(Equal(command.ExitOK))
		expectGolden("inject-yaml", out)
	})

	It("makes pods that the webhook and the guard leave as they are", func(ctx SpecContext) {
		_, out, _ := lanyardAs(ctx, os.DevNull, manifests, "inject", "-f", "-")
		documents := strings.Split(out, "---\n")
		var injected appsv1.Deployment
		Expect(yaml.Unmarshal([]byte(documents[len(documents)-1]), &injected)).To(Succeed())
		pod := newPod("web", "cart")
		pod.Annotations, pod.Spec = injected.Spec.Template.Annotations, injected.Spec.Template.Spec
		created, err := env.client.CoreV1().Pods("shop").Create(ctx, pod, dryRun)
		Expect(err).NotTo(HaveOccurred())
		Expect(created.Annotations).To(Equal(pod.Annotations))
		Expect(created.Spec.Containers[0].Env).To(Equal(pod.Spec.Containers[0].Env))
		deployment, err := env.client.AppsV1().Deployments("shop").Create(ctx, &injected, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		Expect(err).NotTo(HaveOccurred())
		Expect(deployment.Spec.Template.Annotations).To(Equal(pod.Annotations))
	})

	It("takes the settings of the webhook, from flags or its file", func(ctx SpecContext) {
		file := filepath.Join(GinkgoT().TempDir(), "config.yaml")
		Expect(os.WriteFile(file, []byte("token-mount-path: /from/the/file\nsecure-port: 9443\n"), 0o600)).To(Succeed())
		for _, test := range []struct {
			path string
			args []string
		}{
			{"/a/path", []string{"--token-mount-path", "/a/path"}},
			{"/from/the/file", []string{"--config", file}},
			{"/a/path", []string{"--config", file, "--token-mount-path", "/a/path"}},
		} {
			code, out, errOut := lanyardAs(ctx, os.DevNull, manifests, append([]string{"inject", "-f", "-"}, test.args...)...)
			Expect(errOut).To(BeEmpty())
			Expect(code).To(Equal(command.ExitOK))
			Expect(out).To(ContainSubstring("mountPath: "+test.path+"\n"), "%v", test.args)
		}
	})

	It("writes nothing if the webhook would deny an object", func(ctx SpecContext) {
		code, out, errOut := lanyardAs(ctx, os.DevNull, strings.Replace(manifests, role, "arn:aws:iam::1:role/x", 1), "inject", "-f", "-")
		Expect(out).To(BeEmpty())
		Expect(errOut).To(And(
			ContainSubstring(`denied: serviceaccount/cart in the namespace shop: invalid_annotation: serviceaccount "shop/cart": metadata.annotations[lanyard.dev/aws-role-arn]`),
			ContainSubstring("denied: deployment/web in the namespace shop: invalid_annotation: "),
			HaveSuffix("error: the webhook would deny 2 objects; nothing was written\n"),
		))
		Expect(code).To(Equal(command.ExitFound))
	})

	DescribeTable("names what is wrong", func(ctx SpecContext, code int, want, input string, args ...string) {
		got, out, errOut := lanyardAs(ctx, os.DevNull, input, append([]string{"inject"}, args...)...)
		Expect(errOut).To(HavePrefix("error: " + want))
		Expect(out).To(BeEmpty())
		Expect(got).To(Equal(code))
	},
		Entry("no file", command.ExitFailed, "--filename is missing", ""),
		Entry("a file that is not there", command.ExitFailed, "lstat /does/not/exist: ", "", "-f", "/does/not/exist"),
		Entry("malformed YAML", command.ExitFailed, "standard input: document 1: ", "a: b: c", "-f", "-"),
		Entry("a malformed setting", command.ExitFailed, "--token-mount-path: ", "", "-f", "-", "--token-mount-path", "relative"),
		Entry("a configuration that is not there", command.ExitFailed, "--config: ", "", "-f", "-", "--config", "/does/not/exist"),
	)
})
