// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package metrics defines the Prometheus metrics of the webhook.
//
// Users of the cluster cannot choose label values: resources are from a list in this package,
// and all other values are constants or names of configured providers.
package metrics

import (
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lanyard-dev/lanyard/internal/version"
	"github.com/lanyard-dev/lanyard/pkg/mutate/reason"
)

// OtherResource is the label value for all other resources.
const OtherResource = "other"

// Recorder updates the metrics. Its methods may be called concurrently.
type Recorder struct {
	registerer prometheus.Registerer
	admissions *prometheus.CounterVec
	injections *prometheus.CounterVec
	findings   *prometheus.CounterVec
	lookups    *prometheus.CounterVec
	duration   prometheus.Histogram
	expiry     *prometheus.GaugeVec // without labels: absent until it is set
	reload     *prometheus.GaugeVec // without labels: absent until it is set
}

// findings are the reasons of findings.
var findings = []reason.Reason{
	reason.ContainerNotFound, reason.ContainerNotSelected, reason.EnvironmentIncomplete, reason.EnvironmentShadowed, reason.EnvironmentTaken,
	reason.MountPathTaken, reason.NoContainer, reason.NotVerified, reason.PodNameUnusable, reason.VolumeMissing, reason.VolumeNameTaken,
}

// New registers the metrics. It fails if one of them is already registered.
func New(registerer prometheus.Registerer) (*Recorder, error) {
	r := &Recorder{
		registerer: registerer,
		admissions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "lanyard_admissions_total",
			Help: "Admission requests, by resource, result and reason.",
		}, []string{"resource", "result", "reason"}),
		injections: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "lanyard_injections_total",
			Help: "Identities injected into pods, by provider.",
		}, []string{"provider"}),
		findings: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "lanyard_findings_total",
			Help: "Findings about the containers of pods, by reason. Such a container has no identity, or SDKs may ignore it.",
		}, []string{"reason"}),
		lookups: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "lanyard_serviceaccount_lookups_total",
			Help: "ServiceAccounts looked up, by source (cache or live) and result (found, not_found or error).",
		}, []string{"source", "result"}),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "lanyard_admission_duration_seconds",
			Help: "Time from an admission request to its response.",
			// From a cache hit to 5 seconds, the timeout in the webhook configurations.
			Buckets: []float64{
				0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025,
				0.05, 0.1, 0.25, 0.5, 1, 2.5, 5,
			},
		}),
		expiry: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "lanyard_certificate_expiry_timestamp_seconds",
			Help: "When the serving certificate expires, in seconds since the epoch.",
		}, nil),
		reload: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "lanyard_config_reload_successful",
			Help: "1 if the file of --config is in use as it is now, 0 if it is wrong or cannot be read. Absent without --config.",
		}, nil),
	}
	var errs []error
	for _, c := range []prometheus.Collector{
		r.admissions, r.injections, r.findings, r.lookups, r.duration, r.expiry, r.reload, buildInfo(version.Version()),
	} {
		errs = append(errs, registerer.Register(c))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	// These start at 0, because rate() and increase() miss the first increment of a series
	// that starts at 1.
	for _, labels := range [][]string{{"cache", "found"}, {"live", "found"}, {"live", "not_found"}, {"live", "error"}} {
		r.lookups.WithLabelValues(labels...)
	}
	for _, why := range findings {
		r.findings.WithLabelValues(string(why))
	}
	return r, nil
}

// RecordAdmission counts an admission response and the time d that it took. A
// subresource follows a slash, as in "pods/ephemeralcontainers". Resources that
// the webhook does not handle count as OtherResource.
func (r *Recorder) RecordAdmission(resource, result, reason string, d time.Duration) {
	switch resource {
	case "pods", "pods/ephemeralcontainers", "serviceaccounts":
	default:
		resource = OtherResource
	}
	r.admissions.WithLabelValues(resource, result, reason).Inc()
	r.duration.Observe(d.Seconds())
}

