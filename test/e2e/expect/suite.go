// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package expect

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// Suite runs the specs of the package. Each wait may take Patience. At its end, the
// suite prints the specs that took longest.
func Suite(t *testing.T, name string) {
	t.Helper()
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(Patience)
	SetDefaultEventuallyPollingInterval(200 * time.Millisecond)
	ReportAfterSuite("where the time went", printTimes)
	RunSpecs(t, name)
}

// printTimes prints the specs that took at least a twentieth of the suite's time.
func printTimes(report Report) {
	specs := slices.SortedFunc(slices.Values(report.SpecReports), func(a, b SpecReport) int { return cmp.Compare(b.RunTime, a.RunTime) })
	fmt.Printf("\n%7s  %s\n", "seconds", report.SuiteDescription)
	for i := range specs {
		if specs[i].RunTime < report.RunTime/20 {
			break
		}
		fmt.Printf("%7.1f  %s\n", specs[i].RunTime.Seconds(), cmp.Or(specs[i].FullText(), specs[i].LeafNodeType.String()))
	}
	fmt.Printf("%7.1f  in all\n", report.RunTime.Seconds())
}
