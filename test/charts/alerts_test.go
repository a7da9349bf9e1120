// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/storage"
)

// healthy contains the samples of each minute for half an hour if nothing is wrong:
// users' mistakes are denied, and a certificate has eight hours left.
const healthy = `load 1m
  up{job="lanyard-webhook", namespace="lanyard-system", pod="a"} 1x30
  up{job="lanyard-webhook", namespace="lanyard-system", pod="b"} 0x30
  lanyard_certificate_expiry_timestamp_seconds{job="lanyard-webhook", namespace="lanyard-system", pod="a"} 30600x30
  lanyard_serviceaccounts{job="lanyard-webhook", namespace="lanyard-system", state="unguarded"} 0x30
  lanyard_serviceaccounts{job="lanyard-webhook", namespace="lanyard-system", state="annotated"} 5x30
  lanyard_cache_bytes{job="lanyard-webhook", namespace="lanyard-system", pod="a", resource="serviceaccounts"} 80x30
  lanyard_cache_limit_bytes{job="lanyard-webhook", namespace="lanyard-system", pod="a", resource="serviceaccounts"} 100x30
  lanyard_admissions_total{job="lanyard-webhook", namespace="lanyard-system", result="denied", reason="invalid_annotation"} 0+10x30
  lanyard_admissions_total{job="lanyard-webhook", namespace="lanyard-system", result="error", reason="lookup_failed"} 7x30
  lanyard_admission_duration_seconds_bucket{job="lanyard-webhook", namespace="lanyard-system", le="0.001"} 0+100x30
  lanyard_admission_duration_seconds_bucket{job="lanyard-webhook", namespace="lanyard-system", le="+Inf"} 0+100x30
  apiserver_admission_webhook_fail_open_count{name="pods.lanyard.dev", type="admit"} 3x30
  apiserver_admission_webhook_fail_open_count{name="pods.example.com", type="admit"} 0+1x30
  apiserver_admission_webhook_rejection_count{name="pods.lanyard.dev", type="admit", error_type="no_error"} 0+1x30
  apiserver_validating_admission_policy_check_total{policy="lanyard-guard-pods", enforcement_action="allow"} 0+1x30
  apiserver_validating_admission_policy_check_total{policy="lanyard-guard-marks", enforcement_action="allow"} 0+1x30
  apiserver_validating_admission_policy_check_total{policy="others", enforcement_action="deny"} 0+1x30
  kube_cronjob_status_last_schedule_time{namespace="lanyard-system", cronjob="lanyard-stale-pods"} 600x30
  kube_cronjob_status_last_successful_time{namespace="lanyard-system", cronjob="lanyard-stale-pods"} 612x30
  kube_cronjob_status_last_schedule_time{namespace="lanyard-system", cronjob="lanyard-issuer"} 600x30
  kube_cronjob_status_last_successful_time{namespace="lanyard-system", cronjob="lanyard-issuer"} 600x30
  kube_cronjob_status_last_schedule_time{namespace="lanyard-system", cronjob="others"} 600x30
`

// notSucceeded are the series of a CronJob whose last run did not succeed, or none.
func notSucceeded(name string) []string {
	scheduled := `load 1m
  kube_cronjob_status_last_schedule_time{namespace="lanyard-system", cronjob="` + name + `"} 4200x30
`
	return []string{scheduled, scheduled + `  kube_cronjob_status_last_successful_time{namespace="lanyard-system", cronjob="` + name + `"} 612x30
`}
}

