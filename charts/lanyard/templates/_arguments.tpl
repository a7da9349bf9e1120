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
- --log-format={{ .Values.logFormat }}
- --v={{ .Values.logLevel }}
{{- if or .Values.config.existingConfigMap (ne .Values.annotationPrefix "lanyard.dev/") }}
- --annotation-prefix={{ .Values.annotationPrefix }}
{{- end }}
{{- if include "lanyard.configMap" . }}
- --config=/etc/lanyard/config/config.yaml
{{- end }}
{{- if .Values.config.existingConfigMap }}
{{- range $flag, $value := include "lanyard.settings" . | fromYaml }}
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

{{- /*
The values of config that are not empty, by the names of the flags. The program has
a default for each of the others. The mount path in a ConfigMap of the user's has no
effect, because the guard would not know it.
*/ -}}
{{- define "lanyard.settings" -}}
{{- $settings := dict -}}
{{- with .Values.config -}}
{{- if .existingConfigMap }}{{ $_ := set $settings "token-mount-path" (include "lanyard.tokenMountPath" $) }}{{ end -}}
{{- range $flag, $value := dict
  "bind-address" .bindAddress
  "tls-min-version" .tlsMinVersion
  "tls-cipher-suites" .tlsCipherSuites
  "token-mount-path" .tokenMountPath
  "token-expiration-seconds" (int64 .tokenExpirationSeconds)
  "default-allowed-identities" .defaultAllowedIdentities
  "adopt" .adopt
  "aws-default-region" .aws.defaultRegion
  "aws-role-arn-prefix" .aws.roleARNPrefix
  "aws-default-role-arn" .aws.defaultRoleARN
  "aws-default-audience" .aws.defaultAudience
  "azure-default-tenant-id" .azure.defaultTenantID
  "azure-default-audience" .azure.defaultAudience
  "azure-authority-host" .azure.authorityHost
  "gcp-default-workload-identity-provider" .gcp.defaultWorkloadIdentityProvider
  "gcp-default-project" .gcp.defaultProject
  "gcp-default-audience" .gcp.defaultAudience -}}
{{- if $value }}{{ $_ := set $settings $flag $value }}{{ end -}}
{{- end -}}
{{- end -}}
{{- with $settings }}{{ toYaml . }}{{ end -}}
{{- end -}}

{{- /* The file of --config: the settings, custom providers and identity mappings. */ -}}
{{- define "lanyard.configFile" -}}
{{- $file := include "lanyard.settings" . | fromYaml -}}
{{- range $key := list "providers" "identities" -}}
{{- with get $.Values.config $key }}{{ $_ := set $file $key . }}{{ end -}}
{{- end -}}
{{- with $file }}{{ toYaml . }}{{ end -}}
{{- end -}}

{{- /* The name of the ConfigMap with the settings; empty if there are none. */ -}}
{{- define "lanyard.configMap" -}}
{{- if .Values.config.existingConfigMap -}}
{{- .Values.config.existingConfigMap -}}
{{- else if include "lanyard.configFile" . -}}
{{ include "lanyard.webhook" . }}-config
{{- end -}}
{{- end -}}
