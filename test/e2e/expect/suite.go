// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package expect

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// Suite runs the specs of the package. Each wait may take Patience. At its end, the
// suite prints the specs that took longest, and those that failed.
func Suite(t *testing.T, name string) {
	t.Helper()
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(Patience)
	SetDefaultEventuallyPollingInterval(200 * time.Millisecond)
	ReportAfterSuite("where the time went", printTimes)
	ReportAfterSuite("what failed", printFailures)
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
		fmt.Printf("%7.1f  %s\n", specs[i].RunTime.Seconds(), nameOf(&specs[i]))
	}
	fmt.Printf("%7.1f  in all\n", report.RunTime.Seconds())
}

// printFailures prints the messages of the specs that failed, which are far above in the output:
// Ginkgo's summary only has their names.
func printFailures(report Report) {
	const most = 1000 // bytes of each end of a message
	for i := range report.SpecReports {
		spec := &report.SpecReports[i]
		if !spec.Failed() {
			continue
		}
		text := spec.FailureMessage()
		if len(text) > 2*most {
			text = strings.ToValidUTF8(text[:most], "") + "\n...\n" + strings.ToValidUTF8(text[len(text)-most:], "")
		}
		fmt.Printf("\nfailed: %s\n%s\n%s\n", nameOf(spec), spec.FailureLocation(), text)
	}
}

// nameOf returns the name of a spec, or what a node without a name is, such as BeforeSuite.
func nameOf(spec *SpecReport) string { return cmp.Or(spec.FullText(), spec.LeafNodeType.String()) }
