// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql/parser"
	corev1 "k8s.io/api/core/v1"

	"github.com/lanyard-dev/lanyard/internal/metrics"
)

// apiserverMetrics are read from k8s.io/apiserver v0.36.3: pkg/admission/metrics
// and pkg/admission/plugin/policy/validating/metrics.
var apiserverMetrics = map[string][]string{
	"apiserver_admission_webhook_fail_open_count":            {"name", "type"},
	"apiserver_admission_webhook_rejection_count":            {"name", "type", "operation", "error_type", "rejection_code"},
	"apiserver_admission_webhook_admission_duration_seconds": {"name", "type", "operation", "rejected"},
	"apiserver_validating_admission_policy_check_total":      {"policy", "policy_binding", "error_type", "enforcement_action"},
}

// scraped are the labels that Prometheus adds.
var scraped = []string{"job", "namespace", "pod", "instance", "service", "container", "endpoint", "le"}

// knownMetrics returns the labels of each metric that queries may be about.
func knownMetrics(t *testing.T) map[string][]string {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	recorder, err := metrics.New(registry)
	if err != nil {
		t.Fatal(err)
	}
	recorder.RecordAdmission("pods", "allowed", "injected", time.Millisecond)
	recorder.RecordInjection("aws")
	recorder.RecordLookup("cache", "found")
	recorder.SetCertificateExpiry(time.Unix(1, 0))
	recorder.WatchServiceAccounts(func() metrics.ServiceAccounts {
		return metrics.ServiceAccounts{Annotated: 4, Unannotated: 2, Unguarded: 1, Excluded: 1}
	})
	recorder.WatchCache("serviceaccounts", func() (used, limit int64) { return 1, 2 })
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	known := maps.Clone(apiserverMetrics)
	known["up"] = nil
	known["process_resident_memory_bytes"] = nil
	for _, family := range families {
		known[family.GetName()] = nil
		for _, label := range family.GetMetric()[0].GetLabel() {
			known[family.GetName()] = append(known[family.GetName()], label.GetName())
		}
	}
	return known
}

// checkQuery fails for a query that does not parse, or that uses an unknown metric
// or label.
func checkQuery(t *testing.T, known map[string][]string, query string) {
	t.Helper()
	expression, err := parser.NewParser(parser.Options{}).ParseExpr(query)
	if err != nil {
		t.Errorf("%s\n%v", query, err)
		return
	}
	selected := 0
	parser.Inspect(expression, func(node parser.Node, _ []parser.Node) error {
		selector, ok := node.(*parser.VectorSelector)
		if !ok {
			return nil
		}
		selected++
		name := strings.TrimSuffix(selector.Name, "_bucket")
		of, found := known[name]
		if !found {
			t.Errorf("%s\nthere is no metric %s", query, selector.Name)
		}
		for _, matcher := range selector.LabelMatchers {
			if matcher.Name != model.MetricNameLabel && !slices.Contains(append(of, scraped...), matcher.Name) {
				t.Errorf("%s\n%s has no label %s", query, selector.Name, matcher.Name)
			}
		}
		return nil
	})
	if selected == 0 {
		t.Errorf("%s\nis about no metric", query)
	}
}

// rules returns the alerts of a PrometheusRule.
func rules(t *testing.T, objects []object) []monitoringv1.Rule {
	t.Helper()
	found := find(objects, "PrometheusRule")
	if len(found) != 1 {
		t.Fatalf("got %d PrometheusRules, want 1", len(found))
	}
	var rules []monitoringv1.Rule
	for _, group := range decode[monitoringv1.PrometheusRule](t, found[0]).Spec.Groups {
		rules = append(rules, group.Rules...)
	}
	if len(rules) < 7 {
		t.Fatalf("got %d alerts", len(rules))
	}
	return rules
}

