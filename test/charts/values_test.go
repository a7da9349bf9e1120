// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

func TestDefaultsAndSchemaHaveTheSameValues(t *testing.T) {
	var schema map[string]any
	if err := json.Unmarshal([]byte(readFile(t, chartDir+"/values.schema.json")), &schema); err != nil {
		t.Fatal(err)
	}
	compareKeys(t, "", schema, defaults(t))
}

// Editors show the description of a value. It is the comment in values.yaml.
func TestEveryValueHasADescription(t *testing.T) {
	want, err := generateSchema()
	if err != nil {
		t.Fatal(err)
	}
	checkGenerated(t, chartDir+"/"+schemaFile, want)
	var schema map[string]any
	if err := json.Unmarshal([]byte(want), &schema); err != nil {
		t.Fatal(err)
	}
	for _, path := range leaves(t) {
		property := schema
		for key := range strings.SplitSeq(path, ".") {
			property = property["properties"].(map[string]any)[key].(map[string]any)
		}
		if text, _ := property["description"].(string); len(text) < 10 || strings.ContainsAny(text, "\n@") || strings.Contains(text, "](") {
			t.Errorf("%s: got the description %q, want the sentences of its comment", path, text)
		}
	}
}

// compareKeys fails if schema and values have different keys.
func compareKeys(t *testing.T, at string, schema, values map[string]any) {
	t.Helper()
	// A parent chart may have more global values.
	if closed := schema["additionalProperties"] == false; closed != (at != "global.") {
		t.Errorf("%s: the schema allows unknown values: %t", at, !closed)
	}
	properties := schema["properties"].(map[string]any)
	if diff := cmp.Diff(slices.Sorted(maps.Keys(values)), slices.Sorted(maps.Keys(properties))); diff != "" {
		t.Errorf("%s: keys (-values.yaml +values.schema.json):\n%s", at, diff)
	}
	for key, value := range values {
		below, _ := properties[key].(map[string]any)
		if len(below) == 0 {
			t.Errorf("%s%s: the schema allows anything", at, key)
		}
		if branch, ok := isBranch(value, below); ok {
			compareKeys(t, at+key+".", below, branch)
		}
	}
}

// isBranch reports whether a value is a map of further values, rather than one that is
// rendered unchanged.
func isBranch(value any, schema map[string]any) (map[string]any, bool) {
	branch, ok := value.(map[string]any)
	return branch, ok && len(branch) > 0 && schema["properties"] != nil
}

