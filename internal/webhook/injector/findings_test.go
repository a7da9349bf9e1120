// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package injector_test

import (
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/lanyard-dev/lanyard/internal/webhook/injector"
	"github.com/lanyard-dev/lanyard/internal/webhook/metrics"
)

// counter counts in a separate registry.
type counter struct {
	*prometheus.Registry
	before map[string]float64
}

// countFindings replaces the recorder of the PodMutator with one that uses a separate registry.
func countFindings(t *testing.T, pods *injector.PodMutator) *counter {
	t.Helper()
	c := &counter{Registry: prometheus.NewRegistry()}
	recorder, err := metrics.New(c)
	if err != nil {
		t.Fatal(err)
	}
	pods.Recorder, c.before = recorder, c.findings(t)
	return c
}

// findings returns the value of each series of the metric.
func (c *counter) findings(t *testing.T) map[string]float64 {
	t.Helper()
	families, err := c.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{}
	for _, family := range families {
		if family.GetName() != "lanyard_findings_total" {
			continue
		}
		for _, metric := range family.GetMetric() {
			values[metric.GetLabel()[0].GetValue()] = metric.GetCounter().GetValue()
		}
	}
	return values
}

// holds compares the metric with the findings of a decision. The series of each reason must exist
// from the start.
func (c *counter) holds(t *testing.T, findings []string) {
	t.Helper()
	want := maps.Clone(c.before)
	for _, finding := range findings {
		word, _, _ := strings.Cut(finding, ":")
		if _, known := c.before[word]; !known {
			t.Errorf("%s has no series that begins at 0", word)
		}
		want[word]++
	}
	if diff := cmp.Diff(want, c.findings(t)); diff != "" {
		t.Errorf("lanyard_findings_total (-want +got):\n%s", diff)
	}
}
