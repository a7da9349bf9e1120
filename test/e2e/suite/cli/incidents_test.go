// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	_ "embed"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/yaml"
)

//go:embed testdata/incidents.yaml
var incidentsFile []byte

// incident is an entry of incidents.yaml, which describes the fields.
type incident struct {
	ID, Incident, Cause, Command, Answer, Undo, Page, Text, Read string
	Code                                                         int
}

// readIncidents returns the functions of the scripts, and all incidents.
func readIncidents() (functions string, all []incident) {
	var file struct {
		Functions string
		Incidents []incident
	}
	if err := yaml.UnmarshalStrict(incidentsFile, &file); err != nil {
		panic(err) // the tree of specs is built before any spec can fail
	}
	return file.Functions, file.Incidents
}

// answerTime limits the wait for an answer. It is short, because there are many incidents.
const answerTime = 5 * time.Minute

// describeIncidents adds the specs of the incidents. It must be called in the container of
// the suite, because the incidents need the installation.
func describeIncidents() {
	Describe("an incident", Ordered, incidents)
}

func incidents() {
	functions, all := readIncidents()
	var report strings.Builder

	BeforeAll(func(ctx SpecContext) { installed(ctx) })

	AfterAll(func() { AddReportEntry("incidents", report.String()) })

	// script runs a script of an incident.
	script := func(ctx SpecContext, namespace, text string) {
		GinkgoHelper()
		code, shown := terminals[0].run(ctx, "set -e\nNAMESPACE="+namespace+"\n"+functions+"\n"+text)
		Expect(code).To(BeZero(), shown)
	}

	DescribeTable("has an answer", func(ctx SpecContext, i *incident) {
		if i.Command == "" {
			fmt.Fprintf(&report, "%s: on the page %s\n", i.ID, i.Page)
			return
		}
		namespace := "incident-" + i.ID
		// The containers of the pods do not matter, so they need not comply with the profile
		// restricted.
		Expect(cluster.CreateNamespace(ctx, namespace, map[string]string{"pod-security.kubernetes.io/enforce": "baseline"})).To(Succeed())
		DeferCleanup(func(ctx SpecContext) error { return cluster.DeleteNamespace(ctx, namespace) })
		if i.Undo != "" {
			DeferCleanup(func(ctx SpecContext) { script(ctx, namespace, i.Undo) })
		}
		script(ctx, namespace, i.Cause)

		// A cause may need a moment, for example until the node forwards calls elsewhere.
		started := time.Now()
		Eventually(ctx, func(g Gomega, ctx SpecContext) {
			code, shown := terminals[0].run(ctx, "NAMESPACE="+namespace+"\n"+i.Command)
			g.Expect(onOneLine(plain(shown))).To(ContainSubstring(i.Answer))
			g.Expect(code).To(Equal(i.Code), shown)
		}).WithTimeout(answerTime).WithPolling(time.Second).Should(Succeed())
		fmt.Fprintf(&report, "%s: %s after %s: %s\n", i.ID, i.Command, time.Since(started).Round(time.Second), i.Answer)
	}, entries(all))
}

// entries returns the entries of the table.
func entries(all []incident) []TableEntry {
	var list []TableEntry
	for k := range all {
		list = append(list, Entry(all[k].ID+": "+all[k].Incident, &all[k]))
	}
	return list
}

// onOneLine returns a text without its line breaks and columns.
func onOneLine(shown string) string { return strings.Join(strings.Fields(shown), " ") }

// throttle responds as AWS STS does when it gets too many calls.
func throttle(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/xml")
	w.WriteHeader(http.StatusBadRequest)
	_, _ = io.WriteString(w, `<ErrorResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><Error><Type>Sender</Type>`+
		`<Code>Throttling</Code><Message>Rate exceeded</Message></Error></ErrorResponse>`)
}

// cached serves the files of a directory, as a CDN does if the file age is there.
func cached(directory string) http.Handler {
	files := http.FileServer(http.Dir(directory))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if age, err := os.ReadFile(filepath.Join(directory, "age")); err == nil {
			w.Header().Set("Age", strings.TrimSpace(string(age)))
		}
		files.ServeHTTP(w, r)
	})
}