// faults are, for each alert, the series for which it must fire.
var faults = map[string][]string{
	"LanyardDown": {`load 1m
  up{job="lanyard-webhook", namespace="lanyard-system", pod="a"} 0x30
`, `load 1m
  up{job="lanyard-webhook", namespace="elsewhere", pod="a"} 1x30
`},
	"LanyardWebhookFailing": {`load 1m
  apiserver_admission_webhook_fail_open_count{name="pods.lanyard.dev", type="admit"} 0+1x30
`, `load 1m
  apiserver_admission_webhook_fail_open_count{name="serviceaccounts.lanyard.dev", type="validating"} 0+1x30
`, `load 1m
  apiserver_admission_webhook_rejection_count{name="pods.lanyard.dev", type="admit", error_type="calling_webhook_error"} 0+1x30
`},
	"LanyardCertificateExpiresSoon": {`load 1m
  lanyard_certificate_expiry_timestamp_seconds{job="lanyard-webhook", namespace="lanyard-system", pod="a"} 90000x30
  lanyard_certificate_expiry_timestamp_seconds{job="lanyard-webhook", namespace="lanyard-system", pod="b"} 9000x30
`},
	"LanyardUnguardedServiceAccounts": {`load 1m
  lanyard_serviceaccounts{job="lanyard-webhook", namespace="lanyard-system", pod="a", state="unguarded"} 0x30
  lanyard_serviceaccounts{job="lanyard-webhook", namespace="lanyard-system", pod="b", state="unguarded"} 1x30
`},
	"LanyardCacheFull": {`load 1m
  lanyard_cache_bytes{job="lanyard-webhook", namespace="lanyard-system", pod="a", resource="namespaces"} 1x30
  lanyard_cache_bytes{job="lanyard-webhook", namespace="lanyard-system", pod="b", resource="serviceaccounts"} 95x30
  lanyard_cache_limit_bytes{job="lanyard-webhook", namespace="lanyard-system", pod="a", resource="namespaces"} 100x30
  lanyard_cache_limit_bytes{job="lanyard-webhook", namespace="lanyard-system", pod="b", resource="serviceaccounts"} 100x30
`},
	"LanyardConfigNotLoaded": {`load 1m
  lanyard_config_reload_successful{job="lanyard-webhook", namespace="lanyard-system", pod="a"} 1x30
  lanyard_config_reload_successful{job="lanyard-webhook", namespace="lanyard-system", pod="b"} 0x30
`},
	"LanyardErrors": {`load 1m
  lanyard_admissions_total{job="lanyard-webhook", namespace="lanyard-system", result="error", reason="lookup_failed"} 0+1x30
`},
	"LanyardDenials": {`load 1m
  lanyard_admissions_total{job="lanyard-webhook", namespace="lanyard-system", resource="pods", pod="a", result="denied", reason="invalid_annotation"} 0+20x30
  lanyard_admissions_total{job="lanyard-webhook", namespace="lanyard-system", resource="pods", pod="b", result="denied", reason="invalid_annotation"} 0+20x30
`},
	"LanyardSlow": {`load 1m
  lanyard_admission_duration_seconds_bucket{job="lanyard-webhook", namespace="lanyard-system", le="0.5"} 0+90x30
  lanyard_admission_duration_seconds_bucket{job="lanyard-webhook", namespace="lanyard-system", le="5"} 0+100x30
  lanyard_admission_duration_seconds_bucket{job="lanyard-webhook", namespace="lanyard-system", le="+Inf"} 0+100x30
`},
	"LanyardPolicyDenials": {`load 1m
  apiserver_validating_admission_policy_check_total{policy="lanyard-guard-pods", enforcement_action="deny"} 0+1x30
`, `load 1m
  apiserver_validating_admission_policy_check_total{policy="lanyard-guard-injected", enforcement_action="deny"} 0+1x30
`},
	"LanyardFenceDenials": {`load 1m
  apiserver_validating_admission_policy_check_total{policy="lanyard-guard-marks", enforcement_action="deny"} 0+1x30
`, `load 1m
  apiserver_validating_admission_policy_check_total{policy="lanyard-guard-registration", enforcement_action="deny"} 0+1x30
`, `load 1m
  apiserver_validating_admission_policy_check_total{policy="lanyard-guard-serviceaccounts", enforcement_action="deny"} 0+1x30
`},
	"LanyardStalePods":   notSucceeded("lanyard-stale-pods"),
	"LanyardIssuerDrift": notSucceeded("lanyard-issuer"),
}

func TestAlertsFireForTheirFaultsOnly(t *testing.T) {
	for _, rule := range rules(t, render(t, defaultInstall, parseValues(t, monitoringValues)).objects) {
		t.Run(rule.Alert, func(t *testing.T) {
			query := rule.Expr.String()
			if fires(t, healthy, query) {
				t.Error("it fires although nothing is wrong")
			}
			if len(faults[rule.Alert]) == 0 {
				t.Error("this test knows no fault for it")
			}
			for _, fault := range faults[rule.Alert] {
				if !fires(t, fault, query) {
					t.Errorf("it does not fire for\n%s", fault)
				}
			}
		})
	}
}

// once contains the samples of each minute for 40 minutes if everything that an alert counts
// happens once, after ten minutes. The calls fail in the restart of an API server.
const once = `load 1m
  up{job="lanyard-webhook", namespace="lanyard-system", pod="a"} 1x40
  apiserver_admission_webhook_fail_open_count{name="pods.lanyard.dev", type="admit"} 0x9 1x30
  apiserver_admission_webhook_rejection_count{name="serviceaccounts.lanyard.dev", type="admit", error_type="calling_webhook_error"} 0x9 3x30
  apiserver_validating_admission_policy_check_total{policy="lanyard-guard-pods", enforcement_action="deny"} 0x9 1x30
  apiserver_validating_admission_policy_check_total{policy="lanyard-guard-injected", enforcement_action="deny"} 0x9 1x30
  lanyard_admissions_total{job="lanyard-webhook", namespace="lanyard-system", result="denied", reason="invalid_annotation"} 0x9 1x30
  lanyard_admissions_total{job="lanyard-webhook", namespace="lanyard-system", result="error", reason="lookup_failed"} 0x9 1x30
`

func TestSingleEventsDoNotAlert(t *testing.T) {
	loaded := promqltest.LoadedStorage(t, once)
	for _, rule := range rules(t, render(t, defaultInstall, parseValues(t, monitoringValues)).objects) {
		pending := -1 // the minutes for which the query has had a result
		for minute := range 41 {
			if !hasResult(t, loaded, rule.Expr.String(), minute) {
				pending = -1
				continue
			}
			pending++
			if rule.For == nil || time.Duration(pending)*time.Minute >= parseDuration(t, string(*rule.For)) {
				t.Errorf("%s fires after %d minutes", rule.Alert, minute)
				break
			}
		}
	}
}

func parseDuration(t *testing.T, text string) time.Duration {
	t.Helper()
	d, err := model.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	return time.Duration(d)
}

// fires reports whether an alert's query has a result after half an hour of
// series.
func fires(t *testing.T, series, query string) bool {
	t.Helper()
	return hasResult(t, promqltest.LoadedStorage(t, series), query, 30)
}

// hasResult reports whether a query has a result at this minute of the series.
func hasResult(t *testing.T, series storage.Queryable, query string, minute int) bool {
	t.Helper()
	engine := promqltest.NewTestEngine(t, false, 0, promqltest.DefaultMaxSamplesPerQuery)
	q, err := engine.NewInstantQuery(t.Context(), series, nil, query, time.Unix(int64(minute)*60, 0))
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	var vector promql.Vector
	if vector, err = q.Exec(t.Context()).Vector(); err != nil {
		t.Fatal(err)
	}
	return len(vector) > 0
}
