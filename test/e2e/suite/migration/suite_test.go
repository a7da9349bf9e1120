// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package migration_test checks that a cluster can move from other webhooks to
// Lanyard without a gap: pods get credentials beside them and after them, at the
// other webhooks' paths and at Lanyard's.
package migration_test

import (
	"context"
	_ "embed"
	"fmt"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lanyard-dev/lanyard/test/e2e/expect"
	"github.com/lanyard-dev/lanyard/test/e2e/framework"
	"github.com/lanyard-dev/lanyard/test/support/peers"
)

// In the namespace older, azure-workload-identity has the layout of version 1.5.
const (
	namespace = "migration"
	older     = "migration-older"
)

// The identities in trust.yaml.
const (
	role     = "arn:aws:iam::123456789012:role/reader"
	tenant   = "aaaabbbb-0000-cccc-1111-dddd2222eeee"
	client   = "55556666-cccc-7777-dddd-8888eeee9999@" + tenant
	email    = "reporter@example-project.iam.gserviceaccount.com"
	provider = "projects/123456789/locations/global/workloadIdentityPools/example-pool/providers/example-cluster"
	region   = "eu-central-1"
)

// Shared by all specs.
var (
	cluster *framework.Cluster
	checker expect.Checker
	others  *standIns

	//go:embed testdata/trust.yaml
	trust string
	//go:embed testdata/accounts.yaml
	accounts []byte
	// credentials is a Google credential file with the other webhook's path.
	//go:embed testdata/credentials.json
	credentials string
	//go:embed testdata/setup.py
	setup string
)

func TestMigration(t *testing.T) {
	expect.Suite(t, "migration")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	var err error
	cluster, err = framework.Connect()
	Expect(err).NotTo(HaveOccurred())
	others, err = startStandIns(ctx, otherWebhooks()...)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx SpecContext) error { return others.stop(ctx) })
})

// setUp installs Lanyard and starts the emulators, for pods with SDKs.
func setUp(ctx context.Context) {
	GinkgoHelper()
	install := framework.Install{Values: []string{
		"config.adopt={eks,azure,gcp,gke}", "config.aws-default-region=" + region, "config.azure-default-tenant-id=" + tenant,
		"config.gcp-default-workload-identity-provider=" + provider, "shutdownDelaySeconds=0",
	}}
	Expect(install.Up(ctx, cluster)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) error { return install.Down(ctx, cluster) })
	checker.Cluster = cluster
	var err error
	checker.Clouds, err = cluster.StartClouds(ctx, trust)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx SpecContext) error { return checker.Clouds.Stop(ctx) })
	for _, name := range []string{namespace, older} {
		Expect(cluster.SetUp(ctx, checker.Clouds, name, nil, accounts)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) error { return cluster.DeleteNamespace(ctx, name) })
		Expect(addCredentials(ctx, name)).To(Succeed())
		Expect(cluster.WaitInjected(ctx, name, "all")).To(Succeed())
	}
}

// otherWebhooks returns a stand-in for each layout.
func otherWebhooks() []standIn {
	in := func(operator metav1.LabelSelectorOperator) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: "kubernetes.io/metadata.name", Operator: operator, Values: []string{older, switched["azure-older"]}},
		}}
	}
	binding := &peers.AzureIdentityBindings{
		AnnotationSuffix: "identity-binding", Audience: "api://AKSIdentityBinding",
		TokenProxy: "https://proxy.example.com", SNIName: "proxy", CAConfigMap: "kube-root-ca.crt",
	}
	proxy := peers.AzureProxy{
		Image:   framework.SDKPythonImage,
		Command: []string{"/usr/bin/python3", "-c", "import time\nwhile True: time.sleep(60)"}, SetupCommand: []string{"/usr/bin/python3", "-c", "pass"},
	}
	return []standIn{
		{path: "eks", flags: peers.Flags{EKS: &peers.EKS{AWSDefaultRegion: region, STSRegionalEndpoint: true, ContainerCredentials: []string{switched["eks"] + "/pod-identity"}, ConfigMap: mappedRoles()}}},
		{path: "azure", flags: peers.Flags{Azure: &peers.Azure{TenantID: tenant, IdentityBindings: binding, Proxy: proxy}}, namespaces: in(metav1.LabelSelectorOpNotIn)},
		{path: "azure-older", flags: peers.Flags{Azure: &peers.Azure{TenantID: tenant, Version: peers.AzureOlder}}, namespaces: in(metav1.LabelSelectorOpIn)},
		{path: "gcp", flags: peers.Flags{GCP: &peers.GCP{GcloudImage: framework.SDKPythonImage, SetupCommand: []string{"/usr/bin/python3", "-c", setup}}}},
	}
}

var _ = AfterSuite(func() {
	fmt.Printf("\n%s\n", checker.Table.String())
})