// RecordInjection counts the injection of one provider's identity into a pod.
func (r *Recorder) RecordInjection(provider string) {
	r.injections.WithLabelValues(provider).Inc()
}

// RecordFinding counts one finding about a container, or about a whole pod.
func (r *Recorder) RecordFinding(reason string) {
	r.findings.WithLabelValues(reason).Inc()
}

// RecordLookup counts one lookup of a ServiceAccount.
func (r *Recorder) RecordLookup(source, result string) {
	r.lookups.WithLabelValues(source, result).Inc()
}

// SetCertificateExpiry sets when the serving certificate expires. The metric is absent until
// the first call, because 0 would mean 1970.
func (r *Recorder) SetCertificateExpiry(notAfter time.Time) {
	r.expiry.WithLabelValues().Set(float64(notAfter.Unix()))
}

// SetConfigReload sets whether the configuration file is in use as it is now.
func (r *Recorder) SetConfigReload(err error) {
	value := 1.0
	if err != nil {
		value = 0
	}
	r.reload.WithLabelValues().Set(value)
}

// ServiceAccounts contains the numbers of known ServiceAccounts by state.
type ServiceAccounts struct {
	// Annotated ServiceAccounts have an annotation under the prefix.
	Annotated int
	// Unannotated ServiceAccounts have none.
	Unannotated int
	// Unguarded ServiceAccounts are annotated and ask for an identity, but lack the
	// label that the guard selects by.
	Unguarded int
	// Excluded ServiceAccounts are annotated and ask for an identity in a namespace
	// that the webhook is not called for. They are not counted as unguarded.
	Excluded int
}

// WatchServiceAccounts registers the numbers of ServiceAccounts. Each scrape calls count
// several times, so it must be cheap. It must be safe for concurrent use, because any client
// that reaches the port can scrape.
func (r *Recorder) WatchServiceAccounts(count func() ServiceAccounts) {
	for state, number := range map[string]func(ServiceAccounts) int{
		"annotated":   func(n ServiceAccounts) int { return n.Annotated },
		"unannotated": func(n ServiceAccounts) int { return n.Unannotated },
		"unguarded":   func(n ServiceAccounts) int { return n.Unguarded },
		"excluded":    func(n ServiceAccounts) int { return n.Excluded },
	} {
		r.gauge("lanyard_serviceaccounts", "ServiceAccounts by state: annotated or unannotated. Annotated ServiceAccounts can also be "+
			"unguarded (without the guard's label) or excluded (in a namespace that the webhook is not called for).",
			prometheus.Labels{"state": state}, func() float64 { return float64(number(count())) })
	}
}

// WatchCache registers the memory of a cache and its limit. Each scrape calls bytes, which
// returns both.
func (r *Recorder) WatchCache(resource string, bytes func() (used, limit int64)) {
	labels := prometheus.Labels{"resource": resource}
	r.gauge("lanyard_cache_bytes", "Memory that the known objects take, by resource.", labels, func() float64 {
		used, _ := bytes()
		return float64(used)
	})
	r.gauge("lanyard_cache_limit_bytes", "Limit of lanyard_cache_bytes. Objects above it are read from the API server for each pod.", labels, func() float64 {
		_, limit := bytes()
		return float64(limit)
	})
}

// gauge registers a gauge that is computed when it is scraped.
func (r *Recorder) gauge(name, help string, labels prometheus.Labels, value func() float64) {
	r.registerer.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: labels}, value))
}

func buildInfo(version string) prometheus.Collector {
	gauge := prometheus.NewGauge(prometheus.GaugeOpts{
		Name:        "lanyard_build_info",
		Help:        "The version of this program, and of the Go that it was built with. Always 1.",
		ConstLabels: prometheus.Labels{"version": version, "goversion": runtime.Version()},
	})
	gauge.Set(1)
	return gauge
}
