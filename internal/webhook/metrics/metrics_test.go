// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// newRecorder returns a recorder with a registry that compares the metrics with their
// descriptions.
func newRecorder(t *testing.T) (*Recorder, *prometheus.Registry) {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	r, err := New(registry)
	if err != nil {
		t.Fatal(err)
	}
	return r, registry
}

func TestScrapedMetrics(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		record func(*Recorder)
		metric string
		want   string // without HELP and TYPE, or empty if the metric is absent
	}{
		"admissions count by resource, result and reason": {
			record: func(r *Recorder) {
				r.RecordAdmission("pods", "allowed", "injected", time.Second)
				r.RecordAdmission("pods", "allowed", "injected", time.Second)
				r.RecordAdmission("pods/ephemeralcontainers", "denied", "invalid_annotation", time.Second)
				r.RecordAdmission("serviceaccounts", "allowed", "no_identity", time.Second)
			},
			metric: "lanyard_admissions_total",
			want: `
				lanyard_admissions_total{reason="injected",resource="pods",result="allowed"} 2
				lanyard_admissions_total{reason="invalid_annotation",resource="pods/ephemeralcontainers",result="denied"} 1
				lanyard_admissions_total{reason="no_identity",resource="serviceaccounts",result="allowed"} 1`,
		},
		"resources that the webhook does not handle are one": {
			record: func(r *Recorder) {
				r.RecordAdmission("secrets", "allowed", "injected", 0)
				r.RecordAdmission("pods/exec", "allowed", "injected", 0)
				r.RecordAdmission("", "allowed", "injected", 0)
			},
			metric: "lanyard_admissions_total",
			want:   `lanyard_admissions_total{reason="injected",resource="other",result="allowed"} 3`,
		},
		"admissions are timed in seconds": {
			record: func(r *Recorder) {
				r.RecordAdmission("pods", "allowed", "injected", 200*time.Microsecond)
				r.RecordAdmission("pods", "denied", "internal", 6*time.Second)
			},
			metric: "lanyard_admission_duration_seconds",
			want: `
				lanyard_admission_duration_seconds_bucket{le="0.0001"} 0
				lanyard_admission_duration_seconds_bucket{le="0.00025"} 1
				lanyard_admission_duration_seconds_bucket{le="0.0005"} 1
				lanyard_admission_duration_seconds_bucket{le="0.001"} 1
				lanyard_admission_duration_seconds_bucket{le="0.0025"} 1
				lanyard_admission_duration_seconds_bucket{le="0.005"} 1
				lanyard_admission_duration_seconds_bucket{le="0.01"} 1
				lanyard_admission_duration_seconds_bucket{le="0.025"} 1
				lanyard_admission_duration_seconds_bucket{le="0.05"} 1
				lanyard_admission_duration_seconds_bucket{le="0.1"} 1
				lanyard_admission_duration_seconds_bucket{le="0.25"} 1
				lanyard_admission_duration_seconds_bucket{le="0.5"} 1
				lanyard_admission_duration_seconds_bucket{le="1"} 1
				lanyard_admission_duration_seconds_bucket{le="2.5"} 1
				lanyard_admission_duration_seconds_bucket{le="5"} 1
				lanyard_admission_duration_seconds_bucket{le="+Inf"} 2
				lanyard_admission_duration_seconds_sum 6.0002
				lanyard_admission_duration_seconds_count 2`,
		},
		"injections count by provider": {
			record: func(r *Recorder) {
				r.RecordInjection("aws")
				r.RecordInjection("gcp")
				r.RecordInjection("aws")
			},
			metric: "lanyard_injections_total",
			want: `
				lanyard_injections_total{provider="aws"} 2
				lanyard_injections_total{provider="gcp"} 1`,
		},
		"lookups count from zero": {
			record: func(r *Recorder) { r.RecordLookup("live", "error") },
			metric: "lanyard_serviceaccount_lookups_total",
			want: `
				lanyard_serviceaccount_lookups_total{result="error",source="live"} 1
				lanyard_serviceaccount_lookups_total{result="found",source="cache"} 0
				lanyard_serviceaccount_lookups_total{result="found",source="live"} 0
				lanyard_serviceaccount_lookups_total{result="not_found",source="live"} 0`,
		},
		"ServiceAccounts are counted by state": {
			record: func(r *Recorder) {
				r.WatchServiceAccounts(func() ServiceAccounts {
					return ServiceAccounts{Annotated: 5, Unannotated: 20000, Unguarded: 1, Excluded: 2}
				})
			},
			metric: "lanyard_serviceaccounts",
			want: `
				lanyard_serviceaccounts{state="annotated"} 5
				lanyard_serviceaccounts{state="excluded"} 2
				lanyard_serviceaccounts{state="unannotated"} 20000
				lanyard_serviceaccounts{state="unguarded"} 1`,
		},
		"ServiceAccounts that are not counted yet are absent, not zero": {
			record: func(*Recorder) {},
			metric: "lanyard_serviceaccounts",
		},
		"findings count by reason, and each reason begins at 0": {
			record: func(r *Recorder) { r.RecordFinding("environment_shadowed"); r.RecordFinding("environment_shadowed") },
			metric: "lanyard_findings_total",
			want: `
				lanyard_findings_total{reason="container_not_found"} 0
				lanyard_findings_total{reason="container_not_selected"} 0
				lanyard_findings_total{reason="environment_incomplete"} 0
				lanyard_findings_total{reason="environment_shadowed"} 2
				lanyard_findings_total{reason="environment_taken"} 0
				lanyard_findings_total{reason="mount_path_taken"} 0
				lanyard_findings_total{reason="no_container"} 0
				lanyard_findings_total{reason="not_verified"} 0
				lanyard_findings_total{reason="pod_name_unusable"} 0
				lanyard_findings_total{reason="volume_missing"} 0
				lanyard_findings_total{reason="volume_name_taken"} 0`,
		},
		"the memory of a cache is there with its limit": {
			record: func(r *Recorder) {
				r.WatchCache("serviceaccounts", func() (used, limit int64) { return 5, 10 })
				r.WatchCache("namespaces", func() (used, limit int64) { return 1, 2 })
			},
			metric: "lanyard_cache_limit_bytes",
			want: `
				lanyard_cache_limit_bytes{resource="namespaces"} 2
				lanyard_cache_limit_bytes{resource="serviceaccounts"} 10`,
		},
		"the last certificate replaces the ones before": {
			record: func(r *Recorder) {
				r.SetCertificateExpiry(time.Unix(1, 0))
				r.SetCertificateExpiry(time.Unix(1_900_000_000, 0))
			},
			metric: "lanyard_certificate_expiry_timestamp_seconds",
			want:   `lanyard_certificate_expiry_timestamp_seconds 1.9e+09`,
		},
		"a file of --config that is in use": {
			record: func(r *Recorder) { r.SetConfigReload(errors.New("x")); r.SetConfigReload(nil) },
			metric: "lanyard_config_reload_successful",
			want:   `lanyard_config_reload_successful 1`,
		},
		"a file of --config that is wrong": {
			record: func(r *Recorder) { r.SetConfigReload(nil); r.SetConfigReload(errors.New("x")) },
			metric: "lanyard_config_reload_successful",
			want:   `lanyard_config_reload_successful 0`,
		},
		"without --config there is no reload": {
			record: func(*Recorder) {},
			metric: "lanyard_config_reload_successful",
		},
		"a certificate that does not exist yet is absent, not expired": {
			record: func(*Recorder) {},
			metric: "lanyard_certificate_expiry_timestamp_seconds",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, registry := newRecorder(t)
			tc.record(r)
			if diff := cmp.Diff(lines(tc.want), scrape(t, registry, tc.metric)); diff != "" {
				t.Errorf("metrics (-want +got):\n%s", diff)
			}
		})
	}
}

