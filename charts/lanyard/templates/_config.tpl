{{- /*
Copyright The Lanyard Authors.
SPDX-License-Identifier: Apache-2.0
*/ -}}

{{- /*
The value config is the file of --config. These helpers return the settings in it that
other templates use, with their defaults.
*/ -}}

{{- define "lanyard.tokenMountPath" -}}
{{- get .Values.config "token-mount-path" | default "/var/run/secrets/lanyard.dev/serviceaccount" -}}
{{- end -}}

{{- /* The namespaces that no webhook is called for, comma-separated. Always includes the release's own. */ -}}
{{- define "lanyard.excludedNamespaces" -}}
{{- $excluded := hasKey .Values.config "excluded-namespaces" | ternary (get .Values.config "excluded-namespaces") (list "kube-system") -}}
{{- append $excluded (include "lanyard.namespace" .) | uniq | join "," -}}
{{- end -}}

{{- /* The name of the ConfigMap with the file; empty if there is none. */ -}}
{{- define "lanyard.configMap" -}}
{{- if .Values.existingConfigMap -}}
{{- .Values.existingConfigMap -}}
{{- else if .Values.config -}}
{{ include "lanyard.webhook" . }}-config
{{- end -}}
{{- end -}}

{{- /*
The settings that are not in config: a setting has one value of the chart. By the names
of the flags, with the value to use.
*/ -}}
{{- define "lanyard.ownSettings" -}}
config: existingConfigMap
existingConfigMap: existingConfigMap
secure-port: webhook.port
metrics-bind-address: metrics.port
metrics-secure: metrics.secure
health-probe-bind-address: healthProbePort
shutdown-delay: shutdownDelaySeconds
log-format: logFormat
v: logLevel
certificate-source: certificates.mode
tls-cert-file: certificates.mode
tls-private-key-file: certificates.mode
certificate-secret-namespace: namespaceOverride
certificate-secret-name: fullnameOverride
webhook-configuration-name: fullnameOverride
certificate-dns-names: webhook.url
ca-duration: certificates.caDuration
certificate-duration: certificates.duration
client-ca-file: clientCertificates.configMap
client-allowed-names: clientCertificates.allowedNames
{{- end -}}

{{- /* The form of config. The program checks the rest when it starts. */ -}}
{{- define "lanyard.configProblems" -}}
{{- $own := include "lanyard.ownSettings" . | fromYaml -}}
{{- range $key, $value := omit .Values.config "providers" "identities" }}
{{- if hasKey $own $key }}
- "config.{{ $key }} is set by the chart: use {{ get $own $key }}"
{{- else if kindIs "map" $value }}
{{- range $below, $_ := $value }}
- "config.{{ $key }}.{{ $below }}: settings have the names of the flags: use config.{{ $key }}-{{ kebabcase $below }}"
{{- end }}
{{- else if ne $key (lower $key) }}
- "config.{{ $key }}: settings have the names of the flags: use config.{{ kebabcase $key }}"
{{- else if kindIs "invalid" $value }}
- "config.{{ $key }} is null: leave it out"
{{- end }}
{{- end }}
{{- if and .Values.existingConfigMap (or .Values.config.providers .Values.config.identities) }}
- "config.providers and config.identities cannot be set with existingConfigMap: write them into that ConfigMap"
{{- end }}
{{- end -}}
