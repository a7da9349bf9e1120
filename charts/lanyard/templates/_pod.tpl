{{- /*
Copyright The Lanyard Authors.
SPDX-License-Identifier: Apache-2.0
*/ -}}

{{- /* Scheduling and runtime settings of the pods. */ -}}
{{- define "lanyard.scheduling" -}}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .Values.runtimeClassName }}
runtimeClassName: {{ . }}
{{- end }}
{{- if .Values.hostNetwork }}
hostNetwork: true
{{- end }}
{{- with .Values.dnsPolicy }}
dnsPolicy: {{ . }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.topologySpreadConstraints }}
# On different nodes and zones if possible.
topologySpreadConstraints:
  {{- $selector := dict "labelSelector" (dict "matchLabels" (include "lanyard.selectorLabels" $ | fromYaml)) }}
  {{- range . }}
  - {{ merge (deepCopy .) $selector | toYaml | indent 4 | trim }}
  {{- end }}
{{- end }}
{{- end -}}

{{- /* An HTTP probe. Takes path, and probe with the thresholds. */ -}}
{{- define "lanyard.probe" -}}
httpGet:
  path: {{ .path }}
  port: probes
{{- with .probe }}
{{ toYaml . }}
{{- end }}
{{- end -}}
