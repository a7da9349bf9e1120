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
{{- if .Values.metrics.secure }}
- --metrics-secure
{{- end }}
{{- if and .Values.verifiedStart.enabled (not (hasKey .Values.config "verify-image")) }}
- {{ printf "--verify-image=%s" (include "lanyard.image" .) | quote }}
{{- end }}
- --log-format={{ .Values.logFormat }}
- --v={{ .Values.logLevel }}
{{- if include "lanyard.configMap" . }}
- --config=/etc/lanyard/config/config.yaml
{{- end }}
{{- if .Values.existingConfigMap }}
{{- /* Other templates use this one: the user's file must not set it. */}}
- --token-mount-path={{ include "lanyard.tokenMountPath" . }}
{{- range $flag, $value := omit .Values.config "token-mount-path" "excluded-namespaces" }}
- {{ printf "--%s=%v" $flag (kindIs "slice" $value | ternary (join "," $value) $value) | quote }}
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
- --certificate-dns-names={{ list (include "lanyard.dnsName" .) (include "lanyard.urlHost" .) | compact | join "," }}
- --webhook-configuration-name={{ include "lanyard.fullname" . }}
{{- with .Values.certificates.caDuration }}
- --ca-duration={{ . }}
{{- end }}
{{- with .Values.certificates.duration }}
- --certificate-duration={{ . }}
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
