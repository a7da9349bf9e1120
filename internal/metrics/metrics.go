// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package metrics holds the Prometheus metrics of the webhook.
//
// No label has a value that a user of the cluster can make up: resources are
// from a list here, all other values are the callers' constants or, for
// providers, names from the program's own configuration.
package metrics

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// OtherResource is the label's value for each resource that this package does
// not know.
const OtherResource = "other"

// Recorder keeps the metrics. Its methods may be called concurrently.
type Recorder struct {
	admissions *prometheus.CounterVec
	injections *prometheus.CounterVec
	lookups    *prometheus.CounterVec
	duration   prometheus.Histogram
	accounts   *accounts
	expiry     *expiry
}

// New registers the metrics. It fails where one of them is registered already.
func New(registerer prometheus.Registerer) (*Recorder, error) {
	r := &Recorder{
		admissions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "lanyard_admissions_total",
			Help: "Admission requests answered, by resource, result and reason.",
		}, []string{"resource", "result", "reason"}),
		injections: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "lanyard_injections_total",
			Help: "Identities injected into pods, by provider.",
		}, []string{"provider"}),
		lookups: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "lanyard_serviceaccount_lookups_total",
			Help: "Service accounts looked up, by source (cache or live) and result (found, not_found or error).",
		}, []string{"source", "result"}),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "lanyard_admission_duration_seconds",
			Help: "Time from an admission request to its answer.",
			// From a hit in the cache to half of the 10 seconds which the API
			// server gives a webhook by default.
			Buckets: []float64{
				0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025,
				0.05, 0.1, 0.25, 0.5, 1, 2.5, 5,
			},
		}),
		accounts: newAccounts(),
		expiry:   newExpiry(),
	}
	var errs []error
	for _, c := range []prometheus.Collector{
		r.admissions, r.injections, r.lookups, r.duration, r.accounts, r.expiry, buildInfo(debug.ReadBuildInfo()),
	} {
		errs = append(errs, registerer.Register(c))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	// A series that is there from the start shows its first increment: rate()
	// and increase() do not see one that begins at 1.
	for _, labels := range [][]string{{"cache", "found"}, {"live", "found"}, {"live", "not_found"}, {"live", "error"}} {
		r.lookups.WithLabelValues(labels...)
	}
	return r, nil
}

// RecordAdmission counts an answered admission request and the time d that it
// took. Subresources follow a slash, as in "pods/ephemeralcontainers"; a
// resource that the webhook is not for counts as OtherResource.
func (r *Recorder) RecordAdmission(resource, result, reason string, d time.Duration) {
	switch resource {
	case "pods", "pods/ephemeralcontainers", "serviceaccounts":
	default:
		resource = OtherResource
	}
	r.admissions.WithLabelValues(resource, result, reason).Inc()
	r.duration.Observe(d.Seconds())
}

// RecordInjection counts one provider's identity that was injected into a pod.
func (r *Recorder) RecordInjection(provider string) {
	r.injections.WithLabelValues(provider).Inc()
}

// RecordLookup counts one lookup of a service account.
func (r *Recorder) RecordLookup(source, result string) {
	r.lookups.WithLabelValues(source, result).Inc()
}

// SetCertificateExpiry tells until when the serving certificate is valid. Until
// the first call the metric is absent, rather than one that expired in 1970.
func (r *Recorder) SetCertificateExpiry(notAfter time.Time) {
	r.expiry.notAfter.Store(&notAfter)
}

// WatchServiceAccounts has count called for each scrape, concurrently where
// scrapes are. Unguarded accounts are those among the annotated ones that lack
// the label which the guard selects by. Until the first call the metric is
// absent.
func (r *Recorder) WatchServiceAccounts(count func() (annotated, unannotated, unguarded int)) {
	r.accounts.count.Store(&count)
}

// accounts asks for its values when it is scraped.
type accounts struct {
	desc  *prometheus.Desc
	count atomic.Pointer[func() (annotated, unannotated, unguarded int)]
}

func newAccounts() *accounts {
	return &accounts{desc: prometheus.NewDesc("lanyard_serviceaccounts",
		"Service accounts known, by state. Unguarded ones are annotated too, but lack the label that the guard selects by.",
		[]string{"state"}, nil)}
}

// Describe implements prometheus.Collector.
func (a *accounts) Describe(descs chan<- *prometheus.Desc) { descs <- a.desc }

// Collect implements prometheus.Collector.
func (a *accounts) Collect(metrics chan<- prometheus.Metric) {
	count := a.count.Load()
	if count == nil {
		return
	}
	annotated, unannotated, unguarded := (*count)()
	for _, s := range []struct {
		state string
		n     int
	}{{"annotated", annotated}, {"unannotated", unannotated}, {"unguarded", unguarded}} {
		metrics <- prometheus.MustNewConstMetric(a.desc, prometheus.GaugeValue, float64(s.n), s.state)
	}
}

// expiry is a gauge that is absent until it is set.
type expiry struct {
	desc     *prometheus.Desc
	notAfter atomic.Pointer[time.Time]
}

func newExpiry() *expiry {
	return &expiry{desc: prometheus.NewDesc("lanyard_certificate_expiry_timestamp_seconds",
		"When the serving certificate expires, in seconds since the epoch.", nil, nil)}
}

// Describe implements prometheus.Collector.
func (e *expiry) Describe(descs chan<- *prometheus.Desc) { descs <- e.desc }

// Collect implements prometheus.Collector.
func (e *expiry) Collect(metrics chan<- prometheus.Metric) {
	if notAfter := e.notAfter.Load(); notAfter != nil {
		metrics <- prometheus.MustNewConstMetric(e.desc, prometheus.GaugeValue, float64(notAfter.Unix()))
	}
}

// buildInfo takes what debug.ReadBuildInfo returns.
func buildInfo(info *debug.BuildInfo, ok bool) prometheus.Collector {
	version, goVersion := "unknown", runtime.Version()
	if ok && info.Main.Version != "" {
		version = info.Main.Version
	}
	gauge := prometheus.NewGauge(prometheus.GaugeOpts{
		Name:        "lanyard_build_info",
		Help:        "What this binary was built from and with. Always 1.",
		ConstLabels: prometheus.Labels{"version": version, "goversion": goVersion},
	})
	gauge.Set(1)
	return gauge
}