func defaults(t *testing.T) map[string]any {
	t.Helper()
	var v map[string]any
	if err := yaml.Unmarshal([]byte(readFile(t, chartDir+"/values.yaml")), &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// uses contains, for each value, an example that changes the output, with the other values
// that the example needs.
var uses = map[string]struct{ with, value string }{
	"nameOverride":                                {"", "nameOverride: a"},
	"fullnameOverride":                            {"", "fullnameOverride: a"},
	"namespaceOverride":                           {"", "namespaceOverride: a"},
	"commonLabels":                                {"", "commonLabels: {a: b}"},
	"commonAnnotations":                           {"", "commonAnnotations: {a: b}"},
	"namespace.create":                            {"", "namespace: {create: true}"},
	"namespace.labels":                            {"namespace: {create: true}", "namespace: {labels: {a: b}}"},
	"namespace.annotations":                       {"namespace: {create: true}", "namespace: {annotations: {a: b}}"},
	"global.imageRegistry":                        {"", "global: {imageRegistry: a}"},
	"global.imagePullSecrets":                     {"", "global: {imagePullSecrets: [a]}"},
	"image.registry":                              {"", "image: {registry: a}"},
	"image.repository":                            {"", "image: {repository: a}"},
	"image.tag":                                   {"", "image: {tag: a}"},
	"image.digest":                                {"", "image: {digest: 'sha256:0123456789012345678901234567890123456789012345678901234567890123'}"},
	"image.pullPolicy":                            {"", "image: {pullPolicy: Always}"},
	"imagePullSecrets":                            {"", "imagePullSecrets: [{name: a}]"},
	"config":                                      {"", "config: {aws-default-region: a}"},
	"existingConfigMap":                           {"", "existingConfigMap: a"},
	"certificates.mode":                           {"", "certificates: {mode: openshift}"},
	"certificates.duration":                       {"", "certificates: {duration: 2h}"},
	"certificates.caDuration":                     {"", "certificates: {caDuration: 2h}"},
	"certificates.renewBefore":                    {"certificates: {mode: certManager}", "certificates: {renewBefore: 1h}"},
	"certificates.issuerRef":                      {"certificates: {mode: certManager}", "certificates: {issuerRef: {name: a}}"},
	"certificates.existingSecret":                 {caValues, "certificates: {existingSecret: a}"},
	"certificates.caBundle":                       {caValues, "certificates: {caBundle: '-----BEGIN CERTIFICATE-----'}"},
	"clientCertificates.configMap":                {"", "clientCertificates: {configMap: a}"},
	"clientCertificates.secret":                   {"", "clientCertificates: {secret: a}"},
	"clientCertificates.allowedNames":             {"clientCertificates: {secret: a}", "clientCertificates: {allowedNames: [a]}"},
	"webhook.url":                                 {"", "webhook: {url: 'https://a'}"},
	"webhook.labels":                              {"", "webhook: {labels: {a: b}}"},
	"webhook.failurePolicy":                       {"", "webhook: {failurePolicy: Fail}"},
	"webhook.timeoutSeconds":                      {"", "webhook: {timeoutSeconds: 1}"},
	"webhook.namespaceSelector":                   {"", "webhook: {namespaceSelector: {matchLabels: {a: b}}}"},
	"webhook.objectSelector":                      {"", "webhook: {objectSelector: {matchLabels: {a: b}}}"},
	"webhook.matchConditions":                     {"", "webhook: {matchConditions: [{name: a, expression: 'true'}]}"},
	"webhook.reinvocationPolicy":                  {"", "webhook: {reinvocationPolicy: Never}"},
	"verifiedStart.enabled":                       {"", "verifiedStart: {enabled: true}"},
	"webhook.annotations":                         {"", "webhook: {annotations: {a: b}}"},
	"webhook.port":                                {"", "webhook: {port: 10250}"},
	"guard.enabled":                               {"", "guard: {enabled: false}"},
	"guard.validationActions":                     {"", "guard: {validationActions: [Warn]}"},
	"fences.enabled":                              {"", "fences: {enabled: false}"},
	"tokenAudiences.enabled":                      {"", "tokenAudiences: {enabled: true}"},
	"replicaCount":                                {"", "replicaCount: 3"},
	"podDisruptionBudget.enabled":                 {"", "podDisruptionBudget: {enabled: false}"},
	"podDisruptionBudget.minAvailable":            {"", "podDisruptionBudget: {minAvailable: 50%}"},
	"podDisruptionBudget.maxUnavailable":          {"", "podDisruptionBudget: {maxUnavailable: 0}"},
	"strategy":                                    {"", "strategy: {rollingUpdate: {maxSurge: 2}}"},
	"topologySpreadConstraints":                   {"", "topologySpreadConstraints: []"},
	"priorityClassName":                           {"", "priorityClassName: a"},
	"shutdownDelaySeconds":                        {"", "shutdownDelaySeconds: 0"},
	"terminationGracePeriodSeconds":               {"", "terminationGracePeriodSeconds: 90"},
	"readinessProbe":                              {"", "readinessProbe: {timeoutSeconds: 2}"},
	"livenessProbe":                               {"", "livenessProbe: {timeoutSeconds: 2}"},
	"resources":                                   {"", "resources: {requests: {cpu: 1}}"},
	"podSecurityContext":                          {"", "podSecurityContext: {fsGroup: 1}"},
	"securityContext":                             {"", "securityContext: {privileged: false}"},
	"deploymentAnnotations":                       {"", "deploymentAnnotations: {a: b}"},
	"podLabels":                                   {"", "podLabels: {a: b}"},
	"podAnnotations":                              {"", "podAnnotations: {a: b}"},
	"nodeSelector":                                {"", "nodeSelector: {a: b}"},
	"tolerations":                                 {"", "tolerations: [{operator: Exists}]"},
	"affinity":                                    {"", "affinity: {podAffinity: {}}"},
	"hostNetwork":                                 {"", "hostNetwork: true"},
	"hostUsers":                                   {"", "hostUsers: false"},
	"podSpecExtra":                                {"", "podSpecExtra: {shareProcessNamespace: true}"},
	"extraEnv":                                    {"", "extraEnv: [{name: a}]"},
	"extraVolumes":                                {"", "extraVolumes: [{name: a, emptyDir: {}}]"},
	"extraVolumeMounts":                           {"", "extraVolumeMounts: [{name: a, mountPath: /a}]"},
	"logLevel":                                    {"", "logLevel: 1"},
	"logFormat":                                   {"", "logFormat: json"},
	"healthProbePort":                             {"", "healthProbePort: 8082"},
	"extraArgs":                                   {"", "extraArgs: [a]"},
	"service.port":                                {"", "service: {port: 444}"},
	"service.labels":                              {"", "service: {labels: {a: b}}"},
	"service.annotations":                         {"", "service: {annotations: {a: b}}"},
	"serviceAccount.create":                       {"", "serviceAccount: {create: false}"},
	"serviceAccount.name":                         {"", "serviceAccount: {name: a}"},
	"serviceAccount.annotations":                  {"", "serviceAccount: {annotations: {a: b}}"},
	"serviceAccount.labels":                       {"", "serviceAccount: {labels: {a: b}}"},
	"serviceAccount.automountServiceAccountToken": {"", "serviceAccount: {automountServiceAccountToken: true}"},
	"rbac.create":                                 {"", "rbac: {create: false}"},
	"networkPolicy.enabled":                       {"", "networkPolicy: {enabled: true}"},
	"networkPolicy.webhookFrom":                   {"networkPolicy: {enabled: true}", "networkPolicy: {webhookFrom: [{podSelector: {}}]}"},
	"networkPolicy.probesFrom":                    {"networkPolicy: {enabled: true}", "networkPolicy: {probesFrom: [{podSelector: {}}]}"},
	"networkPolicy.metricsFrom":                   {"networkPolicy: {enabled: true}", "networkPolicy: {metricsFrom: [{podSelector: {}}]}"},
	"networkPolicy.ingress":                       {"networkPolicy: {enabled: true}", "networkPolicy: {ingress: [{from: [{podSelector: {}}]}]}"},
	"networkPolicy.egress":                        {"networkPolicy: {enabled: true}", "networkPolicy: {egress: []}"},
	"metrics.enabled":                             {"", "metrics: {enabled: false}"},
	"metrics.port":                                {"", "metrics: {port: 9090}"},
	"metrics.secure":                              {"", "metrics: {secure: true}"},
	"serviceMonitor.enabled":                      {"", "serviceMonitor: {enabled: true}"},
	"serviceMonitor.namespace":                    {"serviceMonitor: {enabled: true}", "serviceMonitor: {namespace: a}"},
	"serviceMonitor.jobLabel":                     {"serviceMonitor: {enabled: true}", "serviceMonitor: {jobLabel: a}"},
	"serviceMonitor.tlsConfig":                    {"serviceMonitor: {enabled: true}\nmetrics: {secure: true}", "serviceMonitor: {tlsConfig: {insecureSkipVerify: true}}"},
	"serviceMonitor.labels":                       {"serviceMonitor: {enabled: true}", "serviceMonitor: {labels: {a: b}}"},
	"serviceMonitor.annotations":                  {"serviceMonitor: {enabled: true}", "serviceMonitor: {annotations: {a: b}}"},
	"serviceMonitor.interval":                     {"serviceMonitor: {enabled: true}", "serviceMonitor: {interval: 1m}"},
	"serviceMonitor.scrapeTimeout":                {"serviceMonitor: {enabled: true}", "serviceMonitor: {scrapeTimeout: 1m}"},
	"serviceMonitor.relabelings":                  {"serviceMonitor: {enabled: true}", "serviceMonitor: {relabelings: [{action: drop}]}"},
	"serviceMonitor.metricRelabelings":            {"serviceMonitor: {enabled: true}", "serviceMonitor: {metricRelabelings: [{action: drop}]}"},
	"prometheusRule.namespace":                    {"prometheusRule: {enabled: true}", "prometheusRule: {namespace: a}"},
	"prometheusRule.disabled":                     {"prometheusRule: {enabled: true}", "prometheusRule: {disabled: [LanyardSlow]}"},
	"prometheusRule.enabled":                      {"", "prometheusRule: {enabled: true}"},
	"prometheusRule.labels":                       {"prometheusRule: {enabled: true}", "prometheusRule: {labels: {a: b}}"},
	"prometheusRule.annotations":                  {"prometheusRule: {enabled: true}", "prometheusRule: {annotations: {a: b}}"},
	"prometheusRule.certificateExpiryHours":       {"prometheusRule: {enabled: true}", "prometheusRule: {certificateExpiryHours: 1}"},
	"prometheusRule.runbookURL":                   {"prometheusRule: {enabled: true}", "prometheusRule: {runbookURL: a}"},
	"grafanaDashboard.enabled":                    {"", "grafanaDashboard: {enabled: true}"},
	"grafanaDashboard.namespace":                  {"grafanaDashboard: {enabled: true}", "grafanaDashboard: {namespace: a}"},
	"grafanaDashboard.labels":                     {"grafanaDashboard: {enabled: true}", "grafanaDashboard: {labels: {a: b}}"},
	"grafanaDashboard.annotations":                {"grafanaDashboard: {enabled: true}", "grafanaDashboard: {annotations: {a: b}}"},
	"checks.enabled":                              {"", "checks: {enabled: true}"},
	"checks.image":                                {checksValues, "checks: {image: a}"},
	"checks.issuer":                               {checksValues, "checks: {issuer: 'https://a'}"},
	"checks.stalePodsSchedule":                    {checksValues, "checks: {stalePodsSchedule: '@daily'}"},
	"checks.issuerSchedule":                       {checksValues, "checks: {issuerSchedule: '@daily'}"},
	"test.enabled":                                {"", "test: {enabled: false}"},
	"test.image":                                  {"", "test: {image: a}"},
	"test.namespace":                              {"", "test: {namespace: a}"},
	"extraObjects":                                {"", "extraObjects: [{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: a}}]"},
}

func TestEveryValueIsUsed(t *testing.T) {
	paths := leaves(t)
	if diff := cmp.Diff(paths, slices.Sorted(maps.Keys(uses))); diff != "" {
		t.Fatalf("values (-values.yaml +this test):\n%s", diff)
	}
	for path, use := range uses {
		t.Run(path, func(t *testing.T) {
			with := parseValues(t, use.with)
			before := textOf(render(t, defaultInstall, with).objects)
			changed := merge(with, parseValues(t, use.value))
			if after := textOf(render(t, defaultInstall, changed).objects); after == before {
				t.Errorf("%s changes nothing", use.value)
			}
		})
	}
}

// leaves returns the paths of all values.
func leaves(t *testing.T) []string {
	t.Helper()
	var schema map[string]any
	if err := json.Unmarshal([]byte(readFile(t, chartDir+"/values.schema.json")), &schema); err != nil {
		t.Fatal(err)
	}
	var paths []string
	var walk func(at string, schema, values map[string]any)
	walk = func(at string, schema, values map[string]any) {
		properties, _ := schema["properties"].(map[string]any)
		for key, value := range values {
			below, _ := properties[key].(map[string]any)
			if branch, ok := isBranch(value, below); ok {
				walk(at+key+".", below, branch)
			} else {
				paths = append(paths, at+key)
			}
		}
	}
	walk("", schema, defaults(t))
	slices.Sort(paths)
	return paths
}

// merge returns a, overridden by b.
func merge(a, b map[string]any) map[string]any {
	merged := maps.Clone(a)
	for key, value := range b {
		below, ok := value.(map[string]any)
		if into, both := merged[key].(map[string]any); ok && both {
			value = merge(into, below)
		}
		merged[key] = value
	}
	return merged
}

func TestInvalidValuesAreRejected(t *testing.T) {
	for name, test := range map[string]struct{ values, want string }{
		"a misspelt value":                     {"replicas: 2", "additional properties 'replicas' not allowed"},
		"a misspelt value, further down":       {"webhook: {failurepolicy: Fail}", "additional properties 'failurepolicy' not allowed"},
		"a number in quotes":                   {"replicaCount: '2'", "at '/replicaCount': got string, want integer"},
		"an unknown mode":                      {"certificates: {mode: certmanager}", "at '/certificates/mode': value must be one of 'selfManaged', 'certManager', 'openshift', 'secret'"},
		"an unknown failure policy":            {"webhook: {failurePolicy: Retry}", "at '/webhook/failurePolicy': value must be one of"},
		"an excluded namespace with a comma":   {"config: {excluded-namespaces: ['a,b']}", "at '/config/excluded-namespaces/0': 'a,b' does not match pattern"},
		"a timeout past the API's":             {"webhook: {timeoutSeconds: 60}", "at '/webhook/timeoutSeconds': maximum: got 60, want 30"},
		"a port past the last":                 {"webhook: {port: 94430}", "at '/webhook/port': maximum"},
		"a mount path that ends an expression": {"config: {token-mount-path: \"/a'b\"}", "at '/config/token-mount-path'"},
		"an audience that ends an expression":  {"config: {aws-default-audience: \"a'b\"}", "at '/config/aws-default-audience'"},
		"a duration without its unit":          {"certificates: {duration: '24'}", "at '/certificates/duration': '24' does not match pattern"},
		"a label that is no string":            {"podLabels: {a: 1}", "at '/podLabels/a': got number, want string"},
		"no action":                            {"guard: {validationActions: []}", "at '/guard/validationActions': minItems"},
		"a probe's own handler":                {"livenessProbe: {exec: {command: [a]}}", "additional properties 'exec' not allowed"},
		"a registry with its scheme":           {"image: {registry: 'https://registry.example'}", "at '/image/registry'"},
		"a registry that ends with a slash":    {"image: {registry: registry.example/}", "at '/image/registry'"},
		"a URL without https":                  {"webhook: {url: 'http://lanyard.example'}", "at '/webhook/url'"},
		"a URL with a path":                    {"webhook: {url: 'https://lanyard.example/x'}", "at '/webhook/url'"},
		"an issuer without https":              {"checks: {issuer: 'http://issuer.example'}", "at '/checks/issuer'"},
		"a check that never runs":              {"checks: {stalePodsSchedule: ''}", "at '/checks/stalePodsSchedule': minLength"},
		"an alert that does not exist":         {"prometheusRule: {disabled: [LanyardFast]}", "at '/prometheusRule/disabled/0': value must be one of"},
		"an issuer without its name":           {"certificates: {mode: certManager, issuerRef: {kind: ClusterIssuer}}", "at '/certificates/issuerRef'"},

		"no secret":                           {"certificates: {mode: secret}", "needs certificates.existingSecret: the name of a Secret of type kubernetes.io/tls in the namespace lanyard-system"},
		"no CA":                               {"certificates: {mode: secret, existingSecret: a}", "needs certificates.caBundle: the CA of the certificate, in PEM"},
		"a CA in base64":                      {"certificates: {mode: secret, existingSecret: a, caBundle: LS0tLS1CRUdJTg==}", "in PEM (--set-file certificates.caBundle=ca.crt)"},
		"a secret that is not asked for":      {"certificates: {existingSecret: a}", "certificates.existingSecret is for certificates.mode=secret, got certificates.mode=selfManaged"},
		"a CA that is not asked for":          {"certificates: {mode: openshift, caBundle: a}", "certificates.caBundle is for certificates.mode=secret, got certificates.mode=openshift"},
		"an issuer without cert-manager":      {"certificates: {issuerRef: {name: a}}", "certificates.issuerRef is for certificates.mode=certManager, got certificates.mode=selfManaged"},
		"renewBefore without cert-manager":    {"certificates: {renewBefore: 1h}", "certificates.renewBefore is for certificates.mode=certManager"},
		"a duration of OpenShift's":           {"certificates: {mode: openshift, duration: 1h}", "certificates.duration has no effect with certificates.mode=openshift"},
		"the CA's duration, with an issuer":   {"certificates: {mode: certManager, issuerRef: {name: a}, caDuration: 1h}", "certificates.caDuration has no effect with certificates.issuerRef"},
		"a setting by the name of a value":    {"config: {tlsMinVersion: VersionTLS12}", "config.tlsMinVersion: settings have the names of the flags: use config.tls-min-version"},
		"settings of a provider in a mapping": {"config: {aws: {roleARNPrefix: a, defaultRegion: b}}", "config.aws.roleARNPrefix: settings have the names of the flags: use config.aws-role-arn-prefix"},
		"the ConfigMap among the settings":    {"config: {existingConfigMap: a}", "config.existingConfigMap is set by the chart: use existingConfigMap"},
		"a setting without a value":           {"config: {aws-default-region: null}", "config.aws-default-region is null: leave it out"},
		"the CA of callers twice":             {"clientCertificates: {secret: a, configMap: b}", "clientCertificates.configMap and clientCertificates.secret cannot both be set"},
		"names of callers without a CA":       {"clientCertificates: {allowedNames: [a]}", "clientCertificates.allowedNames needs clientCertificates.configMap or clientCertificates.secret"},
		"a name of a caller with a comma":     {"clientCertificates: {secret: a, allowedNames: ['a,b']}", "at '/clientCertificates/allowedNames/0': 'a,b' does not match pattern"},
		"too short a grace period":            {"shutdownDelaySeconds: 30", "terminationGracePeriodSeconds must be at least 65: shutdownDelaySeconds plus 35 for requests in flight; got 60"},
		"one port twice":                      {"metrics: {port: 8081}", "webhook.port, healthProbePort and metrics.port must differ; got 9443, 8081, 8081"},
		"one port of the Service twice":       {"service: {port: 8080}", "service.port and metrics.port are ports of the same Service and must differ"},
		"a monitor without metrics":           {"metrics: {enabled: false}\nserviceMonitor: {enabled: true}", "serviceMonitor.enabled needs metrics.enabled"},
		"alerts without metrics":              {"metrics: {enabled: false}\nprometheusRule: {enabled: true}", "prometheusRule.enabled needs metrics.enabled"},
		"a URL on OpenShift":                  {"certificates: {mode: openshift}\nwebhook: {url: 'https://a'}", "webhook.url cannot be used with certificates.mode=openshift"},
		"a namespace that denies the pods":    {"hostNetwork: true\nnamespace: {create: true}", "hostNetwork needs the label pod-security.kubernetes.io/enforce: privileged in namespace.labels"},
		"protection of what is not there":     {"metrics: {enabled: false, secure: true}", "metrics.secure needs metrics.enabled"},
		"a monitor elsewhere without a CA":    {"metrics: {secure: true}\nserviceMonitor: {enabled: true, namespace: a}", "metrics.secure needs serviceMonitor.tlsConfig"},
		"a monitor of an unknown CA":          {caValues + "metrics: {secure: true}\nserviceMonitor: {enabled: true}", "metrics.secure needs serviceMonitor.tlsConfig"},
		"a dashboard without metrics":         {"metrics: {enabled: false}\ngrafanaDashboard: {enabled: true}", "grafanaDashboard.enabled needs metrics.enabled"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := tryRender(t, defaultInstall, parseValues(t, test.values))
			if err == nil {
				t.Fatalf("%s was accepted", test.values)
			}
			if !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v\nwant it to contain %q", err, test.want)
			}
		})
	}
}

func TestAllMistakesAreReportedTogether(t *testing.T) {
	_, err := tryRender(t, defaultInstall, parseValues(t, "certificates: {mode: secret}\nmetrics: {port: 8081}\nterminationGracePeriodSeconds: 1"))
	if err == nil {
		t.Fatal("they were accepted")
	}
	if got := strings.Count(err.Error(), "\n- "); got != 4 {
		t.Errorf("got %d mistakes, want 4: %v", got, err)
	}
}

func TestGlobalValuesOfAParentChartAreAccepted(t *testing.T) {
	render(t, defaultInstall, parseValues(t, "global: {a: b}"))
}
