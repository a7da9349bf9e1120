{{- /*
Copyright The Lanyard Authors.
SPDX-License-Identifier: Apache-2.0
*/ -}}

{{- /* The webhook's command line. */ -}}
{{- define "lanyard.arguments" -}}
{{- include "lanyard.certificateArguments" . }}
- --secure-port={{ .Values.webhook.port }}
- --metrics-bind-address={{ ternary (printf ":%d" (int .Values.metrics.port)) "0" .Values.metrics.enabled }}
- --health-probe-bind-address=:{{ .Values.healthProbePort }}
- --shutdown-delay={{ .Values.shutdownDelaySeconds }}s
- --excluded-namespaces={{ include "lanyard.excludedNamespaces" . }}
{{- if .Values.socketStore.enabled }}
- --socket-store=/run/lanyard/webhook.sock
{{- end }}
- --log-format={{ .Values.logFormat }}
- --v={{ .Values.logLevel }}
{{- if ne .Values.annotationPrefix "lanyard.dev/" }}
- --annotation-prefix={{ .Values.annotationPrefix }}
{{- end }}
{{- range $flag, $value := include "lanyard.settings" . | fromYaml }}
{{- with $value }}
- {{ printf "--%s=%v" $flag . | quote }}
{{- end }}
{{- end }}
{{- with .Values.extraArgs }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "lanyard.certificateArguments" -}}
{{- if eq .Values.certificates.mode "selfManaged" -}}
- --certificate-source=self-managed
- --certificate-secret-namespace={{ include "lanyard.namespace" . }}
- --certificate-secret-name={{ include "lanyard.webhook" . }}-ca
- --certificate-dns-names={{ include "lanyard.dnsName" . }}
- --webhook-configuration-name={{ include "lanyard.fullname" . }}
{{- with .Values.certificates.caDuration }}
- --ca-duration={{ . }}
{{- end }}
{{- with .Values.certificates.duration }}
- --certificate-duration={{ . }}
{{- end }}
{{- if .Values.certificates.unguessablePath }}
- --unguessable-path
{{- end }}
{{- else -}}
- --certificate-source=files
- --tls-cert-file=/etc/lanyard/tls/tls.crt
- --tls-private-key-file=/etc/lanyard/tls/tls.key
{{- end }}
{{- with .Values.clientCertificates }}
{{- if or .configMap .secret }}
- --client-ca-file=/etc/lanyard/client-ca/ca.crt
{{- end }}
{{- with .allowedNames }}
- {{ printf "--client-allowed-names=%s" (join "," .) | quote }}
{{- end }}
{{- end }}
{{- end -}}

{{- /* Flags that are omitted if their value is empty: the program has a default. */ -}}
{{- define "lanyard.settings" -}}
{{- with .Values.config -}}
bind-address: {{ .bindAddress | quote }}
tls-min-version: {{ .tlsMinVersion | quote }}
tls-cipher-suites: {{ join "," .tlsCipherSuites | quote }}
token-mount-path: {{ .tokenMountPath | quote }}
token-expiration-seconds: {{ .tokenExpirationSeconds | default "" | quote }}
default-allowed-identities: {{ .defaultAllowedIdentities | quote }}
aws-default-region: {{ .aws.defaultRegion | quote }}
aws-default-audience: {{ .aws.defaultAudience | quote }}
azure-default-tenant-id: {{ .azure.defaultTenantID | quote }}
azure-default-audience: {{ .azure.defaultAudience | quote }}
azure-authority-host: {{ .azure.authorityHost | quote }}
gcp-default-workload-identity-provider: {{ .gcp.defaultWorkloadIdentityProvider | quote }}
gcp-default-audience: {{ .gcp.defaultAudience | quote }}
{{- end -}}
{{- end -}}
