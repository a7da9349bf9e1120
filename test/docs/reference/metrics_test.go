// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package reference

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/lanyard-dev/lanyard/test/support/metricstest"
)

// whatToDo contains the advice for each metric.
var whatToDo = map[string]string{
	"lanyard_admission_duration_seconds":           "[LanyardSlow](../operations/monitoring.md#lanyardslow) alerts.",
	"lanyard_admissions_total":                     "Look up the [reason](reasons.md). [LanyardErrors](../operations/monitoring.md#lanyarderrors) alerts on `error`, and [LanyardDenials](../operations/monitoring.md#lanyarddenials) on many `denied`.",
	"lanyard_build_info":                           "Compare the replicas after an upgrade.",
	"lanyard_cache_bytes":                          "[LanyardCacheFull](../operations/monitoring.md#lanyardcachefull) alerts.",
	"lanyard_cache_limit_bytes":                    "Raise `resources.limits.memory`.",
	"lanyard_certificate_expiry_timestamp_seconds": "[LanyardCertificateExpiresSoon](../operations/monitoring.md#lanyardcertificateexpiressoon) alerts.",
	"lanyard_config_reload_successful":             "[LanyardConfigNotLoaded](../operations/monitoring.md#lanyardconfignotloaded) alerts on 0: the log has the mistake and its line. The replica keeps the previous settings.",
	"lanyard_findings_total":                       "Look up the [reason](reasons.md#reasons-of-one-container). `lanyard explain` shows the findings about one pod.",
	"lanyard_injections_total":                     "Nothing.",
	"lanyard_serviceaccount_lookups_total":         "Many with `live` make pods slow: [LanyardSlow](../operations/monitoring.md#lanyardslow).",
	"lanyard_serviceaccounts":                      "`unguarded`: [label them](../operations/monitoring.md#lanyardunguardedserviceaccounts). `excluded`: move them to another namespace, or include theirs.",
}

// metricsTable lists the metrics of the program.
func metricsTable() (string, error) {
	families, err := gather()
	if err != nil {
		return "", err
	}
	t := newTable("Metric", "Description", "What to do")
	var names []string
	for _, family := range families {
		var labels []string
		for _, label := range family.GetMetric()[0].GetLabel() {
			labels = append(labels, label.GetName())
		}
		name := family.GetName()
		names = append(names, name)
		if whatToDo[name] == "" {
			return "", fmt.Errorf("there is no text about %s", name)
		}
		metric := name
		if len(labels) > 0 {
			metric += "{" + strings.Join(labels, ",") + "}"
		}
		t.row(code(metric), escape(family.GetHelp()), whatToDo[name])
	}
	return t.String(), unused(whatToDo, names)
}

// gather returns one sample of each metric.
func gather() ([]*dto.MetricFamily, error) {
	registry := &recordingRegistry{Registry: prometheus.NewRegistry(), names: map[string]bool{}}
	if err := metricstest.Register(registry); err != nil {
		return nil, err
	}
	families, err := registry.Gather()
	if err != nil {
		return nil, err
	}
	for _, family := range families {
		delete(registry.names, family.GetName())
	}
	if len(registry.names) > 0 {
		return nil, fmt.Errorf("got no sample of %s; add one to package metricstest", strings.Join(slices.Sorted(maps.Keys(registry.names)), ", "))
	}
	return families, nil
}

// recordingRegistry remembers the names of all registered metrics, including those
// without a sample.
type recordingRegistry struct {
	*prometheus.Registry
	names map[string]bool
}

var fullName = regexp.MustCompile(`fqName: "([^"]+)"`)

// Register implements prometheus.Registerer.
func (r *recordingRegistry) Register(collector prometheus.Collector) error {
	descs := make(chan *prometheus.Desc, 100)
	collector.Describe(descs)
	close(descs)
	for desc := range descs {
		r.names[fullName.FindStringSubmatch(desc.String())[1]] = true
	}
	return r.Registry.Register(collector)
}

// MustRegister implements prometheus.Registerer.
func (r *recordingRegistry) MustRegister(collectors ...prometheus.Collector) {
	for _, collector := range collectors {
		if err := r.Register(collector); err != nil {
			panic(err)
		}
	}
}