// scrape returns the series whose names start with metric.
func scrape(t *testing.T, registry *prometheus.Registry, metric string) []string {
	t.Helper()
	response := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(response,
		httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	if response.Code != http.StatusOK {
		t.Fatalf("got status %d: %s", response.Code, response.Body)
	}
	return slices.DeleteFunc(lines(response.Body.String()), func(line string) bool {
		return !strings.HasPrefix(line, metric)
	})
}

func lines(text string) []string {
	out := []string{}
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			out = append(out, line)
		}
	}
	return out
}

func TestBuildInfo(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(buildInfo("v1.2.3"))
	want := []string{fmt.Sprintf("lanyard_build_info{goversion=%q,version=%q} 1", runtime.Version(), "v1.2.3")}
	if diff := cmp.Diff(want, scrape(t, registry, "lanyard_build_info")); diff != "" {
		t.Errorf("metrics (-want +got):\n%s", diff)
	}
}

func TestTheMetricsAreThoseThatAreDocumented(t *testing.T) {
	t.Parallel()
	r, registry := newRecorder(t)
	recordAll(r)
	countAll(r)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, family := range families {
		got = append(got, family.GetName())
	}
	want := []string{ // sorted, as Gather returns them
		"lanyard_admission_duration_seconds",
		"lanyard_admissions_total",
		"lanyard_build_info",
		"lanyard_certificate_expiry_timestamp_seconds",
		"lanyard_config_reload_successful",
		"lanyard_findings_total",
		"lanyard_injections_total",
		"lanyard_serviceaccount_lookups_total",
		"lanyard_serviceaccounts",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("metrics (-want +got):\n%s", diff)
	}
	problems, err := testutil.GatherAndLint(registry)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

func recordAll(r *Recorder) {
	r.RecordAdmission("pods", "allowed", "injected", time.Millisecond)
	r.RecordInjection("aws")
	r.RecordFinding("environment_shadowed")
	r.RecordLookup("cache", "found")
	r.SetCertificateExpiry(time.Unix(1_900_000_000, 0))
	r.SetConfigReload(nil)
}

func countAll(r *Recorder) {
	r.WatchServiceAccounts(func() ServiceAccounts {
		return ServiceAccounts{Annotated: 1, Unannotated: 2, Unguarded: 3, Excluded: 4}
	})
}

func TestASecondRecorderOnOneRegistryIsAnError(t *testing.T) {
	t.Parallel()
	_, registry := newRecorder(t)
	_, err := New(registry)
	if registered, ok := errors.AsType[prometheus.AlreadyRegisteredError](err); !ok {
		t.Errorf("got error %v, want %T", err, registered)
	}
}

func TestRecordingIsSafeWhileScraped(t *testing.T) {
	t.Parallel()
	r, registry := newRecorder(t)
	countAll(r)
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for range 50 {
				recordAll(r)
				if _, err := registry.Gather(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	want := []string{`lanyard_injections_total{provider="aws"} 400`}
	if diff := cmp.Diff(want, scrape(t, registry, "lanyard_injections_total")); diff != "" {
		t.Errorf("metrics (-want +got):\n%s", diff)
	}
}

func TestRecordingDoesNotAllocate(t *testing.T) {
	r, _ := newRecorder(t)
	for name, record := range map[string]func(){
		"an admission": func() { r.RecordAdmission("pods", "allowed", "injected", time.Millisecond) },
		"an injection": func() { r.RecordInjection("aws") },
		"a finding":    func() { r.RecordFinding("environment_shadowed") },
		"a lookup":     func() { r.RecordLookup("cache", "found") },
	} {
		record() // the first call creates the series
		if allocs := testing.AllocsPerRun(1000, record); allocs != 0 {
			t.Errorf("got %v allocations for %s, want 0", allocs, name)
		}
	}
}

func BenchmarkRecordAdmission(b *testing.B) {
	r, err := New(prometheus.NewRegistry())
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			r.RecordAdmission("pods", "allowed", "injected", time.Millisecond)
		}
	})
}
