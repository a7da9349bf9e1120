// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package charts

// ca is the CA of a user's own certificate.
const ca = `-----BEGIN CERTIFICATE-----
MIIBczCCARmgAwIBAgIUZzk4
-----END CERTIFICATE-----
`

// caValues are the values with ca.
const caValues = `certificates:
  mode: secret
  existingSecret: lanyard-webhook-tls
  caBundle: |
    -----BEGIN CERTIFICATE-----
    MIIBczCCARmgAwIBAgIUZzk4
    -----END CERTIFICATE-----
`

// everything enables each feature that is compatible with the default certificate mode
// and with Pod Security "restricted".
const everything = `
nameOverride: strap
namespaceOverride: elsewhere
commonLabels: {team: platform}
commonAnnotations: {contact: platform}
global: {imageRegistry: registry.example/team, imagePullSecrets: [parents]}
image: {registry: another.example, tag: v9, digest: "sha256:0123456789012345678901234567890123456789012345678901234567890123"}
imagePullSecrets: [{name: pull}]
config:
  aws-default-region: eu-central-1
  aws-default-audience: a
  azure-default-tenant-id: contoso.example
  azure-default-audience: b
  azure-authority-host: https://login.example/
  gcp-default-workload-identity-provider: projects/1/locations/global/workloadIdentityPools/pool/providers/prov
  gcp-default-audience: c
  providers: [{name: example, audience: example.com, parameters: [{name: role, required: true}]}]
  identities: [{namespace: "a*", serviceAccount: b.c, annotations: {example-role: r}}]
  token-expiration-seconds: 7200
  token-mount-path: /var/run/secrets/openshift/serviceaccount
  bind-address: "::"
  tls-min-version: VersionTLS12
  tls-cipher-suites: [TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256]
certificates: {duration: 48h, caDuration: 1000h}
clientCertificates: {configMap: callers, allowedNames: [kube-apiserver, b]}
webhook:
  url: https://lanyard.example:10250
  labels: {policy: exempt}
  timeoutSeconds: 2
  namespaceSelector: {matchLabels: {tier: a}, matchExpressions: [{key: kubernetes.io/metadata.name, operator: In, values: [kube-system, elsewhere, shop]}]}
  objectSelector: {matchLabels: {identity: "yes"}}
  matchConditions: [{name: not-by-me, expression: "request.userInfo.username != 'me'"}]
  port: 10250
replicaCount: null
podDisruptionBudget: {maxUnavailable: 1}
priorityClassName: system-cluster-critical
deploymentAnnotations: {reload: "yes"}
podLabels: {a: b}
podAnnotations: {c: "{{ .Release.Name }}"}
nodeSelector: {kubernetes.io/os: linux}
tolerations: [{operator: Exists}]
affinity: {nodeAffinity: {}}
hostUsers: false
podSpecExtra:
  runtimeClassName: gvisor
  schedulerName: mine
  dnsPolicy: None
  dnsConfig: {nameservers: [192.0.2.53]}
  hostAliases: [{ip: 192.0.2.1, hostnames: [api.example]}]
  initContainers:
    - name: before
      image: more
      securityContext: {readOnlyRootFilesystem: true, allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
extraEnv: [{name: GOMEMLIMIT, value: 100MiB}]
extraVolumes: [{name: more, emptyDir: {}}]
extraVolumeMounts: [{name: more, mountPath: /more}]
extraArgs: [--v=3]
logLevel: 1
logFormat: json
healthProbePort: 9081
service: {port: 8443, labels: {team-job: webhooks}, annotations: {e: f}}
serviceAccount: {name: own, annotations: {g: h}, labels: {i: j}}
tokenAudiences: {enabled: true}
networkPolicy: {enabled: true, webhookFrom: [{ipBlock: {cidr: 192.0.2.10/32}}], probesFrom: [{ipBlock: {cidr: 192.0.2.0/24}}], metricsFrom: [{namespaceSelector: {}}], ingress: [{from: [{podSelector: {}}]}]}
metrics: {port: 9080}
namespace: {create: true, annotations: {o: p}}
serviceMonitor: {enabled: true, namespace: monitoring, jobLabel: team-job, interval: 30s, scrapeTimeout: 5s, labels: {k: l}, relabelings: [{action: labeldrop, regex: pod}], metricRelabelings: [{action: labeldrop, regex: le}]}
prometheusRule: {enabled: true, namespace: monitoring, disabled: [LanyardSlow], labels: {m: o}, certificateExpiryHours: 2, runbookURL: https://runbooks.example}
grafanaDashboard: {enabled: true, namespace: monitoring, annotations: {grafana_folder: Security}}
checks: {enabled: true, image: registry.example/cli:v9, issuer: https://issuer.example, stalePodsSchedule: "0 6 * * *", issuerSchedule: "@hourly"}
test: {namespace: shop, image: registry.example/check:v9}
extraObjects:
  - {apiVersion: v1, kind: ConfigMap, metadata: {name: more, namespace: "{{ .Release.Namespace }}"}}
  - |
    apiVersion: v1
    kind: ConfigMap
    metadata:
      name: {{ .Release.Name }}
      namespace: {{ .Release.Namespace }}
`

