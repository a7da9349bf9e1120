// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package availability_test checks that pods can always be created, with and
// without an identity, while certificates are renewed, the Deployment is rolled
// out, and replicas are killed.
package availability_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/lanyard-dev/lanyard/test/e2e/expect"
	"github.com/lanyard-dev/lanyard/test/e2e/framework"
	"github.com/lanyard-dev/lanyard/test/support/podstream"
)

// cluster is shared by all specs.
var cluster *framework.Cluster

// results are the rows of the suite's final table.
var results []string

func TestAvailability(t *testing.T) {
	expect.Suite(t, "availability")
}

var _ = BeforeSuite(func() {
	var err error
	cluster, err = framework.Connect()
	Expect(err).NotTo(HaveOccurred())
})

var _ = AfterSuite(func() {
	table := "| install | what happened | pods | with an identity | without |\n|---|---|---|---|---|\n" + strings.Join(results, "")
	fmt.Printf("\n%s\n", table)
	if file := os.Getenv("E2E_REPORT"); file != "" {
		Expect(os.WriteFile(file, []byte(table), 0o644)).To(Succeed())
	}
})

// record adds a row.
func record(install method, event string, counts podstream.Counts) {
	cell := func(o *podstream.Outcome) string {
		return fmt.Sprintf("%d created, %d without credentials, %d denied or failed", o.Created, o.NotInjected, o.Failures())
	}
	results = append(results, fmt.Sprintf("| %v | %s | %d | %s | %s |\n", install, event, counts.Pods(), cell(&counts.Identity), cell(&counts.NoIdentity)))
}