func TestAlertsUseExistingMetricsAndLinkToTheRunbook(t *testing.T) {
	known := knownMetrics(t)
	anchor := regexp.MustCompile(`(?m)^#+ ([A-Za-z]+)$`)
	headings := map[string]bool{}
	for _, match := range anchor.FindAllStringSubmatch(readFile(t, "../../docs/operations.md"), -1) {
		headings[match[1]] = true
	}
	for _, rule := range rules(t, render(t, defaultInstall, parseValues(t, monitoringValues)).objects) {
		checkQuery(t, known, rule.Expr.String())
		want := "https://github.com/lanyard-dev/lanyard/blob/main/docs/operations.md#" + strings.ToLower(rule.Alert)
		if got := rule.Annotations["runbook_url"]; got != want {
			t.Errorf("%s: got runbook_url %s, want %s", rule.Alert, got, want)
		}
		if !headings[rule.Alert] {
			t.Errorf("docs/operations.md has no heading %s", rule.Alert)
		}
		if rule.Annotations["summary"] == "" || rule.Annotations["description"] == "" {
			t.Errorf("%s has no summary or description", rule.Alert)
		}
		if !slices.Contains([]string{"critical", "warning"}, rule.Labels["severity"]) {
			t.Errorf("%s: got severity %q", rule.Alert, rule.Labels["severity"])
		}
	}
}

func TestAlertsFollowTheNames(t *testing.T) {
	r := render(t, installAs("blue", "security", kubeVersion), parseValues(t, monitoringValues))
	all := rules(t, r.objects)
	job := find(r.objects, "Service")[0].GetName()
	var queries strings.Builder
	for _, rule := range all {
		query := rule.Expr.String()
		queries.WriteString(query)
		if strings.Contains(query, "job=") && !strings.Contains(query, `job="`+job+`", namespace="security"`) {
			t.Errorf("%s is not about the Service %s: %s", rule.Alert, job, query)
		}
	}
	matcher := regexp.MustCompile(`policy=~?"([^"]*)"`)
	for _, policy := range find(r.objects, "ValidatingAdmissionPolicy") {
		alerts := 0
		for _, match := range matcher.FindAllStringSubmatch(queries.String(), -1) {
			if regexp.MustCompile("^(" + match[1] + ")$").MatchString(policy.GetName()) {
				alerts++
			}
		}
		if alerts != 1 {
			t.Errorf("got %d alerts about the policy %s, want 1: %s", alerts, policy.GetName(), queries.String())
		}
	}
}

func TestTheCertificateAlertFitsTheMode(t *testing.T) {
	for v, want := range map[string]string{
		"certificates: {mode: selfManaged}": "< 4 * 3600",
		"certificates: {mode: certManager}": "< 72 * 3600",
		caValues:                            "< 336 * 3600",
		"certificates: {mode: openshift}":   "< 72 * 3600",
	} {
		for _, rule := range rules(t, render(t, defaultInstall, parseValues(t, v+"\nprometheusRule: {enabled: true}")).objects) {
			if rule.Alert == "LanyardCertificateExpiresSoon" && !strings.HasSuffix(rule.Expr.String(), want) {
				t.Errorf("%s\ngot %s, want it to end in %s", v, rule.Expr.String(), want)
			}
		}
	}
}

func TestTheDashboardShowsEveryMetric(t *testing.T) {
	known := knownMetrics(t)
	config := one(t, render(t, defaultInstall, parseValues(t, monitoringValues)).objects, "ConfigMap/lanyard-system/lanyard-dashboard")
	var dashboard struct {
		Title  string
		Panels []struct {
			Title, Description string
			GridPos            struct{ X, Y, W, H int }
			Targets            []struct{ Expr string }
		}
	}
	if err := json.Unmarshal([]byte(decode[corev1.ConfigMap](t, config).Data["lanyard.json"]), &dashboard); err != nil {
		t.Fatal(err)
	}
	if dashboard.Title == "" || len(dashboard.Panels) < 10 {
		t.Fatalf("got the dashboard %q with %d panels", dashboard.Title, len(dashboard.Panels))
	}
	variables := strings.NewReplacer("$__rate_interval", "5m", "$job", ".*")
	for _, panel := range dashboard.Panels {
		if panel.Description == "" || len(panel.Targets) == 0 {
			t.Errorf("%s: got %d queries and the description %q", panel.Title, len(panel.Targets), panel.Description)
		}
		for _, target := range panel.Targets {
			checkQuery(t, known, variables.Replace(target.Expr))
		}
	}
	for name := range known {
		if strings.HasPrefix(name, "lanyard_") && !strings.Contains(config.text, name) {
			t.Errorf("the dashboard does not show %s", name)
		}
	}
}