// valueSets contains the values with which each rule about rendered objects is tested.
var valueSets = map[string]struct {
	in     install
	values string
}{
	"the default values":                 {in: defaultInstall},
	"another release's name":             {in: installAs("blue", "security", kubeVersion)},
	"a very long release's name":         {in: installAs("a-name-that-is-as-long-as-helm-lets-a-name-of-a-rele", "security", kubeVersion)},
	"a cluster before Kubernetes 1.30":   {in: installAs(release, namespace, kubeVersionWithoutGuard)},
	"no fences":                          {in: defaultInstall, values: "fences: {enabled: false}"},
	"limited audiences":                  {in: defaultInstall, values: "tokenAudiences: {enabled: true}"},
	"no guard":                           {in: defaultInstall, values: "guard: {enabled: false}"},
	"a guard that only warns":            {in: defaultInstall, values: "guard: {validationActions: [Warn, Audit]}"},
	"cert-manager":                       {in: defaultInstall, values: "certificates: {mode: certManager}"},
	"cert-manager's other durations":     {in: defaultInstall, values: "certificates: {mode: certManager, duration: 48h, caDuration: 100h, renewBefore: 8h}"},
	"the user's issuer":                  {in: defaultInstall, values: "certificates: {mode: certManager, issuerRef: {name: corp, kind: ClusterIssuer}}"},
	"openshift":                          {in: defaultInstall, values: "certificates: {mode: openshift}\nservice: {annotations: {a: b}}"},
	"the user's certificate":             {in: defaultInstall, values: caValues},
	"each feature":                       {in: defaultInstall, values: everything},
	"no metrics":                         {in: defaultInstall, values: "metrics: {enabled: false}\nnetworkPolicy: {enabled: true}"},
	"no rights and no account":           {in: defaultInstall, values: "rbac: {create: false}\nserviceAccount: {create: false, name: mine}"},
	"selectors that want all":            {in: defaultInstall, values: "webhook: {namespaceSelector: {matchExpressions: [{key: kubernetes.io/metadata.name, operator: Exists}]}}"},
	"kube-system included":               {in: defaultInstall, values: "config: {excluded-namespaces: []}"},
	"another namespace excluded":         {in: defaultInstall, values: "config: {excluded-namespaces: [kube-system, legacy]}"},
	"no test":                            {in: defaultInstall, values: "test: {enabled: false}"},
	"settings":                           {in: defaultInstall, values: "config: {aws-default-region: eu-central-1}"},
	"the user's ConfigMap":               {in: defaultInstall, values: "existingConfigMap: mine\nconfig: {gcp-default-audience: a, tls-min-version: VersionTLS12, tls-cipher-suites: [TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256], token-expiration-seconds: 7200}"},
	"a URL":                              {in: defaultInstall, values: "webhook: {url: 'https://[2001:db8::1]:9443'}"},
	"a URL, with cert-manager":           {in: defaultInstall, values: "certificates: {mode: certManager}\nwebhook: {url: 'https://192.0.2.1:9443'}"},
	"a URL, with the user's certificate": {in: defaultInstall, values: urlCAValues},
	"protected metrics":                  {in: defaultInstall, values: "metrics: {secure: true}\nserviceMonitor: {enabled: true}\nprometheusRule: {enabled: true}"},
	"the checks":                         {in: defaultInstall, values: checksValues},
	"the checks, with a very long name":  {in: installAs("a-name-that-is-as-long-as-helm-lets-a-name-of-a-rele", "security", kubeVersion), values: checksValues},
	"monitoring and network policy":      {in: defaultInstall, values: monitoringValues},
}

// urlCAValues are caValues with a URL.
const urlCAValues = caValues + "webhook: {url: 'https://lanyard.example'}\n"

// checksValues are the values of deploy/checks.
const checksValues = "checks: {enabled: true, issuer: 'https://issuer.example.com/production'}\n"

const monitoringValues = `
serviceMonitor: {enabled: true}
prometheusRule: {enabled: true, certificateExpiryHours: 4}
grafanaDashboard: {enabled: true}
networkPolicy: {enabled: true}
`
