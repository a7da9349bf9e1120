// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package identity_test checks Lanyard's purpose: unmodified SDKs of three
// clouds in three languages, in real containers, get the credentials of their
// own ServiceAccount, using only what was injected.
package identity_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/yaml"

	"github.com/lanyard-dev/lanyard/test/e2e/expect"
	"github.com/lanyard-dev/lanyard/test/e2e/framework"
	"github.com/lanyard-dev/lanyard/test/e2e/identities"
)

const namespace = identities.Namespace

// Shared by all specs.
var (
	cluster *framework.Cluster
	checker expect.Checker
	// custom is for the custom providers, which have a table of their own.
	custom = expect.Checker{Table: framework.Table{Languages: []string{framework.Go}, Clouds: framework.CustomClouds()}}
	// No shutdown delay: the suite reinstalls Lanyard, and the availability
	// suite tests the shutdown.
	install = framework.Install{Values: []string{"shutdownDelaySeconds=0", "verifiedStart.enabled=true"}}
)

func TestIdentity(t *testing.T) {
	expect.Suite(t, "identity")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	var err error
	cluster, err = framework.Connect()
	Expect(err).NotTo(HaveOccurred())
	install.Config, err = exampleProviders(strings.NewReplacer(":8200", ""), framework.CustomClouds()...)
	Expect(err).NotTo(HaveOccurred())
	Expect(install.Up(ctx, cluster)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) error { return install.Down(ctx, cluster) })
	Expect(cluster.WaitReady(ctx)).To(HaveLen(2))
	checker.Cluster = cluster
	checker.Clouds, err = cluster.StartClouds(ctx, identities.Trust)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx SpecContext) error { return checker.Clouds.Stop(ctx) })
	custom.Cluster, custom.Clouds = cluster, checker.Clouds
	Expect(cluster.SetUp(ctx, checker.Clouds, namespace, nil, identities.Accounts)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) error { return cluster.DeleteNamespace(ctx, namespace) })
	Expect(cluster.WaitInjected(ctx, namespace, "three-clouds")).To(Succeed())
})

var _ = AfterSuite(func() {
	fmt.Printf("\n%s\n%s\n", checker.Table.String(), custom.Table.String())
})

// exampleProviders returns the value config of the chart with files of
// examples/providers. The placeholders are replaced.
func exampleProviders(placeholders *strings.Replacer, names ...string) (map[string]any, error) {
	var all []any
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join(cluster.Root, "examples", "providers", name+".yaml"))
		if err != nil {
			return nil, err
		}
		var file struct {
			Providers []any `json:"providers"`
		}
		if err := yaml.UnmarshalStrict([]byte(placeholders.Replace(string(text))), &file); err != nil {
			return nil, fmt.Errorf("decode examples/providers/%s.yaml: %w", name, err)
		}
		all = append(all, file.Providers...)
	}
	return map[string]any{"providers": all}, nil
}
