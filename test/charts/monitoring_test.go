// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"cmp"
	"encoding/json"
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql/parser"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/lanyard-dev/lanyard/test/support/metricstest"
)

// apiserverMetrics are read from k8s.io/apiserver v0.36.3: pkg/admission/metrics
// and pkg/admission/plugin/policy/validating/metrics.
var apiserverMetrics = map[string][]string{
	"apiserver_admission_webhook_fail_open_count":            {"name", "type"},
	"apiserver_admission_webhook_rejection_count":            {"name", "type", "operation", "error_type", "rejection_code"},
	"apiserver_admission_webhook_admission_duration_seconds": {"name", "type", "operation", "rejected"},
	"apiserver_validating_admission_policy_check_total":      {"policy", "policy_binding", "error_type", "enforcement_action"},
}

// stateMetrics are read from kube-state-metrics v2.
var stateMetrics = map[string][]string{
	"kube_cronjob_status_last_schedule_time":   {"cronjob"},
	"kube_cronjob_status_last_successful_time": {"cronjob"},
}

// scraped are the labels that Prometheus adds.
var scraped = []string{"job", "namespace", "pod", "instance", "service", "container", "endpoint", "le"}

// knownMetrics returns the labels of each metric that queries may be about.
func knownMetrics(t *testing.T) map[string][]string {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	if err := metricstest.Register(registry); err != nil {
		t.Fatal(err)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	known := maps.Clone(apiserverMetrics)
	maps.Copy(known, stateMetrics)
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

// linkedVersion returns the version of the documentation that the chart and deploy/ link
// to: main, or the version of the chart in a release.
func linkedVersion(t *testing.T) string {
	t.Helper()
	link := regexp.MustCompile(`github\.com/lanyard-dev/lanyard/(?:blob|tree)/([^/]+)/`)
	found := map[string]string{} // a file of each version
	for _, directory := range []string{"../../charts", "../../deploy"} {
		err := filepath.WalkDir(directory, func(name string, entry fs.DirEntry, err error) error {
			if err == nil && entry.Type().IsRegular() {
				for _, match := range link.FindAllStringSubmatch(readFile(t, name), -1) {
					found[match[1]] = name
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	release := "v" + regexp.MustCompile(`(?m)^appVersion: (.*)$`).FindStringSubmatch(readFile(t, "../../charts/lanyard/Chart.yaml"))[1]
	for version := range found {
		if len(found) != 1 || version != "main" && version != release {
			t.Fatalf("got links to the versions %v, want only main or only %s", found, release)
		}
		return version
	}
	t.Fatal("got no link to the documentation")
	return ""
}

func TestAlertsUseExistingMetricsAndLinkToTheRunbook(t *testing.T) {
	known, linked := knownMetrics(t), linkedVersion(t)
	anchor := regexp.MustCompile(`(?m)^#+ ([A-Za-z]+)$`)
	headings := map[string]bool{}
	for _, match := range anchor.FindAllStringSubmatch(readFile(t, "../../docs/operations/monitoring.md"), -1) {
		headings[match[1]] = true
	}
	for _, rule := range rules(t, render(t, defaultInstall, parseValues(t, monitoringValues)).objects) {
		checkQuery(t, known, rule.Expr.String())
		want := "https://github.com/lanyard-dev/lanyard/blob/" + linked + "/docs/operations/monitoring.md#" + strings.ToLower(rule.Alert)
		if got := rule.Annotations["runbook_url"]; got != want {
			t.Errorf("%s: got runbook_url %s, want %s", rule.Alert, got, want)
		}
		if !headings[rule.Alert] {
			t.Errorf("docs/operations/monitoring.md has no heading %s", rule.Alert)
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
		if strings.Contains(query, "cronjob=") && !strings.Contains(query, `namespace="security"`) {
			t.Errorf("%s is not about the CronJob in the namespace: %s", rule.Alert, query)
		}
		if strings.Contains(query, "{job=") && !strings.Contains(query, `job="`+job+`", namespace="security"`) {
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

func TestAlertsCanBeLeftOut(t *testing.T) {
	text := readFile(t, chartDir+"/files/rules.yaml")
	var names []string
	for _, match := range regexp.MustCompile(`(?m)^ +- alert: (\w+)$`).FindAllStringSubmatch(text, -1) {
		names = append(names, match[1])
	}
	alerts := func(values string) []string {
		var alerts []string
		for _, rule := range rules(t, render(t, defaultInstall, parseValues(t, "prometheusRule: {enabled: true"+values+"}")).objects) {
			alerts = append(alerts, rule.Alert)
		}
		return alerts
	}
	if diff := gocmp.Diff(names, alerts("")); diff != "" {
		t.Errorf("alerts (-rules.yaml +rendered):\n%s", diff)
	}
	// Each of them: the schema lists their names.
	for _, name := range names {
		want := slices.DeleteFunc(slices.Clone(names), func(n string) bool { return n == name })
		if diff := gocmp.Diff(want, alerts(", disabled: ["+name+"]")); diff != "" {
			t.Errorf("without %s (-want +got):\n%s", name, diff)
		}
	}
}

// The alerts and the dashboard select the metrics by job and namespace.
func TestTheMonitorSetsTheJobOfTheAlerts(t *testing.T) {
	const alerts = "prometheusRule: {enabled: true}\n"
	for name, test := range map[string]struct{ values, want string }{
		"a ServiceMonitor":                   {"serviceMonitor: {enabled: true}", "blue-lanyard-webhook"},
		"a ServiceMonitor with a job":        {"serviceMonitor: {enabled: true, jobLabel: app.kubernetes.io/name}", "lanyard-webhook"},
		"a ServiceMonitor with another job":  {"serviceMonitor: {enabled: true, jobLabel: team}\nservice: {labels: {team: security}}", "security"},
		"a ServiceMonitor without the label": {"serviceMonitor: {enabled: true, jobLabel: team}", "blue-lanyard-webhook"},
	} {
		t.Run(name, func(t *testing.T) {
			objects := render(t, installAs("blue", "security", kubeVersion), parseValues(t, alerts+test.values)).objects
			if got := jobOf(t, objects); got != test.want {
				t.Errorf("got the job %s, want %s", got, test.want)
			}
			for _, rule := range rules(t, objects) {
				query := rule.Expr.String()
				if strings.Contains(query, "cronjob=") && !strings.Contains(query, `namespace="security"`) {
					t.Errorf("%s is not about the CronJob in the namespace: %s", rule.Alert, query)
				}
				if strings.Contains(query, "{job=") && !strings.Contains(query, `job="`+test.want+`", namespace="security"`) {
					t.Errorf("%s is not about the job %s: %s", rule.Alert, test.want, query)
				}
			}
		})
	}
}

// jobOf returns the label that Prometheus gives the metrics.
func jobOf(t *testing.T, objects []object) string {
	t.Helper()
	monitor, service := find(objects, "ServiceMonitor")[0], find(objects, "Service")[0]
	return cmp.Or(service.GetLabels()[decode[monitoringv1.ServiceMonitor](t, monitor).Spec.JobLabel], service.GetName())
}

func TestMonitoringCanBeInAnotherNamespace(t *testing.T) {
	for kind, key := range map[string]string{
		"ServiceMonitor": "serviceMonitor", "PrometheusRule": "prometheusRule", "ConfigMap": "grafanaDashboard",
	} {
		t.Run(kind, func(t *testing.T) {
			o := find(render(t, defaultInstall, parseValues(t, key+": {enabled: true, namespace: monitoring}")).objects, kind)[0]
			if got := o.GetNamespace(); got != "monitoring" {
				t.Errorf("got the namespace %s, want monitoring", got)
			}
			selected, found, err := unstructured.NestedStringSlice(o.Object, "spec", "namespaceSelector", "matchNames")
			if err != nil || found != strings.HasSuffix(kind, "Monitor") || found && !slices.Equal(selected, []string{namespace}) {
				t.Errorf("got namespaceSelector %v, %v; want %s for monitors", selected, err, namespace)
			}
		})
	}
}

// Prometheus must trust the certificate, and the webhook must be allowed to check
// the token of Prometheus.
func TestSecureMetricsAreReadWithTLSAndAToken(t *testing.T) {
	const secure = "\nmetrics: {secure: true}\nserviceMonitor: {enabled: true}"
	secret := func(name string) monitoringv1.SecretOrConfigMap {
		return monitoringv1.SecretOrConfigMap{Secret: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: name}, Key: "ca.crt"}}
	}
	for values, want := range map[string]monitoringv1.SafeTLSConfig{
		"certificates: {mode: selfManaged}": {ServerName: new(serverName), CA: secret("lanyard-webhook-ca")},
		"certificates: {mode: certManager}": {ServerName: new(serverName), CA: secret("lanyard-webhook-tls")},
		"certificates: {mode: openshift}": {ServerName: new(serverName), CA: monitoringv1.SecretOrConfigMap{ConfigMap: &corev1.ConfigMapKeySelector{
			LocalObjectReference: corev1.LocalObjectReference{Name: "openshift-service-ca.crt"}, Key: "service-ca.crt",
		}}},
		"webhook: {url: 'https://lanyard.example'}": {ServerName: new("lanyard.example"), CA: secret("lanyard-webhook-ca")},
	} {
		t.Run(values, func(t *testing.T) {
			objects := render(t, defaultInstall, parseValues(t, values+secure)).objects
			endpoint := decode[monitoringv1.ServiceMonitor](t, find(objects, "ServiceMonitor")[0]).Spec.Endpoints[0]
			if diff := gocmp.Diff(want, endpoint.TLSConfig.SafeTLSConfig); diff != "" {
				t.Errorf("tlsConfig (-want +got):\n%s", diff)
			}
			// The authorization that replaces it only reads Secrets.
			file := endpoint.BearerTokenFile //nolint:staticcheck // deprecated
			if *endpoint.Scheme != "https" || file != "/var/run/secrets/kubernetes.io/serviceaccount/token" {
				t.Errorf("got scheme %s and bearerTokenFile %q", *endpoint.Scheme, file)
			}
			if o := loadOptions(t, objects, ""); !o.MetricsSecure {
				t.Error("the program does not protect the metrics")
			}
		})
	}
	t.Run("with other TLS settings", func(t *testing.T) {
		v := parseValues(t, caValues+"metrics: {secure: true}\nserviceMonitor: {enabled: true, tlsConfig: {insecureSkipVerify: true}}")
		endpoint := decode[monitoringv1.ServiceMonitor](t, find(render(t, defaultInstall, v).objects, "ServiceMonitor")[0]).Spec.Endpoints[0]
		if diff := gocmp.Diff(monitoringv1.SafeTLSConfig{InsecureSkipVerify: new(true)}, endpoint.TLSConfig.SafeTLSConfig); diff != "" {
			t.Errorf("tlsConfig (-want +got):\n%s", diff)
		}
	})
}

// serverName is the name of the certificate.
const serverName = "lanyard-webhook.lanyard-system.svc"

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
