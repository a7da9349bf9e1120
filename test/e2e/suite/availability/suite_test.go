// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package availability_test holds Lanyard to its promise never to go dark: pods
// are created all the time, with an identity and without, while certificates
// are renewed, the Deployment is rolled, and replicas are killed.
package availability_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/lanyard-dev/lanyard/test/e2e/framework"
)

// cluster is what all specs share.
var cluster *framework.Cluster

// results are the rows of the table that the suite ends with.
var results []string

func TestAvailability(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "availability")
}

var _ = BeforeSuite(func() {
	var err error
	cluster, err = framework.Connect()
	Expect(err).NotTo(HaveOccurred())
})

var _ = AfterSuite(func() {
	table := "| install | what happened | pods a second | with an identity | without |\n|---|---|---|---|---|\n" + strings.Join(results, "")
	fmt.Printf("\n%s\n", table)
	if file := os.Getenv("E2E_REPORT"); file != "" {
		Expect(os.WriteFile(file, []byte(table), 0o644)).To(Succeed())
	}
})

// record adds a row.
func record(install *framework.Install, event string, counts framework.Counts) {
	cell := func(o *framework.Outcome) string {
		return fmt.Sprintf("%d created, %d bare, %d refused or failed", o.Created, o.Bare, o.Failures())
	}
	results = append(results, fmt.Sprintf("| %v | %s | %.0f | %s | %s |\n", install, event, counts.Rate(), cell(&counts.Identity), cell(&counts.NoIdentity)))
}
