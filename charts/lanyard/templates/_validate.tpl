{{- /*
Copyright The Lanyard Authors.
SPDX-License-Identifier: Apache-2.0
*/ -}}

{{- /* Fails for values that are each valid, but not together. Reports all problems at once. */ -}}
{{- define "lanyard.validate" -}}
{{- $problems := concat
  (include "lanyard.certificateProblems" . | fromYamlArray)
  (include "lanyard.podProblems" . | fromYamlArray)
  (include "lanyard.monitoringProblems" . | fromYamlArray)
  (include "lanyard.configProblems" . | fromYamlArray)
  (include "lanyard.otherProblems" . | fromYamlArray) -}}
{{- with $problems -}}
{{- fail (printf "\n\nThese values cannot be combined:\n- %s\n" (join "\n- " .)) -}}
{{- end -}}
{{- end -}}

{{- define "lanyard.certificateProblems" -}}
{{- $c := .Values.certificates -}}
{{- $mode := $c.mode -}}
{{- if eq $mode "secret" }}
{{- if not $c.existingSecret }}
- "certificates.mode=secret needs certificates.existingSecret: the name of a Secret of type kubernetes.io/tls in the namespace {{ include "lanyard.namespace" . }}"
{{- end }}
{{- if not (contains "-----BEGIN CERTIFICATE-----" $c.caBundle) }}
- "certificates.mode=secret needs certificates.caBundle: the CA of the certificate, in PEM (--set-file certificates.caBundle=ca.crt)"
{{- end }}
{{- else }}
{{- range $key := list "existingSecret" "caBundle" }}
{{- if get $c $key }}
- "certificates.{{ $key }} is for certificates.mode=secret, got certificates.mode={{ $mode }}"
{{- end }}
{{- end }}
{{- end }}
{{- if ne $mode "certManager" }}
{{- range $key := list "issuerRef" "renewBefore" }}
{{- if get $c $key }}
- "certificates.{{ $key }} is for certificates.mode=certManager, got certificates.mode={{ $mode }}"
{{- end }}
{{- end }}
{{- end }}
{{- if has $mode (list "openshift" "secret") }}
{{- range $key := list "duration" "caDuration" }}
{{- if get $c $key }}
- "certificates.{{ $key }} has no effect with certificates.mode={{ $mode }}: something else issues the certificate"
{{- end }}
{{- end }}
{{- else if and $c.issuerRef $c.caDuration }}
- "certificates.caDuration has no effect with certificates.issuerRef: the issuer has its own CA"
{{- end }}
{{- end -}}

{{- define "lanyard.otherProblems" -}}
{{- $v := .Values -}}
{{- if and $v.webhook.url (eq $v.certificates.mode "openshift") }}
- "webhook.url cannot be used with certificates.mode=openshift: OpenShift's certificate is only valid for the Service"
{{- end }}
{{- with $v.clientCertificates }}
{{- if and .configMap .secret }}
- "clientCertificates.configMap and clientCertificates.secret cannot both be set"
{{- end }}
{{- if and .allowedNames (not .configMap) (not .secret) }}
- "clientCertificates.allowedNames needs clientCertificates.configMap or clientCertificates.secret"
{{- end }}
{{- end }}
{{- if and $v.metrics.enabled (eq (int $v.metrics.port) (int $v.service.port)) }}
- "service.port and metrics.port are ports of the same Service and must differ; got {{ $v.service.port }}"
{{- end }}
{{- end -}}

{{- /* The fields of the pods' spec that the chart sets, or that have a value of their own. */ -}}
{{- define "lanyard.podSpecFields" -}}
affinity automountServiceAccountToken containers enableServiceLinks hostNetwork hostUsers imagePullSecrets
nodeSelector priorityClassName securityContext serviceAccountName terminationGracePeriodSeconds tolerations
topologySpreadConstraints volumes
{{- end -}}

{{- define "lanyard.podProblems" -}}
{{- $v := .Values -}}
{{- range $field, $_ := $v.podSpecExtra }}
{{- if has $field (include "lanyard.podSpecFields" $ | splitList "\n" | join " " | splitList " ") }}
- "podSpecExtra.{{ $field }} is set by the chart: use the value for it"
{{- end }}
{{- end }}
{{- if and $v.namespace.create $v.hostNetwork (has (get $v.namespace.labels "pod-security.kubernetes.io/enforce") (list "baseline" "restricted")) }}
- "hostNetwork needs the label pod-security.kubernetes.io/enforce: privileged in namespace.labels"
{{- end }}
{{- $needed := add $v.shutdownDelaySeconds 35 -}}
{{- if lt (int $v.terminationGracePeriodSeconds) (int $needed) }}
- "terminationGracePeriodSeconds must be at least {{ $needed }}: shutdownDelaySeconds plus 35 for requests in flight; got {{ $v.terminationGracePeriodSeconds }}"
{{- end }}
{{- $ports := list (int $v.webhook.port) (int $v.healthProbePort) }}
{{- if $v.metrics.enabled }}{{ $ports = append $ports (int $v.metrics.port) }}{{ end }}
{{- if ne (len $ports) (len (uniq $ports)) }}
- "webhook.port, healthProbePort and metrics.port must differ; got {{ join ", " $ports }}"
{{- end }}
{{- end -}}

{{- define "lanyard.monitoringProblems" -}}
{{- $v := .Values -}}
{{- if not $v.metrics.enabled }}
{{- range $key := list "serviceMonitor" "prometheusRule" "grafanaDashboard" }}
{{- if (get $v $key).enabled }}
- "{{ $key }}.enabled needs metrics.enabled"
{{- end }}
{{- end }}
{{- if $v.metrics.secure }}
- "metrics.secure needs metrics.enabled"
{{- end }}
{{- end }}
{{- if $v.metrics.secure }}
{{- if and $v.serviceMonitor.enabled (not $v.serviceMonitor.tlsConfig) (or $v.serviceMonitor.namespace (eq $v.certificates.mode "secret")) }}
- "metrics.secure needs serviceMonitor.tlsConfig with certificates.mode=secret or serviceMonitor.namespace: the chart knows no CA in the namespace of the ServiceMonitor"
{{- end }}
{{- end }}
{{- end -}}
